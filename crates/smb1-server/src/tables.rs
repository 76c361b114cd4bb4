//! What the numbers of a client stand for.

use std::collections::VecDeque;

use ropeway_smb_wire::info::DirectoryRecord;
use ropeway_smb_wire::{FileId, Text};
use ropeway_smb1::server::Ids;

use crate::line::Place;

/// Maximum number of trees of a client. A guess: a desktop connects to a handful.
const TREES_MAX: usize = 256;
/// Maximum number of open files of a client. The server bounds those of all clients.
const FILES_MAX: usize = 16_384;
/// Maximum number of searches of a client. A guess: Samba's is higher, clients have a few.
const SEARCHES_MAX: usize = 256;

/// A tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) uid: u16,
    pub(crate) place: Place,
    pub(crate) is_ipc: bool,
}

/// An open file or pipe.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) uid: u16,
    pub(crate) tid: u16,
    pub(crate) place: Place,
    pub(crate) id: FileId,
    pub(crate) is_pipe: bool,
    /// Path in the share, without a separator in front.
    pub(crate) path: Text,
    /// First byte of the lock that was refused last.
    pub(crate) refused_lock: Option<u64>,
}

/// A search.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) uid: u16,
    pub(crate) tid: u16,
    pub(crate) place: Place,
    /// The open folder.
    pub(crate) folder: FileId,
    pub(crate) pattern: Text,
    /// Attributes of entries that are shown besides ordinary files.
    pub(crate) attributes: u16,
    /// Entries that were listed and not sent.
    pub(crate) listed: VecDeque<DirectoryRecord>,
    /// Whether the folder has no more.
    pub(crate) is_at_end: bool,
    /// The entry that was sent last.
    pub(crate) last: Text,
}

/// All tables.
pub(crate) struct Tables {
    pub(crate) trees: Ids<Tree>,
    pub(crate) files: Ids<File>,
    pub(crate) searches: Ids<Search>,
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self {
            trees: Ids::new(TREES_MAX),
            files: Ids::new(FILES_MAX),
            searches: Ids::new(SEARCHES_MAX),
        }
    }

    /// Forgets what belongs to a session, or to one tree of it. The server has closed it.
    pub(crate) fn forget(&mut self, uid: u16, tid: Option<u16>) {
        let is_of = |of: (u16, u16)| of.0 == uid && tid.is_none_or(|tid| of.1 == tid);
        self.files.take_if(|file| is_of((file.uid, file.tid)));
        self.searches.take_if(|search| is_of((search.uid, search.tid)));
        match tid {
            Some(tid) => _ = self.trees.remove(tid),
            None => _ = self.trees.take_if(|tree| tree.uid == uid),
        }
    }
}
