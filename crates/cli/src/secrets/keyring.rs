//! Passwords in the kernel's keyrings (keyrings(7)): in memory that is never swapped out, until a
//! restart.
//!
//! A key of type `user` holds one password. Its description is `ropeway:` and the server's URL.
//! Only processes that possess the keyring can read it: those of the same user. The keyrings differ
//! in how long they last:
//!
//! | keyring | lasts |
//! |---|---|
//! | `persistent` | beyond a logout, until it is unused for `/proc/sys/kernel/keys/persistent_keyring_expiry` (three days) |
//! | `user` | while the user has a process |
//! | `session` | while the login session lasts |
//!
//! A process keyring belongs to one thread. The keyring is linked to it to gain possession, so each
//! function here does all its work in one call.

use std::fs;
use std::time::Duration;

use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier, KeySerialId};
use ropeway_smb_client::Password;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::failure::{Failure, code};
use crate::url::{Scheme, Server};

/// Start of every description.
const PREFIX: &str = "ropeway:";
/// Maximum size in bytes of a key of type `user` (keyrings(7)).
const BYTES_MAX: usize = 32_767;

/// A keyring of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyring {
    /// The user's keyring that outlasts logouts.
    Persistent,
    /// The user's keyring that lasts while the user has a process.
    User,
    /// The login session's keyring.
    Session,
    /// No keyring.
    Off,
}

/// A stored password, without the password itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredPassword {
    /// URL of the user and server.
    pub(crate) url: String,
    /// Time until it expires, as the kernel rounds it (`7h`); `None` if it does not expire.
    pub(crate) expires: Option<String>,
    id: i32,
}

/// Returns the description of a key. Users, domains and hosts are case-insensitive.
fn description(server: &Server) -> String {
    let folded = |text: &Option<String>| text.as_ref().map(|text| text.to_lowercase());
    let server = Server {
        domain: folded(&server.domain),
        user: folded(&server.user),
        // A password is that of a user at a server, whatever both speak.
        scheme: Scheme::Smb,
        ..server.clone()
    };
    format!("{PREFIX}{server}")
}

impl Keyring {
    /// Opens the keyring for this thread; `None` if it is off.
    fn open(self) -> Result<Option<KeyRing>, KeyError> {
        let own = || KeyRing::from_special_id(KeyRingIdentifier::Process, true);
        Ok(Some(match self {
            Self::Off => return Ok(None),
            Self::Session => KeyRing::from_special_id(KeyRingIdentifier::Session, false)?,
            Self::User => {
                own()?.link_keyring_id(KeyRingIdentifier::User)?;
                KeyRing::from_special_id(KeyRingIdentifier::User, false)?
            }
            Self::Persistent => {
                own()?;
                match KeyRing::get_persistent(KeyRingIdentifier::Process) {
                    // The kernel has no persistent keyrings.
                    Err(KeyError::OperationNotSupported) => return Self::User.open(),
                    opened => opened?,
                }
            }
        }))
    }

    /// Returns the password of a user at a server, if there is one. Returns `None` on a kernel or
    /// in a container without keyrings.
    pub(crate) fn password(self, server: &Server) -> Option<Password> {
        let found = || -> Result<Option<Password>, KeyError> {
            let Some(ring) = self.open()? else { return Ok(None) };
            let key = ring.search(&description(server))?;
            // The buffer never grows, so no copy of it is left behind.
            let mut bytes = Zeroizing::new(vec![0; BYTES_MAX]);
            let length = key.read(&mut bytes)?;
            let text = bytes
                .get(..length)
                .and_then(|bytes| std::str::from_utf8(bytes).ok());
            Ok(text.map(Password::from))
        };
        found().unwrap_or_else(|error| {
            tracing::debug!(%error, "no password in the keyring");
            None
        })
    }

    /// Stores a password, with an expiry time if one is given.
    ///
    /// # Errors
    /// The keyring is off, or the kernel refuses.
    pub(crate) fn store(
        self,
        server: &Server,
        password: &Password,
        keep: Option<Duration>,
    ) -> Result<(), Failure> {
        let stored = || -> Result<bool, KeyError> {
            let Some(ring) = self.open()? else {
                return Ok(false);
            };
            let key = ring.add_key(&description(server), password.expose().as_bytes())?;
            if let Some(keep) = keep {
                let seconds = keep.as_secs().max(1);
                key.set_timeout(usize::try_from(seconds).unwrap_or(usize::MAX))?;
            }
            Ok(true)
        };
        match stored() {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Failure::usage("the keyring is off").hint("choose --keyring persistent, user or session"))
            }
            Err(error) => Err(refused("keep the password", error)),
        }
    }

    /// Removes a password; returns whether there was one.
    ///
    /// # Errors
    /// The kernel has no keyring, or refuses.
    pub(crate) fn forget(self, server: &Server) -> Result<bool, Failure> {
        let forgotten = || -> Result<bool, KeyError> {
            let Some(ring) = self.open()? else {
                return Ok(false);
            };
            match ring.search(&description(server)) {
                Ok(key) => key.invalidate().map(|()| true),
                Err(KeyError::KeyDoesNotExist | KeyError::KeyExpired | KeyError::KeyRevoked) => Ok(false),
                Err(error) => Err(error),
            }
        };
        forgotten().map_err(|error| refused("forget the password", error))
    }

    /// Lists the stored passwords in every keyring that this process can see.
    pub(crate) fn list(self) -> Vec<StoredPassword> {
        // Opening links the keyring to this thread, which makes its keys visible.
        let _ = self.open();
        let text = fs::read("/proc/keys").unwrap_or_default();
        let mut kept = parse(&String::from_utf8_lossy(&text), geteuid().as_raw());
        kept.sort_by(|one, other| one.url.cmp(&other.url));
        kept.dedup_by(|one, other| one.id == other.id);
        kept
    }

    /// Removes a listed password.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn forget_stored(self, kept: &StoredPassword) -> Result<(), Failure> {
        let forgotten = self
            .open()
            .and_then(|_| Key::from_id(KeySerialId(kept.id)).invalidate());
        forgotten.map_err(|error| refused("forget the password", error))
    }
}

/// Finds our keys in the text of proc_keys(5): `ID FLAGS USAGE TIMEOUT PERM UID GID TYPE
/// DESCRIPTION: LENGTH`.
fn parse(text: &str, own: u32) -> Vec<StoredPassword> {
    let line = |line: &str| {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(field)
        };
        let id = u32::from_str_radix(field()?, 16).ok()?;
        let flags = field()?;
        let _usage = field()?;
        let timeout = field()?;
        let _permissions = field()?;
        let owner: u32 = field()?.parse().ok()?;
        let _group = field()?;
        let is_user = field()? == "user";
        // Revoked, dead, negative and invalidated keys are about to disappear.
        let is_alive = flags.starts_with('I') && !flags.contains(['R', 'D', 'i', 'N']) && timeout != "expd";
        if !is_user || !is_alive || owner != own {
            return None;
        }
        let (description, _length) = rest.trim().rsplit_once(": ")?;
        Some(StoredPassword {
            url: description.strip_prefix(PREFIX)?.to_owned(),
            expires: (timeout != "perm").then(|| timeout.to_owned()),
            id: id.cast_signed(),
        })
    };
    text.lines().filter_map(line).collect()
}

fn refused(what: &str, error: KeyError) -> Failure {
    let (why, hint) = match error {
        KeyError::QuotaExceeded => (
            "the user's quota is used up".to_owned(),
            "remove other passwords with `ropeway logout`; /proc/key-users shows the quota",
        ),
        KeyError::AccessDenied | KeyError::PermissionDenied => (
            "the kernel denies access".to_owned(),
            "containers often have no access to keyrings; use --credentials FILE instead",
        ),
        KeyError::OperationNotSupported => (
            "this kernel has no keyrings".to_owned(),
            "use --credentials FILE instead",
        ),
        other => (
            other.to_string(),
            "try another --keyring, or use --credentials FILE",
        ),
    };
    Failure::new(code::PERMISSION, format!("cannot {what}: {why}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::SmbUrl;

    fn server(url: &str) -> Server {
        SmbUrl::parse(url.as_bytes()).unwrap().server
    }

    #[test]
    fn a_server_has_one_description() {
        for url in [
            "smb://WORK;Ann@NAS:1445/data",
            "smb://work;ann@nas:1445/",
            "smb://Work;ANN@nas:1445",
        ] {
            assert_eq!(description(&server(url)), "ropeway:smb://work;ann@nas:1445");
        }
        let other = description(&server("smb://ann@[fd00::7]/data"));
        assert_eq!(other, "ropeway:smb://ann@[fd00::7]");
    }

    #[test]
    fn only_our_valid_keys_are_listed() {
        let text = "\
06a33724 I------     2   3d 1f030000     0 65534 keyring   _persistent.0: empty
13d09e84 I--Q---     1 perm 3f010000     7     7 user      ropeway:smb://ann@nas: 13
93d09e85 I--Q---     1   7h 3f010000     7     7 user      ropeway:smb://a%20b@nas:1445: 3
13d09e86 IR-Q---     1 perm 3f010000     7     7 user      ropeway:smb://revoked@nas: 3
13d09e87 I--Q--i     1 perm 3f010000     7     7 user      ropeway:smb://gone@nas: 3
13d09e88 I--Q---     1 expd 3f010000     7     7 user      ropeway:smb://late@nas: 3
13d09e89 I--Q---     1 perm 3f010000     8     7 user      ropeway:smb://other@nas: 3
13d09e8a I--Q---     1 perm 3f010000     7     7 user      somebody else's: 3
13d09e8b I--Q---     1 perm 3f010000     7     7 logon     ropeway:smb://kernel@nas: 3
cut
";
        let kept = parse(text, 7);
        let shown: Vec<_> = kept
            .iter()
            .map(|kept| (kept.url.as_str(), kept.expires.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [("smb://ann@nas", None), ("smb://a%20b@nas:1445", Some("7h"))]
        );
        assert_eq!(kept[1].id, 0x93d0_9e85_u32.cast_signed());
    }

    #[test]
    fn a_keyring_that_is_off_has_no_passwords() {
        let nas = server("smb://ann@nas/");
        assert!(Keyring::Off.password(&nas).is_none());
        assert!(!Keyring::Off.forget(&nas).unwrap());
        assert_eq!(
            Keyring::Off
                .store(&nas, &Password::from("x"), None)
                .unwrap_err()
                .code,
            code::USAGE
        );
    }
}
