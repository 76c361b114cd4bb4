//! The hash of a node's POSIX permissions that Samba keeps beside a security descriptor.
//!
//! It is the SHA-256 of the permissions' NDR form ([C706] 14), little-endian: pointers to the access ACL and the
//! default ACL (0 for none; a folder always has the second), owner:8, group:8, the whole mode:4, then each ACL as
//! its count, the count again at a multiple of 8, 0, and the entries. An entry begins at a multiple of 8: its
//! tag twice (16 bits each), the id (8 bytes at a multiple of 8; only of named users and groups), the
//! permissions:4. Layout as observed of smbd 4.17.

use aws_lc_rs::digest::{SHA256, digest};
use rustix::fs::StatxFlags;

use crate::attributes::xattr::{ACL_ACCESS, ACL_DEFAULT};
use crate::stat;
use crate::xattr::{self, Node};

/// Tags in the value of an ACL's attribute (linux/posix_acl.h) and in Samba's form: owner, named user, owning group,
/// named group, mask, others.
const TAGS: [(u16, u16); 6] = [(0x01, 2), (0x02, 1), (0x04, 4), (0x08, 3), (0x10, 6), (0x20, 5)];
const NAMED_USER: u16 = 1;
const NAMED_GROUP: u16 = 3;

/// Bytes of the version before the entries, and of an entry (linux/posix_acl_xattr.h).
const VERSION: usize = 4;
const ENTRY: usize = 8;

/// One entry in Samba's form.
struct Entry {
    tag: u16,
    permissions: u32,
    id: u32,
}

/// Returns the hash of a node's permissions as they are now.
pub(super) fn hash(node: &Node<'_>) -> rustix::io::Result<[u8; 32]> {
    let stat = stat::raw(node.fd(), StatxFlags::BASIC_STATS)?;
    let mode = u32::from(stat.stx_mode);
    let access = match xattr::get(node, ACL_ACCESS)? {
        Some(value) => entries(&value),
        None => of_mode(mode),
    };
    let is_folder = stat::kind(mode) == ropeway_vfs::Kind::Directory;
    let default = match is_folder {
        true => Some(entries(&xattr::get(node, ACL_DEFAULT)?.unwrap_or_default())),
        false => None,
    };
    let form = form((stat.stx_uid, stat.stx_gid, mode), &access, default.as_deref());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, &form).as_ref());
    Ok(hash)
}

fn form((user, group, mode): (u32, u32, u32), access: &[Entry], default: Option<&[Entry]>) -> Vec<u8> {
    let mut form = Vec::new();
    form.extend_from_slice(&0x0002_0000u32.to_le_bytes());
    let pointer = if default.is_some() { 0x0002_0004u32 } else { 0 };
    form.extend_from_slice(&pointer.to_le_bytes());
    form.extend_from_slice(&u64::from(user).to_le_bytes());
    form.extend_from_slice(&u64::from(group).to_le_bytes());
    form.extend_from_slice(&mode.to_le_bytes());
    push(&mut form, access);
    if let Some(default) = default {
        push(&mut form, default);
    }
    form
}

fn push(form: &mut Vec<u8>, acl: &[Entry]) {
    let count = (acl.len() as u32).to_le_bytes();
    form.resize(form.len().next_multiple_of(4), 0);
    form.extend_from_slice(&count);
    form.resize(form.len().next_multiple_of(8), 0);
    form.extend_from_slice(&count);
    form.extend_from_slice(&[0; 4]);
    for entry in acl {
        form.resize(form.len().next_multiple_of(8), 0);
        form.extend_from_slice(&entry.tag.to_le_bytes());
        form.extend_from_slice(&entry.tag.to_le_bytes());
        if matches!(entry.tag, NAMED_USER | NAMED_GROUP) {
            form.resize(form.len().next_multiple_of(8), 0);
            form.extend_from_slice(&u64::from(entry.id).to_le_bytes());
        }
        form.extend_from_slice(&entry.permissions.to_le_bytes());
    }
}

/// Entries of an ACL's attribute, in its order.
fn entries(value: &[u8]) -> Vec<Entry> {
    let (all, _) = value.get(VERSION..).unwrap_or_default().as_chunks::<ENTRY>();
    let entry = |[tag, tag_high, low, high, id @ ..]: &[u8; ENTRY]| {
        let tag = u16::from_le_bytes([*tag, *tag_high]);
        let known = TAGS.iter().find(|(linux, _)| *linux == tag)?;
        Some(Entry {
            tag: known.1,
            permissions: u32::from(u16::from_le_bytes([*low, *high])),
            id: u32::from_le_bytes(*id),
        })
    };
    all.iter().filter_map(entry).collect()
}

/// The three entries that a mode stands for.
fn of_mode(mode: u32) -> Vec<Entry> {
    let entry = |(tag, shift): (u16, u32)| Entry {
        tag,
        permissions: mode >> shift & 7,
        id: 0,
    };
    [(2, 6), (4, 3), (5, 0)].map(entry).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Hashes that smbd 4.17 wrote: of a plain file, and of one with named entries.
    #[test]
    fn hashes_are_those_of_samba() {
        let plain = form((0, 0, 0o100_744), &of_mode(0o744), None);
        assert_eq!(
            hex(digest(&SHA256, &plain).as_ref()),
            "dd329a3881d3e050b895eb36a9b2fe4305d55c19aea91790ea0937dbbc81793c"
        );
        let acl = concat!(
            "02000000",
            "01000700ffffffff",
            "0200070000000000",
            "04000500ffffffff",
            "0800050000000000",
            "10000700ffffffff",
            "20000500ffffffff",
        );
        let (pairs, _) = acl.as_bytes().as_chunks::<2>();
        let value: Vec<u8> = pairs
            .iter()
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        let named = form((0, 0, 0o100_775), &entries(&value), None);
        assert_eq!(
            hex(digest(&SHA256, &named).as_ref()),
            "5dd2b193e43b4dc35157ee98c7526c731dd3e007cf250e67358da2c7ca90748e"
        );
        let folder = form((0, 0, 0o40_775), &entries(&value), Some(&entries(&value)));
        assert_eq!(
            hex(digest(&SHA256, &folder).as_ref()),
            "0da4270ae6b917c1692ed2e29bf473082239edf9883d68cb10aecc5e00e7ee07"
        );
    }

    #[test]
    fn damaged_acls_have_fewer_entries() {
        for length in 0..12 {
            assert!(entries(&vec![1; length]).len() <= 1);
        }
        assert!(entries(&[2, 0, 0, 0, 9, 9, 0, 0, 0, 0, 0, 0]).is_empty());
    }
}
