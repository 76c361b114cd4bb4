//! Rights to cache: oplocks and leases ([MS-SMB2] 3.2.5.19). A copy caches nothing, so it does not want them for their own
//! sake: servers make only such opens durable that have one ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10), and durable is what lets a
//! file of many gigabytes outlive a lost connection with certainty about what was written.
//!
//! | | asked for | why |
//! |---|---|---|
//! | 2.0.2, or a server without leases | a batch oplock | there is nothing else |
//! | 2.1 | a lease of the first version, R and H | another reader does not break it, as it would an oplock: both go on |
//! | 3.x | the same, second version | |
//!
//! Not W: nothing is written later than the caller says, and with it every other open of the file would wait for our
//! acknowledgment. One key for each open, at random, and no parent: a key names one file for the client's life
//! ([MS-SMB2] 3.3.5.9.8), and a copy's temporary name becomes another file's.
//!
//! A break is acknowledged at once with what the server leaves us, since there is nothing to write back or to forget. What
//! was durable by it is so no more: if the connection is lost then, the file is opened again by its path, with doubts
//! about what was not flushed. Small files, listings and metadata go without: they are one round trip, and sent again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::{Lease, LeaseFlags, LeaseState, LeaseV2, RequestContext};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification, LeaseBreak, LeaseBreakFlags};
use ropeway_smb_wire::{FileId, LeaseKey, TreeId};

use crate::{Result, login};

/// Where a right's acknowledgment has to be sent: the tree, and whether it is sealed.
pub(crate) type Place = (TreeId, bool);

/// Rights by what the server calls them. Bounded by use: one for each handle that lives.
#[derive(Debug)]
pub(crate) struct Rights<K>(Mutex<HashMap<K, Place>>);

/// Opens with an oplock, of one session.
pub(crate) type Oplocks = Rights<FileId>;
/// Opens with a lease, by the key that the client chose; of one client.
pub(crate) type Leases = Rights<LeaseKey>;

impl<K> Default for Rights<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Rights<K> {
    pub(crate) fn insert(&self, name: K, place: Place) {
        self.lock().insert(name, place);
    }

    pub(crate) fn remove(&self, name: &K) -> Option<Place> {
        self.lock().remove(name)
    }

    fn get(&self, name: &K) -> Option<Place> {
        self.lock().get(name).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What to answer to a break, and where; `None` if the server awaits no answer.
pub(crate) fn answer(
    notification: &BreakNotification,
    oplocks: &Oplocks,
    leases: &Leases,
) -> Option<(BreakAcknowledgment, Place)> {
    match notification {
        // [MS-SMB2] 3.2.5.19.1. A batch oplock's first break is awaited, what is left of it goes without a word
        // (2.2.24.1); so it is forgotten with the first.
        BreakNotification::Oplock(oplock) => {
            let place = oplocks.remove(&oplock.file_id)?;
            Some((BreakAcknowledgment::Oplock(*oplock), place))
        }
        // [MS-SMB2] 3.2.5.19.2. One that was R and H may be broken twice.
        BreakNotification::Lease(lease) => {
            let place = leases.get(&lease.lease_key)?;
            lease.flags.contains(LeaseBreakFlags::ACK_REQUIRED).then(|| {
                let kept = LeaseBreak {
                    lease_key: lease.lease_key,
                    lease_state: lease.new_lease_state,
                };
                (BreakAcknowledgment::Lease(kept), place)
            })
        }
    }
}

/// The right that goes with a durable open, and is given up with it.
#[derive(Debug)]
pub(crate) enum Right {
    None,
    Batch,
    Leased {
        key: LeaseKey,
        is_v2: bool,
        leases: Arc<Leases>,
    },
}

impl Right {
    /// The best that the ends agreed on.
    pub(crate) fn of(dialect: Dialect, server: Capabilities, leases: &Arc<Leases>) -> Result<Self> {
        if dialect < Dialect::Smb210 || !server.contains(Capabilities::LEASING) {
            return Ok(Self::Batch);
        }
        Ok(Self::Leased {
            key: LeaseKey(login::random()?),
            is_v2: dialect >= Dialect::Smb300,
            leases: Arc::clone(leases),
        })
    }

    pub(crate) fn level(&self) -> OplockLevel {
        match self {
            Self::None => OplockLevel::None,
            Self::Batch => OplockLevel::Batch,
            Self::Leased { .. } => OplockLevel::Lease,
        }
    }

    /// For CREATE; a reclaiming one names the same lease ([MS-SMB2] 3.3.5.9.7).
    pub(crate) fn context(&self) -> Option<RequestContext<'static>> {
        let Self::Leased { key, is_v2, .. } = self else {
            return None;
        };
        let lease = Lease {
            lease_key: *key,
            lease_state: LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING,
            lease_flags: LeaseFlags::default(),
        };
        Some(match is_v2 {
            false => RequestContext::Lease(lease),
            true => RequestContext::LeaseV2(LeaseV2 {
                lease,
                parent_lease_key: LeaseKey::default(),
                epoch: 0,
            }),
        })
    }

    /// Notes where a lease lives, before it is asked for: its break may be the first message about it.
    pub(crate) fn live_in(&self, place: Place) {
        if let Self::Leased { key, leases, .. } = self {
            leases.insert(*key, place);
        }
    }
}

impl Drop for Right {
    fn drop(&mut self) {
        if let Self::Leased { key, leases, .. } = self {
            leases.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_smb_wire::oplock_break::{LeaseBreakNotification, OplockBreak};

    fn broken(key: LeaseKey, new: LeaseState, flags: LeaseBreakFlags) -> BreakNotification {
        BreakNotification::Lease(LeaseBreakNotification {
            new_epoch: 2,
            flags,
            lease_key: key,
            current_lease_state: LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING,
            new_lease_state: new,
        })
    }

    #[test]
    fn the_best_right_that_both_ends_know() {
        let leases = Arc::default();
        let of = |dialect, capabilities| Right::of(dialect, capabilities, &leases).unwrap();
        let leasing = Capabilities::LEASING;
        assert!(matches!(of(Dialect::Smb202, leasing), Right::Batch));
        assert!(matches!(
            of(Dialect::Smb311, Capabilities::default()),
            Right::Batch
        ));
        assert!(matches!(
            of(Dialect::Smb210, leasing).context(),
            Some(RequestContext::Lease(_))
        ));
        for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
            let right = of(dialect, leasing);
            assert_eq!(right.level(), OplockLevel::Lease);
            let Some(RequestContext::LeaseV2(asked)) = right.context() else {
                panic!("{dialect:?}");
            };
            let wanted = LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING;
            assert_eq!(asked.lease.lease_state, wanted);
        }
    }

    #[test]
    fn leases_are_answered_until_they_are_given_up() {
        let (oplocks, leases) = (Oplocks::default(), Arc::default());
        let right = Right::of(Dialect::Smb311, Capabilities::LEASING, &leases).unwrap();
        let Right::Leased { key, .. } = &right else {
            panic!("{right:?}");
        };
        let key = *key;
        let first = broken(key, LeaseState::READ_CACHING, LeaseBreakFlags::ACK_REQUIRED);
        assert_eq!(answer(&first, &oplocks, &leases), None, "not ours yet");
        right.live_in((TreeId(3), true));
        let kept = LeaseBreak {
            lease_key: key,
            lease_state: LeaseState::READ_CACHING,
        };
        let expected = Some((BreakAcknowledgment::Lease(kept), (TreeId(3), true)));
        assert_eq!(answer(&first, &oplocks, &leases), expected);
        let rest = broken(key, LeaseState::default(), LeaseBreakFlags::default());
        assert_eq!(answer(&rest, &oplocks, &leases), None, "no answer is awaited");
        let again = broken(key, LeaseState::default(), LeaseBreakFlags::ACK_REQUIRED);
        assert!(answer(&again, &oplocks, &leases).is_some());
        drop(right);
        assert_eq!(answer(&again, &oplocks, &leases), None);
        assert!(leases.lock().is_empty());
    }

    #[test]
    fn an_oplock_is_answered_once() {
        let (oplocks, leases) = (Oplocks::default(), Leases::default());
        let file_id = FileId {
            persistent: 1,
            volatile: 2,
        };
        oplocks.insert(file_id, (TreeId(3), false));
        let oplock = OplockBreak {
            oplock_level: OplockLevel::LevelII,
            file_id,
        };
        let broken = BreakNotification::Oplock(oplock);
        let expected = (BreakAcknowledgment::Oplock(oplock), (TreeId(3), false));
        assert_eq!(answer(&broken, &oplocks, &leases), Some(expected));
        assert_eq!(answer(&broken, &oplocks, &leases), None);
    }
}
