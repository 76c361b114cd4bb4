//! Moves: sources are removed when their copies are durable.
//!
//! Only what this run copied, linked, or found to be equal is removed; an equal look is not enough, since what was kept
//! (`--ignore-existing`, a name that collides, a rename that failed) may look the same. Folders that are empty by then,
//! or were so before, go too where their copies stand.
//!
//! Before anything in a folder is removed, a file with a new name is made in it for a moment: where it shows up in the
//! folder of the copies, both are one folder seen in two ways (a share of this machine, an alias of a server, a mount
//! of a mount), and nothing is removed. No file of the user's is touched for that: if the run is killed meanwhile, an
//! empty file with a temporary name stays, and the next move of that folder removes it, whoever runs it.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_plan::Temporary;
use ropeway_vfs::{
    Backlog, CacheMode, Create, End, Error, ErrorKind, Held, Kind, Metadata, Name, Op, OpenOptions, RelPath,
};

use crate::context::{Context, RootContext, token_of};
use crate::delete::Above;
use crate::journal::Token;
use crate::options::is_temporary;
use crate::status::{Fatal, Status};

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// Probes made in one folder before it counts as doubtful. A guess.
const PROBE_TRIES: u32 = 10;

/// Parts of the set of arrivals: each grows by itself, so that little is copied when one does.
const PARTS: usize = 64;
/// How much a part grows at least, in nodes.
const PART_GROWS: usize = 64;

/// Nodes whose copies stand on the target; remembered for moves only. Of each node and the version of it that was
/// copied a hash of 64 bits is kept, 9 bytes a node: 1,000,000 nodes take 9 MB. A wrong answer is as likely as a
/// collision of two such hashes, 1 in 10^13 for each node.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Option<Box<Arrived>>);

#[derive(Debug)]
struct Arrived {
    versions: [Mutex<Versions>; PARTS],
    /// Those that failed after all.
    taken_back: Mutex<HashSet<Token>>,
}

impl Arrivals {
    pub(crate) fn remembered(of_a_move: bool) -> Self {
        let arrived = || {
            Box::new(Arrived {
                versions: std::array::from_fn(|_| Mutex::default()),
                taken_back: Mutex::default(),
            })
        };
        Self(of_a_move.then(arrived))
    }

    /// The node was copied, or its equal was there.
    pub(crate) fn add(&self, token: Token, source: &Metadata) {
        if let Some(arrived) = &self.0 {
            let version = version(token, source);
            arrived.part(version).lock().add(version);
            arrived.taken_back.lock().remove(&token);
        }
    }

    /// It failed after all.
    pub(crate) fn take_back(&self, token: Token) {
        if let Some(arrived) = &self.0 {
            arrived.taken_back.lock().insert(token);
        }
    }

    fn has(&self, token: Token, source: &Metadata) -> bool {
        let version = version(token, source);
        self.0.as_ref().is_some_and(|arrived| {
            arrived.part(version).lock().contains(version) && !arrived.taken_back.lock().contains(&token)
        })
    }
}

impl Arrived {
    fn part(&self, version: u64) -> &Mutex<Versions> {
        &self.versions[(version >> 32) as usize % PARTS]
    }
}

/// Hashes that are added first and looked for later.
#[derive(Debug, Default)]
struct Versions {
    hashes: Vec<u64>,
    is_sorted: bool,
}

impl Versions {
    fn add(&mut self, version: u64) {
        if self.hashes.len() == self.hashes.capacity() {
            self.hashes.reserve_exact((self.hashes.len() / 8).max(PART_GROWS));
        }
        self.hashes.push(version);
        self.is_sorted = false;
    }

    fn contains(&mut self, version: u64) -> bool {
        if !self.is_sorted {
            self.hashes.sort_unstable();
            self.is_sorted = true;
        }
        self.hashes.binary_search(&version).is_ok()
    }
}

/// A node, and size and time of its last change.
fn version(token: Token, source: &Metadata) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&token.to_le_bytes());
    hasher.update(&source.size.to_le_bytes());
    hasher.update(&source.modified.0.to_le_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// A folder of the source, on the way down or up.
struct Stop {
    below: RelPath,
    metadata: Metadata,
    above: Above,
    emptied: bool,
    _held: Held,
}

/// Removes the sources of a finished move: everything that arrived, then folders left empty. What failed, was excluded or
/// changed meanwhile stays.
pub(crate) async fn remove_moved(context: &Arc<Context>, root: &Arc<RootContext>) {
    let spec = &root.root;
    let Ok(metadata) = spec.source.metadata(&spec.source_path).await else {
        return;
    };
    if !metadata.is_dir() {
        return move_one(context, root, &RelPath::root(), &metadata, &mut false).await;
    }
    let volume = metadata.id.map(|id| id.volume);
    let backlog = Backlog::of(&*spec.source);
    let mut stack = vec![Stop {
        below: RelPath::root(),
        metadata,
        above: Above::Named,
        emptied: false,
        _held: Held::default(),
    }];
    while let Some(stop) = stack.pop() {
        if context.stopped() {
            return;
        }
        if stop.emptied {
            remove_emptied(context, root, &stop.below).await;
            continue;
        }
        let is_outside = context.options.one_file_system && stop.metadata.id.map(|id| id.volume) != volume;
        if !is_outside {
            visit(context, root, (stop, &backlog), &mut stack).await;
        }
    }
}

/// Removes what arrived of one folder, and puts its folders on the stack.
async fn visit(
    context: &Arc<Context>,
    root: &Arc<RootContext>,
    (stop, backlog): (Stop, &Backlog),
    stack: &mut Vec<Stop>,
) {
    let (spec, filter) = (&root.root, &context.options.filter);
    let below = stop.below.clone();
    let dir = spec.source_path.join_path(&below);
    let above = stop.above;
    stack.push(Stop {
        emptied: true,
        ..stop
    });
    let Ok(mut listing) = spec.source.list(&dir).await else {
        return;
    };
    // Whether this folder is known to be another one than its copy.
    let mut is_apart = false;
    while let Ok(entries) = listing.next(CHUNK).await {
        if entries.is_empty() {
            return;
        }
        if let Err(error) = above.prove(&*spec.source, &dir, &*listing) {
            // Its copy stands; what it leads to was not to be moved.
            return context.fail(&dir, error, End::Source).await;
        }
        for entry in entries {
            let Ok(metadata) = entry.metadata else { continue };
            let path = below.join(&entry.name);
            if is_probe(context, &entry.name, &metadata) {
                // Best effort: the next run finds it again.
                let _ = spec.source.remove_file(&dir.join(&entry.name)).await;
            } else if metadata.is_dir() && filter.directory(&path) {
                let held = match backlog.hold(&path) {
                    Ok(held) => held,
                    Err(error) => return context.fail(&dir, error, End::Source).await,
                };
                stack.push(Stop {
                    below: path,
                    metadata,
                    above: Above::of(&*listing),
                    emptied: false,
                    _held: held,
                });
            } else if !metadata.is_dir() && filter.node(&path, &metadata) {
                move_one(context, root, &path, &metadata, &mut is_apart).await;
            }
            if context.stopped() {
                return;
            }
        }
    }
}

/// Removes a folder of which nothing is left, if its copy is there, and is another one. The tree's own root stays.
async fn remove_emptied(context: &Arc<Context>, root: &Arc<RootContext>, below: &RelPath) {
    let spec = &root.root;
    let dir = spec.source_path.join_path(below);
    let Some(target) = root.target_of(below).filter(|_| !dir.is_root()) else {
        return;
    };
    let is_empty = async {
        let mut listing = spec.source.list(&dir).await?;
        Ok::<bool, Error>(listing.next(1).await?.is_empty())
    };
    if !is_empty.await.unwrap_or(false) {
        return;
    }
    let copy = context.target.metadata(&target).await;
    if !copy.is_ok_and(|copy| copy.is_dir()) {
        return;
    }
    match are_two(context, root, &dir, &target).await {
        Ok(true) => {
            // One that is in use, or not ours to remove, may stay.
            let _ = spec.source.remove_dir(&dir).await;
        }
        Ok(false) => one_folder(context, &dir),
        Err(error) => context.fail(&dir, error, End::Source).await,
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
    let copy = match context.target.metadata(&target).await {
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
    if !*is_apart {
        let (dir, copies) = (source.parent(), target.parent());
        match are_two(
            context,
            root,
            &dir.unwrap_or_default(),
            &copies.unwrap_or_default(),
        )
        .await
        {
            Ok(true) => *is_apart = true,
            Ok(false) => return one_folder(context, &source),
            Err(error) => return context.fail(&source, error, End::Source).await,
        }
    }
    if let Err(error) = spec.source.remove_file(&source).await {
        context.fail(&source, error, End::Source).await;
    }
}

fn one_folder(context: &Context, source: &RelPath) {
    let message = format!("the source {source} and its copy are one, seen in two ways");
    let hint = "nothing is removed: the target is the source";
    context.fatal(Fatal::new(Status::Refused, message).hint(hint));
}

/// Whether a folder and that of its copies are two: what is made in the one does not show up in the other.
async fn are_two(
    context: &Context,
    root: &RootContext,
    dir: &RelPath,
    copies: &RelPath,
) -> Result<bool, Error> {
    for _ in 0..PROBE_TRIES {
        if let Some(are_two) = probe(context, root, dir, copies).await? {
            return Ok(are_two);
        }
    }
    let mut error = Error::new(Op::Create, dir, ErrorKind::Changed);
    let sentence =
        "somebody removes each file that is made in it to see whether it is the target; nothing is removed";
    error.source = Some(std::io::Error::other(sentence));
    Err(error)
}

/// One try; `None` if somebody removed the file before it was looked for, or may have.
async fn probe(
    context: &Context,
    root: &RootContext,
    dir: &RelPath,
    copies: &RelPath,
) -> Result<Option<bool>, Error> {
    let tree = &root.root.source;
    let name = context.nonce.probe();
    let probe = dir.join(&name);
    let options = OpenOptions::write(Create::New, CacheMode::Keep);
    match tree.open(&probe, options).await {
        Ok(file) => drop(file),
        // Of a run that was killed.
        Err(error) if error.kind == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // Opened, since file systems of a network may remember for a while what is there.
    let options = OpenOptions::read(CacheMode::Keep);
    let shows = context.target.open(&copies.join(&name), options).await.map(drop);
    match (tree.remove_file(&probe).await, shows) {
        // Another move of this folder took it for one of a dead run.
        (Err(gone), Err(_)) if gone.kind == ErrorKind::NotFound => Ok(None),
        (Err(error), _) if error.kind != ErrorKind::NotFound => {
            // The next run makes the same name, and removes it.
            context.temporaries.must_stay();
            Err(error)
        }
        (_, Err(error)) if error.kind == ErrorKind::NotFound => Ok(Some(true)),
        // It is there, and may not be read.
        (_, Err(error)) if error.kind != ErrorKind::PermissionDenied => Err(error),
        _ => Ok(Some(false)),
    }
}

/// Whether a node of the source is what a move made to see whether both ends are two: this one, or one that was killed. A
/// living one makes another.
pub(crate) fn is_probe(context: &Context, name: &Name, metadata: &Metadata) -> bool {
    context.options.move_source
        && metadata.kind == Kind::File
        && metadata.size == 0
        && Temporary::parse(name)
            .is_some_and(|temporary| temporary.is_probe() || temporary.nonce() == context.nonce)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::Timestamp;

    #[test]
    fn what_arrived_is_known_by_its_version_until_it_is_taken_back() {
        let file = |size, time| Metadata::bare(Kind::File, size, Timestamp(time));
        let arrivals = Arrivals::remembered(true);
        arrivals.add(1, &file(10, 5));
        assert!(arrivals.has(1, &file(10, 5)));
        assert!(!arrivals.has(1, &file(11, 5)) && !arrivals.has(1, &file(10, 6)));
        assert!(!arrivals.has(2, &file(10, 5)));
        arrivals.take_back(1);
        assert!(!arrivals.has(1, &file(10, 5)));
        arrivals.add(1, &file(10, 5));
        assert!(arrivals.has(1, &file(10, 5)), "a later try arrived");
        let none = Arrivals::remembered(false);
        none.add(1, &file(10, 5));
        assert!(!none.has(1, &file(10, 5)));
    }
}
