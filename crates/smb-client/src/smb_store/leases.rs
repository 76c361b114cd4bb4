//! Leases on files in use ([MS-SMB2] 3.2.5.19.2): what a break does before it is acknowledged.
//!
//! ```text
//! server ── break ──▶ driver: LeaseStatus, from then on nothing read earlier is valid
//!                       └─▶ task of the file: observer.breaking ─▶ write_out ─▶ acknowledge
//!                                               └─▶ observer.changed, a new lease if watched
//! ```
//! A file has at most one such task, and one break that waits for it: a server breaks a lease again
//! only after the acknowledgment ([MS-SMB2] 3.3.4.7).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ropeway_smb_wire::create_context::LeaseState;
use ropeway_vfs::external::{BREAK_MAX, ContentLease, ExternalChange, LeaseLeft, Watching};
use ropeway_vfs::{CacheMode, ErrorKind, File as _, Kind, Op, OpenOptions, Result};

use super::shared::Shared;
use super::shared_file::SharedFile;
use crate::caching::{BrokenLease, LeaseHolder};
use crate::channel::Control;
use crate::error::{Error as ClientError, LostReason};
use crate::smb_tree::SmbFile;

/// Shortest time between a break and the request for a new lease on a watched file. A guess: a
/// client that writes all the time costs one open and one break a second.
const RENEWAL_PAUSE: Duration = Duration::from_secs(1);

/// Takes the breaks of one open file.
struct FileLease(Weak<SharedFile>);

/// Sends the acknowledgment when it is dropped.
struct Acknowledgment<'a> {
    store: &'a Shared,
    broken: &'a mut BrokenLease,
}

impl Drop for Acknowledgment<'_> {
    fn drop(&mut self) {
        self.store.acknowledge(self.broken);
    }
}

/// A watch of a file. It keeps the file open, and with it the lease.
struct FileWatch(Arc<SharedFile>);

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.0.breaks.watches.fetch_sub(1, Ordering::AcqRel);
        self.0.end_use();
    }
}

/// Whether the server may still answer later.
fn may_come_back(error: &ClientError) -> bool {
    match error {
        ClientError::Lost(reason) => !matches!(reason, LostReason::HandleGone | LostReason::ClientClosed),
        _ => false,
    }
}

impl Shared {
    /// Acknowledges a break, once.
    pub(super) fn acknowledge(&self, broken: &mut BrokenLease) {
        if let Some((answer, place)) = broken.answer.take() {
            // A session that was lost meanwhile took the lease with it: then nobody waits for this.
            let session = self.tree.share.client().link().last();
            session.send_control(Control::Acknowledge { answer, place });
        }
    }
}

impl LeaseHolder for FileLease {
    fn broke(&self, broken: BrokenLease) {
        let Some(file) = self.0.upgrade() else { return };
        {
            let mut cache = file.store.cache.lock();
            file.names()
                .iter()
                .for_each(|path| cache.changed_attributes(path));
            cache.changed_file(file.id);
        }
        // One that was not acknowledged yet is replaced: the server has given it up.
        *file.breaks.waiting.lock() = Some(broken);
        file.run_breaks();
    }

    fn suspended(&self) {
        if let Some(file) = self.0.upgrade()
            && file.is_watched()
        {
            file.reclaim();
        }
    }
}

impl SharedFile {
    fn is_watched(&self) -> bool {
        self.breaks.watches.load(Ordering::Acquire) > 0
    }

    /// Takes the breaks of an open file's lease from now on.
    pub(super) fn hold_lease(&self, file: &SmbFile) {
        if let Some(lease) = file.lease() {
            lease.set_holder(Some(Arc::new(FileLease(Weak::clone(&self.this)))));
        }
    }

    /// Opens a watched file again after a lost connection, and reports it if its lease is lost:
    /// another client may have changed it meanwhile.
    fn reclaim(self: &Arc<Self>) {
        if self.breaks.is_reclaiming.swap(true, Ordering::AcqRel) {
            return;
        }
        let (this, before) = (Arc::downgrade(self), self.lease());
        self.store.spawn(async move {
            loop {
                let Some(this) = this.upgrade() else { return };
                let reopened = match this.held(false) {
                    Some(file) if this.is_watched() => file.handle().inner.opened().await.map(drop),
                    _ => Ok(()),
                };
                match reopened {
                    Err(error) if may_come_back(&error) && this.is_watched() => {}
                    reopened => {
                        this.breaks.is_reclaiming.store(false, Ordering::Release);
                        return this.reclaimed(before, reopened.is_ok());
                    }
                }
                drop(this);
                tokio::time::sleep(RENEWAL_PAUSE).await;
            }
        });
    }

    fn reclaimed(self: &Arc<Self>, before: ContentLease, is_open: bool) {
        let is_same = match (before, self.lease()) {
            (ContentLease::Suspended { epoch: before }, ContentLease::Held { epoch }) => epoch == before,
            // The session is lost again.
            (_, ContentLease::Suspended { .. }) if is_open && self.is_watched() => return self.reclaim(),
            (_, ContentLease::Suspended { .. }) => true,
            _ => false,
        };
        if !is_same && self.is_watched() {
            self.store.reports.changed(vec![ExternalChange::Node(self.id)]);
            self.renew_later();
        }
    }

    /// Starts the task that handles breaks, unless it runs.
    fn run_breaks(self: &Arc<Self>) {
        if self.breaks.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        self.store.spawn(async move {
            loop {
                let broken = this.breaks.waiting.lock().take();
                if let Some(broken) = broken {
                    this.handle_break(broken).await;
                    continue;
                }
                this.breaks.is_running.store(false, Ordering::Release);
                // One may have come before that.
                if this.breaks.waiting.lock().is_none() || this.breaks.is_running.swap(true, Ordering::AcqRel)
                {
                    return;
                }
            }
        });
    }

    async fn handle_break(self: &Arc<Self>, mut broken: BrokenLease) {
        let is_watched = self.is_watched();
        let left = match broken.left.contains(LeaseState::READ_CACHING) {
            true => LeaseLeft::Read,
            false => LeaseLeft::Nothing,
        };
        {
            let acknowledgment = Acknowledgment {
                store: &self.store,
                broken: &mut broken,
            };
            if is_watched {
                let made_ready = async {
                    self.store.reports.breaking(self.id, left).await;
                    // Its error is reported to whoever writes or flushes next.
                    if let Err(error) = self.write_out().await {
                        tracing::warn!(path = %self.last_path(), %error, "not written before a lease ends");
                    }
                };
                let _ = tokio::time::timeout(BREAK_MAX, made_ready).await;
            }
            drop(acknowledgment);
        }
        if is_watched && left == LeaseLeft::Nothing {
            self.store.reports.changed(vec![ExternalChange::Node(self.id)]);
            self.renew_later();
        }
    }

    /// Asks for a new lease after a pause.
    fn renew_later(self: &Arc<Self>) {
        if self.breaks.is_renewal_planned.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::downgrade(self);
        self.store.spawn(async move {
            tokio::time::sleep(RENEWAL_PAUSE).await;
            let Some(this) = this.upgrade() else { return };
            this.breaks.is_renewal_planned.store(false, Ordering::Release);
            if this.is_watched()
                && let Err(error) = this.renew().await
            {
                tracing::debug!(path = %this.last_path(), %error, "no new lease");
            }
        });
    }

    /// Opens the file again if its lease is lost, for a new one. A file with unflushed writes or
    /// locks keeps its handle, which they belong to.
    async fn renew(self: &Arc<Self>) -> Result<()> {
        let Some(held) = self.held(false) else {
            self.handle(false).await?;
            return Ok(());
        };
        let is_lost = held
            .lease()
            .is_none_or(|lease| matches!(lease.content(), ContentLease::None | ContentLease::Broken));
        let is_clean = {
            let content = self.content.lock();
            content.changes == content.flushed && content.write.is_answered()
        };
        if !is_lost || !is_clean || !self.locks.lock().await.is_empty() {
            return Ok(());
        }
        let (Some(path), writable) = (self.path(), self.held(true).is_some()) else {
            return Ok(());
        };
        let options = OpenOptions {
            write: writable,
            ..OpenOptions::read(CacheMode::default())
        };
        let parent = self.store.lease_key_for(&path);
        let file = SmbFile::open_beneath(&self.store.tree, &path, options, parent).await?;
        let is_same = file
            .at_open()
            .and_then(|metadata| metadata.id)
            .is_none_or(|id| id == self.id);
        if is_same {
            self.replace(&held, Arc::new(file), writable);
        }
        Ok(())
    }

    /// Returns the lease on the content.
    pub(super) fn lease(&self) -> ContentLease {
        let held = self.held(false);
        let lease = held.as_ref().and_then(|file| file.lease());
        lease.map_or(ContentLease::None, |lease| lease.content())
    }

    /// Watches the content by a lease.
    pub(super) async fn watch_content(self: &Arc<Self>) -> Result<Watching> {
        if self.kind != Kind::File {
            return Err(self.error(Op::Watch, ErrorKind::Unsupported));
        }
        self.begin_use();
        self.breaks.watches.fetch_add(1, Ordering::AcqRel);
        let watch = FileWatch(Arc::clone(self));
        self.handle(false).await?;
        self.renew().await?;
        match self.lease() {
            ContentLease::Held { .. } => Ok(Watching::new(watch)),
            _ => Err(self.error(Op::Watch, ErrorKind::Unsupported)),
        }
    }
}
