//! What all parts of a running job share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropeway_block::Pool;
use ropeway_plan::{DeleteGuard, Engine, NameMap, Nonce, Rules, Temporary, Tuner};
use ropeway_vfs::event::{Event, Summary};
use ropeway_vfs::{
    End, EndError, Error, Loss, Metadata, MetadataChange, Name, Op, RelPath, SDDL_XATTR, Timestamp, Tree,
    Verdict, Xattr,
};
use tokio::sync::{Notify, Semaphore};

use crate::ahead::Ahead;
use crate::backup::CopiedAside;
use crate::crossing::Crossing;
use crate::durable::SyncControl;
use crate::environment::Environment;
use crate::journal::{Journal, Token};
use crate::leftovers::Temporaries;
use crate::links::Links;
use crate::moving::Arrivals;
use crate::mutations::{self, Mutation};
use crate::options::{Durability, Options, Root};
use crate::progress::Live;
use crate::status::{Failures, Fatal, hint_for};
use crate::verify::Hashes;

/// Token of the folder that tries whether the target still takes anything; no node has it but by chance.
const PROBE: Token = 0;

/// Receives events; called from many tasks.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// Locks a mutex; a panic elsewhere does not make the data unusable here (each guarded value is whole after every
/// statement).
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A flag that tasks can wait for.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    flag: AtomicBool,
    notify: Notify,
}

impl Cancel {
    pub(crate) fn cancel(&self) {
        self.flag.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    pub(crate) async fn cancelled(&self) {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }
}

/// One root with what follows from its pair of trees.
pub(crate) struct RootContext {
    pub(crate) index: u64,
    pub(crate) root: Root,
    /// Paths on both ends of the whole root; those of `root` lie below when a watch copies a part of it. Filters are
    /// relative to these.
    pub(crate) whole: (RelPath, RelPath),
    pub(crate) rules: Rules,
    pub(crate) names: NameMap,
    /// It is copied again because the device returned something else.
    pub(crate) is_repair: bool,
}

impl RootContext {
    /// Whether this is a part of a root, in a round of a watch.
    pub(crate) fn is_part(&self) -> bool {
        self.whole.0 != self.root.source_path
    }

    /// The path on the target of a node given relative to the root; `None` if a name cannot be held.
    pub(crate) fn target_of(&self, below: &RelPath) -> Option<RelPath> {
        below
            .components()
            .try_fold(self.root.target_path.clone(), |path, name| {
                self.names.map(&name).ok().map(|mapped| path.join(&mapped.name))
            })
    }
}

/// The shared state of a job.
pub(crate) struct Context {
    pub(crate) target: Arc<dyn Tree>,
    pub(crate) options: Options,
    /// What the job takes from the machine.
    pub(crate) environment: Environment,
    pub(crate) live: Arc<Live>,
    pub(crate) cancel: Arc<Cancel>,
    pub(crate) failures: Failures,
    pub(crate) losses: Mutex<BTreeMap<Loss, u64>>,
    pub(crate) sink: EventSink,
    pub(crate) pool: Pool,
    pub(crate) tuner: Mutex<Tuner>,
    pub(crate) journal: Option<Journal>,
    /// The random part of this job's temporary names.
    pub(crate) nonce: Nonce,
    /// What this job and others have under temporary names on the target.
    pub(crate) temporaries: Temporaries,
    pub(crate) sync: SyncControl,
    pub(crate) links: Links,
    pub(crate) hashes: Option<Hashes>,
    /// Bounds the deletions of a mirror.
    pub(crate) guard: Mutex<Option<DeleteGuard>>,
    /// Files overwritten in place whose old content is kept.
    pub(crate) copied_aside: CopiedAside,
    /// Of a move: what has arrived.
    pub(crate) arrivals: Arrivals,
    /// What the counting walk listed for the copying walk.
    pub(crate) ahead: Ahead,
    /// Bounds batches and single small files in flight.
    pub(crate) batches: Arc<Semaphore>,
    /// Bounds files that go through blocks.
    pub(crate) streams: Arc<Semaphore>,
    /// Permits of `streams`.
    pub(crate) streams_max: usize,
    /// Small files that go one by one between two sides, many in flight; `None` where batches do, or a historic engine.
    pub(crate) crossing: Option<Crossing>,
}

impl Context {
    /// Whether the job should stop: cancelled, or something fatal happened.
    pub(crate) fn stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.failures.is_fatal()
    }

    /// A watch ends by being interrupted; that is its ordinary end once the first pass is over.
    pub(crate) fn watch_ended(&self) -> bool {
        self.options.watch && self.live.walk_final.load(Ordering::Acquire)
    }

    pub(crate) fn emit(&self, event: Event) {
        (self.sink)(event);
    }

    pub(crate) fn note(&self, path: Option<&RelPath>, message: impl Into<String>) {
        self.emit(Event::Note {
            path: path.map(ToString::to_string),
            message: message.into(),
        });
    }

    pub(crate) fn item(&self, path: &RelPath, action: &'static str, bytes: u64) {
        if self.options.report_items || self.options.dry_run {
            self.emit(Event::Item {
                path: path.to_string(),
                action,
                bytes,
            });
        }
    }

    pub(crate) fn lose(&self, losses: &[Loss]) {
        if losses.is_empty() {
            return;
        }
        let mut counted = lock(&self.losses);
        for loss in losses {
            *counted.entry(*loss).or_default() += 1;
        }
    }

    /// Stops the whole job.
    pub(crate) fn fatal(&self, fatal: Fatal) {
        self.failures.fatal(fatal);
        self.cancel.cancel();
    }

    /// Records the failure of one item; stops the job if nothing more can succeed.
    /// `path` is where the user looks for it, not where it is for the time being.
    pub(crate) async fn fail(&self, path: &RelPath, mut error: Error, end: End) {
        error.path = path.clone();
        if self.stopped() && error.verdict() != Verdict::Skip {
            return;
        }
        let fatal =
            error.verdict() == Verdict::Abort || (end == End::Target && !self.target_answers(&error).await);
        let hint = hint_for(error.kind, end)
            .map(|hint| format!(" (hint: {hint})"))
            .unwrap_or_default();
        self.emit(Event::ItemError {
            path: path.to_string(),
            op: error.op,
            kind: error.kind,
            message: format!("{error}{hint}"),
            on_source: end == End::Source,
            fatal,
        });
        self.failures.item(error.kind);
        if fatal {
            self.fatal(Fatal::from_error(&error, end));
        }
    }

    /// After a device error on the target: whether the target still takes anything at all.
    async fn target_answers(&self, error: &Error) -> bool {
        use ropeway_vfs::ErrorKind as K;
        if !matches!(error.kind, K::DeviceError | K::Other | K::NotFound) {
            return true;
        }
        self.temporaries.probes();
        let made = match self.target.make_dir(&self.probe(), 0o700).await {
            Ok(()) => true,
            Err(refused) => refused.kind == K::AlreadyExists || refused.kind == K::PermissionDenied,
        };
        if made {
            // Where it fails right now, the end of this run or of the next one removes it.
            let _ = self.remove_probe().await;
        }
        made
    }

    fn probe(&self) -> RelPath {
        RelPath::root().join(&self.temporary_of(PROBE))
    }

    /// Removes the folder by which this run or an earlier one tried the target; whether it was there. No claim tells of it.
    ///
    /// # Errors
    /// It stays.
    pub(crate) async fn remove_probe(&self) -> Result<bool, Error> {
        match self.target.remove_dir(&self.probe()).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind.is_absence() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The temporary name of the node with this token.
    pub(crate) fn temporary_of(&self, token: Token) -> Name {
        self.nonce.node(token)
    }

    /// Whether a name is a temporary one of this job.
    pub(crate) fn is_own_temporary(&self, name: &Name) -> bool {
        Temporary::parse(name).is_some_and(|temporary| temporary.nonce() == self.nonce)
    }

    /// When a node of the target last changed, if its clock is ours and fine enough to tell runs apart.
    pub(crate) fn change_time(&self, found: &Metadata) -> Option<Timestamp> {
        let can = self.target.capabilities();
        let is_fine = can.time_granularity_ns < 1_000_000_000 && !can.remote;
        found.changed.filter(|_| is_fine)
    }

    /// The user that new nodes belong to, where the target says whom a node belongs to.
    pub(crate) fn own_user(&self) -> Option<u32> {
        let can = self.target.capabilities();
        (can.owners && !can.remote).then_some(self.environment.user)
    }

    /// The attributes that a node gets on the target. A creation time that no node there can be given is not asked for:
    /// it would be one loss for each file of every local copy.
    pub(crate) fn change_of(&self, metadata: &Metadata, mut xattrs: Option<Vec<Xattr>>) -> MetadataChange {
        if let Some(xattrs) = &mut xattrs {
            let before = xattrs.len();
            xattrs.retain(|xattr| xattr.name != SDDL_XATTR || !xattr.value.is_empty());
            if xattrs.len() < before {
                // There is a descriptor, and the source does not let it be read.
                self.lose(&[Loss::Acl]);
            }
        }
        let mut change = MetadataChange::of(metadata, &self.options.preserve, xattrs);
        if !self.target.capabilities().creation_times {
            change.created = None;
        }
        change
    }

    /// Whether data is made durable before the job ends.
    pub(crate) fn wants_durable(&self) -> bool {
        self.options.durability != Durability::None
    }

    /// Whether each file is made durable as it is finished. A server is told to flush a file while that is open, in the
    /// same round trip; so its names never wait for a checkpoint.
    pub(crate) fn flushes_each(&self) -> bool {
        match self.options.durability {
            Durability::None => false,
            Durability::File => true,
            Durability::End => !self.target.capabilities().page_cache,
        }
    }

    /// Whether nodes get their final names only when they are durable.
    pub(crate) fn names_durable(options: &Options, target: &dyn Tree) -> bool {
        // In place, a file of this machine has its name all the while; a server flushes it before it looks complete.
        options.durability != Durability::None && (!options.inplace || !target.capabilities().page_cache)
    }

    /// Whether finished files wait under temporary names for the next checkpoint.
    pub(crate) fn postpones(&self) -> bool {
        self.options.durability == Durability::End
            && !self.flushes_each()
            && !mutations::is(Mutation::RenameBeforeFlush)
    }

    /// Whether extended attributes of a node are worth reading: the source may have some, and the target takes some, or
    /// their loss is to be named. (Of local files that a local target cannot hold, batches say so.)
    pub(crate) fn wants_xattrs(&self, source: &dyn Tree, metadata: &Metadata) -> bool {
        let can = source.capabilities();
        let may_have = can.takes_xattrs() || !can.remote;
        let of_use = self.target.capabilities().takes_xattrs() || can.remote;
        self.options.preserve.xattrs && may_have && of_use && metadata.has_xattrs != Some(false)
    }

    /// Whether calls cost a round trip on either side, so that many must be under way.
    pub(crate) fn is_crossing(&self) -> bool {
        self.crossing.is_some()
    }

    /// The attributes that a finished file gets: the modification time always, since equality of later runs and resume
    /// hang on it.
    pub(crate) fn change_of_file(&self, metadata: &Metadata, xattrs: Option<Vec<Xattr>>) -> MetadataChange {
        let mut change = self.change_of(metadata, xattrs);
        if change.mode.is_none() && self.target.capabilities().modes {
            change.mode = Some(0o644);
        }
        change.modified = metadata.modified.known();
        change
    }

    /// Whether the same-side batch path may be used.
    pub(crate) fn may_batch(&self) -> bool {
        self.options.engine == Engine::Auto && !self.options.inplace
    }

    /// Runs `operation` until it succeeds, fails for good, or the tries are used up.
    pub(crate) async fn with_retries<T, F, Fut>(&self, seed: u64, mut operation: F) -> Result<T, EndError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, EndError>>,
    {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let EndError { end, error } = match operation().await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            // What hung for the whole of --timeout holds its blocks: it is not tried again.
            let hung = error.kind == ropeway_vfs::ErrorKind::TimedOut && self.options.timeout.is_some();
            let pause = match error.verdict() {
                Verdict::Retry if !self.stopped() && !hung => self.options.retry.delay(attempt, seed),
                _ => None,
            };
            let Some(pause) = pause else {
                return Err(EndError { end, error });
            };
            self.live.retries.fetch_add(1, Ordering::Relaxed);
            if !self.sleep(pause).await {
                return Err(EndError { end, error });
            }
        }
    }

    /// Waits; `false` if the job stops meanwhile.
    pub(crate) async fn sleep(&self, span: Duration) -> bool {
        tokio::select! {
            biased;
            () = tokio::time::sleep(span) => !self.stopped(),
            () = self.cancel.cancelled() => false,
        }
    }

    /// Keeps a journal write's error from being lost: without a journal the copy goes on, said once.
    pub(crate) fn journalled(&self, result: Option<std::io::Result<()>>) {
        if let Some(Err(error)) = result {
            self.note(
                None,
                format!("the journal cannot be written ({error}); an interrupted copy starts over"),
            );
        }
    }
}

/// The error of an operation that was given up because the job stops.
pub(crate) fn cancelled(op: Op, path: &RelPath) -> Error {
    Error::new(op, path, ropeway_vfs::ErrorKind::Cancelled)
}

/// Identity of a node within a job.
pub(crate) fn token_of(root: u64, path: &RelPath) -> Token {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&root.to_le_bytes());
    hasher.update(path.as_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    Token::from_le_bytes(bytes)
}

/// A summary of everything counted so far.
pub(crate) fn summarize(context: &Context) -> Summary {
    Summary {
        counters: context.live.counters(),
        differences: context.failures.differences(),
        errors: context.failures.items(),
        torn: context.failures.torn_copies(),
        repaired: context.failures.repairs(),
        losses: lock(&context.losses).clone(),
        resumed: context
            .journal
            .as_ref()
            .is_some_and(|journal| journal.memory().resumed()),
        bytes_resumed: context.live.bytes_resumed.load(Ordering::Relaxed),
        limit: context.live.limit_overall(),
        ..Summary::default()
    }
}
