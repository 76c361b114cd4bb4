//! Messages from other threads to a connection.

use std::os::fd::AsFd as _;

use ropeway_smb_wire::SessionId;
use ropeway_smb_wire::header::{Command, Header};
use ropeway_smb_wire::oplock_break::BreakNotification;

use super::{Driver, DriverError};
use crate::state::mailbox::Message;

impl Driver {
    /// Executes all messages in the mailbox.
    pub(super) fn process_messages(&mut self) -> Result<(), DriverError> {
        while let Some(message) = self.mailbox.take() {
            match message {
                Message::Retry(number) => self.retry(number)?,
                Message::ChangeNotify(number, status, changes) => self.notify(number, status, &changes)?,
                Message::Break(session, notification) => self.send_break(session, &notification)?,
                Message::JobDone(number, frame, buffer) => {
                    let sealed = self.jobs.remove(&number).and_then(|(sealed, _)| sealed);
                    self.push(frame, sealed)?;
                    if let Some(buffer) = buffer {
                        self.input.recycle(buffer);
                    }
                }
                Message::SessionEnded(session) => {
                    self.fail_pending(session)?;
                    if !self.shared.has_session(session) && self.logging_off != Some(session) {
                        self.protocol.forget(session);
                    }
                }
                Message::Stop => self.stopped = true,
                Message::Evict => self.stopped |= self.unauthenticated.is_some(),
            }
        }
        Ok(())
    }

    /// Sends a break notification: not signed, and encrypted only if the session encrypts
    /// everything ([MS-SMB2] 3.3.4.6, 3.3.4.7).
    fn send_break(
        &mut self,
        session: SessionId,
        notification: &BreakNotification,
    ) -> Result<(), DriverError> {
        let sealed = self.protocol.seals_everything(session).then_some(session);
        let mut header: Header = self.protocol.unsolicited(Command::OplockBreak);
        if sealed.is_some() {
            header.session_id = session;
        }
        let mut frame = self.frame(sealed);
        frame.push(&header, None, |w| notification.encode(w));
        let channels = self
            .shared
            .sessions()
            .get(session)
            .map(|one| one.channels().len());
        self.sent_breaks
            .sent(self.socket.as_fd(), session, *notification, channels > Some(1));
        self.push(frame, sealed)
    }

    /// Passes break notifications that this lost connection may not have delivered to another channel
    /// of their sessions.
    pub(super) fn resend_breaks(&mut self) {
        let mut breaks: Vec<_> = self.sent_breaks.undelivered().collect();
        while let Some(message) = self.mailbox.take() {
            if let Message::Break(session, notification) = message {
                breaks.push((session, notification));
            }
        }
        let Some(client) = self.protocol.negotiated().map(|one| one.client_guid) else {
            return;
        };
        for (session, notification) in breaks {
            if !self.shared.hub().is_unanswered(client, &notification) {
                continue;
            }
            let other = {
                let sessions = self.shared.sessions();
                sessions
                    .get(session)
                    .and_then(|one| one.channels().first().copied())
            };
            if let Some(connection) = other {
                self.shared
                    .post(connection, Message::Break(session, notification));
            }
        }
    }
}
