//! Follows the sources after the first pass: copies what changes, and deletes what is gone in a
//! mirror.
//!
//! Changes are collected for [`SETTLE`], so that a file that is being written is copied once. Each
//! changed node becomes a root of its own and takes the same walk. Deletions take the same pass as
//! in the first run, with its filters, backups and guard. Lost events lead to one pass over
//! everything. If something fails in a round, its deletions are withheld, and the next round looks
//! at its changes again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_vfs::event::{Event, Phase};
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{End, RelPath, Tree};

use crate::delete::mirror::{Ended, delete_round};
use crate::delete::pass::Scope;
use crate::delete::times::restore_times;
use crate::durable::checkpoint::checkpoint;
use crate::job::context::Context;
use crate::job::options::Root;
use crate::job::pass::copy_roots;
use crate::job::root::JobRoot;

/// Time for which changes are collected before they are copied. A guess.
const SETTLE: Duration = Duration::from_millis(250);
/// Time before the next pass over everything, if one failed. A pass may be long and may fail for a
/// long time. A guess.
const EVERYTHING_EVERY: Duration = Duration::from_secs(60);
/// Largest number of changed paths collected at once. More lead to a pass over everything.
const PATHS_MAX: usize = 4096;

/// What changed below one root.
#[derive(Debug, Default)]
struct Changes {
    everything: bool,
    paths: BTreeSet<RelPath>,
}

impl Changes {
    fn add(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Overflow => self.everything = true,
                Change::Path(path) if path.is_root() => self.everything = true,
                Change::Path(path) => {
                    self.paths.insert(path);
                }
            }
        }
        if self.paths.len() > PATHS_MAX {
            self.everything = true;
        }
    }
}

/// The watches of all roots. They begin before the first pass, so that nothing is missed.
pub(crate) struct Watches {
    watches: Vec<(Arc<JobRoot>, Box<dyn Watch>)>,
}

/// Starts to watch all roots.
///
/// # Errors
/// A source cannot be watched.
pub(crate) async fn begin_watch(roots: &[Arc<JobRoot>]) -> Result<Watches, ropeway_vfs::Error> {
    let mut watches = Vec::with_capacity(roots.len());
    for root in roots {
        watches.push((Arc::clone(root), root.root.source.watch().await?));
    }
    Ok(Watches { watches })
}

/// Follows the sources until the job is cancelled.
pub(crate) async fn follow(context: &Arc<Context>, watches: Watches) {
    context.report.emit(Event::Phase {
        phase: Phase::Watching,
    });
    let mut running = tokio::task::JoinSet::new();
    for (root, watch) in watches.watches {
        running.spawn(follow_one(Arc::clone(context), root, watch));
    }
    while running.join_next().await.is_some() {}
}

async fn follow_one(context: Arc<Context>, root: Arc<JobRoot>, mut watch: Box<dyn Watch>) {
    let mut left = Left::default();
    if context.config.options.delete.is_some() && context.report.failures.grave() > 0 {
        left.everything_from = Some(Instant::now() + EVERYTHING_EVERY);
    }
    loop {
        let first = tokio::select! {
            biased;
            first = watch.next() => first,
            () = context.cancel.cancelled() => return,
        };
        let mut changes = Changes {
            everything: left.everything_from.is_some_and(|from| Instant::now() >= from),
            paths: std::mem::take(&mut left.paths),
        };
        let mut result = first.map(|first| changes.add(first));
        let settled = tokio::time::sleep(SETTLE);
        tokio::pin!(settled);
        while result.is_ok() && !changes.everything {
            tokio::select! {
                biased;
                more = watch.next() => result = more.map(|more| changes.add(more)),
                () = &mut settled => break,
            }
        }
        if let Err(error) = result {
            context
                .fail(&root.shown(&root.root.source_path), error, End::Source)
                .await;
            return;
        }
        let everything = changes.everything;
        let paths = match context.config.options.delete.is_some() && !everything {
            true => changes.paths.clone(),
            false => BTreeSet::new(),
        };
        let ended = apply(&context, &root, changes).await;
        if everything {
            left.everything_from = match ended {
                Ended::Done => None,
                Ended::Withheld => Some(Instant::now() + EVERYTHING_EVERY),
                Ended::EmptySource => Some(Instant::now()),
            };
        } else if ended != Ended::Done {
            left.paths = paths;
        }
        if context.stopped() {
            return;
        }
    }
}

/// Changes whose deletions were withheld. The next round looks at them again.
#[derive(Default)]
struct Left {
    paths: BTreeSet<RelPath>,
    /// From this moment on, everything must be looked at again.
    everything_from: Option<Instant>,
}

/// The work of one round.
#[derive(Default)]
struct Round {
    parts: Vec<Arc<JobRoot>>,
    scopes: Vec<Scope>,
    /// Folders in which something is made or deleted, relative to the root. Their times are set
    /// again.
    touched: BTreeSet<RelPath>,
}

async fn apply(context: &Arc<Context>, root: &Arc<JobRoot>, changes: Changes) -> Ended {
    let failures_before = context.report.failures.grave();
    let round = match changes.everything {
        true => Round {
            parts: vec![Arc::clone(root)],
            scopes: vec![Scope::Tree(RelPath::root())],
            touched: BTreeSet::new(),
        },
        false => round_of(context, root, changes.paths).await,
    };
    copy_roots(context, &round.parts).await;
    let mut ended = Ended::Done;
    if context.config.options.delete.is_some() {
        ended = delete_round(context, root, &round.scopes, failures_before).await;
    }
    for below in &round.touched {
        if let Some(target) = root.target_of(below) {
            let source = root.root.source_path.join_path(below);
            restore_times(
                &context.config,
                &context.durability,
                &context.report,
                (root, &source),
                &target,
            )
            .await;
        }
    }
    if context.config.durability.wants_durable() && context.durability.is_touched() && !context.stopped() {
        checkpoint(context).await;
    }
    ended
}

/// Sorts changed paths into nodes to copy and nodes that are gone.
async fn round_of(context: &Arc<Context>, root: &Arc<JobRoot>, paths: BTreeSet<RelPath>) -> Round {
    let mut round = Round::default();
    let mut covered: Option<RelPath> = None;
    let volume = match context.config.options.one_file_system {
        true => volume_of(root).await,
        false => None,
    };
    for path in paths {
        // A changed folder covers everything below it, and comes first in the ordered set.
        let is_covered = |above: &RelPath| path.strip_prefix(above).is_some();
        if covered.as_ref().is_some_and(is_covered) {
            continue;
        }
        let Some(below) = path.strip_prefix(&root.root.source_path) else {
            continue;
        };
        let metadata = match root.root.source.metadata(&path).await {
            Ok(metadata) => metadata,
            Err(error) if error.kind.is_absence() => {
                round.touched.extend(below.parent());
                round.scopes.push(Scope::Gone(below));
                covered = Some(path);
                continue;
            }
            Err(error) => {
                context.fail(&root.shown(&path), error, End::Source).await;
                continue;
            }
        };
        let filter = &context.config.options.filter;
        if !filter.node(&below, &metadata) || filter.excluded(&below, metadata.is_dir()) {
            continue;
        }
        // There are events from volumes mounted below as well.
        if volume.is_some() && metadata.id.map(|id| id.volume) != volume {
            continue;
        }
        let Some(at) = anchor(&*context.config.target, root, below.clone()).await else {
            continue;
        };
        if let Some(part) = part_at(root, &at) {
            covered = Some(part.root.source_path.clone());
            round.touched.extend(at.parent());
            if metadata.is_dir() || at != below {
                round.scopes.push(Scope::Tree(at));
            }
            round.parts.push(part);
        }
    }
    round
}

async fn volume_of(root: &JobRoot) -> Option<u64> {
    let metadata = root.root.source.metadata(&root.root.source_path).await.ok()?;
    metadata.id.map(|id| id.volume)
}

/// Returns the changed node, or the nearest folder above it whose parent exists on the target.
async fn anchor(target: &dyn Tree, root: &JobRoot, below: RelPath) -> Option<RelPath> {
    let mut at = below;
    loop {
        if at.is_root() {
            return Some(at);
        }
        let parent = root.target_of(&at)?.parent().unwrap_or_default();
        let found = target.metadata(&parent).await;
        if found.is_ok_and(|parent| parent.is_dir()) {
            return Some(at);
        }
        at = at.parent()?;
    }
}

/// Returns a root for a single node below a root.
fn part_at(root: &JobRoot, below: &RelPath) -> Option<Arc<JobRoot>> {
    let part = Root {
        source: Arc::clone(&root.root.source),
        source_name: root.root.source_name.clone(),
        source_path: root.root.source_path.join_path(below),
        target_path: root.target_of(below)?,
    };
    Some(Arc::new(JobRoot {
        index: root.index,
        root: part,
        whole: root.whole.clone(),
        rules: root.rules,
        names: root.names,
        is_repair: false,
        digests: None,
        is_changed: false.into(),
        needs_deletion: true.into(),
    }))
}
