//! Whether a folder is a child of the one that lists it.
//!
//! Some SMB servers follow symbolic links by themselves and show a link to a folder as that folder (smbd, by default). A
//! walk that deletes would leave the folder it was given:
//!
//! ```text
//! share/victim/l -> ../precious        the server lists  victim: l (a folder)
//!                                      and               victim/l: data, "." = precious, ".." = share
//! ```
//! The entries `.` and `..` tell the truth: they come with each listing, so the proof costs nothing. What they cannot show
//! is a link to a folder beside it ([`Twins`] sees that one, where both names are listed).

use std::collections::HashSet;
use std::sync::Arc;

use crate::backlog::{Backlog, Held};
use crate::metadata::{FileId, Metadata, Timestamp};
use crate::tree::Tree;
use crate::{Error, ErrorKind, Op, RelPath, Result};

/// Entries taken from a listing at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// Identities that a listing gave of its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The folder's own (`.`).
    pub own: Option<FileId>,
    /// That of the folder that holds it (`..`).
    pub parent: Option<FileId>,
}

/// Proves that a folder, of which `listed` was told, is a child of the folder `above`. To be asked before anything in it is
/// removed.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`]: it is not, or the tree may follow links and did not tell.
pub fn prove_child(
    tree: &dyn Tree,
    path: &RelPath,
    above: Option<FileId>,
    listed: Option<Origin>,
) -> Result<()> {
    let listed = listed.unwrap_or_default();
    // Some servers give both entries the identity of the folder itself, which says nothing.
    let parent = listed.parent.filter(|parent| Some(*parent) != listed.own);
    let sentence = match (above, parent) {
        (Some(above), Some(parent)) if above == parent => return Ok(()),
        (Some(_), Some(_)) => {
            "the server follows symbolic links, and this folder lies elsewhere; nothing in it is removed"
        }
        _ if tree.capabilities().links_shown => return Ok(()),
        _ => {
            "the server may follow symbolic links, and does not tell where this folder lies; nothing in it is removed"
        }
    };
    let mut error = Error::new(Op::Remove, path, ErrorKind::SymbolicLink);
    error.source = Some(std::io::Error::other(sentence));
    Err(error)
}

/// Folders that one folder lists under two names: one is a link to the other.
#[derive(Debug, Default)]
pub struct Twins {
    met: HashSet<FileId>,
    twice: HashSet<FileId>,
}

impl Twins {
    /// Notes an entry of the listing.
    pub fn add(&mut self, metadata: &Metadata) {
        if let Some(id) = metadata.id.filter(|_| metadata.is_dir())
            && !self.met.insert(id)
        {
            self.twice.insert(id);
        }
    }

    /// Refuses a folder that was listed twice. To be asked once the listing has ended.
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

/// The identity of the folder that holds `path`, which is the folder `found`, for [`prove_child`]. What is named goes, and not
/// what it leads to: where the tree may follow links, the folder must not be listed under another name beside it.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`]: it is. Or the holder cannot be listed.
pub async fn holder_of(tree: &dyn Tree, path: &RelPath, found: &Metadata) -> Result<Option<FileId>> {
    let Some(holder) = path.parent().filter(|_| !path.is_root()) else {
        return Ok(None);
    };
    if !tree.capabilities().links_shown {
        let mut twins = Twins::default();
        let mut listing = tree.list(&holder).await?;
        loop {
            let entries = listing.next(ENTRIES_AT_ONCE).await?;
            if entries.is_empty() {
                break;
            }
            let listed = entries.iter().filter_map(|entry| entry.metadata.as_ref().ok());
            // Only the one folder matters, however many there are.
            listed
                .filter(|listed| listed.id == found.id)
                .for_each(|listed| twins.add(listed));
        }
        twins.check(path, found.id)?;
    }
    Ok(tree.metadata(&holder).await?.id)
}

/// Folders inside one another that a walk of a server goes down. A guess: no path that people or programs make has as many
/// names, and what has is made to be endless.
const DEPTH_MAX: usize = 2000;

/// The folders that a walk came through, so that it goes into none of them again: a server that follows a link to a folder
/// above shows a tree without end. Trees of this machine do not follow links, and are not asked. Those that wait take room of
/// one [`Backlog`].
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
    /// Begins with the folder that the walk begins with.
    pub fn begin(tree: &dyn Tree, top: &Metadata) -> Self {
        let ancestor = || Ancestor {
            folder: Seen::of(top),
            depth: 1,
            above: None,
            backlog: Backlog::of(tree),
            _held: Held::default(),
        };
        Self(tree.capabilities().is_remote().then(|| Arc::new(ancestor())))
    }

    /// Goes on to a folder that is listed in the last one.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolicLink`]: it is one of those that the walk came through, or the tree is too deep.
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

/// What tells one folder of a share from another.
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

    /// Equal numbers are not enough: servers with several volumes in one share may number each by itself. Nor need the time
    /// of creation stay: where the file system has none, Samba answers with the earliest of the other times, and a listing
    /// changes the time of access.
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
            "the folder lies inside itself: the server follows a symbolic link to a folder above; not entered",
        ));
        Err(error)
    }
}

/// Refuses a folder that is the same as `above`, which it lies in.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`].
pub fn check_apart(above: &Metadata, path: &RelPath, folder: &Metadata) -> Result<()> {
    Seen::of(above).check_apart(path, folder)
}

/// Refuses a folder that has too many above it.
///
/// # Errors
/// [`ErrorKind::SymbolicLink`].
pub fn check_depth(depth: usize, path: &RelPath) -> Result<()> {
    if depth < DEPTH_MAX {
        return Ok(());
    }
    let mut error = Error::new(Op::List, path, ErrorKind::SymbolicLink);
    let sentence = format!("{DEPTH_MAX} folders lie inside one another; not entered");
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
    fn a_folder_elsewhere_is_no_child() {
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
        // What is not told proves nothing; this tree shows links.
        assert!(prove_child(&tree, &path, id(2), None).is_ok());
        assert!(prove_child(&tree, &path, id(2), origin(5, 5)).is_ok());
    }

    #[test]
    fn a_folder_is_known_again_when_one_of_its_times_changed() {
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
    fn a_folder_under_two_names_is_seen() {
        let folder = |index| Metadata {
            id: id(index),
            ..Metadata::bare(Kind::Directory, 0, Timestamp(0))
        };
        let mut twins = Twins::default();
        for index in [1, 2, 3, 2] {
            twins.add(&folder(index));
        }
        assert!(twins.check(&RelPath::root(), id(1)).is_ok());
        assert!(twins.check(&RelPath::root(), id(2)).is_err());
    }
}
