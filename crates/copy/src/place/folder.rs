//! A folder of the target while a job fills it.
//!
//! Each task that still works inside a folder holds an `Arc<Folder>`. When the last one is dropped,
//! the folder is sent to the finisher (`name::finish`). A folder holds its parent. So folders
//! finish from the leaves up, and only those being filled are in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropeway_plan::Visibility;
use ropeway_vfs::{Error, Metadata, Name, RelPath, descent};
use tokio::sync::{mpsc, oneshot};

use crate::job::root::JobRoot;
use crate::place::early_xattrs::EarlyXattrs;

/// A folder of the target while it is filled.
pub(crate) struct Folder {
    inner: Option<FolderInner>,
    finisher: mpsc::UnboundedSender<FolderInner>,
    /// Whether the journal knows that there are temporary names in it.
    is_marked: AtomicBool,
}

/// The part of a folder that outlives its last holder.
pub(crate) struct FolderInner {
    pub(crate) root: Arc<JobRoot>,
    pub(crate) source_path: RelPath,
    /// Its present path on the target, perhaps inside a temporary folder.
    pub(crate) path: RelPath,
    /// Its final path, for messages.
    pub(crate) shown: RelPath,
    /// Its temporary and its final name, if this job made it outside of any temporary folder.
    pub(crate) staging: Option<(Name, Name)>,
    pub(crate) visibility: Visibility,
    /// Whether it surely is empty, so that no lookups are needed.
    pub(crate) fresh: bool,
    /// Attributes of the source, to be set at the end. `None` for a folder that does not belong to
    /// the copy.
    pub(crate) metadata: Option<Metadata>,
    /// Extended attributes of the source, requested when the folder was begun.
    pub(crate) xattrs: Option<EarlyXattrs>,
    /// Attributes of an existing target folder.
    pub(crate) existing: Option<Metadata>,
    /// Whether the existing folder looked equal to the source's when it was entered.
    pub(crate) looked_equal: bool,
    /// Whether this run changes anything in it, and so its times.
    pub(crate) is_changed: AtomicBool,
    /// Whether it holds an incomplete file that could not be removed. Then it must not get its
    /// final name.
    pub(crate) is_doubtful: AtomicBool,
    pub(crate) parent: Option<Arc<Folder>>,
    /// Signalled when this folder is finished.
    pub(crate) done: Option<oneshot::Sender<()>>,
}

impl FolderInner {
    /// Returns a folder that exists and was not made by this job, without attributes to set.
    pub(crate) fn existing(
        root: &Arc<JobRoot>,
        source_path: RelPath,
        path: RelPath,
        done: oneshot::Sender<()>,
    ) -> Self {
        Self {
            root: Arc::clone(root),
            source_path,
            shown: path.clone(),
            path,
            staging: None,
            visibility: Visibility::Visible,
            fresh: false,
            metadata: None,
            xattrs: None,
            existing: None,
            looked_equal: false,
            is_changed: false.into(),
            is_doubtful: false.into(),
            parent: None,
            done: Some(done),
        }
    }

    /// Whether the folder is as it was when it was entered, and then looked equal: its attributes need
    /// not be set.
    pub(crate) fn is_still_equal(&self) -> bool {
        self.looked_equal && !self.is_changed.load(Ordering::Acquire)
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

    /// Returns the present path on the target.
    pub(crate) fn path(&self) -> RelPath {
        self.inner().path.clone()
    }

    /// Returns the final path of a node of this folder, for messages.
    pub(crate) fn shown(&self, name: &Name) -> RelPath {
        self.inner().shown.join(name)
    }

    /// Checks that a folder of the source, listed in this one, is none of those above.
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

    pub(crate) fn visibility(&self) -> Visibility {
        self.inner().visibility
    }

    pub(crate) fn root(&self) -> &Arc<JobRoot> {
        &self.inner().root
    }

    /// Whether the journal must learn now that there are temporary names in this folder. `true`
    /// once.
    pub(crate) fn begins_to_have_temporaries(&self) -> bool {
        self.visibility() == Visibility::Visible && !self.is_marked.swap(true, Ordering::AcqRel)
    }

    /// Notes that a failure left something in this folder that could not be removed. The folder, or
    /// the one above that has a temporary name, keeps that name.
    pub(crate) fn doubt(&self) {
        self.inner().is_doubtful.store(true, Ordering::Release);
    }

    /// Notes that this run changes something in this folder: call it before.
    pub(crate) fn note_change(&self) {
        self.inner().is_changed.store(true, Ordering::Release);
        self.root().is_changed.store(true, Ordering::Release);
    }

    /// Notes that this run may change something in this folder or in one above it.
    pub(crate) fn note_change_above(&self) {
        self.root().is_changed.store(true, Ordering::Release);
        let mut at = Some(self.inner());
        while let Some(inner) = at {
            inner.is_changed.store(true, Ordering::Release);
            at = inner.parent.as_ref().map(|parent| parent.inner());
        }
    }

    /// Whether the folder is hidden and an earlier run left something in it.
    pub(crate) fn is_left_over(&self) -> bool {
        self.visibility() == Visibility::Hidden && !self.inner().fresh
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            // This fails only when the job is over and nobody finishes folders any more.
            let _ = self.finisher.send(inner);
        }
    }
}
