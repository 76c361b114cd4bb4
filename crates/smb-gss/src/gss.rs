//! Kerberos as a mechanism of SPNEGO, by the system's GSS-API and a credential cache (`KRB5CCNAME`, or the default).
//!
//! ```text
//! prepare (blocking: reads the cache, may ask the KDC) ─> KerberosClient { first token }
//!                                                            └─ step(server's token): no network any more
//! ```
//! So a connection's task, which makes the steps, is never held up by a KDC.

mod service;
mod sys;

use ropeway_smb_proto::auth::{AuthError, Established, Mechanism, Oid, Result, Step};
use ropeway_smb_proto::secret::SessionKey;

use crate::KerberosFault;
pub(crate) use service::Service;
use sys::{Context, Credential, Fault, Name};

/// Names of Kerberos, the right one first.
const OIDS: [Oid; 2] = [Oid::KERBEROS, Oid::MS_KERBEROS];

/// The client's end of one login, its first token made.
pub(crate) struct KerberosClient {
    context: Context,
    target: Name,
    credential: Credential,
    state: State,
}

enum State {
    /// The first token, not sent yet.
    Prepared(Vec<u8>),
    /// Awaits the server's proof.
    Awaiting,
    Done,
    Failed,
}

/// A login to the service `cifs` of a host; blocks while the KDC is asked for a ticket. Without a principal it is the
/// cache's default one.
pub(crate) fn prepare(
    principal: Option<&str>,
    host: &str,
) -> std::result::Result<KerberosClient, KerberosFault> {
    let begin = || {
        let credential = credential(principal)?;
        let target = Name::service(&format!("cifs@{host}"))?;
        let mut context = Context::new();
        let first = context.step(&credential, &target, None)?;
        Ok(KerberosClient {
            context,
            target,
            credential,
            state: State::Prepared(first.token),
        })
    };
    begin().map_err(|fault| told(fault, principal, host))
}

fn credential(principal: Option<&str>) -> std::result::Result<Credential, Fault> {
    let Some(principal) = principal else {
        return Credential::acquire(None);
    };
    // A user without a realm is the cache's, if it is of that name, else one of the default realm.
    if !principal.contains('@')
        && let Ok(default) = Credential::acquire(None)
        && let Ok(name) = default.principal()
        && name.split_once('@').is_some_and(|(user, _)| user == principal)
    {
        return Ok(default);
    }
    Credential::acquire(Some(&Name::principal(principal)?))
}

impl Mechanism for KerberosClient {
    fn oids(&self) -> &[Oid] {
        &OIDS
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Step> {
        match (std::mem::replace(&mut self.state, State::Failed), token) {
            (State::Prepared(first), None) => {
                self.state = State::Awaiting;
                Ok(Step::Continue(first))
            }
            (State::Awaiting, Some(token)) => self.take(token),
            _ => Err(AuthError::OutOfOrder("Kerberos is not at that step")),
        }
    }

    fn has_mic(&self) -> bool {
        true
    }

    fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>> {
        self.require_done()?;
        self.context.mic(message).map_err(|fault| failed(&fault))
    }

    fn verify_mic(&mut self, message: &[u8], mic: &[u8]) -> Result<()> {
        self.require_done()?;
        self.context.verify_mic(message, mic).map_err(unfit_mic)
    }
}

impl KerberosClient {
    /// The server's proof, which takes no network.
    fn take(&mut self, token: &[u8]) -> Result<Step> {
        let stepped = self.context.step(&self.credential, &self.target, Some(token));
        let stepped = stepped.map_err(|fault| failed(&fault))?;
        if !stepped.is_done {
            self.state = State::Awaiting;
            return Ok(Step::Continue(stepped.token));
        }
        let key = self.context.session_key().map_err(|fault| failed(&fault))?;
        self.state = State::Done;
        Ok(Step::Done(Established {
            token: Some(stepped.token).filter(|token| !token.is_empty()),
            session_key: SessionKey::new(key),
            identity: None,
        }))
    }

    fn require_done(&self) -> Result<()> {
        match self.state {
            State::Done => Ok(()),
            _ => Err(AuthError::OutOfOrder("Kerberos is not done")),
        }
    }
}

fn unfit_mic(fault: Fault) -> AuthError {
    tracing::debug!(fault = %fault.text, "the peer's integrity check does not fit");
    AuthError::BadMic
}

fn failed(fault: &Fault) -> AuthError {
    tracing::debug!(fault = %fault.text, "Kerberos failed");
    AuthError::Mechanism("Kerberos does not take the server's answer")
}

/// `GSS_S_NO_CRED`, `GSS_S_CREDENTIALS_EXPIRED` (RFC 2744 3.9.1), in the upper half.
const NO_CREDENTIAL: u32 = 7 << 16;
const CREDENTIALS_EXPIRED: u32 = 11 << 16;

/// Kerberos's own numbers (MIT's `krb5.h`), which begin at `ERROR_TABLE_BASE_krb5`.
mod number {
    const BASE: u32 = -1_765_328_384_i32 as u32;
    pub(super) const CLIENT_EXPIRED: u32 = BASE + 1;
    pub(super) const CLIENT_UNKNOWN: u32 = BASE + 6;
    pub(super) const SERVICE_UNKNOWN: u32 = BASE + 7;
    pub(super) const CLIENT_REVOKED: u32 = BASE + 18;
    pub(super) const TICKET_EXPIRED: u32 = BASE + 32;
    pub(super) const CLOCK_SKEW: u32 = BASE + 37;
    pub(super) const CACHE_NOT_FOUND: u32 = BASE + 141;
    pub(super) const REALM_UNKNOWN: u32 = BASE + 154;
    pub(super) const KDC_UNREACHABLE: u32 = BASE + 156;
    pub(super) const NO_CACHE_FILE: u32 = BASE + 195;
    pub(super) const REALM_UNRESOLVABLE: u32 = BASE + 220;
}

fn told(fault: Fault, principal: Option<&str>, host: &str) -> KerberosFault {
    tracing::debug!(
        major = fault.major,
        minor = fault.minor,
        text = fault.text,
        "no Kerberos login"
    );
    let said = fault.text;
    match (fault.major, fault.minor) {
        (_, number::SERVICE_UNKNOWN) => KerberosFault::UnknownService {
            service: format!("cifs/{host}"),
        },
        (CREDENTIALS_EXPIRED, _) | (_, number::TICKET_EXPIRED) => KerberosFault::Expired,
        (_, number::CLOCK_SKEW) => KerberosFault::ClockSkew,
        (_, number::KDC_UNREACHABLE | number::REALM_UNKNOWN | number::REALM_UNRESOLVABLE) => {
            KerberosFault::NoKdc { said }
        }
        (_, number::CLIENT_EXPIRED | number::CLIENT_REVOKED | number::CLIENT_UNKNOWN) => {
            KerberosFault::NoAccount { said }
        }
        (NO_CREDENTIAL, _) | (_, number::CACHE_NOT_FOUND | number::NO_CACHE_FILE) => {
            KerberosFault::NoTicket {
                principal: principal.map(str::to_owned),
            }
        }
        _ => KerberosFault::Failed { said },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(major: u32, minor: u32) -> KerberosFault {
        let text = "words".to_owned();
        told(Fault { major, minor, text }, Some("anna"), "nas")
    }

    #[test]
    fn faults_are_told_apart() {
        assert_eq!(
            fault(NO_CREDENTIAL, 5),
            KerberosFault::NoTicket {
                principal: Some("anna".to_owned())
            }
        );
        assert_eq!(
            fault(NO_CREDENTIAL, number::TICKET_EXPIRED),
            KerberosFault::Expired
        );
        assert_eq!(
            fault(13 << 16, number::SERVICE_UNKNOWN),
            KerberosFault::UnknownService {
                service: "cifs/nas".to_owned()
            }
        );
        assert_eq!(
            fault(13 << 16, 1),
            KerberosFault::Failed {
                said: "words".to_owned()
            }
        );
        assert_eq!(number::NO_CACHE_FILE as i32, -1_765_328_189, "as krb5.h has it");
        assert_eq!(number::KDC_UNREACHABLE as i32, -1_765_328_228);
    }
}
