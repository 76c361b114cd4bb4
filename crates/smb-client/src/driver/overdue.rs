//! How long a request may be under way. That the server says something, answers an ECHO or announces an answer
//! (STATUS_PENDING, which need not be signed) is no answer: each request has an end of its own, by its kind.

use std::time::Duration;

use ropeway_smb_proto::client::Chain;
use ropeway_smb_wire::header::Command;

use super::Driver;
use crate::LostReason;

/// Time-outs that a question may take: an open waits up to 35 s for others to give back their oplocks. A guess.
const QUESTION: u32 = 3;
/// Time-outs that data, a flush, a new length or a copy inside the server may take: disks are slow, and so are lines with
/// much under way. A guess.
const WORK: u32 = 10;
/// Looks in one time-out.
const LOOKS: u32 = 8;

/// How long a chain may be under way; `None`: for ever.
pub(super) fn allowance(chain: &Chain, timeout: Duration) -> Option<Duration> {
    let mut factor = QUESTION;
    let mut commands = chain.operations.iter().map(|operation| operation.command);
    let opens = commands.any(|command| command == Command::Create);
    for operation in &chain.operations {
        match operation.command {
            // It is answered when something changes.
            Command::ChangeNotify => return None,
            Command::Read
            | Command::Write
            | Command::Flush
            | Command::SetInfo
            | Command::Ioctl
            | Command::Lock => factor = WORK,
            // Servers write out what they hold of a file. What the chain itself opened, and wrote nothing to, is a question.
            Command::Close if !opens => factor = WORK,
            _ => {}
        }
    }
    Some(timeout.saturating_mul(factor))
}

impl Driver {
    /// When to look next whether a request is overdue.
    pub(super) fn next_look(&self) -> Option<Duration> {
        (!self.pending.is_empty()).then_some(self.look_at)
    }

    /// Ends the connection where a request is overdue: the server does not do its part, whatever else it says. That request
    /// is not sent again; the others are.
    pub(super) fn look_for_overdue(&mut self) {
        let now = self.now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + self.timeout / LOOKS;
        let mut is_any = false;
        for pending in self.pending.values_mut() {
            pending.is_overdue = pending.due.is_some_and(|due| now >= due);
            is_any |= pending.is_overdue;
        }
        if is_any && self.ended.is_none() {
            tracing::debug!("a request was not answered in its time");
            self.ended = Some(LostReason::TimedOut);
        }
    }
}
