//! The GSS-API calls (RFC 2744) of a login, wrapped in types that cannot be misused.
//!
//! The declarations are written by hand, since the crate `libgssapi` keeps the handle of a context
//! private and has no call for its session key, without which SMB can neither sign nor seal
//! (`docs/adr/0009-kerberos-by-gss-api.md`). They match MIT's `gssapi/gssapi.h` and `gssapi_ext.h`
//! on Linux, where no structure is packed.
//!
//! Ownership: [`Name`], [`Credential`], [`Context`] and [`Buffer`] each own what the library
//! allocated, and release it when dropped. The library keeps no pointer into our memory.

mod accept;

use std::ffi::{c_int, c_void};
use std::ptr;

use zeroize::Zeroize;

/// `OM_uint32`.
type Uint = u32;

/// `gss_OID_desc`.
#[repr(C)]
struct OidDesc {
    length: Uint,
    elements: *const c_void,
}

/// `gss_OID_set_desc`.
#[repr(C)]
struct OidSetDesc {
    count: usize,
    elements: *const OidDesc,
}

/// `gss_buffer_desc`.
#[repr(C)]
struct BufferDesc {
    length: usize,
    value: *mut c_void,
}

/// `gss_buffer_set_desc`.
#[repr(C)]
struct BufferSetDesc {
    count: usize,
    elements: *mut BufferDesc,
}

#[link(name = "gssapi_krb5")]
unsafe extern "C" {
    fn gss_import_name(
        minor: *mut Uint,
        text: *const BufferDesc,
        kind: *const OidDesc,
        name: *mut *mut c_void,
    ) -> Uint;
    fn gss_display_name(
        minor: *mut Uint,
        name: *mut c_void,
        text: *mut BufferDesc,
        kind: *mut *mut OidDesc,
    ) -> Uint;
    fn gss_release_name(minor: *mut Uint, name: *mut *mut c_void) -> Uint;
    fn gss_acquire_cred(
        minor: *mut Uint,
        name: *mut c_void,
        time: Uint,
        mechanisms: *const OidSetDesc,
        usage: c_int,
        credential: *mut *mut c_void,
        actual_mechanisms: *mut *mut c_void,
        actual_time: *mut Uint,
    ) -> Uint;
    fn gss_inquire_cred(
        minor: *mut Uint,
        credential: *mut c_void,
        name: *mut *mut c_void,
        lifetime: *mut Uint,
        usage: *mut c_int,
        mechanisms: *mut *mut c_void,
    ) -> Uint;
    fn gss_release_cred(minor: *mut Uint, credential: *mut *mut c_void) -> Uint;
    fn gss_init_sec_context(
        minor: *mut Uint,
        credential: *mut c_void,
        context: *mut *mut c_void,
        target: *mut c_void,
        mechanism: *const OidDesc,
        flags: Uint,
        time: Uint,
        bindings: *mut c_void,
        input: *const BufferDesc,
        actual_mechanism: *mut *mut OidDesc,
        output: *mut BufferDesc,
        actual_flags: *mut Uint,
        actual_time: *mut Uint,
    ) -> Uint;
    fn gss_delete_sec_context(minor: *mut Uint, context: *mut *mut c_void, output: *mut BufferDesc) -> Uint;
    fn gss_inquire_sec_context_by_oid(
        minor: *mut Uint,
        context: *mut c_void,
        what: *const OidDesc,
        answer: *mut *mut BufferSetDesc,
    ) -> Uint;
    fn gss_get_mic(
        minor: *mut Uint,
        context: *mut c_void,
        quality: Uint,
        message: *const BufferDesc,
        mic: *mut BufferDesc,
    ) -> Uint;
    fn gss_verify_mic(
        minor: *mut Uint,
        context: *mut c_void,
        message: *const BufferDesc,
        mic: *const BufferDesc,
        quality: *mut Uint,
    ) -> Uint;
    fn gss_display_status(
        minor: *mut Uint,
        status: Uint,
        kind: c_int,
        mechanism: *const OidDesc,
        more: *mut Uint,
        text: *mut BufferDesc,
    ) -> Uint;
    fn gss_release_buffer(minor: *mut Uint, buffer: *mut BufferDesc) -> Uint;
    fn gss_release_buffer_set(minor: *mut Uint, set: *mut *mut BufferSetDesc) -> Uint;
}

/// Kerberos 5, 1.2.840.113554.1.2.2.
const KERBEROS: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 2];
/// `GSS_C_NT_HOSTBASED_SERVICE`, 1.2.840.113554.1.2.1.4 (RFC 2743 4.1).
const HOST_BASED_SERVICE: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 1, 4];
/// `GSS_KRB5_NT_PRINCIPAL_NAME`, 1.2.840.113554.1.2.2.1 (RFC 1964 2.1.1).
const PRINCIPAL: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 2, 1];
/// `GSS_C_INQ_SSPI_SESSION_KEY`, 1.2.840.113554.1.2.2.5.5 (MIT's `gssapi_ext.h`).
const SESSION_KEY: &[u8] = &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x12, 1, 2, 2, 5, 5];

/// `GSS_S_CONTINUE_NEEDED`, the only supplementary bit in use here.
const CONTINUE_NEEDED: Uint = 1;
/// Mask of calling and routine errors: the upper half (RFC 2744 3.9.1).
const ERRORS: Uint = 0xFFFF_0000;
const INDEFINITE: Uint = u32::MAX;
/// `GSS_C_INITIATE`.
const INITIATE: c_int = 1;
/// `GSS_C_MUTUAL_FLAG | GSS_C_REPLAY_FLAG | GSS_C_SEQUENCE_FLAG | GSS_C_INTEG_FLAG`. Never
/// delegation, so that a server cannot act as the user elsewhere.
const FLAGS: Uint = 2 | 4 | 8 | 32;
/// A context without these flags is refused: they mean that the server has authenticated itself and
/// that MICs are available.
const FLAGS_NEEDED: Uint = 2 | 32;
/// `GSS_C_GSS_CODE` and `GSS_C_MECH_CODE`.
const GSS_CODE: c_int = 1;
const MECHANISM_CODE: c_int = 2;
/// Maximum number of lines of a status text; one in practice.
const STATUS_LINES_MAX: usize = 8;

fn oid(bytes: &'static [u8]) -> OidDesc {
    OidDesc {
        // The constants above are short.
        length: bytes.len() as Uint,
        elements: bytes.as_ptr().cast(),
    }
}

/// Describes our memory to the library, which only reads it.
fn borrowed(bytes: &[u8]) -> BufferDesc {
    BufferDesc {
        length: bytes.len(),
        value: bytes.as_ptr().cast_mut().cast(),
    }
}

/// An error of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GssError {
    /// The routine error, `GSS_S_…`.
    pub(super) major: u32,
    /// Kerberos's own error code.
    pub(super) minor: u32,
    /// The library's message.
    pub(super) text: String,
}

impl GssError {
    fn of(major: Uint, minor: Uint) -> Self {
        // The mechanism's message says more than that of GSS-API, which is used if there is no
        // other.
        let words = match minor {
            0 => String::new(),
            minor => status_text(minor, MECHANISM_CODE),
        };
        let words = if words.is_empty() {
            status_text(major, GSS_CODE)
        } else {
            words
        };
        Self {
            major: major & ERRORS,
            minor,
            text: words,
        }
    }

    fn check(major: Uint, minor: Uint) -> Result<(), Self> {
        match major & ERRORS {
            0 => Ok(()),
            _ => Err(Self::of(major, minor)),
        }
    }
}

fn status_text(status: Uint, kind: c_int) -> String {
    let mechanism = oid(KERBEROS);
    let mut more = 0;
    let mut lines = Vec::new();
    while lines.len() < STATUS_LINES_MAX {
        let mut text = Buffer::empty();
        let mut minor = 0;
        // SAFETY: all pointers are to locals that outlive the call; `text` owns what the library
        // puts into it.
        let major =
            unsafe { gss_display_status(&mut minor, status, kind, &mechanism, &mut more, &mut text.0) };
        if major & ERRORS != 0 {
            break;
        }
        lines.push(String::from_utf8_lossy(text.bytes()).into_owned());
        if more == 0 {
            break;
        }
    }
    lines.join("; ")
}

/// Memory that the library allocated.
struct Buffer(BufferDesc);

impl Buffer {
    fn empty() -> Self {
        Self(BufferDesc {
            length: 0,
            value: ptr::null_mut(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the library filled the descriptor, or it is null and empty; the memory behind it
        // lives until `drop`.
        unsafe { slice(&self.0) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this owns what the library allocated; null is allowed (RFC 2744 5.27).
        unsafe { gss_release_buffer(&mut minor, &mut self.0) };
    }
}

/// # Safety
/// The descriptor is null or points to `length` bytes that live and do not change for the life of
/// the borrow.
unsafe fn slice(buffer: &BufferDesc) -> &[u8] {
    if buffer.value.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(buffer.value.cast(), buffer.length) }
}

/// The name of a principal or a service.
pub(super) struct Name(*mut c_void);

// SAFETY: a name has one owner and never changes; the library keeps nothing of it in the thread
// that created it.
unsafe impl Send for Name {}

impl Name {
    /// Imports a service at a host, `cifs@host`.
    pub(super) fn service(text: &str) -> Result<Self, GssError> {
        Self::import(text, HOST_BASED_SERVICE)
    }

    /// Imports a principal, with or without its realm.
    pub(super) fn principal(text: &str) -> Result<Self, GssError> {
        Self::import(text, PRINCIPAL)
    }

    fn import(text: &str, kind: &'static [u8]) -> Result<Self, GssError> {
        let (text, kind) = (borrowed(text.as_bytes()), oid(kind));
        let mut name = Self(ptr::null_mut());
        let mut minor = 0;
        // SAFETY: text and kind outlive the call, which copies them; the new name is owned by
        // `name`.
        let major = unsafe { gss_import_name(&mut minor, &text, &kind, &mut name.0) };
        GssError::check(major, minor)?;
        Ok(name)
    }

    fn text(&self) -> Result<String, GssError> {
        let mut text = Buffer::empty();
        let mut minor = 0;
        // SAFETY: the name lives as long as its owner; `text` owns what the library puts into it;
        // the kind is not requested.
        let major = unsafe { gss_display_name(&mut minor, self.0, &mut text.0, ptr::null_mut()) };
        GssError::check(major, minor)?;
        Ok(String::from_utf8_lossy(text.bytes()).into_owned())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this is the owner; a null name is an error that does nothing.
        unsafe { gss_release_name(&mut minor, &mut self.0) };
    }
}

/// The tickets of one principal in a credential cache, or the key of a service.
pub(super) struct Credential(*mut c_void);

// SAFETY: a credential has one owner, and the library protects it by a lock of its own (MIT,
// "Thread safety").
unsafe impl Send for Credential {}

impl Credential {
    /// Acquires the credential of a principal, or the default one. Reads the cache; does not use
    /// the network.
    pub(super) fn acquire(name: Option<&Name>) -> Result<Self, GssError> {
        let mut credential = Self(ptr::null_mut());
        let mut minor = 0;
        let name = name.map_or(ptr::null_mut(), |name| name.0);
        let mechanism = oid(KERBEROS);
        let mechanisms = OidSetDesc {
            count: 1,
            elements: &mechanism,
        };
        // SAFETY: a null name means the default one; the set and its one element outlive the call,
        // which copies them; `credential` owns the new credential.
        let major = unsafe {
            gss_acquire_cred(
                &mut minor,
                name,
                INDEFINITE,
                &mechanisms,
                INITIATE,
                &mut credential.0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        GssError::check(major, minor)?;
        Ok(credential)
    }

    /// Returns the principal, `user@REALM`.
    pub(super) fn principal(&self) -> Result<String, GssError> {
        let mut name = Name(ptr::null_mut());
        let mut minor = 0;
        // SAFETY: the credential is alive; `name` owns the new name; nothing else is requested.
        let major = unsafe {
            gss_inquire_cred(
                &mut minor,
                self.0,
                &mut name.0,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        GssError::check(major, minor)?;
        name.text()
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this is the owner; a null credential is allowed (RFC 2744 5.28).
        unsafe { gss_release_cred(&mut minor, &mut self.0) };
    }
}

/// The security context of one login, from its first token on.
pub(super) struct Context(*mut c_void);

// SAFETY: a context has one owner, and the library keeps nothing of it in the thread that created
// it; its calls may come from any thread, one at a time (MIT, "Thread safety"), which `&mut self`
// below ensures.
unsafe impl Send for Context {}

/// The result of a step.
pub(super) struct StepResult {
    /// The token for the peer; may be empty.
    pub(super) token: Vec<u8>,
    /// Whether this end has completed the login.
    pub(super) is_done: bool,
}

impl Context {
    /// Creates an empty context.
    pub(super) fn new() -> Self {
        Self(ptr::null_mut())
    }

    /// Takes the next step. The first one, without a token, may ask the KDC for a ticket, and so
    /// take long.
    pub(super) fn step(
        &mut self,
        credential: &Credential,
        target: &Name,
        token: Option<&[u8]>,
    ) -> Result<StepResult, GssError> {
        let input = borrowed(token.unwrap_or_default());
        let mechanism = oid(KERBEROS);
        let mut output = Buffer::empty();
        let (mut minor, mut flags) = (0, 0);
        // SAFETY: credential and target are alive; the context is null or ours, and stays ours; the
        // input is only read; `output` owns what the library puts into it.
        let major = unsafe {
            gss_init_sec_context(
                &mut minor,
                credential.0,
                &mut self.0,
                target.0,
                &mechanism,
                FLAGS,
                INDEFINITE,
                ptr::null_mut(),
                if token.is_some() { &input } else { ptr::null() },
                ptr::null_mut(),
                &mut output.0,
                &mut flags,
                ptr::null_mut(),
            )
        };
        GssError::check(major, minor)?;
        let is_done = major & CONTINUE_NEEDED == 0;
        if is_done && flags & FLAGS_NEEDED != FLAGS_NEEDED {
            return Err(GssError {
                major: 0,
                minor: 0,
                text: "the server did not authenticate itself".to_owned(),
            });
        }
        Ok(StepResult {
            token: output.bytes().to_vec(),
            is_done,
        })
    }

    /// Returns the session key in full length ([MS-SMB2] 3.2.5.3: "the cryptographic key for this
    /// authenticated context").
    pub(super) fn session_key(&mut self) -> Result<Vec<u8>, GssError> {
        let what = oid(SESSION_KEY);
        let mut set: *mut BufferSetDesc = ptr::null_mut();
        let mut minor = 0;
        // SAFETY: the context is alive; the result is a set that is released below.
        let major = unsafe { gss_inquire_sec_context_by_oid(&mut minor, self.0, &what, &mut set) };
        GssError::check(major, minor)?;
        // SAFETY: on success the set is not null and has `count` elements; the first is the key, to
        // which there is no other reference.
        let key = unsafe {
            let elements = match set.as_ref() {
                Some(set) if set.count > 0 && !set.elements.is_null() => {
                    std::slice::from_raw_parts_mut(set.elements, set.count)
                }
                _ => &mut [],
            };
            elements.first_mut().map(|element| {
                let key = slice(element).to_vec();
                if !element.value.is_null() {
                    std::slice::from_raw_parts_mut(element.value.cast::<u8>(), element.length).zeroize();
                }
                key
            })
        };
        // SAFETY: the set is ours; the borrows above have ended.
        unsafe { gss_release_buffer_set(&mut minor, &mut set) };
        key.filter(|key| !key.is_empty()).ok_or(GssError {
            major: 0,
            minor: 0,
            text: "there is no session key".to_owned(),
        })
    }

    /// Returns the MIC of a message.
    pub(super) fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let message = borrowed(message);
        let mut mic = Buffer::empty();
        let mut minor = 0;
        // SAFETY: the context is alive; the message is only read; `mic` owns what the library puts
        // into it.
        let major = unsafe { gss_get_mic(&mut minor, self.0, 0, &message, &mut mic.0) };
        GssError::check(major, minor)?;
        Ok(mic.bytes().to_vec())
    }

    /// Verifies the peer's MIC of a message.
    pub(super) fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), GssError> {
        let (message, mic) = (borrowed(message), borrowed(mic));
        let mut minor = 0;
        // SAFETY: the context is alive; both buffers are only read; the quality is not requested.
        let major = unsafe { gss_verify_mic(&mut minor, self.0, &message, &mic, ptr::null_mut()) };
        // Supplementary bits report replayed and missing messages, which cannot occur between two
        // MICs.
        if major == 0 {
            return Ok(());
        }
        Err(GssError::of(major, minor))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this is the owner; null contexts are allowed (RFC 2744 5.9), and no token is
        // wanted.
        unsafe { gss_delete_sec_context(&mut minor, &mut self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_imported() {
        let name = Name::service("cifs@host.example").unwrap();
        assert_eq!(name.text().unwrap(), "cifs@host.example");
        let name = Name::principal("anna@EXAMPLE").unwrap();
        assert_eq!(name.text().unwrap(), "anna@EXAMPLE");
    }

    #[test]
    fn errors_have_messages() {
        // KRB5KRB_AP_ERR_TKT_EXPIRED.
        let fault = GssError::of(13 << 16, -1_765_328_352_i32 as u32);
        assert_eq!(fault.major, 13 << 16);
        assert!(!fault.text.is_empty());
        assert!(GssError::check(CONTINUE_NEEDED, 0).is_ok());
    }

    #[test]
    fn an_empty_context_yields_nothing() {
        let mut context = Context::new();
        assert!(context.session_key().is_err());
        assert!(context.mic(b"x").is_err());
        assert!(context.verify_mic(b"x", b"y").is_err());
    }
}
