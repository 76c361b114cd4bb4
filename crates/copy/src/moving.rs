//! Moves: sources are removed when their copies are durable.
//!
//! Only what this run copied, linked, or found to be equal is removed; an equal look is not enough, since what was kept
//! (`--ignore-existing`, a name that collides, a rename that failed) may look the same. And before anything in a folder is
//! removed, one of its files is renamed for a moment: where its copy vanishes with it, both ends are one folder seen in two
//! ways (a share of this machine, an alias of a server, a mount of a mount), and nothing is removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ropeway_vfs::{
    CacheMode, Create, Error, ErrorKind, Kind, Metadata, Name, Op, OpenOptions, RelPath, Timestamp,
};

use crate::context::{Context, RootContext, lock, token_of};
use crate::journal::Token;
use crate::options::is_temporary;
use crate::status::{Fatal, Status};

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// Size and time of last change of a source.
type Version = (u64, Timestamp);

/// Nodes whose copies stand on the target, by their tokens, and which version of them was copied; remembered for moves only
/// (some 50 bytes for each).
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Option<Mutex<HashMap<Token, Version>>>);

impl Arrivals {
    pub(crate) fn remembered(of_a_move: bool) -> Self {
        Self(of_a_move.then(Mutex::default))
    }

    /// The node was copied, or its equal was there.
    pub(crate) fn add(&self, token: Token, source: &Metadata) {
        if let Some(tokens) = &self.0 {
            lock(tokens).insert(token, (source.size, source.modified));
        }
    }

    /// It failed after all.
    pub(crate) fn take_back(&self, token: Token) {
        if let Some(tokens) = &self.0 {
            lock(tokens).remove(&token);
        }
    }

    fn has(&self, token: Token, source: &Metadata) -> bool {
        let version = self
            .0
            .as_ref()
            .and_then(|tokens| lock(tokens).get(&token).copied());
        version == Some((source.size, source.modified))
    }
}

/// Removes the sources of a finished move: everything that arrived, then folders left empty. What failed, was excluded or
/// changed meanwhile stays.
pub(crate) async fn remove_moved(context: &Arc<Context>, root: &Arc<RootContext>) {
    let spec = &root.root;
    let Ok(metadata) = spec.source.metadata(&spec.source_path).await else {
        return;
    };
    let (mut known, mut any) = (false, false);
    if !metadata.is_dir() {
        return move_one(context, root, &RelPath::root(), &metadata, &mut known).await;
    }
    let mut stack = vec![(RelPath::root(), false)];
    while let Some((below, emptied)) = stack.pop() {
        if context.stopped() {
            return;
        }
        let dir = spec.source_path.join_path(&below);
        if emptied {
            // A folder that still holds something stays, and so does the tree's own root; and all of them where no file
            // showed that the copies are others.
            if !dir.is_root() && any {
                let _ = spec.source.remove_dir(&dir).await;
            }
            continue;
        }
        stack.push((below.clone(), true));
        let Ok(mut listing) = spec.source.list(&dir).await else {
            continue;
        };
        // Whether this folder is known to be another one than its copy.
        known = false;
        while let Ok(entries) = listing.next(CHUNK).await {
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let Ok(metadata) = entry.metadata else { continue };
                let path = below.join(&entry.name);
                let filter = &context.options.filter;
                if metadata.is_dir() && filter.directory(&path) {
                    stack.push((path, false));
                } else if !metadata.is_dir() && filter.node(&path, &metadata) {
                    move_one(context, root, &path, &metadata, &mut known).await;
                    any |= known;
                }
            }
        }
    }
}

async fn move_one(
    context: &Context,
    root: &RootContext,
    below: &RelPath,
    metadata: &Metadata,
    is_apart: &mut bool,
) {
    let spec = &root.root;
    let source = spec.source_path.join_path(below);
    if context.stopped() || !context.arrivals.has(token_of(root.index, &source), metadata) {
        return;
    }
    let Some(target) = root.target_of(below) else {
        return;
    };
    let Ok(copy) = context.target.metadata(&target).await else {
        return;
    };
    let same_kind = copy.kind == metadata.kind;
    let same_data = metadata.kind != Kind::File || copy.size == metadata.size;
    if !same_kind || !same_data || is_temporary_path(&source) {
        return;
    }
    if !*is_apart {
        match are_two(context, root, &source, (&target, &copy)).await {
            Ok(true) => *is_apart = true,
            Ok(false) => {
                let message = format!("the source {source} and its copy are one file, seen in two ways");
                let hint = "nothing is removed: the target is the source";
                return context.fatal(Fatal::new(Status::Refused, message).hint(hint));
            }
            Err(error) => return context.fail(&source, error, true).await,
        }
    }
    if let Err(error) = spec.source.remove_file(&source).await {
        context.fail(&source, error, true).await;
    }
}

/// Whether a file and its copy are two: the copy stays where it is when the file gets another name.
async fn are_two(
    context: &Context,
    root: &RootContext,
    source: &RelPath,
    (target, copy): (&RelPath, &Metadata),
) -> Result<bool, Error> {
    let tree = &root.root.source;
    // No temporary name of this job: those are removed as leftovers, and this may be all there is of the file.
    let name = format!("ropeway-moving-{:016x}", token_of(root.index, source));
    let Some(name) = Name::new(name.as_bytes()) else {
        return Err(Error::new(Op::Rename, source, ErrorKind::NameRefused));
    };
    let aside = source.parent().unwrap_or_default().join(&name);
    tree.rename(source, &aside, false).await?;
    let stands = match copy.kind {
        // Opened, since file systems of a network may remember names for a while that they do not open any more.
        Kind::File => {
            let options = OpenOptions {
                create: Create::No,
                ..OpenOptions::read(CacheMode::Keep)
            };
            context.target.open(target, options).await.map(drop)
        }
        _ => context.target.metadata(target).await.map(drop),
    };
    tree.rename(&aside, source, false).await?;
    match stands {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        // It is there, and may not be read.
        Err(error) if error.kind != ErrorKind::PermissionDenied => Err(error),
        _ => Ok(true),
    }
}

fn is_temporary_path(path: &RelPath) -> bool {
    path.file_name().is_some_and(|name| is_temporary(&name))
}
