//! Orderly shutdown of a driver.

use std::time::Duration;

use ropeway_smb_proto::client::Ticket;

use super::{Driver, Pending};
use crate::channel::Control;

/// Time that a shutdown waits for outstanding replies, including that to LOGOFF. A guess.
pub(super) const SHUTDOWN_MAX: Duration = Duration::from_secs(2);

impl Driver {
    /// Stops taking requests. Outstanding replies may still arrive within some time.
    pub(super) fn begin_shutdown(&mut self, within: Duration) {
        // The queue still holds the messages of handles and shares that were dropped together with
        // the client.
        while let Ok(control) = self.control.try_recv() {
            match control {
                Control::Close {
                    tree,
                    file_id,
                    encrypt,
                    notice,
                } => self.close(tree, file_id, encrypt, notice),
                Control::TreeDisconnect { tree, encrypt } => {
                    self.submit_detached(crate::ops::tree_disconnect(tree), encrypt, None);
                }
                Control::Acknowledge { answer, place } => self.send_acknowledgment(&answer, place),
                Control::Bind(_)
                | Control::Cancel(_)
                | Control::Admitted
                | Control::GiveBack
                | Control::GiveUp
                | Control::Retire
                | Control::Shutdown { .. } => {}
            }
        }
        // These requests end only when they are cancelled.
        let endless = self.pending.iter().filter(|(_, pending)| pending.is_notify);
        let endless: Vec<Ticket> = endless.map(|(ticket, _)| *ticket).collect();
        for ticket in endless {
            self.connection.cancel(ticket);
        }
        self.shutdown_until.get_or_insert(self.started.elapsed() + within);
    }

    /// Returns whether the driver may end. Once nothing is in flight, the last channel of the
    /// session logs off; the others just end.
    pub(super) fn is_shut_down(&mut self) -> bool {
        let Some(until) = self.shutdown_until else {
            return false;
        };
        if self.now() >= until {
            return true;
        }
        let is_awaited = |pending: &Pending| pending.answer.is_some() || self.waits && !pending.is_read;
        let is_busy = !self.staged.is_empty() || self.connection.jobs() > 0;
        if self.pending.values().any(is_awaited) || is_busy {
            return false;
        }
        if !self.has_left_session {
            self.has_left_session = true;
            self.is_last = self.status.session.leave();
            if self.is_last {
                self.connection.log_off(self.waits);
                self.turn();
            }
        }
        // Bytes that the kernel has taken still arrive: the socket is closed behind them.
        !self.is_last || self.ended.is_some() || (!self.waits && self.staged.is_empty())
    }
}
