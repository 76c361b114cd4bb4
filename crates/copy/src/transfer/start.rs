//! Opens the target of one file: what an earlier run or try left of it, or a new file.
//!
//! A file is continued only if this job made it. The journal stores its identity, which is compared
//! with that of the open file. Anything else under a temporary name is removed. A new file is
//! created exclusively and is private, so that nobody else has it open and no other name leads to
//! it.

use std::sync::Arc;

use ropeway_plan::resume::{JournalFacts, trust};
use ropeway_plan::{MadeNode, Start, Version};
use ropeway_vfs::{CacheMode, Create, EndError, Error, ErrorKind, File, Kind, Metadata, OpenOptions, Tree};

use crate::delete::clear::make_anew;
use crate::job::config::JobConfig;
use crate::job::context::Context;
use crate::journal::open::Journal;
use crate::mutations::{self, Mutation};
use crate::place::destination::Destination;
use crate::place::mark::mark_folder;
use crate::place::task::FileTask;
use crate::transfer::blocks::Blocks;

/// Opens the target of a file, and returns where to continue in it. `blocks` learns whether what the target has is
/// compared with the source.
pub(crate) async fn begin_file(
    context: &Context,
    task: &FileTask,
    destination: &Destination,
    (source, version): (&Metadata, &Version),
    cache: CacheMode,
    blocks: &mut Blocks<'_>,
) -> Result<(Arc<dyn File>, Start), EndError> {
    let (config, report, durability) = (&context.config, &context.report, &context.durability);
    let journal = context.journal.as_ref();
    if let Some(left) = find_left(context, task, destination, (source, version), cache).await {
        return Ok(left);
    }
    if destination.is_in_place() {
        let file = open_in_place(config, journal, (task, destination), (source, cache), blocks).await;
        return Ok((file.map_err(EndError::on_target)?, Start::Anew));
    }
    durability.give_up(task.token());
    if !destination.has_final_name() {
        mark_folder(report, journal, &task.folder);
    }
    let make = || {
        let options = OpenOptions::write(Create::New, cache);
        config.target.open(&destination.path, options)
    };
    let made = make_anew(config, durability, report, &destination.path, make).await;
    // Flushing the file alone would not make its name durable.
    durability.touch();
    Ok((made.map_err(EndError::on_target)?, Start::Anew))
}

/// Returns the identity of a file of the target that was just opened.
pub(crate) async fn identity_of(target: &dyn Tree, file: &dyn File) -> Result<MadeNode, EndError> {
    let metadata = match file.at_open() {
        Some(metadata) => metadata,
        None => file.metadata().await.map_err(EndError::on_target)?,
    };
    Ok(MadeNode::of(&metadata, target.capabilities().stable_ids))
}

/// Returns what an earlier try or run left of this file, if it may be used.
async fn find_left(
    context: &Context,
    task: &FileTask,
    destination: &Destination,
    (source, version): (&Metadata, &Version),
    cache: CacheMode,
) -> Option<(Arc<dyn File>, Start)> {
    let (config, durability) = (&context.config, &context.durability);
    let token = task.token();
    let is_server = config.target.capabilities().remote;
    if let Some(reached) = durability.reached(token) {
        let may_forget = is_server && config.durability.wants_durable();
        let start = Start::after_try(reached.written, reached.durable, may_forget)?;
        // The source may have been replaced between the tries.
        if !reached.version.is_same(version) {
            return None;
        }
        let (file, found) = open_made(&*config.target, destination, reached.made?, source, cache).await?;
        let is_whole = matches!(start, Start::At { written, .. } if found.size >= written);
        return is_whole.then_some((file, start));
    }
    let journal = context.journal.as_ref()?;
    let record = journal.memory().file(token)?;
    // The file system may have lost the map that leads to the durable blocks. It writes the map
    // again only with a new file.
    if record.lost && !config.target.capabilities().journals_metadata {
        return None;
    }
    let (file, found) = open_made(&*config.target, destination, record.target?, source, cache).await?;
    // The kernel reports a loss once. The run that was killed may have had that report, and not
    // have recorded it.
    let is_cached = record.same_boot && !config.durability.wants_durable();
    let changed = config.change_time(&found);
    let granularity_ns = task.folder.root().rules.granularity.granularity_ns;
    let facts = JournalFacts {
        same_boot: is_cached,
        written_upto: record.written,
        durable_upto: record.durable,
        survived: is_cached || journal.trusts_device(changed, true),
        target: Some(&found),
        source,
        source_unchanged: record.source.is_same(version),
        time_granularity_ns: granularity_ns,
        may_be_unfinished: journal.may_be_unfinished(&found, granularity_ns),
    };
    if mutations::is(Mutation::ResumeTrustsLength) {
        let written = found.size.min(source.size);
        return Some((
            file,
            Start::At {
                written,
                durable: written,
            },
        ));
    }
    let start = Start::after_run(
        trust(&facts),
        destination.has_final_name(),
        record.durable,
        source.size,
    )?;
    if has_lost_writes(config, Some(journal), &*file).await && start.relies_on_cache() {
        return None;
    }
    Some((file, start))
}

/// Flushes what an earlier run wrote to a file. Returns whether the kernel lost some of it. The
/// kernel reports a loss once, to the first flush after the open. Without this flush, it would look
/// like a loss of what this run writes.
async fn has_lost_writes(config: &JobConfig, journal: Option<&Journal>, file: &dyn File) -> bool {
    let is_resumed = journal.is_some_and(|journal| journal.memory().resumed());
    is_resumed && config.target.capabilities().page_cache && file.sync(true).await.is_err()
}

/// Opens a file if it is still the one that was made.
async fn open_made(
    target: &dyn Tree,
    destination: &Destination,
    made: MadeNode,
    source: &Metadata,
    cache: CacheMode,
) -> Option<(Arc<dyn File>, Metadata)> {
    let open = |options| target.open(&destination.path, options);
    let opened = match open(OpenOptions::write(Create::No, cache)).await {
        // It is complete and has its final mode.
        Err(error) if error.kind == ErrorKind::PermissionDenied => open(OpenOptions::read(cache)).await,
        opened => opened,
    };
    let file = opened.ok()?;
    let found = file.metadata().await.ok()?;
    let is_it = found.kind == Kind::File && found.links < 2 && made.is(&found, source);
    is_it.then_some((file, found))
}

/// Opens a file to overwrite it in place, and cuts off what must not stay of its old content.
async fn open_in_place(
    config: &JobConfig,
    journal: Option<&Journal>,
    (task, destination): (&FileTask, &Destination),
    (source, cache): (&Metadata, CacheMode),
    blocks: &mut Blocks<'_>,
) -> Result<Arc<dyn File>, Error> {
    let options = OpenOptions::write(Create::IfMissing, cache);
    let open = |options| config.target.open(&destination.path, options);
    let file = match blocks.needs_alone() {
        false => open(options).await?,
        true => match open(options.alone()).await {
            Err(error) if error.kind == ErrorKind::Busy => {
                blocks.forget();
                open(options).await?
            }
            opened => opened?,
        },
    };
    let heard = has_lost_writes(config, journal, &*file).await;
    let has_lost = |journal: &Journal| journal.memory().has_lost();
    if (heard || journal.is_some_and(has_lost)) && !config.target.capabilities().journals_metadata {
        // This makes the file system write the map of its blocks anew.
        file.set_len(0).await?;
        blocks.forget();
    }
    let compares = blocks.compare_with(&*file).await?;
    // The old content is overwritten from the start. What is beyond the new end goes first.
    let (size, existing) = (source.size, task.existing.as_ref());
    if existing.is_some_and(|existing| existing.size > size) {
        file.set_len(size).await?;
    }
    // Holes of the source must read as zeroes over old data.
    if source.is_sparse() && !compares {
        file.set_len(0).await?;
    }
    Ok(file)
}
