//! Caching rights: oplocks and leases ([MS-SMB2] 3.2.5.19). A copy caches nothing and does not need
//! them for their own sake. But servers make only such opens durable that hold one ([MS-SMB2]
//! 3.3.5.9.6, 3.3.5.9.10), and only a durable handle lets a file of many gigabytes survive a lost
//! connection with certainty about what was written.
//!
//! | | requested | why |
//! |---|---|---|
//! | 2.0.2, or a server without leases | a batch oplock | there is no alternative |
//! | 2.1 | a version 1 lease, R and H | another reader breaks an oplock, but not this lease |
//! | 3.x | a version 2 lease, R and H | as for 2.1 |
//!
//! The client does not request W: it never delays a write, and with W every other open of the file
//! would wait for the client's acknowledgment. Each open has a random key of its own: a key names one
//! file for the life of the client ([MS-SMB2] 3.3.5.9.8), and the temporary name of a copy later
//! becomes another file's. A store names its lease on the folder as the parent's, so that what it
//! changes does not break that lease.
//!
//! The client acknowledges a break with what the server leaves it: at once, or when the holder of
//! the lease ([`LeaseHolder`]) has done what the break asks of it. After that the handle is no longer durable: if the connection is lost
//! then, the client opens the file again by its path, and unflushed writes are in doubt. Small
//! files, listings and metadata need no right: they take one round trip and are sent again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use ropeway_smb_wire::create::OplockLevel;
use ropeway_smb_wire::create_context::{
    Lease, LeaseFlags, LeaseState, LeaseV2, RequestContext, ResponseContext,
};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect};
use ropeway_smb_wire::oplock_break::{BreakAcknowledgment, BreakNotification, LeaseBreak, LeaseBreakFlags};
use ropeway_smb_wire::{FileId, LeaseKey, TreeId};
use ropeway_vfs::external::ContentLease;

use crate::error::Result;
use crate::login;

/// Where to send the acknowledgment of a break: the tree, and whether it is sealed.
pub(crate) type AckTarget = (TreeId, bool);

/// The rights held, by the name that the server uses. Bounded by use: one for each live handle.
#[derive(Debug)]
pub(crate) struct HolderTable<K, V = AckTarget>(Mutex<HashMap<K, V>>);

/// The opens of one session that hold an oplock.
pub(crate) type Oplocks = HolderTable<FileId>;
/// The opens of one client that hold a lease, by lease key.
pub(crate) type Leases = HolderTable<LeaseKey, (AckTarget, Arc<LeaseStatus>)>;

/// A source of numbers that differ in the whole process.
static EPOCHS: AtomicU64 = AtomicU64::new(1);

fn next_epoch() -> u64 {
    EPOCHS.fetch_add(1, Ordering::Relaxed)
}

/// The rights that a lease grants at the moment. The driver updates it when the server breaks the
/// lease, before the break is acknowledged.
pub(crate) struct LeaseStatus {
    rights: AtomicU32,
    /// Replaced by a higher number whenever the right to keep what was read is lost.
    epoch: AtomicU64,
    holder: Mutex<Option<Arc<dyn LeaseHolder>>>,
}

/// Learns of the breaks of a lease, and decides when they are acknowledged.
pub(crate) trait LeaseHolder: Send + Sync {
    /// Takes a break. The server waits until `broken` is dropped, if it awaits an acknowledgment;
    /// after 35 s it revokes the lease ([MS-SMB2] 3.3.6.5). Called by the driver of the connection,
    /// so it must not block.
    fn broke(&self, broken: BrokenLease);

    /// Takes the loss of the session. The lease is kept with a durable handle, if that is reclaimed.
    /// Must not block.
    fn suspended(&self);
}

/// A break of a lease, with the duty to acknowledge it.
#[derive(Debug)]
pub(crate) struct BrokenLease {
    /// The rights that are left.
    pub(crate) left: LeaseState,
    /// `None` if the server awaits no acknowledgment.
    pub(crate) answer: Option<(BreakAcknowledgment, AckTarget)>,
}

/// Set in [`LeaseStatus`] once a break has arrived. No defined right has this bit ([MS-SMB2]
/// 2.2.13.2.8).
const BROKEN: u32 = 1 << 31;
/// Set in [`LeaseStatus`] while the session is lost: the server cannot report a break.
const SUSPENDED: u32 = 1 << 30;

impl Default for LeaseStatus {
    fn default() -> Self {
        Self {
            rights: AtomicU32::new(0),
            epoch: AtomicU64::new(next_epoch()),
            holder: Mutex::new(None),
        }
    }
}

impl std::fmt::Debug for LeaseStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rights, epoch) = (&self.rights, &self.epoch);
        write!(f, "LeaseStatus({rights:?}, {epoch:?})")
    }
}

impl LeaseStatus {
    /// Begins a new request for the lease. A request that reclaims a durable handle leaves the
    /// epoch unchanged: if the lease is still there, nothing has changed meanwhile.
    fn requested(&self) {
        self.rights.store(0, Ordering::Release);
    }

    /// Records the rights in the reply to a CREATE. A break may have arrived before that reply was
    /// read.
    fn granted(&self, state: LeaseState) {
        let rights = state.bits() & !(BROKEN | SUSPENDED);
        let merge = |before: u32| {
            Some(match before & BROKEN {
                0 => rights,
                _ => BROKEN | (before & rights),
            })
        };
        // The closure always returns a value.
        let _ = self
            .rights
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, merge);
        if !self.may_cache_reads() {
            self.epoch.store(next_epoch(), Ordering::Release);
        }
    }

    /// Records what a break leaves.
    fn broken_to(&self, state: LeaseState) {
        let left = state.bits() & !(BROKEN | SUSPENDED);
        self.rights.store(BROKEN | left, Ordering::Release);
        if !state.contains(LeaseState::READ_CACHING) {
            self.epoch.store(next_epoch(), Ordering::Release);
        }
    }

    /// Records that the server holds the lease no longer.
    fn lost(&self) {
        self.requested();
        self.epoch.store(next_epoch(), Ordering::Release);
    }

    /// Records that the session is lost.
    fn suspended(&self) {
        self.rights.fetch_or(SUSPENDED, Ordering::AcqRel);
    }

    fn state(&self) -> LeaseState {
        LeaseState::from_bits_retain(self.rights.load(Ordering::Acquire))
    }

    /// Returns whether the holder may keep what it has read.
    pub(crate) fn may_cache_reads(&self) -> bool {
        let state = self.state();
        state.contains(LeaseState::READ_CACHING) && state.bits() & SUSPENDED == 0
    }

    /// Returns whether the file may stay open although nobody uses it.
    pub(crate) fn may_keep_open(&self) -> bool {
        let state = self.state();
        state.contains(LeaseState::HANDLE_CACHING) && state.bits() & SUSPENDED == 0
    }

    /// Returns what the lease says of content that was read under it.
    pub(crate) fn content(&self) -> ContentLease {
        // In this order: a loss between the two is seen.
        let epoch = self.epoch.load(Ordering::Acquire);
        let state = self.state();
        match state.contains(LeaseState::READ_CACHING) {
            true if state.bits() & SUSPENDED == 0 => ContentLease::Held { epoch },
            true => ContentLease::Suspended { epoch },
            false if state.bits() & BROKEN != 0 => ContentLease::Broken,
            false => ContentLease::None,
        }
    }

    /// Sets who takes the breaks. `None` acknowledges them at once.
    pub(crate) fn set_holder(&self, holder: Option<Arc<dyn LeaseHolder>>) {
        let before = std::mem::replace(&mut *self.holder.lock(), holder);
        drop(before);
    }
}

#[cfg(test)]
impl LeaseStatus {
    /// Makes a lease that grants reading, for tests.
    pub(crate) fn held() -> Arc<Self> {
        let status = Self::default();
        status.granted(LeaseState::READ_CACHING);
        Arc::new(status)
    }

    /// Breaks the lease, for tests.
    pub(crate) fn break_all(&self) {
        self.broken_to(LeaseState::default());
    }
}

impl<K, V> Default for HolderTable<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> HolderTable<K, V> {
    pub(crate) fn insert(&self, name: K, place: V) {
        self.lock().insert(name, place);
    }

    pub(crate) fn remove(&self, name: &K) -> Option<V> {
        self.lock().remove(name)
    }

    fn get(&self, name: &K) -> Option<V> {
        self.lock().get(name).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, V>> {
        self.0.lock()
    }
}

impl Leases {
    /// Notes that the session is lost, and with it the reports of breaks.
    pub(crate) fn suspend(&self) {
        let leases: Vec<_> = self.lock().values().map(|(_, lease)| Arc::clone(lease)).collect();
        for lease in leases {
            lease.suspended();
            let holder = lease.holder.lock().clone();
            if let Some(holder) = holder {
                holder.suspended();
            }
        }
    }
}

/// Returns the acknowledgment to send at once, and where to; `None` if the server awaits none, or
/// the holder of the lease will give it.
pub(crate) fn answer(
    notification: &BreakNotification,
    oplocks: &Oplocks,
    leases: &Leases,
) -> Option<(BreakAcknowledgment, AckTarget)> {
    match notification {
        // [MS-SMB2] 3.2.5.19.1. The first break of a batch oplock is acknowledged; the rest of it
        // ends without an acknowledgment (2.2.24.1). So the first break removes the entry.
        BreakNotification::Oplock(oplock) => {
            let place = oplocks.remove(&oplock.file_id)?;
            Some((BreakAcknowledgment::Oplock(*oplock), place))
        }
        // [MS-SMB2] 3.2.5.19.2. A lease with R and H may be broken twice.
        BreakNotification::Lease(lease) => {
            let (place, status) = leases.get(&lease.lease_key)?;
            status.broken_to(lease.new_lease_state);
            let answer = lease.flags.contains(LeaseBreakFlags::ACK_REQUIRED).then(|| {
                let kept = LeaseBreak {
                    lease_key: lease.lease_key,
                    lease_state: lease.new_lease_state,
                };
                (BreakAcknowledgment::Lease(kept), place)
            });
            let holder = status.holder.lock().clone();
            let Some(holder) = holder else { return answer };
            let left = lease.new_lease_state;
            holder.broke(BrokenLease { left, answer });
            None
        }
    }
}

/// The caching right of a durable open. Dropping it releases the entry.
#[derive(Debug)]
pub(crate) enum CachingRight {
    None,
    Batch,
    Leased {
        key: LeaseKey,
        is_v2: bool,
        leases: Arc<Leases>,
        status: Arc<LeaseStatus>,
    },
}

impl CachingRight {
    /// Returns the best right that both ends support.
    pub(crate) fn of(dialect: Dialect, server: Capabilities, leases: &Arc<Leases>) -> Result<Self> {
        if dialect < Dialect::Smb210 || !server.contains(Capabilities::LEASING) {
            return Ok(Self::Batch);
        }
        Ok(Self::Leased {
            key: LeaseKey(login::random()?),
            is_v2: dialect >= Dialect::Smb300,
            leases: Arc::clone(leases),
            status: Arc::default(),
        })
    }

    /// Returns the lease on a directory, if both ends support it ([MS-SMB2] 3.3.5.9.11).
    pub(crate) fn of_directory(dialect: Dialect, server: Capabilities, leases: &Arc<Leases>) -> Result<Self> {
        let needed = Capabilities::LEASING | Capabilities::DIRECTORY_LEASING;
        match dialect >= Dialect::Smb300 && server.contains(needed) {
            true => Self::of(dialect, server, leases),
            false => Ok(Self::None),
        }
    }

    pub(crate) fn level(&self) -> OplockLevel {
        match self {
            Self::None => OplockLevel::None,
            Self::Batch => OplockLevel::Batch,
            Self::Leased { .. } => OplockLevel::Lease,
        }
    }

    /// Returns the key of the lease, if one is requested.
    pub(crate) fn key(&self) -> Option<LeaseKey> {
        match self {
            Self::Leased { key, .. } => Some(*key),
            _ => None,
        }
    }

    /// Returns the create context; `parent` is the lease on the folder. A CREATE that reclaims the
    /// handle names the same lease ([MS-SMB2] 3.3.5.9.7).
    pub(crate) fn context(&self, parent: Option<LeaseKey>) -> Option<RequestContext<'static>> {
        let Self::Leased { key, is_v2, .. } = self else {
            return None;
        };
        let lease = Lease {
            lease_key: *key,
            lease_state: LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING,
            lease_flags: match parent.filter(|_| *is_v2) {
                Some(_) => LeaseFlags::PARENT_LEASE_KEY_SET,
                None => LeaseFlags::default(),
            },
        };
        Some(match is_v2 {
            false => RequestContext::Lease(lease),
            true => RequestContext::LeaseV2(LeaseV2 {
                lease,
                parent_lease_key: parent.unwrap_or_default(),
                epoch: 0,
            }),
        })
    }

    /// Registers a lease before it is requested: its break may be the first message about it.
    pub(crate) fn register(&self, place: AckTarget) {
        if let Self::Leased {
            key, leases, status, ..
        } = self
        {
            status.requested();
            leases.insert(*key, (place, Arc::clone(status)));
        }
    }

    /// Records what the reply to a CREATE grants.
    pub(crate) fn granted(&self, contexts: &[ResponseContext<'_>]) {
        let Self::Leased { key, status, .. } = self else {
            return;
        };
        let lease = contexts.iter().find_map(|context| match context {
            ResponseContext::Lease(lease) => Some(*lease),
            ResponseContext::LeaseV2(lease) => Some(lease.lease),
            _ => None,
        });
        // A lease that is being broken may be lost before its break arrives here.
        let is_held = |lease: &Lease| {
            lease.lease_key == *key && !lease.lease_flags.contains(LeaseFlags::BREAK_IN_PROGRESS)
        };
        let state = lease.filter(is_held).map(|lease| lease.lease_state);
        status.granted(state.unwrap_or_default());
    }

    /// Notes that the server holds this right no longer.
    pub(crate) fn lost(&self) {
        if let Self::Leased { status, .. } = self {
            status.lost();
        }
    }

    /// Returns the state of the lease, if there is one.
    pub(crate) fn lease(&self) -> Option<&Arc<LeaseStatus>> {
        match self {
            Self::Leased { status, .. } => Some(status),
            _ => None,
        }
    }
}

impl Drop for CachingRight {
    fn drop(&mut self) {
        if let Self::Leased {
            key, leases, status, ..
        } = self
        {
            leases.remove(key);
            // Whoever still looks at it holds nothing any more.
            status.lost();
            status.set_holder(None);
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
        let of = |dialect, capabilities| CachingRight::of(dialect, capabilities, &leases).unwrap();
        let leasing = Capabilities::LEASING;
        assert!(matches!(of(Dialect::Smb202, leasing), CachingRight::Batch));
        assert!(matches!(
            of(Dialect::Smb311, Capabilities::default()),
            CachingRight::Batch
        ));
        assert!(matches!(
            of(Dialect::Smb210, leasing).context(None),
            Some(RequestContext::Lease(_))
        ));
        for dialect in [Dialect::Smb300, Dialect::Smb302, Dialect::Smb311] {
            let right = of(dialect, leasing);
            assert_eq!(right.level(), OplockLevel::Lease);
            let Some(RequestContext::LeaseV2(asked)) = right.context(None) else {
                panic!("{dialect:?}");
            };
            let wanted = LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING;
            assert_eq!(asked.lease.lease_state, wanted);
        }
    }

    #[test]
    fn lease_breaks_are_acknowledged_until_the_right_is_dropped() {
        let (oplocks, leases) = (Oplocks::default(), Arc::default());
        let right = CachingRight::of(Dialect::Smb311, Capabilities::LEASING, &leases).unwrap();
        let CachingRight::Leased { key, .. } = &right else {
            panic!("{right:?}");
        };
        let key = *key;
        let first = broken(key, LeaseState::READ_CACHING, LeaseBreakFlags::ACK_REQUIRED);
        assert_eq!(answer(&first, &oplocks, &leases), None, "not registered yet");
        right.register((TreeId(3), true));
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
    fn a_break_that_overtakes_the_reply_counts() {
        let (oplocks, leases) = (Oplocks::default(), Arc::default());
        let right = CachingRight::of(Dialect::Smb311, Capabilities::LEASING, &leases).unwrap();
        let CachingRight::Leased { key, .. } = &right else {
            panic!("{right:?}");
        };
        let key = *key;
        let lease = Lease {
            lease_key: key,
            lease_state: LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING,
            lease_flags: LeaseFlags::default(),
        };
        right.register((TreeId(3), true));
        right.granted(&[ResponseContext::Lease(lease)]);
        assert!(right.lease().unwrap().may_cache_reads());
        let to_none = broken(key, LeaseState::default(), LeaseBreakFlags::default());
        answer(&to_none, &oplocks, &leases);
        assert!(!right.lease().unwrap().may_cache_reads());
        right.register((TreeId(3), true));
        answer(&to_none, &oplocks, &leases);
        right.granted(&[ResponseContext::Lease(lease)]);
        assert!(!right.lease().unwrap().may_cache_reads(), "the break came first");
        right.register((TreeId(3), true));
        right.granted(&[ResponseContext::Lease(lease)]);
        assert!(right.lease().unwrap().may_cache_reads());
        right.lost();
        assert!(!right.lease().unwrap().may_cache_reads());
    }

    /// Takes the breaks of a test.
    #[derive(Default)]
    struct Taken(Mutex<Vec<BrokenLease>>);

    impl LeaseHolder for Taken {
        fn broke(&self, broken: BrokenLease) {
            self.0.lock().push(broken);
        }

        fn suspended(&self) {}
    }

    #[test]
    fn the_holder_of_a_lease_acknowledges_its_breaks() {
        let (oplocks, leases) = (Oplocks::default(), Arc::default());
        let right = CachingRight::of(Dialect::Smb311, Capabilities::LEASING, &leases).unwrap();
        let CachingRight::Leased { key, status, .. } = &right else {
            panic!("{right:?}");
        };
        let taken = Arc::new(Taken::default());
        right.register((TreeId(3), true));
        status.granted(LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING);
        let ContentLease::Held { epoch } = status.content() else {
            panic!("{status:?}");
        };
        status.set_holder(Some(Arc::clone(&taken) as Arc<dyn LeaseHolder>));
        let first = broken(*key, LeaseState::READ_CACHING, LeaseBreakFlags::ACK_REQUIRED);
        assert_eq!(answer(&first, &oplocks, &leases), None, "the holder does it");
        assert_eq!(status.content(), ContentLease::Held { epoch }, "reads stay");
        leases.suspend();
        assert_eq!(status.content(), ContentLease::Suspended { epoch });
        let rest = broken(*key, LeaseState::default(), LeaseBreakFlags::default());
        assert_eq!(answer(&rest, &oplocks, &leases), None);
        assert_eq!(status.content(), ContentLease::Broken);
        let taken = std::mem::take(&mut *taken.0.lock());
        let answered: Vec<bool> = taken.iter().map(|broken| broken.answer.is_some()).collect();
        assert_eq!(answered, [true, false]);
        right.register((TreeId(3), true));
        status.granted(LeaseState::READ_CACHING);
        assert!(matches!(status.content(), ContentLease::Held { epoch: now } if now > epoch));
        let status = Arc::clone(status);
        drop(right);
        assert_eq!(status.content(), ContentLease::None, "its handle is closed");
        assert!(status.holder.lock().is_none());
    }

    #[test]
    fn an_oplock_break_is_acknowledged_once() {
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
