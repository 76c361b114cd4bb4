//! Comparison without copying: two trees, or a tree and a manifest.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ropeway_block::Pool;
use ropeway_plan::decide::{Decision, Rules, attributes_differ, decide};
use ropeway_plan::{Filter, NameMap, NamePolicy};
use ropeway_vfs::event::Event;
use ropeway_vfs::{
    CacheMode, DirEntry, Error, ErrorKind, Kind, Metadata, Name, Op, OpenOptions, Preserve, RelPath, Tree,
};

use crate::context::EventSink;
use crate::options::is_temporary;
use crate::status::{Status, hint_for};
use crate::verify::{ManifestError, ManifestReader, equal_content, hash_file};

const CHUNK: usize = 1024;
/// Blocks for reading: two for each comparison; comparisons run one after the other.
const BLOCKS: usize = 4;
const BLOCK_SIZE: usize = 1 << 20;

/// What to compare.
#[derive(Clone)]
pub struct CheckSpec {
    /// The tree that is right.
    pub source: Arc<dyn Tree>,
    /// The node in it.
    pub source_path: RelPath,
    /// The tree to compare with it.
    pub target: Arc<dyn Tree>,
    /// The node in it.
    pub target_path: RelPath,
    /// Compare content, not only size and time.
    pub checksum: bool,
    /// Attributes that count.
    pub preserve: Preserve,
    /// What takes part.
    pub filter: Filter,
}

/// What a comparison found. Each difference was reported as an [`Event::Item`] with the action `missing`, `extra`,
/// `differs` or `attributes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOutcome {
    /// Nodes compared.
    pub files: u64,
    /// Logical bytes of the files among them.
    pub bytes: u64,
    /// Differences found.
    pub differences: u64,
    /// Nodes that could not be compared.
    pub errors: u64,
}

impl CheckOutcome {
    /// 0, 7 or 2.
    pub fn status(&self) -> Status {
        match (self.differences, self.errors) {
            (0, 0) => Status::Done,
            (0, _) => Status::SomeFailed,
            _ => Status::Differs,
        }
    }
}

/// Compares two trees.
///
/// # Errors
/// A root cannot be examined; the flag says whether the source's.
pub async fn check(spec: CheckSpec, sink: EventSink) -> Result<CheckOutcome, (Error, bool)> {
    let left = spec
        .source
        .metadata(&spec.source_path)
        .await
        .map_err(|error| (error, true))?;
    let right = match spec.target.metadata(&spec.target_path).await {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => return Err((error, false)),
    };
    let names = NameMap::new(
        spec.source.capabilities(),
        spec.target.capabilities(),
        NamePolicy::default(),
    );
    let rules = Rules {
        checksum: spec.checksum,
        ..Rules::between(spec.source.capabilities(), spec.target.capabilities())
    };
    let mut check = Check {
        pool: Pool::new(BLOCK_SIZE, BLOCKS),
        spec,
        sink,
        names,
        rules,
        outcome: CheckOutcome::default(),
    };
    let is_dir = left.is_dir();
    let matched = check
        .node(&RelPath::root(), &RelPath::root(), &left, right.as_ref())
        .await;
    if is_dir && matched {
        check.folders().await;
    }
    Ok(check.outcome)
}

struct Check {
    pool: Pool,
    spec: CheckSpec,
    sink: EventSink,
    names: NameMap,
    rules: Rules,
    outcome: CheckOutcome,
}

impl Check {
    async fn folders(&mut self) {
        // Both sides' paths below the roots: they differ where names are mapped.
        let mut stack = vec![(RelPath::root(), RelPath::root())];
        while let Some((left, right)) = stack.pop() {
            if let Err((error, on_source)) = self.folder(&left, &right, &mut stack).await {
                self.error(&left, &error, on_source);
            }
        }
    }

    async fn folder(
        &mut self,
        left: &RelPath,
        right: &RelPath,
        stack: &mut Vec<(RelPath, RelPath)>,
    ) -> Result<(), (Error, bool)> {
        let source = Arc::clone(&self.spec.source);
        let target = Arc::clone(&self.spec.target);
        let right_dir = self.spec.target_path.join_path(right);
        let mut seen = HashSet::new();
        let mut listing = source
            .list(&self.spec.source_path.join_path(left))
            .await
            .map_err(|error| (error, true))?;
        loop {
            let entries = listing.next(CHUNK).await.map_err(|error| (error, true))?;
            if entries.is_empty() {
                break;
            }
            let names: Vec<Name> = entries.iter().map(|entry| self.mapped(&entry.name)).collect();
            let found = target
                .lookup(&right_dir, &names)
                .await
                .map_err(|error| (error, false))?;
            for ((entry, name), found) in entries.into_iter().zip(names).zip(found) {
                seen.insert(hash_of(&name));
                self.entry(left, right, entry, &name, found, stack).await;
            }
        }
        self.extras(right, &right_dir, &seen)
            .await
            .map_err(|error| (error, false))
    }

    fn mapped(&self, name: &Name) -> Name {
        self.names
            .map(name)
            .map_or_else(|_| name.clone(), |mapped| mapped.name)
    }

    async fn entry(
        &mut self,
        left: &RelPath,
        right: &RelPath,
        entry: DirEntry,
        name: &Name,
        found: Result<Option<Metadata>, Error>,
        stack: &mut Vec<(RelPath, RelPath)>,
    ) {
        let (below, mirrored) = (left.join(&entry.name), right.join(name));
        let (metadata, found) = match (entry.metadata, found) {
            (Ok(metadata), Ok(found)) => (metadata, found),
            (Err(error), _) => return self.error(&below, &error, true),
            (_, Err(error)) => return self.error(&below, &error, false),
        };
        if !self.spec.filter.node(&below, &metadata) || metadata.kind == Kind::Socket {
            return;
        }
        if self.node(&below, &mirrored, &metadata, found.as_ref()).await && metadata.is_dir() {
            stack.push((below, mirrored));
        }
    }

    async fn extras(&mut self, right: &RelPath, dir: &RelPath, seen: &HashSet<u64>) -> Result<(), Error> {
        let mut listing = Arc::clone(&self.spec.target).list(dir).await?;
        loop {
            let entries = listing.next(CHUNK).await?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                let path = right.join(&entry.name);
                let is_dir = entry.metadata.as_ref().is_ok_and(Metadata::is_dir);
                let known = seen.contains(&hash_of(&entry.name));
                if !known && !is_temporary(&entry.name) && !self.spec.filter.excluded(&path, is_dir) {
                    self.difference(&path, "extra", 0);
                }
            }
        }
    }

    /// Compares one node; whether both are there and of one kind.
    async fn node(
        &mut self,
        left: &RelPath,
        right: &RelPath,
        metadata: &Metadata,
        found: Option<&Metadata>,
    ) -> bool {
        self.outcome.files += 1;
        if metadata.kind == Kind::File {
            self.outcome.bytes += metadata.size;
        }
        let Some(found) = found else {
            self.difference(left, "missing", metadata.size);
            return false;
        };
        if found.kind != metadata.kind {
            self.difference(left, "differs", metadata.size);
            return false;
        }
        let capabilities = self.spec.target.capabilities();
        match decide(
            metadata,
            Some(found),
            &self.rules,
            &self.spec.preserve,
            capabilities,
        ) {
            Decision::Skip => {}
            Decision::AttributesOnly => self.difference(left, "attributes", 0),
            Decision::CompareContent => self.content(left, right, metadata, found).await,
            _ => self.difference(left, "differs", metadata.size),
        }
        true
    }

    async fn content(&mut self, left: &RelPath, right: &RelPath, metadata: &Metadata, found: &Metadata) {
        let source_path = self.spec.source_path.join_path(left);
        let target_path = self.spec.target_path.join_path(right);
        let (source, target) = (&*self.spec.source, &*self.spec.target);
        let equal = if metadata.kind == Kind::Symlink {
            equal_links((source, &source_path), (target, &target_path)).await
        } else {
            equal_content(&self.pool, (source, &source_path), (target, &target_path)).await
        };
        match equal {
            Ok(true) => {
                if attributes_differ(
                    metadata,
                    found,
                    &self.rules,
                    &self.spec.preserve,
                    self.spec.target.capabilities(),
                ) {
                    self.difference(left, "attributes", 0);
                }
            }
            Ok(false) => self.difference(left, "differs", metadata.size),
            Err((error, on_source)) => self.error(left, &error, on_source),
        }
    }

    fn difference(&mut self, path: &RelPath, action: &'static str, bytes: u64) {
        self.outcome.differences += 1;
        (self.sink)(Event::Item {
            path: path.to_string(),
            action,
            bytes,
        });
    }

    fn error(&mut self, path: &RelPath, error: &Error, on_source: bool) {
        self.outcome.errors += 1;
        (self.sink)(item_error(path, error, on_source));
    }
}

fn item_error(path: &RelPath, error: &Error, on_source: bool) -> Event {
    let hint = hint_for(error.kind, on_source)
        .map(|hint| format!(" (hint: {hint})"))
        .unwrap_or_default();
    Event::ItemError {
        path: path.to_string(),
        op: error.op,
        kind: error.kind,
        message: format!("{error}{hint}"),
        on_source,
        fatal: false,
    }
}

async fn equal_links(
    left: (&dyn Tree, &RelPath),
    right: (&dyn Tree, &RelPath),
) -> Result<bool, (Error, bool)> {
    let one = left.0.read_link(left.1).await.map_err(|error| (error, true))?;
    let two = right.0.read_link(right.1).await.map_err(|error| (error, false))?;
    Ok(one == two)
}

fn hash_of(name: &Name) -> u64 {
    crate::context::token_of(0, &RelPath::root().join(name))
}

/// Compares a tree with a manifest: finds changed and missing files (bit rot) later on.
///
/// # Errors
/// The manifest cannot be read or is not one.
pub async fn check_manifest(
    manifest: &Path,
    tree: Arc<dyn Tree>,
    root: &RelPath,
    sink: EventSink,
) -> Result<CheckOutcome, ManifestError> {
    let pool = Pool::new(BLOCK_SIZE, BLOCKS);
    let mut outcome = CheckOutcome::default();
    for entry in ManifestReader::open(manifest)? {
        let entry = entry?;
        let path = root.join_path(&entry.path);
        outcome.files += 1;
        match hash_of_file(&pool, &*tree, &path).await {
            Ok((hash, size)) if hash == entry.hash => outcome.bytes += size,
            Ok((_, size)) => {
                outcome.differences += 1;
                sink(Event::Item {
                    path: entry.path.to_string(),
                    action: "differs",
                    bytes: size,
                });
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                outcome.differences += 1;
                sink(Event::Item {
                    path: entry.path.to_string(),
                    action: "missing",
                    bytes: 0,
                });
            }
            Err(error) => {
                outcome.errors += 1;
                sink(item_error(&entry.path, &error, true));
            }
        }
    }
    Ok(outcome)
}

async fn hash_of_file(pool: &Pool, tree: &dyn Tree, path: &RelPath) -> Result<([u8; 32], u64), Error> {
    let metadata = tree.metadata(path).await?;
    if metadata.kind != Kind::File {
        return Err(Error::new(Op::Open, path, ErrorKind::NotFound));
    }
    let file = tree.open(path, OpenOptions::read(CacheMode::Leave)).await?;
    // From the device: rot does not show in cached pages.
    file.drop_cache(0, metadata.size).await?;
    Ok((hash_file(pool, &*file).await?, metadata.size))
}
