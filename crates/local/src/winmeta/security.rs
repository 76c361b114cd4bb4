//! A node's security descriptor, wherever it is stored.
//!
//! It is in `security.NTACL`, which only a process with CAP_SYS_ADMIN in the first user namespace may write
//! (xattr(7)). Other processes write `user.NTACL`, where smbd looks too if told so
//! (`acl_xattr:security_acl_name = user.NTACL`). Where a node has both, `security.NTACL` counts: whoever may
//! write a file may also set its `user.` attributes. For the same reason a descriptor in `security.NTACL`
//! that this process may not write cannot be changed by it at all.

use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_vfs::Timestamp;
use rustix::io::Errno;

use super::{dos, legacy, ntacl, system_acl};
use crate::xattr::{self, Node};

/// Where descriptors are.
pub(crate) const NAME: &[u8] = b"security.NTACL";
/// Where they are if `security.` may not be written.
pub(crate) const NAME_FALLBACK: &[u8] = b"user.NTACL";

/// Low byte of the control field of a self-relative descriptor, and its flag SACL_PRESENT ([MS-DTYP] 2.4.6).
const CONTROL: usize = 2;
const SACL_PRESENT: u8 = 0x10;
/// The field `OffsetSacl`.
const SACL_OFFSET: std::ops::Range<usize> = 12..16;

/// All places, the most trusted first.
const PLACES: [&[u8]; 4] = [NAME, NAME_FALLBACK, legacy::BINARY, legacy::TEXT];

/// Reads the self-relative descriptor; `None` if there is none. The bytes of a malformed one do not decode.
pub(crate) fn read(node: &Node<'_>) -> rustix::io::Result<Option<Vec<u8>>> {
    // Most nodes have no attributes: one call says so.
    let names = xattr::list(node)?;
    for place in PLACES
        .into_iter()
        .filter(|place| names.iter().any(|name| name == place))
    {
        if let Some(value) = xattr::get(node, place)? {
            return Ok(Some(descriptor_of(place, value)));
        }
    }
    Ok(None)
}

/// Stores a self-relative descriptor and removes forms of earlier releases.
///
/// # Errors
/// `EINVAL`: it is none. `EPERM`: `security.NTACL` holds another, and this process may not change that.
pub(crate) fn write(node: &Node<'_>, descriptor: &[u8]) -> rustix::io::Result<()> {
    let value = encoded(node, descriptor)?;
    match xattr::set(node, NAME, &value) {
        Ok(()) => remove_all(node, &PLACES[1..]),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {
            if xattr::size(node, NAME)?.is_some() {
                return Err(Errno::PERM);
            }
            xattr::set(node, NAME_FALLBACK, &value)?;
            remove_all(node, &PLACES[2..])
        }
        Err(error) => Err(error),
    }
}

/// Removes the descriptor, if there is one.
pub(crate) fn remove(node: &Node<'_>) -> rustix::io::Result<()> {
    let names = xattr::list(node)?;
    let places: Vec<&[u8]> = PLACES
        .into_iter()
        .filter(|place| names.iter().any(|name| name == place))
        .collect();
    remove_all(node, &places)
}

/// The attribute that earlier releases' form of a descriptor becomes, for copies of raw attributes.
pub(super) fn renewed(node: &Node<'_>, name: &[u8], value: Vec<u8>) -> Option<(&'static [u8], Vec<u8>)> {
    let value = encoded(node, &descriptor_of(name, value)).ok()?;
    let place = match rustix::process::geteuid().is_root() {
        true => NAME,
        false => NAME_FALLBACK,
    };
    Some((place, value))
}

/// Text of a descriptor ([MS-DTYP] 2.5.1): SDDL, or `0x` and the bytes where SDDL has no words for an entry. The
/// SACL is left out. `None` for bytes that are no descriptor.
pub(crate) fn to_text(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    *bytes.get_mut(CONTROL)? &= !SACL_PRESENT;
    bytes.get_mut(SACL_OFFSET)?.fill(0);
    let plain = SecurityDescriptor::decode(&bytes).ok()?;
    Some(plain.to_text().into_bytes())
}

fn descriptor_of(place: &[u8], value: Vec<u8>) -> Vec<u8> {
    let malformed = Vec::new();
    match place {
        legacy::BINARY => value,
        legacy::TEXT => legacy::from_text(&value).unwrap_or(malformed),
        _ => ntacl::decode(&value).unwrap_or(malformed),
    }
}

fn encoded(node: &Node<'_>, descriptor: &[u8]) -> rustix::io::Result<Vec<u8>> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(0));
    let time = dos::to_filetime(Timestamp(now));
    ntacl::encode(descriptor, time, &system_acl::hash(node)?).ok_or(Errno::INVAL)
}

fn remove_all(node: &Node<'_>, places: &[&[u8]]) -> rustix::io::Result<()> {
    for place in places {
        match xattr::remove(node, place) {
            Err(error) if !xattr::is_absent(error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
