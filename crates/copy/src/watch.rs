//! After the first pass: what changes is copied within moments, and a mirror deletes what went.
//!
//! Changes are collected for [`SETTLE`], so that a file being written is copied once. Each changed node goes through
//! the same walk as a root of its own, and deletions through the same pass as those of the first run, with its filters,
//! backups and guard. Lost events lead to one pass over everything. If something failed in a round, its deletions are
//! withheld, and its changes are looked at again in the next one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropeway_vfs::event::{Event, Phase};
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{End, RelPath};

use crate::context::{Context, RootContext};
use crate::delete::{self, Ended, Scope};
use crate::durable::checkpoint;
use crate::job::copy_roots;
use crate::options::Root;

/// How long changes are collected before they are copied.
const SETTLE: Duration = Duration::from_millis(250);
/// Where a pass over everything failed, the next one comes no earlier: it may be long, and fail for a long time. A
/// guess.
const EVERYTHING_EVERY: Duration = Duration::from_secs(60);
/// Changed paths collected at once; more lead to a full pass.
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

/// The watches of all roots; begun before the first pass, so that nothing is missed.
pub(crate) struct Watches {
    watches: Vec<(Arc<RootContext>, Box<dyn Watch>)>,
}

/// Begins to watch all roots.
///
/// # Errors
/// A source cannot be watched.
pub(crate) async fn begin(roots: &[Arc<RootContext>]) -> Result<Watches, ropeway_vfs::Error> {
    let mut watches = Vec::with_capacity(roots.len());
    for root in roots {
        watches.push((Arc::clone(root), root.root.source.watch().await?));
    }
    Ok(Watches { watches })
}

/// Follows the sources until the job is cancelled.
pub(crate) async fn follow(context: &Arc<Context>, watches: Watches) {
    context.emit(Event::Phase {
        phase: Phase::Watching,
    });
    let mut running = tokio::task::JoinSet::new();
    for (root, watch) in watches.watches {
        running.spawn(follow_one(Arc::clone(context), root, watch));
    }
    while running.join_next().await.is_some() {}
}

async fn follow_one(context: Arc<Context>, root: Arc<RootContext>, mut watch: Box<dyn Watch>) {
    let mut left = Left::default();
    if context.options.delete.is_some() && context.failures.grave() > 0 {
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
            context.fail(&root.root.source_path, error, End::Source).await;
            return;
        }
        let everything = changes.everything;
        let paths = match context.options.delete.is_some() && !everything {
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

/// What the deletions of a round left undone, since something failed: looked at again with the next change.
#[derive(Default)]
struct Left {
    paths: BTreeSet<RelPath>,
    /// Everything, from this moment on.
    everything_from: Option<Instant>,
}

/// What a round has to do.
#[derive(Default)]
struct Round {
    parts: Vec<Arc<RootContext>>,
    scopes: Vec<Scope>,
    /// Folders in which something is made or deleted, relative to the root: their times follow.
    touched: BTreeSet<RelPath>,
}

async fn apply(context: &Arc<Context>, root: &Arc<RootContext>, changes: Changes) -> Ended {
    let failures_before = context.failures.grave();
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
    if context.options.delete.is_some() {
        ended = delete::run_round(context, root, &round.scopes, failures_before).await;
    }
    for below in &round.touched {
        if let Some(target) = root.target_of(below) {
            let source = root.root.source_path.join_path(below);
            delete::restore_times(context, root, &source, &target).await;
        }
    }
    if context.wants_durable() && context.sync.is_touched() && !context.stopped() {
        checkpoint(context).await;
    }
    ended
}

/// Sorts changed paths into what is to be copied and what is gone.
async fn round_of(context: &Arc<Context>, root: &Arc<RootContext>, paths: BTreeSet<RelPath>) -> Round {
    let mut round = Round::default();
    let mut covered: Option<RelPath> = None;
    let volume = match context.options.one_file_system {
        true => volume_of(root).await,
        false => None,
    };
    for path in paths {
        // A changed folder covers what is below it (the set is ordered).
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
                context.fail(&path, error, End::Source).await;
                continue;
            }
        };
        let filter = &context.options.filter;
        if !filter.node(&below, &metadata) || filter.excluded(&below, metadata.is_dir()) {
            continue;
        }
        // Events come from volumes mounted below, too.
        if volume.is_some() && metadata.id.map(|id| id.volume) != volume {
            continue;
        }
        let Some(at) = anchor(context, root, below.clone()).await else {
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

async fn volume_of(root: &RootContext) -> Option<u64> {
    let metadata = root.root.source.metadata(&root.root.source_path).await.ok()?;
    metadata.id.map(|id| id.volume)
}

/// The changed node, or the nearest folder above it whose own parent is on the target.
async fn anchor(context: &Context, root: &RootContext, below: RelPath) -> Option<RelPath> {
    let mut at = below;
    loop {
        if at.is_root() {
            return Some(at);
        }
        let parent = root.target_of(&at)?.parent().unwrap_or_default();
        let found = context.target.metadata(&parent).await;
        if found.is_ok_and(|parent| parent.is_dir()) {
            return Some(at);
        }
        at = at.parent()?;
    }
}

/// A node below a root, as a root of its own.
fn part_at(root: &RootContext, below: &RelPath) -> Option<Arc<RootContext>> {
    let part = Root {
        source: Arc::clone(&root.root.source),
        source_path: root.root.source_path.join_path(below),
        target_path: root.target_of(below)?,
    };
    Some(Arc::new(RootContext {
        index: root.index,
        root: part,
        whole: root.whole.clone(),
        rules: root.rules,
        names: root.names,
        is_repair: false,
    }))
}
