//! Kerberos for SMB: logins by ticket for a client, the key of a service for a server.
//!
//! The mechanism is the system's GSS-API (RFC 2743, RFC 4121). It is built in with the feature `kerberos` only;
//! without it every function here returns [`KerberosFault::NotBuiltIn`], so callers need no feature of their own.

#[cfg(feature = "kerberos")]
mod gss;

use std::path::Path;
use std::sync::Arc;

use ropeway_smb_proto::auth::Mechanism;
use ropeway_smb_proto::server::Mechanisms;
use ropeway_smb_wire::{NtStatus, Text};

/// Why there is no login by Kerberos.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KerberosFault {
    /// This build does not have it.
    #[error("this program was built without Kerberos")]
    NotBuiltIn,
    /// The credential cache is empty, missing, or another principal's.
    #[error("there is no Kerberos ticket{}", of(.principal))]
    NoTicket {
        /// Whose was looked for; `None`: anybody's.
        principal: Option<String>,
    },
    /// The ticket's time is over.
    #[error("the Kerberos ticket has expired")]
    Expired,
    /// The KDC does not know the server by this name.
    #[error("the Kerberos realm knows no service {service}")]
    UnknownService {
        /// As asked for, `cifs/host`.
        service: String,
    },
    /// No KDC answers, or it cannot be found.
    #[error("no Kerberos server answers: {said}")]
    NoKdc {
        /// The library's words.
        said: String,
    },
    /// The KDC knows no such account, or does not let it in any more.
    #[error("the Kerberos account is refused: {said}")]
    NoAccount {
        /// The library's words.
        said: String,
    },
    /// The clocks differ by more than the realm allows, five minutes as a rule.
    #[error("this computer's clock and the Kerberos server's differ too much")]
    ClockSkew,
    /// The ticket is good, and the server does not let its owner in.
    #[error("the server does not accept the Kerberos ticket ({status})")]
    NotAccepted {
        /// What it says.
        status: NtStatus,
    },
    /// A server has no key of its own.
    #[error("there is no key of the service {principal}: {said}")]
    NoKey {
        /// As asked for, `cifs/host`.
        principal: String,
        /// The library's words.
        said: String,
    },
    /// Something else.
    #[error("Kerberos: {said}")]
    Failed {
        /// The library's words.
        said: String,
    },
}

fn of(principal: &Option<String>) -> String {
    principal
        .as_ref()
        .map_or_else(String::new, |principal| format!(" of {principal}"))
}

impl KerberosFault {
    /// What would help.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuiltIn => "build with `--features kerberos` (needs libkrb5-dev), or log in by password",
            Self::NoTicket { .. } => {
                "get one with `kinit USER@REALM`; `klist` shows what there is (KRB5CCNAME)"
            }
            Self::Expired => "renew it with `kinit`",
            Self::UnknownService { .. } => {
                "name the server as its realm does, by its full host name rather than an alias or address"
            }
            Self::NoKdc { .. } => "check the realm in /etc/krb5.conf (KRB5_CONFIG) and the line to its KDC",
            Self::NoAccount { .. } => "ask the realm's administrator",
            Self::ClockSkew => "set the clock",
            Self::NotAccepted { .. } => {
                "the server may know no such account, or have another key for this name; a newer ticket (`kinit`) may help"
            }
            Self::NoKey { .. } => {
                "`klist -k FILE` shows the keytab's principals; name one with --service-principal"
            }
            Self::Failed { .. } => "see `klist` and /etc/krb5.conf",
        }
    }

    /// What a server's refusal of a login by ticket means; `None` if it has nothing to do with the ticket.
    pub fn of_refusal(status: NtStatus) -> Option<Self> {
        let is_of_ticket = matches!(
            status,
            NtStatus::ACCESS_DENIED
                | NtStatus::LOGON_FAILURE
                | NtStatus::NO_SUCH_USER
                | NtStatus::WRONG_PASSWORD
                | NtStatus::INVALID_PARAMETER
        );
        is_of_ticket.then_some(Self::NotAccepted { status })
    }
}

/// Whether a login by Kerberos at a host can begin: there is a ticket for its service `cifs`, or the KDC gives one now.
/// Blocks meanwhile. Without a principal the cache's default one counts; one without a realm is the cache's, if it is of
/// that name, else one of the default realm.
///
/// # Errors
/// Why not.
pub fn kerberos_ticket(principal: Option<&str>, host: &str) -> Result<(), KerberosFault> {
    #[cfg(feature = "kerberos")]
    return gss::prepare(principal, host).map(drop);
    #[cfg(not(feature = "kerberos"))]
    {
        let _ = (principal, host);
        Err(KerberosFault::NotBuiltIn)
    }
}

/// Prepares a login by Kerberos to the service `cifs` of a host, as a mechanism of SPNEGO ([MS-SPNG]). Blocks while the
/// KDC is asked for a ticket; the steps of the login itself do no I/O.
///
/// # Errors
/// As of [`kerberos_ticket`].
pub fn login(principal: Option<&str>, host: &str) -> Result<Box<dyn Mechanism>, KerberosFault> {
    #[cfg(feature = "kerberos")]
    return Ok(Box::new(gss::prepare(principal, host)?));
    #[cfg(not(feature = "kerberos"))]
    {
        let _ = (principal, host);
        Err(KerberosFault::NotBuiltIn)
    }
}

/// Which users a server lets in by ticket: the name that somebody of a realm has there; none if there is none.
pub type Admits = Arc<dyn Fn(&str, &str) -> Option<Text> + Send + Sync>;

/// What a server needs to let users in by ticket: the key of its service, out of a keytab.
pub struct KerberosService {
    #[cfg(feature = "kerberos")]
    service: gss::Service,
    /// There is none.
    #[cfg(not(feature = "kerberos"))]
    service: std::convert::Infallible,
}

impl KerberosService {
    /// The key of a principal, `cifs/host` with or without its realm. The keytab is read again at each login.
    ///
    /// # Errors
    /// It has none, or this build has no Kerberos.
    pub fn open(keytab: &Path, principal: &str) -> Result<Self, KerberosFault> {
        #[cfg(feature = "kerberos")]
        return gss::Service::open(keytab, principal).map(|service| Self { service });
        #[cfg(not(feature = "kerberos"))]
        {
            let _ = (keytab, principal);
            Err(KerberosFault::NotBuiltIn)
        }
    }

    /// The realm of the service.
    pub fn realm(&self) -> &str {
        #[cfg(feature = "kerberos")]
        return self.service.realm();
        #[cfg(not(feature = "kerberos"))]
        match self.service {}
    }

    /// For the server's [`Config`](ropeway_smb_proto::server::Config).
    pub fn mechanisms(self, admits: Admits) -> Mechanisms {
        #[cfg(feature = "kerberos")]
        return Arc::new(move || vec![self.service.login(&admits)]);
        #[cfg(not(feature = "kerberos"))]
        {
            let _ = admits;
            match self.service {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_clauses() {
        let fault = KerberosFault::NoTicket {
            principal: Some("anna@EXAMPLE".to_owned()),
        };
        assert_eq!(fault.to_string(), "there is no Kerberos ticket of anna@EXAMPLE");
        assert!(fault.hint().contains("kinit"));
        let fault = KerberosFault::NoTicket { principal: None };
        assert_eq!(fault.to_string(), "there is no Kerberos ticket");
    }

    #[cfg(not(feature = "kerberos"))]
    #[test]
    fn a_build_without_it_says_so() {
        let fault = kerberos_ticket(None, "nas").unwrap_err();
        assert_eq!(fault, KerberosFault::NotBuiltIn);
        assert!(fault.hint().contains("--features kerberos"));
    }
}
