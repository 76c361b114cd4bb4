//! The GSS-API calls that only a server needs: keys from a keytab, and tokens from clients.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::{Buffer, BufferDesc, CONTINUE_NEEDED, Context, Credential, GssError, INDEFINITE, KERBEROS};
use super::{Name, OidDesc, OidSetDesc, Uint, borrowed, oid};

/// `gss_key_value_element_desc`.
#[repr(C)]
struct KeyValueDesc {
    key: *const c_char,
    value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
struct KeyValueSetDesc {
    count: Uint,
    elements: *const KeyValueDesc,
}

#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    fn gss_acquire_cred_from(
        minor: *mut Uint,
        name: *mut c_void,
        time: Uint,
        mechanisms: *const OidSetDesc,
        usage: c_int,
        store: *const KeyValueSetDesc,
        credential: *mut *mut c_void,
        actual_mechanisms: *mut *mut c_void,
        actual_time: *mut Uint,
    ) -> Uint;
    fn gss_accept_sec_context(
        minor: *mut Uint,
        context: *mut *mut c_void,
        credential: *mut c_void,
        input: *const BufferDesc,
        bindings: *mut c_void,
        source: *mut *mut c_void,
        mechanism: *mut *mut OidDesc,
        output: *mut BufferDesc,
        flags: *mut Uint,
        time: *mut Uint,
        delegated: *mut *mut c_void,
    ) -> Uint;
}

/// `GSS_C_ACCEPT`.
const ACCEPT: c_int = 2;
/// `GSS_C_ANON_FLAG`: the client has an anonymous ticket.
const ANONYMOUS: Uint = 64;

// SAFETY: the library protects a credential by a lock of its own (MIT, "Thread safety"), so that
// several threads may accept contexts with it.
unsafe impl Sync for Credential {}

/// The result of a client's token.
pub(in crate::gss) struct Accepted {
    /// The token for the client; may be empty.
    pub(in crate::gss) token: Vec<u8>,
    /// The client's principal, `user@REALM`, once it is known; `None` for an anonymous ticket.
    pub(in crate::gss) client: Option<String>,
    /// Whether this end has completed the login.
    pub(in crate::gss) is_done: bool,
}

impl Credential {
    /// Acquires the key of a service from a keytab (`FILE:…`, a path). Does not use the network.
    pub(in crate::gss) fn of_service(keytab: &str, principal: &Name) -> Result<Self, GssError> {
        let keytab = CString::new(keytab).map_err(|_| GssError {
            major: 0,
            minor: 0,
            text: "the name of the keytab contains a NUL".to_owned(),
        })?;
        let element = KeyValueDesc {
            key: c"keytab".as_ptr(),
            value: keytab.as_ptr(),
        };
        let store = KeyValueSetDesc {
            count: 1,
            elements: &element,
        };
        let mechanism = oid(KERBEROS);
        let mechanisms = OidSetDesc {
            count: 1,
            elements: &mechanism,
        };
        let mut credential = Self(ptr::null_mut());
        let mut minor = 0;
        // SAFETY: name, sets and their elements outlive the call, which copies them; `credential`
        // owns the new credential.
        let major = unsafe {
            gss_acquire_cred_from(
                &mut minor,
                principal.0,
                INDEFINITE,
                &mechanisms,
                ACCEPT,
                &store,
                &mut credential.0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        GssError::check(major, minor)?;
        Ok(credential)
    }
}

impl Context {
    /// Processes a client's token. Reads the keytab and the replay cache; does not use the network.
    pub(in crate::gss) fn accept(
        &mut self,
        credential: &Credential,
        token: &[u8],
    ) -> Result<Accepted, GssError> {
        let input = borrowed(token);
        let mut output = Buffer::empty();
        let mut source = Name(ptr::null_mut());
        let (mut minor, mut flags) = (0, 0);
        // SAFETY: the credential is alive; the context is null or ours, and stays ours; the input
        // is only read; `output` and `source` own what the library puts into them; a delegated
        // credential is not requested.
        let major = unsafe {
            gss_accept_sec_context(
                &mut minor,
                &mut self.0,
                credential.0,
                &input,
                ptr::null_mut(),
                &mut source.0,
                ptr::null_mut(),
                &mut output.0,
                &mut flags,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        GssError::check(major, minor)?;
        let is_done = major & CONTINUE_NEEDED == 0;
        let client = match is_done && flags & ANONYMOUS == 0 && !source.0.is_null() {
            true => Some(source.text()?),
            false => None,
        };
        Ok(Accepted {
            token: output.bytes().to_vec(),
            client,
            is_done,
        })
    }
}
