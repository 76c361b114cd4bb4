//! Shares: folders with a name and settings.

use std::sync::Arc;

use ropeway_smb_wire::Text;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{FileTime, NtStatus};
use ropeway_vfs::store::{NodeOpen, Store};
use ropeway_vfs::{ErrorKind, FileId, Kind, RelPath};

use crate::files::short_name::NameView;
use crate::handle_journal::HandleJournal;
use crate::recycle_bin::RecycleBin;
use crate::snapshots::ShareSnapshots;

/// Marks the index of a share in the opens of its snapshots. There are fewer shares.
const OF_SNAPSHOT: u32 = 1 << 30;

/// Which symbolic links clients may create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Links {
    /// None.
    Refuse,
    /// Links that stay inside the share.
    Inside,
    /// All.
    #[default]
    Any,
}

/// One shared folder.
pub struct Share {
    /// Name that clients see.
    pub name: String,
    /// Description for users.
    pub comment: String,
    /// The folder.
    pub store: Arc<dyn Store>,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Only encrypted requests are accepted.
    pub encrypt: bool,
    /// Anonymous sessions may connect, if the server allows any.
    pub anonymous: bool,
    /// Names that begin with a dot are hidden unless their attributes were set.
    pub hide_dot_files: bool,
    /// Which symbolic links clients may create.
    pub links: Links,
    /// The store is another server's, over a line: calls may wait long, so threads of their own
    /// make them. That server decides what its user may do, keeps others out of locked ranges, and
    /// gives new files their descriptors.
    pub far: bool,
    /// Where deleted files are kept.
    pub recycle_bin: Option<Arc<RecycleBin>>,
    /// Earlier states that clients may look at.
    pub snapshots: Option<Arc<ShareSnapshots>>,
    /// Where persistent handles are kept. With it, the share is continuously available. All shares of
    /// a folder have the same. It is read when the server starts: a share that gets one later keeps no
    /// handles that are there from before.
    pub journal: Option<Arc<HandleJournal>>,
}

impl Share {
    /// Calls `act` with the node that is expected at `path`. If that node is gone from there and
    /// the name is a link to it, calls `act` with the link: a client that opened the node through a
    /// link means the link's name.
    pub(crate) fn by_name<T>(
        &self,
        id: FileId,
        path: &RelPath,
        act: impl Fn(FileId) -> ropeway_vfs::Result<T>,
    ) -> ropeway_vfs::Result<T> {
        match act(id) {
            Err(error) if error.kind == ErrorKind::Gone => match self.link_to(id, path) {
                Some(link) => act(link),
                None => Err(error),
            },
            outcome => outcome,
        }
    }

    /// Returns the link at `path`, if it leads to node `id`.
    fn link_to(&self, id: FileId, path: &RelPath) -> Option<FileId> {
        let itself = NodeOpen {
            link_itself: true,
            ..NodeOpen::default()
        };
        let link = self.store.open(path, &itself).ok()?.stat;
        let target = self.store.open(path, &NodeOpen::default()).ok()?.stat;
        (link.kind == Kind::Symlink && target.id == id).then_some(link.id)
    }

    /// Creates a share with default settings.
    pub fn new(name: &str, store: Arc<dyn Store>) -> Self {
        Self {
            name: name.to_owned(),
            comment: String::new(),
            store,
            read_only: false,
            encrypt: false,
            anonymous: false,
            hide_dot_files: true,
            links: Links::default(),
            far: false,
            recycle_bin: None,
            snapshots: None,
            journal: None,
        }
    }

    /// Returns the share as it was at a time, and the index by which its opens are known: nothing that happens
    /// to the share of now concerns them.
    ///
    /// # Errors
    /// `STATUS_OBJECT_NAME_NOT_FOUND` if there is no snapshot of that time.
    pub(crate) fn at(
        self: &Arc<Self>,
        index: u32,
        time: Option<FileTime>,
    ) -> Result<(Arc<Self>, u32), NtStatus> {
        match (time, &self.snapshots) {
            (None, _) => Ok((Arc::clone(self), index)),
            (Some(time), Some(snapshots)) => Ok((snapshots.at(self, time)?, index | OF_SNAPSHOT)),
            (Some(_), None) => Err(NtStatus::OBJECT_NAME_NOT_FOUND),
        }
    }

    /// Returns which names clients see.
    pub(crate) fn name_view(&self) -> NameView {
        NameView {
            hide_dot_files: self.hide_dot_files,
            short_names: true,
        }
    }

    /// Whether a client means this share by `name`; case does not matter.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        upcase::equal(&Text::from(self.name.as_str()), &Text::from(name))
    }

    /// Returns the maximum rights that any user has here.
    pub(crate) fn access(&self) -> AccessMask {
        /// FILE_GENERIC_READ and FILE_GENERIC_EXECUTE ([MS-SMB2] 2.2.13.1.1).
        const READ: AccessMask = AccessMask::from_bits_retain(0x0012_00A9);
        if self.read_only || self.store.features().read_only {
            READ
        } else {
            AccessMask::FILE_ALL
        }
    }
}
