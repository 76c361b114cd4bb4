//! The files that are read ahead of their opens, by path (`files_ahead`).

use std::collections::{HashMap, HashSet};
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
    /// When a program took one.
    pub(super) taken_at: Duration,
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
    pub(super) fn take(&self, path: &RelPath, id: FileId, now: Duration) -> Option<Opening> {
        let mut table = self.0.lock();
        let is_it = table.files.get(path).is_some_and(|entry| entry.id == id);
        let entry = is_it.then(|| table.files.remove(path))??;
        table.taken_at = now;
        Some(entry.opening)
    }

    /// Takes out what must go.
    pub(super) fn end(&self, mut is_ended: impl FnMut(&RelPath, &Entry) -> bool) -> Vec<Opening> {
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

    /// Takes out the files that were there before `old`, if none was taken since. Returns the
    /// folders
    /// of those that could have been used, too.
    pub(super) fn end_unused(&self, old: Duration) -> (HashSet<RelPath>, Vec<Opening>) {
        if self.0.lock().taken_at > old {
            return Default::default();
        }
        let mut dirs = HashSet::new();
        let ended = self.end(|path, entry| {
            let is_old = entry.at <= old;
            if is_old && entry.bytes > 0 {
                dirs.extend(path.parent());
            }
            is_old
        });
        (dirs, ended)
    }

    /// Notes that a file could not be opened.
    pub(super) fn failed(&self, number: u64) {
        let mut table = self.0.lock();
        if let Some(entry) = table.files.values_mut().find(|entry| entry.number == number) {
            entry.bytes = 0;
        }
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
