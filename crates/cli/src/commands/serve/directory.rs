//! Names of accounts, for clients that show who may do what: the server's users, and the system's users and groups by
//! its name service.

use std::fs;
use std::sync::{Arc, PoisonError, RwLock};

use nix::unistd::{Gid, Group, Uid, User};
use ropeway_smb_server::Directory;

use super::users::Users;

/// What a machine keeps its number in, see machine-id(5).
const MACHINE_ID: &str = "/etc/machine-id";

/// Who there is.
pub(super) struct Names(pub(super) Arc<RwLock<Users>>);

impl Directory for Names {
    fn users(&self) -> Vec<String> {
        let users = self.0.read().unwrap_or_else(PoisonError::into_inner);
        users.names().map(str::to_owned).collect()
    }

    // A name service that does not answer knows nobody: the SID is shown as it is.

    fn unix_user(&self, uid: u32) -> Option<String> {
        Some(User::from_uid(Uid::from_raw(uid)).ok()??.name)
    }

    fn unix_group(&self, gid: u32) -> Option<String> {
        Some(Group::from_gid(Gid::from_raw(gid)).ok()??.name)
    }

    fn uid_of(&self, name: &str) -> Option<u32> {
        Some(User::from_name(name).ok()??.uid.as_raw())
    }

    fn gid_of(&self, name: &str) -> Option<u32> {
        Some(Group::from_name(name).ok()??.gid.as_raw())
    }
}

/// The numbers of the machine's own SIDs: the same at each start, and not the machine's id, which is not for others to
/// know. `None` where the machine has no id.
pub(super) fn machine_numbers(server: &str) -> Option<[u32; 3]> {
    let id = fs::read_to_string(MACHINE_ID).ok()?;
    let id = id.trim();
    // Anything but 32 hexadecimal digits is none yet: "uninitialized", or nothing.
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| numbers(id, server))
}

fn numbers(id: &str, server: &str) -> [u32; 3] {
    let mut hasher = blake3::Hasher::new_derive_key("ropeway serve 2026-11-23 numbers of the machine's SIDs");
    hasher.update(id.as_bytes());
    // Two servers of one machine are two domains.
    hasher.update(server.to_lowercase().as_bytes());
    let hash = hasher.finalize();
    let (words, _) = hash.as_bytes().as_chunks::<4>();
    [words[0], words[1], words[2]].map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_names_its_users_and_groups() {
        let names = Names(Arc::default());
        assert_eq!(names.unix_user(0).as_deref(), Some("root"));
        assert_eq!(names.uid_of("root"), Some(0));
        let group = names.unix_group(0).unwrap();
        assert_eq!(names.gid_of(&group), Some(0));
        assert_eq!(names.uid_of("no such user: \0"), None);
        assert_eq!(names.gid_of("no such group"), None);
        assert_eq!(names.users(), Vec::<String>::new());
    }

    #[test]
    fn numbers_tell_machines_and_servers_apart() {
        let (one, other) = (
            "0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdee",
        );
        assert_eq!(numbers(one, "nas"), numbers(one, "NAS"));
        assert_ne!(numbers(one, "nas"), numbers(one, "nas2"));
        assert_ne!(numbers(one, "nas"), numbers(other, "nas"));
    }
}
