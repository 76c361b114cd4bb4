//! Requests that wait, and their waking.

use std::collections::BTreeMap;

use super::event::Event;
use super::ids::{BaseKey, ConnectionId, Holder, OpenId, WaiterId};
use super::range::Lock;
use super::{Hub, Timer};
use ropeway_smb_wire::SessionId;

/// What a request waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// The end of breaks, at one file.
    Breaks { base: BaseKey, holders: Vec<Holder> },
    /// Locks to go, for one of its own.
    Lock(Lock),
    /// Locks of local programs to go, for one of its own; a timer has it tried again.
    Outside(Lock),
    /// Changes, in the folder that is open.
    Changes(OpenId),
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Waits {
    all: BTreeMap<WaiterId, Wait>,
    /// Of these, for local programs.
    outside: usize,
}

impl Waits {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of those that wait for local programs.
    pub(super) fn outside(&self) -> usize {
        self.outside
    }

    pub(super) fn get(&self, waiter: WaiterId) -> Option<&Wait> {
        self.all.get(&waiter)
    }

    pub(super) fn insert(&mut self, waiter: WaiterId, wait: Wait) {
        self.remove(waiter);
        self.outside += usize::from(matches!(wait, Wait::Outside(_)));
        self.all.insert(waiter, wait);
    }

    pub(super) fn remove(&mut self, waiter: WaiterId) -> Option<Wait> {
        let wait = self.all.remove(&waiter);
        self.outside -= usize::from(matches!(wait, Some(Wait::Outside(_))));
        wait
    }

    fn of_connection(&self, connection: ConnectionId) -> Vec<WaiterId> {
        let at = |request| WaiterId { connection, request };
        self.all
            .range(at(0)..=at(u64::MAX))
            .map(|(waiter, _)| *waiter)
            .collect()
    }
}

impl Hub {
    /// The request waits no more: it was cancelled, answered, or its connection is lost. It will not be woken.
    pub fn forget(&mut self, waiter: WaiterId) {
        if self.creates.is_orphan(waiter) {
            // Its connection's loss has been dealt with.
            return;
        }
        self.unwait(waiter);
        self.creates.done(waiter);
        self.unsay(|other| other == waiter);
    }

    /// Takes back what was not polled yet.
    fn unsay(&mut self, whose: impl Fn(WaiterId) -> bool) {
        self.events.retain(|event| match event {
            Event::Wake(waiter) | Event::NotifyReady { waiter, .. } => !whose(*waiter),
            Event::Break(_) | Event::Expired(_) => true,
        });
    }

    /// No request of the connection waits any more.
    pub(super) fn forget_connection(
        &mut self,
        connection: ConnectionId,
        moved: &[(SessionId, ConnectionId)],
    ) {
        for waiter in self.waits.of_connection(connection) {
            let lives_on = |session| moved.iter().any(|(moved, _)| *moved == session);
            if !self.creates.orphan(waiter, lives_on) {
                self.unwait(waiter);
            }
        }
        self.creates.done_connection(connection);
        self.unsay(|waiter| waiter.connection == connection);
    }

    /// Puts the request among those that wait; `false` if there are too many.
    pub(super) fn wait(&mut self, waiter: WaiterId, wait: Wait) -> bool {
        self.unwait(waiter);
        if self.waits.len() >= self.limits.waiters_max {
            return false;
        }
        match &wait {
            Wait::Breaks { base, .. } => {
                let Some(base) = self.tables.bases.get_mut(base) else {
                    return false;
                };
                base.waiters.insert(waiter);
            }
            Wait::Lock(lock) | Wait::Outside(lock) => {
                let Some(file) = self.info(lock.open).map(|info| info.file.clone()) else {
                    return false;
                };
                if let Some(stream) = self.tables.stream_mut(&file) {
                    stream.lock_waiters.push(waiter);
                }
            }
            Wait::Changes(_) => {}
        }
        self.waits.insert(waiter, wait);
        true
    }

    pub(super) fn unwait(&mut self, waiter: WaiterId) {
        let wait = self.waits.remove(waiter);
        if matches!(wait, Some(Wait::Outside(_))) {
            self.clear_timer(Timer::Lock(waiter));
        }
        match wait {
            Some(Wait::Breaks { base, .. }) => {
                if let Some(base) = self.tables.bases.get_mut(&base) {
                    base.waiters.remove(&waiter);
                }
            }
            Some(Wait::Lock(lock) | Wait::Outside(lock)) => {
                let Some(file) = self.info(lock.open).map(|info| info.file.clone()) else {
                    return;
                };
                if let Some(stream) = self.tables.stream_mut(&file) {
                    stream.lock_waiters.retain(|other| *other != waiter);
                }
            }
            Some(Wait::Changes(open)) => self.watches.unwait(open, waiter),
            None => {}
        }
    }

    pub(super) fn wake(&mut self, waiter: WaiterId) {
        self.unwait(waiter);
        if self.creates.is_orphan(waiter) {
            // Nobody is there to go on with it. Who repeats it begins anew.
            self.creates.done(waiter);
        } else {
            self.events.push_back(Event::Wake(waiter));
        }
    }

    /// Wakes those at the file whose breaks have all ended.
    pub(super) fn wake_settled(&mut self, base: BaseKey) {
        let Some(waiters) = self.tables.bases.get(&base).map(|base| &base.waiters) else {
            return;
        };
        let ready: Vec<_> = waiters
            .iter()
            .filter(|waiter| match self.waits.get(**waiter) {
                Some(Wait::Breaks { holders, .. }) => !holders.iter().any(|holder| self.is_breaking(*holder)),
                _ => true,
            })
            .copied()
            .collect();
        for waiter in ready {
            self.wake(waiter);
        }
    }
}
