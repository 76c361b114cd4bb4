//! The job: its phases in order, and what outsiders hold of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropeway_block::Pool;
use ropeway_plan::{Engine, NameMap, Nonce, Rules, TimeGranularity, Tuner};
use ropeway_vfs::event::{Counters, Event, Phase};
use ropeway_vfs::{CacheMode, End, RelPath, Tree};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::ahead::Ahead;
use crate::blocks;
use crate::context::{Cancel, Context, EventSink, RootContext, lock, summarize};
use crate::crossing::Crossing;
use crate::durable::{SyncControl, checkpoint, hear_of_losses, run_checkpoints};
use crate::environment::Environment;
use crate::folder::run_finisher;
use crate::journal::{self, Journal, JournalSpec};
use crate::leftovers::{self, Temporaries};
use crate::links::Links;
use crate::moving::{self, Arrivals};
use crate::mutations::{self, Mutation};
use crate::options::{Durability, Options, Root};
use crate::progress::Live;
use crate::status::{Failures, Fatal, Outcome, Status};
use crate::verify::{self, Hashes};
use crate::{count, delete, repair, stall, walk, watch};

/// Blocks in flight that the tuner may choose.
const DEPTH_MAX: usize = 12;
/// Files that go through blocks at once: enough to overlap the opening of one with the data of others.
const STREAMS: usize = 2;
/// The same when nothing waits for the device: then the work is processor time and short waits, and more overlap helps
/// (measured: 3,000 files, 3 GiB, between two caches: 1.7 s with 2, 0.6 s with 8).
const STREAMS_CACHED: usize = 8;
/// The same when every file goes that way, for want of a same-side path: most of them are small and latency counts.
const STREAMS_MANY: usize = 16;

/// How long a stopped job waits for operations in flight.
pub(crate) const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Everything a job needs.
pub struct JobSpec {
    /// What to copy.
    pub roots: Vec<Root>,
    /// Where to.
    pub target: Arc<dyn Tree>,
    /// How.
    pub options: Options,
    /// What it takes from the machine.
    pub environment: Environment,
    /// Where to keep the journal; `None`: an interrupted copy starts over (equal files are still skipped).
    pub journal: Option<JournalSpec>,
}

impl JobSpec {
    /// One whole tree, to a path of another, without a journal.
    pub fn whole(source: Arc<dyn Tree>, target: Arc<dyn Tree>, to: RelPath, options: Options) -> Self {
        let root = Root {
            source,
            source_path: RelPath::root(),
            target_path: to,
        };
        Self {
            roots: vec![root],
            target,
            options,
            environment: Environment::default(),
            journal: None,
        }
    }

    /// Runs it, and keeps all its events: for small jobs.
    pub async fn run(self) -> (Outcome, Vec<Event>) {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let outcome = Job::new(self)
            .run(Arc::new(move |event| lock(&sink).push(event)))
            .await;
        let events = std::mem::take(&mut *lock(&events));
        (outcome, events)
    }
}

/// A copy job that has not begun.
pub struct Job {
    spec: JobSpec,
    live: Arc<Live>,
    cancel: Arc<Cancel>,
    pool: Pool,
}

/// A handle on a job, running or not.
#[derive(Clone)]
pub struct Handle {
    live: Arc<Live>,
    cancel: Arc<Cancel>,
}

impl Handle {
    /// A progress event of this moment; the estimate learns from regular calls.
    pub fn progress(&self) -> Event {
        self.live.progress()
    }

    /// The counters of this moment.
    pub fn counters(&self) -> Counters {
        self.live.counters()
    }

    /// Asks the job to stop in order: operations in flight finish, the journal is kept.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Job {
    /// Prepares a job; nothing is touched before [`run`](Self::run).
    pub fn new(spec: JobSpec) -> Self {
        let sources = spec.roots.iter().map(|root| &root.source);
        let far = sources
            .chain([&spec.target])
            .any(|tree| tree.capabilities().remote);
        let pool = blocks::pool_for(spec.options.engine, far);
        let live = Arc::new(Live::new(spec.options.durability != Durability::None));
        Self {
            spec,
            live,
            cancel: Arc::new(Cancel::default()),
            pool,
        }
    }

    /// Takes its blocks from `pool` (of [`crate::pool_for`] the same engine), which the trees know already.
    #[must_use]
    pub fn with_pool(mut self, pool: Pool) -> Self {
        self.pool = pool;
        self
    }

    /// A handle to watch and stop it.
    pub fn handle(&self) -> Handle {
        Handle {
            live: Arc::clone(&self.live),
            cancel: Arc::clone(&self.cancel),
        }
    }

    /// Runs the job to its end.
    pub async fn run(self, sink: EventSink) -> Outcome {
        let (context, roots) = match self.prepare(sink) {
            Ok(prepared) => prepared,
            Err(fatal) => {
                return Outcome {
                    summary: Default::default(),
                    status: fatal.status,
                    fatal: Some(fatal.message),
                    hint: fatal.hint,
                };
            }
        };
        let times = phases(&context, &roots).await;
        conclude(&context, &times)
    }

    fn prepare(self, sink: EventSink) -> Result<(Arc<Context>, Vec<Arc<RootContext>>), Fatal> {
        let Self {
            spec,
            live,
            cancel,
            pool,
        } = self;
        let JobSpec {
            roots,
            target,
            options,
            environment,
            journal,
        } = spec;
        let journal = journal.filter(|_| !options.dry_run);
        let names_durable = Context::names_durable(&options, &*target);
        let (journal, nonce) = journal::begin(journal, &environment, names_durable)?;
        let may_be_dirty = options.durability != Durability::None && target.capabilities().page_cache;
        let roots: Vec<_> = roots
            .into_iter()
            .zip(0..)
            .map(|(root, index)| Arc::new(root_context(root, index, &*target, &options)))
            .collect();
        let hashes = hashes_of(&options, &environment, journal.as_ref(), nonce)?;
        let historic = options.engine != Engine::Auto;
        let streams_max = streams_of(&options);
        // Without a same-side path many small files are in flight through blocks; the pool still bounds memory.
        let many = !historic && !same_side(&*target, &roots);
        let streams = if many { STREAMS_MANY } else { streams_max };
        let crossing = if many {
            Crossing::between(&*target, &roots)
        } else {
            None
        };
        let block_size = options.engine.block_size_max();
        let trees = roots.iter().map(|root| &root.root.source).chain([&target]);
        let wanted = trees.map(|tree| tree.capabilities().blocks_in_flight).max();
        let tuner = match wanted {
            // A long line is full from the first second only if enough is asked for at once, and the client's own depth
            // follows the line.
            Some(depth @ 1..) if !historic => Tuner::new(block_size, depth).starting_deep().pinned(),
            _ => Tuner::new(block_size, DEPTH_MAX),
        };
        let batches = target.capabilities().batches_in_flight.max(1);
        let context = Context {
            temporaries: Temporaries::new(&target, (nonce, &environment.boot_id), journal.as_ref(), &roots),
            sync: SyncControl::new(options.dirty_max, environment.clock.clone(), may_be_dirty),
            tuner: tuner.into(),
            crossing,
            arrivals: Arrivals::remembered(options.move_source),
            ahead: Ahead::new(),
            batches: Arc::new(Semaphore::new(batches)),
            streams: Arc::new(Semaphore::new(streams)),
            streams_max: streams,
            failures: Failures::default(),
            losses: Default::default(),
            links: Links::default(),
            guard: Default::default(),
            copied_aside: Default::default(),
            target,
            options,
            environment,
            live,
            cancel,
            sink,
            pool,
            journal,
            nonce,
            hashes,
        };
        Ok((Arc::new(context), roots))
    }
}

/// Files that go through blocks at once.
fn streams_of(options: &Options) -> usize {
    match options.durability {
        _ if options.engine != Engine::Auto => 1,
        Durability::None if options.cache == CacheMode::Keep => STREAMS_CACHED,
        _ => STREAMS,
    }
}

/// Whether batches between these trees stay on one side. Asked with an empty batch.
fn same_side(target: &dyn Tree, roots: &[Arc<RootContext>]) -> bool {
    roots.iter().all(|root| {
        let probe = ropeway_vfs::Batch {
            source_dir: root.root.source_path.clone(),
            target_dir: root.root.target_path.clone(),
            items: Vec::new(),
            preserve: Default::default(),
            cache: Default::default(),
            hash: false,
            sync_each: false,
        };
        target.copy_batch(&*root.root.source, probe).is_ok()
    })
}

fn root_context(root: Root, index: u64, target: &dyn Tree, options: &Options) -> RootContext {
    let rules = Rules {
        update: options.update,
        ignore_existing: options.ignore_existing,
        checksum: options.checksum,
        force: options.force,
        replace_special: options.delete.is_some(),
        devices: options.devices,
        granularity: TimeGranularity::between(root.source.capabilities(), target.capabilities())
            .with_window(options.modify_window),
        ..Rules::between(root.source.capabilities(), target.capabilities())
    };
    let names = NameMap::new(root.source.capabilities(), target.capabilities(), options.names);
    RootContext {
        index,
        whole: (root.source_path.clone(), root.target_path.clone()),
        root,
        rules,
        names,
        is_repair: false,
    }
}

fn hashes_of(
    options: &Options,
    environment: &Environment,
    journal: Option<&Journal>,
    nonce: Nonce,
) -> Result<Option<Hashes>, Fatal> {
    if (!options.verify.read_back && options.verify.manifest.is_none()) || options.dry_run {
        return Ok(None);
    }
    let folder = journal.and_then(Journal::folder).unwrap_or(&environment.scratch);
    let path = folder.join(format!("hashes-{:016x}-{}", nonce.0, std::process::id()));
    Hashes::create(path).map(Some).map_err(|error| {
        Fatal::new(
            Status::TargetUnwritable,
            format!("cannot keep the hashes: {error}"),
        )
    })
}

#[derive(Default)]
struct Times {
    perceived: Duration,
    durable: Option<Duration>,
    verified: Option<Duration>,
}

/// All phases of a job.
async fn phases(context: &Arc<Context>, roots: &[Arc<RootContext>]) -> Times {
    let mut times = Times::default();
    if let Err(fatal) = before(context, roots).await {
        context.fatal(fatal);
        return times;
    }
    let watches = if context.options.watch && !context.options.dry_run {
        match watch::begin(roots).await {
            Ok(watches) => Some(watches),
            Err(error) => {
                context.fatal(Fatal::from_error(&error, End::Source));
                return times;
            }
        }
    } else {
        None
    };
    context.emit(Event::Phase {
        phase: Phase::Copying,
    });
    let counting = context
        .options
        .count
        .then(|| tokio::spawn(count::run_beside(Arc::clone(context), roots.to_vec())));
    let watching = context
        .options
        .timeout
        .map(|timeout| tokio::spawn(stall::watch(Arc::clone(context), roots.to_vec(), timeout)));
    let landed = copy_roots(context, roots).await;
    for beside in [counting, watching].into_iter().flatten() {
        beside.abort();
    }
    if context.options.delete.is_some() {
        for root in roots {
            delete::run(context, root).await;
        }
        // What was agreed to was the first pass.
        if let Some(guard) = &mut *lock(&context.guard) {
            guard.agreed = None;
        }
    }
    times.perceived = landed;
    if !context.options.dry_run {
        settle(context, &mut times).await;
        verify_phase(context, roots, &mut times).await;
        let is_safe = times.durable.is_some() && context.failures.differences() == 0;
        if context.options.move_source && is_safe && !context.stopped() {
            for root in roots {
                moving::remove_moved(context, root).await;
            }
        }
    }
    publish_manifest(context, roots);
    if let Some(watches) = watches
        && !context.stopped()
    {
        watch::follow(context, watches).await;
    }
    leftovers::end(context).await;
    context.emit(Event::Phase { phase: Phase::Done });
    times
}

/// What happens before the first write.
async fn before(context: &Arc<Context>, roots: &[Arc<RootContext>]) -> Result<(), Fatal> {
    hear_of_losses(context).await;
    if context.options.preflight || context.options.delete.is_some() {
        context.emit(Event::Phase {
            phase: Phase::Preflight,
        });
        count::preflight(context, roots).await?;
    }
    if context.options.delete.is_some() {
        delete::check(context, roots).await?;
    }
    leftovers::begin(context, roots).await;
    Ok(())
}

/// Copies roots and waits until everything below them is finished and named; the time when everything was written,
/// before anything was awaited from the device. Used again for each round of a watch.
pub(crate) async fn copy_roots(context: &Arc<Context>, roots: &[Arc<RootContext>]) -> Duration {
    let (finisher, folders) = mpsc::unbounded_channel();
    let finishing = tokio::spawn(run_finisher(Arc::clone(context), folders));
    let (stop, stopped) = oneshot::channel();
    let checkpoints = tokio::spawn(run_checkpoints(Arc::clone(context), stopped));
    let mut done = Vec::new();
    for root in roots {
        // A listing may hang for ever, too.
        tokio::select! {
            biased;
            walked = walk::walk(context, root, &finisher) => done.extend(walked),
            () = given_up(context) => break,
        }
    }
    drop(finisher);
    context.live.walk_final.store(true, Ordering::Release);
    context.ahead.close();
    tokio::select! {
        biased;
        () = all_landed(context) => {}
        () = given_up(context) => {}
    }
    let landed = context.live.elapsed();
    drop(stop);
    // A checkpoint under way has taken renames: it is waited for before the rest is named.
    let _ = checkpoints.await;
    if context.wants_durable() {
        context.emit(Event::Phase {
            phase: Phase::Flushing,
        });
    }
    // Naming one level of folders lets the next finish; each round waits for what the round before let go.
    for mut finished in done {
        while !context.stopped() {
            tokio::select! {
                biased;
                _ = &mut finished => break,
                () = tokio::time::sleep(Duration::from_millis(2)) => {
                    if context.sync.has_pending() {
                        checkpoint(context).await;
                    }
                }
            }
        }
    }
    if !context.stopped() {
        // Ends when every folder is finished.
        let _ = finishing.await;
    }
    landed
}

/// Waits until nothing is in flight any more: for all permits.
async fn all_landed(context: &Context) {
    let batches = u32::try_from(context.target.capabilities().batches_in_flight.max(1)).unwrap_or(u32::MAX);
    drop(context.batches.acquire_many(batches).await);
    let streams = u32::try_from(context.streams_max).unwrap_or(u32::MAX);
    drop(context.streams.acquire_many(streams).await);
    if let Some(crossing) = &context.crossing {
        crossing.landed().await;
    }
}

/// Completes some time after the job was stopped: operations on a volume that is gone may never return.
async fn given_up(context: &Context) {
    context.cancel.cancelled().await;
    tokio::time::sleep(STOP_WAIT_MAX).await;
}

/// The last sync.
async fn settle(context: &Arc<Context>, times: &mut Times) {
    if !context.wants_durable() {
        return;
    }
    // What was found to be equal may have been written by others, and not be durable yet.
    let found_equal = context.live.files_skipped.load(Ordering::Relaxed) > 0;
    if found_equal && context.target.capabilities().page_cache {
        context.sync.touched();
    }
    if !context.failures.is_fatal() {
        checkpoint(context).await;
        if context.sync.is_touched() && !mutations::is(Mutation::NamesNotFlushed) {
            checkpoint(context).await;
        }
    }
    if !context.failures.is_fatal() {
        times.durable = Some(context.live.elapsed());
    }
}

async fn verify_phase(context: &Arc<Context>, roots: &[Arc<RootContext>], times: &mut Times) {
    let (Some(hashes), true) = (&context.hashes, context.options.verify.read_back) else {
        return;
    };
    if context.stopped() {
        return;
    }
    context.emit(Event::Phase {
        phase: Phase::Verifying,
    });
    let begin = context.live.elapsed();
    match hashes.flush() {
        Ok(spool) => {
            let differing = verify::read_back(context, spool).await;
            repair::repair(context, roots, hashes, differing).await;
        }
        Err(error) => {
            context.fatal(Fatal::new(
                Status::Differs,
                format!("nothing was verified: {error}"),
            ));
        }
    }
    times.verified = Some(context.live.elapsed().saturating_sub(begin));
}

fn publish_manifest(context: &Context, roots: &[Arc<RootContext>]) {
    let (Some(hashes), Some(manifest)) = (&context.hashes, &context.options.verify.manifest) else {
        return;
    };
    if context.stopped() {
        return;
    }
    let prefix = match roots {
        [root] => root.root.target_path.clone(),
        _ => Default::default(),
    };
    let published = hashes
        .flush()
        .map_err(verify::ManifestError::from)
        .and_then(|spool| verify::publish(spool, manifest, &prefix));
    if let Err(error) = published {
        context.fatal(Fatal::new(
            Status::TargetUnwritable,
            format!("cannot write the manifest {}: {error}", manifest.display()),
        ));
    }
}

/// Removes the journal of a finished job and says how it ended.
fn conclude(context: &Context, times: &Times) -> Outcome {
    let mut summary = summarize(context);
    summary.perceived = times.perceived;
    summary.durable = times.durable;
    summary.verified = times.verified;
    let interrupted = context.cancel.is_cancelled() && !context.failures.is_fatal();
    let status = match context.failures.status(summary.counters.files_done) {
        Status::Done | Status::SomeFailed if interrupted && !context.watch_ended() => Status::Interrupted,
        status => status,
    };
    if let Some(hashes) = &context.hashes {
        hashes.remove();
    }
    let fatal = context.failures.take_fatal();
    if let Some(journal) = &context.journal
        && fatal.is_none()
        && !interrupted
        && !context.temporaries.keep_journal()
        // What is half overwritten in place must not be taken for an old version by the next run.
        && context.copied_aside.is_empty()
        // Nor what an earlier run left half written for a whole copy, where this one did not come to it.
        && !(context.failures.items() > 0 && journal.memory().has_doubts())
    {
        // A leftover journal costs nothing but a look next time.
        let _ = journal.finish();
    }
    let (fatal, hint) = fatal.map_or((None, None), |fatal| (Some(fatal.message), fatal.hint));
    Outcome {
        summary,
        status,
        fatal,
        hint,
    }
}
