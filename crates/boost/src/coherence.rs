//! When blocks of a file may be found in the cache, and under which version. Pure.
//!
//! A version is the change time, the size, and a hash of the times of creation and last write. The
//! rules, and why a block found under the version that the source reports has that content:
//!
//! 1. A block is kept under a version that was learned *before* the block was read. Change times
//!    only grow, so a source that still reports this version later has not changed in between.
//! 2. A version counts only once it is *settled*: the source's clock is past the change time by
//!    [`Versioning::settle`] when the read begins. Before that the file may change again without a
//!    new change time. (Git calls such a file racy.)
//! 3. The store may return what it got up to [`Versioning::memory`] ago. If a file with a new
//!    version was read within that time, or was read before the version was settled, the store may
//!    still hold earlier content. So the cache is not used for this long.
//! 4. From the beginning of a change through this store until the change was written out, the cache
//!    is not used for the file, and after it for [`Versioning::memory`]. Answers to questions from
//!    before that moment are ignored.
//! 5. A file whose change time a program sets is not cached until all its blocks are forgotten.
//! 6. While the source is lost, nobody says that a version is still the present one. Then rule 1 is
//!    not enough: a block that was read after a change, of which the source was not asked any more,
//!    is kept under the version before it. So blocks are given out only if the source reported
//!    their version once more after the last of them was kept: then all of them are of one version.

use std::time::Duration;

use ropeway_cache::Version;
use ropeway_vfs::Kind;
use ropeway_vfs::store::{NodeStat, Versioning};

/// What is known of one file.
#[derive(Debug, Default)]
pub(crate) struct Coherence {
    seen: Option<Seen>,
    /// The last answer, and when the question was asked.
    last: Option<(Duration, NodeStat)>,
    /// When the last question was asked that the source answered with the version seen.
    confirmed: Duration,
    /// When a block was last kept.
    kept: Option<Duration>,
    /// Questions with a lower number are too old.
    floor: u64,
    /// Changes begun so far, and those that have not returned.
    changes: u64,
    under_way: u32,
    /// Whether a change is not written out.
    is_changed: bool,
    /// Until when the cache is not used.
    quiet_until: Duration,
    /// Reads of the source that have not returned, and when the last one did.
    reads: u32,
    last_read: Option<Duration>,
    /// Whether one of these reads began before the version was settled.
    is_early: bool,
    /// Whether its old blocks are being forgotten.
    is_barred: bool,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    version: Version,
    /// Change time in nanoseconds.
    changed: i128,
}

impl Coherence {
    /// Takes the answer to question `number`, which was asked at `asked` and answered at `now`.
    pub(crate) fn learn(
        &mut self,
        (number, asked): (u64, Duration),
        now: Duration,
        stat: &NodeStat,
        source: &Versioning,
    ) {
        if number < self.floor {
            return;
        }
        self.floor = number;
        if self.is_changed {
            return;
        }
        self.last = Some((asked, *stat));
        let version = version_of(stat);
        if self.seen.map(|seen| seen.version) == version {
            self.confirmed = self.confirmed.max(asked);
            return;
        }
        let changed = stat.changed.0;
        self.seen = version.map(|version| Seen { version, changed });
        self.confirmed = asked;
        let last = if self.reads > 0 { Some(now) } else { self.last_read };
        if last.is_some_and(|last| now.saturating_sub(last) <= source.memory) {
            self.be_quiet(now + source.memory);
        }
    }

    /// Returns the last answer, and when the question was asked. `None` if the file has been changed
    /// through this store since.
    pub(crate) fn last(&self) -> Option<(Duration, NodeStat)> {
        self.last.filter(|_| !self.is_changed)
    }

    /// Forgets the answers before question `next`: attributes were changed through this store.
    pub(crate) fn attributes_changed(&mut self, next: u64) {
        self.floor = self.floor.max(next);
        self.last = None;
    }

    /// Notes that a block was kept.
    pub(crate) fn was_kept(&mut self, now: Duration) {
        self.kept = Some(now);
    }

    /// Returns when the source must be asked at the earliest to confirm all that was kept; `None` if
    /// it has. `memory`: for how long the source returns older attributes.
    pub(crate) fn to_confirm(&self, memory: Duration) -> Option<Duration> {
        let due = self.kept? + memory;
        (self.confirmed < due).then_some(due)
    }

    /// Returns the version whose blocks may be given out while the source is lost.
    pub(crate) fn usable_lost(
        &self,
        now: Duration,
        memory: Duration,
        source: &Versioning,
    ) -> Option<Version> {
        self.last?;
        self.usable(now, source)
            .filter(|_| self.to_confirm(memory).is_none())
    }

    /// Returns the version whose blocks may be looked up and kept now.
    pub(crate) fn usable(&self, now: Duration, source: &Versioning) -> Option<Version> {
        let is_away = self.is_changed || self.is_barred || self.is_early || now < self.quiet_until;
        if is_away { None } else { self.settled(source) }
    }

    /// Returns the version, if it is settled.
    fn settled(&self, source: &Versioning) -> Option<Version> {
        let seen = self.seen?;
        let age = source.now.0.checked_sub(seen.changed)?;
        let settle = i128::try_from(source.settle.as_nanos()).ok()?;
        (age >= settle).then_some(seen.version)
    }

    /// Begins a read of the source; `None` if it cannot tell versions apart now.
    pub(crate) fn begin_read(&mut self, source: Option<&Versioning>) {
        self.reads += 1;
        self.is_early |= source.and_then(|source| self.settled(source)).is_none();
    }

    /// Ends a read of the source.
    pub(crate) fn end_read(&mut self, now: Duration, source: Option<&Versioning>) {
        self.reads -= 1;
        self.last_read = Some(now);
        if self.is_early {
            self.be_quiet(now + source.map_or(Duration::ZERO, |source| source.memory));
            self.is_early = self.reads > 0;
        }
    }

    /// Begins a change of the content.
    pub(crate) fn begin_change(&mut self) {
        self.changes += 1;
        self.under_way += 1;
        self.is_changed = true;
        (self.seen, self.last) = (None, None);
    }

    /// Ends a change; `next` is the number of the next question.
    pub(crate) fn end_change(&mut self, next: u64, now: Duration, source: &Versioning) {
        self.under_way -= 1;
        if source.writes_at_once {
            self.written_out(self.changes, next, now, source);
        }
    }

    /// Ends a change of a source that cannot tell versions apart now.
    pub(crate) fn end_change_unseen(&mut self) {
        self.under_way -= 1;
    }

    /// Returns the number of changes, to be passed to [`written_out`](Self::written_out).
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Notes that the first `changes` changes are with the source.
    pub(crate) fn written_out(&mut self, changes: u64, next: u64, now: Duration, source: &Versioning) {
        if self.is_changed && changes == self.changes && self.under_way == 0 {
            self.is_changed = false;
            self.floor = next;
            self.be_quiet(now + source.memory);
        }
    }

    /// Bars the file from the cache, or admits it again.
    pub(crate) fn bar(&mut self, is_barred: bool) {
        self.is_barred = is_barred;
    }

    /// Whether nothing would be lost by beginning anew with this file.
    pub(crate) fn is_forgettable(&self, now: Duration, source: &Versioning) -> bool {
        let is_idle = !self.is_changed && !self.is_barred && self.reads == 0 && now >= self.quiet_until;
        let is_read = self
            .last_read
            .is_some_and(|last| now.saturating_sub(last) <= source.memory);
        is_idle && !is_read
    }

    fn be_quiet(&mut self, until: Duration) {
        self.quiet_until = self.quiet_until.max(until);
    }
}

/// Returns the version that attributes stand for; `None` for what has none.
pub(crate) fn version_of(stat: &NodeStat) -> Option<Version> {
    if stat.kind != Kind::File || stat.id.index == 0 || !stat.changed.is_known() || stat.changed.0 <= 0 {
        return None;
    }
    let mut other = [0; 32];
    other[..16].copy_from_slice(&stat.created.0.to_le_bytes());
    other[16..].copy_from_slice(&stat.modified.0.to_le_bytes());
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &other);
    let other = hash.as_ref()[..8].try_into().expect("8 of 32 bytes");
    Some(Version {
        change_time: u64::try_from(stat.changed.0).ok()?,
        size: stat.size,
        lease_epoch: u64::from_le_bytes(other),
    })
}

#[cfg(test)]
#[path = "coherence_tests.rs"]
mod tests;
