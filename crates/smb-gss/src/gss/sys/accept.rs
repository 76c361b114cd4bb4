//! The calls that a server needs, beside those of a client: keys from a keytab, and tokens that clients send.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::{Buffer, BufferDesc, CONTINUE_NEEDED, Context, Credential, Fault, INDEFINITE, KERBEROS};
use super::{Name, OidDesc, OidSetDesc, Uint, lent, oid};

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
/// `GSS_C_ANON_FLAG`: the client has a ticket that names nobody.
const ANONYMOUS: Uint = 64;

// SAFETY: the library guards a credential by a lock of its own (MIT, "Thread safety"), so that contexts of several threads
// may be accepted with one.
unsafe impl Sync for Credential {}

/// What a client's token gives.
pub(in crate::gss) struct Accepted {
    /// For the client; may be empty.
    pub(in crate::gss) token: Vec<u8>,
    /// Who the client is, `user@REALM`, once it is known; none if the ticket names nobody.
    pub(in crate::gss) client: Option<String>,
    /// Whether this end is satisfied.
    pub(in crate::gss) is_done: bool,
}

impl Credential {
    /// The key of a service in a keytab (`FILE:…`, a path). No network is used.
    pub(in crate::gss) fn of_service(keytab: &str, principal: &Name) -> Result<Self, Fault> {
        let keytab = CString::new(keytab).map_err(|_| Fault {
            major: 0,
            minor: 0,
            text: "a NUL in the keytab's name".to_owned(),
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
        // SAFETY: name, sets and their elements outlive the call, which copies them; the credential is owned by `credential`.
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
        Fault::check(major, minor)?;
        Ok(credential)
    }
}

impl Context {
    /// Takes a client's token. Reads the keytab and the cache of replays; no network is used.
    pub(in crate::gss) fn accept(
        &mut self,
        credential: &Credential,
        token: &[u8],
    ) -> Result<Accepted, Fault> {
        let input = lent(token);
        let mut output = Buffer::empty();
        let mut source = Name(ptr::null_mut());
        let (mut minor, mut flags) = (0, 0);
        // SAFETY: the credential is alive; the context is null or ours, and stays ours; the input is only read; `output` and
        // `source` own what is put into them; what is delegated, if anything, is not asked for.
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
        Fault::check(major, minor)?;
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
