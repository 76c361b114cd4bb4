//! The state of an open file on the server, and how the client opens it again after a loss.
//!
//! ```text
//! open ── connection lost ──> durable handle reclaimed ─────────────────> open
//!                         └─> opened by path ── the same file ──────────> open, writes in doubt
//!                                            └─ another file ───────────> `HandleGone`
//! ```
//! A file is the same if its id (QFid) or, without one, its creation time is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::create::{CreateDisposition, CreateResponse, OplockLevel};
use ropeway_smb_wire::header::{Command, HeaderFlags};
use ropeway_smb_wire::tree_connect::ShareType;
use ropeway_smb_wire::{FileId, LeaseKey, NtStatus, Text, TreeId};

use crate::caching::{CachingRight, LeaseStatus};
use crate::channel::{CloseGuard, CloseNotice, Control};
use crate::durable::Durability;
use crate::error::{Error, LostReason, Result};
use crate::open::{Created, OpenFile};
use crate::ops;
use crate::replies::{check, first, reported_size};
use crate::session::{Outcome, Session};
use crate::share::Share;
use crate::tree::{ATTEMPTS, Completed, Replay, Tree};

/// An open file, with all that is needed to open it again.
pub(crate) struct HandleInner {
    pub(crate) share: Share,
    pub(crate) path: Text,
    /// The path that the caller has given the file since it was opened.
    renamed: Mutex<Option<Text>>,
    open: OpenFile,
    pub(crate) created: Created,
    durability: Durability,
    state: Mutex<State>,
    reopening: tokio::sync::Mutex<()>,
    /// Number of writes begun, and how many of them the server has flushed.
    written: AtomicU64,
    flushed: AtomicU64,
    /// The server lost the open file while it had unflushed writes.
    has_lost_writes: AtomicBool,
}

struct State {
    at: Opened,
    is_stale: bool,
    is_durable: bool,
    is_closed: bool,
}

/// The session, tree and id in which a file is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    pub(crate) tree: Tree,
    pub(crate) file_id: FileId,
}

/// Returns whether the server no longer knows the handle, although the connection is up.
pub(crate) fn is_stale(status: NtStatus) -> bool {
    matches!(status, NtStatus::FILE_CLOSED | NtStatus::NETWORK_NAME_DELETED)
}

/// Decodes the reply to a CREATE, and records the lease that it grants.
fn created(reply: &Reply, right: &CachingRight) -> Result<(Created, FileId)> {
    check("open", reply)?;
    let response = CreateResponse::decode(&mut reply.body())?;
    right.granted(&response.contexts);
    Ok((Created::from_wire(&response), response.file_id))
}

impl HandleInner {
    /// Creates the state from the reply to a CREATE, the first of `completed`.
    pub(crate) fn new(
        share: &Share,
        path: &Text,
        open: &OpenFile,
        durability: Durability,
        completed: &Completed,
    ) -> Result<Self> {
        let (created, file_id) = created(first(&completed.replies)?, durability.right())?;
        let at = Opened {
            session: Arc::clone(&completed.session),
            tree: completed.tree,
            file_id,
        };
        Ok(Self {
            share: share.clone(),
            path: path.clone(),
            renamed: Mutex::default(),
            open: open.clone(),
            durability,
            state: Mutex::new(State {
                at,
                is_stale: false,
                is_durable: created.durable,
                is_closed: false,
            }),
            created,
            reopening: tokio::sync::Mutex::new(()),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            has_lost_writes: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Notes that the file has another path now, under which it is opened again.
    pub(crate) fn renamed(&self, path: &Text) {
        *self.renamed.lock() = Some(path.clone());
    }

    /// Returns the file's path as far as this client changed it.
    fn current_path(&self) -> Text {
        self.renamed.lock().clone().unwrap_or_else(|| self.path.clone())
    }

    /// Returns the lease of the open file, if it has one.
    pub(crate) fn lease(&self) -> Option<&Arc<LeaseStatus>> {
        self.durability.right().lease()
    }

    /// Returns the key of that lease, while it is held.
    pub(crate) fn lease_key(&self) -> Option<LeaseKey> {
        let right = self.durability.right();
        right
            .key()
            .filter(|_| self.lease().is_some_and(|lease| lease.may_cache_reads()))
    }

    /// Counts a write before it is sent, so that a task that reopens the file knows of it.
    pub(crate) fn count_write(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of writes begun so far. A flush that begins now covers those of them that
    /// were answered.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Notes that the server has flushed `written` writes. Fails if writes were lost before.
    pub(crate) fn flushed(&self, written: u64) -> Result<()> {
        self.check_no_lost_writes()?;
        self.flushed.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Fails if unflushed writes were lost with an earlier handle. Every later flush fails too:
    /// only a newly opened file starts afresh.
    pub(crate) fn check_no_lost_writes(&self) -> Result<()> {
        match self.has_lost_writes.load(Ordering::Acquire) {
            true => Err(Error::Lost(LostReason::WritesInDoubt)),
            false => Ok(()),
        }
    }

    /// Returns where the file is open, after opening it again if the handle was lost.
    pub(crate) async fn opened(&self) -> Result<Opened> {
        let (session, _) = self.share.inner().tree().await?;
        if let Some(at) = self.current(&session) {
            return Ok(at);
        }
        let _guard = self.reopening.lock().await;
        for _ in 0..ATTEMPTS {
            let (session, tree) = self.share.inner().tree().await?;
            if let Some(at) = self.current(&session) {
                return Ok(at);
            }
            match self.reopen(&session, tree).await {
                Ok(Some(at)) => return Ok(at),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::HandleGone))
    }

    fn current(&self, session: &Session) -> Option<Opened> {
        let state = self.lock();
        (!state.is_stale && state.at.session.number == session.number).then(|| state.at.clone())
    }

    /// Notes that the server no longer knows this handle.
    pub(crate) fn make_stale(&self, at: &Opened, status: NtStatus) {
        if status == NtStatus::NETWORK_NAME_DELETED {
            self.share.inner().forget(at.tree);
        }
        let mut state = self.lock();
        if state.at.file_id == at.file_id && state.at.session.number == at.session.number {
            state.is_stale = true;
        }
    }

    /// Opens the file again. Returns `None` if the connection was lost once more.
    async fn reopen(&self, session: &Arc<Session>, tree: Tree) -> Result<Option<Opened>> {
        if tree.share_type != ShareType::Disk {
            return Err(Error::Lost(LostReason::HandleGone));
        }
        let (before, is_durable) = {
            let state = self.lock();
            (state.at.file_id, state.is_durable && !state.is_stale)
        };
        let path = self.current_path();
        if is_durable {
            let operation = self
                .durability
                .reclaim(&self.share, &tree, &path, &self.open, before);
            let Some(reply) = self.ask(session, tree, operation).await? else {
                return Ok(None);
            };
            match created(&reply, self.durability.right()) {
                Ok((_, file_id)) => {
                    tracing::debug!(path = %self.path, "durable handle reclaimed");
                    return Ok(Some(self.install(session, tree, file_id, true)));
                }
                Err(error) => tracing::debug!(path = %self.path, %error, "durable handle not reclaimed"),
            }
        }
        // The GUID names the first handle, which is lost. This one is not requested as durable,
        // since a second GUID would have to be kept; after a further loss the file is opened by
        // path again.
        self.durability.right().lost();
        let open = OpenFile {
            disposition: CreateDisposition::Open,
            allocation: None,
            security: None,
            ..self.open.clone()
        };
        let operation = self
            .share
            .inner()
            .create(&tree, &path, &open, OplockLevel::None, Vec::new());
        let Some(reply) = self.ask(session, tree, operation).await? else {
            return Ok(None);
        };
        let (found, file_id) = match created(&reply, &CachingRight::None) {
            Err(Error::PeerRefused { status, .. }) if is_gone(status) => {
                tracing::debug!(path = %self.path, %status, "an open file no longer exists");
                return Err(Error::Lost(LostReason::HandleGone));
            }
            other => other?,
        };
        let is_same = match (found.on_disk_id, self.created.on_disk_id) {
            (Some(now), Some(before)) => now == before,
            // Servers without file ids may invent a directory's creation time.
            _ if found.is_directory() && self.created.is_directory() => true,
            _ => found.basic.creation_time == self.created.basic.creation_time,
        };
        if !is_same {
            tracing::debug!(path = %self.path, ?found, before = ?self.created, "another file has the name");
            let other = Opened {
                session: Arc::clone(session),
                tree,
                file_id,
            };
            other.close_detached(None);
            return Err(Error::Lost(LostReason::HandleGone));
        }
        tracing::debug!(path = %self.path, "opened again by path");
        if self.written() > self.flushed.load(Ordering::Acquire) {
            self.has_lost_writes.store(true, Ordering::Release);
        }
        Ok(Some(self.install(session, tree, file_id, false)))
    }

    async fn ask(&self, session: &Session, tree: Tree, operation: Operation) -> Result<Option<Reply>> {
        match session.exchange(tree.compound(vec![operation]), 0).await {
            Outcome::Replied(replies) => Ok(replies.into_iter().next()),
            Outcome::Lost { .. } => Ok(None),
            Outcome::Failed { error, .. } => Err(error),
        }
    }

    fn install(&self, session: &Arc<Session>, tree: Tree, file_id: FileId, is_durable: bool) -> Opened {
        let at = Opened {
            session: Arc::clone(session),
            tree,
            file_id,
        };
        let mut state = self.lock();
        state.at = at.clone();
        state.is_stale = false;
        state.is_durable = is_durable;
        at
    }

    /// Sends one request on this file until it is answered.
    pub(crate) async fn run(
        &self,
        replay: Replay,
        mut build: impl FnMut(TreeId, FileId) -> Operation,
    ) -> Result<Vec<Reply>> {
        self.run_compound(replay, |tree, file| vec![build(tree, file)])
            .await
    }

    /// Sends related requests on this file until they are answered.
    pub(crate) async fn run_compound(
        &self,
        replay: Replay,
        mut build: impl FnMut(TreeId, FileId) -> Vec<Operation>,
    ) -> Result<Vec<Reply>> {
        let mut is_reopened = false;
        for attempt in 0..ATTEMPTS {
            let at = self.opened().await?;
            let mut operations = build(at.tree.id, at.file_id);
            for operation in &mut operations {
                mark_replay(operation, attempt);
            }
            match at.session.exchange(at.tree.compound(operations), 0).await {
                Outcome::Replied(replies) => match first(&replies)?.status() {
                    NtStatus::NETWORK_SESSION_EXPIRED => {}
                    status if is_stale(status) && !is_reopened => {
                        is_reopened = true;
                        self.make_stale(&at, status);
                    }
                    _ => return Ok(replies),
                },
                Outcome::Lost { sent: true, .. } if replay == Replay::Once => {
                    return Err(Error::Lost(LostReason::OutcomeUnknown));
                }
                Outcome::Lost { .. } => {}
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// Sends one step of a sequence of single requests. Returns `None` if there is no such step.
    pub(crate) async fn step(
        &self,
        replay: Replay,
        build: impl FnOnce(TreeId, FileId) -> Result<Option<Operation>>,
    ) -> Result<Option<Reply>> {
        let at = self.opened().await?;
        let Some(operation) = build(at.tree.id, at.file_id)? else {
            return Ok(None);
        };
        match at.session.exchange(at.tree.compound(vec![operation]), 0).await {
            Outcome::Replied(replies) => Ok(replies.into_iter().next()),
            Outcome::Lost { sent, .. } if sent && replay == Replay::Once => {
                Err(Error::Lost(LostReason::OutcomeUnknown))
            }
            Outcome::Lost { .. } => Err(Error::Lost(LostReason::Closed)),
            Outcome::Failed { error, .. } => Err(error),
        }
    }

    /// Sends CLOSE, once, and does not wait. `guard` is dropped when the server has answered.
    pub(crate) fn close_detached(&self, guard: Option<CloseGuard>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_closed, true) {
            return;
        }
        let at = state.at.clone();
        drop(state);
        at.close_detached(guard);
    }

    /// Sends CLOSE and waits for the reply. `wants_size` asks for the file's size, which the server
    /// may not report.
    pub(crate) async fn close(&self, wants_size: bool) -> Result<Option<u64>> {
        let at = {
            let mut state = self.lock();
            state.is_closed = true;
            state.at.clone()
        };
        at.close(wants_size).await
    }
}

impl Opened {
    /// Sends CLOSE and waits for the reply.
    async fn close(&self, wants_size: bool) -> Result<Option<u64>> {
        self.session.shared.oplocks.remove(&self.file_id);
        for _ in 0..ATTEMPTS {
            let operation = ops::close(self.tree.id, self.file_id, wants_size);
            match self
                .session
                .exchange(self.tree.compound(vec![operation]), 0)
                .await
            {
                Outcome::Replied(replies) => {
                    let reply = first(&replies)?;
                    return match reply.status() {
                        status if is_stale(status) => Ok(None),
                        _ => check("close", reply).map(|()| reported_size(reply)),
                    };
                }
                // Lost with one of several connections: the session and the handle are still valid.
                Outcome::Lost { .. } if self.session.is_alive() => {}
                Outcome::Lost { .. } => return Ok(None),
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Ok(None)
    }

    /// Sends CLOSE without waiting. `guard` is dropped when the server has answered.
    pub(crate) fn close_detached(self, guard: Option<CloseGuard>) {
        let control = |notice| Control::Close {
            tree: self.tree.id,
            file_id: self.file_id,
            encrypt: self.tree.is_sealed(),
            notice,
        };
        let runtime = tokio::runtime::Handle::try_current().ok();
        let Some(runtime) = runtime.filter(|_| self.session.has_several_channels()) else {
            // The session is lost with its only connection, and the handle with the session.
            return self.session.send_control(control(guard.map(CloseNotice::Guard)));
        };
        let (notice, answered) = tokio::sync::oneshot::channel();
        self.session
            .send_control(control(Some(CloseNotice::Answer(notice))));
        runtime.spawn(async move {
            if answered.await.is_err() {
                // The reply is of no use: the caller has not waited for it.
                let _ = self.close(false).await;
            }
            drop(guard);
        });
    }
}

/// Marks a repeated request as a replay if servers must not carry it out twice ([MS-SMB2] 3.2.5.12,
/// 3.2.5.14, 3.2.5.18). Below 3.0 the connection clears the flag.
pub(crate) fn mark_replay(operation: &mut Operation, attempt: u32) {
    let counts = matches!(
        operation.command,
        Command::Write | Command::Ioctl | Command::SetInfo
    );
    if counts && attempt > 0 {
        operation.flags |= HeaderFlags::REPLAY_OPERATION;
    }
}

/// Returns whether the status says that the file no longer exists.
fn is_gone(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND | NtStatus::DELETE_PENDING
    )
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        self.close_detached(None);
    }
}
