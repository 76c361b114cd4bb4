//! The waiting requests.

use std::collections::BTreeMap;

use super::ids::{BaseKey, ConnectionId, Holder, OpenId, WaiterId};
use super::range::Lock;

/// What a request waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// The end of breaks of one file.
    Breaks { base: BaseKey, holders: Vec<Holder> },
    /// The release of SMB locks that conflict with this lock.
    Lock(Lock),
    /// The release of a local process's lock that conflicts with this lock. A timer retries it.
    LocalLock(Lock),
    /// Changes in the open folder.
    Changes(OpenId),
    /// Data in a pipe.
    PipeData(BaseKey),
}

/// All waiting requests.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    all: BTreeMap<WaiterId, Wait>,
    /// Number of requests that wait for local processes.
    local_locks: usize,
}

impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of requests that wait for local processes.
    pub(super) fn local_locks(&self) -> usize {
        self.local_locks
    }

    pub(super) fn get(&self, waiter: WaiterId) -> Option<&Wait> {
        self.all.get(&waiter)
    }

    pub(super) fn insert(&mut self, waiter: WaiterId, wait: Wait) {
        self.remove(waiter);
        self.local_locks += usize::from(matches!(wait, Wait::LocalLock(_)));
        self.all.insert(waiter, wait);
    }

    pub(super) fn remove(&mut self, waiter: WaiterId) -> Option<Wait> {
        let wait = self.all.remove(&waiter);
        self.local_locks -= usize::from(matches!(wait, Some(Wait::LocalLock(_))));
        wait
    }

    pub(super) fn of_connection(&self, connection: ConnectionId) -> Vec<WaiterId> {
        let at = |request| WaiterId { connection, request };
        self.all
            .range(at(0)..=at(u64::MAX))
            .map(|(waiter, _)| *waiter)
            .collect()
    }
}
