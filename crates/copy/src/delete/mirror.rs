//! Deletes what a mirror must delete: counted before anything is touched, done after everything is
//! copied.
//!
//! The first pass and every round of a watch delete in the same way, given [`Scope`]s: a folder
//! that is compared with everything below it, or a node that the source no longer has. What filters
//! exclude, what a backup keeps, and other volumes stay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::guard::{DeleteError, DeleteGuard, SourceContent};
use ropeway_vfs::{Ancestry, End, Error, RelPath};

use crate::delete::nodes::CHUNK;
use crate::delete::pass::{Found, Pass, Scope};
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::options::is_temporary;
use crate::job::outcome::{Fatal, Status};
use crate::job::root::JobRoot;

/// How the deletions of a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Everything was deleted, or the failure is reported.
    Done,
    /// Nothing was deleted, because something failed.
    Withheld,
    /// Nothing was deleted, because the source is empty.
    EmptySource,
}

/// Counts what the mirror would delete, and sets the guard.
///
/// # Errors
/// The guard refuses. Nothing was touched.
pub(crate) async fn check_deletions(context: &Context, roots: &[Arc<JobRoot>]) -> Result<(), Fatal> {
    let delete = context.config.options.delete.clone().unwrap_or_default();
    let (mut found, mut content) = (Found::default(), SourceContent::default());
    for root in roots {
        let counted = count(context, root, &[Scope::Tree(RelPath::root())]).await;
        let counted = counted.map_err(|error| Fatal::from_error(&error, End::Target))?;
        let needs_deletion = counted.planned.nodes > 0 || counted.is_doubtful;
        root.needs_deletion.store(needs_deletion, Ordering::Release);
        found.target_nodes += counted.target_nodes;
        found.planned.nodes += counted.planned.nodes;
        found.planned.files += counted.planned.files;
        let here = content_of(&context.config, root).await;
        let here = here.map_err(|error| Fatal::from_error(&error, End::Source))?;
        content.files |= here.files;
        content.nodes |= here.nodes;
    }
    let mut guard = DeleteGuard::new(delete.max, found.target_nodes);
    guard.delete_excluded = delete.excluded;
    guard.agreed = delete.agreed;
    guard.plan(content, found.planned).map_err(|refused| {
        let hint = match refused {
            DeleteError::EmptySource => {
                "is the source's volume mounted, and do the filters leave something? a target is emptied with ropeway rm"
            }
            _ => "look with --dry-run; raise --max-delete if it is meant",
        };
        Fatal::new(Status::Refused, refused.to_string()).hint(hint)
    })?;
    *context.delete_guard.lock() = Some(guard);
    Ok(())
}

/// Deletes after the first pass, in all roots.
pub(crate) async fn delete_first(context: &Context, roots: &[Arc<JobRoot>]) {
    for root in roots {
        delete_extra(context, root).await;
    }
    context.extra_files.clear();
    // The user agreed to the deletions of the first pass only.
    if let Some(guard) = &mut *context.delete_guard.lock() {
        guard.agreed = None;
    }
}

/// Deletes after the first pass what is on the target and not in the source. Nothing is looked for where the
/// pass before the copy found nothing, the copy changed nothing, and no folder of the source has another time
/// than its copy: a name that vanished since would have changed it. A watch always looks: it began after the
/// pass before the copy.
async fn delete_extra(context: &Context, root: &JobRoot) {
    let is_clean = !root.needs_deletion.load(Ordering::Acquire) && !root.is_changed.load(Ordering::Acquire);
    if is_clean && !context.config.options.watch {
        return;
    }
    let whole = [Scope::Tree(RelPath::root())];
    match delete(context, root, &whole, None).await {
        Ok(_) => {}
        Err(Stopped::EmptySource) => context.fatal(
            Fatal::new(Status::Refused, DeleteError::EmptySource.to_string())
                .hint("the source was emptied while it was copied"),
        ),
        Err(Stopped::Fatal(fatal)) => context.fatal(fatal),
    }
}

/// Deletes in a round of a watch. `failures_before` is the number of failures before the round.
pub(crate) async fn delete_round(
    context: &Context,
    root: &JobRoot,
    scopes: &[Scope],
    failures_before: u64,
) -> Ended {
    let deleted = delete(context, root, scopes, Some(failures_before)).await;
    context.extra_files.clear();
    match deleted {
        Ok(ended) => ended,
        Err(Stopped::EmptySource) => {
            context.report.note(
                None,
                format!(
                    "{}; nothing is deleted until there is a file again",
                    DeleteError::EmptySource
                ),
            );
            Ended::EmptySource
        }
        Err(Stopped::Fatal(fatal)) => {
            context.fatal(fatal);
            Ended::Done
        }
    }
}

/// Why a pass did not begin.
enum Stopped {
    EmptySource,
    Fatal(Fatal),
}

/// Deletes what the source does not have, unless something failed. `failures_before` is the number
/// of failures before this round of a watch, and `None` in the first pass.
async fn delete(
    context: &Context,
    root: &JobRoot,
    scopes: &[Scope],
    failures_before: Option<u64>,
) -> Result<Ended, Stopped> {
    if context.stopped() || scopes.is_empty() {
        return Ok(Ended::Done);
    }
    let failed = context.report.failures.grave() > failures_before.unwrap_or(0);
    let on_errors = context
        .config
        .options
        .delete
        .as_ref()
        .is_some_and(|delete| delete.on_errors);
    if failed && !on_errors {
        withhold(context, root, scopes).await;
        return Ok(Ended::Withheld);
    }
    let content = content_of(&context.config, root).await;
    let content = content.map_err(|error| Stopped::Fatal(Fatal::from_error(&error, End::Source)))?;
    // The first pass was counted before the copy. Each deletion asks for what has appeared since.
    let is_bounded = context
        .delete_guard
        .lock()
        .as_ref()
        .is_some_and(|guard| guard.allowed() < u64::MAX);
    if !content.files || (is_bounded && failures_before.is_some()) {
        let found = count(context, root, scopes).await;
        let found = found.map_err(|error| Stopped::Fatal(Fatal::from_error(&error, End::Target)))?;
        let planned = context
            .delete_guard
            .lock()
            .as_ref()
            .map_or(Ok(()), |guard| guard.plan(content, found.planned));
        planned.map_err(|refused| match refused {
            DeleteError::EmptySource => Stopped::EmptySource,
            refused => Stopped::Fatal(Fatal::new(Status::Refused, refused.to_string())),
        })?;
    }
    let pass = Pass::new(context, root, false, failed).await;
    let mut found = Found::default();
    for scope in scopes {
        if let Err(error) = pass.run(scope, &mut found).await {
            context.fail(&root.root.target_path, error, End::Target).await;
        }
    }
    Ok(Ended::Done)
}

/// Counts what would be deleted.
async fn count(context: &Context, root: &JobRoot, scopes: &[Scope]) -> Result<Found, Error> {
    let pass = Pass::new(context, root, true, false).await;
    let mut found = Found::default();
    for scope in scopes {
        pass.run(scope, &mut found).await?;
    }
    found.is_doubtful = pass.is_doubtful();
    Ok(found)
}

/// Reports what is not deleted because something failed.
async fn withhold(context: &Context, root: &JobRoot, scopes: &[Scope]) {
    let Ok(found) = count(context, root, scopes).await else {
        return;
    };
    let nodes = found.planned.nodes;
    if nodes == 0 {
        return;
    }
    let mut names: Vec<String> = found.first.iter().map(ToString::to_string).collect();
    if nodes > names.len() as u64 {
        names.push("…".to_owned());
    }
    let (subject, verb) = match nodes {
        1 => ("1 node", "is"),
        _ => (&*format!("{nodes} nodes"), "are"),
    };
    context.report.note(
        None,
        format!(
            "{subject} of the target that the source does not have {verb} kept, since something failed ({}); \
             --delete-on-errors deletes all the same",
            names.join(", ")
        ),
    );
}

/// Returns whether the source has any nodes and files that take part. Ends at the first file.
async fn content_of(config: &JobConfig, root: &JobRoot) -> Result<SourceContent, Error> {
    let (source, filter) = (&root.root.source, &config.options.filter);
    let top = &root.root.source_path;
    let mut content = SourceContent::default();
    let metadata = source.metadata(top).await?;
    let volume = metadata.id.map(|id| id.volume);
    let mut folders = vec![(RelPath::root(), Ancestry::begin(&**source, &metadata))];
    while let Some((below, ancestry)) = folders.pop() {
        let dir = top.join_path(&below);
        let mut listing = match source.list(&dir).await {
            Ok(listing) => listing,
            Err(error) if below.is_root() => return Err(error),
            // Nobody can know whether files are in it. The copy reports it.
            Err(_) => continue,
        };
        loop {
            let entries = match listing.next(CHUNK).await {
                Ok(entries) if entries.is_empty() => break,
                Ok(entries) => entries,
                Err(error) if below.is_root() => return Err(error),
                Err(_) => break,
            };
            for entry in entries {
                let Ok(metadata) = entry.metadata else { continue };
                let path = below.join(&entry.name);
                if is_temporary(&entry.name) || !filter.node(&path, &metadata) {
                    continue;
                }
                content.nodes = true;
                if !metadata.is_dir() {
                    content.files = true;
                    return Ok(content);
                }
                let other = config.options.one_file_system && metadata.id.map(|id| id.volume) != volume;
                if !other && let Ok(inside) = ancestry.enter(&path, &metadata) {
                    folders.push((path, inside));
                }
            }
        }
    }
    Ok(content)
}
