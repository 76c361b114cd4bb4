//! The server's end of a login by ticket.

use std::path::Path;
use std::sync::Arc;

use ropeway_smb_proto::auth::{AuthError, Established, Identity, Mechanism, Oid, Refusal, Result, Step};
use ropeway_smb_proto::secret::SessionKey;
use ropeway_smb_wire::Text;

use super::sys::{Context, Credential, Fault, Name};
use super::{OIDS, unfit_mic};
use crate::Admits;
use crate::KerberosFault;

/// The key of a service.
pub(crate) struct Service {
    credential: Arc<Credential>,
    realm: String,
}

impl Service {
    /// A principal's key, with or without its realm.
    pub(crate) fn open(keytab: &Path, principal: &str) -> std::result::Result<Self, KerberosFault> {
        let keytab = format!("FILE:{}", keytab.display());
        let open = || {
            let name = Name::principal(principal)?;
            let credential = Credential::of_service(&keytab, &name)?;
            let actual = credential.principal()?;
            Ok((credential, actual))
        };
        let (credential, actual) = open().map_err(|fault: Fault| KerberosFault::NoKey {
            principal: principal.to_owned(),
            said: fault.text,
        })?;
        let realm = actual.rsplit_once('@').map(|(_, realm)| realm.to_owned());
        Ok(Self {
            credential: Arc::new(credential),
            realm: realm.unwrap_or_default(),
        })
    }

    /// Its realm.
    pub(crate) fn realm(&self) -> &str {
        &self.realm
    }

    /// One login.
    pub(crate) fn login(&self, admits: &Admits) -> Box<dyn Mechanism> {
        Box::new(KerberosServer {
            context: Context::new(),
            credential: Arc::clone(&self.credential),
            admits: Arc::clone(admits),
            state: State::Awaiting,
        })
    }
}

/// The server's end of one login.
struct KerberosServer {
    context: Context,
    credential: Arc<Credential>,
    admits: Admits,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Awaits a token.
    Awaiting,
    Done,
    Failed,
}

impl Mechanism for KerberosServer {
    fn oids(&self) -> &[Oid] {
        &OIDS
    }

    fn step(&mut self, token: Option<&[u8]>) -> Result<Step> {
        match (std::mem::replace(&mut self.state, State::Failed), token) {
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

impl KerberosServer {
    fn take(&mut self, token: &[u8]) -> Result<Step> {
        let accepted = self
            .context
            .accept(&self.credential, token)
            .map_err(|fault| failed(&fault))?;
        if !accepted.is_done {
            self.state = State::Awaiting;
            return Ok(Step::Continue(accepted.token));
        }
        let client = accepted.client.ok_or(AuthError::Refused(Refusal::Anonymous))?;
        let (user, realm) = parts(&client).ok_or(AuthError::Refused(Refusal::UnknownUser))?;
        let Some(name) = (self.admits)(user, realm) else {
            tracing::info!(%client, "a ticket of somebody who may not log in");
            return Err(AuthError::Refused(Refusal::UnknownUser));
        };
        let key = self.context.session_key().map_err(|fault| failed(&fault))?;
        self.state = State::Done;
        Ok(Step::Done(Established {
            token: Some(accepted.token).filter(|token| !token.is_empty()),
            session_key: SessionKey::new(key),
            identity: Some(Identity::User {
                domain: Text::from(realm),
                user: name,
                workstation: Text::default(),
            }),
        }))
    }

    fn require_done(&self) -> Result<()> {
        match self.state {
            State::Done => Ok(()),
            _ => Err(AuthError::OutOfOrder("Kerberos is not done")),
        }
    }
}

/// User and realm of a principal. One with characters that are written with a backslash (RFC 1964 2.1.1) is nobody's here.
fn parts(principal: &str) -> Option<(&str, &str)> {
    let (user, realm) = principal.rsplit_once('@')?;
    let is_plain = !user.is_empty() && !realm.is_empty() && !principal.contains(['\\', '\0']);
    is_plain.then_some((user, realm))
}

fn failed(fault: &Fault) -> AuthError {
    tracing::debug!(fault = %fault.text, "a ticket is not taken");
    AuthError::Mechanism("Kerberos does not take the client's ticket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_have_parts() {
        assert_eq!(parts("ann@EXAMPLE.ORG"), Some(("ann", "EXAMPLE.ORG")));
        assert_eq!(parts("host/nas@EXAMPLE"), Some(("host/nas", "EXAMPLE")));
        for odd in ["ann", "@EXAMPLE", "ann@", "a\\@b@EXAMPLE", ""] {
            assert_eq!(parts(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_keytab_that_is_not_there_is_told() {
        let missing = Service::open(Path::new("/nonexistent/keytab"), "cifs/nas@EXAMPLE");
        let fault = missing.map(|_| ()).unwrap_err();
        assert!(matches!(&fault, KerberosFault::NoKey { principal, .. } if principal == "cifs/nas@EXAMPLE"));
        assert!(fault.to_string().contains("cifs/nas@EXAMPLE"), "{fault}");
    }
}
