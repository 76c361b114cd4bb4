//! Liveness of the server, and logoff.
//!
//! ```text
//! in flight, silent for echo_after -> ECHO -> any message ends the silence
//!                                         \-> silence_max with a reply owed: `EndReason::Silent`
//! compound partly answered for silence_max, the rest not announced: `EndReason::AnsweredInPart`
//! log_off: owed replies awaited -> all TREE_DISCONNECTs and LOGOFF -> `EndReason::LoggedOff`
//! ```
//! A request with an interim reply is in flight but its reply is not owed: it may take forever. The
//! ECHO is sent for such requests as well, so that a dead connection is noticed.
//! While a reply is owed, `echo_after_owed` takes the place of `echo_after`.

use std::time::Duration;

use super::connection::Connection;
use super::control::{Control, Logoff};
use super::{EndReason, Ticket};

impl Connection {
    /// Returns when to call [`handle_deadline`](Self::handle_deadline). This may be at once, since
    /// not every call passes the time.
    pub fn deadline(&self) -> Option<Duration> {
        if self.ended.is_some() || self.table.is_empty() {
            return None;
        }
        let Some(since) = self.silent_since else {
            return Some(self.now);
        };
        let silence = (self.table.owed() > 0).then(|| since.saturating_add(self.config.silence_max));
        let partial = self.partial_deadline();
        [self.echo_at(since), silence, partial]
            .into_iter()
            .flatten()
            .min()
    }

    fn echo_at(&self, since: Duration) -> Option<Duration> {
        let may = self.session.is_some()
            && !self.expired
            && !self.echoing
            && self.logoff != Logoff::Queued
            && self.credits.affords(1)
            && self.echo_after() < self.config.silence_max;
        may.then(|| since.saturating_add(self.echo_after()))
    }

    fn echo_after(&self) -> Duration {
        match self.owes_reply() {
            true => self.config.echo_after_owed,
            false => self.config.echo_after,
        }
    }

    /// Whether the server owes a reply: a request is in flight that has no interim reply.
    pub fn owes_reply(&self) -> bool {
        self.table.owed() > 0
    }

    fn partial_deadline(&self) -> Option<Duration> {
        let (_, since) = self.partial.front()?;
        Some(since.saturating_add(self.config.silence_max))
    }

    /// Tells the connection the time.
    pub fn handle_deadline(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.ended.is_some() {
            return;
        }
        if self.table.is_empty() {
            self.silent_since = None;
            return;
        }
        let Some(since) = self.silent_since else {
            self.silent_since = Some(self.now);
            return;
        };
        if self.table.owed() > 0 && self.now >= since.saturating_add(self.config.silence_max) {
            return self.end(EndReason::Silent);
        }
        if self.echo_at(since).is_some_and(|at| self.now >= at) {
            self.echoing = true;
            self.controls.push_back(Control::KeepAlive);
        }
        while let Some((ticket, _)) = self.partial.front().copied()
            && self.partial_deadline().is_some_and(|at| self.now >= at)
        {
            self.partial.pop_front();
            if self.is_owed(ticket) {
                return self.end(EndReason::AnsweredInPart);
            }
        }
    }

    /// Returns whether a reply to this compound is outstanding without an interim reply.
    fn is_owed(&mut self, ticket: Ticket) -> bool {
        let Some(sent) = self.table.compound_mut(ticket) else {
            return false;
        };
        let open = sent.slots.iter().filter(|slot| slot.reply.is_none());
        let open: Vec<_> = open.map(|slot| slot.id).collect();
        open.into_iter()
            .any(|id| self.table.flight(id).is_some_and(|flight| !flight.interim))
    }

    /// Restarts the measurement of silence after a message from the server.
    pub(super) fn note_activity(&mut self) {
        self.silent_since = (!self.table.is_empty()).then_some(self.now);
    }

    /// Notes one more reply to a compound of `count` operations, of which `open` are unanswered.
    pub(super) fn note_partial(&mut self, ticket: Ticket, open: usize, count: usize) {
        if open > 0 && open + 1 == count {
            self.partial.push_back((ticket, self.now));
        } else if open == 0
            && count > 1
            && let Some(place) = self.partial.iter().rposition(|(other, _)| *other == ticket)
        {
            self.partial.remove(place);
        }
    }

    /// Logs off in order. Queued compounds are still sent and owed replies awaited; then the trees
    /// connected here are disconnected and the session ends on all its channels ([MS-SMB2]
    /// 3.2.4.22, 3.2.4.23). Nothing can be submitted any more. The connection ends with
    /// [`EndReason::LoggedOff`], or earlier for another reason; the caller limits the wait.
    ///
    /// Without `waits`, LOGOFF does not wait for owed replies. Servers process requests in order,
    /// so a caller in a hurry may close the connection right after sending it.
    pub fn log_off(&mut self, waits: bool) {
        if self.ended.is_none() && self.logoff == Logoff::None {
            self.logoff = Logoff::Draining { waits };
        }
    }

    /// Queues the requests of a logoff if it is time for them. Returns whether any were queued.
    pub(super) fn begin_logoff(&mut self) -> bool {
        let Logoff::Draining { waits } = self.logoff else {
            return false;
        };
        // A frame that is with a job precedes the logoff.
        if (waits && self.table.owed() > 0) || !self.queue.is_empty() || self.jobs.is_sending() {
            return false;
        }
        self.logoff = Logoff::Queued;
        if self.session.is_none() {
            self.end(EndReason::LoggedOff);
            return false;
        }
        let trees = std::mem::take(&mut self.trees);
        self.controls
            .extend(trees.into_iter().map(Control::TreeDisconnect));
        self.controls.push_back(Control::LogOff);
        true
    }
}
