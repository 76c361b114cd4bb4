//! SESSION_SETUP: new sessions, further channels, reauthentication ([MS-SMB2] 3.3.5.5).

use std::sync::{Arc, OnceLock};

use ropeway_smb_wire::header::{HEADER_LEN, HeaderFlags};
use ropeway_smb_wire::negotiate::{Dialect, SecurityMode};
use ropeway_smb_wire::session_setup::{
    SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
use ropeway_smb_wire::{FileTime, NtStatus, Reader, SessionId, Text};

use super::channel::Channel;
use super::config::Sealing;
use super::connection::{Connection, ConnectionOutcome, PeerMisbehaved, Request};
use super::negotiate::Negotiated;
use super::reply::ReplyFrame;
use super::sessions::{NewSession, SecretKeys, Session, Sessions, same_user};
use crate::auth::ntlm::{NtlmServer, nt_hash};
use crate::auth::spnego::SpnegoServer;
use crate::auth::{AuthError, Established, Identity, Step};
use crate::crypto::{KeyContext, Preauth, Sender, SessionKeys, SigningAlgorithm, signing_key};
use crate::secret::{Key, Password};

/// Maximum number of logins in progress on one connection. A guess: clients log in one at a time.
const LOGINS_MAX: usize = 16;

/// A login in progress.
pub(super) struct Login {
    spnego: SpnegoServer,
    pub(super) preauth: Preauth,
    kind: Kind,
    /// The user name, once the client sent it.
    requested_user: RequestedUser,
}

/// The user name as reported by the NTLM mechanism.
type RequestedUser = Arc<OnceLock<Text>>;

impl Login {
    fn user(&self) -> Option<String> {
        self.requested_user.get().map(Text::to_string_lossy)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    New,
    /// Binds a further channel of a session.
    Bind,
    /// Reauthenticates a session.
    Reauthenticate,
}

impl Connection {
    /// Returns the token of a NEGOTIATE response, which names the mechanisms.
    pub(super) fn mechanisms_hint(&self, wall_time: FileTime) -> Vec<u8> {
        self.spnego(Kind::New, wall_time, RequestedUser::default()).hint()
    }

    /// Creates the authentication of one login.
    fn spnego(&self, kind: Kind, wall_time: FileTime, requested_user: RequestedUser) -> SpnegoServer {
        let accounts = self.config.accounts.clone();
        let lets_guests = self.config.guest;
        let ntlm = NtlmServer::new(
            self.config.names.clone(),
            wall_time,
            self.config.random(),
            // A reauthentication may be anonymous: the session then opens only what anyone may open
            // (smb2.session.reauth2).
            self.config.anonymous || kind == Kind::Reauthenticate,
            Box::new(move |user, domain| {
                _ = requested_user.set(user.clone());
                match lets_guests && is_guest_name(user) {
                    true => Some(nt_hash(&Password::from(""))),
                    false => accounts(user, domain),
                }
            }),
        );
        let mut mechanisms = match &self.config.mechanisms {
            Some(make) => make(),
            None => Vec::new(),
        };
        mechanisms.push(Box::new(ntlm));
        SpnegoServer::new(mechanisms)
    }

    pub(super) fn session_setup(
        &mut self,
        request: &mut Request,
        message: &[u8],
        sealed: bool,
        sessions: &mut Sessions,
        wall_time: FileTime,
        frame: &mut ReplyFrame,
    ) -> Result<ConnectionOutcome, PeerMisbehaved> {
        let mut reader = Reader::at(message, HEADER_LEN, "SMB2 SESSION_SETUP Request");
        let Ok(setup) = SessionSetupRequest::decode(&mut reader) else {
            return Ok(ConnectionOutcome::Failed(NtStatus::INVALID_PARAMETER));
        };
        if let Err(status) = self.check_signature(request, message, sealed, sessions) {
            return Ok(ConnectionOutcome::Failed(status));
        }
        let id = match self.begin(request, &setup, sealed, sessions, wall_time) {
            Ok(id) => id,
            Err(status) => return Ok(ConnectionOutcome::Failed(status)),
        };
        let Some(mut login) = self.logins.remove(&id) else {
            return Ok(ConnectionOutcome::Failed(NtStatus::USER_SESSION_DELETED));
        };
        if self.dialect() == Dialect::Smb311 {
            login.preauth.update(&[message]);
        }
        request.session = id;
        match login.spnego.step(setup.security_buffer) {
            Ok(Step::Continue(token)) => {
                self.answer(request, login, &token, frame);
                Ok(ConnectionOutcome::Replied)
            }
            Ok(Step::Done(established)) => {
                let outcome = self.establish(request, &setup, &login, &established, sessions);
                let (flags, replaced) = match outcome {
                    Ok(outcome) => outcome,
                    Err(status) => return Ok(ConnectionOutcome::LoginFailed(status, None, login.user())),
                };
                // [MS-SMB2] 3.3.5.5.3: signed with the new key, whether the request was signed or
                // not; but not in an anonymous session.
                let is_anonymous = self.channels.get(&id).is_some_and(|one| one.is_anonymous);
                request.signer = (!is_anonymous).then_some(id);
                let header = self.reply(request, NtStatus::SUCCESS);
                let response = SessionSetupResponse {
                    session_flags: flags,
                    security_buffer: established.token.as_deref().unwrap_or_default(),
                };
                frame.push(&header, request.signer, |w| response.encode(w));
                Ok(ConnectionOutcome::LoggedIn {
                    session: id,
                    replaced,
                })
            }
            Err(error) => {
                // A failed reauthentication ends the session ([MS-SMB2] 3.3.5.5.3).
                let ended = (login.kind == Kind::Reauthenticate)
                    .then(|| sessions.remove(id))
                    .flatten();
                Ok(ConnectionOutcome::LoginFailed(
                    status_of(&error),
                    ended.map(Box::new),
                    login.user(),
                ))
            }
        }
    }

    /// Returns the login that a request belongs to, and begins it if necessary.
    fn begin(
        &mut self,
        request: &Request,
        setup: &SessionSetupRequest<'_>,
        sealed: bool,
        sessions: &Sessions,
        wall_time: FileTime,
    ) -> Result<SessionId, NtStatus> {
        let id = request.header.session_id;
        let signed = request.signer.is_some();
        // [MS-SMB2] 3.3.5.2.4, 3.3.5.5: every round on an existing session needs the protection of
        // that session.
        if let Some(login) = self.logins.get(&id) {
            return match login.kind {
                Kind::Bind if !signed => Err(NtStatus::INVALID_PARAMETER),
                Kind::Reauthenticate => self.may_reauthenticate(id, signed, sealed).map(|()| id),
                _ => Ok(id),
            };
        }
        if self.logins.len() >= LOGINS_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        let (id, kind) = if setup.flags.contains(SessionSetupFlags::BINDING) {
            self.may_bind(request, sealed, sessions)?;
            (id, Kind::Bind)
        } else if id == SessionId::default() {
            if self.channels.len() >= self.config.sessions_per_connection_max {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            (self.new_id(sessions), Kind::New)
        } else {
            // [MS-SMB2] 3.3.5.5: the session must be known on this connection.
            sessions.get(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
            self.may_reauthenticate(id, signed, sealed)?;
            (id, Kind::Reauthenticate)
        };
        let requested_user = RequestedUser::default();
        let login = Login {
            spnego: self.spnego(kind, wall_time, Arc::clone(&requested_user)),
            preauth: self.preauth.clone(),
            kind,
            requested_user,
        };
        self.logins.insert(id, login);
        Ok(id)
    }

    /// Checks that a reauthentication is protected as the session requires. The client has the
    /// session's keys then, and may log in as another user.
    fn may_reauthenticate(&self, id: SessionId, signed: bool, sealed: bool) -> Result<(), NtStatus> {
        let channel = self.channels.get(&id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if !sealed && (channel.sealing_required || channel.signing_required && !signed) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(())
    }

    /// Verifies the signature of a SESSION_SETUP ([MS-SMB2] 3.3.5.2.4). If the session exists on
    /// other connections only, the request is signed with the session's own key, and so is the
    /// reply, whatever its status.
    fn check_signature(
        &mut self,
        request: &mut Request,
        message: &[u8],
        sealed: bool,
        sessions: &Sessions,
    ) -> Result<(), NtStatus> {
        let id = request.header.session_id;
        self.binding = None;
        let Some(session) = sessions.get(id).filter(|_| !sealed) else {
            return Ok(());
        };
        if !request.header.flags.contains(HeaderFlags::SIGNED) {
            return Ok(());
        }
        let bad = NtStatus::ACCESS_DENIED;
        if let Some(channel) = self.channels.get(&id) {
            let signer = channel.signer().ok_or(bad)?;
            signer.verify(Sender::Client, &[message]).map_err(|_| bad)?;
        } else {
            let (algorithm, key) = &session.keys.signing;
            let channel = Channel::new((*algorithm, key), None, 0, false, false);
            let signer = channel.signer().ok_or(bad)?;
            signer.verify(Sender::Client, &[message]).map_err(|_| bad)?;
            self.binding = Some((id, channel));
        }
        request.signer = Some(id);
        Ok(())
    }

    /// Checks that this connection may become a channel of a session ([MS-SMB2] 3.3.5.5, from step
    /// 4). The order is Samba's.
    ///
    /// A different `ClientGuid` is allowed: the specification leaves it to the server, the request
    /// proves knowledge of the session's key, and smb2.session.bind_negative_smb3signCtoHd expects
    /// the channel.
    fn may_bind(&self, request: &Request, sealed: bool, sessions: &Sessions) -> Result<(), NtStatus> {
        let negotiated = self.negotiated.as_ref().ok_or(NtStatus::INVALID_PARAMETER)?;
        let id = request.header.session_id;
        if id == SessionId::default() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        let session = sessions.get(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let (ours, theirs) = (negotiated.signing, session.keys.signing.0);
        if ours != theirs && theirs == SigningAlgorithm::AesGmac {
            return Err(NtStatus::REQUEST_OUT_OF_SEQUENCE);
        }
        if ours != theirs && ours == SigningAlgorithm::AesGmac {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        if negotiated.dialect < Dialect::Smb300 || !self.config.multichannel {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if request.signer.is_none() || sealed || session.dialect != negotiated.dialect {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if session.keys.cipher.as_ref().map(|(cipher, ..)| *cipher) != negotiated.cipher {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if self.channels.contains_key(&id) {
            return Err(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if session.is_anonymous {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        Ok(())
    }

    fn new_id(&self, sessions: &Sessions) -> SessionId {
        loop {
            // Only half of the id is used: some clients keep no more than that.
            let id = SessionId(u64::from(u32::from_le_bytes(self.config.random())));
            let is_taken = sessions.get(id).is_some() || self.logins.contains_key(&id);
            if id != SessionId::default() && id != SessionId::RELATED && !is_taken {
                return id;
            }
        }
    }

    /// Sends the reply of a round that is not the last ([MS-SMB2] 3.3.5.5.3,
    /// STATUS_MORE_PROCESSING_REQUIRED).
    fn answer(&mut self, request: &mut Request, login: Login, token: &[u8], frame: &mut ReplyFrame) {
        let id = request.session;
        let header = self.reply(request, NtStatus::MORE_PROCESSING_REQUIRED);
        let response = SessionSetupResponse {
            session_flags: SessionFlags::default(),
            security_buffer: token,
        };
        frame.push(&header, request.signer, |w| response.encode(w));
        if self.dialect() == Dialect::Smb311 {
            self.hash_next = Some(id);
        }
        self.logins.insert(id, login);
    }

    /// Completes a successful authentication.
    fn establish(
        &mut self,
        request: &Request,
        setup: &SessionSetupRequest<'_>,
        login: &Login,
        established: &Established,
        sessions: &mut Sessions,
    ) -> Result<(SessionFlags, Option<Box<Session>>), NtStatus> {
        let negotiated = self.negotiated.clone().ok_or(NtStatus::INVALID_PARAMETER)?;
        let id = request.session;
        let identity = established.identity.clone().unwrap_or(Identity::Anonymous);
        let is_guest = self.config.guest && is_guest(&identity);
        let context = match negotiated.dialect {
            Dialect::Smb311 => KeyContext::Smb311(login.preauth.value()),
            _ => KeyContext::Smb30,
        };
        match login.kind {
            Kind::Reauthenticate => {
                // A session without keys cannot become a user's. The user must begin a new session.
                let has_keys = self.channels.get(&id).is_some_and(|one| !one.is_anonymous);
                if !has_keys && !is_guest && identity != Identity::Anonymous {
                    return Err(NtStatus::ACCESS_DENIED);
                }
                // The user may change. Opens and keys stay.
                let session = sessions.get_mut(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
                session.is_guest = is_guest;
                session.is_anonymous = is_guest || identity == Identity::Anonymous;
                session.identity = identity;
                return Ok((flags_of(session), None));
            }
            Kind::Bind => {
                return self.bind(
                    id,
                    &identity,
                    negotiated.signing,
                    &signing_key(&established.session_key, context),
                    sessions,
                );
            }
            Kind::New => {}
        }
        let anonymous = is_guest || identity == Identity::Anonymous;
        let encrypt = self.config.sealing == Sealing::Required && !anonymous;
        if encrypt && negotiated.cipher.is_none() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let required = (self.config.signing_required
            || setup.security_mode.contains(SecurityMode::SIGNING_REQUIRED))
            && !anonymous;
        let keys = secret_keys(&negotiated, established, context);
        let signing = (keys.signing.0, &keys.signing.1);
        let cipher = keys.cipher.as_ref().map(|(cipher, to, from)| (*cipher, to, from));
        let channel = if is_guest {
            Channel::unprotected()
        } else if anonymous {
            Channel::anonymous(signing, cipher)
        } else {
            self.is_constrained = false;
            Channel::new(signing, cipher, 0, required, encrypt)
        };
        let new = NewSession {
            id,
            identity,
            is_guest,
            signing_required: required,
            encrypt,
            dialect: negotiated.dialect,
            client: negotiated.client_guid,
            keys,
            connection: self.id,
        };
        let replaced = replaced(setup.previous_session_id, &new, sessions)?;
        sessions.insert(new);
        self.channels.insert(id, channel);
        let session = sessions.get(id).ok_or(NtStatus::INTERNAL_ERROR)?;
        Ok((flags_of(session), replaced))
    }

    /// Adds a channel, which signs with its own key and seals with the session's.
    fn bind(
        &mut self,
        id: SessionId,
        identity: &Identity,
        signing: SigningAlgorithm,
        key: &Key,
        sessions: &mut Sessions,
    ) -> Result<(SessionFlags, Option<Box<Session>>), NtStatus> {
        let session = sessions.get(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        if !same_user(&session.identity, identity) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let number = sessions
            .bind(id, self.id)
            .ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
        let session = sessions.get(id).ok_or(NtStatus::USER_SESSION_DELETED)?;
        let cipher = session.keys.cipher.as_ref();
        let cipher = cipher.map(|(cipher, to, from)| (*cipher, to, from));
        let channel = Channel::new(
            (signing, key),
            cipher,
            number,
            session.signing_required,
            session.encrypt,
        );
        self.binding = None;
        self.is_constrained = false;
        self.channels.insert(id, channel);
        Ok((flags_of(session), None))
    }
}

/// Returns the keys that all channels of a new session need.
fn secret_keys(negotiated: &Negotiated, established: &Established, context: KeyContext<'_>) -> SecretKeys {
    if negotiated.dialect >= Dialect::Smb300 {
        let keys = SessionKeys::derive(&established.session_key, context, negotiated.cipher);
        SecretKeys {
            signing: (negotiated.signing, keys.signing),
            cipher: negotiated
                .cipher
                .map(|cipher| (cipher, keys.client_to_server, keys.server_to_client)),
        }
    } else {
        SecretKeys {
            signing: (negotiated.signing, established.session_key.truncated()),
            cipher: None,
        }
    }
}

/// Removes the session that the client lost with its connection, if it belongs to the same user
/// ([MS-SMB2] 3.3.5.5.3).
///
/// # Errors
/// STATUS_USER_SESSION_DELETED: the client comes back in another dialect. The old session stays.
/// The specification refuses any other dialect of a known `ClientGuid`. But everybody can claim
/// that, and could so keep others out.
fn replaced(
    previous: SessionId,
    new: &NewSession,
    sessions: &mut Sessions,
) -> Result<Option<Box<Session>>, NtStatus> {
    let Some(session) = sessions.get(previous).filter(|_| previous != new.id) else {
        return Ok(None);
    };
    if !same_user(&session.identity, &new.identity) {
        return Ok(None);
    }
    if session.client == new.client && session.dialect != new.dialect {
        return Err(NtStatus::USER_SESSION_DELETED);
    }
    Ok(sessions.remove(previous).map(Box::new))
}

fn flags_of(session: &Session) -> SessionFlags {
    if session.is_guest {
        SessionFlags::IS_GUEST
    } else if session.is_anonymous {
        SessionFlags::IS_NULL
    } else if session.encrypt {
        SessionFlags::ENCRYPT_DATA
    } else {
        SessionFlags::default()
    }
}

/// Returns whether this is the user without a password.
fn is_guest_name(user: &Text) -> bool {
    ropeway_smb_wire::upcase::equal(user, &Text::from("guest"))
}

fn is_guest(identity: &Identity) -> bool {
    matches!(identity, Identity::User { user, .. } if is_guest_name(user))
}

/// Returns the status for the client. It does not reveal whether the name or the password was
/// wrong.
fn status_of(error: &AuthError) -> NtStatus {
    match error {
        AuthError::Malformed(_) | AuthError::OutOfOrder(_) => NtStatus::INVALID_PARAMETER,
        _ => NtStatus::LOGON_FAILURE,
    }
}
