//! What overtakes requests, and what is sent though nobody waits for its answer.

use ropeway_smb_proto::client::Chain;
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::oplock_break::BreakNotification;
use ropeway_smb_wire::{FileId, TreeId};

use super::overdue::allowance;
use super::{Driver, Pending};
use crate::channel::{Awaiting, Side};
use crate::{LostReason, Operation, rights, wire_log};

impl Driver {
    pub(super) fn aside(&mut self, side: Option<Side>) {
        match side {
            Some(Side::Cancel(id)) => {
                // Not there: answered already, or still in the queue, where `take` sees that nobody waits.
                if let Some(ticket) = self.tickets.get(&id).copied() {
                    if let Some(pending) = self.pending.get_mut(&ticket) {
                        pending.answer = None;
                    }
                    self.connection.cancel(ticket);
                }
            }
            Some(Side::Close {
                tree,
                file_id,
                encrypt,
                until,
            }) => self.close(tree, file_id, encrypt, until),
            Some(Side::Bind(bind)) => {
                let (session, mechanisms) = *bind;
                if self.connection.bind(&session, mechanisms).is_err() {
                    self.ended = Some(LostReason::SessionEnded);
                }
            }
            Some(Side::Counts) => {
                self.counts = true;
                self.publish_window();
            }
            Some(Side::Leave { tree, encrypt }) => {
                self.submit_aside(crate::ops::leave(tree), encrypt, None);
            }
            Some(Side::Shut { waits }) => {
                self.waits = waits;
                self.part();
            }
            None => self.part(),
        }
    }

    pub(super) fn close(&mut self, tree: TreeId, file_id: FileId, encrypt: bool, until: Option<Awaiting>) {
        self.shared.common.oplocks.remove(&file_id);
        self.submit_aside(crate::ops::close(tree, file_id, false), encrypt, until);
    }

    /// Sends what nobody waits for.
    pub(super) fn submit_aside(&mut self, operation: Operation, encrypt: bool, until: Option<Awaiting>) {
        let tree = operation.tree;
        let mut chain = Chain::one(operation);
        chain.encrypt = encrypt;
        let commands = wire_log::commands(&chain);
        let allowance = allowance(&chain, self.timeout);
        if let Ok(ticket) = self.connection.submit(chain) {
            wire_log::asked(self.now(), ticket, commands, 0);
            let pending = Pending {
                id: 0,
                answer: None,
                tree,
                encrypt,
                bytes: 0,
                sent_at: self.now(),
                stamp: None,
                is_plain: true,
                is_endless: false,
                due: allowance.map(|allowance| self.now() + allowance),
                is_overdue: false,
                until,
            };
            self.pending.insert(ticket, pending);
        }
    }

    pub(super) fn acknowledge(&mut self, notification: &BreakNotification) {
        let common = &self.shared.common;
        let Some((answer, (tree, encrypt))) = rights::answer(notification, &common.oplocks, &common.leases)
        else {
            return;
        };
        tracing::debug!(?answer, "a right to cache is given back");
        let operation = Operation::encoded(Command::OplockBreak, tree, |w| answer.encode(w));
        self.submit_aside(operation, encrypt, None);
    }
}
