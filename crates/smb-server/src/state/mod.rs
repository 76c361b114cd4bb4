//! State that all connections of a server share: tables, settings and counters.
//!
//! Locks are held for single calls and never over I/O.

pub(crate) mod cache_watch;
pub(crate) mod figures;
pub(crate) mod kept_handles;
pub(crate) mod mailbox;
mod memory;
pub(crate) mod open;
pub(crate) mod posix_locks;
pub(crate) mod scan;
pub(crate) mod tunnel;
pub(crate) mod unsent;
pub(crate) mod workers;

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropeway_smb_proto::auth::Identity;
use ropeway_smb_proto::server::hub::{FileKey, Hub};
use ropeway_smb_proto::server::{Config, ConnectionId, Session, Sessions};
use ropeway_smb_wire::rpc::sessions::SessionInfo;
use ropeway_smb_wire::security::Sid;
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{FileTime, SessionId, Text};

use crate::accounts::AccountNames;
use crate::audit::{Audit, Record};
use crate::foreign::ForeignProtocol;
use crate::handle_journal::server_guid;
use crate::options::ServerOptions;
use crate::pipes::PipeHost;
use crate::share::Share;
use crate::token::Token;
use cache_watch::CacheWatches;
use figures::SessionFigures;
use kept_handles::KeptHandles;
use mailbox::{Mailbox, Message};
use memory::FreedMemory;
use open::{Handle, Open};
use posix_locks::PosixLocks;
use tunnel::Tunnel;
use unsent::UnsentBytes;
use workers::{JobClass, WorkerPool};

/// Maximum number of threads for requests that read much to answer little. A guess: half of the
/// processors are left to everything else.
const HASHER_THREADS_MAX: usize = 4;

fn hasher_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(1, HASHER_THREADS_MAX)
}

/// Number of locks for appending; several files share one (a guess: the threads of a server and
/// some).
const APPEND_LOCKS: usize = 64;

/// Maximum number of threads for requests that make many files: their flushes share a device's. A guess.
const FILE_MAKER_THREADS: usize = 4;
/// Maximum number of threads for requests that read many files. A guess.
const FILE_READER_THREADS: usize = 4;

/// Maximum number of threads for shares of far servers, each of which waits for a reply. A guess:
/// two full windows of a client's connection.
const FAR_THREADS: usize = 128;
/// The same for requests that only read. While the line is cut, some are answered at once and others
/// wait. A guess: the requests of eight connections.
const FAR_READER_THREADS: usize = 512;

/// Tables, settings and counters of a server.
pub(crate) struct SharedState {
    pub(crate) config: Arc<Config>,
    pub(crate) name: String,
    /// Shares by the index that trees and the hub know them by. A removed share leaves a gap.
    pub(crate) shares: RwLock<Vec<Option<Arc<Share>>>>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) workers: WorkerPool,
    /// Threads for shares of far servers: requests that wait for a line do not hold up others.
    far_workers: WorkerPool,
    /// Further ones for requests that only read: writes that wait for the line do not hold them up.
    far_readers: WorkerPool,
    /// Threads for requests that read much to answer little.
    hashers: WorkerPool,
    /// Threads for requests that make many files. Each has so many open at a time.
    file_makers: WorkerPool,
    /// Threads for requests that read many files.
    file_readers: WorkerPool,
    pub(crate) counters: Counters,
    /// Requests of sessions that have ended.
    pub(crate) past_figures: SessionFigures,
    pub(crate) accounts: AccountNames,
    pub(crate) audit: Option<Arc<dyn Audit>>,
    /// Another protocol.
    pub(crate) foreign: Option<Arc<dyn ForeignProtocol>>,
    pub(crate) memory: FreedMemory,
    pub(crate) login_timeout: Duration,
    /// Response bytes that clients have not received.
    pub(crate) unsent: Arc<UnsentBytes>,
    /// Time for clients to receive something of them.
    pub(crate) send_timeout: Duration,
    /// Changes the responses.
    #[cfg(feature = "fuzzing")]
    pub(crate) reply_mutator: Option<Arc<dyn crate::fuzzing::reply_mutator::ReplyMutator>>,
    /// Watches of files that clients may cache.
    pub(crate) cache_watches: Arc<CacheWatches>,
    /// Serialization of POSIX locks.
    pub(crate) posix_locks: PosixLocks,
    /// Names of files that were removed through their short names.
    pub(crate) tunnel: Tunnel,
    /// How far the journals of persistent handles are.
    pub(crate) kept_handles: KeptHandles,
    /// Wakes the thread that waits for the hub's timers.
    timer: OwnedFd,
    sessions: Mutex<Sessions>,
    tokens: Mutex<HashMap<SessionId, Login>>,
    hub: Mutex<Hub>,
    handles: RwLock<HashMap<u64, Handle>>,
    mailboxes: Mutex<HashMap<ConnectionId, Arc<Mailbox>>>,
    /// Serializes appends, which compare the offset with the length before they write.
    appends: [Mutex<()>; APPEND_LOCKS],
    started: Instant,
}

/// User of a session and time of the login.
struct Login {
    token: Arc<Token>,
    /// By the server's clock.
    since: Duration,
    figures: Arc<SessionFigures>,
}

/// A session, its user, the time of its login, and its figures.
pub(crate) type LoginFigures = (SessionId, Arc<Token>, Duration, Arc<SessionFigures>);

/// Counters since the start of the server, for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Accepted connections.
    pub connections: AtomicU64,
    /// Open connections.
    pub connections_open: AtomicU64,
    /// Successful logins.
    pub logins: AtomicU64,
    /// Failed logins.
    pub logins_failed: AtomicU64,
    /// Executed requests.
    pub requests: AtomicU64,
    /// Bytes that clients read.
    pub bytes_read: AtomicU64,
    /// Bytes that clients wrote.
    pub bytes_written: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl SharedState {
    /// Creates the state of a server that listens on `addresses`. `timer` is an eventfd that wakes
    /// the thread which waits for the hub's timers.
    pub(crate) fn new(mut options: ServerOptions, addresses: Vec<SocketAddr>, timer: OwnedFd) -> Self {
        let journals = options.shares.iter().filter_map(|share| share.journal.clone());
        let journals: Vec<_> = journals.collect();
        if !journals.is_empty() {
            options.config.persistent_handles = true;
            options.config.server_guid = server_guid(&journals, options.config.server_guid);
        }
        let netbios = options.config.names.netbios_computer.clone();
        let shares = options.shares.into_iter().map(|share| Some(Arc::new(share)));
        Self {
            config: Arc::new(options.config),
            name: options.name,
            shares: RwLock::new(shares.collect()),
            addresses,
            workers: WorkerPool::new(options.io_threads),
            far_workers: WorkerPool::new(FAR_THREADS),
            far_readers: WorkerPool::new(FAR_READER_THREADS),
            hashers: WorkerPool::new(hasher_threads()),
            file_makers: WorkerPool::new(FILE_MAKER_THREADS),
            file_readers: WorkerPool::new(FILE_READER_THREADS),
            counters: Counters::default(),
            past_figures: SessionFigures::default(),
            accounts: AccountNames::new(netbios, options.machine_sid, options.directory),
            audit: options.audit,
            foreign: options.foreign,
            memory: FreedMemory::new(options.release_memory, options.release_stack),
            login_timeout: options.login_timeout,
            unsent: Arc::new(UnsentBytes::new(options.unsent_max)),
            send_timeout: options.send_timeout,
            #[cfg(feature = "fuzzing")]
            reply_mutator: options.reply_mutator,
            cache_watches: Arc::default(),
            posix_locks: PosixLocks::new(options.posix_locks),
            tunnel: Tunnel::default(),
            kept_handles: KeptHandles::default(),
            timer,
            sessions: Mutex::default(),
            tokens: Mutex::default(),
            hub: Mutex::new(Hub::new(options.limits)),
            handles: RwLock::default(),
            mailboxes: Mutex::default(),
            appends: std::array::from_fn(|_| Mutex::default()),
            started: Instant::now(),
        }
    }

    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock()
    }

    /// Returns the threads for requests that wait for the store of a share. `reads`: the request
    /// changes nothing.
    pub(crate) fn workers_of(&self, is_far: bool, class: JobClass) -> &WorkerPool {
        match (is_far, class) {
            (_, JobClass::Hashes) => &self.hashers,
            (_, JobClass::MakesFiles) => &self.file_makers,
            (_, JobClass::ReadsFiles) => &self.file_readers,
            (true, JobClass::Reads) => &self.far_readers,
            (true, JobClass::Changes) => &self.far_workers,
            (false, _) => &self.workers,
        }
    }

    pub(crate) fn has_session(&self, id: SessionId) -> bool {
        self.sessions().get(id).is_some()
    }

    pub(crate) fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock()
    }

    /// Returns the time since the server started, which is the hub's clock.
    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Announces that a timer of the hub may be due earlier than before.
    pub(crate) fn wake_timer(&self) {
        // This fails only if the counter is full, and then the thread is woken anyway.
        _ = rustix::io::write(&self.timer, &1_u64.to_ne_bytes());
    }

    /// Returns the descriptor that is readable from [`Self::wake_timer`] to [`Self::clear_timer`].
    pub(crate) fn timer_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Resets the wake-up before the timers are read.
    pub(crate) fn clear_timer(&self) {
        _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
    }

    /// Returns the wall-clock time.
    pub(crate) fn wall_time() -> FileTime {
        let now = unix_now();
        FileTime::from_unix(now.0, now.1)
    }

    pub(crate) fn share(&self, index: u32) -> Option<Arc<Share>> {
        let shares = self.shares.read();
        shares.get(index as usize).cloned().flatten()
    }

    /// Returns the share with this name, and its index.
    pub(crate) fn find_share(&self, name: &str) -> Option<(u32, Arc<Share>)> {
        let shares = self.shares.read();
        let mut shares = (0..).zip(shares.iter());
        shares.find_map(|(index, share)| {
            let share = share.as_ref().filter(|share| share.has_name(name))?;
            Some((index, Arc::clone(share)))
        })
    }

    /// Returns all shares.
    pub(crate) fn all_shares(&self) -> Vec<Arc<Share>> {
        let shares = self.shares.read();
        shares.iter().flatten().cloned().collect()
    }

    /// Returns the indexes of the shares that match.
    pub(crate) fn share_indices(&self, is_it: impl Fn(&Share) -> bool) -> Vec<u32> {
        let shares = self.shares.read();
        let shares = (0..).zip(shares.iter());
        shares
            .filter(|(_, share)| share.as_ref().is_some_and(|share| is_it(share)))
            .map(|(index, _)| index)
            .collect()
    }

    /// Replaces the shares. A share that keeps its name keeps its index, so its trees continue with
    /// the new settings.
    pub(crate) fn set_shares(&self, new: Vec<Share>) {
        let mut shares = self.shares.write();
        let mut old = std::mem::take(&mut *shares);
        shares.resize(old.len(), None);
        for share in new {
            let stays =
                |other: &Option<Arc<Share>>| other.as_ref().is_some_and(|other| other.has_name(&share.name));
            match old.iter().position(stays) {
                Some(index) => {
                    old[index] = None;
                    shares[index] = Some(Arc::new(share));
                }
                None => shares.push(Some(Arc::new(share))),
            }
        }
    }

    pub(crate) fn handle(&self, id: u64) -> Option<Handle> {
        self.handles.read().get(&id).cloned()
    }

    pub(crate) fn add_handle(&self, id: u64, handle: Handle) {
        self.handles.write().insert(id, handle);
    }

    pub(crate) fn take_handle(&self, id: u64) -> Option<Handle> {
        self.handles.write().remove(&id)
    }

    /// Locks a file for an append.
    pub(crate) fn appending(&self, file: &FileKey) -> MutexGuard<'_, ()> {
        self.appends[file.index as usize % APPEND_LOCKS].lock()
    }

    pub(crate) fn handles_count(&self) -> usize {
        self.handles.read().len()
    }

    /// Drops the pipes of a session, or of one tree of it.
    pub(crate) fn drop_pipes(&self, session: u64, tree: Option<u32>) {
        let mut handles = self.handles.write();
        handles.retain(|_, handle| match handle {
            Handle::Pipe(pipe) => pipe.session != session || tree.is_some_and(|tree| tree != pipe.tree),
            Handle::File(_) => true,
        });
    }

    pub(crate) fn token(&self, session: SessionId) -> Option<Arc<Token>> {
        let tokens = self.tokens.lock();
        tokens.get(&session).map(|login| Arc::clone(&login.token))
    }

    /// Records the user of a session, with its SIDs beyond those that every user has.
    pub(crate) fn add_token(&self, session: &Session, held: Vec<Sid>) {
        let name = match &session.identity {
            Identity::Anonymous => None,
            Identity::User { user, .. } => Some(user.to_string_lossy()),
        };
        let mut token = match session.is_guest {
            true => Token::guest(),
            false => Token::of(name),
        };
        token.groups.extend(held);
        let mut tokens = self.tokens.lock();
        // A client that logs in again keeps its session.
        let before = tokens.get(&session.id).map(|login| Arc::clone(&login.figures));
        let login = Login {
            token: Arc::new(token),
            since: self.uptime(),
            figures: before.unwrap_or_default(),
        };
        tokens.insert(session.id, login);
    }

    pub(crate) fn remove_token(&self, session: SessionId) {
        let mut tokens = self.tokens.lock();
        if let Some(login) = tokens.remove(&session) {
            // Under the lock: a report counts a session once, also while it ends.
            self.past_figures.add(&login.figures);
        }
    }

    /// Returns what the requests of a session are counted in.
    pub(crate) fn figures(&self, session: SessionId) -> Option<Arc<SessionFigures>> {
        let tokens = self.tokens.lock();
        tokens.get(&session).map(|login| Arc::clone(&login.figures))
    }

    /// Returns each session with its user, the time of its login, and its figures; and the figures of
    /// sessions that have ended.
    pub(crate) fn logins(&self) -> (Vec<LoginFigures>, SessionFigures) {
        let tokens = self.tokens.lock();
        let logins = tokens.iter().map(|(id, login)| {
            let (token, figures) = (Arc::clone(&login.token), Arc::clone(&login.figures));
            (*id, token, login.since, figures)
        });
        let past = SessionFigures::default();
        past.add(&self.past_figures);
        (logins.collect(), past)
    }

    /// Calls `see` with each open file and pipe.
    pub(crate) fn each_handle(&self, see: impl FnMut(&Handle)) {
        self.handles.read().values().for_each(see);
    }

    /// Returns the address of a connection's client, and the time of its last request.
    pub(crate) fn client_of(&self, connection: ConnectionId) -> Option<(SocketAddr, Duration)> {
        let mailboxes = self.mailboxes.lock();
        let mailbox = mailboxes.get(&connection)?;
        Some((mailbox.peer, mailbox.used_at()))
    }

    /// Returns the names of the protocol and its signatures that the client of a connection speaks;
    /// `None` for SMB 2.
    pub(crate) fn foreign_of(&self, connection: ConnectionId) -> Option<(&'static str, &'static str)> {
        self.mailboxes.lock().get(&connection)?.foreign()
    }

    pub(crate) fn add_mailbox(&self, connection: ConnectionId, mailbox: Arc<Mailbox>) {
        self.mailboxes.lock().insert(connection, mailbox);
    }

    pub(crate) fn remove_mailbox(&self, connection: ConnectionId) {
        self.mailboxes.lock().remove(&connection);
    }

    pub(crate) fn post(&self, connection: ConnectionId, message: Message) -> bool {
        let mailbox = self.mailboxes.lock().get(&connection).cloned();
        mailbox.is_some_and(|mailbox| {
            mailbox.send(message);
            true
        })
    }

    /// Returns what the pipes of IPC$ tell a user about this server.
    pub(crate) fn pipe_host(self: &Arc<Self>, token: &Token) -> Arc<PipeHost> {
        let shares = self.all_shares();
        // The tables own the open pipes, so a strong reference would be a cycle.
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
            names: self.accounts.clone(),
            sessions: Box::new(move |user| match shared.upgrade() {
                Some(shared) => shared.sessions_of(user),
                None => Vec::new(),
            }),
        })
    }

    /// Returns the sessions of a user.
    fn sessions_of(&self, user: &str) -> Vec<SessionInfo> {
        let asked = Text::from(user);
        let mut logins: Vec<(SessionId, Duration)> = {
            let tokens = self.tokens.lock();
            let own = tokens.iter().filter(|(_, login)| {
                !login.token.is_anonymous && upcase::equal(&Text::from(login.token.name.as_str()), &asked)
            });
            own.map(|(id, login)| (*id, login.since)).collect()
        };
        logins.sort_unstable_by_key(|(id, since)| (*since, id.0));
        let mut opens: HashMap<u64, u32> = HashMap::new();
        for handle in self.handles.read().values() {
            let session = match handle {
                Handle::File(open) => open.session.load(Ordering::Relaxed),
                Handle::Pipe(pipe) => pipe.session,
            };
            *opens.entry(session).or_default() += 1;
        }
        let now = self.uptime();
        let seconds = |from| u32::try_from(now.saturating_sub(from).as_secs()).unwrap_or(u32::MAX);
        let info = |(id, since): (SessionId, Duration)| {
            let channels = self.sessions().get(id)?.channels().to_vec();
            let mailboxes = self.mailboxes.lock();
            let boxes = || channels.iter().filter_map(|channel| mailboxes.get(channel));
            Some(SessionInfo {
                client: boxes()
                    .next()?
                    .peer
                    .ip()
                    .to_canonical()
                    .to_string()
                    .as_str()
                    .into(),
                user: asked.clone(),
                opens: opens.get(&id.0).copied().unwrap_or(0),
                time_s: seconds(since),
                idle_s: seconds(boxes().map(|mailbox| mailbox.used_at()).max()?),
            })
        };
        logins.into_iter().filter_map(info).collect()
    }

    /// Whether the name of an open begins with a dot and such names are hidden.
    pub(crate) fn is_hidden(open: &Open) -> bool {
        let name = open.path().file_name();
        open.share.hide_dot_files && name.is_some_and(|name| name.as_bytes().starts_with(b"."))
    }

    /// Returns the index of a share.
    pub(crate) fn share_index(&self, share: &Arc<Share>) -> Option<u32> {
        let shares = self.shares.read();
        let is_it =
            |other: &Option<Arc<Share>>| other.as_ref().is_some_and(|other| other.has_name(&share.name));
        let index = shares.iter().position(is_it)?;
        u32::try_from(index).ok()
    }

    /// Asks every connection to end.
    pub(crate) fn stop_all(&self) {
        for mailbox in self.mailboxes.lock().values() {
            mailbox.send(Message::Stop);
        }
    }

    pub(crate) fn record(&self, record: &Record<'_>) {
        if let Some(audit) = &self.audit {
            audit.record(record);
        }
    }
}

/// Returns seconds and nanoseconds since 1970.
fn unix_now() -> (i64, u32) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    (
        i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        now.subsec_nanos(),
    )
}
