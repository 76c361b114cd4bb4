//! What all connections of a server share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use ropeway_smb_proto::auth::Identity;
use ropeway_smb_proto::server::hub::{Event, FileKey, Hub};
use ropeway_smb_proto::server::{Config, ConnectionId, Session, Sessions};
use ropeway_smb_wire::rpc::sessions::SessionInfo;
use ropeway_smb_wire::security::Sid;
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{FileTime, SessionId, Text};

use super::audit::{Audit, Record};
use super::mailbox::{Mailbox, Message};
use super::names::Names;
use super::open::{Handle, Open};
use super::output::Unsent;
use super::outside::Caches;
use super::pipes::PipeHost;
use super::pool::Pool;
use super::posix::{self, PosixLocks};
use super::share::{Share, Token};

/// Locks for appending, shared by many files (a guess: threads of a server and some).
const APPEND_LOCKS: usize = 64;

/// The heart of a server: tables and settings.
pub(crate) struct Shared {
    pub(super) config: Arc<Config>,
    pub(super) name: String,
    /// By index, which trees and the hub know them by; a share that is no more leaves a gap.
    pub(super) shares: RwLock<Vec<Option<Arc<Share>>>>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) pool: Pool,
    pub(super) counters: Counters,
    pub(super) names: Names,
    pub(super) audit: Option<Arc<dyn Audit>>,
    /// Gives the system back what was freed.
    pub(super) give_back: Option<fn()>,
    pub(super) login_time: Duration,
    /// Answers that clients have not taken.
    pub(super) unsent: Arc<Unsent>,
    /// For clients to take something of them.
    pub(super) send_time: Duration,
    /// Changes the answers.
    #[cfg(feature = "fuzzing")]
    pub(super) liar: Option<Arc<dyn super::fuzzing::Liar>>,
    /// What is watched because clients may cache it.
    pub(super) caches: Arc<Caches>,
    /// Locks that local programs see.
    pub(super) posix: PosixLocks,
    /// Wakes who waits for the hub's timers.
    timer: OwnedFd,
    sessions: Mutex<Sessions>,
    tokens: Mutex<HashMap<SessionId, Login>>,
    hub: Mutex<Hub>,
    handles: RwLock<HashMap<u64, Handle>>,
    mailboxes: Mutex<HashMap<ConnectionId, Arc<Mailbox>>>,
    /// Where a file ends is looked at and written by one at a time of those who may only append.
    appends: [Mutex<()>; APPEND_LOCKS],
    started: Instant,
}

/// Who is logged in in a session, and since when.
struct Login {
    token: Arc<Token>,
    /// By the server's clock, in milliseconds.
    since_ms: u64,
}

/// Counts since the server started, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections taken.
    pub connections: AtomicU64,
    /// Connections that are open.
    pub connections_open: AtomicU64,
    /// Logins that succeeded.
    pub logins: AtomicU64,
    /// Logins that failed.
    pub logins_failed: AtomicU64,
    /// Requests executed.
    pub requests: AtomicU64,
    /// Bytes read by clients.
    pub bytes_read: AtomicU64,
    /// Bytes written by clients.
    pub bytes_written: AtomicU64,
}

impl Counters {
    /// One more, or some.
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// What a server starts with.
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) name: String,
    pub(super) shares: Vec<Arc<Share>>,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) io_threads: usize,
    pub(super) names: Names,
    pub(super) audit: Option<Arc<dyn Audit>>,
    /// Gives the system back what was freed.
    pub(super) give_back: Option<fn()>,
    pub(super) login_time: Duration,
    /// Bytes of answers that clients have not taken, at most.
    pub(super) unsent_max: usize,
    /// For clients to take something of their answers.
    pub(super) send_time: Duration,
    /// Changes the answers.
    #[cfg(feature = "fuzzing")]
    pub(super) liar: Option<Arc<dyn super::fuzzing::Liar>>,
    pub(super) hub: Hub,
    /// Byte-range locks and those of local programs exclude each other.
    pub(super) posix_locks: bool,
    /// Wakes who waits for the hub's timers.
    pub(super) timer: OwnedFd,
}

/// Locks a table. Whoever panicked with it locked did so between calls of a table's own methods, so it is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        Self {
            config: Arc::new(parts.config),
            name: parts.name,
            shares: RwLock::new(parts.shares.into_iter().map(Some).collect()),
            addresses: parts.addresses,
            pool: Pool::new(parts.io_threads),
            counters: Counters::default(),
            names: parts.names,
            audit: parts.audit,
            give_back: parts.give_back,
            login_time: parts.login_time,
            unsent: Arc::new(Unsent::new(parts.unsent_max)),
            send_time: parts.send_time,
            #[cfg(feature = "fuzzing")]
            liar: parts.liar,
            caches: Arc::default(),
            posix: PosixLocks::new(parts.posix_locks),
            timer: parts.timer,
            sessions: Mutex::default(),
            tokens: Mutex::default(),
            hub: Mutex::new(parts.hub),
            handles: RwLock::default(),
            mailboxes: Mutex::default(),
            appends: std::array::from_fn(|_| Mutex::default()),
            started: Instant::now(),
        }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.sessions)
    }

    pub(super) fn has_session(&self, id: SessionId) -> bool {
        self.sessions().get(id).is_some()
    }

    pub(super) fn hub(&self) -> MutexGuard<'_, Hub> {
        lock(&self.hub)
    }

    /// Milliseconds since the server started: the hub's clock.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The hub has a timer that may be due earlier than those before.
    pub(super) fn nudge(&self) {
        // Fails only when the counter is full, and then it is noticed anyway.
        _ = rustix::io::write(&self.timer, &1_u64.to_ne_bytes());
    }

    /// What is readable after [`Self::nudge`], until [`Self::was_nudged`].
    pub(super) fn timer_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Takes back the wake-up, before the timers are looked at.
    pub(super) fn was_nudged(&self) {
        _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
    }

    /// The wall clock.
    pub(super) fn now() -> FileTime {
        let now = unix_now();
        FileTime::from_unix(now.0, now.1)
    }

    pub(super) fn share(&self, index: u32) -> Option<Arc<Share>> {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        shares.get(index as usize).cloned().flatten()
    }

    /// The share of that name, and its index.
    pub(super) fn find_share(&self, name: &str) -> Option<(u32, Arc<Share>)> {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        let mut shares = (0..).zip(shares.iter());
        shares.find_map(|(index, share)| {
            let share = share.as_ref().filter(|share| share.is_called(name))?;
            Some((index, Arc::clone(share)))
        })
    }

    /// All shares there are.
    pub(super) fn all_shares(&self) -> Vec<Arc<Share>> {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        shares.iter().flatten().cloned().collect()
    }

    /// The shares of which that holds, by index.
    pub(super) fn share_indices(&self, is_it: impl Fn(&Share) -> bool) -> Vec<u32> {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        let shares = (0..).zip(shares.iter());
        shares
            .filter(|(_, share)| share.as_ref().is_some_and(|share| is_it(share)))
            .map(|(index, _)| index)
            .collect()
    }

    /// Other shares from now on. A share that stays keeps its index, so trees of it go on, with its new settings.
    pub(super) fn set_shares(&self, new: Vec<Share>) {
        let mut shares = self.shares.write().unwrap_or_else(PoisonError::into_inner);
        let mut old = std::mem::take(&mut *shares);
        shares.resize(old.len(), None);
        for share in new {
            let stays =
                |other: &Option<Arc<Share>>| other.as_ref().is_some_and(|other| other.is_called(&share.name));
            match old.iter().position(stays) {
                Some(index) => {
                    old[index] = None;
                    shares[index] = Some(Arc::new(share));
                }
                None => shares.push(Some(Arc::new(share))),
            }
        }
    }

    // Opens.

    pub(super) fn handle(&self, id: u64) -> Option<Handle> {
        self.handles
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
            .cloned()
    }

    pub(super) fn add_handle(&self, id: u64, handle: Handle) {
        self.handles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, handle);
    }

    pub(super) fn take_handle(&self, id: u64) -> Option<Handle> {
        self.handles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)
    }

    /// Taken by whoever may only append to a file, while it does.
    pub(super) fn appending(&self, file: &FileKey) -> MutexGuard<'_, ()> {
        lock(&self.appends[file.index as usize % APPEND_LOCKS])
    }

    pub(super) fn handles_count(&self) -> usize {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets the pipes of a session, or of a tree of it.
    pub(super) fn drop_pipes(&self, session: u64, tree: Option<u32>) {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|_, handle| match handle {
            Handle::Pipe(pipe) => pipe.session != session || tree.is_some_and(|tree| tree != pipe.tree),
            Handle::File(_) => true,
        });
    }

    // Who is logged in.

    pub(super) fn token(&self, session: SessionId) -> Option<Arc<Token>> {
        let tokens = lock(&self.tokens);
        tokens.get(&session).map(|login| Arc::clone(&login.token))
    }

    /// Who is logged in in a session, and the SIDs that it has beside those that every user has.
    pub(super) fn add_token(&self, session: &Session, held: Vec<Sid>) {
        let name = match &session.identity {
            Identity::Anonymous => None,
            Identity::User { user, .. } => Some(user.to_string_lossy()),
        };
        let mut token = match session.is_guest {
            true => Token::guest(),
            false => Token::of(name),
        };
        token.groups.extend(held);
        let login = Login {
            token: Arc::new(token),
            since_ms: self.now_ms(),
        };
        lock(&self.tokens).insert(session.id, login);
    }

    pub(super) fn remove_token(&self, session: SessionId) {
        lock(&self.tokens).remove(&session);
    }

    // Mail.

    pub(super) fn add_mailbox(&self, connection: ConnectionId, mailbox: Arc<Mailbox>) {
        lock(&self.mailboxes).insert(connection, mailbox);
    }

    pub(super) fn remove_mailbox(&self, connection: ConnectionId) {
        lock(&self.mailboxes).remove(&connection);
    }

    pub(super) fn post(&self, connection: ConnectionId, message: Message) -> bool {
        let mailbox = lock(&self.mailboxes).get(&connection).cloned();
        mailbox.is_some_and(|mailbox| {
            mailbox.send(message);
            true
        })
    }

    /// Brings what the hub has to say to those it concerns.
    pub(super) fn deliver(self: &Arc<Self>) {
        loop {
            let Some(event) = self.hub().poll_event() else {
                return;
            };
            match event {
                Event::Wake(waiter) => {
                    self.post(waiter.connection, Message::Wake(waiter.request));
                }
                Event::NotifyReady {
                    waiter,
                    status,
                    changes,
                } => {
                    self.post(
                        waiter.connection,
                        Message::Notify(waiter.request, status, changes),
                    );
                }
                Event::Break(order) => {
                    // The first that is still there ([MS-SMB2] 3.3.4.6).
                    let first = order
                        .client
                        .and_then(|client| self.sessions().break_connection(client, order.session));
                    for connection in first.into_iter().chain(order.connections) {
                        if self.post(connection, Message::Break(order.session, order.notification)) {
                            break;
                        }
                    }
                }
                Event::Expired(closed) => {
                    let handle = self.take_handle(closed.open.get());
                    if let Some(open) = handle.as_ref().and_then(Handle::file) {
                        posix::release(self, open);
                    }
                    // It is logged; nobody waits for an answer.
                    _ = super::ops::close::remove_deleted(
                        self,
                        &closed,
                        handle.as_ref().and_then(Handle::file),
                    );
                }
            }
        }
    }

    /// What IPC$ tells of this server to a user.
    pub(super) fn pipe_host(self: &Arc<Self>, token: &Token) -> Arc<PipeHost> {
        let shares = self.all_shares();
        // A pipe that is open belongs to the tables itself.
        let shared = Arc::downgrade(self);
        Arc::new(PipeHost {
            name: self.name.clone(),
            domain: self.name.clone(),
            comment: "Ropeway".to_owned(),
            shares: shares
                .iter()
                .map(|share| (share.name.clone(), share.comment.clone()))
                .collect(),
            user: (!token.is_anonymous).then(|| token.name.clone()),
            names: self.names.clone(),
            sessions: Box::new(move |user| match shared.upgrade() {
                Some(shared) => shared.sessions_of(user),
                None => Vec::new(),
            }),
        })
    }

    /// The sessions of a user.
    fn sessions_of(&self, user: &str) -> Vec<SessionInfo> {
        let asked = Text::from(user);
        let mut logins: Vec<(SessionId, u64)> = {
            let tokens = lock(&self.tokens);
            let own = tokens.iter().filter(|(_, login)| {
                !login.token.is_anonymous && upcase::equal(&Text::from(login.token.name.as_str()), &asked)
            });
            own.map(|(id, login)| (*id, login.since_ms)).collect()
        };
        logins.sort_unstable_by_key(|(id, since_ms)| (*since_ms, id.0));
        let mut opens: HashMap<u64, u32> = HashMap::new();
        for handle in self
            .handles
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            let session = match handle {
                Handle::File(open) => open.session.load(Ordering::Relaxed),
                Handle::Pipe(pipe) => pipe.session,
            };
            *opens.entry(session).or_default() += 1;
        }
        let now_ms = self.now_ms();
        let seconds = |from_ms: u64| u32::try_from(now_ms.saturating_sub(from_ms) / 1000).unwrap_or(u32::MAX);
        let info = |(id, since_ms): (SessionId, u64)| {
            let channels = self.sessions().get(id)?.channels().to_vec();
            let mailboxes = lock(&self.mailboxes);
            let boxes = || channels.iter().filter_map(|channel| mailboxes.get(channel));
            Some(SessionInfo {
                client: boxes().next()?.client.to_canonical().to_string().as_str().into(),
                user: asked.clone(),
                opens: opens.get(&id.0).copied().unwrap_or(0),
                time_s: seconds(since_ms),
                idle_s: seconds(boxes().map(|mailbox| mailbox.used_ms()).max()?),
            })
        };
        logins.into_iter().filter_map(info).collect()
    }

    /// A name that begins with a dot, where those are hidden.
    pub(super) fn is_hidden(open: &Open) -> bool {
        let name = open.path().file_name();
        open.share.hide_dot_files && name.is_some_and(|name| name.as_bytes().starts_with(b"."))
    }

    /// The index of a share.
    pub(super) fn share_index(&self, share: &Arc<Share>) -> Option<u32> {
        let shares = self.shares.read().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |other: &Option<Arc<Share>>| other.as_ref().is_some_and(|other| other.is_called(&share.name));
        let index = shares.iter().position(is_it)?;
        u32::try_from(index).ok()
    }

    /// Every connection is told to end.
    pub(super) fn stop_all(&self) {
        for mailbox in lock(&self.mailboxes).values() {
            mailbox.send(Message::Stop);
        }
    }

    pub(super) fn record(&self, record: &Record<'_>) {
        if let Some(audit) = &self.audit {
            audit.record(record);
        }
    }
}

/// Seconds and nanoseconds since 1970.
fn unix_now() -> (i64, u32) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    (
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        now.subsec_nanos(),
    )
}
