//! After the first pass: what changes is copied within moments.
//!
//! Changes are collected for [`SETTLE`], so that a file being written is copied once, and each changed node goes
//! through the same walk as a root of its own. Lost events lead to one pass over everything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::event::{Event, Phase};
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{ErrorKind, RelPath};

use crate::context::{Context, RootContext};
use crate::job::copy_roots;
use crate::options::Root;

/// How long changes are collected before they are copied.
const SETTLE: Duration = Duration::from_millis(250);
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
    loop {
        let first = tokio::select! {
            first = watch.next() => first,
            () = context.cancel.cancelled() => return,
        };
        let mut changes = Changes::default();
        let mut result = first.map(|first| changes.add(first));
        let settled = tokio::time::sleep(SETTLE);
        tokio::pin!(settled);
        while result.is_ok() && !changes.everything {
            tokio::select! {
                more = watch.next() => result = more.map(|more| changes.add(more)),
                () = &mut settled => break,
            }
        }
        if let Err(error) = result {
            context.fail(&root.root.source_path, error, true).await;
            return;
        }
        apply(&context, &root, changes).await;
        if context.stopped() {
            return;
        }
    }
}

async fn apply(context: &Arc<Context>, root: &Arc<RootContext>, changes: Changes) {
    if changes.everything {
        copy_roots(context, std::slice::from_ref(root)).await;
        return;
    }
    let mut roots = Vec::new();
    let mut taken: Option<RelPath> = None;
    for path in changes.paths {
        // A changed folder covers what is below it (the set is ordered).
        if taken
            .as_ref()
            .is_some_and(|above| path.strip_prefix(above).is_some())
        {
            continue;
        }
        if let Some((covered, part)) = part_of(context, root, &path).await {
            taken = Some(covered);
            roots.push(part);
        }
    }
    copy_roots(context, &roots).await;
}

/// The changed node as a root of its own; a missing parent on the target moves it up. Also does a mirror's deletion.
async fn part_of(
    context: &Arc<Context>,
    root: &Arc<RootContext>,
    path: &RelPath,
) -> Option<(RelPath, Arc<RootContext>)> {
    let spec = &root.root;
    let below = path.strip_prefix(&spec.source_path)?;
    let metadata = match spec.source.metadata(path).await {
        Ok(metadata) => metadata,
        Err(error) if error.kind == ErrorKind::NotFound => {
            remove_gone(context, root, &below).await;
            return None;
        }
        Err(error) => {
            context.fail(path, error, true).await;
            return None;
        }
    };
    let filter = &context.options.filter;
    if !filter.node(&below, &metadata) || filter.excluded(&below, metadata.is_dir()) {
        return None;
    }
    let mut at = below;
    loop {
        let target_path = root.target_of(&at)?;
        let parent = target_path.parent().unwrap_or_default();
        if at.is_root()
            || context
                .target
                .metadata(&parent)
                .await
                .is_ok_and(|parent| parent.is_dir())
        {
            let source_path = spec.source_path.join_path(&at);
            let part = Root {
                source: Arc::clone(&spec.source),
                source_path: source_path.clone(),
                target_path,
            };
            let part = RootContext {
                index: root.index,
                root: part,
                rules: root.rules,
                names: root.names,
            };
            return Some((source_path, Arc::new(part)));
        }
        at = at.parent()?;
    }
}

async fn remove_gone(context: &Arc<Context>, root: &RootContext, below: &RelPath) {
    if context.options.delete.is_none() || below.is_root() || context.options.filter.excluded(below, false) {
        return;
    }
    let Some(path) = root.target_of(below) else { return };
    match crate::delete::remove_all(context, &path).await {
        Ok(()) => {}
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => context.fail(&path, error, false).await,
    }
}
