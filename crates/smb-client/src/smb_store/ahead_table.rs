//! The files that are read ahead of their opens, by path (`files_ahead`).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_block::Block;
use ropeway_vfs::{FileId, RelPath};
use tokio::task::JoinHandle;

use crate::smb_tree::SmbFile;

/// The files read ahead.
#[derive(Default)]
pub(super) struct FilesAhead(pub(super) Mutex<Table>);

#[derive(Default)]
pub(super) struct Table {
    pub(super) files: HashMap<RelPath, Entry>,
    /// Number of the last entry.
    pub(super) last: u64,
    /// Whether a task looks after them.
    pub(super) is_watched: bool,
    /// No files are read ahead until then.
    pub(super) paused_until: Duration,
}

pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) id: FileId,
    pub(super) bytes: u64,
    pub(super) at: Duration,
    pub(super) opening: Opening,
}

/// `None` if the file could not be opened with a lease.
pub(super) type Opening = JoinHandle<Option<Head>>;

/// An open file and its beginning.
pub(super) struct Head {
    pub(super) file: Arc<SmbFile>,
    /// Epoch of the lease under which everything was read.
    pub(super) epoch: u64,
    pub(super) pieces: Vec<Piece>,
}

pub(super) struct Piece {
    pub(super) range: Range<u64>,
    /// `None` if the READ failed.
    pub(super) data: JoinHandle<Option<Block>>,
}

impl FilesAhead {
    /// Takes out the file at a path that has this id.
    pub(super) fn take(&self, path: &RelPath, id: FileId) -> Option<Opening> {
        let mut table = self.0.lock();
        let is_it = table.files.get(path).is_some_and(|entry| entry.id == id);
        let entry = is_it.then(|| table.files.remove(path))??;
        Some(entry.opening)
    }

    /// Takes out what must go.
    pub(super) fn end(&self, is_ended: impl Fn(&RelPath, &Entry) -> bool) -> Vec<Opening> {
        let mut table = self.0.lock();
        if table.files.is_empty() {
            return Vec::new();
        }
        let ended = table.files.extract_if(|path, entry| is_ended(path, entry));
        ended.map(|(_, entry)| entry.opening).collect()
    }

    /// Takes out what is at a path and beneath it.
    pub(super) fn end_below(&self, top: &RelPath) -> Vec<Opening> {
        self.end(|path, _| path.strip_prefix(top).is_some())
    }

    /// Whether the file at a path is being read ahead.
    pub(super) fn has(&self, path: &RelPath) -> bool {
        self.0.lock().files.contains_key(path)
    }
}

/// Closes a file. What is on its way for it is waited for: the server sees the CLOSE after it.
pub(super) async fn close(opening: Opening) {
    // A task that panicked has nothing open.
    let Ok(Some(head)) = opening.await else { return };
    for piece in head.pieces {
        let _ = piece.data.await;
    }
    drop(head.file);
}
