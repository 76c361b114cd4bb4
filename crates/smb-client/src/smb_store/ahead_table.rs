//! The files that are read ahead of their opens, by path (`files_ahead`).

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_block::Block;
use ropeway_vfs::{FileId, RelPath};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::smb_tree::SmbFile;

/// The files read ahead.
#[derive(Default)]
pub(super) struct FilesAhead(pub(super) Mutex<Table>, Arc<Closing>);

/// Paths of files that were given up and may still be open on the server: they are in the way of
/// changes of their names.
#[derive(Default)]
pub(super) struct Closing {
    paths: Mutex<HashMap<u64, RelPath>>,
    ended: Notify,
}

/// Stands for a file that is being closed, until it is dropped.
pub(super) struct ClosingFile {
    closing: Arc<Closing>,
    number: u64,
}

impl Drop for ClosingFile {
    fn drop(&mut self) {
        self.closing.paths.lock().remove(&self.number);
        self.closing.ended.notify_waiters();
    }
}

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
    /// Bytes requested, or to be; 0 if the file could not be opened.
    pub(super) bytes: u64,
    pub(super) at: Duration,
    pub(super) begun: Arc<OnceLock<Begun>>,
    pub(super) opening: Opening,
}

impl Entry {
    /// Bytes requested behind the beginning.
    pub(super) fn bytes_behind(&self) -> u64 {
        let more = self.opening.more.iter();
        more.map(|piece| piece.range.end - piece.range.start).sum()
    }
}

/// A file whose beginning has been requested.
pub(super) struct Begun {
    pub(super) file: Arc<SmbFile>,
    /// End of the beginning.
    pub(super) upto: u64,
}

/// A file that is being opened, and what was requested behind its beginning (`read_on`).
pub(super) struct Opening {
    /// `None` if the file could not be opened with a lease.
    pub(super) head: JoinHandle<Option<Head>>,
    pub(super) more: Vec<Piece>,
    /// Set when it is taken out of the table.
    pub(super) closing: Option<ClosingFile>,
}

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
        Some(self.ended(path.clone(), entry))
    }

    /// Notes that a file that was taken out is still open.
    fn ended(&self, path: RelPath, entry: Entry) -> Opening {
        self.1.paths.lock().insert(entry.number, path);
        let closing = ClosingFile {
            closing: Arc::clone(&self.1),
            number: entry.number,
        };
        Opening {
            closing: Some(closing),
            ..entry.opening
        }
    }

    /// Waits until no file that was given up at a path or beneath it is on its way to be closed.
    /// Returns whether there was one.
    pub(super) async fn wait_closing(&self, top: &RelPath) -> bool {
        let mut was_one = false;
        loop {
            let ended = self.1.ended.notified();
            tokio::pin!(ended);
            // Before the look: an end between both must not be missed.
            ended.as_mut().enable();
            let is_below = |path: &RelPath| path.strip_prefix(top).is_some();
            if !self.1.paths.lock().values().any(is_below) {
                return was_one;
            }
            was_one = true;
            ended.await;
        }
    }

    /// Takes out what must go.
    pub(super) fn end(&self, mut is_ended: impl FnMut(&RelPath, &Entry) -> bool) -> Vec<Opening> {
        let mut table = self.0.lock();
        if table.files.is_empty() {
            return Vec::new();
        }
        let ended = table.files.extract_if(|path, entry| is_ended(path, entry));
        ended.map(|(path, entry)| self.ended(path, entry)).collect()
    }

    /// Takes out what is at a path and beneath it.
    pub(super) fn end_below(&self, top: &RelPath) -> Vec<Opening> {
        self.end(|path, _| path.strip_prefix(top).is_some())
    }

    /// Takes out the files that were there before `old`, if none was taken since. Returns the
    /// folders of those that could have been used, too.
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
    if let Ok(Some(head)) = opening.head.await {
        close_head(head, opening.more).await;
    }
    drop(opening.closing);
}

/// Closes a file whose beginning has been requested.
pub(super) async fn close_head(head: Head, more: Vec<Piece>) {
    for piece in head.pieces.into_iter().chain(more) {
        let _ = piece.data.await;
    }
    drop(head.file);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    /// Found by random operations under load: a folder could not be renamed, since a file beneath it had
    /// been given up by another task and was not closed yet.
    #[tokio::test]
    async fn a_change_of_a_name_waits_for_every_file_that_is_being_closed_beneath_it() {
        let ahead = FilesAhead::default();
        for (number, at) in [(1, "d/a"), (2, "d/b"), (3, "e")] {
            let entry = Entry {
                number,
                id: FileId {
                    volume: 0,
                    index: number,
                },
                bytes: 1,
                at: Duration::ZERO,
                begun: Arc::default(),
                opening: Opening {
                    head: tokio::spawn(async { None }),
                    more: Vec::new(),
                    closing: None,
                },
            };
            ahead.0.lock().files.insert(path(at), entry);
        }
        assert!(!ahead.wait_closing(&path("d")).await, "they are in use");
        let mut ended = ahead.end_below(&path("d"));
        let other = ahead.end_below(&path("e"));
        let top = path("d");
        let mut waiting = std::pin::pin!(ahead.wait_closing(&top));
        for left in (0..2).rev() {
            assert!(futures_util::poll!(&mut waiting).is_pending());
            drop(ended.pop());
            assert_eq!(ended.len(), left);
        }
        assert!(waiting.await);
        drop(other);
    }
}
