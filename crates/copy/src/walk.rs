//! The walk: lists the source, decides on each node, and hands work out, folder by folder.
//!
//! Depth first, in chunks of [`CHUNK`] entries, so memory holds one chunk, the names of folders still to visit and
//! the work in flight, whatever the size of the tree. A folder that did not exist on the target is made under a
//! temporary name, filled under final names (nothing to look up, nothing to rename), and named when it is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use ropeway_plan::Rules;
use ropeway_plan::names::Collision;
use ropeway_vfs::{
    Backlog, DirEntry, End, EndError, Error, ErrorKind, Held, Kind, Listing, Loss, Metadata, Name, Op,
    RelPath,
};
use tokio::sync::{mpsc, oneshot};

use crate::context::{Context, RootContext, token_of};
use crate::delete;
use crate::file::FileTask;
use crate::folder::{Early, Folder, FolderInner, Placement};
use crate::leftovers;
use crate::moving;

mod dispatch;
mod left;
mod make;

pub(crate) use self::dispatch::shares_more;
use self::left::Names;

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// A folder still to visit.
struct Visit {
    parent: Arc<Folder>,
    source_path: RelPath,
    name: Name,
    metadata: Metadata,
    existing: Option<Metadata>,
    _held: Held,
}

/// What the walk has still to do.
enum Stop {
    /// A folder to make sure of, then to fill.
    Enter(Box<Visit>),
    /// A folder that was entered ahead of its turn.
    Fill(Entered),
}

/// A folder made on the target, or why not.
struct Entered {
    parent: Arc<Folder>,
    /// Its final name.
    name: Name,
    folder: Result<Arc<Folder>, Error>,
    /// The beginning of its listing, where that was fetched ahead.
    listing: Option<FirstEntries>,
}

/// A listing that goes on, and its first entries. (The mutex makes it shareable; nobody shares it.)
type FirstEntries = Result<(Mutex<Box<dyn Listing>>, Vec<DirEntry>), Error>;

/// Folders made at once on a target that is far away: a round trip for each level, not for each folder.
const ENTER_AHEAD: usize = 64;
/// Folders listed at once from a source that is far away; each may hold [`CHUNK`] entries in memory (300 bytes each, so
/// 5 MiB).
const LIST_AHEAD: usize = 16;

/// One walk over one root.
pub(crate) struct Walker<'a> {
    context: &'a Arc<Context>,
    root: Arc<RootContext>,
    finisher: &'a mpsc::UnboundedSender<FolderInner>,
    visits: Vec<Stop>,
    /// Of the visits.
    backlog: Backlog,
    /// Why the rest of the folder at hand is left out.
    overflow: Option<Error>,
    done: Vec<oneshot::Receiver<()>>,
    volume: Option<u64>,
    /// The root's, with what was learned from the nodes at hand.
    rules: Rules,
}

/// Walks one root and hands out its work; returns when everything is handed out. The receivers tell when all of it,
/// attributes included, is finished.
pub(crate) async fn walk(
    context: &Arc<Context>,
    root: &Arc<RootContext>,
    finisher: &mpsc::UnboundedSender<FolderInner>,
) -> Vec<oneshot::Receiver<()>> {
    let mut walker = Walker {
        context,
        root: Arc::clone(root),
        finisher,
        visits: Vec::new(),
        backlog: Backlog::of(&*root.root.source),
        overflow: None,
        done: Vec::new(),
        volume: None,
        rules: root.rules,
    };
    if let Err(EndError { end, error }) = walker.run().await {
        let shown = root.root.target_path.clone();
        if end == End::Source && root.is_part() {
            // What vanished since a watch saw it change is a matter of its next round.
            if !error.kind.is_absence() {
                context.fail(&shown, error, End::Source).await;
            }
        } else if end == End::Source {
            context.fatal(crate::status::Fatal::from_error(&error, End::Source));
        } else {
            context.fail(&shown, error, End::Target).await;
        }
    }
    walker.done
}

impl Walker<'_> {
    async fn run(&mut self) -> Result<(), EndError> {
        let root = Arc::clone(&self.root);
        let spec = &root.root;
        // Together: either may be a round trip.
        let (metadata, existing) = futures_util::future::join(
            spec.source.metadata(&spec.source_path),
            self.context.target.metadata(&spec.target_path),
        )
        .await;
        let metadata = metadata.map_err(EndError::on_source)?;
        self.volume = metadata.id.map(|id| id.volume);
        let existing = match existing {
            Ok(existing) => Some(existing),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err(EndError::on_target(error)),
        };
        let Some(name) = spec.target_path.file_name() else {
            self.fill_root(metadata, existing).await;
            return Ok(());
        };
        let holder = self.holder(spec.target_path.parent().unwrap_or_default());
        if metadata.is_dir() {
            self.folder_node(FileTask {
                folder: holder,
                source_path: spec.source_path.clone(),
                name,
                metadata,
                existing,
                existing_is_own: false,
                link: None,
            });
            self.visit_all().await;
        } else {
            let task = FileTask {
                folder: holder,
                source_path: spec.source_path.clone(),
                name,
                metadata,
                existing,
                existing_is_own: false,
                link: None,
            };
            self.count(&task.metadata);
            self.rules.granularity = self.root.rules.granularity.learned(
                [task.metadata.modified].into_iter(),
                task.existing.iter().map(|existing| existing.modified),
            );
            let mut batch = Vec::new();
            self.node(task, &mut batch).await;
            self.flush(&mut batch).await;
        }
        Ok(())
    }

    /// The folder that holds a root: not ours to change, so it has no attributes to set.
    fn holder(&mut self, path: RelPath) -> Arc<Folder> {
        let (sender, receiver) = oneshot::channel();
        self.done.push(receiver);
        let inner = FolderInner {
            root: Arc::clone(&self.root),
            source_path: RelPath::root(),
            shown: path.clone(),
            path,
            staging: None,
            placement: Placement::Temporary,
            fresh: false,
            metadata: None,
            xattrs: None,
            existing: None,
            is_doubtful: false.into(),
            parent: None,
            done: Some(sender),
        };
        Folder::new(inner, self.finisher)
    }

    /// Copies a folder's content into the target tree's own root.
    async fn fill_root(&mut self, metadata: Metadata, existing: Option<Metadata>) {
        let (sender, receiver) = oneshot::channel();
        self.done.push(receiver);
        let inner = FolderInner {
            root: Arc::clone(&self.root),
            source_path: self.root.root.source_path.clone(),
            path: RelPath::root(),
            shown: RelPath::root(),
            staging: None,
            placement: Placement::Temporary,
            fresh: false,
            xattrs: Early::ask(self.context, &self.root, &self.root.root.source_path, &metadata),
            metadata: Some(metadata),
            existing,
            is_doubtful: false.into(),
            parent: None,
            done: Some(sender),
        };
        let folder = Folder::new(inner, self.finisher);
        self.fill(folder, None).await;
        self.visit_all().await;
    }

    async fn visit_all(&mut self) {
        while let Some(stop) = self.visits.pop() {
            if self.context.stopped() {
                return;
            }
            let Entered {
                parent,
                name,
                folder,
                listing,
            } = match stop {
                Stop::Fill(entered) => entered,
                Stop::Enter(visit) => self.enter_with_next(*visit).await,
            };
            let shown = parent.shown(&name);
            match folder {
                // A mount point is made, as cp -ax does, and stays empty.
                Ok(folder)
                    if folder
                        .inner()
                        .metadata
                        .as_ref()
                        .is_some_and(|found| self.is_other_volume(found)) => {}
                Ok(folder) => self.fill(folder, listing).await,
                Err(error) => {
                    self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
                    self.context.fail(&shown, error, End::Target).await;
                    left::remove(self.context, &parent, &name).await;
                }
            }
        }
    }

    /// Enters a folder, and where that takes round trips the next ones of the stack with it.
    async fn enter_with_next(&mut self, visit: Visit) -> Entered {
        let far_source = self.root.root.source.capabilities().remote;
        let far_target = self.context.target.capabilities().remote;
        let at_once = match (far_source, far_target) {
            (true, _) => LIST_AHEAD,
            (false, true) => ENTER_AHEAD,
            (false, false) => 1,
        };
        let mut visits = vec![visit];
        while visits.len() < at_once {
            match self.visits.pop() {
                Some(Stop::Enter(visit)) => visits.push(*visit),
                Some(entered) => {
                    self.visits.push(entered);
                    break;
                }
                None => break,
            }
        }
        let this = &*self;
        let entering = visits.into_iter().map(|visit| async move {
            let (parent, name) = (Arc::clone(&visit.parent), visit.name.clone());
            let listing = this.first_entries(visit.source_path.clone(), far_source);
            let (folder, listing) = futures_util::future::join(this.enter(visit), listing).await;
            Entered {
                parent,
                name,
                folder,
                listing,
            }
        });
        let mut entered = futures_util::future::join_all(entering).await.into_iter();
        let first = entered.next().expect("one visit was given");
        self.visits.extend(entered.rev().map(Stop::Fill));
        first
    }

    /// The beginning of a folder's listing, where fetching it ahead of its turn saves round trips.
    async fn first_entries(&self, dir: RelPath, far: bool) -> Option<FirstEntries> {
        if !far || self.context.ahead.holds(self.root.index, &dir) {
            return None;
        }
        Some(self.begin_listing(&dir).await)
    }

    async fn begin_listing(&self, dir: &RelPath) -> FirstEntries {
        let mut listing = self.root.root.source.list(dir).await?;
        let entries = listing.next(CHUNK).await?;
        // Of an empty folder, too.
        let live = &self.context.live;
        live.listed.fetch_add(entries.len() as u64 + 1, Ordering::Relaxed);
        Ok((Mutex::new(listing), entries))
    }

    /// Makes sure that a folder exists on the target, under its own or a temporary name.
    async fn enter(&self, visit: Visit) -> Result<Arc<Folder>, Error> {
        let Visit {
            parent,
            source_path,
            name,
            metadata,
            existing,
            ..
        } = visit;
        let context = self.context;
        let (parent_path, shown) = (parent.path(), parent.shown(&name));
        if self.root.root.source.capabilities().remote {
            parent.check_above(&source_path, &metadata)?;
        }
        let direct = parent.placement() == Placement::Direct;
        let mut inner = FolderInner {
            root: Arc::clone(&self.root),
            xattrs: Early::ask(context, &self.root, &source_path, &metadata),
            source_path,
            path: parent_path.join(&name),
            shown,
            staging: None,
            placement: parent.placement(),
            fresh: false,
            metadata: Some(metadata),
            existing: None,
            is_doubtful: false.into(),
            parent: Some(parent),
            done: None,
        };
        match existing {
            Some(existing) if existing.is_dir() => {
                self.open_up(&inner.path, &existing).await;
                inner.existing = Some(existing);
            }
            existing if context.options.dry_run => {
                if existing.is_some() {
                    self.may_replace(&inner, false).await?;
                }
                context.item(&inner.shown, "mkdir", 0);
                inner.fresh = true;
            }
            existing => {
                let is_staged = !direct && context.target.capabilities().folder_renames;
                // What stands in a folder that nobody has seen yet is removed when the folder is made.
                if existing.is_some() && !direct {
                    self.may_replace(&inner, is_staged).await?;
                }
                if is_staged {
                    if let Some(parent) = &inner.parent {
                        leftovers::before(context, parent).await;
                    }
                    let token = token_of(self.root.index, &inner.source_path);
                    let temporary = context.temporary_of(token);
                    inner.path = parent_path.join(&temporary);
                    inner.staging = Some((temporary, name));
                    inner.placement = Placement::Direct;
                }
                inner.fresh = self.make_folder(&inner).await?;
                context.sync.touched();
                context.item(&inner.shown, "mkdir", 0);
            }
        }
        Ok(Folder::new(inner, self.finisher))
    }

    /// Lists one folder and hands out its entries.
    async fn fill(&mut self, folder: Arc<Folder>, first_entries: Option<FirstEntries>) {
        let dir = folder.inner().source_path.clone();
        let mut names = Names::of(&folder, self.context.target.capabilities());
        if folder.is_left_over()
            && !self.context.options.dry_run
            && let Err(error) = delete::prune(self.context, &self.root, &dir, &folder.path()).await
        {
            self.context.fail(&folder.inner().shown, error, End::Target).await;
            names.miss();
        }
        self.fill_with(&folder, &dir, first_entries, &mut names).await;
        left::remove_missed(self.context, &folder, &names).await;
    }

    async fn fill_with(
        &mut self,
        folder: &Arc<Folder>,
        dir: &RelPath,
        first_entries: Option<FirstEntries>,
        names: &mut Names,
    ) {
        let first = self.visits.len();
        if let Some(entries) = self.context.ahead.take(self.root.index, dir) {
            self.listed(folder, dir, entries, names).await;
            self.visits[first..].reverse();
            return;
        }
        let (listing, mut entries) = match first_entries {
            Some(Ok(begun)) => begun,
            Some(Err(error)) => return self.unlisted(folder, error, names).await,
            None => match self.begin_listing(dir).await {
                Ok(begun) => begun,
                Err(error) => return self.unlisted(folder, error, names).await,
            },
        };
        let mut listing = listing.into_inner();
        while !entries.is_empty() {
            if self.context.stopped() {
                return;
            }
            self.chunk(folder, dir, entries, names).await;
            if let Some(error) = self.overflow.take() {
                self.unlisted(folder, error, names).await;
                break;
            }
            entries = match listing.next(CHUNK).await {
                Ok(entries) => entries,
                Err(error) => {
                    self.unlisted(folder, error, names).await;
                    break;
                }
            };
            let live = &self.context.live;
            live.listed.fetch_add(entries.len() as u64, Ordering::Relaxed);
        }
        // Visited in the order of listing.
        self.visits[first..].reverse();
    }

    /// Hands out a listing that was made before.
    async fn listed(
        &mut self,
        folder: &Arc<Folder>,
        dir: &RelPath,
        entries: Vec<DirEntry>,
        names: &mut Names,
    ) {
        let mut entries = entries.into_iter();
        loop {
            let chunk: Vec<DirEntry> = entries.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return;
            }
            if self.context.stopped() {
                return;
            }
            self.chunk(folder, dir, chunk, names).await;
            if let Some(error) = self.overflow.take() {
                return self.unlisted(folder, error, names).await;
            }
        }
    }

    async fn unlisted(&self, folder: &Folder, error: Error, names: &mut Names) {
        names.miss();
        self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
        self.context.fail(&folder.inner().shown, error, End::Source).await;
    }

    async fn chunk(
        &mut self,
        folder: &Arc<Folder>,
        dir: &RelPath,
        entries: Vec<DirEntry>,
        names: &mut Names,
    ) {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(node) = self.admit(folder, dir, entry, names).await {
                nodes.push(node);
            }
        }
        let existing = match self.existing(folder, &nodes).await {
            Ok(existing) => existing,
            Err(error) => {
                names.miss_all(nodes.iter().map(|(name, ..)| name));
                return self.context.fail(&folder.inner().shown, error, End::Target).await;
            }
        };
        self.rules.granularity = self.root.rules.granularity.learned(
            nodes.iter().map(|(.., metadata)| metadata.modified),
            existing.iter().flatten().map(|existing| existing.modified),
        );
        let mut batch = Vec::new();
        for ((name, source_path, metadata), existing) in nodes.into_iter().zip(existing) {
            let task = FileTask {
                folder: Arc::clone(folder),
                source_path,
                name,
                metadata,
                existing,
                existing_is_own: false,
                link: None,
            };
            self.node(task, &mut batch).await;
        }
        self.flush(&mut batch).await;
    }

    /// Filters, counts and names one entry.
    async fn admit(
        &self,
        folder: &Folder,
        dir: &RelPath,
        entry: DirEntry,
        names: &mut Names,
    ) -> Option<(Name, RelPath, Metadata)> {
        let source_path = dir.join(&entry.name);
        let below = source_path.strip_prefix(&self.root.whole.0)?;
        let metadata = match entry.metadata {
            Ok(metadata) => metadata,
            // It was removed since it was listed: there is nothing to copy.
            Err(error) if error.kind == ErrorKind::NotFound => {
                names.miss();
                return None;
            }
            Err(error) => {
                names.miss();
                self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
                self.context
                    .fail(&folder.shown(&entry.name), error, End::Source)
                    .await;
                return None;
            }
        };
        let is_ours = moving::is_probe(self.context, &entry.name, &metadata)
            || leftovers::is_none_of_the_source(self.context, &entry.name);
        if is_ours || !self.context.options.filter.node(&below, &metadata) {
            return None;
        }
        if metadata.is_dir() && self.is_other_volume(&metadata) {
            self.context
                .note(Some(&below), "another file system; not entered (-x)");
        }
        if !metadata.is_dir() {
            self.count(&metadata);
        }
        if self.context.options.preserve.times && !metadata.modified.is_known() {
            self.context.lose(&[Loss::Times]);
        }
        let fault = match self.root.names.map(&entry.name) {
            Ok(mapped) => {
                if mapped.changed {
                    self.context.lose(&[Loss::Name]);
                }
                match names.insert(&mapped.name) {
                    None => return Some((mapped.name, source_path, metadata)),
                    Some(Collision::Normalization) => {
                        self.context
                            .note(Some(&below), Collision::Normalization.to_string());
                        return Some((mapped.name, source_path, metadata));
                    }
                    Some(collision) => collision.to_string(),
                }
            }
            Err(fault) => fault.to_string(),
        };
        self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
        let mut error = Error::new(Op::Create, &below, ErrorKind::NameRefused);
        error.source = Some(std::io::Error::other(fault));
        self.context
            .fail(&folder.shown(&entry.name), error, End::Target)
            .await;
        None
    }

    fn is_other_volume(&self, metadata: &Metadata) -> bool {
        self.context.options.one_file_system && metadata.id.map(|id| id.volume) != self.volume
    }

    fn count(&self, metadata: &Metadata) {
        self.context.live.walked_files.fetch_add(1, Ordering::Relaxed);
        if metadata.kind == Kind::File {
            self.context
                .live
                .walked_bytes
                .fetch_add(metadata.size, Ordering::Relaxed);
        }
    }

    /// What stands on the target under these names.
    async fn existing(
        &self,
        folder: &Folder,
        nodes: &[(Name, RelPath, Metadata)],
    ) -> Result<Vec<Option<Metadata>>, Error> {
        if folder.inner().fresh {
            return Ok(vec![None; nodes.len()]);
        }
        let names: Vec<Name> = nodes.iter().map(|(name, ..)| name.clone()).collect();
        let found = self.context.target.lookup(&folder.path(), &names).await?;
        found.into_iter().collect()
    }
}
