//! Files that are opened and read before a program asks for them (`folder_ahead` decides which).
//!
//! Such a file is used only while the server grants a lease on it, so its content is that of now. It
//! is given up when a program opens it, when its lease is broken, when its name is removed, or
//! after some seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{FileId, Kind, Name, RelPath};

use super::shared::Shared;
use super::shared_file::SharedFile;

/// Files read ahead at the same time. A guess: small ones are read faster than one a millisecond,
/// and a round trip takes some dozen of them.
const FILES_MAX: usize = 64;
/// Bytes at the beginning of a file that are read ahead. From then on the stream reads ahead by
/// itself. A guess: what 622 Mbit/s deliver in one round trip of 75 ms, and more.
const HEAD_BYTES: u64 = 8 << 20;
/// DOS attributes of files whose content is fetched from elsewhere when it is read: OFFLINE,
/// RECALL_ON_OPEN, RECALL_ON_DATA_ACCESS ([MS-FSCC] 2.6).
const RECALLED: u32 = 0x1000 | 0x4_0000 | 0x40_0000;
/// Time after which a file that nobody has opened is closed. A guess.
const UNUSED_MAX: Duration = Duration::from_secs(5);

/// The files.
#[derive(Default)]
pub(super) struct Prefetched(Mutex<Table>);

#[derive(Default)]
struct Table {
    files: HashMap<FileId, Ahead>,
    /// Whether a task looks after them.
    is_watched: bool,
}

struct Ahead {
    file: Arc<SharedFile>,
    bytes: u64,
    at: Duration,
}

impl Prefetched {
    /// Gives a file to its user, who ends the use that was begun for it.
    pub(super) fn take(&self, id: FileId) -> Option<Arc<SharedFile>> {
        self.0.lock().files.remove(&id).map(|ahead| ahead.file)
    }

    /// Gives files up.
    fn end(&self, is_ended: impl Fn(&Ahead) -> bool) {
        let ended: Vec<_> = {
            let mut table = self.0.lock();
            let ended = table.files.extract_if(|_, ahead| is_ended(ahead));
            ended.collect()
        };
        for (_, ahead) in ended {
            ahead.file.end_use();
        }
    }

    /// Gives the files at a path and beneath it up: they would be in the way of a change.
    pub(super) fn end_below(&self, path: &RelPath) {
        self.end(|ahead| {
            let at = ahead.file.path();
            at.is_none_or(|at| at.strip_prefix(path).is_some())
        });
    }

    /// Gives a file up.
    pub(super) fn end_of(&self, id: FileId) {
        self.end(|ahead| ahead.file.id == id);
    }
}

impl Shared {
    /// Takes the open of a file to read it, and begins to read those that will follow.
    pub(super) fn read_files_ahead(self: &Arc<Self>, path: &RelPath) {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let Some(listing) = self.cache.lock().listing(&dir, self.now()) else {
            return;
        };
        let next = self.folder_ahead.lock().on_open(&dir, &listing, &name, FILES_MAX);
        for (name, stat) in next {
            if !self.read_file_ahead(&dir, &name, &stat) {
                break;
            }
        }
    }

    /// Begins to read a file, unless that has begun. Returns whether there is room for more.
    fn read_file_ahead(self: &Arc<Self>, dir: &RelPath, name: &Name, stat: &NodeStat) -> bool {
        let bytes = stat.size.min(HEAD_BYTES);
        let file = {
            let mut table = self.prefetched.0.lock();
            if table.files.contains_key(&stat.id) {
                return true;
            }
            let used: u64 = table.files.values().map(|ahead| ahead.bytes).sum();
            let is_room = table.files.is_empty() || used + bytes <= self.window_max();
            if table.files.len() >= FILES_MAX || !is_room {
                return false;
            }
            // A file in use has its own reader, or was read a moment ago.
            let is_recalled = stat.dos_attributes.is_some_and(|bits| bits & RECALLED != 0);
            if bytes == 0 || is_recalled || self.files.get(stat.id).is_some() {
                return true;
            }
            let file = self.files.of(self, stat.id, Kind::File, &dir.join(name));
            file.begin_use();
            let ahead = Ahead {
                file: Arc::clone(&file),
                bytes,
                at: self.now(),
            };
            table.files.insert(stat.id, ahead);
            if !std::mem::replace(&mut table.is_watched, true) {
                self.watch_prefetched();
            }
            file
        };
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            if !file.read_head(bytes).await {
                this.prefetched.end_of(file.id);
            }
        });
        true
    }

    /// Closes files that nobody opens.
    fn watch_prefetched(self: &Arc<Self>) {
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(UNUSED_MAX / 2).await;
                let now = this.now();
                this.prefetched
                    .end(|ahead| now.saturating_sub(ahead.at) >= UNUSED_MAX);
                let mut table = this.prefetched.0.lock();
                if table.files.is_empty() {
                    table.is_watched = false;
                    return;
                }
            }
        });
    }
}
