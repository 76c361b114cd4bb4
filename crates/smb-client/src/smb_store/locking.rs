//! Byte-range locks of a file, on the server.
//!
//! The data of a locked range is the server's: taking a lock discards what was read ahead, and
//! releasing one writes out what was gathered.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::lock::{LockElement, LockFlags};
use ropeway_vfs::store::RangeLock;
use ropeway_vfs::{Op, Result};

use super::range_locks::{HeldLock, Holder, RangeLocks};
use super::shared_file::SharedFile;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::smb_tree::SmbFile;

/// Bytes written at once under a shared lock.
const UNDER_LOCKS_MAX: usize = 64 << 10;
/// Attempts to take a lock that gave way to a write, and the pause between them.
const TAKE_ATTEMPTS: usize = 50;
const TAKE_PAUSE: Duration = Duration::from_millis(20);

impl SharedFile {
    /// Changes a node's lock of a range. Returns `false` if another lock excludes it.
    pub(super) async fn lock_range(
        self: &Arc<Self>,
        holder: Holder,
        range: RangeInclusive<u64>,
        lock: RangeLock,
    ) -> Result<bool> {
        self.write_out().await?;
        let mut locks = self.locks.lock().await;
        let Some(plan) = locks.plan(holder, &range, lock) else {
            return Ok(false);
        };
        if plan.unlock.is_empty() && plan.lock.is_empty() {
            return Ok(true);
        }
        let file = self.handle(false).await?;
        let failed = |error| file.error(Op::Lock, error);
        for held in &plan.unlock {
            unlock(&file, held).await.map_err(failed)?;
            locks.released(held);
        }
        for (index, wanted) in plan.lock.iter().enumerate() {
            match take(&file, wanted).await {
                Ok(()) => locks.granted(wanted.clone()),
                Err(error) => {
                    give_back(&file, &mut locks, &plan.lock[..index], &plan.unlock).await;
                    return match is_conflict(&error) {
                        true => Ok(false),
                        false => Err(failed(error)),
                    };
                }
            }
        }
        drop(locks);
        let mut content = self.content.lock();
        content.buffers.clear();
        content.ahead.discarded();
        Ok(true)
    }

    /// Whether another node or another client holds a lock that excludes a node.
    pub(super) async fn is_range_locked(
        self: &Arc<Self>,
        holder: Holder,
        range: RangeInclusive<u64>,
        write: bool,
    ) -> Result<bool> {
        let locks = self.locks.lock().await;
        if locks.is_locked(holder, &range, write) {
            return Ok(true);
        }
        // The server is asked by taking the lock for a moment, unless an own lock is in the way.
        let lock = if write {
            RangeLock::Exclusive
        } else {
            RangeLock::Shared
        };
        let probe = locks
            .plan(holder, &range, lock)
            .filter(|plan| plan.unlock.is_empty());
        let Some(probe) = probe.and_then(|plan| plan.lock.into_iter().next()) else {
            return Ok(false);
        };
        let file = self.handle(false).await?;
        match take(&file, &probe).await {
            Ok(()) => {
                let released = unlock(&file, &probe).await;
                released
                    .map_err(|error| file.error(Op::Lock, error))
                    .map(|()| false)
            }
            Err(error) if is_conflict(&error) => Ok(true),
            Err(error) => Err(file.error(Op::Lock, error)),
        }
    }

    /// Sends a write that the server refused because of a lock. Locks of programs on Linux are
    /// advisory, those of a server are not: a shared lock excludes every write, also one of its owner.
    /// So shared locks of this store give way for the moment of the write.
    pub(super) async fn write_under_locks(&self, file: &SmbFile, data: &[u8], offset: u64) -> Result<()> {
        let failed = |error| file.error(Op::Write, error);
        let mut locks = self.locks.lock().await;
        let mut at = offset;
        for piece in data.chunks(UNDER_LOCKS_MAX) {
            let end = at + piece.len() as u64;
            let own = locks.shared_in(&(at..=end - 1));
            if own.is_empty() {
                let mut block = self.store.writes.get().await;
                block.capacity_mut()[..piece.len()].copy_from_slice(piece);
                block.set_len(piece.len());
                file.write(block.freeze(), at).await?;
            } else {
                let unlock: Vec<_> = own.iter().map(|lock| element(lock, LockFlags::UNLOCK)).collect();
                let shared = LockFlags::SHARED_LOCK | LockFlags::FAIL_IMMEDIATELY;
                let lock: Vec<_> = own.iter().map(|lock| element(lock, shared)).collect();
                let sent = file.write_between_locks(piece, at, &unlock, &lock).await;
                let (written, locked) = sent.map_err(failed)?;
                if locked.is_err() {
                    take_again(file, &mut locks, &own).await.map_err(failed)?;
                }
                written.map_err(failed)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Releases the locks of a node that is dropped, in the background.
    pub(super) fn release_locks_of(self: &Arc<Self>, holder: Holder) {
        // Nobody locks for a node that is being dropped; others may be busy.
        let has_none = self
            .locks
            .try_lock()
            .is_ok_and(|locks| locks.all_of(holder).is_empty());
        if has_none || self.kind != ropeway_vfs::Kind::File {
            return;
        }
        let this = Arc::clone(self);
        // A use, so that the file stays open until they are released.
        self.begin_use();
        self.store.spawn(async move {
            let written = this.write_out().await;
            if let Err(error) = written {
                this.store.keep_error(error);
            }
            let mut locks = this.locks.lock().await;
            let held = this.held(false);
            for lock in locks.all_of(holder) {
                if let Some(file) = &held {
                    // If that fails, the server releases them when the file is closed.
                    let _ = unlock(file, &lock).await;
                }
                locks.released(&lock);
            }
            drop(locks);
            this.end_use();
        });
    }
}

/// Restores the locks from before a change that failed: releases what it `taken`, and takes again
/// what it had `released`.
async fn give_back(file: &SmbFile, locks: &mut RangeLocks, taken: &[HeldLock], released: &[HeldLock]) {
    for lock in taken {
        // If that fails, the server releases it when the file is closed.
        let _ = unlock(file, lock).await;
        locks.released(lock);
    }
    for lock in released {
        match take(file, lock).await {
            Ok(()) => locks.granted(lock.clone()),
            Err(error) => tracing::warn!(%error, "a lock was lost while it was being changed"),
        }
    }
}

/// Takes shared locks again that gave way to a write. Another client may hold an exclusive one for
/// a moment.
///
/// # Errors
/// The first lock that was lost.
async fn take_again(file: &SmbFile, locks: &mut RangeLocks, lost: &[HeldLock]) -> ClientResult<()> {
    let mut result = Ok(());
    for lock in lost {
        let mut taken = take(file, lock).await;
        for _ in 0..TAKE_ATTEMPTS {
            if !taken.as_ref().is_err_and(is_conflict) {
                break;
            }
            tokio::time::sleep(TAKE_PAUSE).await;
            taken = take(file, lock).await;
        }
        if let Err(error) = taken {
            tracing::warn!(%error, "a lock was lost while data was written under it");
            locks.released(lock);
            result = result.and(Err(error));
        }
    }
    result
}

async fn take(file: &SmbFile, lock: &HeldLock) -> ClientResult<()> {
    let mode = match lock.exclusive {
        true => LockFlags::EXCLUSIVE_LOCK,
        false => LockFlags::SHARED_LOCK,
    };
    file.handle()
        .lock(element(lock, mode | LockFlags::FAIL_IMMEDIATELY))
        .await
}

async fn unlock(file: &SmbFile, lock: &HeldLock) -> ClientResult<()> {
    file.handle().lock(element(lock, LockFlags::UNLOCK)).await
}

fn element(lock: &HeldLock, flags: LockFlags) -> LockElement {
    LockElement {
        offset: *lock.range.start(),
        length: (lock.range.end() - lock.range.start()).saturating_add(1),
        flags,
    }
}

pub(super) fn is_conflict(error: &ClientError) -> bool {
    matches!(
        error.status(),
        Some(NtStatus::LOCK_NOT_GRANTED | NtStatus::FILE_LOCK_CONFLICT)
    )
}
