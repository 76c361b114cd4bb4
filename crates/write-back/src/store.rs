//! The store: forwards names, wraps nodes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_vfs::external::Observer;
use ropeway_vfs::patience::Reachability;
use ropeway_vfs::posix::{NewPosix, RenameMode};
use ropeway_vfs::store::{
    Access, Node, NodeOpen, NodeStat, Opened, Removal, Resolved, Store, StoreFeatures, Task, Versioning,
};
use ropeway_vfs::{Error, FileId, Kind, Op, RelPath, Result, Space};

use crate::disk::{Disk, FolderDisk};
use crate::files::{File, Known};
use crate::journal::{Journal, JournalError, replace};
use crate::log::LogSpace;
use crate::node::WriteBackNode;
use crate::shared::{Shared, WriteBackOptions};
use crate::status::{STATUS, Status};

/// Time between two states of the status file.
const INTERVAL: Duration = Duration::from_secs(1);

/// A store whose writes are acknowledged once they are in a journal.
pub struct WriteBackStore {
    pub(crate) shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    /// Held as long as the store.
    journal: Option<Journal>,
}

impl WriteBackStore {
    /// Puts a journal in front of a store, and begins to bring its backlog there.
    ///
    /// # Errors
    /// The journal cannot be read, or a thread cannot be started.
    pub fn open(
        inner: Arc<dyn Store>,
        journal: Journal,
        options: WriteBackOptions,
    ) -> Result<Arc<Self>, JournalError> {
        let path = journal.path.clone();
        let io = |error| JournalError::Io {
            path: path.clone(),
            error,
        };
        let disk = FolderDisk::open(&journal.path).map_err(io)?;
        let (key, status) = (journal.key, journal.path.clone());
        let mut store = Self::on_disk(inner, Box::new(disk), key, options).map_err(io)?;
        store.journal = Some(journal);
        store.report(status).map_err(io)?;
        Ok(Arc::new(store))
    }

    /// Works on a disk of any kind.
    ///
    /// # Errors
    /// The disk fails, or a thread cannot be started.
    pub fn on_disk(
        inner: Arc<dyn Store>,
        disk: Box<dyn Disk>,
        key: [u8; 32],
        options: WriteBackOptions,
    ) -> std::io::Result<Self> {
        Self::in_space(inner, LogSpace::new(disk, key), options)
    }

    pub(crate) fn in_space(
        inner: Arc<dyn Store>,
        space: LogSpace,
        options: WriteBackOptions,
    ) -> std::io::Result<Self> {
        let workers = options.workers;
        let shared = Arc::new(Shared::new(inner, Arc::new(space), options));
        let torn = shared.recover()?;
        if torn > 0 {
            let far = &shared.options.far;
            tracing::info!(
                far,
                torn,
                "the write-back journal ended in the middle of a record; what was flushed is there"
            );
        }
        let store = Self {
            shared,
            workers: Mutex::default(),
            journal: None,
        };
        if workers > 0 {
            store.shared.note_rounds()?;
        }
        for _ in 0..workers {
            let shared = Arc::clone(&store.shared);
            let thread = std::thread::Builder::new().name("write-back".into());
            store.workers.lock().push(thread.spawn(move || shared.work())?);
        }
        Ok(store)
    }

    /// Keeps the status file current as long as the store lives.
    fn report(&self, folder: PathBuf) -> std::io::Result<()> {
        let mut before = None;
        self.shared.every(INTERVAL, "write-back-status", move |shared| {
            let status = shared.status();
            if before.as_ref() != Some(&status)
                && let Ok(text) = serde_json::to_vec(&status)
                && let Err(error) = crate::journal::replace_unsynced(&folder, STATUS, &text)
            {
                tracing::debug!(%error, "the journal's status cannot be written");
            }
            before = Some(status);
        })
    }

    /// Returns the figures.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Returns what [`status`](Self::status) does, to be asked at any time.
    pub fn figures(&self) -> Arc<dyn Fn() -> Status + Send + Sync> {
        let shared = Arc::downgrade(&self.shared);
        Arc::new(move || shared.upgrade().map(|shared| shared.status()).unwrap_or_default())
    }

    /// Waits until the far store has everything, at most this long. Then lets the workers end, each
    /// after its present request. What is left goes on when the journal is used again.
    pub fn close(&self, time_max: Duration) -> Status {
        let deadline = Instant::now() + time_max;
        self.shared.queue.hurry();
        while self.shared.has_backlog() && Instant::now() < deadline {
            self.shared.queue.hurry();
            std::thread::sleep(Duration::from_millis(20));
        }
        self.shared.queue.close();
        let status = self.status();
        if status.files > 0 {
            // They may wait for a line that is cut. The process ends without them.
            self.workers.lock().clear();
        }
        if let Some(journal) = &self.journal
            && let Ok(text) = serde_json::to_vec(&status)
        {
            // For `boost status`; the journal itself says the same.
            let _ = replace(&journal.path, STATUS, &text);
        }
        status
    }

    /// Does the next round of one file, for tests without workers. Returns `false` if none waits.
    pub(crate) fn step(&self) -> bool {
        let next = self.shared.queue.take();
        if let Some(file) = &next {
            self.shared.work_on(file);
        }
        next.is_some()
    }

    fn opened(&self, path: &RelPath, opened: Opened, count: u64) -> Opened {
        let Opened {
            node,
            mut stat,
            created,
        } = opened;
        let file = (stat.kind == Kind::File && stat.id.index != 0).then(|| {
            let file = self.file_of(path, &stat, count);
            self.shared.overlay(&mut stat, count);
            file
        });
        Opened {
            node: Arc::new(WriteBackNode::new(node, Arc::clone(&self.shared), file)),
            stat,
            created,
        }
    }

    /// Returns the file that was opened with these far attributes, asked for at `count` changes.
    fn file_of(&self, path: &RelPath, stat: &NodeStat, count: u64) -> Arc<File> {
        let files = &self.shared.files;
        let file = files.opened(stat.id, path);
        let is_other = {
            let mut state = file.state.lock();
            match &state.pending {
                // The number is that of another file now: the one with the backlog was removed.
                Some(pending) => {
                    let is_settled =
                        pending.draining.is_none() && self.shared.changes.is_current(&file, count);
                    is_settled && pending.base.created != stat.created
                }
                None => {
                    state.known = Some(Known {
                        stat: *stat,
                        at: Instant::now(),
                        count,
                    });
                    state.path = path.clone();
                    false
                }
            }
        };
        if !is_other {
            return file;
        }
        files.take_out(&file);
        file.nodes.fetch_sub(1, Ordering::AcqRel);
        files.opened(stat.id, path)
    }
}

impl Drop for WriteBackStore {
    fn drop(&mut self) {
        self.shared.queue.close();
        for worker in self.workers.get_mut().drain(..) {
            // The last user of the store may be one of them.
            if worker.thread().id() != std::thread::current().id() {
                let _ = worker.join();
            }
        }
        if let Some(journal) = &self.journal {
            let _ = rustix::fs::flock(&journal.lock, rustix::fs::FlockOperation::Unlock);
        }
    }
}

impl Store for WriteBackStore {
    fn features(&self) -> &StoreFeatures {
        self.shared.inner.features()
    }

    fn space(&self) -> Result<Space> {
        self.shared.inner.space()
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        self.shared.inner.resolve(path)
    }

    fn resolve_soon(&self, path: &RelPath, then: &dyn Fn() -> Task) -> Result<Resolved> {
        self.shared.inner.resolve_soon(path, then)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let count = self.shared.changes.count();
        let opened = self.shared.inner.open(path, how)?;
        Ok(self.opened(path, opened, count))
    }

    fn work_in_background(&self) {
        self.shared.inner.work_in_background();
    }

    fn list_soon(&self, dir: &RelPath) {
        self.shared.inner.list_soon(dir);
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        let inner = &self.shared.inner;
        match directory {
            true => inner.remove(path, directory),
            false => self
                .shared
                .removing(path, false, || inner.remove(path, directory)),
        }
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        let inner = &self.shared.inner;
        let is_for_empty = match what {
            Removal::Directory => return inner.remove_node(id, path, what),
            Removal::EmptyFile => true,
            Removal::File => false,
        };
        let remove = || inner.remove_node(id, path, what);
        match self.shared.pending_at(path) {
            // Another file has the name: the removal fails.
            Some((file, _)) if file.id != id => remove(),
            _ => self.shared.removing(path, is_for_empty, remove),
        }
    }

    fn check_remove(&self, path: &RelPath) -> Result<()> {
        self.shared.inner.check_remove(path)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let inner = &self.shared.inner;
        self.shared
            .renaming(from, to, false, || inner.rename(from, to, replace))
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let inner = &self.shared.inner;
        self.shared
            .renaming(from, to, false, || inner.rename_node(id, from, to, replace))
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        let inner = &self.shared.inner;
        let own = node.as_any().downcast_ref::<WriteBackNode>();
        let (far, id) = match own {
            Some(own) => (own.inner(), own.file().map(|file| file.id)),
            None => (node, None),
        };
        self.shared.linking(id, to, || inner.link_node(far, to, replace))
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let inner = &self.shared.inner;
        let source = self.shared.pending_at(from).map(|(file, _)| file.id);
        self.shared.linking(source, to, || inner.link(from, to, replace))
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        self.shared.inner.symlink(path, target)
    }

    fn may_hold_security(&self) -> bool {
        self.shared.inner.may_hold_security()
    }

    fn folder_security(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        self.shared.inner.folder_security(path)
    }

    fn may_have_xattrs(&self) -> bool {
        self.shared.inner.may_have_xattrs()
    }

    fn observe(&self, observer: Arc<dyn Observer>) {
        *self.shared.observer.lock() = Some(Arc::clone(&observer));
        self.shared.inner.observe(observer);
    }

    /// Makes the journal durable, and what went past it at the far store.
    fn sync(&self) -> Result<()> {
        for file in self.shared.files.select(|state| state.pending.is_some()) {
            let mut state = file.state.lock();
            let path = state.path.clone();
            if let Some(pending) = &mut state.pending {
                let synced = pending.log.sync(pending.backlog.next);
                synced.map_err(|error| Error::from_io(Op::Sync, &path, error))?;
            }
        }
        match self.shared.take_through_dirty() {
            true => self
                .shared
                .inner
                .sync()
                .inspect_err(|_| self.shared.set_through_dirty()),
            false => Ok(()),
        }
    }

    fn attribute_lifetime(&self) -> Duration {
        self.shared.inner.attribute_lifetime()
    }

    fn reachability(&self) -> Option<Reachability> {
        self.shared.inner.reachability()
    }

    fn versioning(&self) -> Option<Versioning> {
        self.shared.inner.versioning()
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        let count = self.shared.changes.count();
        let mut stat = self.shared.inner.look(path)?;
        self.shared.overlay(&mut stat, count);
        Ok(stat)
    }

    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        let count = self.shared.changes.count();
        let opened = self.shared.inner.open_itself(path, access)?;
        Ok(self.opened(path, opened, count))
    }

    fn make(&self, path: &RelPath, new: &NewPosix<'_>) -> Result<Opened> {
        let count = self.shared.changes.count();
        let opened = self.shared.inner.make(path, new)?;
        Ok(self.opened(path, opened, count))
    }

    fn rename_posix(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> Result<()> {
        let inner = &self.shared.inner;
        let is_exchange = mode == RenameMode::Exchange;
        self.shared
            .renaming(from, to, is_exchange, || inner.rename_posix(from, to, mode))
    }
}
