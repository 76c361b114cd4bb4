//! Removes the sources of a move when their copies are durable.
//!
//! Only nodes that this run copied, linked or found to be equal are removed. A target node that
//! only looks equal proves nothing: it may have been kept (`--ignore-existing`, a colliding name, a
//! failed rename). Folders that are empty by then are removed as well if their copies have their
//! attributes.
//!
//! Before anything in a folder is removed, a *probe* is made in it: an empty file with a new name.
//! If the probe appears in the folder of the copies, both are one folder seen in two ways (a share
//! of this machine, an alias of a server, a mount of a mount), and nothing is removed. No file of
//! the user is touched for that. If the run is killed meanwhile, the probe stays, and the next move
//! of that folder removes it, whoever runs it.

use ropeway_plan::Temporary;
use ropeway_vfs::{
    Backlog, CacheMode, Create, End, EndError, Error, ErrorKind, Held, Kind, Metadata, Name, Op, OpenOptions,
    RelPath,
};

use crate::delete::above::Above;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::options::is_temporary;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::job::root::JobRoot;
use crate::journal::token::token_of;
use crate::sweep::temporaries::Temporaries;

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// Largest number of probes made in one folder. A guess.
const PROBE_TRIES: u32 = 10;

/// A folder of the source to visit: first for its content, then (`emptied`) to be removed itself.
struct FolderVisit {
    below: RelPath,
    metadata: Metadata,
    above: Above,
    emptied: bool,
    _held: Held,
}

/// Removes the sources of a finished move: the copied nodes, then empty folders. What failed, was
/// excluded or changed meanwhile stays.
pub(crate) async fn remove_moved(context: &Context, root: &JobRoot) {
    let spec = &root.root;
    let look = || spec.source.metadata(&spec.source_path);
    let Some(metadata) = read(context, &spec.source_path, look).await else {
        return;
    };
    if !metadata.is_dir() {
        return move_one(context, root, &RelPath::root(), &metadata, &mut false).await;
    }
    let volume = metadata.id.map(|id| id.volume);
    let backlog = Backlog::of(&*spec.source);
    let mut stack = vec![FolderVisit {
        below: RelPath::root(),
        metadata,
        above: Above::Named,
        emptied: false,
        _held: Held::default(),
    }];
    while let Some(folder_visit) = stack.pop() {
        context.pass().await;
        if context.stopped() {
            return;
        }
        if folder_visit.emptied {
            remove_emptied(context, root, &folder_visit.below).await;
            continue;
        }
        let is_outside =
            context.config.options.one_file_system && folder_visit.metadata.id.map(|id| id.volume) != volume;
        if !is_outside {
            visit(context, root, (folder_visit, &backlog), &mut stack).await;
        }
    }
}

/// Removes the copied nodes of one folder, and puts its folders on the stack.
async fn visit(
    context: &Context,
    root: &JobRoot,
    (folder_visit, backlog): (FolderVisit, &Backlog),
    stack: &mut Vec<FolderVisit>,
) {
    let (spec, filter) = (&root.root, &context.config.options.filter);
    let below = folder_visit.below.clone();
    let dir = spec.source_path.join_path(&below);
    let above = folder_visit.above;
    stack.push(FolderVisit {
        emptied: true,
        ..folder_visit
    });
    let Some(mut listing) = read(context, &dir, || spec.source.list(&dir)).await else {
        return;
    };
    // Whether this folder is known to be another one than its copy.
    let mut is_distinct = false;
    loop {
        let entries = match listing.next(CHUNK).await {
            Ok(entries) => entries,
            Err(error) => return context.fail(&dir, error, End::Source).await,
        };
        if entries.is_empty() {
            return;
        }
        if let Err(error) = above.prove(&*spec.source, &dir, &*listing) {
            // Its copy exists. The target of the link was not to be moved.
            return context.fail(&dir, error, End::Source).await;
        }
        for entry in entries {
            let Ok(metadata) = entry.metadata else { continue };
            let path = below.join(&entry.name);
            if is_probe(&context.config, &entry.name, &metadata) {
                // Best effort. The next run finds it again.
                let _ = spec.source.remove_file(&dir.join(&entry.name)).await;
            } else if metadata.is_dir() && filter.directory(&path) {
                let held = match backlog.hold(&path) {
                    Ok(held) => held,
                    Err(error) => return context.fail(&dir, error, End::Source).await,
                };
                stack.push(FolderVisit {
                    below: path,
                    metadata,
                    above: Above::of(&*listing),
                    emptied: false,
                    _held: held,
                });
            } else if !metadata.is_dir() && filter.node(&path, &metadata) {
                move_one(context, root, &path, &metadata, &mut is_distinct).await;
            }
            context.pass().await;
            if context.stopped() {
                return;
            }
        }
    }
}

/// Reads something of the source. Tries again after an error that may pass. Returns `None` if nothing
/// is there, or after an error, which is reported: the sources stay.
async fn read<T, F>(context: &Context, path: &RelPath, look: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T, Error>>,
{
    let attempt = || {
        let looked = look();
        async move { looked.await.map_err(EndError::on_source) }
    };
    let token = token_of(0, path);
    match with_retries(&context.config.options, &context.report, token, attempt).await {
        Ok(found) => Some(found),
        Err(failed) if failed.error.kind.is_absence() => None,
        Err(failed) => {
            context.fail(path, failed.error, End::Source).await;
            None
        }
    }
}

/// Removes an empty folder if its copy exists, has its attributes, and is another folder. The root of
/// the tree stays.
async fn remove_emptied(context: &Context, root: &JobRoot, below: &RelPath) {
    let spec = &root.root;
    let dir = spec.source_path.join_path(below);
    let Some(target) = root.target_of(below).filter(|_| !dir.is_root()) else {
        return;
    };
    let token = token_of(root.index, &dir);
    if !context.copied_nodes.contains_folder(token) {
        return;
    }
    let is_empty = async {
        let mut listing = spec.source.list(&dir).await?;
        Ok::<bool, Error>(listing.next(1).await?.is_empty())
    };
    if !is_empty.await.unwrap_or(false) {
        return;
    }
    let copy = context.config.target.metadata(&target).await;
    if !copy.is_ok_and(|copy| copy.is_dir()) {
        return;
    }
    match are_distinct(&context.config, &context.temporaries, root, (&dir, &target)).await {
        Ok(true) => {
            // A folder that is in use, or not ours to remove, may stay.
            let _ = spec.source.remove_dir(&dir).await;
        }
        Ok(false) => refuse_same_folder(&context.report, &dir),
        Err(error) => context.fail(&dir, error, End::Source).await,
    }
}

/// Removes one copied node from the source. `is_distinct` is whether its folder is known to be
/// another one than that of the copies.
async fn move_one(
    context: &Context,
    root: &JobRoot,
    below: &RelPath,
    metadata: &Metadata,
    is_distinct: &mut bool,
) {
    let spec = &root.root;
    let source = spec.source_path.join_path(below);
    if context.stopped()
        || !context
            .copied_nodes
            .contains(token_of(root.index, &source), metadata)
    {
        return;
    }
    let Some(target) = root.target_of(below) else {
        return;
    };
    let copy = match context.config.target.metadata(&target).await {
        Ok(copy) => copy,
        Err(error) => return context.fail(&target, error, End::Target).await,
    };
    let same_kind = copy.kind == metadata.kind;
    let same_data = metadata.kind != Kind::File || copy.size == metadata.size;
    if source.file_name().is_some_and(|name| is_temporary(&name)) {
        return;
    }
    if !same_kind || !same_data {
        let mut error = Error::new(Op::Stat, &target, ErrorKind::Changed);
        let sentence = "the copy is not what was copied any more; its source is not removed";
        error.source = Some(std::io::Error::other(sentence));
        return context.fail(&target, error, End::Target).await;
    }
    if !*is_distinct {
        let (dir, copies) = (source.parent(), target.parent());
        let (dir, copies) = (dir.unwrap_or_default(), copies.unwrap_or_default());
        match are_distinct(&context.config, &context.temporaries, root, (&dir, &copies)).await {
            Ok(true) => *is_distinct = true,
            Ok(false) => return refuse_same_folder(&context.report, &source),
            Err(error) => return context.fail(&source, error, End::Source).await,
        }
    }
    if let Err(error) = spec.source.remove_file(&source).await {
        context.fail(&source, error, End::Source).await;
    }
}

/// Stops the job, because a folder of the source is the folder of its copies.
fn refuse_same_folder(report: &Report, source: &RelPath) {
    let message = format!("the source {source} and its copy are one, seen in two ways");
    let hint = "nothing is removed: the target is the source";
    report.fatal(Fatal::new(Status::Refused, message).hint(hint));
}

/// Whether a folder and the folder of its copies are distinct: what is made in the one does not
/// appear in the other.
async fn are_distinct(
    config: &JobConfig,
    temporaries: &Temporaries,
    root: &JobRoot,
    (dir, copies): (&RelPath, &RelPath),
) -> Result<bool, Error> {
    for _ in 0..PROBE_TRIES {
        if let Some(are_distinct) = probe(config, temporaries, root, (dir, copies)).await? {
            return Ok(are_distinct);
        }
    }
    let mut error = Error::new(Op::Create, dir, ErrorKind::Changed);
    let sentence =
        "somebody removes each file that is made in it to see whether it is the target; nothing is removed";
    error.source = Some(std::io::Error::other(sentence));
    Err(error)
}

/// Makes one probe. Returns `None` if somebody may have removed it before it was looked for.
async fn probe(
    config: &JobConfig,
    temporaries: &Temporaries,
    root: &JobRoot,
    (dir, copies): (&RelPath, &RelPath),
) -> Result<Option<bool>, Error> {
    let tree = &root.root.source;
    let name = config.nonce.probe();
    let probe = dir.join(&name);
    let options = OpenOptions::write(Create::New, CacheMode::Keep);
    match tree.open(&probe, options).await {
        Ok(file) => drop(file),
        // A run that was killed left it.
        Err(error) if error.kind == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // The probe is opened, because network file systems may cache for a while what exists.
    let options = OpenOptions::read(CacheMode::Keep);
    let shows = config.target.open(&copies.join(&name), options).await.map(drop);
    match (tree.remove_file(&probe).await, shows) {
        // Another move of this folder took the probe for one of a dead run.
        (Err(gone), Err(_)) if gone.kind == ErrorKind::NotFound => Ok(None),
        (Err(error), _) if error.kind != ErrorKind::NotFound => {
            // The next run makes the same name and removes it.
            temporaries.must_stay();
            Err(error)
        }
        (_, Err(error)) if error.kind == ErrorKind::NotFound => Ok(Some(true)),
        // It is there and may not be read.
        (_, Err(error)) if error.kind != ErrorKind::PermissionDenied => Err(error),
        _ => Ok(Some(false)),
    }
}

/// Whether a node of the source is a probe of a move, so that it may be removed. If the move still
/// runs, it makes another one.
pub(crate) fn is_probe(config: &JobConfig, name: &Name, metadata: &Metadata) -> bool {
    config.options.move_source
        && metadata.kind == Kind::File
        && metadata.size == 0
        && Temporary::parse(name)
            .is_some_and(|temporary| temporary.is_probe() || temporary.nonce() == config.nonce)
}
