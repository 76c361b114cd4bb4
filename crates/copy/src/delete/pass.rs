//! One pass over the target: finds the nodes that the source does not have.

mod count;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ropeway_plan::guard::{DeleteGuard, Extra, Planned};
use ropeway_vfs::{DirEntry, DuplicateFolders, End, Error, ErrorKind, FileId, Held, Metadata, Name, RelPath};

use crate::delete::above::{Above, prove_path};
use crate::delete::nodes::{CHUNK, is_mount_point, volume_of};
use crate::delete::remove::Removal;
use crate::delete::times::restore_times;
use crate::job::context::Context;
use crate::job::root::JobRoot;
use crate::sweep::others::passes_over;
use crate::walk::list_ahead::{AHEAD_NAMED_MAX, Begun, ListAhead, Taken};

/// What a pass examines. Paths are relative to the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A folder and everything below it.
    Tree(RelPath),
    /// A node that the source no longer has.
    Gone(RelPath),
}

/// Number of names in a message about deletions that were not done.
const NAMED_MAX: usize = 3;

/// The result of a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) target_nodes: u64,
    pub(super) planned: Planned,
    /// The first nodes that would be deleted.
    pub(super) first: Vec<RelPath>,
    /// Whether the pass met something that only a pass which deletes reports.
    pub(super) is_doubtful: bool,
}

impl Found {
    fn add(&mut self, metadata: Option<&Metadata>) {
        self.planned.nodes += 1;
        self.planned.files += u64::from(!metadata.is_some_and(Metadata::is_dir));
    }
}

/// One pass over the target. It reports failures and continues. A pass that only counts reports
/// nothing, because the pass that deletes meets the same failures.
pub(super) struct Pass<'a> {
    context: &'a Context,
    root: &'a JobRoot,
    count_only: bool,
    /// Whether the copy has reported the folders of the source that cannot be listed.
    is_reported: bool,
    /// Whether something was not reported because the pass only counts.
    is_doubtful: AtomicBool,
    source_volume: Option<u64>,
    removal: Removal<'a>,
    /// Listings of the folders that are examined next, of both ends.
    sources: Mutex<ListAhead>,
    targets: Mutex<ListAhead>,
}

/// A folder of both ends, relative to the root. The paths differ if names had to be mapped.
struct Place {
    source: RelPath,
    target: RelPath,
    /// The target folder's volume.
    volume: Option<u64>,
    /// The target folder's identity.
    id: Option<FileId>,
    above: Above,
    _held: Held,
}

/// A name that a target folder gets from the source.
struct ExpectedName {
    is_dir: bool,
    /// Whether it is a folder on another volume of the source, which is not copied (`-x`).
    is_outside: bool,
    /// Its name in the source, if the target needs another.
    original: Option<Name>,
}

/// The fate of a node of the target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    /// Its name belongs to a node of another kind: a folder to a file, or the reverse.
    Replaced,
    Extra,
}

impl<'a> Pass<'a> {
    /// Begins a pass. `root` may be a part of a root: the paths of a pass are those of the whole.
    pub(super) async fn new(
        context: &'a Context,
        root: &'a JobRoot,
        count_only: bool,
        is_reported: bool,
    ) -> Self {
        let source_volume = match context.config.options.one_file_system {
            true => root.root.source.metadata(&root.whole.0).await.ok(),
            false => None,
        };
        let (sources, targets) = ListAhead::of_ends(&context.config, root, true);
        Self {
            context,
            root,
            count_only,
            is_reported,
            is_doubtful: AtomicBool::new(false),
            source_volume: source_volume.as_ref().and_then(volume_of),
            removal: Removal::new(context, root),
            sources: Mutex::new(sources),
            targets: Mutex::new(targets),
        }
    }

    /// Whether this pass met something that only a pass which deletes reports.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Relaxed)
    }

    /// Examines one scope: deletes what the source does not have, or counts it in `found`.
    ///
    /// # Errors
    /// The target cannot be examined at all.
    pub(super) async fn run(&self, scope: &Scope, found: &mut Found) -> Result<(), Error> {
        match scope {
            Scope::Tree(below) => self.tree(below, found).await,
            Scope::Gone(below) => self.gone(below, found).await,
        }
    }

    /// Examines a folder and everything below it.
    async fn tree(&self, below: &RelPath, found: &mut Found) -> Result<(), Error> {
        let Some(target) = self.mapped(below) else {
            return Ok(());
        };
        let path = self.root.whole.1.join_path(&target);
        let metadata = match self.context.config.target.metadata(&path).await {
            Ok(metadata) if metadata.is_dir() => metadata,
            Ok(_) => {
                // The copy replaces it, or reports that it cannot.
                self.is_doubtful.store(true, Ordering::Relaxed);
                return Ok(());
            }
            Err(error) if error.kind.is_absence() => return Ok(()),
            Err(error) => return Err(error),
        };
        prove_path(&*self.context.config.target, &self.root.whole.1, &target).await?;
        let mut folders = vec![Place {
            source: below.clone(),
            target,
            volume: volume_of(&metadata),
            id: metadata.id,
            above: Above::Named,
            _held: Held::default(),
        }];
        while let Some(place) = folders.pop() {
            self.context.pass().await;
            if self.context.stopped() {
                return Ok(());
            }
            self.list_ahead(&folders);
            self.folder(&place, found, &mut folders).await;
        }
        Ok(())
    }

    /// Begins the listings of the folders that are examined next.
    fn list_ahead(&self, folders: &[Place]) {
        let next = || folders.iter().rev().take(AHEAD_NAMED_MAX);
        let (source, target) = &self.root.whole;
        self.sources
            .lock()
            .want(next().map(|place| source.join_path(&place.source)));
        self.targets
            .lock()
            .want(next().map(|place| target.join_path(&place.target)));
    }

    /// Returns the path on the target of a node of the source, both relative to the root.
    fn mapped(&self, below: &RelPath) -> Option<RelPath> {
        let names = &self.root.names;
        below.components().try_fold(RelPath::root(), |path, name| {
            names.map(&name).ok().map(|mapped| path.join(&mapped.name))
        })
    }

    /// Examines one node that the source no longer has.
    async fn gone(&self, below: &RelPath, found: &mut Found) -> Result<(), Error> {
        let (Some(target), Some(parent)) = (self.mapped(below), below.parent()) else {
            return Ok(());
        };
        let (Some(name), Some(holder)) = (target.file_name(), target.parent()) else {
            return Ok(());
        };
        let path = self.root.whole.1.join_path(&target);
        let metadata = match self.context.config.target.metadata(&path).await {
            Ok(metadata) => metadata,
            Err(error) if error.kind.is_absence() => return Ok(()),
            Err(error) => return Err(error),
        };
        let holder_path = self.root.whole.1.join_path(&holder);
        let held_by = self.context.config.target.metadata(&holder_path).await?;
        let (volume, id) = (volume_of(&held_by), held_by.id);
        if self.context.config.options.one_file_system && self.is_outside(&parent, volume).await? {
            return Ok(());
        }
        prove_path(&*self.context.config.target, &self.root.whole.1, &holder).await?;
        let place = Place {
            source: parent,
            target: holder,
            volume,
            id,
            above: Above::Named,
            _held: Held::default(),
        };
        // If names differ only in case, another node of the source may have this name.
        let sources = match self.context.config.target.capabilities().case_sensitive {
            true => HashMap::new(),
            false => match self
                .source_names(&self.root.whole.0.join_path(&place.source))
                .await
            {
                Ok(names) => names,
                Err(error) if error.kind.is_absence() => HashMap::new(),
                Err(error) => return Err(error),
            },
        };
        let entry = DirEntry {
            name,
            metadata: Ok(metadata),
        };
        let (mut folders, mut extra) = (Vec::new(), Vec::new());
        let mut next = (&mut folders, &mut extra);
        self.entry(&place, &sources, entry, found, &mut next).await;
        if self.removal.delete_all(extra, Above::In(id)).await {
            self.restore_times(&place.source).await;
        }
        Ok(())
    }

    /// Whether a folder lies on another volume than the root, in the source or on the target.
    async fn is_outside(&self, below: &RelPath, on_target: Option<u64>) -> Result<bool, Error> {
        let top = self.context.config.target.metadata(&self.root.whole.1).await?;
        if volume_of(&top) != on_target {
            return Ok(true);
        }
        let mut at = Some(below.clone());
        while let Some(below) = at {
            // The nearest folder that still exists.
            match self
                .root
                .root
                .source
                .metadata(&self.root.whole.0.join_path(&below))
                .await
            {
                Ok(metadata) => return Ok(volume_of(&metadata) != self.source_volume),
                Err(error) if error.kind.is_absence() => at = below.parent(),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Examines one folder, and adds its folders to those still to visit.
    async fn folder(&self, place: &Place, found: &mut Found, folders: &mut Vec<Place>) {
        let source_dir = self.root.whole.0.join_path(&place.source);
        let target_dir = self.root.whole.1.join_path(&place.target);
        // Taken now, so that nothing stays begun where the source cannot be listed.
        let taken = self.targets.lock().take(&target_dir);
        let (sources, target) = self.both(&source_dir, taken).await;
        let sources = match sources {
            Ok(names) => names,
            // It was removed meanwhile. The next run handles it.
            Err(error) if error.kind.is_absence() && !place.source.is_root() => return,
            // Nothing is deleted if the source could not be listed completely.
            Err(error) => return self.failed(&source_dir, error, End::Source).await,
        };
        let (listing, entries) = match target {
            Ok(begun) => begun,
            Err(error) if error.kind.is_absence() => return,
            Err(error) => return self.failed(&target_dir, error, End::Target).await,
        };
        let (mut listing, mut begun) = (listing.into_inner(), Some(entries));
        let mut changed = false;
        let (mut twins, mut extra) = (DuplicateFolders::default(), Vec::new());
        let first = folders.len();
        loop {
            let entries = match begun.take() {
                Some(entries) => Ok(entries),
                None => listing.next(CHUNK).await,
            };
            let entries = match entries {
                Ok(entries) if entries.is_empty() => break,
                Ok(entries) => entries,
                Err(error) => {
                    self.failed(&target_dir, error, End::Target).await;
                    break;
                }
            };
            if let Err(error) = place
                .above
                .prove(&*self.context.config.target, &target_dir, &*listing)
            {
                return self.failed(&target_dir, error, End::Target).await;
            }
            for entry in entries {
                if let (Some(_), Ok(metadata)) = (listing.origin(), &entry.metadata) {
                    twins.add(metadata);
                }
                let mut next = (&mut *folders, &mut extra);
                self.entry(place, &sources, entry, found, &mut next).await;
                self.context.pass().await;
                if self.context.stopped() {
                    return;
                }
            }
            // Folders after the end of the listing: it may show one under another name as well.
            let files = extra.extract_if(.., |(_, found)| !found.is_dir()).collect();
            let above = Above::of(&*listing);
            changed |= self.removal.delete_all(files, above).await;
        }
        let inner = folders.split_off(first);
        let above = Above::of(&*listing);
        changed |= self.after_listing(above, &twins, (inner, extra), folders).await;
        if changed {
            self.restore_times(&place.source).await;
        }
    }

    /// Returns the names of a folder of the source, and the listing of its twin. A far source comes first, and
    /// otherwise the target: where they are compared by digests, the near end has been listed for that.
    async fn both(
        &self,
        source: &RelPath,
        target: Taken<'_>,
    ) -> (Result<HashMap<u64, ExpectedName>, Error>, Result<Begun, Error>) {
        let is_source_far = self.sources.lock().is_far();
        if is_source_far {
            let sources = self.source_names(source).await;
            return (sources, target.begun().await);
        }
        let target = target.begun().await;
        (self.source_names(source).await, target)
    }

    /// Handles the folders that a complete listing showed: adds those of both ends to the ones to
    /// visit, and deletes extra ones. Returns whether the listed folder changed.
    async fn after_listing(
        &self,
        above: Above,
        twins: &DuplicateFolders,
        (inner, extra): (Vec<Place>, Vec<(RelPath, Metadata)>),
        folders: &mut Vec<Place>,
    ) -> bool {
        for mut inner in inner {
            let path = self.root.whole.1.join_path(&inner.target);
            match twins.check(&path, inner.id) {
                Ok(()) => {
                    inner.above = above;
                    folders.push(inner);
                }
                Err(error) => self.failed(&path, error, End::Target).await,
            }
        }
        let mut single = Vec::with_capacity(extra.len());
        for (path, metadata) in extra {
            match twins.check(&path, metadata.id) {
                Ok(()) => single.push((path, metadata)),
                Err(error) => self.failed(&path, error, End::Target).await,
            }
        }
        self.removal.delete_all(single, above).await
    }

    /// Decides on one entry of a target folder, and adds it to the folders to visit or to the extra nodes, if
    /// it is one.
    async fn entry(
        &self,
        place: &Place,
        sources: &HashMap<u64, ExpectedName>,
        entry: DirEntry,
        found: &mut Found,
        (folders, extra): &mut (&mut Vec<Place>, &mut Vec<(RelPath, Metadata)>),
    ) {
        let target = place.target.join(&entry.name);
        let path = self.root.whole.1.join_path(&target);
        let target_dir = self.root.whole.1.join_path(&place.target);
        if passes_over(self.context, &target_dir, &entry.name, self.count_only).await {
            // The pass that deletes removes what a dead job left.
            self.is_doubtful.store(true, Ordering::Relaxed);
            return;
        }
        if self.removal.protection.is_backup(&path) {
            return;
        }
        found.target_nodes += 1;
        let metadata = match entry.metadata {
            Ok(metadata) => metadata,
            Err(error) if error.kind.is_absence() => return,
            Err(error) => {
                self.failed(&path, error, End::Target).await;
                return;
            }
        };
        let belongs = sources.get(&self.name_hash(&entry.name));
        let original = belongs.and_then(|belongs| belongs.original.as_ref());
        let below = place.source.join(original.unwrap_or(&entry.name));
        let fate = self.fate(belongs, &below, &metadata);
        let is_mount_point = is_mount_point(&metadata, place.volume);
        if fate == Fate::Stays {
            let is_outside = belongs.is_some_and(|belongs| belongs.is_outside)
                || (is_mount_point && self.context.config.options.one_file_system);
            if metadata.is_dir() && belongs.is_some() && !is_outside {
                match self.removal.backlog.hold(&path) {
                    Ok(held) => folders.push(Place {
                        source: below,
                        target,
                        volume: volume_of(&metadata),
                        id: metadata.id,
                        above: Above::Named,
                        _held: held,
                    }),
                    Err(error) => self.failed(&path, error, End::Target).await,
                }
            }
            return;
        }
        if self.count_only {
            match is_mount_point {
                true => self.is_doubtful.store(true, Ordering::Relaxed),
                false => {
                    self.count(&path, &metadata, (Above::In(place.id), fate), found)
                        .await
                }
            }
            return;
        }
        if is_mount_point && fate == Fate::Extra {
            self.removal.report_mount_point(&path).await;
            return;
        }
        // The copy has replaced what must be replaced, or has reported its failure.
        if fate != Fate::Extra {
            return;
        }
        extra.push((path, metadata));
    }

    /// Returns the names that belong in a target folder, by their hashes.
    ///
    /// # Errors
    /// The folder of the source cannot be listed completely.
    pub(super) async fn source_hashes(&self, dir: &RelPath) -> Result<HashMap<u64, bool>, Error> {
        let names = self.source_names(dir).await?;
        Ok(names
            .into_iter()
            .map(|(hash, belongs)| (hash, belongs.is_dir))
            .collect())
    }

    async fn source_names(&self, dir: &RelPath) -> Result<HashMap<u64, ExpectedName>, Error> {
        let mut names = HashMap::new();
        let taken = self.sources.lock().take(dir);
        let (listing, mut entries) = taken.begun().await?;
        let mut listing = listing.into_inner();
        while !entries.is_empty() {
            for entry in entries {
                if let Err(error) = entry.metadata.as_ref()
                    && error.kind == ErrorKind::InvalidReply
                {
                    // It may be the name of anything on the target.
                    return Err(Error {
                        source: Some(std::io::Error::other(
                            "the source lists a name that no file can have",
                        )),
                        ..Error::new(error.op, &error.path, error.kind)
                    });
                }
                let metadata = entry.metadata.as_ref().ok();
                let is_dir = metadata.is_some_and(Metadata::is_dir);
                let mapped = self.root.names.map(&entry.name).ok();
                let mapped = mapped.filter(|mapped| mapped.changed).map(|mapped| mapped.name);
                let hash = self.name_hash(mapped.as_ref().unwrap_or(&entry.name));
                let is_outside = is_dir
                    && self.context.config.options.one_file_system
                    && metadata.and_then(volume_of) != self.source_volume;
                let belongs = ExpectedName {
                    is_dir,
                    is_outside,
                    original: mapped.map(|_| entry.name),
                };
                names.insert(hash, belongs);
            }
            entries = listing.next(CHUNK).await?;
        }
        Ok(names)
    }

    pub(super) fn name_hash(&self, name: &Name) -> u64 {
        let mut hasher = blake3::Hasher::new();
        if self.context.config.target.capabilities().case_sensitive {
            hasher.update(name.as_bytes());
        } else {
            hasher.update(String::from_utf8_lossy(name.as_bytes()).to_lowercase().as_bytes());
        }
        let mut bytes = [0; 8];
        hasher.finalize_xof().fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Returns the fate of a node of the target whose folder in the source could be listed
    /// completely.
    fn fate(&self, belongs: Option<&ExpectedName>, path: &RelPath, metadata: &Metadata) -> Fate {
        let excluded = self
            .context
            .config
            .options
            .filter
            .excluded(path, metadata.is_dir());
        let delete = self.context.config.options.delete.as_ref();
        let mut guard = DeleteGuard::new(None, 0);
        guard.delete_excluded = delete.is_some_and(|delete| delete.excluded);
        let extra = Extra {
            source_listed_whole: true,
            excluded,
        };
        match belongs {
            _ if guard.judge(extra).is_err() => Fate::Stays,
            _ if excluded => Fate::Extra,
            None => Fate::Extra,
            Some(belongs) if belongs.is_dir != metadata.is_dir() => Fate::Replaced,
            Some(_) => Fate::Stays,
        }
    }

    /// Reports a failure that nothing else reports.
    async fn failed(&self, path: &RelPath, error: Error, end: End) {
        if self.count_only {
            self.is_doubtful.store(true, Ordering::Relaxed);
            return;
        }
        if self.is_reported && end == End::Source {
            return;
        }
        self.context.fail(path, error, end).await;
    }

    /// Sets the times of a folder from the source again, after deletions changed them.
    async fn restore_times(&self, below: &RelPath) {
        if let Some(target) = self.mapped(below) {
            let source_dir = self.root.whole.0.join_path(below);
            let (config, durability, report) = (
                &self.context.config,
                &self.context.durability,
                &self.context.report,
            );
            let target_dir = self.root.whole.1.join_path(&target);
            restore_times(config, durability, report, (self.root, &source_dir), &target_dir).await;
        }
    }
}
