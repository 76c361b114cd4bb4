//! Extended attributes of SMB clients ([MS-FSCC] 2.4.16): `NAME` of a client is `user.NAME` on disk, as Samba has it.
//! Names that hold other metadata are left out.

use ropeway_vfs::STREAM_XATTR_PREFIX;

use super::{USER, is_bookkeeping};

/// Returns the client's name of an attribute on disk; `None` if clients do not see it.
pub(crate) fn name_of(attribute: &[u8]) -> Option<&[u8]> {
    let name = attribute.strip_prefix(USER)?;
    (!name.is_empty() && !is_reserved(name)).then_some(name)
}

/// Whether a client's name is one that holds other metadata, in any case.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    let attribute = [USER, name].concat();
    let is_stream = attribute
        .get(..STREAM_XATTR_PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(STREAM_XATTR_PREFIX));
    is_stream || is_bookkeeping(&attribute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookkeeping_is_no_attribute_of_clients() {
        for reserved in [
            "DOSATTRIB",
            "dosattrib",
            "DosStream.a:$DATA",
            "NTACL",
            "ntacl",
            "SAMBA_PAI",
            "ropeway.ntsd",
            "ropeway.SDDL",
            "ropeway.guarded",
        ] {
            assert!(is_reserved(reserved.as_bytes()), "{reserved}");
            assert_eq!(name_of(format!("user.{reserved}").as_bytes()), None);
        }
        for free in ["comment", "DOSATTRIBUTE", "ropeway.demo", "NTACL2"] {
            assert_eq!(name_of(format!("user.{free}").as_bytes()), Some(free.as_bytes()));
        }
        assert_eq!(name_of(b"security.x"), None);
        assert_eq!(name_of(b"user."), None);
    }
}
