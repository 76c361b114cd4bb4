//! The calls of GSS-API (RFC 2744) that a login needs, behind types that cannot be misused.
//!
//! Declared by hand rather than by the crate `libgssapi`: that one keeps the handle of a context to itself and has no
//! call for its session key, without which SMB can neither sign nor seal (`docs/adr/0009-kerberos-by-gss-api.md`).
//! The declarations are those of MIT's `gssapi/gssapi.h` and `gssapi_ext.h` on Linux, where no structure is packed.
//!
//! Owners: [`Name`], [`Credential`], [`Context`] and [`Buffer`] each own what the library allocated, and release it when
//! dropped. Nothing that the library keeps points into our memory.

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

/// `GSS_S_CONTINUE_NEEDED`: the only supplementary bit of interest.
const CONTINUE_NEEDED: Uint = 1;
/// Calling and routine errors: the upper half (RFC 2744 3.9.1).
const ERRORS: Uint = 0xFFFF_0000;
const INDEFINITE: Uint = u32::MAX;
/// `GSS_C_INITIATE`.
const INITIATE: c_int = 1;
/// `GSS_C_MUTUAL_FLAG | GSS_C_REPLAY_FLAG | GSS_C_SEQUENCE_FLAG | GSS_C_INTEG_FLAG`: never delegation, so that a server
/// cannot act as the user elsewhere.
const FLAGS: Uint = 2 | 4 | 8 | 32;
/// Without these a context is refused: the server has proved itself, and MICs can be made.
const FLAGS_NEEDED: Uint = 2 | 32;
/// `GSS_C_GSS_CODE` and `GSS_C_MECH_CODE`.
const GSS_CODE: c_int = 1;
const MECHANISM_CODE: c_int = 2;
/// Most lines that a status is made of; there is one in practice.
const STATUS_LINES_MAX: usize = 8;

fn oid(bytes: &'static [u8]) -> OidDesc {
    OidDesc {
        // The constants above are short.
        length: bytes.len() as Uint,
        elements: bytes.as_ptr().cast(),
    }
}

/// A buffer of ours, which the library only reads.
fn lent(bytes: &[u8]) -> BufferDesc {
    BufferDesc {
        length: bytes.len(),
        value: bytes.as_ptr().cast_mut().cast(),
    }
}

/// What the library says went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The routine error, `GSS_S_…`.
    pub(super) major: u32,
    /// Kerberos's own number.
    pub(super) minor: u32,
    /// In the library's words.
    pub(super) text: String,
}

impl Fault {
    fn of(major: Uint, minor: Uint) -> Self {
        // The mechanism's words say more than those of GSS-API, which are used where there are no others.
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
        // SAFETY: all pointers are to locals that outlive the call; `text` owns what is put into it.
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

/// Bytes that the library allocated.
struct Buffer(BufferDesc);

impl Buffer {
    fn empty() -> Self {
        Self(BufferDesc {
            length: 0,
            value: ptr::null_mut(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the library filled the descriptor, or it is null and empty; what it points to is released in `drop`.
        unsafe { slice(&self.0) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this is the owner of what the library allocated; null is allowed (RFC 2744 5.27).
        unsafe { gss_release_buffer(&mut minor, &mut self.0) };
    }
}

/// # Safety
/// The descriptor is null or points to `length` bytes that live and do not change as long as it is borrowed.
unsafe fn slice(buffer: &BufferDesc) -> &[u8] {
    if buffer.value.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(buffer.value.cast(), buffer.length) }
}

/// Who or what is meant.
pub(super) struct Name(*mut c_void);

// SAFETY: a name has one owner and never changes; the library keeps nothing of it in the thread that made it.
unsafe impl Send for Name {}

impl Name {
    /// A service at a host, `cifs@host`.
    pub(super) fn service(text: &str) -> Result<Self, Fault> {
        Self::import(text, HOST_BASED_SERVICE)
    }

    /// A principal, with or without its realm.
    pub(super) fn principal(text: &str) -> Result<Self, Fault> {
        Self::import(text, PRINCIPAL)
    }

    fn import(text: &str, kind: &'static [u8]) -> Result<Self, Fault> {
        let (text, kind) = (lent(text.as_bytes()), oid(kind));
        let mut name = Self(ptr::null_mut());
        let mut minor = 0;
        // SAFETY: text and kind outlive the call, which copies them; the new name is owned by `name`.
        let major = unsafe { gss_import_name(&mut minor, &text, &kind, &mut name.0) };
        Fault::check(major, minor)?;
        Ok(name)
    }

    fn text(&self) -> Result<String, Fault> {
        let mut text = Buffer::empty();
        let mut minor = 0;
        // SAFETY: the name is alive as long as its owner; `text` owns what is put into it; the kind is not asked for.
        let major = unsafe { gss_display_name(&mut minor, self.0, &mut text.0, ptr::null_mut()) };
        Fault::check(major, minor)?;
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

/// Tickets of one principal in a credential cache.
pub(super) struct Credential(*mut c_void);

// SAFETY: a credential has one owner, and the library guards it by a lock of its own (MIT, "Thread safety").
unsafe impl Send for Credential {}

impl Credential {
    /// The principal's, or the default one's. Reads the cache; the network is not used.
    pub(super) fn acquire(name: Option<&Name>) -> Result<Self, Fault> {
        let mut credential = Self(ptr::null_mut());
        let mut minor = 0;
        let name = name.map_or(ptr::null_mut(), |name| name.0);
        let mechanism = oid(KERBEROS);
        let mechanisms = OidSetDesc {
            count: 1,
            elements: &mechanism,
        };
        // SAFETY: a null name means the default one; the set and its one element outlive the call, which copies them; the
        // credential is owned by `credential`.
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
        Fault::check(major, minor)?;
        Ok(credential)
    }

    /// Whose it is, `user@REALM`.
    pub(super) fn principal(&self) -> Result<String, Fault> {
        let mut name = Name(ptr::null_mut());
        let mut minor = 0;
        // SAFETY: the credential is alive; the new name is owned by `name`; nothing else is asked for.
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
        Fault::check(major, minor)?;
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

/// One login, from its first token on.
pub(super) struct Context(*mut c_void);

// SAFETY: a context has one owner, and the library keeps nothing of it in the thread that made it; its calls may come
// from any thread, one at a time (MIT, "Thread safety"), which `&mut self` below ensures.
unsafe impl Send for Context {}

/// What a step gives.
pub(super) struct Stepped {
    /// For the peer; may be empty.
    pub(super) token: Vec<u8>,
    /// Whether this end is satisfied.
    pub(super) is_done: bool,
}

impl Context {
    /// Of nobody yet.
    pub(super) fn new() -> Self {
        Self(ptr::null_mut())
    }

    /// The next step; the first, without a token, may ask the KDC for a ticket and so take long.
    pub(super) fn step(
        &mut self,
        credential: &Credential,
        target: &Name,
        token: Option<&[u8]>,
    ) -> Result<Stepped, Fault> {
        let input = lent(token.unwrap_or_default());
        let mechanism = oid(KERBEROS);
        let mut output = Buffer::empty();
        let (mut minor, mut flags) = (0, 0);
        // SAFETY: credential and target are alive; the context is null or ours, and stays ours; the input is only read;
        // `output` owns what is put into it.
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
        Fault::check(major, minor)?;
        let is_done = major & CONTINUE_NEEDED == 0;
        if is_done && flags & FLAGS_NEEDED != FLAGS_NEEDED {
            return Err(Fault {
                major: 0,
                minor: 0,
                text: "the server did not prove itself".to_owned(),
            });
        }
        Ok(Stepped {
            token: output.bytes().to_vec(),
            is_done,
        })
    }

    /// The session key, in full length ([MS-SMB2] 3.2.5.3: "the cryptographic key for this authenticated context").
    pub(super) fn session_key(&mut self) -> Result<Vec<u8>, Fault> {
        let what = oid(SESSION_KEY);
        let mut set: *mut BufferSetDesc = ptr::null_mut();
        let mut minor = 0;
        // SAFETY: the context is alive; the answer is a set that is released below.
        let major = unsafe { gss_inquire_sec_context_by_oid(&mut minor, self.0, &what, &mut set) };
        Fault::check(major, minor)?;
        // SAFETY: on success the set is not null and has `count` elements; the first is the key, which nobody else uses.
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
        key.filter(|key| !key.is_empty()).ok_or(Fault {
            major: 0,
            minor: 0,
            text: "there is no session key".to_owned(),
        })
    }

    /// An integrity check over a message.
    pub(super) fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>, Fault> {
        let message = lent(message);
        let mut mic = Buffer::empty();
        let mut minor = 0;
        // SAFETY: the context is alive; the message is only read; `mic` owns what is put into it.
        let major = unsafe { gss_get_mic(&mut minor, self.0, 0, &message, &mut mic.0) };
        Fault::check(major, minor)?;
        Ok(mic.bytes().to_vec())
    }

    /// Checks what the peer made.
    pub(super) fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<(), Fault> {
        let (message, mic) = (lent(message), lent(mic));
        let mut minor = 0;
        // SAFETY: the context is alive; both buffers are only read; the quality is not asked for.
        let major = unsafe { gss_verify_mic(&mut minor, self.0, &message, &mic, ptr::null_mut()) };
        // Supplementary bits tell replayed and missing messages; there are none of those between two MICs.
        if major == 0 {
            return Ok(());
        }
        Err(Fault::of(major, minor))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this is the owner; null contexts are allowed (RFC 2744 5.9), and no token is wanted.
        unsafe { gss_delete_sec_context(&mut minor, &mut self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_forms() {
        let name = Name::service("cifs@host.example").unwrap();
        assert_eq!(name.text().unwrap(), "cifs@host.example");
        let name = Name::principal("anna@EXAMPLE").unwrap();
        assert_eq!(name.text().unwrap(), "anna@EXAMPLE");
    }

    #[test]
    fn faults_are_told_in_words() {
        // KRB5KRB_AP_ERR_TKT_EXPIRED.
        let fault = Fault::of(13 << 16, -1_765_328_352_i32 as u32);
        assert_eq!(fault.major, 13 << 16);
        assert!(!fault.text.is_empty());
        assert!(Fault::check(CONTINUE_NEEDED, 0).is_ok());
    }

    #[test]
    fn a_context_of_nobody_gives_nothing() {
        let mut context = Context::new();
        assert!(context.session_key().is_err());
        assert!(context.mic(b"x").is_err());
        assert!(context.verify_mic(b"x", b"y").is_err());
    }
}
