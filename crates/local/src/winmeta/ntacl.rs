//! Security descriptors as Samba's `vfs_acl_xattr` stores them: the value of `security.NTACL`.
//!
//! The value is NDR ([C706] 14), little-endian: version and discriminant (16 bits each, equal), then by version
//!
//! | version | fields before the descriptor |
//! |---|---|
//! | 1 | pointer |
//! | 2 | 2 pointers, hash:16 |
//! | 3 | 2 pointers, hash type:16 bits, hash:64 |
//! | 4 | 2 pointers, hash type:16 bits, hash:64, text with its NUL, time:8, hash of the system's ACL:64 |
//!
//! Pointers have 32 bits and mean nothing but 0 for none. The descriptor follows at a multiple of 4, self-relative
//! ([MS-DTYP] 2.4.6) but with offsets counted from the start of the value. Layouts are as observed of smbd 4.17.
//!
//! Version 4 is written. It holds two hashes: smbd trusts the descriptor while the second one matches the POSIX
//! permissions ([`system_acl`](super::system_acl)), so that a later chmod(1) is noticed; with
//! `acl_xattr:ignore system acls = yes` it trusts any. Hashes are not checked on reading.

use aws_lc_rs::digest::{SHA256, digest};

/// Bytes of a self-relative descriptor's header.
const HEADER: usize = 20;
/// Where its offsets of owner, group, SACL and DACL are.
const OFFSETS: [usize; 4] = [4, 8, 12, 16];
/// Bytes of a hash field; SHA-256 fills the first half.
const HASH: usize = 64;
/// The hash type of SHA-256.
const SHA256_TYPE: u16 = 1;
/// What smbd writes for ACLs of this kind.
const DESCRIPTION: &[u8] = b"posix_acl\0";

/// Encodes a descriptor; `time` is a FILETIME, `system_acl` the hash of the POSIX permissions. `None` if the bytes
/// are no self-relative descriptor.
pub(super) fn encode(descriptor: &[u8], time: u64, system_acl: &[u8; 32]) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(160 + descriptor.len());
    value.extend_from_slice(&4u16.to_le_bytes());
    value.extend_from_slice(&4u16.to_le_bytes());
    value.extend_from_slice(&0x0002_0000u32.to_le_bytes());
    value.extend_from_slice(&0x0002_0004u32.to_le_bytes());
    value.extend_from_slice(&SHA256_TYPE.to_le_bytes());
    push_hash(&mut value, digest(&SHA256, descriptor).as_ref());
    value.extend_from_slice(DESCRIPTION);
    value.resize(value.len().next_multiple_of(4), 0);
    value.extend_from_slice(&time.to_le_bytes());
    push_hash(&mut value, system_acl);
    let start = value.len();
    value.extend_from_slice(descriptor);
    shift(&mut value[start..], |offset| {
        offset.checked_add(u32::try_from(start).ok()?)
    })?;
    Some(value)
}

/// Decodes a value to a self-relative descriptor; `None` if it is malformed or of an unknown version.
pub(super) fn decode(value: &[u8]) -> Option<Vec<u8>> {
    let version = u16_at(value, 0)?;
    if u16_at(value, 2)? != version {
        return None;
    }
    let start = match version {
        1 => 8,
        2 => 28,
        3 => 80,
        4 => {
            let text = value.get(78..)?;
            let end = 78 + text.iter().position(|byte| *byte == 0)? + 1;
            end.next_multiple_of(4) + 8 + HASH
        }
        _ => return None,
    };
    let pointers = if version == 1 { 4..8 } else { 4..12 };
    if value.get(pointers)?.chunks(4).any(|pointer| pointer == [0; 4]) {
        return None;
    }
    let mut descriptor = value.get(start..)?.to_vec();
    shift(&mut descriptor, |offset| {
        offset.checked_sub(u32::try_from(start).ok()?)
    })?;
    Some(descriptor)
}

/// Changes the offsets of a self-relative descriptor that are not 0.
fn shift(descriptor: &mut [u8], change: impl Fn(u32) -> Option<u32>) -> Option<()> {
    if descriptor.len() < HEADER {
        return None;
    }
    for at in OFFSETS {
        let field: &mut [u8; 4] = descriptor.get_mut(at..at + 4)?.try_into().ok()?;
        let offset = u32::from_le_bytes(*field);
        if offset != 0 {
            *field = change(offset)?.to_le_bytes();
        }
    }
    Some(())
}

fn push_hash(value: &mut Vec<u8>, hash: &[u8]) {
    let end = value.len() + HASH;
    value.extend_from_slice(hash);
    value.resize(end, 0);
}

fn u16_at(value: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(value.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropeway_smb_wire::security::SecurityDescriptor;

    const SDDL: &str = "O:S-1-22-1-1G:S-1-22-2-2D:P(A;;FA;;;BA)(A;;0x1200a9;;;WD)";

    fn bytes(hex: &str) -> Vec<u8> {
        let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
            panic!("an odd number of digits")
        };
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        pairs.iter().map(byte).collect()
    }

    /// What smbd 4.17 writes with `acl_xattr:ignore system acls = yes`.
    #[test]
    fn version_3_of_samba_is_decoded() {
        let mut value = bytes("030003000000020004000200010000");
        value.resize(80, 0);
        value.extend(bytes(concat!(
            "0100049064000000740000000000000084000000010200000000001601000000010000000102000000000016",
            "0200000002000000040034000200000000001400a900120001010000000000010000000000001800ff011f00",
            "01020000000000052000000020020000",
        )));
        let descriptor = SecurityDescriptor::decode(&decode(&value).unwrap()).unwrap();
        let wanted = "O:S-1-22-1-1G:S-1-22-2-2D:P(A;;0x1200a9;;;WD)(A;;FA;;;BA)";
        assert_eq!(descriptor.to_sddl().unwrap(), wanted);
    }

    #[test]
    fn older_versions_are_decoded() {
        let descriptor = SecurityDescriptor::from_sddl(SDDL).unwrap().to_bytes();
        for (version, start) in [(1u16, 8usize), (2, 28), (3, 80)] {
            let mut value = version.to_le_bytes().repeat(2);
            value.extend([0, 0, 2, 0, 4, 0, 2, 0]);
            value.resize(start, 7);
            value.truncate(start);
            value.extend_from_slice(&descriptor);
            shift(&mut value[start..], |offset| Some(offset + start as u32)).unwrap();
            assert_eq!(decode(&value).unwrap(), descriptor, "version {version}");
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        let descriptor = SecurityDescriptor::from_sddl(SDDL).unwrap().to_bytes();
        let good = encode(&descriptor, 1, &[3; 32]).unwrap();
        assert_eq!(decode(&good).unwrap(), descriptor);
        for length in 0..160 + HEADER {
            assert_eq!(decode(&good[..length]), None, "{length} bytes");
        }
        let with = |at: usize, byte: u8| {
            let mut bad = good.clone();
            bad[at] = byte;
            decode(&bad)
        };
        assert_eq!(with(0, 5), None, "another discriminant");
        assert_eq!(with(6, 0), None, "no pointer");
        assert_eq!(with(164, 1), None, "an offset before the descriptor");
        assert_eq!(encode(&[1, 2, 3], 1, &[3; 32]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(value in proptest::collection::vec(any::<u8>(), 0..300), version in 0u8..6) {
            let _ = decode(&value);
            let mut framed = value;
            if framed.len() > 12 {
                framed[..4].copy_from_slice(&[version, 0, version, 0]);
                framed[6] = 1;
                framed[10] = 1;
            }
            let _ = decode(&framed);
        }
    }
}
