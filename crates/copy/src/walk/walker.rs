//! The copying walk: lists the source, decides on each node, and starts its copy, folder by folder.
//!
//! It goes depth first, in chunks of [`CHUNK`] entries. So memory holds one chunk, the names of
//! folders still to visit, and the work in flight, however large the tree is. A folder that does
//! not exist on the target is made under a temporary name, filled under final names (nothing to
//! look up, nothing to rename), and named when it is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ropeway_plan::Visibility;
use ropeway_vfs::{Backlog, DirEntry, End, EndError, Error, ErrorKind, Metadata, Name, Op, RelPath};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::delete::remove::{make_way, prune};
use crate::job::context::Context;
use crate::job::outcome::Fatal;
use crate::job::root::JobRoot;
use crate::journal::token::token_of;
use crate::place::folder::{Folder, FolderInner};
use crate::place::task::FileTask;
use crate::sweep::place::note_place;
use crate::walk::dispatch::Dispatcher;
use crate::walk::entries::{EntryFilter, count_walked, look_up};
use crate::walk::leftover::{Names, remove_unentered, remove_unreplaced};
use crate::walk::list_ahead::{AHEAD_NAMED_MAX, Begun, CHUNK, ListAhead};
use crate::walk::make_folder::{make_folder, open_up};
use crate::walk::standing::{STANDING_LARGE_MAX, STANDING_MAX, Standing};
use crate::walk::steps::{Entered, Visit, WalkStep};
use crate::walk::xattrs::early_xattrs;

/// Number of folders made at once on a remote target: one round trip for each level, not for each
/// folder.
const ENTER_AHEAD: usize = 64;
/// Age at which such a listing is no longer used: names are looked up then.
const STANDING_FRESH: Duration = Duration::from_secs(5);

/// What stands in a folder of the target, and when it was asked for.
type KnownAt = (Instant, Standing);

/// One walk over one root.
struct Walker<'a> {
    context: &'a Arc<Context>,
    root: &'a Arc<JobRoot>,
    finisher: &'a mpsc::UnboundedSender<FolderInner>,
    entries: EntryFilter<'a>,
    dispatcher: Dispatcher<'a>,
    visits: Vec<WalkStep>,
    /// Listings of the folders that are visited next, of both ends.
    sources: ListAhead,
    targets: ListAhead,
    /// Bounds the folders still to visit.
    backlog: Backlog,
    /// The reason for skipping the rest of the current folder.
    overflow: Option<Error>,
    done: Vec<oneshot::Receiver<()>>,
}

/// Walks one root and starts all its work. The receivers tell when all of it is finished, including
/// attributes.
pub(crate) async fn walk(
    context: &Arc<Context>,
    root: &Arc<JobRoot>,
    finisher: &mpsc::UnboundedSender<FolderInner>,
) -> Vec<oneshot::Receiver<()>> {
    // What stands at a near target is looked up by name.
    let lists_both = context.config.target.capabilities().remote;
    let (sources, targets) = ListAhead::of_ends(&context.config, root, lists_both);
    let mut walker = Walker {
        context,
        root,
        finisher,
        entries: EntryFilter::new(context, root),
        dispatcher: Dispatcher::new(context, root),
        visits: Vec::new(),
        sources,
        targets,
        backlog: Backlog::of(&*root.root.source),
        overflow: None,
        done: Vec::new(),
    };
    if let Err(EndError { end, error }) = walker.run().await {
        let shown = root.root.target_path.clone();
        if end == End::Source && root.is_part() {
            // The next round of the watch handles what vanished since the change.
            if !error.kind.is_absence() {
                context
                    .fail(&root.shown(&root.root.source_path), error, End::Source)
                    .await;
            }
        } else if end == End::Source {
            context.fatal(Fatal::from_error(&error, End::Source));
        } else {
            context.fail(&shown, error, End::Target).await;
        }
    }
    walker.done
}

impl Walker<'_> {
    async fn run(&mut self) -> Result<(), EndError> {
        let spec = &self.root.root;
        // At once, because either may cost a round trip.
        let (metadata, existing) = futures_util::future::join(
            spec.source.metadata(&spec.source_path),
            self.context.config.target.metadata(&spec.target_path),
        )
        .await;
        let metadata = metadata.map_err(EndError::on_source)?;
        self.entries.volume = metadata.id.map(|id| id.volume);
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
        let task = FileTask {
            folder: holder,
            source_path: spec.source_path.clone(),
            name,
            metadata,
            existing,
            existing_is_own: false,
            link: None,
        };
        if task.metadata.is_dir() {
            self.add_visit(task);
            self.visit_all().await;
        } else {
            count_walked(&self.context.report.live, &task.metadata);
            self.dispatcher.decider.learn_times(
                [task.metadata.modified].into_iter(),
                task.existing.iter().map(|existing| existing.modified),
            );
            let mut batch = Vec::new();
            self.dispatcher.node(task, &mut batch).await;
            self.dispatcher.flush(&mut batch).await;
        }
        Ok(())
    }

    /// Returns the folder that holds a root. It does not belong to the copy, so it gets no
    /// attributes.
    fn holder(&mut self, path: RelPath) -> Arc<Folder> {
        let (sender, receiver) = oneshot::channel();
        self.done.push(receiver);
        let inner = FolderInner::existing(self.root, RelPath::root(), path, sender);
        Folder::new(inner, self.finisher)
    }

    /// Copies the content of a folder into the root of the target tree.
    async fn fill_root(&mut self, metadata: Metadata, existing: Option<Metadata>) {
        let (sender, receiver) = oneshot::channel();
        self.done.push(receiver);
        // Nothing tells whether it is.
        self.root.is_changed.store(true, Ordering::Release);
        let dir = &self.root.root.source_path;
        let inner = FolderInner {
            xattrs: early_xattrs(&self.context.config, self.root, dir, &metadata),
            metadata: Some(metadata),
            existing,
            ..FolderInner::existing(self.root, dir.clone(), RelPath::root(), sender)
        };
        let folder = Folder::new(inner, self.finisher);
        self.fill(folder).await;
        self.visit_all().await;
    }

    /// Visits folders until none is left.
    async fn visit_all(&mut self) {
        while let Some(stop) = self.visits.pop() {
            self.context.pass().await;
            if self.context.stopped() {
                return;
            }
            let Entered { parent, name, folder } = match stop {
                WalkStep::Fill(entered) => entered,
                WalkStep::Enter(visit) => self.enter_with_next(*visit).await,
            };
            let shown = parent.shown(&name);
            match folder {
                // A mount point is made and stays empty, as with cp -ax.
                Ok(folder)
                    if folder
                        .inner()
                        .metadata
                        .as_ref()
                        .is_some_and(|found| self.entries.is_other_volume(found)) => {}
                Ok(folder) => self.fill(folder).await,
                Err(error) => {
                    let (config, report, durability) = (
                        &self.context.config,
                        &self.context.report,
                        &self.context.durability,
                    );
                    report.live.files_failed.fetch_add(1, Ordering::Relaxed);
                    report.fail(&shown, error, End::Target).await;
                    remove_unentered(config, durability, report, (&parent, &name)).await;
                }
            }
        }
    }

    /// Enters a folder. If that takes round trips, it enters the next ones of the stack as well.
    async fn enter_with_next(&mut self, visit: Visit) -> Entered {
        let at_once = match self.targets.is_far() {
            true => ENTER_AHEAD,
            false => 1,
        };
        let mut visits = vec![visit];
        while visits.len() < at_once {
            match self.visits.pop() {
                Some(WalkStep::Enter(visit)) => visits.push(*visit),
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
            let folder = this.enter(visit).await;
            Entered { parent, name, folder }
        });
        let mut entered = futures_util::future::join_all(entering).await.into_iter();
        let first = entered.next().expect("one visit was given");
        self.visits.extend(entered.rev().map(WalkStep::Fill));
        first
    }

    /// Begins the listings of the folders that are visited next.
    fn list_ahead(&mut self) {
        let next = || self.visits.iter().rev().take(AHEAD_NAMED_MAX);
        if self.sources.is_far() {
            let (cache, root) = (&self.context.listing_cache, self.root.index);
            let paths = next().filter_map(WalkStep::source_path);
            self.sources.want(paths.filter(|path| !cache.holds(root, path)));
        }
        if self.targets.is_far() {
            self.targets.want(next().filter_map(WalkStep::standing_path));
        }
    }

    /// Returns the listing of a folder of the source, and its first entries.
    async fn begin_listing(&mut self, dir: &RelPath) -> Result<Begun, Error> {
        let begun = self.sources.list(dir).await?;
        // An empty folder counts as well.
        let live = &self.context.report.live;
        live.listed.fetch_add(begun.1.len() as u64 + 1, Ordering::Relaxed);
        Ok(begun)
    }

    /// Returns what stands in a folder of a remote target, of which `chunk` entries of the source were
    /// listed first. A folder that cannot be listed stays unknown: looking up its names will tell why.
    async fn standing(&mut self, folder: &Folder, chunk: usize) -> KnownAt {
        let begun = Instant::now();
        if !self.targets.is_far() || folder.inner().fresh {
            return (begun, Standing::Unknown);
        }
        let entries_max = match chunk < CHUNK {
            true => STANDING_MAX,
            false => STANDING_LARGE_MAX,
        };
        let standing = match self.targets.list(&folder.path()).await {
            Ok(listing) => Standing::read(listing, entries_max).await,
            Err(error) => Err(error),
        };
        (begun, standing.unwrap_or(Standing::Unknown))
    }

    async fn standing_unless(&mut self, known: Option<KnownAt>, folder: &Folder, chunk: usize) -> KnownAt {
        match known {
            Some(known) => known,
            None => self.standing(folder, chunk).await,
        }
    }

    /// Makes or finds a folder on the target, under its own or a temporary name.
    async fn enter(&self, visit: Visit) -> Result<Arc<Folder>, Error> {
        let Visit {
            parent,
            source_path,
            name,
            metadata,
            existing,
            looked_equal,
            ..
        } = visit;
        let context = self.context;
        let (parent_path, shown) = (parent.path(), parent.shown(&name));
        if self.root.root.source.capabilities().remote {
            parent.check_above(&source_path, &metadata)?;
        }
        let mut inner = FolderInner {
            root: Arc::clone(self.root),
            xattrs: early_xattrs(&context.config, self.root, &source_path, &metadata),
            source_path,
            path: parent_path.join(&name),
            shown,
            staging: None,
            visibility: parent.visibility(),
            fresh: false,
            metadata: Some(metadata),
            existing: None,
            looked_equal,
            is_changed: false.into(),
            is_doubtful: false.into(),
            parent: Some(parent),
            done: None,
        };
        match existing {
            Some(existing) if existing.is_dir() => {
                // A folder that is opened up differs from the source, unless that is as closed.
                if existing.mode.is_some_and(|mode| mode & 0o700 != 0o700) {
                    inner.looked_equal = false;
                }
                if !inner.looked_equal {
                    self.root.is_changed.store(true, Ordering::Release);
                }
                open_up(&context.config, &inner.path, &existing).await;
                inner.existing = Some(existing);
            }
            existing if context.config.options.dry_run => {
                if existing.is_some() {
                    self.may_replace(&inner, false).await?;
                }
                context.report.item(&inner.shown, "mkdir", 0);
                inner.fresh = true;
            }
            existing => self.make_new(&mut inner, name, existing.is_some()).await?,
        }
        Ok(Folder::new(inner, self.finisher))
    }

    /// Makes a folder that is not on the target yet, under its own or a temporary name. `is_taken` is whether
    /// something else stands there.
    async fn make_new(&self, inner: &mut FolderInner, name: Name, is_taken: bool) -> Result<(), Error> {
        let context = self.context;
        let direct = inner.visibility == Visibility::Hidden;
        let is_staged = !direct && context.config.target.capabilities().folder_renames;
        // In a hidden folder, whatever stands there is removed when the folder is made.
        if is_taken && !direct {
            self.may_replace(inner, is_staged).await?;
        }
        if let Some(parent) = &inner.parent {
            parent.note_change();
            if is_staged {
                note_place(context, parent).await;
            }
        }
        if is_staged {
            let token = token_of(self.root.index, &inner.source_path);
            let temporary = context.config.temporary_of(token);
            inner.path = inner.path.parent().unwrap_or_default().join(&temporary);
            inner.staging = Some((temporary, name));
            inner.visibility = Visibility::Hidden;
        }
        inner.fresh = make_folder(context, inner).await?;
        context.durability.touch();
        context.report.item(&inner.shown, "mkdir", 0);
        Ok(())
    }

    /// Checks that a mirror may replace what stands where a folder must go. That is removed when
    /// the folder is full, or now if the folder gets no temporary name. The source must be readable
    /// before.
    async fn may_replace(&self, inner: &FolderInner, is_staged: bool) -> Result<(), Error> {
        if self.context.config.options.delete.is_none() {
            return Err(Error::new(Op::MakeDir, &inner.path, ErrorKind::NotADirectory));
        }
        let mut listing = self.root.root.source.list(&inner.source_path).await?;
        listing.next(CHUNK).await?;
        match is_staged {
            true => Ok(()),
            false => make_way(self.context, self.root, &inner.path).await,
        }
    }

    /// Lists one folder and starts the work on its entries.
    async fn fill(&mut self, folder: Arc<Folder>) {
        let (config, report, durability) = (
            &self.context.config,
            &self.context.report,
            &self.context.durability,
        );
        let dir = folder.inner().source_path.clone();
        let mut names = Names::of(&folder, config.target.capabilities());
        let standing = match folder.is_left_over() && !config.options.dry_run {
            true => self.prune(&folder, &dir, &mut names).await,
            false => None,
        };
        self.list_ahead();
        self.fill_with(&folder, &dir, &mut names, standing).await;
        remove_unreplaced(config, durability, report, &folder, &names).await;
    }

    /// Removes from a folder that an earlier run left what the source no longer has. Returns what stands
    /// there, if that is known: the listing of a distant folder that was begun ahead shows whether anything
    /// must go, and serves once more if nothing must.
    async fn prune(&mut self, folder: &Arc<Folder>, dir: &RelPath, names: &mut Names) -> Option<KnownAt> {
        let (context, root) = (self.context, self.root);
        let standing = self.standing(folder, CHUNK).await;
        let pruned = prune(context, root, dir, &folder.path(), standing.1.entries()).await;
        match pruned {
            Ok(true) => {
                let stood = standing.1.entries().into_iter().flatten();
                let stood = stood.map(|entry| &entry.name);
                names.stand(stood.filter(|name| !context.config.is_own_temporary(name)));
                return Some(standing);
            }
            Ok(false) => {}
            Err(error) => {
                let shown = &folder.inner().shown;
                context.report.fail(shown, error, End::Target).await;
                names.miss();
            }
        }
        // What was begun may show what was removed now.
        self.targets.forget(&folder.path());
        None
    }

    async fn fill_with(
        &mut self,
        folder: &Arc<Folder>,
        dir: &RelPath,
        names: &mut Names,
        standing: Option<KnownAt>,
    ) {
        let first = self.visits.len();
        if let Some(entries) = self.context.listing_cache.take(self.root.index, dir) {
            self.sources.forget(dir);
            self.listed(folder, dir, entries, names, standing).await;
            self.visits[first..].reverse();
            return;
        }
        let (listing, mut entries) = match self.begin_listing(dir).await {
            Ok(begun) => begun,
            Err(error) => return self.report_unlisted(folder, error, names).await,
        };
        let mut listing = listing.into_inner();
        let mut standing = self.standing_unless(standing, folder, entries.len()).await;
        while !entries.is_empty() {
            self.context.pass().await;
            if self.context.stopped() {
                return;
            }
            self.chunk((folder, dir), entries, names, &mut standing).await;
            if let Some(error) = self.overflow.take() {
                self.report_unlisted(folder, error, names).await;
                break;
            }
            entries = match listing.next(CHUNK).await {
                Ok(entries) => entries,
                Err(error) => {
                    self.report_unlisted(folder, error, names).await;
                    break;
                }
            };
            let live = &self.context.report.live;
            live.listed.fetch_add(entries.len() as u64, Ordering::Relaxed);
        }
        // The last folder on the stack is visited first: that of the listing's beginning.
        self.visits[first..].reverse();
    }

    /// Starts the work on a listing that was made before.
    async fn listed(
        &mut self,
        folder: &Arc<Folder>,
        dir: &RelPath,
        entries: Vec<DirEntry>,
        names: &mut Names,
        standing: Option<KnownAt>,
    ) {
        let mut standing = self.standing_unless(standing, folder, entries.len()).await;
        let mut entries = entries.into_iter();
        loop {
            let chunk: Vec<DirEntry> = entries.by_ref().take(CHUNK).collect();
            if chunk.is_empty() {
                return;
            }
            self.context.pass().await;
            if self.context.stopped() {
                return;
            }
            self.chunk((folder, dir), chunk, names, &mut standing).await;
            if let Some(error) = self.overflow.take() {
                return self.report_unlisted(folder, error, names).await;
            }
        }
    }

    /// Decides on a part of a folder's entries and starts their work.
    async fn chunk(
        &mut self,
        (folder, dir): (&Arc<Folder>, &RelPath),
        entries: Vec<DirEntry>,
        names: &mut Names,
        (begun, standing): &mut KnownAt,
    ) {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(node) = self.entries.admit(folder, dir, entry, names).await {
                nodes.push(node);
            }
        }
        if begun.elapsed() > STANDING_FRESH {
            *standing = Standing::Unknown;
        }
        let existing = match look_up(&*self.context.config.target, folder, &nodes, standing).await {
            Ok(existing) => existing,
            Err(error) => {
                names.miss_all(nodes.iter().map(|node| &node.name));
                return self.context.fail(&folder.inner().shown, error, End::Target).await;
            }
        };
        self.dispatcher.decider.learn_times(
            nodes.iter().map(|node| node.metadata.modified),
            existing.iter().flatten().map(|existing| existing.modified),
        );
        let mut batch = Vec::new();
        for (node, existing) in nodes.into_iter().zip(existing) {
            let task = FileTask {
                folder: Arc::clone(folder),
                source_path: node.source_path,
                name: node.name,
                metadata: node.metadata,
                existing,
                existing_is_own: false,
                link: None,
            };
            if task.metadata.is_dir() {
                self.add_visit(task);
            } else {
                self.dispatcher.node(task, &mut batch).await;
            }
        }
        self.dispatcher.flush(&mut batch).await;
    }

    /// Adds a folder to those still to visit.
    fn add_visit(&mut self, task: FileTask) {
        let FileTask {
            folder,
            source_path,
            name,
            metadata,
            existing,
            ..
        } = task;
        // With the granularity of times that was learned from the folder's siblings.
        let looked_equal = existing.as_ref().is_some_and(|existing| {
            existing.is_dir() && self.dispatcher.decider.is_equal_folder(&metadata, existing)
        });
        match self.backlog.hold(&source_path) {
            Ok(held) => self.visits.push(WalkStep::Enter(Box::new(Visit {
                parent: folder,
                source_path,
                name,
                metadata,
                existing,
                looked_equal,
                _held: held,
            }))),
            Err(error) => self.overflow = Some(error),
        }
    }

    /// Reports a folder that cannot be listed to its end.
    async fn report_unlisted(&self, folder: &Folder, error: Error, names: &mut Names) {
        names.miss();
        self.context
            .report
            .live
            .files_failed
            .fetch_add(1, Ordering::Relaxed);
        let shown = self.root.shown(&folder.inner().source_path);
        self.context.fail(&shown, error, End::Source).await;
    }
}
