//! Target folders that are being filled, and what happens when one is full.
//!
//! Everything that still has to happen inside a folder holds an `Arc<Folder>`; the last one to let go sends the
//! folder to the finisher, which sets its attributes (times last, so that nothing below changes them any more),
//! names it if it was filled under a temporary name, and lets go of the parent. So folders finish from the leaves
//! up, and only those being filled are in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_plan::Temporary;
use ropeway_vfs::{
    End, EndError, Error, ErrorKind, Loss, Metadata, MetadataChange, Name, Op, RelPath, Verdict, Xattr,
    descent,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::context::{Context, RootContext, token_of};
use crate::delete;
use crate::durable::PendingRename;
use crate::naming::rename_retried;

/// How new files get into a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Under their final names: nobody sees this folder yet, it lies inside a temporary one.
    Direct,
    /// Under temporary names, renamed when complete.
    Temporary,
}

/// A folder of the target while it is filled.
pub(crate) struct Folder {
    inner: Option<FolderInner>,
    finisher: mpsc::UnboundedSender<FolderInner>,
    /// The journal knows that there are temporary names in it.
    is_marked: AtomicBool,
}

/// The parts of a folder that outlive its last holder.
pub(crate) struct FolderInner {
    pub(crate) root: Arc<RootContext>,
    pub(crate) source_path: RelPath,
    /// Where it is now on the target (inside a temporary folder, perhaps).
    pub(crate) path: RelPath,
    /// Where it will be in the end: for messages.
    pub(crate) shown: RelPath,
    /// The temporary and the final name, when it was made by this job outside any temporary folder.
    pub(crate) staging: Option<(Name, Name)>,
    pub(crate) placement: Placement,
    /// Known to hold nothing: no lookups are needed.
    pub(crate) fresh: bool,
    /// The source's attributes, to be set at the end; `None` for a folder that is not ours to change.
    pub(crate) metadata: Option<Metadata>,
    /// The source's extended attributes, asked for when the folder was begun.
    pub(crate) xattrs: Option<Early>,
    /// Attributes of an existing target folder.
    pub(crate) existing: Option<Metadata>,
    /// Holds what is no whole version of a file and cannot be removed: it must not get its final name.
    pub(crate) is_doubtful: AtomicBool,
    pub(crate) parent: Option<Arc<Folder>>,
    /// Signalled when this folder is finished.
    pub(crate) done: Option<oneshot::Sender<()>>,
}

/// What was asked for ahead of its time, so that nobody waits for the answer at the end.
pub(crate) struct Early(JoinHandle<Result<Vec<Xattr>, Error>>);

impl Early {
    /// Asks a source that is far away for a folder's extended attributes; `None` where they are not wanted or at hand.
    pub(crate) fn ask(
        context: &Arc<Context>,
        root: &Arc<RootContext>,
        path: &RelPath,
        metadata: &Metadata,
    ) -> Option<Self> {
        let source = &root.root.source;
        let is_worth_it = source.capabilities().remote && !context.options.dry_run;
        if !is_worth_it || !context.wants_xattrs(&**source, metadata) {
            return None;
        }
        let (source, path) = (Arc::clone(source), path.clone());
        Some(Self(tokio::spawn(async move { source.xattrs(&path).await })))
    }

    /// The answer; `None` if there is none worth having, and the question is still open.
    async fn answer(mut self) -> Option<Vec<Xattr>> {
        (&mut self.0).await.ok()?.ok()
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Folder {
    pub(crate) fn new(inner: FolderInner, finisher: &mpsc::UnboundedSender<FolderInner>) -> Arc<Self> {
        Arc::new(Self {
            inner: Some(inner),
            finisher: finisher.clone(),
            is_marked: AtomicBool::new(false),
        })
    }

    pub(crate) fn inner(&self) -> &FolderInner {
        self.inner.as_ref().expect("taken only by drop")
    }

    /// Where the folder is now on the target.
    pub(crate) fn path(&self) -> RelPath {
        self.inner().path.clone()
    }

    /// Where a node of this folder will be in the end: for messages.
    pub(crate) fn shown(&self, name: &Name) -> RelPath {
        self.inner().shown.join(name)
    }

    /// Whether a folder of the source, listed in this one, is none of those above.
    ///
    /// # Errors
    /// It is one, or the tree is too deep.
    pub(crate) fn check_above(&self, path: &RelPath, folder: &Metadata) -> Result<(), Error> {
        let (mut at, mut depth) = (Some(self.inner()), 1);
        while let Some(inner) = at {
            if let Some(above) = &inner.metadata {
                descent::check_apart(above, path, folder)?;
            }
            depth += 1;
            at = inner.parent.as_ref().map(|parent| parent.inner());
        }
        descent::check_depth(depth, path)
    }

    pub(crate) fn placement(&self) -> Placement {
        self.inner().placement
    }

    pub(crate) fn root(&self) -> &Arc<RootContext> {
        &self.inner().root
    }

    /// Tells the journal, before the first one is made, that there are temporary names in this folder.
    pub(crate) fn marks(&self, context: &Context) {
        if self.placement() == Placement::Direct || self.is_marked.swap(true, Ordering::AcqRel) {
            return;
        }
        let journal = context.journal.as_ref();
        context.journalled(journal.map(|journal| journal.place(&self.inner().path)));
    }

    /// What a failure left in this folder could not be removed: it keeps its temporary name, or that of the folder
    /// above which has one.
    pub(crate) fn doubt(&self) {
        self.inner().is_doubtful.store(true, Ordering::Release);
    }

    /// Nobody has seen this folder yet, and an earlier run has left something in it.
    pub(crate) fn is_left_over(&self) -> bool {
        self.placement() == Placement::Direct && !self.inner().fresh
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            // Fails only when the job is over and nobody finishes folders any more.
            let _ = self.finisher.send(inner);
        }
    }
}

/// Finishes folders as they are let go, until every sender is gone. The channel is unbounded, but holds at most the
/// folders that are being filled.
pub(crate) async fn run_finisher(context: Arc<Context>, mut folders: mpsc::UnboundedReceiver<FolderInner>) {
    let at_once = if context.is_crossing() {
        FINISHED_AT_ONCE
    } else {
        1
    };
    let mut running = JoinSet::new();
    while let Some(folder) = folders.recv().await {
        while running.len() >= at_once {
            running.join_next().await;
        }
        let context = Arc::clone(&context);
        running.spawn(async move { finish(&context, folder).await });
    }
    while running.join_next().await.is_some() {}
}

/// Folders finished at once where each takes two round trips. Their order is kept by who holds whom, not by turns.
const FINISHED_AT_ONCE: usize = 64;

async fn finish(context: &Arc<Context>, mut folder: FolderInner) {
    if !context.stopped() && !context.options.dry_run {
        let change = change_of(context, &mut folder).await;
        let was_staged = folder.staging.is_some();
        let staging = named_in(context, &mut folder);
        if was_staged && staging.is_none() {
            let mut error = Error::new(Op::Rename, &folder.shown, ErrorKind::NotEmpty);
            let why = "it keeps its temporary name, since what a failure left in it cannot be removed; run the same command again";
            error.source = Some(std::io::Error::other(why));
            context.fail(&folder.shown, error, End::Target).await;
        }
        match (change, staging) {
            (Some(change), Some(((_, to), parent))) if !context.postpones() => {
                finish_named(context, &folder, &change, (&parent, &to)).await;
            }
            (change, staging) => {
                if let Some(change) = change {
                    let set = set_attributes(context, &folder.path, &change).await;
                    has_attributes(context, &folder.shown, set).await;
                }
                if let Some(((from, to), parent)) = staging {
                    name(context, &parent, from, to).await;
                }
            }
        }
    }
    context.live.directories.fetch_add(1, Ordering::Relaxed);
    drop(folder.parent.take());
    if let Some(done) = folder.done.take() {
        let _ = done.send(());
    }
}

/// The names that a folder made under a temporary one has, and the folder they are in. None for a doubtful one, which
/// waits for the next run.
fn named_in(context: &Context, folder: &mut FolderInner) -> Option<((Name, Name), Arc<Folder>)> {
    let staging = folder.staging.take().zip(folder.parent.clone());
    if !folder.is_doubtful.load(Ordering::Acquire) {
        return staging;
    }
    match (&staging, &folder.parent) {
        (Some(_), _) => {
            context.temporaries.must_stay();
        }
        (None, Some(parent)) => parent.doubt(),
        (None, None) => {}
    }
    None
}

/// The attributes that a folder gets from its source.
async fn change_of(context: &Context, folder: &mut FolderInner) -> Option<MetadataChange> {
    let metadata = folder.metadata.take()?;
    let early = match folder.xattrs.take() {
        Some(early) => early.answer().await,
        None => None,
    };
    let xattrs = if early.is_some() {
        early
    } else if context.wants_xattrs(&*folder.root.root.source, &metadata) {
        match folder.root.root.source.xattrs(&folder.source_path).await {
            Ok(xattrs) => Some(xattrs),
            Err(error) => {
                context.fail(&folder.shown, error, End::Source).await;
                None
            }
        }
    } else {
        None
    };
    // Servers give a new folder none; asking them would be a round trip.
    let is_new = folder.existing.is_none() && context.target.capabilities().remote;
    let xattrs = xattrs.filter(|xattrs| !is_new || !xattrs.is_empty());
    let mut change = context.change_of(&metadata, xattrs);
    if change.mode.is_none() && folder.existing.is_none() && context.target.capabilities().modes {
        change.mode = Some(0o755);
    }
    Some(change)
}

/// Sets a folder's attributes, again after what may pass.
async fn set_attributes(
    context: &Context,
    path: &RelPath,
    change: &MetadataChange,
) -> Result<Vec<Loss>, Error> {
    let attempt = || async {
        let set = context.target.set_metadata(path, change).await;
        set.map_err(EndError::on_target)
    };
    let set = context.with_retries(token_of(0, path), attempt).await;
    set.map_err(|failed| failed.error)
}

/// Counts what setting a folder's attributes came to.
async fn has_attributes(context: &Context, shown: &RelPath, set: Result<Vec<Loss>, Error>) {
    match set {
        Ok(losses) => context.lose(&losses),
        Err(error) => context.fail(shown, error, End::Target).await,
    }
    context.sync.touched();
}

/// Attributes and final name together.
async fn finish_named(
    context: &Arc<Context>,
    folder: &FolderInner,
    change: &MetadataChange,
    (parent, to): (&Folder, &Name),
) {
    let path = parent.path().join(to);
    let (set, named) = context.target.finish_dir(&folder.path, change, &path).await;
    let may_pass = |error: &Error| error.verdict() == Verdict::Retry;
    let named = match named {
        Err(error) if may_pass(&error) || error.kind == ErrorKind::AlreadyExists => {
            name_folder(context, &folder.root, &folder.path, &path).await
        }
        named => named,
    };
    let set = match set {
        Err(error) if may_pass(&error) && named.is_ok() => set_attributes(context, &path, change).await,
        set => set,
    };
    has_attributes(context, &folder.shown, set).await;
    match (named, folder.path.file_name()) {
        (Ok(()), Some(from)) => has_name(context, &from),
        (Ok(()), None) => {}
        (Err(error), _) => context.fail(&parent.shown(to), error, End::Target).await,
    }
}

/// Tells the journal that a folder is no longer called `from`, its temporary name.
pub(crate) fn has_name(context: &Context, from: &Name) {
    if let (Some(journal), Some(Temporary::Node { token, .. })) = (&context.journal, Temporary::parse(from))
        && context.own_user().is_some()
    {
        context.journalled(Some(journal.closed(token)));
    }
}

/// Gives a filled folder its final name: behind the next checkpoint when durability is wanted.
async fn name(context: &Arc<Context>, parent: &Arc<Folder>, from: Name, to: Name) {
    let shown = parent.shown(&to);
    let rename = PendingRename {
        folder: Arc::clone(parent),
        from,
        to,
        replace: false,
        token: None,
        size: 0,
        shown,
    };
    if context.postpones() {
        context.sync.postpone(rename);
        return;
    }
    let dir = parent.path();
    let (from, to) = (dir.join(&rename.from), dir.join(&rename.to));
    match name_folder(context, parent.root(), &from, &to).await {
        Ok(()) => has_name(context, &rename.from),
        Err(error) => context.fail(&rename.shown, error, End::Target).await,
    }
}

/// Gives a filled folder its final name. A mirror removes what is no folder there, now that the new one is complete.
///
/// # Errors
/// It could not be renamed; something else may stand there.
pub(crate) async fn name_folder(
    context: &Arc<Context>,
    root: &Arc<RootContext>,
    from: &RelPath,
    to: &RelPath,
) -> Result<(), Error> {
    match rename_retried(context, from, to, false).await {
        Err(error) if error.kind == ErrorKind::AlreadyExists && context.options.delete.is_some() => {
            if context
                .target
                .metadata(to)
                .await
                .is_ok_and(|found| found.is_dir())
            {
                return Err(error);
            }
            delete::make_way(context, root, to).await?;
            rename_retried(context, from, to, false).await
        }
        named => named,
    }
}
