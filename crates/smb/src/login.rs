//! Who logs in.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::secret::Password;
use ropeway_smb_proto::wire::{FileTime, Text};

use crate::{Error, Result};

/// Who logs in, and how that is proved. Kept for the life of a client, because a lost connection logs in again.
#[derive(Clone)]
#[non_exhaustive]
pub enum Login {
    /// A user by password (NTLMv2 in SPNEGO).
    Password {
        /// Domain or workgroup; may be empty, and is with a user of the form `user@domain`.
        domain: String,
        /// User.
        user: String,
        /// Wiped from memory with the last owner.
        password: Password,
    },
    /// A null session. It has no keys: nothing is signed or sealed.
    Anonymous,
    /// The user `guest` without a password; a server may also make guests of users it does not know, which only this
    /// login accepts.
    Guest,
}

impl Login {
    /// A user by password.
    pub fn password(domain: &str, user: &str, password: &str) -> Self {
        Self::Password {
            domain: domain.to_owned(),
            user: user.to_owned(),
            password: Password::from(password),
        }
    }

    /// Whether a session without keys is what the caller asked for.
    pub fn accepts_guest(&self) -> bool {
        matches!(self, Self::Anonymous | Self::Guest)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { domain, user, .. } => write!(f, "Login({domain}\\{user})"),
            Self::Anonymous => f.write_str("Login(anonymous)"),
            Self::Guest => f.write_str("Login(guest)"),
        }
    }
}

/// Makes the mechanisms of each login: the first, those after a lost connection, those of further channels.
pub(crate) struct Authenticator {
    credentials: Credentials,
    /// The service that we mean to reach.
    target: String,
}

impl Authenticator {
    pub(crate) fn new(login: &Login, host: &str) -> Self {
        let credentials = match login {
            Login::Password {
                domain,
                user,
                password,
            } => Credentials::with_password(domain, user, password),
            Login::Anonymous => Credentials::anonymous(),
            Login::Guest => Credentials::with_password("", "guest", &Password::from("")),
        };
        Self {
            credentials,
            target: format!("cifs/{host}"),
        }
    }

    /// For one login.
    pub(crate) fn mechanisms(&self) -> Result<SpnegoClient> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let entropy = NtlmEntropy {
            now: FileTime::from_unix(seconds, since.subsec_nanos()),
            client_challenge: random()?,
            session_key: zeroize::Zeroizing::new(random()?),
        };
        let target = Some(Text::from(self.target.as_str()));
        let ntlm = NtlmClient::new(self.credentials.clone(), Text::default(), target, entropy);
        Ok(SpnegoClient::new(vec![Box::new(ntlm)]))
    }
}

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    // At most 32 bytes are asked for, which getrandom(2) gives whole.
    let count = rustix::rand::getrandom(&mut bytes[..], flags)
        .map_err(|fault| Error::local("draw random numbers", fault.into()))?;
    assert_eq!(count, N, "up to 256 bytes come at once");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        let text = format!("{:?}", Login::password("d", "u", "hunter2"));
        assert_eq!(text, "Login(d\\u)");
    }
}
