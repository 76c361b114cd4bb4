//! Waiting requests, and waking them.

use ropeway_smb_wire::{NtStatus, SessionId};

use super::event::Event;
use super::ids::{BaseKey, ConnectionId, OpenId, WaiterId};
use super::wait_queue::Wait;
use super::{Hub, Timer};

impl Hub {
    /// Ends the wait of a request that was cancelled, answered, or lost with its connection. It
    /// will not be woken.
    pub fn forget(&mut self, waiter: WaiterId) {
        if self.creates.is_orphan(waiter) {
            // The loss of its connection has been handled.
            return;
        }
        self.stop_waiting(waiter);
        self.creates.done(waiter);
        self.retract_events(|other| other == waiter);
    }

    /// Removes events that were not polled yet.
    fn retract_events(&mut self, whose: impl Fn(WaiterId) -> bool) {
        self.events.retain(|event| match event {
            Event::Wake(waiter) | Event::NotifyReady { waiter, .. } => !whose(*waiter),
            Event::Break(_) | Event::Expired(_) => true,
        });
    }

    /// Ends the waits of all requests of a connection.
    pub(super) fn forget_connection(
        &mut self,
        connection: ConnectionId,
        moved: &[(SessionId, ConnectionId)],
    ) {
        for waiter in self.waits.of_connection(connection) {
            let lives_on = |session| moved.iter().any(|(moved, _)| *moved == session);
            if !self.creates.orphan(waiter, lives_on) {
                self.stop_waiting(waiter);
            }
        }
        self.creates.done_connection(connection);
        self.retract_events(|waiter| waiter.connection == connection);
    }

    /// Lets the request wait. Returns `false` if too many wait already.
    pub(super) fn wait(&mut self, waiter: WaiterId, wait: Wait) -> bool {
        self.stop_waiting(waiter);
        if self.waits.len() >= self.limits.waiters_max {
            return false;
        }
        match &wait {
            Wait::Breaks { base, .. } | Wait::PipeData(base) => {
                let Some(base) = self.tables.bases.get_mut(base) else {
                    return false;
                };
                base.waiters.insert(waiter);
            }
            Wait::Lock(lock) | Wait::LocalLock(lock) => {
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

    /// Lets a READ of an empty pipe wait for [`Self::pipe_has_data`] or the close of the pipe.
    ///
    /// # Errors
    /// `STATUS_FILE_CLOSED` without such an open, `STATUS_INSUFFICIENT_RESOURCES` if too many
    /// requests wait already.
    pub fn wait_for_pipe(&mut self, pipe: OpenId, waiter: WaiterId) -> Result<(), NtStatus> {
        let base = self.info(pipe).map(|info| info.file.base());
        let base = base.ok_or(NtStatus::FILE_CLOSED)?;
        match self.wait(waiter, Wait::PipeData(base)) {
            true => Ok(()),
            false => Err(NtStatus::INSUFFICIENT_RESOURCES),
        }
    }

    /// Wakes the READs that wait for data of a pipe.
    pub fn pipe_has_data(&mut self, pipe: OpenId) {
        let base = self.info(pipe).map(|info| info.file.base());
        let base = base.and_then(|base| self.tables.bases.get(&base));
        let waiters: Vec<_> = base.map_or_else(Vec::new, |base| base.waiters.iter().copied().collect());
        for waiter in waiters {
            self.wake(waiter);
        }
    }

    pub(super) fn stop_waiting(&mut self, waiter: WaiterId) {
        let wait = self.waits.remove(waiter);
        if matches!(wait, Some(Wait::LocalLock(_))) {
            self.clear_timer(Timer::Lock(waiter));
        }
        match wait {
            Some(Wait::Breaks { base, .. } | Wait::PipeData(base)) => {
                if let Some(base) = self.tables.bases.get_mut(&base) {
                    base.waiters.remove(&waiter);
                }
            }
            Some(Wait::Lock(lock) | Wait::LocalLock(lock)) => {
                let Some(file) = self.info(lock.open).map(|info| info.file.clone()) else {
                    return;
                };
                if let Some(stream) = self.tables.stream_mut(&file) {
                    stream.lock_waiters.retain(|other| *other != waiter);
                }
            }
            Some(Wait::Changes(open)) => self.watches.stop_waiting(open, waiter),
            None => {}
        }
    }

    pub(super) fn wake(&mut self, waiter: WaiterId) {
        self.stop_waiting(waiter);
        if self.creates.is_orphan(waiter) {
            // The create has no connection. A replay of it starts anew.
            self.creates.done(waiter);
        } else {
            self.events.push_back(Event::Wake(waiter));
        }
    }

    /// Wakes the requests of a file whose breaks have all ended.
    pub(super) fn wake_after_breaks(&mut self, base: BaseKey) {
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
