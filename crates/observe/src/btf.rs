//! BTF: the types of the running kernel (Documentation/bpf/btf.rst), as far as offsets of members need.

use std::ops::Range;

/// Reasons why a text is no BTF, or lacks something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The header or a section is damaged.
    #[error("damaged at byte {0}")]
    Damaged(usize),
    /// There is no such member.
    #[error("{0} has no member {1}")]
    NoMember(String, String),
}

/// `BTF_MAGIC` of linux/btf.h.
const MAGIC: u16 = 0xeb9f;
/// Bytes of `struct btf_type`, in front of what its kind adds.
const TYPE_BYTES: usize = 12;
/// Bytes of `struct btf_member`.
const MEMBER_BYTES: usize = 12;
/// Kinds with members.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// Deepest nesting of anonymous members that is followed (a guess; the kernel has three).
const NESTING_MAX: usize = 8;
/// Largest BTF that is read: several times that of a kernel with everything built in.
pub(crate) const BTF_BYTES_MAX: usize = 64 << 20;

/// Bytes of the header that is read (`struct btf_header`).
pub(crate) const HEADER_BYTES: usize = 24;

/// Where the sections of a BTF are, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sections {
    pub(crate) types: Range<usize>,
    pub(crate) strings: Range<usize>,
}

impl Sections {
    /// Reads a header.
    ///
    /// # Errors
    /// It is not BTF of this machine's byte order.
    pub(crate) fn parse(header: &[u8]) -> Result<Self, BtfError> {
        if half(header, 0)? != MAGIC {
            return Err(BtfError::Damaged(0));
        }
        let length = word(header, 4)? as usize;
        let section = |field: usize| -> Result<Range<usize>, BtfError> {
            let start = length.checked_add(word(header, field)? as usize);
            let start = start.ok_or(BtfError::Damaged(field))?;
            let end = start.checked_add(word(header, field + 4)? as usize);
            match end {
                Some(end) if end <= BTF_BYTES_MAX => Ok(start..end),
                _ => Err(BtfError::Damaged(field)),
            }
        };
        Ok(Self {
            types: section(8)?,
            strings: section(16)?,
        })
    }
}

/// The types of a kernel.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Place of each type, from id 1 on.
    places: Vec<u32>,
}

impl<'a> Btf<'a> {
    /// Finds the types.
    ///
    /// # Errors
    /// The bytes are not BTF of this machine's byte order.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let Sections { types, strings } = Sections::parse(bytes)?;
        let part = |range: Range<usize>| bytes.get(range.clone()).ok_or(BtfError::Damaged(range.start));
        Self::of_sections(part(types)?, part(strings)?)
    }

    /// Finds the types of the first bytes of both sections. A type that is cut off is left out.
    ///
    /// # Errors
    /// There is an unknown kind of type.
    pub(crate) fn of_sections(types: &'a [u8], strings: &'a [u8]) -> Result<Self, BtfError> {
        let mut places = Vec::new();
        let mut at = 0;
        while let Ok(info) = word(types, at + 4) {
            let further = further_bytes(info).ok_or(BtfError::Damaged(at))?;
            let place = u32::try_from(at).map_err(|_| BtfError::Damaged(at))?;
            at += TYPE_BYTES + further;
            if at > types.len() {
                break;
            }
            places.push(place);
        }
        Ok(Self {
            types,
            strings,
            places,
        })
    }

    /// Returns the offset of a member in bytes. Members of anonymous members count as the outer
    /// type's own.
    ///
    /// # Errors
    /// There is no such type or member, or it is a bit field.
    pub fn offset(&self, name: &str, member: &str) -> Result<u32, BtfError> {
        let missing = || BtfError::NoMember(name.to_owned(), member.to_owned());
        let of_type = |place: &&u32| {
            let place = **place as usize;
            let info = word(self.types, place + 4).unwrap_or(0);
            kind(info) == STRUCT && vlen(info) > 0 && self.is_named(place, name)
        };
        let place = self.places.iter().find(of_type).ok_or_else(missing)?;
        let bits = self.find(*place as usize, member, 0).ok_or_else(missing)?;
        match bits % 8 {
            0 => Ok(bits / 8),
            _ => Err(missing()),
        }
    }

    /// Returns the offset of a member in bits.
    fn find(&self, place: usize, member: &str, depth: usize) -> Option<u32> {
        let info = word(self.types, place + 4).ok()?;
        if !matches!(kind(info), STRUCT | UNION) || depth > NESTING_MAX {
            return None;
        }
        // With the flag, the upper bits of an offset are the size of a bit field.
        let mask = if info >> 31 == 1 { 0x00ff_ffff } else { u32::MAX };
        (0..vlen(info)).find_map(|index| {
            let at = place + TYPE_BYTES + index * MEMBER_BYTES;
            let offset = word(self.types, at + 8).ok()? & mask;
            if self.is_named(at, member) {
                return Some(offset);
            }
            if word(self.types, at).ok()? != 0 {
                return None;
            }
            let id = word(self.types, at + 4).ok()? as usize;
            let inner = *self.places.get(id.checked_sub(1)?)? as usize;
            offset.checked_add(self.find(inner, member, depth + 1)?)
        })
    }

    /// Whether the name at a place is this one.
    fn is_named(&self, place: usize, name: &str) -> bool {
        let Ok(offset) = word(self.types, place) else {
            return false;
        };
        let rest = self.strings.get(offset as usize..);
        let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

fn vlen(info: u32) -> usize {
    (info & 0xffff) as usize
}

/// Returns the bytes that follow `struct btf_type`; `None` for kinds that are not known.
fn further_bytes(info: u32) -> Option<usize> {
    let vlen = vlen(info);
    Some(match kind(info) {
        // Pointers, forwards, typedefs, qualifiers, functions, floats, type tags.
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerations, prototypes.
        6 | 13 => 8 * vlen,
        // Structures, unions, sections, enumerations of 64 bits.
        STRUCT | UNION | 15 | 19 => 12 * vlen,
        _ => return None,
    })
}

fn half(bytes: &[u8], at: usize) -> Result<u16, BtfError> {
    let found = bytes.get(at..at + 2).ok_or(BtfError::Damaged(at))?;
    Ok(u16::from_ne_bytes(found.try_into().expect("two bytes")))
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let end = at.checked_add(4).ok_or(BtfError::Damaged(at))?;
    let found = bytes.get(at..end).ok_or(BtfError::Damaged(at))?;
    Ok(u32::from_ne_bytes(found.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct outer { int a; struct { int: 32; int deep; }; }`
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0deep\0";
        let outer = [1_u32, STRUCT << 24 | 2, 12, 7, 3, 0, 0, 2, 32];
        let inner = [0_u32, STRUCT << 24 | 1, 8, 9, 3, 32];
        let integer = [0_u32, 1 << 24, 4, 32];
        let types: Vec<u32> = [&outer[..], &inner, &integer].concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let sizes = [24, 0, types.len(), types.len(), strings.len()];
        bytes.extend(sizes.iter().flat_map(|size| (*size as u32).to_ne_bytes()));
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_of_anonymous_members_are_found() {
        let bytes = sample();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.offset("outer", "a"), Ok(0));
        assert_eq!(btf.offset("outer", "deep"), Ok(8));
        assert!(btf.offset("outer", "dee").is_err());
        assert!(btf.offset("oute", "a").is_err());
    }

    #[test]
    fn the_running_kernel_has_processes() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            println!("skipped: this kernel has no BTF");
            return;
        };
        let btf = Btf::parse(&bytes).unwrap();
        let pid = btf.offset("task_struct", "pid").unwrap();
        assert_eq!(btf.offset("task_struct", "tgid").unwrap(), pid + 4);
    }

    proptest! {
        #[test]
        fn damaged_types_are_refused_or_read(
            place in 0_usize..200, byte: u8, cut in 0_usize..200,
        ) {
            let mut bytes = sample();
            let length = bytes.len();
            bytes[place % length] = byte;
            bytes.truncate(length - cut % length);
            if let Ok(btf) = Btf::parse(&bytes) {
                let _ = btf.offset("outer", "deep");
            }
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(btf) = Btf::parse(&bytes) {
                let _ = btf.offset("outer", "deep");
            }
        }
    }
}
