//! Copies one file: where it goes, where it resumes, its data, its attributes and its name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_block::Pool;
use ropeway_plan::{Engine, MadeNode, Naming, Start, Version};
use ropeway_vfs::{
    CacheMode, ContentHash, Create, End, EndError, Error, ErrorKind, File, Metadata, Op, OpenOptions, Xattr,
};

use crate::delete::remove::free_name;
use crate::durable::control::WaitingName;
use crate::durable::lost_writes::record_lost_writes;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::job::counters::Landing;
use crate::job::report::Report;
use crate::job::retry::with_retries;
use crate::journal::token::Token;
use crate::name::backup::{copy_to_backup, keep_backup};
use crate::name::rename::rename;
use crate::place::destination::Destination;
use crate::place::failure::fail_file;
use crate::place::foreign_links::learn_links;
use crate::place::task::FileTask;
use crate::sweep::place::note_place;
use crate::transfer::blocks::Blocks;
use crate::transfer::changing::{Rereads, Torn, end_torn};
use crate::transfer::delta::{Delta, Outcome};
use crate::transfer::source::{open_source, source_xattrs, with_listed};
use crate::transfer::start::{begin_file, identity_of};
use crate::transfer::stream::{Stream, Streamed};
use crate::transfer::unsized_file::copy_unsized;
use crate::verify::skipped::{hash_skipped, record_hash};

/// Copies a file. Returns whether that succeeded.
#[tracing::instrument(name = "file", level = "debug", skip_all, fields(path = %task.shown()))]
pub(crate) async fn copy_file_alone(context: &Arc<Context>, mut task: FileTask) -> bool {
    let token = task.token();
    if context.config.options.inplace {
        learn_links(&context.config, &mut task).await;
    }
    let attempt = || async {
        let tried = attempt(context, &task).await;
        if let Err(EndError {
            end: End::Target,
            error,
        }) = &tried
        {
            let is_flush = error.op == ropeway_vfs::Op::Sync;
            if is_flush {
                record_lost_writes(&context.config, &context.report, context.journal.as_ref());
            }
            if is_flush || error.kind == ErrorKind::DeviceError {
                context.durability.fail(token);
            }
        }
        tried
    };
    let result = with_retries(&context.config.options, &context.report, token, attempt).await;
    context.durability.close(token);
    match result {
        Ok(copied) => copied,
        Err(EndError { error, .. }) if error.kind == ErrorKind::Cancelled => false,
        Err(failed) => {
            context.copied_nodes.remove(token);
            fail_file(context, &task, failed).await;
            false
        }
    }
}

/// Copies a file. Returns `false` if the file changed in every try: then a torn copy is kept and
/// reported.
async fn attempt(context: &Arc<Context>, task: &FileTask) -> Result<bool, EndError> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    let destination = Destination::of_file(config, task);
    note_place(context, &task.folder).await;
    let cache = config.cache_of(task.locality(), task.metadata.size);
    let mut rereads = Rereads::of(&config.environment.sizes, task.metadata.size);
    let stable_ids = task.folder.root().root.source.capabilities().stable_ids;
    let mut blocks = Blocks::of(context, task, &destination);
    loop {
        let (source, before) = open_version(task, cache.source, stable_ids).await?;
        let version = Version::of(&before, stable_ids);
        if destination.is_in_place() {
            let aside = copy_to_backup(context, task, (&before, &version)).await;
            aside.map_err(EndError::on_target)?;
        }
        blocks.begin(&before).await?;
        let of_source = (&before, &version);
        let (target, start) =
            begin_file(context, task, &destination, of_source, cache.target, &mut blocks).await?;
        let landing = Landing::new(&report.live, before.size >= config.environment.sizes.journal_min);
        if let Start::Complete = start {
            context.copied_nodes.add(task.token(), &before);
            finish(context, task, &destination, None, before.size).await?;
            landing.add(before.size);
            landing.commit();
            return Ok(true);
        }
        let ends = (&source, &target, &blocks);
        let streamed = move_data(context, task, ends, &landing, (&before, &version), start).await?;
        // At once, because either may cost a round trip.
        let (after, xattrs) =
            futures_util::future::join(source.metadata(), source_xattrs(config, task, &source, &before))
                .await;
        let after = after.map_err(EndError::on_source)?;
        let now = Version::of(&after, stable_ids);
        let is_whole = streamed.size == before.size;
        let changed = source.reports_size() && (!now.is_same(&version) || !is_whole);
        let maybe_equal = is_whole && now.differs_at_most_in_change_time(&version);
        if changed {
            if maybe_equal && rereads.for_attributes(report, durability, task)
                || rereads.next(report, durability, task).await
            {
                continue;
            }
            let torn = Torn::of(&target, &destination, streamed.size, &before);
            return end_torn(context, task, torn).await.map(|()| false);
        }
        let exact = start == Start::Anew && !destination.is_in_place() && streamed.end == streamed.size;
        if !exact {
            set_length(report, &context.resources.pool, &*target, streamed.size)
                .await
                .map_err(EndError::on_target)?;
        }
        complete(
            config,
            report,
            &*target,
            (&before, xattrs?),
            destination.is_in_place(),
        )
        .await?;
        // Before a checkpoint can find that it gets no name.
        context.copied_nodes.add(task.token(), &before);
        finish(context, task, &destination, streamed.hash, streamed.size).await?;
        blocks.stage(&before).await;
        landing.commit();
        return Ok(true);
    }
}

/// Opens the source of a file, and returns what it is now.
async fn open_version(
    task: &FileTask,
    cache: CacheMode,
    stable_ids: bool,
) -> Result<(Arc<dyn File>, Metadata), EndError> {
    let source = open_source(task, cache).await?;
    let before = match source.at_open() {
        Some(metadata) => with_listed(metadata, &task.metadata),
        None => source.metadata().await.map_err(EndError::on_source)?,
    };
    check_identity(task, &before, stable_ids)?;
    Ok((source, before))
}

/// Fails if the name of a file with several names belongs to another file by now. Those names must
/// not be linked to its copy.
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

/// Tells journal and counters where the copy of a file begins.
fn record_begin(
    context: &Context,
    (token, size): (Token, u64),
    (written, durable): (u64, u64),
    (version, made): (&Version, Option<MadeNode>),
) {
    let is_recorded = size >= context.config.environment.sizes.journal_min;
    if let Some(journal) = context.journal.as_ref().filter(|_| is_recorded) {
        context
            .report
            .journal_result(Some(journal.file_begun(token, *version, durable, made)));
        context
            .report
            .journal_result(Some(journal.written(token, written)));
    }
    if written > 0 && context.durability.reached(token).is_none() {
        let resumed = &context.report.live.bytes_resumed;
        resumed.fetch_add(written, Ordering::Relaxed);
    }
}

/// Moves the data in the cheapest possible way.
#[tracing::instrument(name = "transfer", level = "debug", skip_all)]
async fn move_data(
    context: &Context,
    task: &FileTask,
    (source, target, blocks): (&Arc<dyn File>, &Arc<dyn File>, &Blocks<'_>),
    landing: &Landing<'_>,
    (before, version): (&Metadata, &Version),
    start: Start,
) -> Result<Streamed, EndError> {
    let (pool, hash) = (&context.resources.pool, context.hash_algorithm());
    if !source.reports_size() {
        return copy_unsized(pool, &context.report, (&**source, &**target), landing, hash).await;
    }
    let token = task.token();
    let (written, durable) = match start {
        Start::At { written, durable } => (written, durable),
        Start::Anew | Start::Complete => (0, 0),
    };
    let plain = context.config.options.engine == Engine::Auto && hash.is_none();
    let made = match before.size >= context.config.environment.sizes.journal_min {
        true => Some(identity_of(&*context.config.target, &**target).await?),
        false => None,
    };
    if plain
        && written == 0
        && let Some(shared) = share_data(&**source, &**target, landing, before.size).await?
    {
        return Ok(shared);
    }
    let can = context.config.target.capabilities();
    if can.remote && can.sparse && before.is_sparse() {
        // Servers keep holes only in files that are marked as sparse.
        target.punch_hole(0, 0).await.map_err(EndError::on_target)?;
    }
    let inside = can.remote && task.folder.root().root.source.capabilities().remote;
    let keep = context.config.cache_of(task.locality(), before.size).target == CacheMode::Keep;
    let record = || record_begin(context, (token, before.size), (written, durable), (version, made));
    let of_token = (token, Arc::clone(target));
    let attempt = context
        .durability
        .open(of_token, written, (*version, made), record);
    landing.add(written);
    let mut stream = Stream {
        context,
        landing,
        source: Arc::clone(source),
        target: Arc::clone(target),
        attempt,
        token,
        locality: task.locality(),
        size: before.size,
        start: written,
        hash,
        writes_holes: blocks.writes_holes(start, before),
        blocks: blocks.changes(),
        write_back: context.config.durability.wants_durable() || !keep,
    };
    let holes = (before.is_sparse(), start == Start::Anew);
    match Delta::of(&stream, task, holes).run().await? {
        Outcome::Done(streamed) => return Ok(streamed),
        Outcome::Rest(from) => stream.start = from,
    }
    if plain
        && (inside || (keep && !stream.write_back))
        && stream.blocks.is_none()
        && let Some(streamed) = stream.run_in_kernel().await?
    {
        return Ok(streamed);
    }
    stream.run().await
}

/// Lets the target share the data of the source. `None` where it cannot.
async fn share_data(
    source: &dyn File,
    target: &dyn File,
    landing: &Landing<'_>,
    size: u64,
) -> Result<Option<Streamed>, EndError> {
    if size == 0 || !target.reflink_from(source).await.map_err(EndError::on_target)? {
        return Ok(None);
    }
    landing.add(size);
    Ok(Some(Streamed {
        size,
        end: 0,
        hash: None,
    }))
}

/// Sets the attributes when data and length are there. The times come last.
#[tracing::instrument(name = "finish", level = "debug", skip_all)]
async fn complete(
    config: &JobConfig,
    report: &Report,
    target: &dyn File,
    (before, xattrs): (&Metadata, Option<Vec<Xattr>>),
    inplace: bool,
) -> Result<(), EndError> {
    if inplace && config.durability.flushes_each() {
        // With its time it looks complete. A power cut or a failed flush must not find it so before
        // its data is there.
        target.sync(true).await.map_err(EndError::on_target)?;
    }
    let change = config.change_of_file(report, before, xattrs);
    let finished = target.finish(&change, config.durability.flushes_each()).await;
    report.lose(&finished.map_err(EndError::on_target)?);
    Ok(())
}

/// Sets the length of a file that ends with a hole, or that had old content beyond its end.
async fn set_length(report: &Report, pool: &Pool, target: &dyn File, size: u64) -> Result<(), Error> {
    let now = target.metadata().await?.size;
    if now == size {
        return Ok(());
    }
    match target.set_len(size).await {
        // fusefat shortens files but does not lengthen them. A last zero does.
        Err(error)
            if now < size && matches!(error.kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            report.lose(&[ropeway_vfs::Loss::Sparse]);
            let mut block = pool.get().await;
            block.capacity_mut()[0] = 0;
            block.set_len(1);
            target.write_at(block.freeze(), size - 1).await
        }
        result => result,
    }
}

/// Names and counts a complete file.
async fn finish(
    context: &Arc<Context>,
    task: &FileTask,
    destination: &Destination,
    hash: Option<ContentHash>,
    size: u64,
) -> Result<(), EndError> {
    let token = task.token();
    let needed_now = task.link.is_some() || task.is_blocked();
    let naming = context.config.durability.naming(destination.spot, needed_now);
    if naming != Naming::Present {
        let kept = keep_backup(&context.config, context.journal.as_ref(), task).await;
        kept.map_err(EndError::on_target)?;
    }
    match naming {
        Naming::Present => {}
        Naming::AtCheckpoint => context.durability.postpone(WaitingName {
            folder: Arc::clone(&task.folder),
            from: destination.name.clone(),
            to: task.name.clone(),
            replace: true,
            token: Some(token),
            size,
            shown: task.shown(),
        }),
        Naming::Now { flush_first } => give_name(context, task, destination, flush_first)
            .await
            .map_err(EndError::on_target)?,
    }
    context.durability.close(token);
    context.kept_versions.forget(token);
    let is_recorded = size >= context.config.environment.sizes.journal_min
        || (destination.is_in_place() && context.config.options.backup.is_some());
    if naming != Naming::AtCheckpoint
        && let Some(journal) = context.journal.as_ref().filter(|_| is_recorded)
    {
        context.report.journal_result(Some(journal.closed(token)));
    }
    account(&context.report, task, size);
    match (&context.hashes, hash) {
        (Some(hashes), Some(hash)) => record_hash(&context.report, hashes, task, &hash),
        _ => hash_skipped(context, task).await,
    }
    Ok(())
}

/// Gives a complete file its final name now.
async fn give_name(
    context: &Arc<Context>,
    task: &FileTask,
    destination: &Destination,
    flush_first: bool,
) -> Result<(), Error> {
    if flush_first {
        let options = OpenOptions::write(Create::No, CacheMode::Keep);
        let file = context.config.target.open(&destination.path, options).await?;
        file.sync(false).await?;
    }
    let to = task.folder.path().join(&task.name);
    let replaced = task.existing.as_ref().filter(|_| !task.is_blocked());
    if task.is_blocked() {
        free_name(context, task.folder.root(), &to).await?;
    }
    rename(&context.config, &context.report, &destination.path, &to, replaced).await
}

fn account(report: &Report, task: &FileTask, size: u64) {
    report.live.files_done.fetch_add(1, Ordering::AcqRel);
    report.live.bytes_done.fetch_add(size, Ordering::AcqRel);
    let action = if task.existing.is_some() { "update" } else { "copy" };
    report.item(&task.shown(), action, size);
}
