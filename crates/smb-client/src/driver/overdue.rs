//! Time limits for requests. Other messages from the server, an ECHO reply or an interim response
//! (STATUS_PENDING, which need not be signed) do not answer a request, so each request has a limit
//! of its own, by its kind.

use std::time::Duration;

use ropeway_smb_proto::client::Compound;
use ropeway_smb_wire::header::Command;

use super::Driver;
use crate::error::LostReason;

/// Limit for a query, in time-outs: an open waits up to 35 s for other clients to acknowledge their
/// oplock breaks. A guess.
const QUERY_FACTOR: u32 = 3;
/// Limit for data, a flush, a new length or a copy on the server, in time-outs: disks are slow, and
/// so are lines with much in flight. A guess.
const DATA_FACTOR: u32 = 10;
/// Checks for overdue requests in one time-out.
const CHECKS: u32 = 8;

/// Returns the time limit for a compound; `None`: no limit.
pub(super) fn allowance(compound: &Compound, timeout: Duration) -> Option<Duration> {
    let mut factor = QUERY_FACTOR;
    let mut commands = compound.operations.iter().map(|operation| operation.command);
    let opens = commands.any(|command| command == Command::Create);
    for operation in &compound.operations {
        match operation.command {
            // The server answers it when something changes.
            Command::ChangeNotify => return None,
            Command::Read
            | Command::Write
            | Command::Flush
            | Command::SetInfo
            | Command::Ioctl
            | Command::Lock => factor = DATA_FACTOR,
            // Servers may write cached data out first. If the compound itself opened the file and
            // wrote nothing to it, CLOSE counts as a query.
            Command::Close if !opens => factor = DATA_FACTOR,
            _ => {}
        }
    }
    Some(timeout.saturating_mul(factor))
}

impl Driver {
    /// Returns the time of the next check for overdue requests.
    pub(super) fn next_check(&self) -> Option<Duration> {
        (!self.pending.is_empty()).then_some(self.next_check_at)
    }

    /// Ends the connection if a request is overdue: the server does not do its part, whatever else
    /// it sends. The overdue request is not sent again; the others are.
    pub(super) fn check_overdue(&mut self) {
        let now = self.now();
        if now < self.next_check_at {
            return;
        }
        self.next_check_at = now + self.timeout / CHECKS;
        let mut is_any = false;
        for pending in self.pending.values_mut() {
            pending.is_overdue = pending.due.is_some_and(|due| now >= due);
            is_any |= pending.is_overdue;
        }
        if is_any && self.ended.is_none() {
            tracing::debug!("a request is overdue");
            self.ended = Some(LostReason::TimedOut);
        }
    }
}
