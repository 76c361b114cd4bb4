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

use std::collections::HashSet;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use ropeway_plan::Temporary;
use ropeway_vfs::{
    Backlog, CacheMode, Create, End, EndError, Error, ErrorKind, Held, Kind, Metadata, Name, Op, OpenOptions,
    RelPath,
};
use tokio::sync::Semaphore;

use crate::delete::above::Above;
use crate::delete::batch::{folders_at_once, next_batch, nodes_at_once};
use crate::delete::nodes::CHUNK;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::options::is_temporary;
use crate::job::outcome::{Fatal, Status};
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::job::root::JobRoot;
use crate::journal::token::token_of;
use crate::sweep::temporaries::Temporaries;

/// Largest number of probes made in one folder. A guess.
const PROBE_TRIES: u32 = 10;

/// A folder of the source to visit: first for its content, then (`emptied`) to be removed itself.
struct FolderVisit {
    below: RelPath,
    metadata: Metadata,
    above: Above,
    emptied: bool,
    /// Whether it is known to be another folder than that of its copies.
    is_distinct: bool,
    _held: Held,
}

/// Removes the sources of a finished move: the copied nodes, then empty folders. What failed, was
/// excluded or changed meanwhile stays.
pub(crate) async fn remove_moved(context: &Context, root: &JobRoot) {
    let (source, target) = (&*root.root.source, &*context.config.target);
    let at_once = nodes_at_once(source).max(nodes_at_once(target));
    let moved = Moved {
        context,
        root,
        at_once,
        turns: Semaphore::new(at_once),
        backlog: Backlog::of(source),
    };
    moved.remove().await;
}

/// The sources of a finished move.
struct Moved<'a> {
    context: &'a Context,
    root: &'a JobRoot,
    /// Number of nodes looked up and removed at a time, in all folders.
    at_once: usize,
    turns: Semaphore,
    /// Bounds the folders still to visit.
    backlog: Backlog,
}

impl Moved<'_> {
    async fn remove(&self) {
        let (context, spec) = (self.context, &self.root.root);
        let look = || spec.source.metadata(&spec.source_path);
        let Some(metadata) = self.read(&spec.source_path, look).await else {
            return;
        };
        if !metadata.is_dir() {
            self.move_one(&RelPath::root(), &metadata, false).await;
            return;
        }
        let volume = metadata.id.map(|id| id.volume);
        let mut stack = vec![FolderVisit {
            below: RelPath::root(),
            metadata,
            above: Above::Named,
            emptied: false,
            is_distinct: false,
            _held: Held::default(),
        }];
        while !stack.is_empty() {
            context.pass().await;
            if context.stopped() {
                return;
            }
            let at_once = folders_at_once(self.at_once);
            let mut batch = next_batch(&mut stack, at_once, |visit| (&visit.below, visit.emptied));
            if !are_different(&batch) {
                let first = batch.pop();
                stack.append(&mut batch);
                batch.extend(first);
            }
            if batch.iter().all(|visit| visit.emptied) {
                join_all(batch.iter().map(|visit| self.remove_emptied(visit))).await;
                continue;
            }
            let inside = |visit: &FolderVisit| {
                !context.config.options.one_file_system || visit.metadata.id.map(|id| id.volume) == volume
            };
            let visits = batch.into_iter().filter(inside).map(|visit| self.visit(visit));
            stack.extend(join_all(visits).await.into_iter().flatten());
        }
    }

    /// Removes the copied nodes of one folder. Returns the folder, emptied, and then its folders.
    async fn visit(&self, mut visit: FolderVisit) -> Vec<FolderVisit> {
        let dir = self.root.root.source_path.join_path(&visit.below);
        let mut folders = Vec::new();
        self.empty(&dir, &mut visit, &mut folders).await;
        visit.emptied = true;
        folders.insert(0, visit);
        folders
    }

    /// Removes the copied nodes of one folder, and adds its folders to `folders`.
    async fn empty(&self, dir: &RelPath, visit: &mut FolderVisit, folders: &mut Vec<FolderVisit>) {
        let (context, spec) = (self.context, &self.root.root);
        let filter = &context.config.options.filter;
        let Some(mut listing) = self.read(dir, || spec.source.list(dir)).await else {
            return;
        };
        loop {
            let entries = match listing.next(CHUNK).await {
                Ok(entries) => entries,
                Err(error) => return context.fail(dir, error, End::Source).await,
            };
            if entries.is_empty() {
                return;
            }
            if let Err(error) = visit.above.prove(&*spec.source, dir, &*listing) {
                // Its copy exists. The target of the link was not to be moved.
                return context.fail(dir, error, End::Source).await;
            }
            let mut nodes = Vec::new();
            for entry in entries {
                let Ok(metadata) = entry.metadata else { continue };
                let path = visit.below.join(&entry.name);
                if is_probe(&context.config, &entry.name, &metadata) {
                    // Best effort. The next run finds it again.
                    let _ = spec.source.remove_file(&dir.join(&entry.name)).await;
                } else if metadata.is_dir() && filter.directory(&path) {
                    let held = match self.backlog.hold(&path) {
                        Ok(held) => held,
                        Err(error) => return context.fail(dir, error, End::Source).await,
                    };
                    folders.push(FolderVisit {
                        below: path,
                        metadata,
                        above: Above::of(&*listing),
                        emptied: false,
                        is_distinct: false,
                        _held: held,
                    });
                } else if !metadata.is_dir() && filter.node(&path, &metadata) {
                    nodes.push((path, metadata));
                }
            }
            visit.is_distinct = self.move_all(nodes, visit.is_distinct).await;
            if context.stopped() {
                return;
            }
        }
    }

    /// Removes the copied nodes among some of one folder, several at a time. Takes and returns whether the
    /// folder is known to be another one than that of the copies. Until it is, there is one node at a time.
    async fn move_all(&self, nodes: Vec<(RelPath, Metadata)>, mut is_distinct: bool) -> bool {
        let mut nodes = nodes.into_iter();
        while !is_distinct && let Some((path, metadata)) = nodes.next() {
            is_distinct = self.move_one(&path, &metadata, false).await;
        }
        let moves = nodes.map(|(path, metadata)| async move { self.move_one(&path, &metadata, true).await });
        futures_util::stream::iter(moves)
            .buffer_unordered(self.at_once)
            .for_each(|_| std::future::ready(()))
            .await;
        is_distinct
    }

    /// Reads something of the source. Tries again after an error that may pass. Returns `None` if nothing
    /// is there, or after an error, which is reported: the sources stay.
    async fn read<T, F>(&self, path: &RelPath, look: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let context = self.context;
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

    /// Removes an empty folder if its copy exists, has its attributes, and is another folder. The root
    /// of the tree stays.
    async fn remove_emptied(&self, visit: &FolderVisit) {
        let (context, root) = (self.context, self.root);
        let spec = &root.root;
        let dir = spec.source_path.join_path(&visit.below);
        let Some(target) = root.target_of(&visit.below).filter(|_| !dir.is_root()) else {
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
        if visit.is_distinct || self.proves_distinct((&dir, &target), &dir).await {
            // A folder that is in use, or not ours to remove, may stay.
            let _ = spec.source.remove_dir(&dir).await;
        }
    }

    /// Removes one node from the source if it was copied. Takes and returns whether its folder is known to
    /// be another one than that of the copies.
    async fn move_one(&self, below: &RelPath, metadata: &Metadata, is_distinct: bool) -> bool {
        let (context, root) = (self.context, self.root);
        let source = root.root.source_path.join_path(below);
        let turn = self.turns.acquire().await;
        let _turn = turn.expect("the semaphore is never closed");
        context.pass().await;
        if context.stopped()
            || !context
                .copied_nodes
                .contains(token_of(root.index, &source), metadata)
        {
            return is_distinct;
        }
        let Some(target) = root.target_of(below) else {
            return is_distinct;
        };
        let copy = match context.config.target.metadata(&target).await {
            Ok(copy) => copy,
            Err(error) => {
                context.fail(&target, error, End::Target).await;
                return is_distinct;
            }
        };
        if source.file_name().is_some_and(|name| is_temporary(&name)) {
            return is_distinct;
        }
        let same_data = metadata.kind != Kind::File || copy.size == metadata.size;
        if copy.kind != metadata.kind || !same_data {
            let mut error = Error::new(Op::Stat, &target, ErrorKind::Changed);
            let sentence = "the copy is not what was copied any more; its source is not removed";
            error.source = Some(std::io::Error::other(sentence));
            context.fail(&target, error, End::Target).await;
            return is_distinct;
        }
        let (dir, copies) = (source.parent(), target.parent());
        let (dir, copies) = (dir.unwrap_or_default(), copies.unwrap_or_default());
        if !is_distinct && !self.proves_distinct((&dir, &copies), &source).await {
            return false;
        }
        if let Err(error) = root.root.source.remove_file(&source).await {
            context.fail(&source, error, End::Source).await;
        }
        true
    }

    /// Whether a folder and that of its copies are distinct, before `node` is removed. If not, the job is
    /// stopped. If it cannot be proved, that is reported.
    async fn proves_distinct(&self, folders: (&RelPath, &RelPath), node: &RelPath) -> bool {
        let context = self.context;
        match are_distinct(&context.config, &context.temporaries, self.root, folders).await {
            Ok(true) => return true,
            Ok(false) => refuse_same_folder(&context.report, node),
            Err(error) => context.fail(node, error, End::Source).await,
        }
        false
    }
}

/// Whether folders are known to be different ones. Only such are visited at the same time: if two were one
/// folder seen in two ways, the probe of one would be taken for that of the other.
fn are_different(folders: &[FolderVisit]) -> bool {
    let mut ids = HashSet::new();
    folders
        .iter()
        .all(|folder| folder.metadata.id.is_some_and(|id| ids.insert(id)))
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
