//! Proof that a folder is a child of the folder that lists it.
//!
//! Some SMB servers follow symbolic links themselves and list a link to a folder as that folder
//! (smbd does, by default). A walk that deletes would then leave the folder it was given:
//!
//! ```text
//! share/victim/l -> ../precious     the server lists  victim: l (a folder)
//!                                   and               victim/l: data, "." = precious, ".." = share
//! ```
//!
//! The entries `.` and `..` show the truth. They come with each listing, so the proof costs
//! nothing. They cannot show a link to a sibling folder; [`DuplicateFolders`] finds that one where
//! both names are listed.

use std::collections::HashSet;
use std::sync::Arc;

use crate::backlog::{Backlog, Held};
use crate::metadata::{FileId, Metadata, Timestamp};
use crate::tree::Tree;
use crate::{Error, ErrorKind, Op, RelPath, Result};

/// Entries read from a listing at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// Identities that a listing reports for its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The folder's own (`.`).
    pub own: Option<FileId>,
    /// The identity of the folder that holds it (`..`).
    pub parent: Option<FileId>,
}

/// Proves that a folder is a child of the folder `above`. `listed` is what the folder's listing
/// reported. Call this before removing anything in the folder.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`]: it is not a child, or the tree may follow links and did not report
/// where the folder is.
pub fn prove_child(
    tree: &dyn Tree,
    path: &RelPath,
    above: Option<FileId>,
    listed: Option<Origin>,
) -> Result<()> {
    let listed = listed.unwrap_or_default();
    // Some servers report the folder's own identity for both entries, which proves nothing.
    let parent = listed.parent.filter(|parent| Some(*parent) != listed.own);
    let sentence = match (above, parent) {
        (Some(above), Some(parent)) if above == parent => return Ok(()),
        (Some(_), Some(_)) => {
            "the server follows symbolic links, and this folder is elsewhere; nothing in it is removed"
        }
        _ if tree.capabilities().links_shown => return Ok(()),
        _ => {
            "the server may follow symbolic links, and does not report where this folder is; nothing in it is removed"
        }
    };
    let mut error = Error::new(Op::Remove, path, ErrorKind::SymbolicLink);
    error.source = Some(std::io::Error::other(sentence));
    Err(error)
}

/// Finds folders that one folder lists under two names: one of them is a link to the other.
#[derive(Debug, Default)]
pub struct DuplicateFolders {
    met: HashSet<FileId>,
    twice: HashSet<FileId>,
}

impl DuplicateFolders {
    /// Adds an entry of the listing.
    pub fn add(&mut self, metadata: &Metadata) {
        if let Some(id) = metadata.id.filter(|_| metadata.is_dir())
            && !self.met.insert(id)
        {
            self.twice.insert(id);
        }
    }

    /// Refuses a folder that was listed twice. Call this once the listing has ended.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolicLink`].
    pub fn check(&self, path: &RelPath, id: Option<FileId>) -> Result<()> {
        if id.is_none_or(|id| !self.twice.contains(&id)) {
            return Ok(());
        }
        let mut error = Error::new(Op::Remove, path, ErrorKind::SymbolicLink);
        error.source = Some(std::io::Error::other(
            "the server shows one folder under two names, one of which is a symbolic link; nothing in it is removed",
        ));
        Err(error)
    }
}

/// Returns the identity of the folder that holds `path`, for [`prove_child`]. `found` is the
/// metadata of the folder at `path`. Removal must concern the named folder and not the target of a
/// link. So where the tree may follow links, the folder must not be listed under a second name in
/// the same parent.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`] if it is listed twice. Or the parent cannot be listed.
pub async fn holder_of(tree: &dyn Tree, path: &RelPath, found: &Metadata) -> Result<Option<FileId>> {
    let Some(holder) = path.parent().filter(|_| !path.is_root()) else {
        return Ok(None);
    };
    if !tree.capabilities().links_shown {
        let mut twins = DuplicateFolders::default();
        let mut listing = tree.list(&holder).await?;
        loop {
            let entries = listing.next(ENTRIES_AT_ONCE).await?;
            if entries.is_empty() {
                break;
            }
            let listed = entries.iter().filter_map(|entry| entry.metadata.as_ref().ok());
            // Compare with this one folder only, however many entries there are.
            listed
                .filter(|listed| listed.id == found.id)
                .for_each(|listed| twins.add(listed));
        }
        twins.check(path, found.id)?;
    }
    Ok(tree.metadata(&holder).await?.id)
}

/// Deepest nesting that a walk of a server enters. A guess: paths made by people or programs are
/// never that deep, and a deeper one is made to be endless.
const DEPTH_MAX: usize = 2000;

/// The folders on the way of a walk, so that it enters none of them again: a server that follows a
/// link to a parent folder shows a tree without end. Trees of this machine do not follow links and
/// are not checked. Folders that wait to be entered take room in one [`Backlog`].
#[derive(Clone, Debug)]
pub struct Ancestry(Option<Arc<Ancestor>>);

#[derive(Debug)]
struct Ancestor {
    folder: Seen,
    depth: usize,
    above: Option<Arc<Ancestor>>,
    backlog: Backlog,
    _held: Held,
}

impl Ancestry {
    /// Starts with the folder at which the walk starts.
    pub fn begin(tree: &dyn Tree, top: &Metadata) -> Self {
        let ancestor = || Ancestor {
            folder: Seen::of(top),
            depth: 1,
            above: None,
            backlog: Backlog::of(tree),
            _held: Held::default(),
        };
        Self(tree.capabilities().remote.then(|| Arc::new(ancestor())))
    }

    /// Enters a folder listed in the last one.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolicLink`]: it is one of the folders on the way, or the tree is too deep.
    /// [`ErrorKind::PeerMisbehaved`]: too many folders wait already.
    pub fn enter(&self, path: &RelPath, folder: &Metadata) -> Result<Self> {
        let Some(last) = &self.0 else {
            return Ok(Self(None));
        };
        let mut at = Some(last);
        while let Some(ancestor) = at {
            ancestor.folder.check_apart(path, folder)?;
            at = ancestor.above.as_ref();
        }
        check_depth(last.depth, path)?;
        Ok(Self(Some(Arc::new(Ancestor {
            folder: Seen::of(folder),
            depth: last.depth + 1,
            above: Some(Arc::clone(last)),
            backlog: last.backlog.clone(),
            _held: last.backlog.hold(path)?,
        }))))
    }
}

/// What distinguishes one folder of a share from another.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: Option<FileId>,
    created: Option<Timestamp>,
    modified: Timestamp,
    changed: Option<Timestamp>,
}

impl Seen {
    fn of(folder: &Metadata) -> Self {
        Self {
            id: folder.id,
            created: folder.created,
            modified: folder.modified,
            changed: folder.changed,
        }
    }

    /// Equal ids are not enough: a server with several volumes in one share may number each
    /// separately. The creation time may change too: where the file system has none, Samba reports
    /// the earliest of the other times, and a listing changes the access time.
    fn is(&self, other: &Self) -> bool {
        let is_unchanged = self.modified == other.modified && self.changed == other.changed;
        self.id.is_some() && self.id == other.id && (self.created == other.created || is_unchanged)
    }

    fn check_apart(&self, path: &RelPath, folder: &Metadata) -> Result<()> {
        if !self.is(&Self::of(folder)) {
            return Ok(());
        }
        let mut error = Error::new(Op::List, path, ErrorKind::SymbolicLink);
        error.source = Some(std::io::Error::other(
            "the folder contains itself: the server follows a symbolic link to a parent folder; not entered",
        ));
        Err(error)
    }
}

/// Refuses a folder that is identical to `above`, the folder that contains it.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`].
pub fn check_apart(above: &Metadata, path: &RelPath, folder: &Metadata) -> Result<()> {
    Seen::of(above).check_apart(path, folder)
}

/// Refuses a folder that is nested too deeply.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`].
pub fn check_depth(depth: usize, path: &RelPath) -> Result<()> {
    if depth < DEPTH_MAX {
        return Ok(());
    }
    let mut error = Error::new(Op::List, path, ErrorKind::SymbolicLink);
    let sentence = format!("more than {DEPTH_MAX} nested folders; not entered");
    error.source = Some(std::io::Error::other(sentence));
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryTree};

    fn id(index: u64) -> Option<FileId> {
        Some(FileId { volume: 1, index })
    }

    #[test]
    fn a_folder_elsewhere_is_not_a_child() {
        let (tree, path) = (MemoryTree::new(), RelPath::root());
        let origin = |own, parent| {
            Some(Origin {
                own: id(own),
                parent: id(parent),
            })
        };
        assert!(prove_child(&tree, &path, id(2), origin(5, 2)).is_ok());
        let elsewhere = prove_child(&tree, &path, id(2), origin(5, 1)).unwrap_err();
        assert_eq!(elsewhere.kind, ErrorKind::SymbolicLink);
        // A link to the folder itself, and one to the folder above.
        assert!(prove_child(&tree, &path, id(2), origin(2, 1)).is_err());
        assert!(prove_child(&tree, &path, id(2), origin(1, 9)).is_err());
        // Missing identities prove nothing; this tree lists links as links.
        assert!(prove_child(&tree, &path, id(2), None).is_ok());
        assert!(prove_child(&tree, &path, id(2), origin(5, 5)).is_ok());
    }

    #[test]
    fn a_folder_is_recognised_after_one_of_its_times_changed() {
        let folder = |created, modified| Metadata {
            id: id(7),
            created: Some(Timestamp(created)),
            changed: Some(Timestamp(5)),
            ..Metadata::bare(Kind::Directory, 0, Timestamp(modified))
        };
        let check = |other: &Metadata| check_apart(&folder(1, 2), &RelPath::root(), other);
        assert!(check(&folder(1, 2)).is_err());
        assert!(check(&folder(1, 9)).is_err(), "written to meanwhile");
        assert!(check(&folder(9, 2)).is_err(), "read meanwhile");
        assert!(check(&folder(9, 9)).is_ok(), "of another volume");
        let unknown = Metadata {
            id: None,
            ..folder(1, 2)
        };
        assert!(check_apart(&unknown, &RelPath::root(), &unknown).is_ok());
    }

    #[test]
    fn a_folder_under_two_names_is_refused() {
        let folder = |index| Metadata {
            id: id(index),
            ..Metadata::bare(Kind::Directory, 0, Timestamp(0))
        };
        let mut twins = DuplicateFolders::default();
        for index in [1, 2, 3, 2] {
            twins.add(&folder(index));
        }
        assert!(twins.check(&RelPath::root(), id(1)).is_ok());
        assert!(twins.check(&RelPath::root(), id(2)).is_err());
    }
}
