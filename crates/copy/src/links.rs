//! Hard links: the first name of a file copies it, the others are linked to that copy.
//!
//! An entry lives from the first name seen to the last (the source tells how many there are), so memory grows
//! only with the files whose other names have not come by yet.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ropeway_vfs::{
    CacheMode, End, EndError, Error, ErrorKind, FileId, Kind, Loss, Metadata, Name, OpenOptions, RelPath,
};

use crate::context::{Context, lock};
use crate::delete;
use crate::durable::note_loss;
use crate::file::{self, FileTask};
use crate::folder::{Folder, Placement};
use crate::leftovers;
use crate::naming::rename;
use crate::special;

/// A file to copy or to link.
pub(crate) type LinkTask = FileTask;

/// Where the copy of a file stands.
struct Place {
    folder_path: RelPath,
    folder_shown: RelPath,
    name: Name,
    /// Nobody saw the folder when the copy was made: the copy may not be durable.
    is_unseen: bool,
}

enum State {
    Copying { waiters: Vec<LinkTask> },
    Ready(Arc<Place>),
}

struct Entry {
    state: State,
    /// Names of the source that have not come by yet.
    left: u64,
}

/// All files with several names.
#[derive(Default)]
pub(crate) struct Links {
    entries: Mutex<HashMap<FileId, Entry>>,
}

/// What to do with one name.
pub(crate) enum Claim {
    /// The first: copy it, then call [`complete`] or [`failed`].
    First(LinkTask),
    /// The copy is under way; the task waits.
    Waits,
    /// Link it to what is there.
    Link(LinkTask, Target),
}

/// The finished copy to link to.
pub(crate) struct Target(Arc<Place>);

impl Links {
    /// Whether a file takes part in this at all.
    pub(crate) fn concerns(context: &Context, metadata: &Metadata) -> Option<FileId> {
        // A dry run makes no first copy that the others could wait for.
        let off = !context.options.hard_links || context.options.dry_run;
        if metadata.kind == Kind::Directory || metadata.links < 2 || off {
            return None;
        }
        if !context.target.capabilities().hard_links {
            context.lose(&[Loss::HardLink]);
            return None;
        }
        metadata.id
    }

    pub(crate) fn claim(&self, id: FileId, task: LinkTask) -> Claim {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&id) else {
            let left = task.metadata.links.saturating_sub(1);
            entries.insert(
                id,
                Entry {
                    state: State::Copying { waiters: Vec::new() },
                    left,
                },
            );
            return Claim::First(task);
        };
        entry.left = entry.left.saturating_sub(1);
        let last = entry.left == 0;
        match &mut entry.state {
            State::Copying { waiters } => {
                waiters.push(task);
                Claim::Waits
            }
            State::Ready(place) => {
                let place = Arc::clone(place);
                if last {
                    entries.remove(&id);
                }
                Claim::Link(task, Target(place))
            }
        }
    }

    fn ready(&self, id: FileId, place: &Arc<Place>) -> Vec<LinkTask> {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&id) else {
            return Vec::new();
        };
        let waiters = match std::mem::replace(&mut entry.state, State::Ready(Arc::clone(place))) {
            State::Copying { waiters } => waiters,
            State::Ready(_) => Vec::new(),
        };
        if entry.left == 0 {
            entries.remove(&id);
        }
        waiters
    }

    /// The first name failed: the next waiter takes its place.
    fn next_first(&self, id: FileId) -> Option<LinkTask> {
        let mut entries = lock(&self.entries);
        let Some(Entry {
            state: State::Copying { waiters },
            ..
        }) = entries.get_mut(&id)
        else {
            return None;
        };
        if let Some(next) = waiters.pop() {
            return Some(next);
        }
        // The next name that comes by is the first again.
        entries.remove(&id);
        None
    }
}

/// The copy of a file with several names stands under `name` in `folder`: links the others to it.
pub(crate) async fn complete(context: &Arc<Context>, id: FileId, folder: &Folder, name: &Name) {
    let place = Arc::new(Place {
        folder_path: folder.path(),
        folder_shown: folder.inner().shown.clone(),
        name: name.clone(),
        is_unseen: folder.placement() == Placement::Direct,
    });
    for waiter in context.links.ready(id, &place) {
        link(context, waiter, Target(Arc::clone(&place))).await;
    }
}

/// The copy of a file with several names failed: another name tries.
pub(crate) async fn failed(context: &Arc<Context>, id: FileId) {
    // It stays one that others are linked to: it must have its name, and its data be durable, before they are.
    while let Some(next) = context.links.next_first(id) {
        let (folder, name) = (Arc::clone(&next.folder), next.name.clone());
        let copied = if next.metadata.kind == Kind::File {
            Box::pin(file::copy_alone(context, next)).await
        } else {
            Box::pin(special::copy_alone(context, &next)).await
        };
        if copied {
            complete(context, id, &folder, &name).await;
            return;
        }
    }
}

/// Makes one more name of a copied file.
pub(crate) async fn link(context: &Arc<Context>, task: LinkTask, target: Target) {
    if context.stopped() {
        return;
    }
    let size = if task.metadata.kind == Kind::File {
        task.metadata.size
    } else {
        0
    };
    let shown = task.folder.shown(&task.name);
    match is_still_one(context, &task).await {
        Ok(true) => {}
        Ok(false) => return copy_by_itself(context, task).await,
        Err(error) => {
            file::give_up(context, &task, &error).await;
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            return context.fail(&shown, error, End::Source).await;
        }
    }
    match make(context, &task, &target.0).await {
        Ok(made) => {
            if made != Made::Kept {
                context.arrivals.add(task.token(), &task.metadata);
            }
            let live = &context.live;
            live.files_done.fetch_add(1, Ordering::AcqRel);
            live.bytes_done.fetch_add(size, Ordering::AcqRel);
            live.bytes_landed.fetch_add(size, Ordering::AcqRel);
            if made == Made::Now {
                context.item(&shown, "link", size);
            } else {
                live.files_skipped.fetch_add(1, Ordering::Relaxed);
                live.bytes_skipped.fetch_add(size, Ordering::Relaxed);
                context.item(&shown, "skip", size);
            }
            if task.metadata.kind == Kind::File {
                file::hash_skipped(context, &task).await;
            }
        }
        Err(error)
            if matches!(
                error.kind,
                ErrorKind::TooManyLinks | ErrorKind::CrossDevice | ErrorKind::Unsupported
            ) =>
        {
            context.lose(&[Loss::HardLink]);
            copy_by_itself(context, task).await;
        }
        Err(error) => {
            file::give_up(context, &task, &error).await;
            context.live.files_failed.fetch_add(1, Ordering::Relaxed);
            context.fail(&shown, error, End::Target).await;
        }
    }
}

/// Copies a name as a file of its own.
async fn copy_by_itself(context: &Arc<Context>, mut task: LinkTask) {
    task.link = None;
    if task.metadata.kind == Kind::File {
        Box::pin(file::copy_alone(context, task)).await;
    } else {
        Box::pin(special::copy_alone(context, &task)).await;
    }
}

/// Whether a name is still one of the file that it was when it was listed. If another program replaced it meanwhile, the
/// copy of the others may be no version of it.
async fn is_still_one(context: &Context, task: &LinkTask) -> Result<bool, Error> {
    let source = &task.folder.root().root.source;
    if !source.capabilities().stable_ids {
        return Ok(true);
    }
    let look = || async {
        let found = source.metadata(&task.source_path).await;
        found.map_err(EndError::on_source)
    };
    match context.with_retries(task.token(), look).await {
        Ok(now) => Ok(now.id.is_none() || now.id == task.link),
        Err(failed) => Err(failed.error),
    }
}

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    Now,
    /// It was there already.
    Before,
    /// Another file is there, and stays.
    Kept,
}

/// Flushes a copy that is about to get a name that users see.
async fn make_durable(context: &Context, copy: &RelPath) -> Result<(), Error> {
    if !context.wants_durable() || context.flushes_each() {
        return Ok(());
    }
    let file = context
        .target
        .open(copy, OpenOptions::read(CacheMode::Keep))
        .await?;
    let flushed = file.sync(false).await;
    if flushed.is_err() {
        note_loss(context);
    }
    flushed
}

async fn make(context: &Arc<Context>, task: &LinkTask, place: &Place) -> Result<Made, Error> {
    let tree = &context.target;
    let dir = task.folder.path();
    let path = dir.join(&task.name);
    let mut first = place.folder_path.join(&place.name);
    let copied = match tree.metadata(&first).await {
        Ok(metadata) => metadata,
        // Its folder has got its final name meanwhile.
        Err(error) if error.kind == ErrorKind::NotFound => {
            first = place.folder_shown.join(&place.name);
            tree.metadata(&first).await?
        }
        Err(error) => return Err(error),
    };
    let existing = if task.folder.inner().fresh {
        None
    } else {
        tree.metadata(&path).await.ok()
    };
    if let Some(existing) = &existing {
        if existing.id.is_some() && existing.id == copied.id {
            return Ok(Made::Before);
        }
        if existing.is_dir() && context.options.delete.is_none() {
            return Err(Error::new(ropeway_vfs::Op::Link, &path, ErrorKind::IsADirectory));
        }
        if context.options.ignore_existing && task.folder.placement() == Placement::Temporary {
            return Ok(Made::Kept);
        }
    }
    context.sync.touched();
    if existing.is_none() && task.folder.placement() == Placement::Direct {
        tree.make_hard_link(&first, &path).await?;
        return Ok(Made::Now);
    }
    let is_seen = task.folder.placement() == Placement::Temporary;
    if place.is_unseen && is_seen && copied.kind == Kind::File {
        make_durable(context, &first).await?;
    }
    file::keep_backup(context, task).await?;
    let temporary = dir.join(&context.temporary_of(task.token()));
    task.folder.marks(context);
    leftovers::before(context, &task.folder).await;
    if let Err(error) = tree.make_hard_link(&first, &temporary).await {
        if error.kind != ErrorKind::AlreadyExists {
            return Err(error);
        }
        crate::delete::clear(context, &temporary).await?;
        tree.make_hard_link(&first, &temporary).await?;
    }
    let named = async {
        let is_blocked = existing.as_ref().is_some_and(Metadata::is_dir);
        if is_blocked {
            delete::make_way(context, task.folder.root(), &path).await?;
        }
        let replaced = existing.as_ref().filter(|_| !is_blocked);
        rename(context, &temporary, &path, true, replaced).await
    };
    if let Err(error) = named.await {
        // Best effort: the failure itself is reported.
        let _ = tree.remove_file(&temporary).await;
        return Err(error);
    }
    // Where another run made the same link meanwhile, rename(2) does nothing and leaves both names.
    match tree.remove_file(&temporary).await {
        Err(error) if error.kind != ErrorKind::NotFound => Err(error),
        _ => Ok(Made::Now),
    }
}
