//! The steps of the copying walk that are still to be made.

use std::sync::Arc;

use ropeway_vfs::{Error, Held, Metadata, Name, RelPath};

use crate::place::folder::Folder;

/// A folder still to visit.
pub(super) struct Visit {
    pub(super) parent: Arc<Folder>,
    pub(super) source_path: RelPath,
    pub(super) name: Name,
    pub(super) metadata: Metadata,
    pub(super) existing: Option<Metadata>,
    /// Whether what exists is a folder with the attributes of the source's.
    pub(super) looked_equal: bool,
    pub(super) _held: Held,
}

/// A step of the walk.
pub(super) enum WalkStep {
    /// A folder to make or find on the target, and then to fill.
    Enter(Box<Visit>),
    /// A folder that was entered early.
    Fill(Entered),
}

/// A folder of the target, or the reason why there is none.
pub(super) struct Entered {
    pub(super) parent: Arc<Folder>,
    /// Its final name.
    pub(super) name: Name,
    pub(super) folder: Result<Arc<Folder>, Error>,
}

impl WalkStep {
    /// Returns the folder of the source.
    pub(super) fn source_path(&self) -> Option<RelPath> {
        match self {
            Self::Enter(visit) => Some(visit.source_path.clone()),
            Self::Fill(entered) => Some(entered.folder.as_ref().ok()?.inner().source_path.clone()),
        }
    }

    /// Returns the folder of the target, if it existed before this run.
    pub(super) fn standing_path(&self) -> Option<RelPath> {
        match self {
            Self::Enter(visit) => {
                let existing = visit.existing.as_ref()?;
                existing.is_dir().then(|| visit.parent.path().join(&visit.name))
            }
            Self::Fill(entered) => {
                let folder = entered.folder.as_ref().ok()?;
                folder.inner().existing.is_some().then(|| folder.path())
            }
        }
    }
}
