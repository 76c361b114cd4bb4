//! Builds the shared state of a job from what it is asked to do.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_plan::{Durability, DurabilityPolicy, Engine, NameMap, Nonce, Rules, TimeGranularity, Tuner};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::{CacheMode, Tree};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::delete::copied_nodes::CopiedNodes;
use crate::delete::extra_files::ExtraFiles;
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::counters::Live;
use crate::job::environment::Environment;
use crate::job::options::{Options, Root};
use crate::job::outcome::{Fatal, Status};
use crate::job::probe::TargetProbe;
use crate::job::report::{EventSink, Report};
use crate::job::resources::Resources;
use crate::job::root::JobRoot;
use crate::job::spec::JobSpec;
use crate::journal::begin::begin_journal;
use crate::journal::open::Journal;
use crate::mutations::{self, Mutation};
use crate::name::kept_versions::KeptVersions;
use crate::sweep::temporaries::Temporaries;
use crate::transfer::blocks::LISTS_AT_ONCE;
use crate::transfer::link_table::LinkTable;
use crate::transfer::pipeline::SmallFilePipeline;
use crate::verify::hashes::Hashes;
use crate::walk::balance::Balance;
use crate::walk::listed::ListedPaths;
use crate::walk::listing_cache::ListingCache;
use crate::walk::twin::may_digest;

/// Largest number of blocks in flight that the tuner may choose.
const DEPTH_MAX: usize = 12;
/// Bytes of a block with `gentle`. A guess.
const GENTLE_BLOCK: usize = 128 << 10;
/// Files that go through blocks at once: enough to overlap the opening of one with the data of
/// others.
const STREAMS: usize = 2;
/// The same when nothing waits for the device. Then processor time and short waits dominate, and
/// more overlap helps. (Measured: 3,000 files, 3 GiB, between two caches: 1.7 s with 2, 0.6 s with
/// 8.)
const STREAMS_CACHED: usize = 8;
/// The same when every file goes through blocks, because the trees have no same-side path. Most
/// files are small then, and latency counts.
const STREAMS_MANY: usize = 16;

/// Opens the journal and builds the shared state of a job, and its roots.
///
/// # Errors
/// The job cannot begin. Nothing was touched but the journal.
pub(crate) async fn prepare(
    spec: JobSpec,
    (live, cancel, limit): (Arc<Live>, CancellationToken, Arc<RateLimit>),
    pool: Pool,
    sink: EventSink,
) -> Result<(Arc<Context>, Vec<Arc<JobRoot>>), Fatal> {
    let JobSpec {
        roots,
        target,
        options,
        environment,
        journal,
    } = spec;
    let journal = journal.filter(|_| !options.dry_run);
    let durability = durability_of(&options, &*target);
    let (journal, nonce) = begin_journal(journal, &environment, durability.names_are_durable()).await?;
    let tree_dirty = options.durability != Durability::None && target.capabilities().page_cache;
    let hashes = hashes_of(&options, &environment, journal.as_ref(), nonce)?;
    let is_resumed = journal.as_ref().is_some_and(|journal| journal.memory().resumed());
    let may_digest = may_digest(&options, hashes.as_ref(), is_resumed);
    let roots: Vec<_> = roots
        .into_iter()
        .zip(0..)
        .map(|(root, index)| Arc::new(job_root(root, index, &*target, &options, may_digest)))
        .collect();
    let resources = resources_of(&target, &roots, &options, pool);
    let config = JobConfig {
        target,
        options,
        environment,
        durability,
        nonce,
    };
    let (target, options, environment) = (&config.target, &config.options, &config.environment);
    let probe = TargetProbe::new(target, &config.probe_name());
    let reports_items = options.report_items || options.dry_run;
    let context = Context {
        temporaries: Temporaries::new(target, (nonce, &environment.boot_id), journal.as_ref(), &roots),
        durability: DurabilityControl::new(options.dirty_max, environment.clock.clone(), tree_dirty),
        report: Report::new(sink, live, reports_items, (probe, cancel.clone(), limit)),
        resources,
        copied_nodes: CopiedNodes::remembered(options.move_source),
        listing_cache: ListingCache::new(),
        listed_paths: ListedPaths::default(),
        link_table: LinkTable::default(),
        delete_guard: Mutex::default(),
        extra_files: ExtraFiles::default(),
        kept_versions: KeptVersions::default(),
        staged_lists: Mutex::default(),
        list_room: Semaphore::new(LISTS_AT_ONCE),
        config,
        cancel,
        journal,
        hashes,
    };
    Ok((Arc::new(context), roots))
}

fn durability_of(options: &Options, target: &dyn Tree) -> DurabilityPolicy {
    let is_server = !target.capabilities().page_cache;
    let policy = DurabilityPolicy::new(options.durability, is_server, options.inplace);
    match mutations::is(Mutation::RenameBeforeFlush) {
        true => policy.with_early_names(),
        false => policy,
    }
}

fn resources_of(target: &Arc<dyn Tree>, roots: &[Arc<JobRoot>], options: &Options, pool: Pool) -> Resources {
    let historic = options.engine != Engine::Auto;
    // Without a same-side path many small files are in flight through blocks; the pool still bounds
    // memory.
    let many = !historic && !same_side(&**target, roots);
    let streams = match many {
        _ if options.gentle => 1,
        true => STREAMS_MANY,
        false => streams_of(options),
    };
    let small_files = match many {
        true => SmallFilePipeline::between(&**target, roots),
        false => None,
    };
    let block_size = options.engine.block_size_max();
    let trees = roots.iter().map(|root| &root.root.source).chain([target]);
    let wanted = trees.map(|tree| tree.capabilities().blocks_in_flight).max();
    let tuner = match wanted {
        _ if options.gentle => Tuner::new(GENTLE_BLOCK, 1).pinned(),
        // A long line is full from the first second only if enough is requested at once. The depth
        // of the client itself follows the line.
        Some(depth @ 1..) if !historic => Tuner::new(block_size, depth).starting_deep().pinned(),
        _ => Tuner::new(block_size, DEPTH_MAX),
    };
    let batches = target.capabilities().batches_in_flight.max(1);
    let resources = Resources::new((pool, tuner), batches, streams, small_files);
    if historic || options.gentle {
        return resources;
    }
    // Several sources mostly lie on the same server.
    let far = |tree: &&Arc<dyn Tree>| tree.capabilities().far;
    let source = roots.iter().map(|root| &root.root.source).find(far);
    resources.following(
        source
            .into_iter()
            .chain([target].into_iter().filter(far))
            .cloned()
            .collect(),
    )
}

/// Returns the number of files that go through blocks at once.
fn streams_of(options: &Options) -> usize {
    match options.durability {
        _ if options.engine != Engine::Auto => 1,
        Durability::None if options.cache == CacheMode::Keep => STREAMS_CACHED,
        _ => STREAMS,
    }
}

/// Whether batches between these trees stay on one side. Asks with an empty batch.
fn same_side(target: &dyn Tree, roots: &[Arc<JobRoot>]) -> bool {
    roots.iter().all(|root| {
        let probe = ropeway_vfs::Batch {
            source_dir: root.root.source_path.clone(),
            target_dir: root.root.target_path.clone(),
            items: Vec::new(),
            preserve: Default::default(),
            cache: Default::default(),
            hash: None,
            sync_each: false,
        };
        target.copy_batch(&*root.root.source, probe).is_ok()
    })
}

fn job_root(root: Root, index: u64, target: &dyn Tree, options: &Options, may_digest: bool) -> JobRoot {
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
    JobRoot {
        index,
        whole: (root.source_path.clone(), root.target_path.clone()),
        root,
        rules,
        names,
        is_repair: false,
        digests: may_digest.then(Balance::default),
        is_changed: false.into(),
        needs_deletion: true.into(),
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
    Hashes::create(path, options.verify.algorithm)
        .map(Some)
        .map_err(|error| {
            Fatal::new(
                Status::TargetUnwritable,
                format!("cannot keep the hashes: {error}"),
            )
        })
}
