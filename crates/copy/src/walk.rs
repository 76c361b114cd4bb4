//! The walk: lists the source, decides on each node, and hands work out, folder by folder.
//!
//! Depth first, in chunks of [`CHUNK`] entries, so memory holds one chunk, the names of folders still to visit and
//! the work in flight, whatever the size of the tree. A folder that did not exist on the target is made under a
//! temporary name, filled under final names (nothing to look up, nothing to rename), and named when it is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::decide::{Decision, KeepReason, attributes_differ, decide};
use ropeway_plan::names::{Collision, FolderNames};
use ropeway_vfs::{DirEntry, Error, ErrorKind, Kind, Loss, Metadata, Name, Op, RelPath};
use tokio::sync::{mpsc, oneshot};

use crate::context::{Context, RootContext, token_of};
use crate::file::{self, FileTask};
use crate::folder::{Folder, FolderInner, Placement};
use crate::links::{self, Claim, Links};
use crate::small::{self, BATCH_BYTES, BATCH_FILES};
use crate::special;

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// A folder still to visit.
struct Visit {
    parent: Arc<Folder>,
    source_path: RelPath,
    name: Name,
    metadata: Metadata,
    existing: Option<Metadata>,
}

/// One walk over one root.
pub(crate) struct Walker<'a> {
    context: &'a Arc<Context>,
    root: Arc<RootContext>,
    finisher: &'a mpsc::UnboundedSender<FolderInner>,
    visits: Vec<Visit>,
    done: Vec<oneshot::Receiver<()>>,
    volume: Option<u64>,
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
        done: Vec::new(),
        volume: None,
    };
    if let Err((error, on_source)) = walker.run().await {
        let shown = root.root.target_path.clone();
        if on_source {
            context.fatal(crate::status::Fatal::from_error(&error, true));
        } else {
            context.fail(&shown, error, false).await;
        }
    }
    walker.done
}

impl Walker<'_> {
    async fn run(&mut self) -> Result<(), (Error, bool)> {
        let root = Arc::clone(&self.root);
        let spec = &root.root;
        let metadata = spec.source.metadata(&spec.source_path).await.map_err(|error| (error, true))?;
        self.volume = metadata.id.map(|id| id.volume);
        let existing = match self.context.target.metadata(&spec.target_path).await {
            Ok(existing) => Some(existing),
            Err(error) if error.kind == ErrorKind::NotFound => None,
            Err(error) => return Err((error, false)),
        };
        let Some(name) = spec.target_path.file_name() else {
            self.fill_root(metadata, existing).await;
            return Ok(());
        };
        let holder = self.holder(spec.target_path.parent().unwrap_or_default());
        if metadata.is_dir() {
            let source_path = spec.source_path.clone();
            self.visits.push(Visit { parent: holder, source_path, name, metadata, existing });
            self.visit_all().await;
        } else {
            let task = FileTask {
                folder: holder,
                source_path: spec.source_path.clone(),
                name,
                metadata,
                existing,
                link: None,
            };
            self.count(&task.metadata);
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
            existing: None,
            incomplete: false.into(),
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
            metadata: Some(metadata),
            existing,
            incomplete: false.into(),
            parent: None,
            done: Some(sender),
        };
        let folder = Folder::new(inner, self.finisher);
        self.fill(folder).await;
        self.visit_all().await;
    }

    async fn visit_all(&mut self) {
        while let Some(visit) = self.visits.pop() {
            if self.context.stopped() {
                return;
            }
            let shown = visit.parent.shown(&visit.name);
            match self.enter(visit).await {
                Ok(folder) => self.fill(folder).await,
                Err(error) => {
                    self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
                    self.context.fail(&shown, error, false).await;
                }
            }
        }
    }

    /// Makes sure that a folder exists on the target, under its own or a temporary name.
    async fn enter(&self, visit: Visit) -> Result<Arc<Folder>, Error> {
        let Visit { parent, source_path, name, metadata, existing } = visit;
        let context = self.context;
        let (parent_path, shown) = (parent.path(), parent.shown(&name));
        let direct = parent.placement() == Placement::Direct;
        let mut inner = FolderInner {
            root: Arc::clone(&self.root),
            source_path,
            path: parent_path.join(&name),
            shown,
            staging: None,
            placement: parent.placement(),
            fresh: false,
            metadata: Some(metadata),
            existing: None,
            incomplete: false.into(),
            parent: Some(parent),
            done: None,
        };
        match existing {
            Some(existing) if existing.is_dir() => {
                self.open_up(&inner.path, &existing).await;
                inner.existing = Some(existing);
            }
            Some(_) => return Err(Error::new(Op::MakeDir, &inner.path, ErrorKind::NotADirectory)),
            None if context.options.dry_run => {
                context.item(&inner.shown, "mkdir", 0);
                inner.fresh = true;
            }
            None => {
                if !direct {
                    let token = token_of(self.root.index, &inner.source_path);
                    let temporary = context
                        .temporary_name(&format!("{token:016x}"))
                        .ok_or_else(|| Error::new(Op::MakeDir, &inner.path, ErrorKind::NameRefused))?;
                    inner.path = parent_path.join(&temporary);
                    inner.staging = Some((temporary, name));
                    inner.placement = Placement::Direct;
                }
                inner.fresh = match context.target.make_dir(&inner.path, 0o700).await {
                    Ok(()) => true,
                    // Of an earlier run of this job: go on in it.
                    Err(error) if error.kind == ErrorKind::AlreadyExists => false,
                    Err(error) => return Err(error),
                };
                context.sync.touched();
                context.item(&inner.shown, "mkdir", 0);
            }
        }
        Ok(Folder::new(inner, self.finisher))
    }

    /// A folder of ours that we may not write into is opened up; its mode is set again at the end.
    async fn open_up(&self, path: &RelPath, existing: &Metadata) {
        let Some(mode) = existing.mode.filter(|mode| mode & 0o700 != 0o700) else { return };
        if self.context.options.dry_run || !self.context.target.capabilities().modes {
            return;
        }
        let change = ropeway_vfs::MetadataChange { mode: Some(mode | 0o700), ..Default::default() };
        // If that is refused, the first write says so.
        let _ = self.context.target.set_metadata(path, &change).await;
    }

    /// Lists one folder and hands out its entries.
    async fn fill(&mut self, folder: Arc<Folder>) {
        let source = Arc::clone(&self.root.root.source);
        let dir = folder.inner().source_path.clone();
        let mut listing = match source.list(&dir).await {
            Ok(listing) => listing,
            Err(error) => return self.unlisted(&folder, error).await,
        };
        let mut names = FolderNames::new(self.context.target.capabilities());
        let first = self.visits.len();
        loop {
            if self.context.stopped() {
                folder.mark_incomplete();
                return;
            }
            match listing.next(CHUNK).await {
                Ok(entries) if entries.is_empty() => break,
                Ok(entries) => self.chunk(&folder, &dir, entries, &mut names).await,
                Err(error) => {
                    self.unlisted(&folder, error).await;
                    break;
                }
            }
        }
        // Visited in the order of listing.
        self.visits[first..].reverse();
    }

    async fn unlisted(&self, folder: &Folder, error: Error) {
        folder.mark_incomplete();
        self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
        self.context.fail(&folder.inner().shown, error, true).await;
    }

    async fn chunk(&mut self, folder: &Arc<Folder>, dir: &RelPath, entries: Vec<DirEntry>, seen: &mut FolderNames) {
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(node) = self.admit(folder, dir, entry, seen).await {
                nodes.push(node);
            }
        }
        let existing = match self.existing(folder, &nodes).await {
            Ok(existing) => existing,
            Err(error) => {
                folder.mark_incomplete();
                return self.context.fail(&folder.inner().shown, error, false).await;
            }
        };
        let mut batch = Vec::new();
        for ((name, source_path, metadata), existing) in nodes.into_iter().zip(existing) {
            let task = FileTask { folder: Arc::clone(folder), source_path, name, metadata, existing, link: None };
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
        seen: &mut FolderNames,
    ) -> Option<(Name, RelPath, Metadata)> {
        let source_path = dir.join(&entry.name);
        let below = source_path.strip_prefix(&self.root.root.source_path)?;
        let metadata = match entry.metadata {
            Ok(metadata) => metadata,
            // It was removed since it was listed: there is nothing to copy.
            Err(error) if error.kind == ErrorKind::NotFound => return None,
            Err(error) => {
                self.context.live.files_failed.fetch_add(1, Ordering::Relaxed);
                self.context.fail(&folder.shown(&entry.name), error, true).await;
                return None;
            }
        };
        let filter = &self.context.options.filter;
        let taken = if metadata.is_dir() { filter.directory(&below) } else { filter.node(&below, &metadata) };
        if !taken {
            return None;
        }
        if metadata.is_dir() && self.is_other_volume(&metadata) {
            self.context.note(Some(&below), "another file system; not entered (-x)");
            return None;
        }
        if !metadata.is_dir() {
            self.count(&metadata);
        }
        let fault = match self.root.names.map(&entry.name) {
            Ok(mapped) => {
                if mapped.changed {
                    self.context.lose(&[Loss::Name]);
                }
                match seen.insert(&mapped.name) {
                    None => return Some((mapped.name, source_path, metadata)),
                    Some(Collision::Normalization) => {
                        self.context.note(Some(&below), Collision::Normalization.to_string());
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
        self.context.fail(&folder.shown(&entry.name), error, false).await;
        None
    }

    fn is_other_volume(&self, metadata: &Metadata) -> bool {
        self.context.options.one_file_system && metadata.id.map(|id| id.volume) != self.volume
    }

    fn count(&self, metadata: &Metadata) {
        self.context.live.walked_files.fetch_add(1, Ordering::Relaxed);
        if metadata.kind == Kind::File {
            self.context.live.walked_bytes.fetch_add(metadata.size, Ordering::Relaxed);
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

    /// Decides on one node and hands it out, or collects it in the batch.
    async fn node(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if task.metadata.is_dir() {
            return self.folder_node(task).await;
        }
        let mut decision = decide(
            &task.metadata,
            task.existing.as_ref(),
            &self.root.rules,
            &context.options.preserve,
            context.target.capabilities(),
        );
        if matches!(decision, Decision::Skip | Decision::AttributesOnly) && !self.is_trusted(&task) {
            decision = Decision::Replace;
        }
        if task.metadata.kind != Kind::File && !matches!(decision, Decision::Keep(_) | Decision::Conflict) {
            return self.spawn_special(task).await;
        }
        if let Some(id) = Links::concerns(context, &task.metadata).filter(|_| wants_copy(&decision)) {
            task.link = Some(id);
            match context.links.claim(id, task) {
                Claim::First(first) => task = first,
                Claim::Waits => return,
                Claim::Link(task, target) => return links::link(context, task, target).await,
            }
        }
        match decision {
            Decision::Create | Decision::Replace => self.hand_out(task, batch).await,
            Decision::CompareContent => self.spawn_compare(task).await,
            Decision::Skip => {
                context.item(&task.shown(), "skip", task.metadata.size);
                self.settled(&task).await;
            }
            Decision::AttributesOnly => {
                if context.options.dry_run {
                    context.item(&task.shown(), "attributes", 0);
                    return self.settled(&task).await;
                }
                let link = task.link;
                let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
                special::update_attributes(context, task).await;
                if let Some(id) = link {
                    links::complete(context, id, &folder, &name).await;
                }
            }
            Decision::Keep(reason) => self.keep(&task, reason).await,
            Decision::Conflict => self.conflict(task, batch).await,
        }
    }

    async fn folder_node(&mut self, task: FileTask) {
        let existing = task.existing.clone();
        if existing.as_ref().is_some_and(|existing| !existing.is_dir()) && self.context.options.delete.is_some() {
            // A mirror replaces what stands in the way; a rename over it is impossible for a folder.
            let path = task.folder.path().join(&task.name);
            if !self.context.options.dry_run
                && let Err(error) = self.context.target.remove_file(&path).await
            {
                return self.context.fail(&task.shown(), error, false).await;
            }
            self.context.live.deleted.fetch_add(1, Ordering::Relaxed);
            self.context.item(&task.shown(), "delete", 0);
            let FileTask { folder, source_path, name, metadata, .. } = task;
            self.visits.push(Visit { parent: folder, source_path, name, metadata, existing: None });
            return;
        }
        let FileTask { folder, source_path, name, metadata, existing, .. } = task;
        self.visits.push(Visit { parent: folder, source_path, name, metadata, existing });
    }

    /// Whether a file that looks equal is really there (an unfinished run before a power cut may have left holes).
    fn is_trusted(&self, task: &FileTask) -> bool {
        let Some(journal) = &self.context.journal else { return true };
        let (memory, existing) = (journal.memory(), task.existing.as_ref());
        if !memory.resumed() || task.metadata.kind != Kind::File {
            return true;
        }
        let fine = self.context.target.capabilities().time_granularity_ns < 1_000_000_000;
        memory.trust_whole(existing.and_then(|existing| existing.changed).filter(|_| fine), journal.boot())
    }

    async fn settled(&self, task: &FileTask) {
        special::skipped(self.context, task).await;
        if let Some(id) = task.link {
            links::complete(self.context, id, &task.folder, &task.name).await;
        }
    }

    async fn keep(&self, task: &FileTask, reason: KeepReason) {
        match reason {
            KeepReason::Unsupported => {
                self.context.note(Some(&task.shown()), "a socket cannot be copied; skipped");
                self.context.live.files_done.fetch_add(1, Ordering::AcqRel);
                self.context.live.files_skipped.fetch_add(1, Ordering::Relaxed);
            }
            KeepReason::Exists | KeepReason::Newer => {
                self.context.item(&task.shown(), "skip", task.metadata.size);
                special::skipped(self.context, task).await;
            }
        }
    }

    /// A folder stands where a file must be.
    async fn conflict(&mut self, mut task: FileTask, batch: &mut Vec<FileTask>) {
        let context = self.context;
        if context.options.delete.is_none() {
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            let error = Error::new(Op::Create, &task.source_path, ErrorKind::IsADirectory);
            return context.fail(&task.shown(), error, false).await;
        }
        let path = task.folder.path().join(&task.name);
        if !context.options.dry_run
            && let Err(error) = crate::delete::remove_all(context, &path).await
        {
            return context.fail(&task.shown(), error, false).await;
        }
        task.existing = None;
        if task.metadata.kind == Kind::File {
            self.hand_out(task, batch).await;
        } else {
            self.spawn_special(task).await;
        }
    }

    async fn hand_out(&self, task: FileTask, batch: &mut Vec<FileTask>) {
        if self.context.options.dry_run {
            let action = if task.existing.is_some() { "update" } else { "copy" };
            self.context.item(&task.shown(), action, task.metadata.size);
            self.context.live.files_done.fetch_add(1, Ordering::AcqRel);
            self.context.live.bytes_done.fetch_add(task.metadata.size, Ordering::AcqRel);
            return;
        }
        if !small::fits(self.context, &task) {
            return self.spawn_stream(task).await;
        }
        batch.push(task);
        let bytes: u64 = batch.iter().map(|task| task.metadata.size).sum();
        if batch.len() >= BATCH_FILES || bytes >= BATCH_BYTES {
            self.flush(batch).await;
        }
    }

    async fn flush(&self, batch: &mut Vec<FileTask>) {
        let Some(folder) = batch.first().map(|task| Arc::clone(&task.folder)) else { return };
        let tasks = std::mem::take(batch);
        let Ok(permit) = Arc::clone(&self.context.batches).acquire_owned().await else { return };
        let context = Arc::clone(self.context);
        tokio::spawn(async move {
            small::copy_batch(&context, &folder, tasks).await;
            drop((folder, permit));
        });
    }

    async fn spawn_stream(&self, task: FileTask) {
        let Ok(permit) = Arc::clone(&self.context.streams).acquire_owned().await else { return };
        let context = Arc::clone(self.context);
        tokio::spawn(async move {
            file::copy(&context, task).await;
            drop(permit);
        });
    }

    async fn spawn_special(&self, task: FileTask) {
        let Ok(permit) = Arc::clone(&self.context.batches).acquire_owned().await else { return };
        let context = Arc::clone(self.context);
        tokio::spawn(async move {
            special::copy(&context, task).await;
            drop(permit);
        });
    }

    /// `--checksum`: reads both sides and copies if they differ.
    async fn spawn_compare(&self, task: FileTask) {
        let Ok(permit) = Arc::clone(&self.context.streams).acquire_owned().await else { return };
        let context = Arc::clone(self.context);
        tokio::spawn(async move {
            compare(&context, task).await;
            drop(permit);
        });
    }
}

fn wants_copy(decision: &Decision) -> bool {
    !matches!(decision, Decision::Keep(_) | Decision::Conflict)
}

async fn compare(context: &Arc<Context>, task: FileTask) {
    let source = Arc::clone(&task.folder.root().root.source);
    let target_path = task.folder.path().join(&task.name);
    let equal =
        crate::verify::equal_content(&context.pool, (&*source, &task.source_path), (&*context.target, &target_path));
    match equal.await {
        Ok(true) => {
            let capabilities = context.target.capabilities();
            let rules = &task.folder.root().rules;
            let granularity = rules.time_granularity_ns;
            let aged = task
                .existing
                .as_ref()
                .is_some_and(|existing| !existing.modified.equal_within(task.metadata.modified, granularity));
            let differ = task.existing.as_ref().is_some_and(|existing| {
                attributes_differ(&task.metadata, existing, rules, &context.options.preserve, capabilities)
            });
            let link = task.link;
            let (folder, name) = (Arc::clone(&task.folder), task.name.clone());
            if (aged || differ) && !context.options.dry_run {
                special::update_attributes(context, task).await;
            } else {
                context.item(&task.shown(), "skip", task.metadata.size);
                special::skipped(context, &task).await;
            }
            if let Some(id) = link {
                links::complete(context, id, &folder, &name).await;
            }
        }
        Ok(false) if context.options.dry_run => context.item(&task.shown(), "update", task.metadata.size),
        Ok(false) => file::copy(context, task).await,
        Err((error, on_source)) => {
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&task.shown(), error, on_source).await;
        }
    }
}
