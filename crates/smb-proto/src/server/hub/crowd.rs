//! What the opens of one stream come to.
//!
//! A file may be open some ten thousand times, and each further open has to know whether anybody denies it or caches what it
//! is about to change. So that none has to look at all others, it is kept up to date here who is in whose way: opening,
//! closing, reading and writing take time by the logarithm of the number of opens, and by the number of those
//! who have to be told.

use std::collections::BTreeSet;

use super::caching::{H, W};
use super::ids::{Holder, OpenId};
use super::share_mode::{Mode, is_oplock_stat};
use super::table::Open;
use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::create_context::LeaseState;

/// The opens of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    opens: BTreeSet<OpenId>,
    modes: Modes,
    /// Opens that do more than look at attributes.
    solid: usize,
    /// Opens without a client.
    absent: BTreeSet<OpenId>,
    /// Who caches anything.
    cachers: BTreeSet<Holder>,
    /// Of them, who caches writes.
    writers: BTreeSet<Holder>,
    /// Of them, who caches handles.
    handles: BTreeSet<Holder>,
}

/// How many opens do what, and how many let nobody do it: reading, writing, deleting. Those that do none of it count for
/// nothing ([MS-FSA] 2.1.5.1.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modes {
    done: [usize; 3],
    denied: [usize; 3],
}

impl Modes {
    /// All but one of them.
    fn without(mut self, mode: Mode) -> Self {
        let (done, denied) = mode.bits();
        for bit in 0..3 {
            self.done[bit] = self.done[bit].saturating_sub(usize::from(done[bit]));
            self.denied[bit] = self.denied[bit].saturating_sub(usize::from(denied[bit]));
        }
        self
    }

    fn with(mut self, mode: Mode) -> Self {
        let (done, denied) = mode.bits();
        for bit in 0..3 {
            self.done[bit] += usize::from(done[bit]);
            self.denied[bit] += usize::from(denied[bit]);
        }
        self
    }
}

impl Mode {
    /// What it does, and what it denies: reading, writing, deleting.
    fn bits(self) -> ([bool; 3], [bool; 3]) {
        let done = self.does();
        let active = done.iter().any(|does| *does);
        let shares = [ShareAccess::READ, ShareAccess::WRITE, ShareAccess::DELETE];
        (done, shares.map(|share| active && !self.share.contains(share)))
    }
}

impl Crowd {
    pub(super) fn is_empty(&self) -> bool {
        self.opens.is_empty()
    }

    /// Its opens, in the order of their making.
    pub(super) fn opens(&self) -> impl Iterator<Item = OpenId> + Clone {
        self.opens.iter().copied()
    }

    /// Its only open.
    pub(super) fn only(&self) -> Option<OpenId> {
        let first = self.opens.first()?;
        (self.opens.len() == 1).then_some(*first)
    }

    /// Opens without a client.
    pub(super) fn absent(&self) -> impl Iterator<Item = OpenId> {
        self.absent.iter().copied()
    }

    pub(super) fn add(&mut self, open: &Open) {
        if self.opens.insert(open.info.id) {
            self.modes = self.modes.with(open.mode());
            self.solid += usize::from(!is_oplock_stat(open.info.access));
        }
        self.set_absent(open.info.id, open.info.connection.is_none());
    }

    pub(super) fn remove(&mut self, open: &Open) {
        if self.opens.remove(&open.info.id) {
            self.modes = self.modes.without(open.mode());
            self.solid -= usize::from(!is_oplock_stat(open.info.access));
        }
        self.set_absent(open.info.id, false);
    }

    /// Whether the open has a client.
    pub(super) fn set_absent(&mut self, open: OpenId, absent: bool) {
        if absent {
            self.absent.insert(open);
        } else {
            self.absent.remove(&open);
        }
    }

    /// What a holder may do now.
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

    /// Who holds any of `what`.
    pub(super) fn holding(&self, what: LeaseState) -> Vec<Holder> {
        if what == W {
            self.writers.iter().copied().collect()
        } else if what == H {
            self.handles.iter().copied().collect()
        } else {
            self.cachers.iter().copied().collect()
        }
    }

    /// Whether anybody but `own` caches.
    pub(super) fn is_cached_by_others(&self, own: Option<Holder>) -> bool {
        others(&self.cachers, own)
    }

    /// Whether anybody but `own` caches writes.
    pub(super) fn is_written_by_others(&self, own: Option<Holder>) -> bool {
        others(&self.writers, own)
    }

    /// Whether there is an oplock.
    pub(super) fn has_oplock(&self) -> bool {
        // Oplocks sort before leases.
        matches!(self.cachers.first(), Some(Holder::Oplock(_)))
    }

    /// Whether there is a lease that caches handles.
    pub(super) fn has_handle_lease(&self) -> bool {
        matches!(self.handles.last(), Some(Holder::Lease(_)))
    }

    /// How many opens do more than look at attributes.
    pub(super) fn solid(&self) -> usize {
        self.solid
    }

    /// Whether some open of this stream and one in that mode deny each other.
    pub(super) fn denies(&self, mode: Mode) -> bool {
        let (done, denied) = mode.bits();
        (0..3).any(|bit| done[bit] && self.modes.denied[bit] > 0 || denied[bit] && self.modes.done[bit] > 0)
    }

    /// Whether some open of this named stream and one of the file itself in that mode deny each other; see
    /// [`Mode::conflicts_across`].
    pub(super) fn denies_base(&self, mode: Mode) -> bool {
        mode.access.contains(AccessMask::DELETE) && self.modes.denied[2] > 0
    }

    /// Whether some open of the file itself and one of a named stream in that mode deny each other.
    pub(super) fn denies_stream(&self, mode: Mode) -> bool {
        mode.bits().1[2] && self.modes.done[2] > 0
    }
}

fn others(holders: &BTreeSet<Holder>, own: Option<Holder>) -> bool {
    match own {
        Some(own) if holders.contains(&own) => holders.len() > 1,
        _ => !holders.is_empty(),
    }
}
