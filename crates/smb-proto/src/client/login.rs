//! The rounds of a login ([MS-SMB2] 3.2.4.2.3, 3.2.5.3): a new session, a further channel of a
//! session, or its reauthentication.

use std::sync::Arc;

use ropeway_smb_wire::header::{HEADER_LEN, Header, HeaderFlags};
use ropeway_smb_wire::negotiate::{Dialect, SecurityMode};
use ropeway_smb_wire::session_setup::{SessionFlags, SessionSetupResponse};
use ropeway_smb_wire::{NtStatus, Reader, SessionId};

use super::connection::Connection;
use super::control::Control;
use super::login_state::{Kind, Login, Round};
use super::session::{Secret, Session, key_context};
use super::{
    Config, Encryption, Event, LoginError, Misuse, Negotiated, PeerMisbehaved, SessionSecret, Signing,
};
use crate::auth::spnego::SpnegoClient;
use crate::auth::{AuthError, Step};
use crate::crypto::{Signer, signing_key};
use crate::secret::SessionKey;

impl Connection {
    /// Logs in as soon as the negotiation is complete. If there is a session, reauthenticates it
    /// ([MS-SMB2] 3.2.4.2.3.1).
    ///
    /// # Errors
    /// [`Misuse::LoginUnderWay`], [`Misuse::Ended`].
    pub fn log_in(&mut self, mechanisms: SpnegoClient) -> Result<(), Misuse> {
        self.await_login(mechanisms, None)
    }

    /// Binds this connection as a further channel to a session of another connection ([MS-SMB2]
    /// 3.2.4.2.1).
    ///
    /// # Errors
    /// [`Misuse::Binding`] if this connection has a session already, [`Misuse::LoginUnderWay`],
    /// [`Misuse::Ended`].
    pub fn bind(&mut self, session: &SessionSecret, mechanisms: SpnegoClient) -> Result<(), Misuse> {
        if self.session.is_some() {
            return Err(Misuse::Binding);
        }
        self.await_login(mechanisms, Some(session.clone()))
    }

    fn await_login(
        &mut self,
        mechanisms: SpnegoClient,
        binding: Option<SessionSecret>,
    ) -> Result<(), Misuse> {
        if self.ended.is_some() {
            return Err(Misuse::Ended);
        }
        if !matches!(self.login, Login::None) {
            return Err(Misuse::LoginUnderWay);
        }
        self.login = Login::Waiting(mechanisms, binding);
        self.begin_login();
        Ok(())
    }

    /// Sends the first round if a login waits and the negotiation is complete.
    pub(super) fn begin_login(&mut self) {
        let Some(negotiated) = &self.negotiated else {
            return;
        };
        let Login::Waiting(mut mechanisms, binding) = std::mem::replace(&mut self.login, Login::None) else {
            return;
        };
        if self.config.encryption == Encryption::Required && negotiated.cipher.is_none() {
            return self.login_failed(LoginError::NoEncryption);
        }
        let (kind, session_id) = match (binding, &self.session) {
            (Some(secret), _) => {
                let fits = secret.0.dialect == negotiated.dialect
                    && secret.0.cipher == negotiated.cipher
                    && negotiated.dialect >= Dialect::Smb300;
                if !fits {
                    return self.login_failed(Misuse::Binding.into());
                }
                let signer = Signer::new(negotiated.signing, &secret.0.signing);
                let id = secret.id();
                (Kind::Binding(secret, signer), id)
            }
            (None, Some(session)) if session.signs() => (Kind::Renewal, session.id),
            (None, _) => (Kind::New, SessionId(0)),
        };
        let token = mechanisms.start(&negotiated.hint);
        self.login = Login::Round(Box::new(Round {
            mechanisms,
            kind,
            session_id,
            preauth: self.preauth.clone(),
        }));
        self.send_token(token);
    }

    fn send_token(&mut self, token: crate::auth::Result<Vec<u8>>) {
        match token {
            // The length field has 16 bits.
            Ok(token) if token.len() <= usize::from(u16::MAX) => {
                self.controls.push_back(Control::SessionSetup(token));
            }
            Ok(_) => self.login_failed(AuthError::Mechanism("a token longer than 65,535 bytes").into()),
            Err(error) => self.login_failed(error.into()),
        }
    }

    fn login_failed(&mut self, error: LoginError) {
        self.login = Login::None;
        self.events.push_back(Event::LoginFailed(error));
    }

    /// Handles a SESSION_SETUP reply ([MS-SMB2] 3.2.5.3).
    pub(super) fn handle_session_setup(
        &mut self,
        header: &Header,
        message: &mut [u8],
    ) -> Result<(), PeerMisbehaved> {
        let Login::Round(mut round) = std::mem::replace(&mut self.login, Login::None) else {
            return Err(PeerMisbehaved::Unasked(header.message_id));
        };
        let more = header.status == NtStatus::MORE_PROCESSING_REQUIRED;
        if !more && header.status != NtStatus::SUCCESS {
            self.login_failed(LoginError::Refused(header.status));
            return Ok(());
        }
        if round.session_id == SessionId(0) {
            round.session_id = header.session_id;
        }
        if round.session_id != header.session_id || header.session_id == SessionId(0) {
            return Err(PeerMisbehaved::WrongSession);
        }
        if more {
            round.check_interim(header, message, self.session.as_ref())?;
        }
        let mut reader = Reader::at(message, HEADER_LEN, "SMB2 SESSION_SETUP Response");
        let response = SessionSetupResponse::decode(&mut reader)?;
        let flags = response.session_flags;
        let unprotected = flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
        let step = round.mechanisms.step(response.security_buffer);
        match (more, step) {
            (true, Ok(Step::Continue(token))) => {
                round.preauth.update(&[message]);
                self.login = Login::Round(round);
                self.send_token(Ok(token));
            }
            (false, step) if unprotected && matches!(round.kind, Kind::New) => {
                // The session has no keys, so the outcome of the mechanism does not matter.
                drop(step);
                self.establish_unprotected(round.session_id, flags);
            }
            (false, Ok(Step::Done(established))) => {
                return self.establish(&round, header, flags, &established.session_key, message);
            }
            (_, Err(error)) => self.login_failed(error.into()),
            (true, Ok(Step::Done(_))) => {
                self.login_failed(
                    AuthError::OutOfOrder("the server expects another token, but the mechanism is done")
                        .into(),
                );
            }
            (false, Ok(Step::Continue(_))) => {
                self.login_failed(
                    AuthError::OutOfOrder("the server is done, but the mechanism is not").into(),
                );
            }
        }
        Ok(())
    }

    fn establish_unprotected(&mut self, id: SessionId, flags: SessionFlags) {
        if !self.config.unprotected_allowed {
            return self.login_failed(LoginError::Unprotected);
        }
        if self.config.encryption == Encryption::Required {
            return self.login_failed(LoginError::NoEncryption);
        }
        self.session = Some(Session::unprotected(id, flags));
        self.expired = false;
        self.events.push_back(Event::Authenticated { flags });
    }

    /// Derives the keys and verifies that the server has them.
    fn establish(
        &mut self,
        round: &Round,
        header: &Header,
        flags: SessionFlags,
        key: &SessionKey,
        message: &mut [u8],
    ) -> Result<(), PeerMisbehaved> {
        let Some(negotiated) = &self.negotiated else {
            return Err(PeerMisbehaved::NotAReply);
        };
        let dialect = negotiated.dialect;
        let sign_all = signs_all(&self.config, negotiated);
        if flags.contains(SessionFlags::ENCRYPT_DATA) && negotiated.cipher.is_none() {
            self.login_failed(LoginError::NoEncryption);
            return Ok(());
        }
        let session = new_session(&self.config, negotiated, round, flags, key);
        // A reauthentication keeps the current session.
        let current = match (&session, &self.session) {
            (Some(session), _) | (None, Some(session)) => session,
            (None, None) => {
                self.login_failed(Misuse::Binding.into());
                return Ok(());
            }
        };
        // [MS-SMB2] 3.2.5.3.1, 3.2.5.3.3: the last reply is signed with the new key.
        if header.flags.contains(HeaderFlags::SIGNED) {
            if !current.verify(message) {
                return Err(PeerMisbehaved::BadSignature);
            }
        } else if dialect == Dialect::Smb311 || sign_all || !matches!(round.kind, Kind::New) {
            return Err(PeerMisbehaved::Unsigned);
        }
        let flags = current.flags;
        if let Some(session) = session {
            self.session = Some(session);
        }
        self.expired = false;
        self.events.push_back(Event::Authenticated { flags });
        Ok(())
    }
}

/// Returns the session that results from a login. `None` for a reauthentication, or if the session
/// had its maximum number of channels.
fn new_session(
    config: &Config,
    negotiated: &Negotiated,
    round: &Round,
    flags: SessionFlags,
    key: &SessionKey,
) -> Option<Session> {
    let dialect = negotiated.dialect;
    let hash = round.preauth.value();
    let (secret, signing) = match &round.kind {
        Kind::Renewal => return None,
        Kind::New => {
            let secret = Secret::derive((round.session_id, flags), (dialect, negotiated.cipher), key, hash);
            let signing = secret.signing.clone();
            (SessionSecret(Arc::new(secret)), signing)
        }
        // A channel shares the session's keys, except for its own signing key.
        Kind::Binding(secret, _) => (secret.clone(), signing_key(key, key_context(dialect, hash)?)),
    };
    let demanded = secret.0.flags.contains(SessionFlags::ENCRYPT_DATA);
    let seal_all = demanded || config.encryption != Encryption::Off;
    let protect = (signs_all(config, negotiated), seal_all);
    // Each channel's negotiation is validated separately.
    let validated = !needs_validation(config, dialect);
    Session::protected(&secret, negotiated.signing, &signing, protect, validated)
}

/// Returns whether the whole session is signed: either end requires it ([MS-SMB2] 3.2.5.3).
fn signs_all(config: &Config, negotiated: &Negotiated) -> bool {
    config.signing == Signing::Required || negotiated.security_mode.contains(SecurityMode::SIGNING_REQUIRED)
}

/// Returns whether the negotiation must be validated ([MS-SMB2] 3.2.5.5). Dialect 3.1.1 hashes it
/// instead. If no 3.x dialect was offered, no server supports the request.
fn needs_validation(config: &Config, dialect: Dialect) -> bool {
    dialect < Dialect::Smb311 && *config.dialects.end() >= Dialect::Smb300
}
