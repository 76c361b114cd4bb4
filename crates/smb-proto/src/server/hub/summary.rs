//! A summary of all opens of one stream.
//!
//! A file may have ten thousand opens, and every further open must know whether one of them denies
//! it or caches what it is about to change. The summary answers this without a scan. Opening,
//! closing, reading and writing take time logarithmic in the number of opens, plus time linear in
//! the number of holders to notify.

use std::collections::BTreeSet;

use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::create_context::LeaseState;

use super::caching::{H, W};
use super::ids::{Holder, OpenId};
use super::share_mode::{ShareMode, is_oplock_stat};
use super::table::Open;

/// The opens of a stream, summarized.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OpenSummary {
    opens: BTreeSet<OpenId>,
    modes: ShareModeCounts,
    /// Number of opens with more than stat access.
    non_stat: usize,
    /// Opens without a connection.
    absent: BTreeSet<OpenId>,
    /// Holders of any caching.
    cachers: BTreeSet<Holder>,
    /// Holders of write caching.
    writers: BTreeSet<Holder>,
    /// Holders of handle caching.
    handles: BTreeSet<Holder>,
}

/// Counts the opens that use, and that deny, reading, writing and deleting. Opens that use none of
/// these count for nothing ([MS-FSA] 2.1.5.1.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ShareModeCounts {
    done: [usize; 3],
    denied: [usize; 3],
}

impl ShareModeCounts {
    /// Returns the counts without one open.
    fn without(mut self, mode: ShareMode) -> Self {
        let (done, denied) = mode.bits();
        for bit in 0..3 {
            self.done[bit] = self.done[bit].saturating_sub(usize::from(done[bit]));
            self.denied[bit] = self.denied[bit].saturating_sub(usize::from(denied[bit]));
        }
        self
    }

    fn with(mut self, mode: ShareMode) -> Self {
        let (done, denied) = mode.bits();
        for bit in 0..3 {
            self.done[bit] += usize::from(done[bit]);
            self.denied[bit] += usize::from(denied[bit]);
        }
        self
    }
}

impl ShareMode {
    /// Returns what the open uses and what it denies: reading, writing, deleting.
    fn bits(self) -> ([bool; 3], [bool; 3]) {
        let done = self.does();
        let active = done.iter().any(|does| *does);
        let shares = [ShareAccess::READ, ShareAccess::WRITE, ShareAccess::DELETE];
        (done, shares.map(|share| active && !self.share.contains(share)))
    }
}

impl OpenSummary {
    pub(super) fn is_empty(&self) -> bool {
        self.opens.is_empty()
    }

    /// Returns the opens, oldest first.
    pub(super) fn opens(&self) -> impl Iterator<Item = OpenId> + Clone {
        self.opens.iter().copied()
    }

    /// Returns the open if there is exactly one.
    pub(super) fn only(&self) -> Option<OpenId> {
        let first = self.opens.first()?;
        (self.opens.len() == 1).then_some(*first)
    }

    /// Returns the opens without a connection.
    pub(super) fn absent(&self) -> impl Iterator<Item = OpenId> {
        self.absent.iter().copied()
    }

    pub(super) fn add(&mut self, open: &Open) {
        if self.opens.insert(open.info.id) {
            self.modes = self.modes.with(open.mode());
            self.non_stat += usize::from(!is_oplock_stat(open.info.access));
        }
        self.set_absent(open.info.id, open.info.connection.is_none());
    }

    pub(super) fn remove(&mut self, open: &Open) {
        if self.opens.remove(&open.info.id) {
            self.modes = self.modes.without(open.mode());
            self.non_stat -= usize::from(!is_oplock_stat(open.info.access));
        }
        self.set_absent(open.info.id, false);
    }

    /// Notes whether the open has a connection.
    pub(super) fn set_absent(&mut self, open: OpenId, absent: bool) {
        if absent {
            self.absent.insert(open);
        } else {
            self.absent.remove(&open);
        }
    }

    /// Notes the caching that a holder has now.
    pub(super) fn set_caching(&mut self, holder: Holder, state: LeaseState) {
        let sets = [
            (&mut self.cachers, !state.is_empty()),
            (&mut self.writers, state.contains(W)),
            (&mut self.handles, state.contains(H)),
        ];
        for (set, is_in) in sets {
            if is_in {
                set.insert(holder);
            } else {
                set.remove(&holder);
            }
        }
    }

    /// Returns the holders of any of `what`.
    pub(super) fn holding(&self, what: LeaseState) -> Vec<Holder> {
        if what == W {
            self.writers.iter().copied().collect()
        } else if what == H {
            self.handles.iter().copied().collect()
        } else {
            self.cachers.iter().copied().collect()
        }
    }

    /// Returns whether a holder other than `own` caches.
    pub(super) fn is_cached_by_others(&self, own: Option<Holder>) -> bool {
        others(&self.cachers, own)
    }

    /// Returns whether a holder other than `own` caches writes.
    pub(super) fn is_written_by_others(&self, own: Option<Holder>) -> bool {
        others(&self.writers, own)
    }

    /// Returns whether any open has an oplock.
    pub(super) fn has_oplock(&self) -> bool {
        // Oplocks sort before leases.
        matches!(self.cachers.first(), Some(Holder::Oplock(_)))
    }

    /// Returns whether any lease caches handles.
    pub(super) fn has_handle_lease(&self) -> bool {
        matches!(self.handles.last(), Some(Holder::Lease(_)))
    }

    /// Returns the number of opens with more than stat access.
    pub(super) fn non_stat(&self) -> usize {
        self.non_stat
    }

    /// Returns whether an open of this stream conflicts with one of the given mode.
    pub(super) fn denies(&self, mode: ShareMode) -> bool {
        let (done, denied) = mode.bits();
        (0..3).any(|bit| done[bit] && self.modes.denied[bit] > 0 || denied[bit] && self.modes.done[bit] > 0)
    }

    /// Returns whether an open of this named stream conflicts with an open of the file itself in
    /// the given mode; see [`ShareMode::conflicts_across`].
    pub(super) fn denies_base(&self, mode: ShareMode) -> bool {
        mode.access.contains(AccessMask::DELETE) && self.modes.denied[2] > 0
    }

    /// Returns whether an open of the file itself conflicts with an open of a named stream in the
    /// given mode.
    pub(super) fn denies_stream(&self, mode: ShareMode) -> bool {
        mode.bits().1[2] && self.modes.done[2] > 0
    }
}

fn others(holders: &BTreeSet<Holder>, own: Option<Holder>) -> bool {
    match own {
        Some(own) if holders.contains(&own) => holders.len() > 1,
        _ => !holders.is_empty(),
    }
}
