//! Logins: the identity, and the proof of it.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ropeway_smb_gss::KerberosError;
use ropeway_smb_proto::auth::Mechanism;
use ropeway_smb_proto::auth::ntlm::{Credentials, NtlmClient, NtlmEntropy, nt_hash};
use ropeway_smb_proto::auth::spnego::SpnegoClient;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_wire::{FileTime, NtStatus, Text};
use tokio::sync::oneshot;

use crate::error::{Error, LostReason, Result};

/// The identity that logs in, and the proof of it. A client keeps it for its life, because it logs
/// in again after a lost connection.
#[derive(Clone)]
#[non_exhaustive]
pub enum Login {
    /// A user and a password (NTLMv2 in SPNEGO).
    Password {
        /// Domain or workgroup. May be empty, and is empty for a user of the form `user@domain`.
        domain: String,
        /// User name.
        user: String,
        /// Wiped from memory when the last owner is dropped. A client keeps the hash only.
        password: Password,
    },
    /// A user and the hash of a password, which is all that a login needs.
    Hash {
        /// Domain or workgroup, as for a password.
        domain: String,
        /// User name.
        user: String,
        /// As powerful as the password wherever NTLM is accepted ([MS-NLMP] 3.3.1).
        hash: NtHash,
    },
    /// A principal with a Kerberos ticket from the credential cache (`KRB5CCNAME`, or the default).
    /// Needs the feature `kerberos`. Name the server as its realm does.
    Kerberos {
        /// `user@REALM`, or a user of the default realm. `None`: the default principal of the
        /// cache.
        principal: Option<String>,
    },
    /// A null session. It has no keys: messages are neither signed nor sealed.
    Anonymous,
    /// The user `guest` without a password. A server may also turn unknown users into guests; only
    /// this login and the anonymous one accept such a session.
    Guest,
}

impl Login {
    /// Returns a login by user and password.
    pub fn password(domain: &str, user: &str, password: &str) -> Self {
        Self::Password {
            domain: domain.to_owned(),
            user: user.to_owned(),
            password: Password::from(password),
        }
    }

    /// Replaces the clear password by its hash.
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

    /// Returns who logs in, as text without a secret.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Password { domain, user, .. } | Self::Hash { domain, user, .. } if domain.is_empty() => {
                user.clone()
            }
            Self::Password { domain, user, .. } | Self::Hash { domain, user, .. } => {
                format!("{domain}\\{user}")
            }
            Self::Kerberos { principal } => principal.clone().unwrap_or_default(),
            Self::Anonymous => "anonymous".to_owned(),
            Self::Guest => "guest".to_owned(),
        }
    }

    /// Returns whether the caller asked for a session without keys.
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

/// Creates the authentication mechanisms for each login: the first, those after a lost connection,
/// those of further channels, and those of an expired session.
pub(crate) struct Authenticator {
    method: Method,
    host: String,
}

enum Method {
    Ntlm(Credentials),
    Kerberos { principal: Option<String> },
}

impl Authenticator {
    pub(crate) fn new(login: &Login, host: &str) -> Self {
        let method = match login {
            Login::Password {
                domain,
                user,
                password,
            } => Method::Ntlm(Credentials::with_password(domain, user, password)),
            Login::Hash { domain, user, hash } => {
                Method::Ntlm(Credentials::with_hash(domain, user, hash.clone()))
            }
            Login::Kerberos { principal } => Method::Kerberos {
                principal: principal.clone(),
            },
            Login::Anonymous => Method::Ntlm(Credentials::anonymous()),
            Login::Guest => Method::Ntlm(Credentials::with_password("", "guest", &Password::from(""))),
        };
        Self {
            method,
            host: host.to_owned(),
        }
    }

    /// Creates the mechanisms for one login. Asks the KDC for a ticket where one is needed.
    pub(crate) async fn mechanisms(&self) -> Result<SpnegoClient> {
        let mechanism = match &self.method {
            Method::Ntlm(credentials) => self.ntlm(credentials.clone())?,
            Method::Kerberos { principal } => kerberos(principal.clone(), self.host.clone()).await?,
        };
        Ok(SpnegoClient::new(vec![mechanism]))
    }

    /// Returns the error for the server's refusal of a login.
    pub(crate) fn refused(&self, status: NtStatus) -> Error {
        match (&self.method, KerberosError::of_refusal(status)) {
            (Method::Kerberos { .. }, Some(fault)) => fault.into(),
            _ => Error::refused("log in", status),
        }
    }

    fn ntlm(&self, credentials: Credentials) -> Result<Box<dyn Mechanism>> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let entropy = NtlmEntropy {
            wall_time: FileTime::from_unix(seconds, since.subsec_nanos()),
            client_challenge: random()?,
            session_key: zeroize::Zeroizing::new(random()?),
        };
        // The service that the client intends to reach.
        let target = Some(Text::from(format!("cifs/{}", self.host).as_str()));
        let ntlm = NtlmClient::new(credentials, Text::default(), target, entropy);
        Ok(Box::new(ntlm))
    }
}

/// Prepares the mechanisms for the new login of an expired session.
#[derive(Default)]
pub(crate) struct Renewal(Option<oneshot::Receiver<Result<SpnegoClient>>>);

impl Renewal {
    /// Starts preparing the mechanisms.
    pub(crate) fn begin(&mut self, authenticator: &Arc<Authenticator>) {
        let (sender, receiver) = oneshot::channel();
        let authenticator = Arc::clone(authenticator);
        tokio::spawn(async move {
            // The receiver is gone if the connection ended meanwhile.
            let _ = sender.send(authenticator.mechanisms().await);
        });
        self.0 = Some(receiver);
    }

    /// Waits until the mechanisms are ready; for ever if none were started. Cancel safe.
    pub(crate) async fn made(&mut self) -> Result<SpnegoClient> {
        let Some(receiver) = &mut self.0 else {
            return std::future::pending().await;
        };
        let made = receiver.await;
        self.0 = None;
        made.unwrap_or(Err(Error::Lost(LostReason::ClientClosed)))
    }
}

/// Prepares a login by Kerberos on a thread that may block, since the KDC takes time to answer.
async fn kerberos(principal: Option<String>, host: String) -> Result<Box<dyn Mechanism>> {
    let prepared =
        tokio::task::spawn_blocking(move || ropeway_smb_gss::login(principal.as_deref(), &host)).await;
    match prepared {
        Ok(mechanism) => Ok(mechanism?),
        Err(_) => Err(Error::Lost(LostReason::ClientClosed)),
    }
}

/// Returns random bytes from the system.
///
/// # Errors
/// [`Error::Local`]: the system has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Callers ask for at most 32 bytes; getrandom(2) returns up to 256 at once.
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
    async fn a_build_without_kerberos_reports_it() {
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
