//! What an open file is on the server now, and how it is opened again when that is lost.
//!
//! ```text
//! standing ── connection lost ──> durable handle reclaimed ─────────────────────────> standing
//!                             └─> opened by path ── the same file (QFid, birth) ────> standing, writes in doubt
//!                                                └─ another ── `HandleGone`
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropeway_smb_proto::client::Reply;
use ropeway_smb_wire::create::{CreateDisposition, CreateResponse, OplockLevel};
use ropeway_smb_wire::header::{Command, HeaderFlags};
use ropeway_smb_wire::tree_connect::ShareType;
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId};

use crate::channel::{Awaiting, Closing, Side};
use crate::compound::size_told;
use crate::durable::Durability;
use crate::link::{Outcome, Session};
use crate::tree::{ATTEMPTS, Ran, Replay, Tree, check, first};
use crate::{Created, Error, LostReason, OpenFile, Operation, Result, Share, ops};

/// An open, and how to have it again.
pub(crate) struct HandleInner {
    pub(crate) share: Share,
    pub(crate) path: Text,
    open: OpenFile,
    pub(crate) created: Created,
    durability: Durability,
    state: Mutex<State>,
    reopening: tokio::sync::Mutex<()>,
    /// Writes begun, and how many of them the server has flushed.
    written: AtomicU64,
    flushed: AtomicU64,
    /// Something was written and not flushed when the server lost this open.
    is_doubtful: AtomicBool,
}

struct State {
    at: Opened,
    is_stale: bool,
    is_durable: bool,
    is_closed: bool,
}

/// Where a file is open.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    pub(crate) tree: Tree,
    pub(crate) file_id: FileId,
}

/// Whether the server does not know the open any more, though the connection stands.
pub(crate) fn is_stale(status: NtStatus) -> bool {
    matches!(status, NtStatus::FILE_CLOSED | NtStatus::NETWORK_NAME_DELETED)
}

/// What the reply to CREATE says.
fn created(reply: &Reply) -> Result<(Created, FileId)> {
    check("open", reply)?;
    let response = CreateResponse::decode(&mut reply.body())?;
    Ok((Created::from_wire(&response), response.file_id))
}

impl HandleInner {
    /// From the answer to a CREATE, the first of `ran`.
    pub(crate) fn new(
        share: &Share,
        path: &Text,
        open: &OpenFile,
        durability: Durability,
        ran: &Ran,
    ) -> Result<Self> {
        let (created, file_id) = created(first(&ran.replies)?)?;
        let at = Opened {
            session: Arc::clone(&ran.session),
            tree: ran.tree,
            file_id,
        };
        Ok(Self {
            share: share.clone(),
            path: path.clone(),
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
            is_doubtful: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write begins: counted before it is sent, so that whoever opens the file again knows of it.
    pub(crate) fn writes(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes begun so far: what a flush that begins now covers, of those that were answered.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The server has flushed what was `written` when the flush began: whether all of that was there.
    pub(crate) fn flushed(&self, written: u64) -> Result<()> {
        self.doubtless()?;
        self.flushed.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Whether no write was lost with an open before this one. Whoever flushes hears of it: only a new open writes anew.
    pub(crate) fn doubtless(&self) -> Result<()> {
        match self.is_doubtful.load(Ordering::Acquire) {
            true => Err(Error::Lost(LostReason::WritesInDoubt)),
            false => Ok(()),
        }
    }

    /// Where it is open, opened again if that was lost.
    pub(crate) async fn opened(&self) -> Result<Opened> {
        let (session, _) = self.share.inner().tree().await?;
        if let Some(at) = self.standing(&session) {
            return Ok(at);
        }
        let _guard = self.reopening.lock().await;
        for _ in 0..ATTEMPTS {
            let (session, tree) = self.share.inner().tree().await?;
            if let Some(at) = self.standing(&session) {
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

    fn standing(&self, session: &Session) -> Option<Opened> {
        let state = self.lock();
        (!state.is_stale && state.at.session.number == session.number).then(|| state.at.clone())
    }

    /// The server does not know this open any more.
    pub(crate) fn make_stale(&self, at: &Opened, status: NtStatus) {
        if status == NtStatus::NETWORK_NAME_DELETED {
            self.share.inner().forget(at.tree);
        }
        let mut state = self.lock();
        if state.at.file_id == at.file_id && state.at.session.number == at.session.number {
            state.is_stale = true;
        }
    }

    /// Opens it again; `None` if the connection was lost once more.
    async fn reopen(&self, session: &Arc<Session>, tree: Tree) -> Result<Option<Opened>> {
        if tree.share_type != ShareType::Disk {
            return Err(Error::Lost(LostReason::HandleGone));
        }
        let (before, is_durable) = {
            let state = self.lock();
            (state.at.file_id, state.is_durable && !state.is_stale)
        };
        if is_durable {
            let operation = self
                .durability
                .reclaim(&self.share, &tree, &self.path, &self.open, before);
            let Some(reply) = self.ask(session, tree, operation).await? else {
                return Ok(None);
            };
            match created(&reply) {
                Ok((_, file_id)) => {
                    tracing::debug!(path = %self.path, "durable handle reclaimed");
                    return Ok(Some(self.install(session, tree, file_id, true)));
                }
                Err(error) => tracing::debug!(path = %self.path, %error, "durable handle not reclaimed"),
            }
        }
        // The guid names the first open, which is lost; durable or not, this one is not asked to be, as a second guid
        // would have to be kept. A further cut opens by path again.
        let open = OpenFile {
            disposition: CreateDisposition::Open,
            allocation: None,
            security: None,
            ..self.open.clone()
        };
        let operation = self
            .share
            .inner()
            .create(&tree, &self.path, &open, OplockLevel::None, Vec::new());
        let Some(reply) = self.ask(session, tree, operation).await? else {
            return Ok(None);
        };
        let (found, file_id) = match created(&reply) {
            Err(Error::PeerRefused { status, .. }) if is_gone(status) => {
                tracing::debug!(path = %self.path, %status, "an open file is gone");
                return Err(Error::Lost(LostReason::HandleGone));
            }
            other => other?,
        };
        let is_same = match (found.on_disk_id, self.created.on_disk_id) {
            (Some(now), Some(before)) => now == before,
            // Servers without ids may make up a directory's birth.
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
            other.close_aside(None);
            return Err(Error::Lost(LostReason::HandleGone));
        }
        tracing::debug!(path = %self.path, "opened again by path");
        if self.written() > self.flushed.load(Ordering::Acquire) {
            self.is_doubtful.store(true, Ordering::Release);
        }
        Ok(Some(self.install(session, tree, file_id, false)))
    }

    async fn ask(&self, session: &Session, tree: Tree, operation: Operation) -> Result<Option<Reply>> {
        match session.exchange(tree.chain(vec![operation]), 0).await {
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

    /// Sends one request on this open until there is an answer.
    pub(crate) async fn run(
        &self,
        replay: Replay,
        mut build: impl FnMut(TreeId, FileId) -> Operation,
    ) -> Result<Vec<Reply>> {
        self.run_chain(replay, |tree, file| vec![build(tree, file)]).await
    }

    /// The same with several, related ones.
    pub(crate) async fn run_chain(
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
            match at.session.exchange(at.tree.chain(operations), 0).await {
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

    /// One step of a plain sequence; `None` if there is none.
    pub(crate) async fn step(
        &self,
        replay: Replay,
        build: impl FnOnce(TreeId, FileId) -> Result<Option<Operation>>,
    ) -> Result<Option<Reply>> {
        let at = self.opened().await?;
        let Some(operation) = build(at.tree.id, at.file_id)? else {
            return Ok(None);
        };
        match at.session.exchange(at.tree.chain(vec![operation]), 0).await {
            Outcome::Replied(replies) => Ok(replies.into_iter().next()),
            Outcome::Lost { sent, .. } if sent && replay == Replay::Once => {
                Err(Error::Lost(LostReason::OutcomeUnknown))
            }
            Outcome::Lost { .. } => Err(Error::Lost(LostReason::Closed)),
            Outcome::Failed { error, .. } => Err(error),
        }
    }

    /// Closes it on the server, once, and does not wait; `until` is let go when the server has answered.
    pub(crate) fn close_aside(&self, until: Option<Closing>) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_closed, true) {
            return;
        }
        let at = state.at.clone();
        drop(state);
        at.close_aside(until);
    }

    /// Closes it on the server and waits.
    /// `asks_size`: for the size that the server keeps, which it may not tell.
    pub(crate) async fn close(&self, asks_size: bool) -> Result<Option<u64>> {
        let at = {
            let mut state = self.lock();
            state.is_closed = true;
            state.at.clone()
        };
        at.close(asks_size).await
    }
}

impl Opened {
    /// Closes it on the server and waits.
    async fn close(&self, asks_size: bool) -> Result<Option<u64>> {
        self.session.common.oplocks.remove(&self.file_id);
        for _ in 0..ATTEMPTS {
            let operation = ops::close(self.tree.id, self.file_id, asks_size);
            match self.session.exchange(self.tree.chain(vec![operation]), 0).await {
                Outcome::Replied(replies) => {
                    let reply = first(&replies)?;
                    return match reply.status() {
                        status if is_stale(status) => Ok(None),
                        _ => check("close", reply).map(|()| size_told(reply)),
                    };
                }
                // Lost with one of several connections: the session stands, and with it the open.
                Outcome::Lost { .. } if self.session.is_standing() => {}
                Outcome::Lost { .. } => return Ok(None),
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Ok(None)
    }

    /// Closes it on the server without waiting; `until` is let go when the server has answered.
    pub(crate) fn close_aside(self, until: Option<Closing>) {
        let side = |until| Side::Close {
            tree: self.tree.id,
            file_id: self.file_id,
            encrypt: self.tree.is_sealed(),
            until,
        };
        let runtime = tokio::runtime::Handle::try_current().ok();
        let Some(runtime) = runtime.filter(|_| self.session.has_several_channels()) else {
            // With its only connection the session is lost, and with that the open.
            return self.session.aside(side(until.map(Awaiting::Closing)));
        };
        let (told, answered) = tokio::sync::oneshot::channel();
        self.session.aside(side(Some(Awaiting::Answer(told))));
        runtime.spawn(async move {
            if answered.await.is_err() {
                // Nobody hears what the server says to it.
                let _ = self.close(false).await;
            }
            drop(until);
        });
    }
}

/// What is sent again says so, if it is something that servers must not do twice ([MS-SMB2] 3.2.5.12, 3.2.5.14, 3.2.5.18).
/// Below 3.0 the connection leaves the flag away.
pub(crate) fn mark_replay(operation: &mut Operation, attempt: u32) {
    let counts = matches!(
        operation.command,
        Command::Write | Command::Ioctl | Command::SetInfo
    );
    if counts && attempt > 0 {
        operation.flags |= HeaderFlags::REPLAY_OPERATION;
    }
}

/// Whether the file is not there any more.
fn is_gone(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND | NtStatus::DELETE_PENDING
    )
}

impl Drop for HandleInner {
    fn drop(&mut self) {
        self.close_aside(None);
    }
}
