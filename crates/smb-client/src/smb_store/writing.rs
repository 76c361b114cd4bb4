//! Writes of a file: gathered, sent in the background, flushed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_smb_wire::NtStatus;
use ropeway_vfs::{Error, ErrorKind, File as _, Op, Result};

use super::reading::OFFSET_MAX;
use super::shared_file::{Content, SharedFile};
use super::write_back::Outgoing;
use crate::error::{Error as ClientError, LostReason};
use crate::smb_tree::errors::tree_error;

/// Writes of one file on their way. The blocks of the store limit those of all files.
const SENDS_MAX: usize = 64;
/// Separate unsent ranges from which on short ones are sent without waiting for more. A guess.
const RANGES_MAX: usize = 64;
/// How long a short range waits for the next write. A guess: programs that write in sequence write
/// again sooner.
const PAUSE: Duration = Duration::from_millis(50);
/// Pauses that a short range waits at most while a program goes on writing. A guess: somebody who
/// reads the file elsewhere sees its end half a second later.
const PAUSES_MAX: usize = 10;
/// Attempts to make a file durable whose server keeps losing it.
const ATTEMPTS: usize = 4;
/// Attempts to send a write whose outcome is unknown.
const SEND_ATTEMPTS: usize = 3;

impl SharedFile {
    /// Takes a write. It returns before the server has it.
    pub(super) async fn write(self: &Arc<Self>, data: &[u8], offset: u64) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= OFFSET_MAX);
        let Some(end) = end else {
            return Err(self.error(Op::Write, ErrorKind::FileTooLarge));
        };
        let file = self.handle(true).await?;
        let mut at = offset;
        for piece in data.chunks(self.store.block) {
            if !self.store.has_room(piece.len() as u64) {
                self.store
                    .make_room(piece.len() as u64, &self.last_path())
                    .await?;
            }
            let _guard = self.exclusive.read().await;
            self.with_content(|content| {
                let upto = at + piece.len() as u64;
                let extends = upto > file.known_length().max(content.write.unanswered_end());
                content.write.write(at, piece);
                content.buffers.invalidate(&(at..upto), extends);
                content.changes += 1;
            });
            at += piece.len() as u64;
            self.send_soon();
        }
        debug_assert_eq!(at, end);
        self.store.changed_file(self);
        if self.store.is_filling() {
            self.flush_soon();
        }
        Ok(())
    }

    /// Sends full blocks now, and what remains after a pause.
    fn send_soon(self: &Arc<Self>) {
        let is_scattered = self.content.lock().write.ranges() >= RANGES_MAX;
        self.send(is_scattered);
        let mut content = self.content.lock();
        if content.write.is_answered() || content.send_all || content.is_send_planned {
            return;
        }
        content.is_send_planned = true;
        let mut before = content.changes;
        drop(content);
        let this = Arc::clone(self);
        self.store.spawn(async move {
            for _ in 0..PAUSES_MAX {
                tokio::time::sleep(PAUSE).await;
                let changes = this.content.lock().changes;
                if std::mem::replace(&mut before, changes) == changes {
                    break;
                }
            }
            this.content.lock().is_send_planned = false;
            this.send(true);
        });
    }

    /// Sends full blocks, or with `all` everything. After an error it sends nothing until the error
    /// was reported.
    fn send(self: &Arc<Self>, all: bool) {
        let mut content = self.content.lock();
        content.send_all |= all;
        if content.error.is_some() {
            return;
        }
        let all = content.send_all;
        while content.sends < SENDS_MAX {
            let Some(outgoing) = content.write.take(all) else {
                // What is left waits for a write that it overlaps, if any. What is written from now
                // on is gathered.
                content.send_all &= content.write.ranges() > 0;
                break;
            };
            content.sends += 1;
            self.store.spawn(Arc::clone(self).send_one(outgoing));
        }
    }

    async fn send_one(self: Arc<Self>, outgoing: Outgoing) {
        let mut sent = Ok(());
        for _ in 0..SEND_ATTEMPTS {
            sent = self.send_once(&outgoing).await;
            // The block was encrypted in place and lost. The data is still here.
            if !sent
                .as_ref()
                .is_err_and(|error| is_lost(error, &LostReason::OutcomeUnknown))
            {
                break;
            }
        }
        self.with_content(|content| {
            content.sends -= 1;
            match sent {
                Ok(()) => {
                    content.write.answered(&outgoing);
                    let end = outgoing.offset + outgoing.data.len() as u64;
                    let before = content.answered_end.map_or(0, |(_, before)| before);
                    content.answered_end = Some((self.store.now(), end.max(before)));
                }
                Err(error) => {
                    tracing::debug!(%error, "a write in the background failed");
                    content.write.failed(&outgoing, may_pass(error.kind));
                    content.failed(&error);
                    content.error.get_or_insert(error);
                }
            }
        });
        // The server has set new times.
        self.store.changed_file(&self);
        self.send(false);
        self.notify();
        if self.store.is_filling() {
            self.flush_soon();
        }
    }

    async fn send_once(self: &Arc<Self>, outgoing: &Outgoing) -> Result<()> {
        let file = self.handle(true).await?;
        let mut block = self.store.writes.get().await;
        // Copied: the data stays here until the server has flushed it, and encryption works in
        // place.
        block.capacity_mut()[..outgoing.data.len()].copy_from_slice(&outgoing.data);
        block.set_len(outgoing.data.len());
        match file.write(block.freeze(), outgoing.offset).await {
            Err(error) if is_status(&error, NtStatus::FILE_LOCK_CONFLICT) => {
                self.write_under_locks(&file, &outgoing.data, outgoing.offset)
                    .await
            }
            sent => sent,
        }
    }

    /// Waits until the server has answered all writes.
    ///
    /// # Errors
    /// The first error of a write in the background since the last call.
    pub(super) async fn write_out(self: &Arc<Self>) -> Result<()> {
        let mut progress = self.progress.subscribe();
        loop {
            progress.mark_unchanged();
            {
                let mut content = self.content.lock();
                if let Some(error) = content.error.take() {
                    return Err(error);
                }
                if content.write.is_answered() {
                    break;
                }
            }
            self.send(true);
            // The sender lives as long as this file.
            let _ = progress.changed().await;
        }
        self.store.limit_unflushed_files().await;
        Ok(())
    }

    /// Waits until the server has flushed everything.
    ///
    /// # Errors
    /// As [`write_out`](Self::write_out); the flush failed.
    pub(super) async fn sync(self: &Arc<Self>) -> Result<()> {
        for _ in 0..ATTEMPTS {
            self.write_out().await?;
            if self.flush_answered().await? {
                return Ok(());
            }
        }
        Err(self.error(Op::Sync, ErrorKind::Network))
    }

    /// Flushes what the server has answered. Returns `false` if the server had lost the open file:
    /// then its writes are pending again.
    async fn flush_answered(self: &Arc<Self>) -> Result<bool> {
        let _guard = self.flushing.lock().await;
        if self.content.lock().is_in_doubt {
            // Another open file knows nothing of it: its FLUSH would succeed.
            return self.write_again().await.map(|()| false);
        }
        let (mark, changes, covers_all) = {
            let content = self.content.lock();
            if content.changes == content.flushed {
                return Ok(true);
            }
            let covers_all = content.write.is_answered();
            (content.write.begin_flush(), content.changes, covers_all)
        };
        let file = self.handle(true).await?;
        match file.flush_once().await {
            Ok(()) => {
                self.with_content(|content| {
                    content.write.flushed(mark);
                    // What was not answered when the flush began counts as changed still.
                    if covers_all && content.changes == changes {
                        content.flushed = changes;
                        content.lengths_set = None;
                        content.is_changed_there = false;
                    }
                });
                self.notify();
                Ok(true)
            }
            Err(ClientError::Lost(LostReason::WritesInDoubt)) => {
                self.content.lock().is_in_doubt = true;
                self.write_again().await.map(|()| false)
            }
            Err(error) => {
                let error = tree_error(Op::Sync, &self.last_path(), error);
                if !may_pass(error.kind) {
                    // The server may have dropped what it could not flush, and say so once, as Linux
                    // does. A second FLUSH proves something only if all is sent again before.
                    self.with_content(|content| {
                        content.write.rewrite();
                        content.failed(&error);
                    });
                }
                Err(error)
            }
        }
    }

    /// Opens a file again that the server had lost, and makes its unflushed writes pending.
    async fn write_again(self: &Arc<Self>) -> Result<()> {
        let in_doubt = || {
            let error = ClientError::Lost(LostReason::WritesInDoubt);
            tree_error(Op::Sync, &self.last_path(), error)
        };
        // What is still on its way uses the old handle, whose losses the new one would not notice.
        self.nothing_on_its_way().await;
        self.close();
        let file = self.handle(true).await?;
        let (lengths, is_changed_there) = {
            let content = self.content.lock();
            (content.lengths_set, content.is_changed_there)
        };
        tracing::info!(path = %self.last_path(), "the server lost the open file; sending its writes again");
        if let Some((least, last)) = lengths {
            file.set_len(least).await?;
            file.set_len(last).await?;
        }
        self.with_content(|content| {
            content.write.rewrite();
            content.changes += 1;
            content.is_in_doubt = false;
            if std::mem::take(&mut content.is_changed_there) {
                content.lost(ErrorKind::DeviceError);
            }
        });
        match is_changed_there {
            true => Err(in_doubt()),
            false => Ok(()),
        }
    }

    /// Waits until no write is on its way.
    pub(super) async fn nothing_on_its_way(&self) {
        let mut progress = self.progress.subscribe();
        loop {
            progress.mark_unchanged();
            if self.content.lock().sends == 0 {
                return;
            }
            // The sender lives as long as this file.
            let _ = progress.changed().await;
        }
    }

    /// Whether nothing is left but ranges that are too short to be sent.
    fn is_all_short(&self) -> bool {
        let content = self.content.lock();
        content.sends == 0 && !content.write.has_answered()
    }

    /// Flushes in the background what the server has answered, as long as the memory for unflushed
    /// data is short.
    pub(super) fn flush_soon(self: &Arc<Self>) {
        if self.content.lock().write.bytes() == 0 || self.is_flush_planned.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        self.store.spawn(async move {
            while this.store.is_filling() && this.content.lock().write.bytes() > 0 {
                this.send(this.is_all_short());
                let mut progress = this.progress.subscribe();
                progress.mark_unchanged();
                let is_error_kept = this.content.lock().error.is_some();
                let flushed = match is_error_kept {
                    true => Ok(false),
                    false => this.flush_answered().await,
                };
                if let Err(error) = flushed {
                    this.content.lock().error.get_or_insert(error);
                    break;
                }
                if is_error_kept {
                    break;
                }
                if this.store.is_filling() && !this.content.lock().write.has_answered() {
                    // The sender lives as long as this file.
                    let _ = progress.changed().await;
                }
            }
            this.is_flush_planned.store(false, Ordering::Release);
            this.store.room.notify_waiters();
        });
    }

    /// Notes that the whole content changed on the server, with `lengths` if the length was set.
    pub(super) fn changed_on_server(&self, change: impl FnOnce(&mut Content)) {
        self.with_content(|content| {
            content.changes += 1;
            content.buffers.clear();
            content.ahead.discarded();
            change(content);
        });
        self.store.changed_file(self);
    }
}

impl Content {
    /// Notes that a write or a flush failed.
    fn failed(&mut self, error: &Error) {
        if !may_pass(error.kind) {
            self.lost(error.kind);
        }
    }

    fn lost(&mut self, kind: ErrorKind) {
        self.losses += 1;
        self.last_loss = kind;
    }
}

/// Whether a write may succeed later: the connection failed, not the write.
fn may_pass(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Network
            | ErrorKind::Unreachable
            | ErrorKind::TimedOut
            | ErrorKind::Interrupted
            | ErrorKind::ServerExhausted
            | ErrorKind::Busy
    )
}

/// Whether an error is that of the client about a lost connection, with this reason.
pub(super) fn is_lost(error: &Error, reason: &LostReason) -> bool {
    matches!(client_error(error), Some(ClientError::Lost(lost)) if lost == reason)
}

/// Whether the server refused with this status.
pub(super) fn is_status(error: &Error, status: NtStatus) -> bool {
    client_error(error).and_then(ClientError::status) == Some(status)
}

fn client_error(error: &Error) -> Option<&ClientError> {
    let source = error.source.as_ref()?.get_ref()?;
    source.downcast_ref::<ClientError>()
}
