//! SESSION_SETUP_ANDX ([MS-CIFS] 3.3.5.43, [MS-SMB] 3.3.5.3).

use std::sync::{Arc, OnceLock};

use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::auth::spnego::SpnegoServer;
use ropeway_smb_proto::auth::{Established, Identity, Step};
use ropeway_smb_proto::secret::{NtHash, Password, SessionKey};
use ropeway_smb_wire::{FileTime, NtStatus, Text};

use super::config::Signing;
use super::connection::{Admitted, Connection, User};
use crate::auth;
use crate::dos_error::status;
use crate::header::{Flags2, Header};
use crate::strings::Str;
use crate::wire::session_setup::{Action, Proof, SessionSetupRequest, SessionSetupResponse};

/// Maximum number of logins in progress. A guess: clients log in one at a time.
const LOGINS_MAX: usize = 16;

/// A login in progress, by SPNEGO.
pub(super) struct Login {
    spnego: SpnegoServer,
    requested_user: Arc<OnceLock<Text>>,
}

/// A user who has proven who he is.
#[derive(Debug)]
pub struct LoggedIn {
    /// The UID.
    pub uid: u16,
    /// The user.
    pub identity: Identity,
    /// The key that signs; `None` if there is none.
    pub(super) key: Option<SessionKey>,
    /// The client's response, which is part of the signing key where it is not SPNEGO's.
    pub(super) response: Vec<u8>,
    /// What to answer.
    pub answer: SessionSetupResponse,
}

/// Outcome of a session setup.
#[derive(Debug)]
pub enum LoginOutcome {
    /// Answer with STATUS_MORE_PROCESSING_REQUIRED and this UID.
    Continue(u16, SessionSetupResponse),
    /// The owner makes a session of it, and answers.
    Done(Box<LoggedIn>),
    /// The proof was wrong. The user is present if the client named one.
    Failed(NtStatus, Option<String>),
    /// Nothing was checked.
    Refused(NtStatus),
}

/// A proof that was right.
struct Proven {
    identity: Identity,
    key: Option<SessionKey>,
    response: Vec<u8>,
    token: Option<Vec<u8>>,
}

impl Connection {
    /// Returns whether a UID belongs to a login in progress.
    pub fn is_logging_in(&self, uid: u16) -> bool {
        matches!(self.users.get(uid), Some(User::LoggingIn(_)))
    }

    /// Checks a proof, or a part of it.
    pub fn set_up_session(
        &mut self,
        admitted: &Admitted,
        request: &SessionSetupRequest,
        wall_time: FileTime,
    ) -> LoginOutcome {
        match &request.proof {
            Proof::Token(token) => self.by_token(admitted, token, wall_time),
            Proof::Responses { lm, nt, user, domain } => {
                if self.extended_security {
                    // The negotiation left no challenge ([MS-SMB] 3.3.5.3).
                    return LoginOutcome::Refused(NtStatus::LOGON_FAILURE);
                }
                let (user, domain) = (self.text(user), self.text(domain));
                match self.check((lm, nt), &user, &domain) {
                    Ok(proven) => self.admit(admitted, None, proven),
                    Err(status) => {
                        let named = (!user.is_empty()).then(|| user.to_string_lossy());
                        LoginOutcome::Failed(status, named)
                    }
                }
            }
        }
    }

    fn by_token(&mut self, admitted: &Admitted, token: &[u8], wall_time: FileTime) -> LoginOutcome {
        if !self.extended_security {
            return LoginOutcome::Refused(status::INVALID_SMB);
        }
        let uid = match self.begin(admitted.header.uid, wall_time) {
            Ok(uid) => uid,
            Err(status) => return LoginOutcome::Refused(status),
        };
        let Some(User::LoggingIn(login)) = self.users.get_mut(uid) else {
            return LoginOutcome::Refused(status::BAD_UID);
        };
        match login.spnego.step(token) {
            Ok(Step::Continue(token)) => {
                LoginOutcome::Continue(uid, self.answer(&admitted.header, Action::empty(), Some(token)))
            }
            Ok(Step::Done(established)) => {
                let Established {
                    token,
                    session_key,
                    identity,
                } = established;
                let identity = identity.unwrap_or(Identity::Anonymous);
                let proven = Proven {
                    key: has_key(&identity).then_some(session_key),
                    identity,
                    response: Vec::new(),
                    token: Some(token.unwrap_or_default()),
                };
                self.admit(admitted, Some(uid), proven)
            }
            Err(_) => {
                let user = login.requested_user.get().map(Text::to_string_lossy);
                self.users.remove(uid);
                LoginOutcome::Failed(NtStatus::LOGON_FAILURE, user)
            }
        }
    }

    /// Returns the UID of the login that a request belongs to, and begins it if necessary.
    fn begin(&mut self, uid: u16, wall_time: FileTime) -> Result<u16, NtStatus> {
        if self.is_logging_in(uid) {
            return Ok(uid);
        }
        let under_way = self.users.iter();
        let count = under_way
            .filter(|(_, user)| matches!(user, User::LoggingIn(_)))
            .count();
        if count >= LOGINS_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let requested_user = Arc::default();
        let accounts = &self.config.accounts;
        let spnego = accounts.spnego(accounts.anonymous, wall_time, Arc::clone(&requested_user));
        let login = Box::new(Login {
            spnego,
            requested_user,
        });
        let added = self.users.add(User::LoggingIn(login));
        added.ok_or(NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Checks responses to the challenge, or a password in clear text.
    fn check(&self, (lm, nt): (&[u8], &[u8]), user: &Text, domain: &Text) -> Result<Proven, NtStatus> {
        let accounts = &self.config.accounts;
        let is_empty = |response: &[u8]| matches!(response, [] | [0]);
        if user.is_empty() && is_empty(lm) && is_empty(nt) {
            return match accounts.anonymous {
                true => Ok(Proven {
                    identity: Identity::Anonymous,
                    key: None,
                    response: Vec::new(),
                    token: None,
                }),
                false => Err(NtStatus::LOGON_FAILURE),
            };
        }
        // An unknown user takes the same computations, so that timing reveals nothing.
        let known = accounts.hash_of(user, domain);
        let hash = known.clone().unwrap_or(NtHash::from_bytes([0; 16]));
        let weak = self.config.weak_auth;
        let mut proof = auth::verify(&hash, (user, domain), self.challenge, (lm, nt), weak)
            .map(|(_, key)| Some(key));
        if weak.clear_text && proof.is_none() {
            let password = self.password(lm, nt);
            proof = (nt_hash(&password).expose() == hash.expose()).then_some(None);
        }
        let key = proof
            .filter(|_| known.is_some())
            .ok_or(NtStatus::LOGON_FAILURE)?;
        let identity = Identity::User {
            domain: domain.clone(),
            user: user.clone(),
            workstation: Text::default(),
        };
        Ok(Proven {
            key: key.filter(|_| !accounts.is_guest(&identity)),
            identity,
            response: nt.to_vec(),
            token: None,
        })
    }

    /// Returns a password in clear text: the UTF-16 form if there is one.
    fn password(&self, lm: &[u8], nt: &[u8]) -> Password {
        let text = match Text::from_le_bytes(nt).filter(|text| !text.is_empty()) {
            Some(text) => text,
            None => self.config.code_page.decode(lm),
        };
        let text = text.to_string_lossy();
        Password::from(text.trim_end_matches('\0'))
    }

    /// Lets a user in whose proof was right, unless he would not sign and has to.
    fn admit(&mut self, admitted: &Admitted, uid: Option<u16>, proven: Proven) -> LoginOutcome {
        let accounts = &self.config.accounts;
        let is_guest = accounts.is_guest(&proven.identity);
        let is_user = proven.identity != Identity::Anonymous && !is_guest;
        let client_signs = admitted.header.flags2.contains(Flags2::SECURITY_SIGNATURE);
        let signs = self.is_signing() || client_signs && proven.key.is_some();
        if is_user && self.config.signing == Signing::Required && !signs {
            if let Some(uid) = uid {
                self.users.remove(uid);
            }
            return LoginOutcome::Refused(NtStatus::ACCESS_DENIED);
        }
        // The owner's session takes the place of this login.
        let uid = uid.or_else(|| {
            let login = Login {
                spnego: SpnegoServer::new(Vec::new()),
                requested_user: Arc::default(),
            };
            self.users.add(User::LoggingIn(Box::new(login)))
        });
        let Some(uid) = uid else {
            return LoginOutcome::Refused(NtStatus::INSUFFICIENT_RESOURCES);
        };
        let action = if is_guest { Action::GUEST } else { Action::empty() };
        let answer = self.answer(&admitted.header, action, proven.token);
        LoginOutcome::Done(Box::new(LoggedIn {
            uid,
            identity: proven.identity,
            key: proven.key.filter(|_| !is_guest),
            response: proven.response,
            answer,
        }))
    }

    /// Forgets a login that the owner could not make a session of.
    pub fn abandon(&mut self, uid: u16) {
        if self.is_logging_in(uid) {
            self.users.remove(uid);
        }
    }

    fn answer(&self, header: &Header, action: Action, blob: Option<Vec<u8>>) -> SessionSetupResponse {
        let is_unicode = self.is_unicode(header);
        let string = |text: &str| self.string(&Text::from(text), is_unicode);
        let domain = match blob {
            // With extended security the domain is part of the token.
            Some(_) => Str::empty(is_unicode),
            None => self.string(&self.config.accounts.names.netbios_domain, is_unicode),
        };
        SessionSetupResponse {
            action,
            blob,
            native_os: string("Unix"),
            native_lan_man: string("Ropeway"),
            domain,
            ..SessionSetupResponse::default()
        }
    }
}

fn has_key(identity: &Identity) -> bool {
    *identity != Identity::Anonymous
}
