//! Whether the server is still there, and how we go.
//!
//! ```text
//! in flight, silent for echo_after ── ECHO ── any message: not silent any more
//!                                         └── silence_max, and an answer is owed: `EndReason::Silent`
//! a compound answered in part for silence_max, the rest not announced: `EndReason::AnsweredInPart`
//! log_off: what is owed is awaited ── TREE_DISCONNECT of each share, LOGOFF, in one breath ── `EndReason::LoggedOff`
//! ```
//! A request that the server has announced to take its time (an interim answer) is in flight and not owed: nobody waits
//! for a line that is dead, though, so those are asked after as well.

use std::time::Duration;

use super::connection::Connection;
use super::transmit::Control;
use super::{EndReason, Ticket};

/// Where a client that goes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// What is queued goes first, and what is owed is awaited or not.
    Draining {
        waits: bool,
    },
    /// It was said.
    Said,
}

impl Connection {
    /// When to call [`handle_deadline`](Self::handle_deadline); perhaps at once, since not every call is told the time.
    pub fn deadline(&self) -> Option<Duration> {
        if self.ended.is_some() || self.table.is_empty() {
            return None;
        }
        let Some(since) = self.quiet_since else {
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
            && self.leaving != Leaving::Said
            && self.credits.affords(1)
            && self.config.echo_after < self.config.silence_max;
        may.then(|| since.saturating_add(self.config.echo_after))
    }

    fn partial_deadline(&self) -> Option<Duration> {
        let (_, since) = self.partial.front()?;
        Some(since.saturating_add(self.config.silence_max))
    }

    /// Time has passed.
    pub fn handle_deadline(&mut self, now: Duration) {
        self.now = self.now.max(now);
        if self.ended.is_some() {
            return;
        }
        if self.table.is_empty() {
            self.quiet_since = None;
            return;
        }
        let Some(since) = self.quiet_since else {
            self.quiet_since = Some(self.now);
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

    /// Whether an answer to this chain is neither here nor announced.
    fn is_owed(&mut self, ticket: Ticket) -> bool {
        let Some(sent) = self.table.chain_mut(ticket) else {
            return false;
        };
        let open = sent.slots.iter().filter(|slot| slot.reply.is_none());
        let open: Vec<_> = open.map(|slot| slot.id).collect();
        open.into_iter()
            .any(|id| self.table.flight(id).is_some_and(|flight| !flight.interim))
    }

    /// The server sent something, which has been dealt with.
    pub(super) fn heard(&mut self) {
        self.quiet_since = (!self.table.is_empty()).then_some(self.now);
    }

    /// A chain has one answer more, and `open` to come of `count`.
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

    /// Goes in good order: what was submitted is still sent and what is owed awaited; then the shares entered here are left
    /// and the session is ended, on all its channels ([MS-SMB2] 3.2.4.22, 3.2.4.23). Nothing more can be submitted. Comes
    /// to [`EndReason::LoggedOff`], or whatever else ends the connection first; the caller bounds how long it waits.
    ///
    /// Without `waits` the farewell does not wait for what is owed: servers take requests in their order, and whoever is
    /// in a hurry may close the connection behind it.
    pub fn log_off(&mut self, waits: bool) {
        if self.ended.is_none() && self.leaving == Leaving::No {
            self.leaving = Leaving::Draining { waits };
        }
    }

    /// With nothing left to send: whether there are words of farewell.
    pub(super) fn say_farewell(&mut self) -> bool {
        let Leaving::Draining { waits } = self.leaving else {
            return false;
        };
        // A frame that is with a job comes before the farewell.
        if (waits && self.table.owed() > 0) || !self.queue.is_empty() || self.jobs.is_sending() {
            return false;
        }
        self.leaving = Leaving::Said;
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
