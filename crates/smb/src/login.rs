//! Who logs in.

use std::fmt;

use ropeway_smb_proto::secret::Password;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_printed() {
        let text = format!("{:?}", Login::password("d", "u", "hunter2"));
        assert_eq!(text, "Login(d\\u)");
    }
}
