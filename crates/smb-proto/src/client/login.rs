//! The rounds of a login ([MS-SMB2] 3.2.4.2.3, 3.2.5.3): a new session, a further channel of one, or a session's renewal.

use std::sync::Arc;

use super::connection::Connection;
use super::negotiate::security_mode;
use super::session::{Secret, Session};
use super::transmit::Control;
use super::{
    Config, Encryption, Event, LoginError, Misuse, Negotiated, PeerMisbehaved, SessionSecret, Signing,
};
use crate::auth::spnego::SpnegoClient;
use crate::auth::{AuthError, Step};
use crate::crypto::{KeyContext, Preauth, Sender, Signer, signing_key};
use crate::secret::SessionKey;
use ropeway_smb_wire::header::{HEADER_LEN, Header, HeaderFlags};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect, SecurityMode};
use ropeway_smb_wire::session_setup::{
    SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
use ropeway_smb_wire::{NtStatus, Reader, SessionId, Writer};

/// Where a login is.
pub(super) enum Login {
    None,
    /// Awaits the negotiation.
    Waiting(SpnegoClient, Option<SessionSecret>),
    Round(Box<Round>),
}

/// A login under way.
pub(super) struct Round {
    mechanisms: SpnegoClient,
    kind: Kind,
    /// 0 until the server has named it.
    session_id: SessionId,
    /// [MS-SMB2] 3.2.1.3, `Session.PreauthIntegrityHashValue`, or the channel's.
    preauth: Preauth,
}

enum Kind {
    New,
    /// Signs with the session's key until the channel has its own.
    Binding(SessionSecret, Signer),
    /// The standing session's keys remain.
    Renewal,
}

impl Login {
    pub(super) fn session_id(&self) -> SessionId {
        match self {
            Self::Round(round) => round.session_id,
            _ => SessionId(0),
        }
    }

    /// Whether requests are signed.
    pub(super) fn signs(&self) -> bool {
        matches!(self, Self::Round(round) if !matches!(round.kind, Kind::New))
    }

    pub(super) fn signer<'a>(&'a self, session: Option<&'a Session>) -> Option<&'a Signer> {
        match self {
            Self::Round(round) => match &round.kind {
                Kind::New => None,
                Kind::Binding(_, signer) => Some(signer),
                Kind::Renewal => session.and_then(Session::signer).map(|signer| &**signer),
            },
            _ => None,
        }
    }

    pub(super) fn hash(&mut self, message: &[u8]) {
        if let Self::Round(round) = self {
            round.preauth.update(&[message]);
        }
    }

    pub(super) fn encode(&self, config: &Config, token: &[u8], w: &mut Writer<'_>) {
        let binding = matches!(self, Self::Round(round) if matches!(round.kind, Kind::Binding(..)));
        let new = matches!(self, Self::Round(round) if matches!(round.kind, Kind::New));
        let request = SessionSetupRequest {
            flags: if binding {
                SessionSetupFlags::BINDING
            } else {
                SessionSetupFlags::default()
            },
            security_mode: security_mode(config),
            capabilities: Capabilities::DFS,
            previous_session_id: if new {
                config.previous_session
            } else {
                SessionId(0)
            },
            security_buffer: token,
        };
        request.encode(w);
    }
}

/// What keys derive from; none in 2.x, where they do not.
pub(super) fn key_context(dialect: Dialect, hash: &[u8; 64]) -> Option<KeyContext<'_>> {
    match dialect {
        Dialect::Smb202 | Dialect::Smb210 => None,
        Dialect::Smb300 | Dialect::Smb302 => Some(KeyContext::Smb30),
        Dialect::Smb311 => Some(KeyContext::Smb311(hash)),
    }
}

impl Connection {
    /// Logs in as soon as the negotiation is done; on a standing session renews it ([MS-SMB2] 3.2.4.2.3.1).
    ///
    /// # Errors
    /// [`Misuse::LoginUnderWay`], [`Misuse::Ended`].
    pub fn log_in(&mut self, mechanisms: SpnegoClient) -> Result<(), Misuse> {
        self.await_login(mechanisms, None)
    }

    /// Makes this connection a further channel of a session that another connection has ([MS-SMB2] 3.2.4.2.1).
    ///
    /// # Errors
    /// [`Misuse::Binding`] if there is a session already, [`Misuse::LoginUnderWay`], [`Misuse::Ended`].
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

    /// Sends the first round if there is a login that waits and a negotiation.
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
            // The field's length has 16 bits.
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

    /// [MS-SMB2] 3.2.5.3.
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
                // Nothing secret comes of it, so it does not matter whether the mechanism is content.
                drop(step);
                self.stand_unprotected(round.session_id, flags);
            }
            (false, Ok(Step::Done(established))) => {
                return self.stand(&round, header, flags, &established.session_key, message);
            }
            (_, Err(error)) => self.login_failed(error.into()),
            (true, Ok(Step::Done(_))) => {
                self.login_failed(AuthError::OutOfOrder("the server awaits what we do not have").into());
            }
            (false, Ok(Step::Continue(_))) => {
                self.login_failed(AuthError::OutOfOrder("the server is done and we are not").into());
            }
        }
        Ok(())
    }

    fn stand_unprotected(&mut self, id: SessionId, flags: SessionFlags) {
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

    /// Keys, and the proof that the server has them.
    fn stand(
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
        // None for a renewal, whose session stays.
        let standing = match (&session, &self.session) {
            (Some(session), _) | (None, Some(session)) => session,
            (None, None) => {
                self.login_failed(Misuse::Binding.into());
                return Ok(());
            }
        };
        // [MS-SMB2] 3.2.5.3.1, 3.2.5.3.3: the last answer is signed with the new key.
        if header.flags.contains(HeaderFlags::SIGNED) {
            if !standing.verify(message) {
                return Err(PeerMisbehaved::BadSignature);
            }
        } else if dialect == Dialect::Smb311 || sign_all || !matches!(round.kind, Kind::New) {
            return Err(PeerMisbehaved::Unsigned);
        }
        let flags = standing.flags;
        if let Some(session) = session {
            self.session = Some(session);
        }
        self.expired = false;
        self.events.push_back(Event::Authenticated { flags });
        Ok(())
    }
}

/// What comes of a login's keys: none for a renewal, or if the session has had all the channels it can have.
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
        // The session's keys but for the one that signs, which is the channel's own.
        Kind::Binding(secret, _) => (secret.clone(), signing_key(key, key_context(dialect, hash)?)),
    };
    let demanded = secret.0.flags.contains(SessionFlags::ENCRYPT_DATA);
    let seal_all = demanded || config.encryption != Encryption::Off;
    let protect = (signs_all(config, negotiated), seal_all);
    // Each channel has a negotiation of its own.
    let validated = !needs_validation(config, dialect);
    Session::protected(&secret, negotiated.signing, &signing, protect, validated)
}

impl Round {
    /// Answers before the last: signed only where a session stands ([MS-SMB2] 3.3.4.1.1).
    fn check_interim(
        &self,
        header: &Header,
        message: &mut [u8],
        session: Option<&Session>,
    ) -> Result<(), PeerMisbehaved> {
        let signed = header.flags.contains(HeaderFlags::SIGNED);
        let right = match (&self.kind, signed) {
            (Kind::New, _) | (Kind::Renewal, false) => true,
            (Kind::Binding(..), false) => return Err(PeerMisbehaved::Unsigned),
            (Kind::Binding(_, signer), true) => signer.verify_contiguous(Sender::Server, message).is_ok(),
            (Kind::Renewal, true) => session.is_none_or(|session| session.verify(message)),
        };
        if right {
            Ok(())
        } else {
            Err(PeerMisbehaved::BadSignature)
        }
    }
}

/// [MS-SMB2] 3.2.5.3: signing is for the whole session if either end requires it.
fn signs_all(config: &Config, negotiated: &Negotiated) -> bool {
    config.signing == Signing::Required || negotiated.security_mode.contains(SecurityMode::SIGNING_REQUIRED)
}

/// [MS-SMB2] 3.2.5.5: 3.1.1 has hashed the negotiation; where no 3.x was offered no server knows the question.
fn needs_validation(config: &Config, dialect: Dialect) -> bool {
    dialect < Dialect::Smb311 && *config.dialects.end() >= Dialect::Smb300
}
