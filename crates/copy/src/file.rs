//! One file, whole: placement, resume, data, attributes, name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::resume::{JournalFacts, Trust, trust};
use ropeway_plan::{Engine, EngineCache};
use ropeway_vfs::{
    CacheMode, Create, Error, ErrorKind, File, FileId, Kind, Metadata, Name, OpenOptions, RelPath, Xattr,
};

use crate::context::{Context, token_of};
use crate::durable::PendingRename;
use crate::folder::{Folder, Placement};
use crate::journal::{FileRecord, Token};
use crate::links;
use crate::naming::rename;
use crate::options::Backup;
use crate::progress::Landing;
use crate::source::{on_source, open_source, with_listed, xattrs};
use crate::stream::{Stream, Streamed};

/// From this size on, `--cache auto` leaves the page cache as it was: smaller copies fit any cache and are often read
/// again at once.
const CACHE_LEAVE_MIN: u64 = 32 << 20;
/// A file that changed while it was read is read once more if it is not larger than this.
const REREAD_MAX: u64 = 64 << 20;
/// Files from this size on have a record in the journal.
const JOURNAL_MIN: u64 = 4 << 20;

/// A file to copy.
#[derive(Clone)]
pub(crate) struct FileTask {
    pub(crate) folder: Arc<Folder>,
    pub(crate) source_path: RelPath,
    /// Its name on the target.
    pub(crate) name: Name,
    pub(crate) metadata: Metadata,
    /// What stands under the name now.
    pub(crate) existing: Option<Metadata>,
    /// Set when other names of the file wait for this copy.
    pub(crate) link: Option<FileId>,
}

impl FileTask {
    pub(crate) fn token(&self) -> Token {
        token_of(self.folder.root().index, &self.source_path)
    }

    /// Where it will be in the end, under the name it has there.
    pub(crate) fn landed(&self) -> RelPath {
        self.folder.shown(&self.name)
    }

    /// The path for messages: where it will be, under the name that the user knows if that had to be mapped.
    pub(crate) fn shown(&self) -> RelPath {
        let known = self.source_path.file_name().filter(|name| {
            self.folder
                .root()
                .names
                .map(name)
                .is_ok_and(|mapped| mapped.changed && mapped.name == self.name)
        });
        self.folder.shown(known.as_ref().unwrap_or(&self.name))
    }
}

/// Copies a file and whatever waits to be linked to it.
pub(crate) async fn copy(context: &Arc<Context>, task: FileTask) {
    let (link, folder, name) = (task.link, Arc::clone(&task.folder), task.name.clone());
    let done = copy_alone(context, task).await;
    if let Some(id) = link {
        if done {
            links::complete(context, id, &folder, &name).await;
        } else {
            links::failed(context, id).await;
        }
    }
}

/// Copies a file; whether that succeeded.
pub(crate) async fn copy_alone(context: &Arc<Context>, task: FileTask) -> bool {
    let token = task.token();
    let result = context.with_retries(token, || attempt(context, &task)).await;
    context.sync.closed(token);
    match result {
        Ok(()) => true,
        Err((error, _)) if error.kind == ErrorKind::Cancelled => false,
        Err((error, on_source)) => {
            context.arrivals.take_back(token);
            give_up(context, &task, &error).await;
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&task.shown(), error, on_source).await;
            false
        }
    }
}

/// Removes what a failed copy left; a full volume keeps it for the next run.
pub(crate) async fn give_up(context: &Context, task: &FileTask, error: &Error) {
    use ropeway_vfs::Verdict;
    if error.verdict() == Verdict::Abort || context.stopped() || context.options.inplace {
        return;
    }
    let spot = Spot::of(context, task);
    // Best effort: it may not exist, and the failure itself is reported already.
    let _ = context.target.remove_file(&spot.path).await;
}

/// Where the data goes before the file is complete.
struct Spot {
    path: RelPath,
    name: Name,
    direct: bool,
    inplace: bool,
}

impl Spot {
    fn of(context: &Context, task: &FileTask) -> Self {
        let dir = task.folder.path();
        // One that has other names is another file, too: it keeps its content.
        let exists = task
            .existing
            .as_ref()
            .is_some_and(|existing| existing.kind == Kind::File && existing.links < 2);
        let inplace = context.options.inplace && exists;
        let temporary = context.temporary_of(task.token());
        match temporary {
            Some(name) if task.folder.placement() == Placement::Temporary && !inplace => Self {
                path: dir.join(&name),
                name,
                direct: false,
                inplace,
            },
            _ => Self {
                path: dir.join(&task.name),
                name: task.name.clone(),
                direct: true,
                inplace,
            },
        }
    }
}

async fn attempt(context: &Arc<Context>, task: &FileTask) -> Result<(), (Error, bool)> {
    let spot = Spot::of(context, task);
    let cache = cache_of(context, task.metadata.size);
    let mut rereads = u32::from(task.metadata.size <= REREAD_MAX);
    loop {
        let source = open_source(task, cache.source).await?;
        let before = match source.at_open() {
            Some(metadata) => with_listed(metadata, &task.metadata),
            None => source.metadata().await.map_err(on_source)?,
        };
        let start = resume_from(context, task, &spot, &before).await;
        let landing = Landing::new(&context.live, before.size >= JOURNAL_MIN);
        if let Start::Complete = start {
            context.arrivals.add(task.token(), &before);
            finish(context, task, &spot, None, before.size).await?;
            landing.add(before.size);
            landing.commit();
            return Ok(());
        }
        let target = open_target(context, task, &spot, start, cache.target).await?;
        let identity = match spot.inplace {
            true => target.metadata().await.map_err(on_target)?.id.map(|id| id.index),
            false => None,
        };
        let ends = (&source, &target, identity);
        let streamed = move_data(context, task, ends, &landing, &before, start).await?;
        // Together: either may be a round trip.
        let (after, xattrs) =
            futures_util::future::join(source.metadata(), xattrs(context, task, &source, &before)).await;
        let after = after.map_err(on_source)?;
        let changed =
            after.size != before.size || after.modified != before.modified || streamed.size != before.size;
        if changed && rereads > 0 {
            rereads -= 1;
            context.note(
                Some(&task.shown()),
                "changed while it was copied; copied once more",
            );
            context.sync.closed(task.token());
            continue;
        }
        if changed {
            // Neither named nor counted: what was there stays, and a file appears whole or not at all.
            return Err((
                Error::new(ropeway_vfs::Op::Read, &task.source_path, ErrorKind::Changed),
                true,
            ));
        }
        let exact = matches!(start, Start::Anew { .. }) && !spot.inplace && streamed.end == streamed.size;
        if !exact {
            set_length(context, &target, streamed.size)
                .await
                .map_err(on_target)?;
        }
        complete(context, &target, &before, xattrs?).await?;
        // Before a checkpoint may learn that it cannot get its name.
        context.arrivals.add(task.token(), &before);
        finish(context, task, &spot, streamed.hash, streamed.size).await?;
        landing.commit();
        return Ok(());
    }
}

fn on_target(error: Error) -> (Error, bool) {
    (error, false)
}

/// Which cache manners both ends get for a file of this size.
pub(crate) fn cache_of(context: &Context, size: u64) -> EngineCache {
    let mut cache = context.options.engine.cache(size, context.options.cache, false);
    for end in [&mut cache.source, &mut cache.target] {
        if *end == CacheMode::Auto {
            *end = if size >= CACHE_LEAVE_MIN {
                CacheMode::Leave
            } else {
                CacheMode::Keep
            };
        }
    }
    cache
}

/// Where a copy starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Nothing is there that may be used; `leftover`: but something is there.
    Anew { leftover: bool },
    /// Bytes below are there.
    At { written: u64, durable: u64 },
    /// The whole file is there, under its temporary name.
    Complete,
}

/// What an earlier run left of this file.
async fn resume_from(context: &Context, task: &FileTask, spot: &Spot, source: &Metadata) -> Start {
    let exists_direct = spot.direct && task.existing.is_some();
    let is_remote = context.target.capabilities().is_remote();
    if let Some(reached) = context.sync.reached(task.token()) {
        let (written, durable) = match is_remote && context.wants_durable() {
            // The server may be back without what it had not flushed.
            true => (reached.durable, reached.durable),
            false => (reached.written, 0),
        };
        // An earlier try of this run, if it is still there: a renaming whose answer was lost may have been done.
        return match context.target.metadata(&spot.path).await {
            Ok(found)
                if written > 0
                    && found.size >= written
                    // The source may have been replaced between the tries.
                    && reached.version == (source.size, source.modified) =>
            {
                Start::At { written, durable }
            }
            _ => Start::Anew { leftover: true },
        };
    }
    let Some(journal) = context
        .journal
        .as_ref()
        .filter(|journal| journal.memory().resumed())
    else {
        return Start::Anew {
            leftover: exists_direct,
        };
    };
    let Ok(found) = context.target.metadata(&spot.path).await else {
        return Start::Anew { leftover: false };
    };
    let record = journal.memory().file(task.token());
    let changed = found
        .changed
        .filter(|_| context.target.capabilities().time_granularity_ns < 1_000_000_000);
    let epoch = changed.and_then(|changed| journal.memory().epoch_of(changed, journal.boot()));
    let same = |record: &FileRecord| record.size == source.size && record.modified == source.modified;
    let facts = JournalFacts {
        same_boot: match (record, changed) {
            (Some(record), _) => record.same_boot,
            (None, Some(_)) => epoch.is_none_or(|(same, _)| same),
            (None, None) => journal.memory().only_boot(journal.boot()),
        },
        written_upto: record.map_or(0, |record| record.written),
        durable_upto: record.map_or(0, |record| record.durable),
        // A server's clock does not go with ours.
        durable_before: epoch.and_then(|(_, before)| before).filter(|_| !is_remote),
        target: Some(&found),
        source,
        source_unchanged: record.as_ref().is_none_or(same),
        time_granularity_ns: task.folder.root().rules.time_granularity_ns,
    };
    let is_known =
        |record: &FileRecord| record.target.is_some() && record.target == found.id.map(|id| id.index);
    if spot.inplace && !record.as_ref().is_some_and(is_known) {
        // Under its own name there may be another file by now.
        return Start::Anew { leftover: true };
    }
    match trust(&facts) {
        Trust::Whole if !spot.direct => Start::Complete,
        Trust::Whole | Trust::Nothing => Start::Anew { leftover: true },
        Trust::Prefix(upto) => {
            let durable = record.map_or(0, |record| record.durable).min(upto);
            Start::At {
                written: upto,
                durable,
            }
        }
    }
}

async fn open_target(
    context: &Context,
    task: &FileTask,
    spot: &Spot,
    start: Start,
    cache: CacheMode,
) -> Result<Arc<dyn File>, (Error, bool)> {
    let create = match start {
        Start::Anew { leftover: false } => Create::New,
        Start::Anew { leftover: true } if spot.inplace => Create::IfMissing,
        Start::Anew { leftover: true } => Create::Truncate,
        Start::At { .. } | Start::Complete => Create::IfMissing,
    };
    let opened = context
        .target
        .open(&spot.path, OpenOptions::write(create, cache))
        .await;
    let file = match opened {
        // Of an earlier try, or of an earlier run whose journal is gone; nobody else's: the name or the folder is
        // a temporary one of this job.
        Err(error) if error.kind == ErrorKind::AlreadyExists && !spot.inplace => {
            let options = OpenOptions::write(Create::Truncate, cache);
            context
                .target
                .open(&spot.path, options)
                .await
                .map_err(on_target)?
        }
        opened => opened.map_err(on_target)?,
    };
    if spot.inplace && start == (Start::Anew { leftover: true }) {
        // The old content is overwritten from the start; what is beyond the new end goes first.
        let size = task.metadata.size;
        if task
            .existing
            .as_ref()
            .is_some_and(|existing| existing.size > size)
        {
            file.set_len(size).await.map_err(on_target)?;
        }
        // Holes of the source must read as zeroes over old data.
        if task.metadata.is_sparse() {
            file.set_len(0).await.map_err(on_target)?;
        }
    }
    Ok(file)
}

/// Moves the data by the cheapest way there is.
async fn move_data(
    context: &Context,
    task: &FileTask,
    (source, target, identity): (&Arc<dyn File>, &Arc<dyn File>, Option<u64>),
    landing: &Landing<'_>,
    before: &Metadata,
    start: Start,
) -> Result<Streamed, (Error, bool)> {
    let token = task.token();
    let (written, durable) = match start {
        Start::At { written, durable } => (written, durable),
        Start::Anew { .. } | Start::Complete => (0, 0),
    };
    let hash = context.hashes.is_some();
    let plain = context.options.engine == Engine::Auto && !hash;
    if plain && written == 0 && before.size > 0 && target.reflink_from(&**source).await.map_err(on_target)? {
        landing.add(before.size);
        return Ok(Streamed {
            size: before.size,
            end: 0,
            hash: None,
        });
    }
    if let Some(journal) = context.journal.as_ref().filter(|_| before.size >= JOURNAL_MIN) {
        context.journalled(Some(journal.file_begun(
            token,
            before.size,
            before.modified,
            durable,
            identity,
        )));
        context.journalled(Some(journal.written(token, written)));
    }
    if written > 0 {
        if context.sync.reached(token).is_none() {
            context.live.bytes_resumed.fetch_add(written, Ordering::Relaxed);
        }
        landing.add(written);
    }
    let can = context.target.capabilities();
    if can.is_remote() && can.sparse && before.is_sparse() {
        // Servers keep holes only of files that are told to have them.
        target.punch_hole(0, 0).await.map_err(on_target)?;
    }
    let inside = can.is_remote() && task.folder.root().root.source.capabilities().is_remote();
    let keep = cache_of(context, before.size).target == CacheMode::Keep;
    let version = (before.size, before.modified);
    let open = context.sync.opened(token, Arc::clone(target), written, version);
    let stream = Stream {
        context,
        landing,
        source: Arc::clone(source),
        target: Arc::clone(target),
        open,
        token,
        size: before.size,
        start: written,
        hash,
        write_back: context.wants_durable() || !keep,
    };
    if plain
        && (inside || (keep && !stream.write_back))
        && let Some(streamed) = stream.run_in_kernel().await?
    {
        return Ok(streamed);
    }
    stream.run().await
}

/// Attributes, when data and length are there: times last.
async fn complete(
    context: &Context,
    target: &Arc<dyn File>,
    before: &Metadata,
    xattrs: Option<Vec<Xattr>>,
) -> Result<(), (Error, bool)> {
    let change = context.change_of_file(before, xattrs);
    let finished = target.finish(&change, context.flushes_each()).await;
    context.lose(&finished.map_err(on_target)?);
    Ok(())
}

/// Gives a file its length where the data did not: a hole at the end, or old content beyond it.
async fn set_length(context: &Context, target: &Arc<dyn File>, size: u64) -> Result<(), Error> {
    let now = target.metadata().await?.size;
    if now == size {
        return Ok(());
    }
    match target.set_len(size).await {
        // fusefat shortens files but does not lengthen them: a last zero does.
        Err(error)
            if now < size && matches!(error.kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            context.lose(&[ropeway_vfs::Loss::Sparse]);
            let mut block = context.pool.get().await;
            block.capacity_mut()[0] = 0;
            block.set_len(1);
            target.write_at(block.freeze(), size - 1).await
        }
        result => result,
    }
}

/// Counts a complete file and gives it its name.
async fn finish(
    context: &Arc<Context>,
    task: &FileTask,
    spot: &Spot,
    hash: Option<[u8; 32]>,
    size: u64,
) -> Result<(), (Error, bool)> {
    let token = task.token();
    let postponed = !spot.direct && context.postpones() && task.link.is_none();
    if !spot.direct {
        keep_backup(context, task).await.map_err(on_target)?;
    }
    if postponed {
        context.sync.postpone(PendingRename {
            folder: Arc::clone(&task.folder),
            from: spot.name.clone(),
            to: task.name.clone(),
            replace: true,
            token: Some(token),
            size,
            shown: task.shown(),
        });
    } else if !spot.direct {
        if context.wants_durable() && task.link.is_some() && !context.flushes_each() {
            let options = OpenOptions::write(Create::No, CacheMode::Keep);
            let file = context
                .target
                .open(&spot.path, options)
                .await
                .map_err(on_target)?;
            file.sync(false).await.map_err(on_target)?;
        }
        let to = task.folder.path().join(&task.name);
        let replaced = task.existing.as_ref();
        rename(context, &spot.path, &to, true, replaced)
            .await
            .map_err(on_target)?;
    }
    context.sync.closed(token);
    if !postponed && let Some(journal) = context.journal.as_ref().filter(|_| size >= JOURNAL_MIN) {
        context.journalled(Some(journal.closed(token)));
    }
    account(context, task, size);
    match hash {
        Some(hash) => record_hash(context, task, &hash),
        None => hash_skipped(context, task).await,
    }
    Ok(())
}

fn account(context: &Context, task: &FileTask, size: u64) {
    context.live.files_done.fetch_add(1, Ordering::AcqRel);
    context.live.bytes_done.fetch_add(size, Ordering::AcqRel);
    let action = if task.existing.is_some() { "update" } else { "copy" };
    context.item(&task.shown(), action, size);
}

/// Keeps what is about to be replaced, if asked to: by one more link to it, so that the name is never empty.
pub(crate) async fn keep_backup(context: &Context, task: &FileTask) -> Result<(), Error> {
    let (Some(backup), Some(existing)) = (&context.options.backup, &task.existing) else {
        return Ok(());
    };
    if existing.is_dir() {
        return Ok(());
    }
    let path = task.folder.path().join(&task.name);
    let kept = backup_path(context, backup, &path).await?;
    match context.target.remove_file(&kept).await {
        Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    match context.target.make_hard_link(&path, &kept).await {
        Err(error) if matches!(error.kind, ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
            context.target.rename(&path, &kept, true).await
        }
        result => result,
    }
}

/// The place of a backup; folders of a backup directory are made as needed.
pub(crate) async fn backup_path(
    context: &Context,
    backup: &Backup,
    path: &RelPath,
) -> Result<RelPath, Error> {
    let misnamed = || Error::new(ropeway_vfs::Op::Rename, path, ErrorKind::NameRefused);
    match backup {
        Backup::Suffix(suffix) => {
            let name = path.file_name().ok_or_else(misnamed)?;
            let name = Name::new(&[name.as_bytes(), suffix].concat()).ok_or_else(misnamed)?;
            Ok(path.parent().unwrap_or_default().join(&name))
        }
        Backup::Directory(base) => {
            let mut at = RelPath::root();
            let parent = base.join_path(&path.parent().unwrap_or_default());
            for name in parent.components() {
                at = at.join(&name);
                match context.target.make_dir(&at, 0o755).await {
                    Err(error) if error.kind != ErrorKind::AlreadyExists => return Err(error),
                    _ => {}
                }
            }
            Ok(base.join_path(path))
        }
    }
}

fn record_hash(context: &Context, task: &FileTask, hash: &[u8; 32]) {
    if let Some(hashes) = &context.hashes
        && let Err(error) = hashes.add(&task.landed(), hash)
    {
        context.fatal(crate::status::Fatal::new(
            crate::status::Status::TargetUnwritable,
            format!("cannot keep the hashes: {error}"),
        ));
    }
}

/// With verification: hashes a file that was not copied in this run (skipped, linked, adopted) from its source, so that
/// the whole job is verified.
pub(crate) async fn hash_skipped(context: &Context, task: &FileTask) {
    if context.hashes.is_none() || context.options.dry_run {
        return;
    }
    let cache = cache_of(context, task.metadata.size).source;
    let hashed = async {
        let source = open_source(task, cache).await.map_err(|(error, _)| error)?;
        crate::verify::hash_file(&context.pool, &*source).await
    };
    match hashed.await {
        Ok(hash) => record_hash(context, task, &hash),
        Err(error) => context.fail(&task.shown(), error, true).await,
    }
}
