//! Control messages, which overtake requests, and requests whose replies nobody awaits.

use ropeway_smb_proto::client::{Compound, Operation};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification};
use ropeway_smb_wire::{FileId, TreeId};

use super::overdue::allowance;
use super::shutdown::SHUTDOWN_MAX;
use super::{Driver, Pending};
use crate::caching::AckTarget;
use crate::channel::{CloseNotice, Control};
use crate::error::LostReason;
use crate::{caching, wire_log};

impl Driver {
    pub(super) fn handle_control(&mut self, control: Option<Control>) {
        match control {
            Some(Control::Cancel(id)) => {
                // If the ticket is missing, the request is answered already, or still in the queue,
                // where `submit` sees that its receiver is closed.
                if let Some(ticket) = self.tickets.get(&id).copied() {
                    if let Some(pending) = self.pending.get_mut(&ticket) {
                        pending.answer = None;
                    }
                    self.connection.cancel(ticket);
                }
            }
            Some(Control::Close {
                tree,
                file_id,
                encrypt,
                notice,
            }) => self.close(tree, file_id, encrypt, notice),
            Some(Control::Bind(bind)) => {
                let (session, mechanisms) = *bind;
                if self.connection.bind(&session, mechanisms).is_err() {
                    self.ended = Some(LostReason::SessionEnded);
                }
            }
            Some(Control::Admitted) => {
                self.is_admitted = true;
                self.publish_window();
            }
            Some(Control::Acknowledge { answer, place }) => self.send_acknowledgment(&answer, place),
            Some(Control::TreeDisconnect { tree, encrypt }) => {
                self.submit_detached(crate::ops::tree_disconnect(tree), encrypt, None);
            }
            Some(Control::GiveBack) => self.give_back(),
            Some(Control::GiveUp) => self.close_with(LostReason::TimedOut),
            Some(Control::Shutdown { waits }) => {
                self.waits = waits;
                self.give_back();
                self.begin_shutdown(SHUTDOWN_MAX);
            }
            Some(Control::Retire) => {
                self.give_back();
                // What a lossy line has under way may take long, and would be sent once more.
                self.begin_shutdown(self.timeout);
            }
            None => self.begin_shutdown(SHUTDOWN_MAX),
        }
    }

    fn give_back(&mut self) {
        let with_data = self.pending.iter().filter(|(_, pending)| pending.bytes > 0);
        let mut tickets: Vec<_> = with_data.map(|(ticket, _)| *ticket).collect();
        tickets.sort_unstable();
        for ticket in tickets {
            self.connection.take_back(ticket);
        }
    }

    pub(super) fn close(
        &mut self,
        tree: TreeId,
        file_id: FileId,
        encrypt: bool,
        notice: Option<CloseNotice>,
    ) {
        self.status.session.oplocks.remove(&file_id);
        self.submit_detached(crate::ops::close(tree, file_id, false), encrypt, notice);
    }

    /// Sends a request whose reply nobody awaits.
    pub(super) fn submit_detached(
        &mut self,
        operation: Operation,
        encrypt: bool,
        notice: Option<CloseNotice>,
    ) {
        let tree = operation.tree;
        let mut compound = Compound::one(operation);
        compound.encrypt = encrypt;
        let commands = wire_log::commands(&compound);
        let allowance = allowance(&compound, self.timeout);
        if let Ok(ticket) = self.connection.submit(compound) {
            wire_log::asked(self.now(), ticket, commands, 0);
            let pending = Pending {
                id: 0,
                answer: None,
                tree,
                encrypt,
                bytes: 0,
                sending: None,
                load: None,
                sent_at: self.now(),
                stamp: None,
                is_timed: true,
                is_notify: false,
                is_read: false,
                due: allowance.map(|allowance| self.now() + allowance),
                is_overdue: false,
                notice,
            };
            self.pending.insert(ticket, pending);
        }
    }

    pub(super) fn acknowledge(&mut self, notification: &BreakNotification) {
        let session = &self.status.session;
        if let Some((answer, place)) = caching::answer(notification, &session.oplocks, &session.leases) {
            self.send_acknowledgment(&answer, place);
        }
    }

    pub(super) fn send_acknowledgment(&mut self, answer: &BreakAcknowledgment, (tree, encrypt): AckTarget) {
        tracing::debug!(?answer, "acknowledging the break of an oplock or lease");
        let operation = Operation::encoded(Command::OplockBreak, tree, |w| answer.encode(w));
        self.submit_detached(operation, encrypt, None);
    }
}
