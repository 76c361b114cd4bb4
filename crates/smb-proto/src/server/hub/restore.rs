//! Opens that come back after a restart of the server. What was kept of them is not trusted: the
//! tables stay consistent, whatever it says.

use std::time::Duration;

use ropeway_smb_wire::create_context::LeaseState;
use ropeway_smb_wire::{SessionId, TreeId};

use super::caching::{Caching, NONE, R, W, valid};
use super::durability::Durability;
use super::ids::{FileKey, Holder, LeaseName, OpenId};
use super::lease::{LeaseRequest, LeaseRequestV2};
use super::locks::UNKNOWN_SEQUENCE;
use super::persistent::{KeptCaching, PersistentOpen};
use super::range::{Lock, Range};
use super::sequence::Sequence;
use super::share_mode::{ShareMode, is_oplock_stat};
use super::table::{Open, OpenInfo, PendingDeletion};
use super::{Hub, Timer};

/// The highest number of an open. Beyond it there is room for those of many more starts.
const NUMBER_MAX: u64 = 1 << 62;

/// Why an open cannot come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Its number is 0, too high, or used.
    #[error("its number is invalid or used already")]
    Number,
    /// There are too many opens or locks.
    #[error("there are too many opens or locks")]
    TooMany,
    /// Its share mode and that of another open exclude each other.
    #[error("another open of the file excludes it")]
    Denied,
    /// Its lease key belongs to another file.
    #[error("its lease is that of another file")]
    LeaseElsewhere,
    /// One of its locks is invalid, or excluded by another.
    #[error("one of its locks is invalid, or excluded by another")]
    Lock,
}

impl Hub {
    /// Sets the number that the ids of all later opens exceed. Ids never return, also not those of
    /// opens before a restart.
    pub fn continue_after(&mut self, number: u64) {
        self.last_open = self.last_open.max(number.min(NUMBER_MAX));
    }

    /// Returns the highest number of an open so far.
    pub fn last_number(&self) -> u64 {
        self.last_open
    }

    /// Restores a persistent open whose file was opened again, without a client: it waits for it as
    /// after the loss of a connection. `size` is the length of the file. Caching that does not fit
    /// that of other opens is lost; the client learns of it when it reconnects.
    ///
    /// # Errors
    /// The open does not fit. Nothing has changed.
    pub fn restore(&mut self, now: Duration, kept: &PersistentOpen, size: u64) -> Result<(), RestoreError> {
        let locks = self.check_restored(kept)?;
        let (lease, wanted, epoch) = match kept.caching {
            KeptCaching::Oplock(state) => (None, state, None),
            KeptCaching::Lease { key, state, epoch } => {
                let client = kept.client;
                (Some(LeaseName { client, key }), state, epoch)
            }
        };
        let state = self.restorable(kept, lease, wanted, size);
        self.continue_after(kept.id.get());
        self.tables.insert(Open {
            info: info_of(kept),
            oplock: Caching {
                state: if lease.is_some() { NONE } else { state },
                breaking: None,
            },
            lease,
            durable: Some(Durability {
                create_guid: Some(kept.create_guid),
                timeout_ms: kept.timeout_ms.min(self.limits.durable_timeout_max_ms),
                persistent: true,
            }),
            sequence: Sequence::new(kept.channel_sequence),
            lock_count: u32::try_from(locks.len()).unwrap_or(u32::MAX),
            lock_sequences: kept.lock_sequences.clone().map(|mut sequences| {
                let unknown = |number: &&mut u8| **number > 0xF;
                sequences
                    .iter_mut()
                    .filter(unknown)
                    .for_each(|number| *number = UNKNOWN_SEQUENCE);
                sequences
            }),
        });
        if let Some(name) = lease {
            let non_stat = !is_oplock_stat(kept.access);
            let open = (kept.id, non_stat);
            self.leases
                .restore(name, open, &kept.file, (wanted, epoch), state, kept.directory);
        }
        let holder = lease.map_or(Holder::Oplock(kept.id), Holder::Lease);
        self.take_write_caching(now, kept, holder);
        let breaking = kept
            .breaking
            .map(|breaking| (breaking.requested, breaking.required));
        self.resume_break(now, holder, breaking);
        self.restore_rest(now, kept, locks);
        self.update_caching(holder);
        Ok(())
    }

    /// Resumes a break. Others wait for its acknowledgment as long as for that of a new one.
    fn resume_break(&mut self, now: Duration, holder: Holder, kept: Option<(LeaseState, LeaseState)>) {
        // An oplock breaks to level II or to none.
        let kept = match holder {
            Holder::Oplock(_) => kept.map(|(requested, required)| (requested & R, required & R)),
            Holder::Lease(_) => kept,
        };
        if let Some(caching) = self.caching_mut(holder) {
            caching.resume(kept);
        }
        if self.is_breaking(holder) {
            let due = now.saturating_add(Duration::from_millis(self.limits.break_timeout_ms));
            self.set_timer(due, Timer::Break(holder));
        } else {
            self.clear_timer(Timer::Break(holder));
        }
    }

    /// Takes write caching from other holders, where this open reads or writes.
    fn take_write_caching(&mut self, now: Duration, kept: &PersistentOpen, own: Holder) {
        if is_oplock_stat(kept.access) {
            return;
        }
        for holder in self.holders(&kept.file, W, Some(own)) {
            match holder {
                Holder::Oplock(open) => {
                    if let Some(open) = self.tables.opens.get_mut(&open) {
                        open.oplock.state &= R;
                    }
                }
                Holder::Lease(name) => {
                    if let Some(held) = self.leases.get_mut(name) {
                        let known = held.caching.state;
                        held.lower(known, valid(known.difference(W)));
                    }
                }
            }
            self.resume_break(now, holder, None);
            self.update_caching(holder);
        }
    }

    /// Adds what does not depend on other opens: locks, the pending deletion, replays, the timer.
    fn restore_rest(&mut self, now: Duration, kept: &PersistentOpen, locks: Vec<Lock>) {
        self.tables.lock_count += locks.len();
        if let Some(stream) = self.tables.stream_mut(&kept.file) {
            stream.locks.extend(locks);
        }
        if let (Some(deletion), Some(base)) = (&kept.deletion, self.tables.bases.get_mut(&kept.file.base())) {
            let pending = PendingDeletion {
                share_id: kept.share_id,
                path: kept.path.clone(),
                directory: kept.directory,
                user: deletion.user.clone(),
                parent_lease: deletion.parent_lease,
            };
            base.mark(kept.file.stream.as_ref(), pending);
        }
        if kept.replayable {
            self.creates.restored((kept.client, kept.create_guid), kept.id);
        }
        self.persistent.add(kept.create_guid, kept.id);
        let timeout = kept.timeout_ms.min(self.limits.durable_timeout_max_ms);
        let due = now.saturating_add(Duration::from_millis(timeout.into()));
        self.set_timer(due, Timer::Durable(kept.id));
    }

    fn check_restored(&self, kept: &PersistentOpen) -> Result<Vec<Lock>, RestoreError> {
        let id = kept.id;
        if id.get() == 0 || id.get() >= NUMBER_MAX || self.tables.opens.contains_key(&id) {
            return Err(RestoreError::Number);
        }
        let limits = &self.limits;
        let counts = [
            (self.tables.opens.len() + 1, limits.opens_max),
            (self.persistent_count() + 1, limits.persistent_max),
            (kept.locks.len(), limits.locks_per_open_max as usize),
            (self.tables.lock_count + kept.locks.len(), limits.locks_max),
        ];
        if counts.iter().any(|(count, max)| count > max) {
            return Err(RestoreError::TooMany);
        }
        let mode = ShareMode {
            access: kept.access,
            share: kept.share_access,
        };
        if self.is_denied(&kept.file, mode) {
            return Err(RestoreError::Denied);
        }
        if let KeptCaching::Lease { key, .. } = kept.caching {
            let client = kept.client;
            if !self.lease_key_fits(LeaseName { client, key }, &kept.file) {
                return Err(RestoreError::LeaseElsewhere);
            }
        }
        self.restored_locks(id, &kept.file, kept)
    }

    /// Takes the locks from what was kept of an open that exclude those of an open which is there. A lock
    /// changed hands, and only the record of its new owner says so. Nothing is known of the open's lock
    /// requests then.
    pub fn drop_taken_locks(&self, kept: &mut PersistentOpen) {
        let others = self
            .tables
            .stream(&kept.file)
            .map_or(&[][..], |stream| &stream.locks);
        let (open, count) = (kept.id, kept.locks.len());
        kept.locks.retain(|one| {
            let lock = Range::new(one.offset, one.length).map(|range| Lock {
                open,
                range,
                exclusive: one.exclusive,
            });
            !lock.is_some_and(|lock| others.iter().any(|other| other.conflicts_with(&lock)))
        });
        if kept.locks.len() < count {
            kept.lock_sequences = None;
        }
    }

    fn restored_locks(
        &self,
        open: OpenId,
        file: &FileKey,
        kept: &PersistentOpen,
    ) -> Result<Vec<Lock>, RestoreError> {
        let others = self.tables.stream(file).map_or(&[][..], |stream| &stream.locks);
        if others.len() + kept.locks.len() > self.limits.locks_per_file_max {
            return Err(RestoreError::TooMany);
        }
        let mut locks: Vec<Lock> = Vec::with_capacity(kept.locks.len());
        for one in &kept.locks {
            let range = Range::new(one.offset, one.length).filter(|_| !kept.directory);
            let lock = Lock {
                open,
                range: range.ok_or(RestoreError::Lock)?,
                exclusive: one.exclusive,
            };
            // Those of one open are in the order in which they were granted.
            if others
                .iter()
                .chain(&locks)
                .any(|other| other.conflicts_with(&lock))
            {
                return Err(RestoreError::Lock);
            }
            locks.push(lock);
        }
        Ok(locks)
    }

    /// Returns the part of the caching that fits the opens that are there.
    fn restorable(
        &self,
        kept: &PersistentOpen,
        lease: Option<LeaseName>,
        wanted: LeaseState,
        size: u64,
    ) -> LeaseState {
        let supported = match &kept.caching {
            KeptCaching::Oplock(_) if kept.directory => NONE,
            KeptCaching::Oplock(_) => valid(wanted),
            KeptCaching::Lease { key, epoch, .. } => {
                let request = LeaseRequest {
                    key: *key,
                    state: wanted,
                    v2: epoch.map(|epoch| LeaseRequestV2 { parent: None, epoch }),
                };
                request.supported_state(kept.directory).unwrap_or(NONE)
            }
        };
        // Another open of the lease was restored before. It is consistent with all others.
        match lease.and_then(|name| self.leases.get(name)) {
            Some(_) => supported,
            None => self.grantable(&kept.file, Some(size), lease, supported),
        }
    }
}

fn info_of(kept: &PersistentOpen) -> OpenInfo {
    OpenInfo {
        id: kept.id,
        file: kept.file.clone(),
        connection: None,
        session: SessionId(0),
        tree: TreeId(0),
        client: kept.client,
        user: kept.user.clone(),
        share_id: kept.share_id,
        access: kept.access,
        share_access: kept.share_access,
        directory: kept.directory,
        delete_on_close: kept.delete_on_close,
        path: kept.path.clone(),
        parent_lease: kept.parent_lease,
        app_instance: kept.app_instance,
    }
}
