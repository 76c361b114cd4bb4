//! DOS attributes and creation time as Samba stores them: the value of `user.DOSATTRIB`.
//!
//! The value is NDR ([C706] 14), little-endian: attributes as hexadecimal text (NUL-terminated, empty in newer
//! versions), a version, the version again as a union's discriminant, and the version's fields, each at a
//! multiple of its size but no more than 4.
//!
//! | version | fields |
//! |---|---|
//! | none | only the text, as Samba 3 wrote |
//! | 1 | attributes, EA size, size:8, allocated:8, created:8, changed:8 |
//! | 2 | flags, then as 1, then written:8 and a name; its creation time is ignored |
//! | 3 | valid, then as 1 |
//! | 4 | valid, attributes, first seen:8, created:8 |
//! | 5 | valid, attributes, created:8 |
//!
//! Version 5 is written, as by Samba 4.11 and later. Times are FILETIMEs ([MS-DTYP] 2.3.3), 0 for none.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use ropeway_vfs::Timestamp;
use rustix::fs::{fgetxattr, getxattr, lgetxattr};
use rustix::io::Errno;
use rustix::path::DecInt;

use crate::sys::getxattrat;
use crate::xattr::{self, Node, is_absent, own_descriptors, proc_path};

/// Name of the attribute.
pub(crate) const NAME: &CStr = c"user.DOSATTRIB";
/// The same without its NUL.
pub(super) const NAME_BYTES: &[u8] = NAME.to_bytes();

/// Longest value that can be decoded: version 2 with a name of 255 bytes is shorter.
pub(crate) const BYTES_MAX: usize = 384;

/// Flag: the attributes are valid.
const VALID_ATTRIBUTES: u32 = 0x01;
/// Flag: the creation time is valid.
const VALID_CREATED: u32 = 0x10;

/// DIRECTORY, NORMAL and REPARSE_POINT ([MS-FSCC] 2.6): they follow from the kind of node and are not stored.
const NOT_KEPT: u32 = 0x10 | 0x80 | 0x400;

/// 1601-01-01 to 1970-01-01 in units of 100 ns.
const EPOCH: i128 = 116_444_736_000_000_000;

/// DOS attributes and creation time of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dos {
    /// DOS attributes, if they were ever set.
    pub(crate) attributes: Option<u32>,
    /// Creation time, if it was ever set.
    pub(crate) created: Option<Timestamp>,
}

impl Dos {
    /// These attributes without the ones that follow from the kind of node; no creation time.
    pub(crate) fn of_attributes(attributes: u32) -> Self {
        Self {
            attributes: Some(attributes & !NOT_KEPT),
            created: None,
        }
    }

    /// Encodes a value of version 5.
    pub(crate) fn encode(&self) -> [u8; 24] {
        let mut valid = 0;
        if self.attributes.is_some() {
            valid |= VALID_ATTRIBUTES;
        }
        let created = self.created.map_or(0, to_filetime);
        if created != 0 {
            valid |= VALID_CREATED;
        }
        let attributes = self.attributes.unwrap_or(0) & !NOT_KEPT;
        let mut value = [0; 24];
        // An empty text with its NUL, one byte of padding.
        value[2..4].copy_from_slice(&5u16.to_le_bytes());
        value[4..6].copy_from_slice(&5u16.to_le_bytes());
        value[8..12].copy_from_slice(&valid.to_le_bytes());
        value[12..16].copy_from_slice(&attributes.to_le_bytes());
        value[16..24].copy_from_slice(&created.to_le_bytes());
        value
    }

    /// Decodes a value; `None` if it is malformed.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let text = value.iter().position(|byte| *byte == 0)?;
        let mut fields = Fields { value, at: text + 1 };
        if fields.at == value.len() {
            return Some(Self::of_attributes(from_hex(&value[..text])?));
        }
        let version = fields.u16()?;
        if fields.u16()? != version {
            return None;
        }
        let valid = match version {
            1 => VALID_ATTRIBUTES | VALID_CREATED,
            2 => fields.u32().map(|_| VALID_ATTRIBUTES)?,
            3..=5 => fields.u32()?,
            _ => return None,
        };
        let attributes = fields.u32()?;
        match version {
            1..=3 => {
                fields.u32()?;
                fields.u64()?;
                fields.u64()?;
            }
            4 => {
                fields.u64()?;
            }
            _ => {}
        }
        let created = fields.u64()?;
        // From version 4 on Samba itself looks at the attributes whatever the flag says; it always sets it.
        let created = (valid & VALID_CREATED != 0).then_some(created);
        Some(Self {
            attributes: (valid & VALID_ATTRIBUTES != 0).then_some(attributes & !NOT_KEPT),
            created: created.and_then(from_filetime),
        })
    }
}

/// Reads the attribute of an open node.
pub(crate) fn read(node: &Node<'_>) -> rustix::io::Result<Dos> {
    match node {
        Node::File(fd) => of_file(*fd),
        Node::Path(fd) => of_path(*fd),
    }
}

/// Writes the attribute of an open node.
pub(crate) fn write(node: &Node<'_>, dos: &Dos) -> rustix::io::Result<()> {
    xattr::set(node, NAME_BYTES, &dos.encode())
}

/// Reads the attribute of a file or folder with an ordinary descriptor.
pub(crate) fn of_file(fd: BorrowedFd<'_>) -> rustix::io::Result<Dos> {
    let mut value = [0; BYTES_MAX];
    decoded(fgetxattr(fd, NAME, &mut value), &value)
}

/// Reads the attribute of a name in an open folder; a link is not followed.
pub(crate) fn at(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Dos> {
    let mut value = [0; BYTES_MAX];
    match getxattrat(dir, name, false, NAME, &mut value) {
        Err(Errno::NOSYS) => at_by_path(dir, name),
        length => decoded(length, &value),
    }
}

/// [`at`] before Linux 6.13.
pub(crate) fn at_by_path(dir: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Dos> {
    let mut value = [0; BYTES_MAX];
    let mut path = proc_path(&dir).into_bytes();
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
    decoded(lgetxattr(path, NAME, &mut value), &value)
}

/// Reads the attribute of a node whose descriptor was opened with `O_PATH`.
pub(crate) fn of_path(fd: BorrowedFd<'_>) -> rustix::io::Result<Dos> {
    let mut value = [0; BYTES_MAX];
    let length = match own_descriptors() {
        // One step instead of four.
        Some(own) => getxattrat(own, DecInt::from_fd(fd).as_c_str(), true, NAME, &mut value),
        None => Err(Errno::NOSYS),
    };
    match length {
        Err(Errno::NOSYS) => by_path(fd),
        length => decoded(length, &value),
    }
}

/// [`of_path`] before Linux 6.13.
pub(crate) fn by_path(fd: BorrowedFd<'_>) -> rustix::io::Result<Dos> {
    let mut value = [0; BYTES_MAX];
    decoded(getxattr(proc_path(&fd), NAME, &mut value), &value)
}

fn decoded(length: rustix::io::Result<usize>, value: &[u8]) -> rustix::io::Result<Dos> {
    match length {
        Ok(length) => Ok(Dos::decode(&value[..length.min(value.len())]).unwrap_or_default()),
        // Longer than any known version; unreadable for this user.
        Err(Errno::RANGE | Errno::ACCESS) => Ok(Dos::default()),
        Err(error) if is_absent(error) => Ok(Dos::default()),
        Err(error) => Err(error),
    }
}

/// Little-endian fields, each at a multiple of its size but no more than 4.
struct Fields<'a> {
    value: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let start = self.at.next_multiple_of(N.min(4));
        let bytes = self.value.get(start..start.checked_add(N)?)?;
        self.at = start + N;
        bytes.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

fn from_hex(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A FILETIME in units of 100 ns; 0 for times before 1601.
pub(super) fn to_filetime(time: Timestamp) -> u64 {
    let units = time.0.div_euclid(100).saturating_add(EPOCH);
    u64::try_from(units.clamp(0, i128::from(i64::MAX))).unwrap_or(0)
}

fn from_filetime(time: u64) -> Option<Timestamp> {
    let known = time != 0 && i64::try_from(time).is_ok();
    known.then(|| Timestamp((i128::from(time) - EPOCH) * 100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A value that smbd 4.17 wrote for a file of 2026.
    const SAMBA_5: &[u8] =
        b"\x00\x00\x05\x00\x05\x00\x00\x00\x11\x00\x00\x00 \x00\x00\x00\xb0\xd63\x19\xa8y\xdd\x01";

    #[test]
    fn what_samba_wrote_is_understood_and_written_alike() {
        let dos = Dos::decode(SAMBA_5).unwrap();
        assert_eq!(dos.attributes, Some(0x20));
        let (seconds, _) = dos.created.unwrap().to_unix();
        assert!((1_760_000_000..1_800_000_000).contains(&seconds), "{seconds}");
        assert_eq!(dos.encode(), SAMBA_5);
    }

    #[test]
    fn older_versions_are_understood() {
        assert_eq!(Dos::decode(b"0x22\0"), Some(Dos::of_attributes(0x22)));
        let created = 116_444_736_000_000_000u64 + 10_000_000;
        let versions: [(&[u8], u16, bool); 4] = [
            (b"0x2\0", 1, true),
            (b"0x2\0", 3, true),
            (b"0x20\0", 3, true),
            (b"\0", 4, true),
        ];
        for (text, version, has_created) in versions {
            let mut value = text.to_vec();
            let pad = |value: &mut Vec<u8>, to: usize| value.resize(value.len().next_multiple_of(to), 0);
            pad(&mut value, 2);
            value.extend(version.to_le_bytes());
            value.extend(version.to_le_bytes());
            pad(&mut value, 4);
            if version > 1 {
                value.extend(0x11u32.to_le_bytes());
            }
            value.extend(0x12u32.to_le_bytes());
            value.extend(vec![7; if version == 4 { 8 } else { 4 + 8 + 8 }]);
            value.extend(created.to_le_bytes());
            value.extend([0; 8]);
            let dos = Dos::decode(&value).unwrap();
            assert_eq!(dos.attributes, Some(0x02), "version {version}");
            assert_eq!(dos.created, has_created.then_some(Timestamp(1_000_000_000)));
        }
    }

    #[test]
    fn nonsense_is_nothing() {
        for bad in [
            &b""[..],
            b"0x20",
            b"xx\0",
            b"\0\0\x05\0\x04\0\0\0",
            b"\0\0\x09\0\x09\0\0\0aaaabbbbccccdddd",
        ] {
            assert_eq!(Dos::decode(bad), None);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            attributes in proptest::option::of(any::<u32>()),
            created in proptest::option::of(1i64..i64::MAX / 200),
        ) {
            let dos = Dos {
                attributes: attributes.map(|bits| bits & !NOT_KEPT),
                created: created.map(|units| Timestamp(i128::from(units) * 100)),
            };
            prop_assert_eq!(Dos::decode(&dos.encode()), Some(dos));
        }

        #[test]
        fn nothing_panics(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Dos::decode(&value);
            let mut framed = SAMBA_5.to_vec();
            framed.extend(&value);
            framed[2] = value.first().copied().unwrap_or(5) % 7;
            framed[4] = framed[2];
            let _ = Dos::decode(&framed);
        }
    }
}
