//! Logins and logoffs of a connection: throttling before, and the tables afterwards.

use ropeway_smb_proto::server::{CompoundState, ConnectionOutcome, ReplyFrame, Request};
use ropeway_smb_wire::header::Command;

use super::{Driver, DriverError};
use crate::audit::Record;
use crate::login::throttle::LoginAttempt;
use crate::ops;
use crate::state::Counters;

impl Driver {
    /// Begins a login if the request is the first one of it. A client that guesses passwords waits
    /// here before the next attempt, on its own thread.
    ///
    /// # Errors
    /// The wait would take too long.
    pub(super) fn begin_login(&self, request: &Request) -> Result<Option<LoginAttempt>, DriverError> {
        let is_first =
            request.header.command == Command::SessionSetup && !self.protocol.is_logging_in(request.session);
        if !is_first {
            return Ok(None);
        }
        let client = self.protocol.negotiated().map(|both| both.client_guid);
        let attempt = self.throttle.begin(self.peer.ip(), client.unwrap_or_default());
        let attempt = attempt.ok_or(DriverError::Limit("too many failed logins from its address"))?;
        Ok(Some(attempt))
    }

    /// Completes a request that the protocol state has executed: updates the tables after a login
    /// or logoff, and replies if the request failed.
    pub(super) fn finish_connection_command(
        &mut self,
        outcome: ConnectionOutcome,
        request: &Request,
        compound: &mut CompoundState,
        frame: &mut ReplyFrame,
    ) -> Result<(), DriverError> {
        match outcome {
            ConnectionOutcome::Replied | ConnectionOutcome::Execute => {}
            ConnectionOutcome::LoggedIn { session, replaced } => {
                self.unauthenticated = None;
                let attempt = self.attempts.remove(&session);
                let at = (self.peer, self.protocol.id());
                ops::session::logged_in(&self.shared, session, replaced.as_deref(), at);
                let token = self.shared.token(session);
                // An anonymous login proves no identity, so its attempt is abandoned.
                let token = token.filter(|token| !token.is_anonymous);
                if let (Some(attempt), Some(token)) = (attempt, token)
                    && !attempt.succeeded(Some(&token.name))
                {
                    return Err(DriverError::Limit("too many failed logins of its user"));
                }
            }
            ConnectionOutcome::LoggedOff(session) => {
                // Waiting requests are answered first, because the key is dropped afterwards.
                ops::session::ended(&self.shared, &session);
                self.logging_off = Some(session.id);
                self.process_messages()?;
                self.logging_off = None;
                self.fail_pending(session.id)?;
                let reply = std::mem::replace(frame, ReplyFrame::new(Vec::new(), compound.sealed.is_some()));
                self.push(reply, compound.sealed)?;
                self.protocol.forget(session.id);
            }
            ConnectionOutcome::LoginFailed(status, ended, user) => {
                Counters::add(&self.shared.counters.logins_failed, 1);
                self.shared.record(&Record {
                    action: "login",
                    peer: Some(self.peer),
                    user: user.as_deref(),
                    share: None,
                    path: None,
                    target: None,
                    status,
                });
                let attempt = self.attempts.remove(&request.session);
                let may_report = attempt.is_none_or(|attempt| attempt.failed(user.as_deref()));
                if let Some(session) = ended {
                    ops::session::ended(&self.shared, &session);
                    self.protocol.forget(session.id);
                }
                if !may_report {
                    return Err(DriverError::Limit("too many failed logins of its user"));
                }
                self.refuse(status, request, compound, frame);
            }
            ConnectionOutcome::Failed(status) => {
                // No credentials were checked.
                if !self.protocol.is_logging_in(request.session) {
                    self.attempts.remove(&request.session);
                }
                self.refuse(status, request, compound, frame);
            }
        }
        Ok(())
    }
}
