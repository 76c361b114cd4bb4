//! How a driver ends in good order.

use std::time::Duration;

use ropeway_smb_proto::client::Ticket;

use super::{Driver, Pending};
use crate::channel::Side;

/// How long the end of a client waits for answers that are owed, that to LOGOFF included. A guess.
const PARTING: Duration = Duration::from_secs(2);

impl Driver {
    /// No more requests: what is owed may still come.
    pub(super) fn part(&mut self) {
        // Handles and shares dropped together with the client are in the queue.
        while let Ok(side) = self.side.try_recv() {
            match side {
                Side::Close {
                    tree,
                    file_id,
                    encrypt,
                    until,
                } => self.close(tree, file_id, encrypt, until),
                Side::Leave { tree, encrypt } => {
                    self.submit_aside(crate::ops::leave(tree), encrypt, None);
                }
                Side::Bind(_) | Side::Cancel(_) | Side::Counts | Side::Shut { .. } => {}
            }
        }
        // What only its end ends.
        let endless = self.pending.iter().filter(|(_, pending)| pending.is_endless);
        let endless: Vec<Ticket> = endless.map(|(ticket, _)| *ticket).collect();
        for ticket in endless {
            self.connection.cancel(ticket);
        }
        self.parting.get_or_insert(self.started.elapsed() + PARTING);
    }

    /// With nothing under way any more the last of a session's channels ends it; the others just go.
    pub(super) fn is_parted(&mut self) -> bool {
        let Some(until) = self.parting else {
            return false;
        };
        if self.now() >= until {
            return true;
        }
        let is_awaited = |pending: &Pending| self.waits || pending.answer.is_some();
        let is_busy = !self.staged.is_empty() || self.connection.jobs() > 0;
        if self.pending.values().any(is_awaited) || is_busy {
            return false;
        }
        if !self.has_left {
            self.has_left = true;
            self.is_last = self.shared.common.leave();
            if self.is_last {
                self.connection.log_off(self.waits);
                self.turn();
            }
        }
        // What the kernel has taken arrives: the socket is closed behind it.
        !self.is_last || self.ended.is_some() || (!self.waits && self.staged.is_empty())
    }
}
