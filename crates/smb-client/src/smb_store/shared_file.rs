//! One file in use: its place, its open handle on the server, its unflushed and read-ahead data.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::{
    CacheMode, Create, Error, ErrorKind, File as _, FileId, Kind, Op, OpenOptions, RelPath, Result,
};
use tokio::sync::watch;

use super::breaks::Breaks;
use super::range_locks::RangeLocks;
use super::read_ahead::ReadAhead;
use super::read_buffers::ReadBuffers;
use super::shared::Shared;
use super::write_back::WriteBack;
use crate::smb_tree::SmbFile;

/// Names remembered of a file. A guess: few files in use have more.
const NAMES_MAX: usize = 64;

/// A file, folder or link in use.
pub(super) struct SharedFile {
    pub(super) store: Arc<Shared>,
    pub(super) id: FileId,
    pub(super) kind: Kind,
    place: Mutex<Place>,
    /// The open file. It is opened for writing when the first node needs that, and serves all nodes
    /// from then on.
    handle: Mutex<Option<OpenHandle>>,
    opening: tokio::sync::Mutex<()>,
    /// Nodes that read or write.
    pub(super) users: AtomicUsize,
    /// Those of them that write.
    pub(super) writers: AtomicUsize,
    pub(super) content: Mutex<Content>,
    /// Bytes that programs have read during this use.
    pub(super) taken: AtomicU64,
    /// Whether the file was opened while own writes of it were on their way, so that the length at
    /// the open may be too small.
    pub(super) is_end_doubtful: AtomicBool,
    /// Held for reading by each write, for writing by operations on the whole file.
    pub(super) exclusive: tokio::sync::RwLock<()>,
    /// Held by the task that flushes.
    pub(super) flushing: tokio::sync::Mutex<()>,
    pub(super) is_flush_planned: AtomicBool,
    /// Counts changes of `content` that a task may wait for.
    pub(super) progress: watch::Sender<u64>,
    pub(super) locks: tokio::sync::Mutex<RangeLocks>,
    pub(super) breaks: Breaks,
    pub(super) this: Weak<Self>,
}

#[derive(Clone)]
struct OpenHandle {
    file: Arc<SmbFile>,
    writable: bool,
}

struct Place {
    /// The names it was found under, as far as they are known; never empty. The open file is reached
    /// by the first one, if it has to be opened again.
    paths: Vec<RelPath>,
    /// Whether the last name was removed. The path left is then that name, or a temporary one.
    removed: bool,
    /// Whether it may have a name that is not among them.
    linked: bool,
}

/// The data of a file that are on this side.
pub(super) struct Content {
    pub(super) write: WriteBack,
    pub(super) buffers: ReadBuffers,
    pub(super) ahead: ReadAhead,
    /// The epoch of the lease that covered the read data when it was last looked at.
    pub(super) epoch: Option<u64>,
    /// The first error of a write in the background.
    pub(super) error: Option<Error>,
    /// When the last write was answered, and the largest end of one answered shortly before.
    pub(super) answered_end: Option<(Duration, u64)>,
    /// Number of writes on their way.
    pub(super) sends: usize,
    /// Whether to send short ranges too, until nothing is pending.
    pub(super) send_all: bool,
    /// Whether a task will send what is pending after a pause.
    pub(super) is_send_planned: bool,
    /// Number of changes, and how many of them the server had made when it last flushed.
    pub(super) changes: u64,
    pub(super) flushed: u64,
    /// The lengths set since the last flush: the smallest and the last.
    pub(super) lengths_set: Option<(u64, u64)>,
    /// Whether the server changed content by itself since the last flush (copied or zeroed a
    /// range), which cannot be repeated from memory.
    pub(super) is_changed_there: bool,
}

impl SharedFile {
    pub(super) fn new(store: &Arc<Shared>, id: FileId, kind: Kind, path: &RelPath) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            breaks: Breaks::default(),
            store: Arc::clone(store),
            id,
            kind,
            place: Mutex::new(Place {
                paths: vec![path.clone()],
                removed: false,
                linked: false,
            }),
            handle: Mutex::new(None),
            opening: tokio::sync::Mutex::new(()),
            users: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            is_end_doubtful: AtomicBool::new(false),
            content: Mutex::new(Content {
                write: WriteBack::new(store.block),
                buffers: ReadBuffers::default(),
                ahead: ReadAhead::default(),
                epoch: None,
                error: None,
                answered_end: None,
                sends: 0,
                send_all: false,
                is_send_planned: false,
                changes: 0,
                flushed: 0,
                lengths_set: None,
                is_changed_there: false,
            }),
            exclusive: tokio::sync::RwLock::new(()),
            flushing: tokio::sync::Mutex::new(()),
            is_flush_planned: AtomicBool::new(false),
            progress: watch::Sender::new(0),
            locks: tokio::sync::Mutex::default(),
        })
    }

    /// Returns a path; `None` if all names were removed.
    pub(super) fn path(&self) -> Option<RelPath> {
        let place = self.place.lock();
        (!place.removed).then(|| place.paths[0].clone())
    }

    /// Returns the last path, for messages and for requests about a removed file that is still
    /// open.
    pub(super) fn last_path(&self) -> RelPath {
        self.place.lock().paths[0].clone()
    }

    /// Returns the names it has, as far as they are known.
    pub(super) fn names(&self) -> Vec<RelPath> {
        let place = self.place.lock();
        if place.removed {
            Vec::new()
        } else {
            place.paths.clone()
        }
    }

    /// Whether its content can be read later: it has a name, known or not.
    pub(super) fn is_lasting(&self) -> bool {
        let place = self.place.lock();
        !place.removed || place.linked
    }

    /// Notes that it has several names.
    pub(super) fn linked(&self) {
        self.place.lock().linked = true;
    }

    /// Notes that the file was found at a path.
    pub(super) fn found_at(&self, path: &RelPath) {
        let mut place = self.place.lock();
        if place.removed {
            place.paths = vec![path.clone()];
            place.removed = false;
            self.follow(&place);
        } else if !place.paths.contains(path) && place.paths.len() < NAMES_MAX {
            place.paths.push(path.clone());
        }
    }

    /// Notes that a name was changed.
    pub(super) fn moved(&self, from: &RelPath, to: &RelPath) {
        if from == to {
            return;
        }
        let mut place = self.place.lock();
        let is_known = place.paths.contains(to);
        if is_known {
            place.paths.retain(|path| path != from);
        } else {
            place
                .paths
                .iter_mut()
                .filter(|path| *path == from)
                .for_each(|path| *path = to.clone());
        }
        self.follow(&place);
    }

    /// Notes that a name was removed. `hidden`: the temporary one that it has instead.
    pub(super) fn removed(&self, path: &RelPath, hidden: Option<&RelPath>) {
        let mut place = self.place.lock();
        if place.paths.len() > 1 {
            place.paths.retain(|at| at != path);
        } else if place.paths[0] == *path {
            place.removed = true;
            place.paths.extend(hidden.cloned());
            let last = place.paths.len() - 1;
            place.paths.drain(..last);
        }
        self.follow(&place);
    }

    /// Tells the open file its path.
    fn follow(&self, place: &Place) {
        if let Some(open) = &*self.handle.lock()
            && let Ok(text) = self.store.tree.base.text(Op::Rename, &place.paths[0])
        {
            open.file.renamed(&place.paths[0], &text, place.removed);
        }
    }

    /// Returns an error about this file.
    pub(super) fn error(&self, op: Op, kind: ErrorKind) -> Error {
        Error::new(op, &self.last_path(), kind)
    }

    /// Returns the open file, if there is one that suits.
    pub(super) fn held(&self, write: bool) -> Option<Arc<SmbFile>> {
        let held = self.handle.lock();
        let held = held.as_ref().filter(|open| open.writable || !write);
        held.map(|open| Arc::clone(&open.file))
    }

    /// Whether the file is open on the server.
    pub(super) fn is_open(&self) -> bool {
        self.handle.lock().is_some()
    }

    /// Returns the open file, and opens it if need be.
    pub(super) async fn handle(self: &Arc<Self>, write: bool) -> Result<Arc<SmbFile>> {
        if let Some(file) = self.held(write) {
            return Ok(file);
        }
        let _guard = self.opening.lock().await;
        if let Some(file) = self.held(write) {
            return Ok(file);
        }
        if !write && let Some(path) = self.path() {
            let ahead = self.store.files_ahead.take(&path, self.id, self.store.now());
            // Taken first: there is room for another one now.
            self.store.read_files_ahead(&path);
            if let Some(ahead) = ahead
                && let Some(file) = self.adopt_ahead(ahead).await
            {
                return Ok(file);
            }
        }
        let options = OpenOptions {
            write,
            ..OpenOptions::read(CacheMode::default())
        };
        debug_assert!(options.create == Create::No);
        let mut gone = self.error(Op::Open, ErrorKind::Gone);
        // Another client may have taken away the first name of several.
        for path in self.names() {
            let parent = self.store.lease_key_for(&path);
            match SmbFile::open_beneath(&self.store.tree, &path, options, parent).await {
                Ok(file) => {
                    let id = file.at_open().and_then(|metadata| metadata.id);
                    if id.is_none_or(|id| id == self.id) {
                        return Ok(self.adopt(Arc::new(file), write));
                    }
                }
                Err(error) if error.kind == ErrorKind::NotFound => gone = error,
                Err(error) => return Err(error),
            }
        }
        Err(gone)
    }

    /// Takes an open file for all nodes, unless there is one that suits already. Returns the one in
    /// use.
    pub(super) fn adopt(&self, file: Arc<SmbFile>, writable: bool) -> Arc<SmbFile> {
        let mut held = self.handle.lock();
        if let Some(open) = held.as_ref().filter(|open| open.writable || !writable) {
            return Arc::clone(&open.file);
        }
        let adopted = OpenHandle {
            file: Arc::clone(&file),
            writable,
        };
        let before = held.replace(adopted);
        drop(held);
        self.hold_lease(&file);
        // It is closed once the requests on it have ended.
        drop(before);
        file
    }

    /// Replaces the open file `before`, if it is still in use.
    pub(super) fn replace(&self, before: &Arc<SmbFile>, file: Arc<SmbFile>, writable: bool) {
        let mut held = self.handle.lock();
        let replaced = match &mut *held {
            Some(open) if Arc::ptr_eq(&open.file, before) => {
                self.hold_lease(&file);
                std::mem::replace(open, OpenHandle { file, writable }).file
            }
            _ => file,
        };
        drop(held);
        drop(replaced);
    }

    /// Opens the file as its nodes need it, if it was given up or is open for readers only. A file that
    /// loses its last name cannot be opened later.
    pub(super) async fn open_for_nodes(self: &Arc<Self>) -> Result<()> {
        let write = self.writers.load(Ordering::Acquire) > 0;
        match self.handle(write).await {
            Err(error) if error.kind == ErrorKind::PermissionDenied => self.handle(false).await.map(drop),
            opened => opened.map(drop),
        }
    }

    /// Gives the open file up.
    pub(super) fn close(&self) {
        let before = self.handle.lock().take();
        let _runtime = self.store.runtime.enter();
        drop(before);
    }

    /// Whether a node uses the content.
    pub(super) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Begins a use of the content.
    pub(super) fn begin_use(&self) {
        self.users.fetch_add(1, Ordering::AcqRel);
    }

    /// Wakes the tasks that wait for a change of `content`.
    pub(super) fn notify(&self) {
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Changes the content's state, and keeps count of the unflushed bytes.
    pub(super) fn with_content<T>(&self, change: impl FnOnce(&mut Content) -> T) -> T {
        let mut content = self.content.lock();
        let before = content.write.bytes();
        let result = change(&mut content);
        let now = content.write.bytes();
        drop(content);
        self.store.account(before, now);
        result
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // The open file's drop needs the runtime.
        let _runtime = self.store.runtime.enter();
        self.handle.get_mut().take();
        self.store.files.forget(self.id);
        let kept = self.content.get_mut().write.bytes();
        self.store.account(kept, 0);
    }
}
