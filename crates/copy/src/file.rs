//! One file, whole: placement, resume, data, attributes, name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_plan::{Engine, EngineCache, Version};
use ropeway_vfs::{
    CacheMode, Create, End, EndError, Error, ErrorKind, File, FileId, Kind, Metadata, Name, Op, OpenOptions,
    RelPath, Xattr,
};

use crate::backup;
pub(crate) use crate::backup::keep_backup;
use crate::changing::{self, Rereads, Torn};
use crate::context::{Context, token_of};
use crate::delete;
use crate::durable::{PendingRename, note_loss};
use crate::folder::{Folder, Placement};
use crate::journal::Token;
use crate::kernel;
use crate::links;
use crate::naming::rename;
use crate::progress::Landing;
use crate::resume::{Start, begin, made_of};
use crate::source::{open_source, with_listed, xattrs};
use crate::stream::{Stream, Streamed};

/// From this size on, `--cache auto` leaves the page cache as it was: smaller copies fit any cache and are often read
/// again at once.
const CACHE_LEAVE_MIN: u64 = 32 << 20;

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
    /// What stands there looks like a copy that an earlier run made and that may lack data: it replaces no backup.
    pub(crate) existing_is_own: bool,
    /// Set when other names of the file wait for this copy.
    pub(crate) link: Option<FileId>,
}

impl FileTask {
    pub(crate) fn token(&self) -> Token {
        token_of(self.folder.root().index, &self.source_path)
    }

    /// Whether a folder stands where this file comes: a mirror removes it when the copy is complete.
    pub(crate) fn is_blocked(&self) -> bool {
        self.existing.as_ref().is_some_and(Metadata::is_dir) && !self.metadata.is_dir()
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
    let attempt = || async {
        let tried = attempt(context, &task).await;
        if let Err(EndError {
            end: End::Target,
            error,
        }) = &tried
        {
            let is_flush = error.op == ropeway_vfs::Op::Sync;
            if is_flush {
                note_loss(context);
            }
            if is_flush || error.kind == ErrorKind::DeviceError {
                context.sync.failed(token);
            }
        }
        tried
    };
    let result = context.with_retries(token, attempt).await;
    context.sync.closed(token);
    match result {
        Ok(copied) => copied,
        Err(EndError { error, .. }) if error.kind == ErrorKind::Cancelled => false,
        Err(EndError { end, error }) => {
            context.arrivals.take_back(token);
            give_up(context, &task, &error).await;
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&task.shown(), error, end).await;
            false
        }
    }
}

/// Removes what a failed copy left, or what an earlier run left under its name in a folder that nobody has seen yet; a full
/// volume keeps it for the next run.
pub(crate) async fn give_up(context: &Context, task: &FileTask, error: &Error) {
    use ropeway_vfs::Verdict;
    let spot = Spot::of(context, task);
    if spot.inplace {
        // It may be half overwritten: the next run must know that it is no old version.
        context.temporaries.must_stay();
    }
    if error.verdict() == Verdict::Abort || context.stopped() || spot.inplace || context.options.dry_run {
        return;
    }
    // The failure itself is reported already.
    if !spot.direct {
        // It may not exist; the journal knows the name.
        let _ = context.target.remove_file(&spot.path).await;
    } else if crate::delete::clear(context, &spot.path).await.is_err() {
        task.folder.doubt();
    }
}

/// Where the data goes before the file is complete.
pub(crate) struct Spot {
    pub(crate) path: RelPath,
    pub(crate) name: Name,
    /// Under its final name.
    pub(crate) direct: bool,
    /// Over the old content of the file that has this name.
    pub(crate) inplace: bool,
}

impl Spot {
    fn of(context: &Context, task: &FileTask) -> Self {
        let dir = task.folder.path();
        // One that has other names is another file, too: it keeps its content.
        let exists = task
            .existing
            .as_ref()
            .is_some_and(|existing| existing.kind == Kind::File && existing.links < 2);
        // What stands in a folder that nobody has seen yet is no version of anything.
        let is_seen = task.folder.placement() == Placement::Temporary;
        let inplace = context.options.inplace && exists && is_seen;
        let direct = task.folder.placement() == Placement::Direct || inplace;
        let name = match direct {
            true => task.name.clone(),
            false => context.temporary_of(task.token()),
        };
        Self {
            path: dir.join(&name),
            name,
            direct,
            inplace,
        }
    }
}

/// Copies it; `false`: it did not rest, and what is kept of it is torn, which is reported.
async fn attempt(context: &Arc<Context>, task: &FileTask) -> Result<bool, EndError> {
    let spot = Spot::of(context, task);
    crate::leftovers::before(context, &task.folder).await;
    let cache = cache_of(context, task.metadata.size);
    let mut rereads = Rereads::of(&context.environment.sizes, task.metadata.size);
    let stable_ids = task.folder.root().root.source.capabilities().stable_ids;
    loop {
        let source = open_source(task, cache.source).await?;
        let before = match source.at_open() {
            Some(metadata) => with_listed(metadata, &task.metadata),
            None => source.metadata().await.map_err(EndError::on_source)?,
        };
        check_identity(task, &before, stable_ids)?;
        let version = Version::of(&before, stable_ids);
        if spot.inplace {
            let aside = backup::copy_aside(context, task, (&before, &version)).await;
            aside.map_err(EndError::on_target)?;
        }
        let (target, start) = begin(context, task, &spot, (&before, &version), cache.target).await?;
        let landing = Landing::new(
            &context.live,
            before.size >= context.environment.sizes.journal_min,
        );
        if let Start::Complete = start {
            context.arrivals.add(task.token(), &before);
            finish(context, task, &spot, None, before.size).await?;
            landing.add(before.size);
            landing.commit();
            return Ok(true);
        }
        let ends = (&source, &target);
        let begun = (&before, &version);
        let has_size = source.reports_size();
        let streamed = match has_size {
            true => move_data(context, task, ends, &landing, begun, start).await?,
            false => kernel::copy_all(context, &*source, &*target, &landing).await?,
        };
        // Together: either may be a round trip.
        let (after, xattrs) =
            futures_util::future::join(source.metadata(), xattrs(context, task, &source, &before)).await;
        let after = after.map_err(EndError::on_source)?;
        let now = Version::of(&after, stable_ids);
        let is_whole = streamed.size == before.size;
        let changed = has_size && (!now.is_same(&version) || !is_whole);
        let maybe_equal = is_whole && now.differs_at_most_in_change_time(&version);
        if changed {
            if maybe_equal && rereads.for_attributes(context, task) || rereads.next(context, task).await {
                continue;
            }
            let torn = Torn {
                target: &target,
                path: &spot.path,
                direct: spot.direct,
                size: streamed.size,
                before: &before,
            };
            return changing::settle(context, task, torn).await.map(|()| false);
        }
        let exact = start == Start::Anew && !spot.inplace && streamed.end == streamed.size;
        if !exact {
            set_length(context, &target, streamed.size)
                .await
                .map_err(EndError::on_target)?;
        }
        complete(context, &target, &before, xattrs?, spot.inplace).await?;
        // Before a checkpoint may learn that it cannot get its name.
        context.arrivals.add(task.token(), &before);
        finish(context, task, &spot, streamed.hash, streamed.size).await?;
        landing.commit();
        return Ok(true);
    }
}

/// Fails where the name of a file with several names is another file by now: those names must not be linked to its copy.
pub(crate) fn check_identity(task: &FileTask, opened: &Metadata, stable_ids: bool) -> Result<(), EndError> {
    let is_other = task.link.is_some() && opened.id.is_some() && opened.id != task.link;
    match stable_ids && is_other {
        true => Err(EndError::on_source(Error::new(
            Op::Open,
            &task.source_path,
            ErrorKind::Changed,
        ))),
        false => Ok(()),
    }
}

/// Which cache manners both ends get for a file of this size.
pub(crate) fn cache_of(context: &Context, size: u64) -> EngineCache {
    let mut cache = context.options.engine.cache(size, context.options.cache);
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

/// Moves the data by the cheapest way there is.
async fn move_data(
    context: &Context,
    task: &FileTask,
    (source, target): (&Arc<dyn File>, &Arc<dyn File>),
    landing: &Landing<'_>,
    (before, version): (&Metadata, &Version),
    start: Start,
) -> Result<Streamed, EndError> {
    let token = task.token();
    let (written, durable) = match start {
        Start::At { written, durable } => (written, durable),
        Start::Anew | Start::Complete => (0, 0),
    };
    let hash = context.hashes.is_some();
    let plain = context.options.engine == Engine::Auto && !hash;
    let made = match before.size >= context.environment.sizes.journal_min {
        true => Some(made_of(context, target).await?),
        false => None,
    };
    if plain
        && written == 0
        && before.size > 0
        && target
            .reflink_from(&**source)
            .await
            .map_err(EndError::on_target)?
    {
        landing.add(before.size);
        return Ok(Streamed {
            size: before.size,
            end: 0,
            hash: None,
        });
    }
    if let Some(journal) = context
        .journal
        .as_ref()
        .filter(|_| before.size >= context.environment.sizes.journal_min)
    {
        context.journalled(Some(journal.file_begun(token, *version, durable, made)));
        context.journalled(Some(journal.written(token, written)));
    }
    if written > 0 {
        if context.sync.reached(token).is_none() {
            context.live.bytes_resumed.fetch_add(written, Ordering::Relaxed);
        }
        landing.add(written);
    }
    let can = context.target.capabilities();
    if can.remote && can.sparse && before.is_sparse() {
        // Servers keep holes only of files that are told to have them.
        target.punch_hole(0, 0).await.map_err(EndError::on_target)?;
    }
    let inside = can.remote && task.folder.root().root.source.capabilities().remote;
    let keep = cache_of(context, before.size).target == CacheMode::Keep;
    let open = context
        .sync
        .opened(token, Arc::clone(target), written, *version, made);
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
    inplace: bool,
) -> Result<(), EndError> {
    if inplace && context.flushes_each() {
        // With its time it looks complete: a power cut, or a flush that fails, must not find it so before its data is there.
        target.sync(true).await.map_err(EndError::on_target)?;
    }
    let change = context.change_of_file(before, xattrs);
    let finished = target.finish(&change, context.flushes_each()).await;
    context.lose(&finished.map_err(EndError::on_target)?);
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
) -> Result<(), EndError> {
    let token = task.token();
    let postponed = !spot.direct && context.postpones() && task.link.is_none() && !task.is_blocked();
    if !spot.direct {
        keep_backup(context, task).await.map_err(EndError::on_target)?;
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
        if context.wants_durable() && !context.flushes_each() && (task.link.is_some() || task.is_blocked()) {
            let options = OpenOptions::write(Create::No, CacheMode::Keep);
            let file = context
                .target
                .open(&spot.path, options)
                .await
                .map_err(EndError::on_target)?;
            file.sync(false).await.map_err(EndError::on_target)?;
        }
        let to = task.folder.path().join(&task.name);
        let replaced = task.existing.as_ref().filter(|_| !task.is_blocked());
        if task.is_blocked() {
            delete::make_way(context, task.folder.root(), &to)
                .await
                .map_err(EndError::on_target)?;
        }
        rename(context, &spot.path, &to, true, replaced)
            .await
            .map_err(EndError::on_target)?;
    }
    context.sync.closed(token);
    context.copied_aside.forget(token);
    let is_recorded =
        size >= context.environment.sizes.journal_min || (spot.inplace && context.options.backup.is_some());
    if !postponed && let Some(journal) = context.journal.as_ref().filter(|_| is_recorded) {
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
        let source = open_source(task, cache).await.map_err(|failed| failed.error)?;
        crate::verify::hash_file(&context.pool, &*source).await
    };
    match hashed.await {
        Ok(hash) => record_hash(context, task, &hash),
        Err(error) => context.fail(&task.shown(), error, End::Source).await,
    }
}
