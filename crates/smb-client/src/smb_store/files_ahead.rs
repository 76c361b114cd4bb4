//! Files that are opened and read before a program opens them (`folder_ahead` decides which).
//!
//! ```text
//! open of a ─▶ FolderAhead: b, c ─▶ CREATE with a lease, READs ─▶ FilesAhead, by path
//! open of b ─▶ SharedFile::handle takes b's open file and what was read, if the lease is unbroken
//! ```
//! Nothing else of the store knows such a file, so nothing relies on it. It is given up when its
//! lease is broken or the session is lost, when the store changes its path or one above it, and
//! after some seconds. A break is acknowledged and a name is changed only after the file is closed.
//!
//! While the last bytes of the file before are on their way, more than the beginning is read
//! (`read_on`).
//!
//! What was read is used only if the lease of the CREATE is held when a program takes the file, in
//! the same epoch. From then on `SharedFile::look_at_lease` judges it as all data read ahead.

use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ropeway_block::BlockMut;
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{CacheMode, File as _, FileId, Name, OpenOptions, RelPath};

use super::ahead_table::{Begun, Entry, Head, Opening, Piece, close, close_head};
use super::shared::Shared;
use super::shared_file::SharedFile;
use crate::caching::{BrokenLease, LeaseHolder};
use crate::smb_tree::SmbFile;

/// Files read ahead at the same time. A guess: small ones are read faster than one a millisecond,
/// and a round trip takes some dozen of them.
const FILES_MAX: usize = 64;
/// Bytes at the beginning of a file that are read ahead. From then on the reader's own read-ahead
/// goes on. A guess: what 622 Mbit/s deliver in one round trip of 75 ms, and more.
const HEAD_BYTES: u64 = 8 << 20;
/// DOS attributes of files whose content is fetched from elsewhere when it is read: OFFLINE,
/// RECALL_ON_OPEN, RECALL_ON_DATA_ACCESS ([MS-FSCC] 2.6).
const RECALLED: u32 = 0x1000 | 0x4_0000 | 0x40_0000;
/// Time after which a file that nobody has opened is closed, if no other was taken meanwhile. A
/// guess: a picture that somebody looks at.
const UNUSED_MAX: Duration = Duration::from_secs(10);
/// Time without files ahead after the server granted no lease on one. A guess.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Takes the breaks of a file that no program has taken.
struct AheadLease {
    store: Weak<Shared>,
    path: RelPath,
    number: u64,
}

impl LeaseHolder for AheadLease {
    fn broke(&self, mut broken: BrokenLease) {
        let Some(store) = self.store.upgrade() else { return };
        store.cache.lock().changed_attributes(&self.path);
        let ended = store.files_ahead.end(|_, entry| entry.number == self.number);
        let runtime = store.runtime.clone();
        runtime.spawn(async move {
            for opening in ended {
                close(opening).await;
            }
            store.acknowledge(&mut broken);
        });
    }

    fn suspended(&self) {
        if let Some(store) = self.store.upgrade() {
            store.close_ahead(store.files_ahead.end(|_, entry| entry.number == self.number));
        }
    }
}

impl std::fmt::Debug for AheadLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AheadLease({})", self.path)
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
            if !self.read_file_ahead(&dir.join(&name), &name, &stat) {
                break;
            }
        }
    }

    /// Begins to read a file, unless that has begun. Returns whether there may be room for more.
    fn read_file_ahead(self: &Arc<Self>, path: &RelPath, name: &Name, stat: &NodeStat) -> bool {
        let bytes = stat.size.min(HEAD_BYTES);
        let mut table = self.files_ahead.0.lock();
        if table.files.contains_key(path) {
            return true;
        }
        let used: u64 = table.files.values().map(|entry| entry.bytes).sum();
        let is_room = table.files.is_empty() || used + bytes <= self.window_max();
        // The other half is for readers.
        let is_memory = self.ahead.available() * 2 > self.ahead.slots();
        if table.files.len() >= FILES_MAX || !is_room || !is_memory || self.now() < table.paused_until {
            return false;
        }
        let is_recalled = stat.dos_attributes.is_some_and(|bits| bits & RECALLED != 0);
        // A file in use has its own reader, and may be being written.
        if bytes == 0 || is_recalled || super::names::is_temporary(name) || self.files.get(stat.id).is_some()
        {
            return true;
        }
        table.last += 1;
        let number = table.last;
        let begun = Arc::default();
        let opening = Arc::clone(self).open_ahead(path.clone(), number, stat.id, bytes, Arc::clone(&begun));
        let entry = Entry {
            number,
            id: stat.id,
            bytes,
            at: self.now(),
            begun,
            opening: Opening {
                head: self.runtime.spawn(opening),
                more: Vec::new(),
                closing: None,
            },
        };
        table.files.insert(path.clone(), entry);
        if !std::mem::replace(&mut table.is_watched, true) {
            self.watch_ahead();
        }
        true
    }

    /// Opens a file, and requests its beginning.
    async fn open_ahead(
        self: Arc<Self>,
        path: RelPath,
        number: u64,
        id: FileId,
        bytes: u64,
        begun: Arc<OnceLock<Begun>>,
    ) -> Option<Head> {
        let head = self.open_head(&path, number, id, bytes).await;
        match &head {
            Some(head) => {
                let file = Arc::clone(&head.file);
                let upto = head.pieces.last().map_or(0, |piece| piece.range.end);
                let _ = begun.set(Begun { file, upto });
            }
            // The entry stays: without it the next open would try again.
            None => self.files_ahead.failed(number),
        }
        head
    }

    async fn open_head(
        self: &Arc<Self>,
        path: &RelPath,
        number: u64,
        id: FileId,
        bytes: u64,
    ) -> Option<Head> {
        let options = OpenOptions::read(CacheMode::default());
        let file = Arc::new(SmbFile::open(&self.tree, path, options).await.ok()?);
        let lease = file.lease().cloned();
        if let Some(lease) = &lease {
            lease.set_holder(Some(Arc::new(AheadLease {
                store: Arc::downgrade(self),
                path: path.clone(),
                number,
            })));
        }
        // A break before that was acknowledged without this store.
        let (Some(epoch), true) = (file.epoch(), lease.is_some_and(|lease| lease.may_keep_open())) else {
            self.files_ahead.0.lock().paused_until = self.now() + REFUSED_PAUSE;
            return None;
        };
        let is_it = file.at_open().is_some_and(|at_open| at_open.id == Some(id));
        if !is_it {
            return None;
        }
        let mut pieces = Vec::new();
        let upto = bytes.min(file.known_length());
        for start in (0..upto).step_by(self.block) {
            let Some(block) = self.ahead.try_get() else { break };
            let range = start..upto.min(start + self.block as u64);
            pieces.push(self.request_ahead(&file, block, range));
        }
        Some(Head { file, epoch, pieces })
    }

    /// Requests at most a block of a file that is open ahead.
    pub(super) fn request_ahead(&self, file: &Arc<SmbFile>, block: BlockMut, range: Range<u64>) -> Piece {
        let (file, wanted) = (Arc::clone(file), range.clone());
        let data = self.runtime.spawn(async move {
            // At most a block.
            let length = (wanted.end - wanted.start) as usize;
            let (block, read) = file.read(block, wanted.start, length).await;
            read.ok().map(|()| block.freeze())
        });
        Piece { range, data }
    }

    /// Closes files that nobody opens.
    fn watch_ahead(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        self.spawn(async move {
            loop {
                tokio::time::sleep(UNUSED_MAX / 2).await;
                let Some(this) = this.upgrade() else { return };
                let old = this.now().saturating_sub(UNUSED_MAX);
                let (dirs, ended) = this.files_ahead.end_unused(old);
                this.close_ahead(ended);
                for dir in dirs {
                    this.folder_ahead.lock().on_unused(&dir);
                }
                let mut table = this.files_ahead.0.lock();
                if table.files.is_empty() {
                    table.is_watched = false;
                    return;
                }
            }
        });
    }

    fn close_ahead(&self, ended: Vec<Opening>) {
        for opening in ended {
            self.spawn(close(opening));
        }
    }

    /// Gives up what was read ahead at a path that the store changes, and beneath it.
    pub(super) fn give_up_ahead(&self, path: &RelPath) {
        self.close_ahead(self.files_ahead.end_below(path));
    }

    /// Gives up what was read ahead of a file that is open by now.
    pub(super) fn give_up_ahead_of(&self, id: FileId) {
        self.close_ahead(self.files_ahead.end(|_, entry| entry.id == id));
    }

    /// Gives it up, and waits until the server has closed it: it would be in the way of a change.
    pub(super) async fn give_up_ahead_now(&self, path: &RelPath) {
        for opening in self.files_ahead.end_below(path) {
            self.spawn(close(opening));
        }
        // Another task may have given one up a moment ago.
        if self.files_ahead.wait_closing(path).await {
            self.tree.wait_for_closes().await;
        }
    }
}

impl SharedFile {
    /// Takes what was read ahead of this file, and the open file with it. Returns the open file in
    /// use.
    pub(super) async fn adopt_ahead(self: &Arc<Self>, opening: Opening) -> Option<Arc<SmbFile>> {
        let Opening { head, more, closing } = opening;
        let head = head.await.ok()??;
        let adopted =
            (head.file.epoch() == Some(head.epoch)).then(|| self.adopt(Arc::clone(&head.file), false));
        let is_adopted = |adopted: &Arc<SmbFile>| Arc::ptr_eq(adopted, &head.file);
        let Some(adopted) = adopted.clone().filter(is_adopted) else {
            self.store.spawn(async move {
                close_head(head, more).await;
                drop(closing);
            });
            return adopted;
        };
        let now = self.store.now();
        let mut content = self.content.lock();
        self.look_at_lease(&mut content, &head.file);
        // A break since then ends it here.
        if content.epoch != Some(head.epoch) {
            return Some(adopted);
        }
        for Piece { range, data } in head.pieces.into_iter().chain(more) {
            let gaps = content.buffers.gaps(range.clone(), self.store.block as u64);
            if gaps != [range.clone()] || content.write.is_unanswered(&range) {
                continue;
            }
            let id = content.buffers.begin(&range, now);
            content.ahead.begun(range.end);
            let this = Arc::clone(self);
            self.store.spawn(async move {
                let data = data.await.ok().flatten();
                this.content.lock().buffers.loaded(range.start, id, data);
                this.notify();
            });
        }
        Some(adopted)
    }
}
