//! Kerberos for SMB: logins by ticket for a client, and the key of a service for a server.
//!
//! The crate calls the GSS-API of the system (RFC 2743, RFC 4121). It does so only with the feature
//! `kerberos`; without it every function returns [`KerberosError::NotBuiltIn`], so callers need no
//! feature of their own.

#[cfg(feature = "kerberos")]
mod gss;

use std::path::Path;
use std::sync::Arc;

use ropeway_smb_proto::auth::Mechanism;
use ropeway_smb_proto::server::Mechanisms;
use ropeway_smb_wire::{NtStatus, Text};

/// Reasons for the failure of a login by Kerberos.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KerberosError {
    /// This build has no Kerberos.
    #[error("this program was built without Kerberos")]
    NotBuiltIn,
    /// The credential cache is empty, missing, or belongs to another principal.
    #[error("there is no Kerberos ticket{}", of(.principal))]
    NoTicket {
        /// The requested principal; `None`: any.
        principal: Option<String>,
    },
    /// The ticket has expired.
    #[error("the Kerberos ticket has expired")]
    Expired,
    /// The KDC does not know the server by this name.
    #[error("the Kerberos realm does not know the service {service}")]
    UnknownService {
        /// The requested service, `cifs/host`.
        service: String,
    },
    /// No KDC answers, or none was found.
    #[error("no Kerberos server answers: {message}")]
    NoKdc {
        /// The library's message.
        message: String,
    },
    /// The KDC does not know the account, or has disabled it.
    #[error("the Kerberos account is refused: {message}")]
    NoAccount {
        /// The library's message.
        message: String,
    },
    /// The clocks differ by more than the realm allows, usually five minutes.
    #[error("this computer's clock and the Kerberos server's differ too much")]
    ClockSkew,
    /// The ticket is valid, but the server refuses it.
    #[error("the server does not accept the Kerberos ticket ({status})")]
    NotAccepted {
        /// The server's status.
        status: NtStatus,
    },
    /// The keytab holds no key of the service.
    #[error("there is no key of the service {principal}: {message}")]
    NoKey {
        /// The requested service, `cifs/host`.
        principal: String,
        /// The library's message.
        message: String,
    },
    /// Any other failure.
    #[error("Kerberos: {message}")]
    Failed {
        /// The library's message.
        message: String,
    },
}

fn of(principal: &Option<String>) -> String {
    principal
        .as_ref()
        .map_or_else(String::new, |principal| format!(" of {principal}"))
}

impl KerberosError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotBuiltIn => "build with `--features kerberos` (needs libkrb5-dev), or log in by password",
            Self::NoTicket { .. } => {
                "get one with `kinit USER@REALM`; `klist` lists your tickets (KRB5CCNAME)"
            }
            Self::Expired => "renew it with `kinit`",
            Self::UnknownService { .. } => {
                "name the server as its realm does, by its full host name rather than an alias or address"
            }
            Self::NoKdc { .. } => {
                "check the realm in /etc/krb5.conf (KRB5_CONFIG) and the connection to its KDC"
            }
            Self::NoAccount { .. } => "ask the realm's administrator",
            Self::ClockSkew => "set the clock",
            Self::NotAccepted { .. } => {
                "the server may not know the account, or may have another key for this name; a new ticket (`kinit`) may help"
            }
            Self::NoKey { .. } => {
                "`klist -k FILE` shows the keytab's principals; name one with --service-principal"
            }
            Self::Failed { .. } => "see `klist` and /etc/krb5.conf",
        }
    }

    /// Returns the error for a server's refusal of a login by ticket; `None` if the status has
    /// nothing to do with the ticket.
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

/// Checks that a login by Kerberos to a host can start: the cache holds a ticket for its service
/// `cifs`, or the KDC issues one now. Blocks meanwhile. Without `principal`, uses the default
/// principal of the cache. A principal without a realm is that of the cache if the name matches,
/// otherwise one of the default realm.
///
/// # Errors
/// The reason why the login cannot start.
pub fn kerberos_ticket(principal: Option<&str>, host: &str) -> Result<(), KerberosError> {
    #[cfg(feature = "kerberos")]
    return gss::prepare(principal, host).map(drop);
    #[cfg(not(feature = "kerberos"))]
    {
        let _ = (principal, host);
        Err(KerberosError::NotBuiltIn)
    }
}

/// Prepares a login by Kerberos to the service `cifs` of a host, as a mechanism of SPNEGO
/// ([MS-SPNG]). Blocks while the KDC issues a ticket; the steps of the login itself do no I/O.
///
/// # Errors
/// The errors of [`kerberos_ticket`].
pub fn login(principal: Option<&str>, host: &str) -> Result<Box<dyn Mechanism>, KerberosError> {
    #[cfg(feature = "kerberos")]
    return Ok(Box::new(gss::prepare(principal, host)?));
    #[cfg(not(feature = "kerberos"))]
    {
        let _ = (principal, host);
        Err(KerberosError::NotBuiltIn)
    }
}

/// Maps a user and a realm to the name of the account on the server; `None` refuses the user.
pub type PrincipalMapper = Arc<dyn Fn(&str, &str) -> Option<Text> + Send + Sync>;

/// The key of a server's service, from a keytab, with which it accepts tickets.
pub struct KerberosService {
    #[cfg(feature = "kerberos")]
    service: gss::Service,
    /// Cannot exist in this build.
    #[cfg(not(feature = "kerberos"))]
    service: std::convert::Infallible,
}

impl KerberosService {
    /// Opens the key of a principal, `cifs/host` with or without its realm. The keytab is read
    /// again at each login.
    ///
    /// # Errors
    /// The keytab has no such key, or this build has no Kerberos.
    pub fn open(keytab: &Path, principal: &str) -> Result<Self, KerberosError> {
        #[cfg(feature = "kerberos")]
        return gss::Service::open(keytab, principal).map(|service| Self { service });
        #[cfg(not(feature = "kerberos"))]
        {
            let _ = (keytab, principal);
            Err(KerberosError::NotBuiltIn)
        }
    }

    /// Returns the realm of the service.
    pub fn realm(&self) -> &str {
        #[cfg(feature = "kerberos")]
        return self.service.realm();
        #[cfg(not(feature = "kerberos"))]
        match self.service {}
    }

    /// Returns the mechanisms for the server's [`Config`](ropeway_smb_proto::server::Config).
    pub fn mechanisms(self, admits: PrincipalMapper) -> Mechanisms {
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
    fn error_messages_are_clauses() {
        let fault = KerberosError::NoTicket {
            principal: Some("anna@EXAMPLE".to_owned()),
        };
        assert_eq!(fault.to_string(), "there is no Kerberos ticket of anna@EXAMPLE");
        assert!(fault.hint().contains("kinit"));
        let fault = KerberosError::NoTicket { principal: None };
        assert_eq!(fault.to_string(), "there is no Kerberos ticket");
    }

    #[cfg(not(feature = "kerberos"))]
    #[test]
    fn a_build_without_kerberos_reports_it() {
        let fault = kerberos_ticket(None, "nas").unwrap_err();
        assert_eq!(fault, KerberosError::NotBuiltIn);
        assert!(fault.hint().contains("--features kerberos"));
    }
}
