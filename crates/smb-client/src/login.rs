//! Who logs in.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ropeway_smb_proto::auth::Mechanism;
use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy, nt_hash};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_wire::{FileTime, NtStatus, Text};
use tokio::sync::oneshot;

use crate::{Error, KerberosFault, Result};

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
        /// Wiped from memory with the last owner. A client keeps the hash only.
        password: Password,
    },
    /// The same by the password's hash, which is all that a login needs.
    Hash {
        /// Domain or workgroup, as of a password.
        domain: String,
        /// User.
        user: String,
        /// As good as the password wherever NTLM is taken ([MS-NLMP] 3.3.1).
        hash: NtHash,
    },
    /// A principal by a ticket of Kerberos, from the credential cache (`KRB5CCNAME`, or the default). Needs the feature
    /// `kerberos`; the server must be named as its realm does.
    Kerberos {
        /// `user@REALM`, or a user of the default realm; `None`: the cache's default principal.
        principal: Option<String>,
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

    /// The same without a password in clear.
    #[must_use]
    pub fn hashed(self) -> Self {
        match self {
            Self::Password {
                domain,
                user,
                password,
            } => Self::Hash {
                domain,
                user,
                hash: nt_hash(&password),
            },
            other => other,
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
            Self::Password { domain, user, .. } | Self::Hash { domain, user, .. } => {
                write!(f, "Login({domain}\\{user})")
            }
            Self::Kerberos { principal } => {
                write!(f, "Login(Kerberos {})", principal.as_deref().unwrap_or("default"))
            }
            Self::Anonymous => f.write_str("Login(anonymous)"),
            Self::Guest => f.write_str("Login(guest)"),
        }
    }
}

/// Makes the mechanisms of each login: the first, those after a lost connection, those of further channels, those of a
/// session that expired.
pub(crate) struct Authenticator {
    means: Means,
    host: String,
}

enum Means {
    Ntlm(Credentials),
    Kerberos { principal: Option<String> },
}

impl Authenticator {
    pub(crate) fn new(login: &Login, host: &str) -> Self {
        let means = match login {
            Login::Password {
                domain,
                user,
                password,
            } => Means::Ntlm(Credentials::with_password(domain, user, password)),
            Login::Hash { domain, user, hash } => {
                Means::Ntlm(Credentials::with_hash(domain, user, hash.clone()))
            }
            Login::Kerberos { principal } => Means::Kerberos {
                principal: principal.clone(),
            },
            Login::Anonymous => Means::Ntlm(Credentials::anonymous()),
            Login::Guest => Means::Ntlm(Credentials::with_password("", "guest", &Password::from(""))),
        };
        Self {
            means,
            host: host.to_owned(),
        }
    }

    /// For one login. Asks the KDC for a ticket where one is needed.
    pub(crate) async fn mechanisms(&self) -> Result<SpnegoClient> {
        let mechanism = match &self.means {
            Means::Ntlm(credentials) => self.ntlm(credentials.clone())?,
            Means::Kerberos { principal } => kerberos(principal.clone(), self.host.clone()).await?,
        };
        Ok(SpnegoClient::new(vec![mechanism]))
    }

    /// What the server's refusal means.
    pub(crate) fn refused(&self, status: NtStatus) -> Error {
        match (&self.means, KerberosFault::of_refusal(status)) {
            (Means::Kerberos { .. }, Some(fault)) => fault.into(),
            _ => Error::refused("log in", status),
        }
    }

    fn ntlm(&self, credentials: Credentials) -> Result<Box<dyn Mechanism>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let entropy = NtlmEntropy {
            now: FileTime::from_unix(seconds, since.subsec_nanos()),
            client_challenge: random()?,
            session_key: zeroize::Zeroizing::new(random()?),
        };
        // The service that we mean to reach.
        let target = Some(Text::from(format!("cifs/{}", self.host).as_str()));
        let ntlm = NtlmClient::new(credentials, Text::default(), target, entropy);
        Ok(Box::new(ntlm))
    }
}

/// The mechanisms of a login that an expired session needs, while they are made.
#[derive(Default)]
pub(crate) struct Renewal(Option<oneshot::Receiver<Result<SpnegoClient>>>);

impl Renewal {
    /// Has them made.
    pub(crate) fn begin(&mut self, authenticator: &Arc<Authenticator>) {
        let (sender, receiver) = oneshot::channel();
        let authenticator = Arc::clone(authenticator);
        tokio::spawn(async move {
            // Nobody listens if the connection has gone meanwhile.
            let _ = sender.send(authenticator.mechanisms().await);
        });
        self.0 = Some(receiver);
    }

    /// Waits until they are made; for ever if none are. May be dropped and called again.
    pub(crate) async fn made(&mut self) -> Result<SpnegoClient> {
        let Some(receiver) = &mut self.0 else {
            return std::future::pending().await;
        };
        let made = receiver.await;
        self.0 = None;
        made.unwrap_or(Err(Error::Lost(crate::LostReason::ClientClosed)))
    }
}

/// Prepares a login by Kerberos on a thread that may block: asking a KDC for a ticket takes time.
async fn kerberos(principal: Option<String>, host: String) -> Result<Box<dyn Mechanism>> {
    let prepared =
        tokio::task::spawn_blocking(move || ropeway_smb_gss::login(principal.as_deref(), &host)).await;
    match prepared {
        Ok(mechanism) => Ok(mechanism?),
        Err(_) => Err(Error::Lost(crate::LostReason::ClientClosed)),
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
        let hashed = Login::password("d", "u", "hunter2").hashed();
        assert!(matches!(&hashed, Login::Hash { .. }));
        assert_eq!(format!("{hashed:?}"), "Login(d\\u)");
    }

    #[cfg(not(feature = "kerberos"))]
    #[tokio::test]
    async fn a_build_without_kerberos_says_so() {
        let login = Login::Kerberos { principal: None };
        let error = Authenticator::new(&login, "nas")
            .mechanisms()
            .await
            .err()
            .unwrap();
        assert!(error.to_string().contains("without Kerberos"), "{error}");
        assert!(error.hint().unwrap().contains("--features kerberos"));
    }
}
