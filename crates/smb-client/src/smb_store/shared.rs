//! What all nodes of a store share.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use ropeway_block::Pool;
use ropeway_smb_wire::info::FsAttributes;
use ropeway_vfs::store::{StoreFeatures, Versioning};
use ropeway_vfs::{Error, ErrorKind, Kind, Op, Pending, RelPath, Result, Verdict, patience};
use tokio::runtime::Handle as Runtime;
use tokio::sync::Notify;

use super::ahead_table::FilesAhead;
use super::asked_folders::AskedFolders;
use super::files::Files;
use super::folder_ahead::FolderAhead;
use super::folder_table::Folders;
use super::listings_ahead::ListingsAhead;
use super::node_cache::{NodeCache, Validity};
use super::options::SmbStoreOptions;
use super::own_changes::OwnChanges;
use super::reports::Reports;
use super::shared_file::SharedFile;
use super::top_folder::TopFolder;
use super::watch_table::Watches;
use crate::recovery;
use crate::share::Volume;
use crate::smb_tree::inner::Inner;
use crate::times;

/// Size of a READ or WRITE of the store's own tasks, at most.
pub(super) const BLOCK_MAX: usize = 1 << 20;
/// Blocks for single reads in flight, of all callers. A guess: more than a mount has threads.
const DIRECT_BLOCKS: usize = 32;
/// Blocks on their way to the server: 32 MiB, more than five times what 622 Mbit/s and 75 ms hold.
const WRITE_BLOCKS: usize = 32;

/// Granularity of the coarsest change times that servers keep (FAT's write times: 2 s).
const SETTLE: Duration = Duration::from_secs(2);
/// Longest time between a check of the age of data and their use. A guess, and generous.
const MEMORY_SLACK: Duration = Duration::from_secs(1);
/// Time between two looks of an impatient caller whether the server is lost. A guess: short against
/// the time after which it is.
const LOST_POLL: Duration = Duration::from_millis(100);
/// Files waiting for a flush from which on they are flushed in the background.
const FLUSH_FILES_FROM: usize = 10_000;
/// Files waiting for a flush from which on writers wait for it: half of those that can be
/// remembered.
const WAIT_FILES_FROM: usize = 50_000;

/// The state of a store.
pub(super) struct Shared {
    pub(super) tree: Arc<Inner>,
    pub(super) features: StoreFeatures,
    pub(super) options: SmbStoreOptions,
    pub(super) runtime: Runtime,
    pub(super) cache: Mutex<NodeCache>,
    pub(super) files: Files,
    pub(super) reports: Reports,
    pub(super) watches: Watches,
    pub(super) folders: Folders,
    /// Held while a node is opened, and alone while a folder is renamed beneath which files were open:
    /// servers rename no folder with open files in it.
    pub(super) moving: tokio::sync::RwLock<()>,
    pub(super) top: TopFolder,
    /// Which files to read ahead of their opens, and those that are.
    pub(super) folder_ahead: Mutex<FolderAhead>,
    pub(super) files_ahead: FilesAhead,
    /// Which folders to list ahead, and those that are being listed.
    pub(super) tree_ahead: Mutex<FolderAhead>,
    pub(super) listings_ahead: ListingsAhead,
    /// Which folders to list because of questions about their names.
    pub(super) asked_folders: Mutex<AskedFolders>,
    /// The store's own changes, which its watches do not report.
    pub(super) own: Mutex<OwnChanges>,
    /// Blocks of data read ahead; of single reads; of writes on their way.
    pub(super) ahead: Pool,
    pub(super) direct: Pool,
    pub(super) writes: Pool,
    /// Size of those blocks.
    pub(super) block: usize,
    /// Unflushed bytes of all files.
    pub(super) unflushed: AtomicU64,
    /// Writers that wait for room.
    waiting: AtomicUsize,
    /// Notified when there are fewer.
    pub(super) room: Notify,
    /// The error of a file that was closed before it could be reported.
    lost: Mutex<Option<Error>>,
    /// Whether the server left out the id or the change time of a file.
    pub(super) is_versionless: AtomicBool,
    /// Whether closed files are being flushed, and the lock of who does.
    is_syncing: AtomicBool,
    sync_files: tokio::sync::Mutex<()>,
    start: Instant,
}

impl Shared {
    pub(super) fn new(
        tree: Arc<Inner>,
        volume: &Volume,
        options: SmbStoreOptions,
        runtime: Runtime,
    ) -> Arc<Self> {
        let limits = tree.share.limits();
        let block = BLOCK_MAX.min(limits.read_max.min(limits.write_max).max(4096) as usize);
        let can = |flag| volume.attributes.attributes.contains(flag);
        let features = StoreFeatures {
            volume: tree.volume,
            name_max: tree.capabilities.name_max,
            // Servers of old may report none, or an odd one.
            unit: u32::try_from(tree.cluster)
                .ok()
                .filter(|unit| unit.is_power_of_two())
                .unwrap_or(4096),
            read_only: can(FsAttributes::READ_ONLY_VOLUME),
            sparse: can(FsAttributes::SUPPORTS_SPARSE_FILES),
            windows_metadata: true,
            created: times::timestamp(volume.volume.volume_creation_time),
        };
        let blocks = |bytes: u64| {
            usize::try_from(bytes / block as u64)
                .unwrap_or(usize::MAX)
                .clamp(4, 4096)
        };
        Arc::new(Self {
            cache: Mutex::new(NodeCache::new(options.names_max)),
            ahead: Pool::new(block, blocks(options.read_buffer_max)),
            direct: Pool::new(block, DIRECT_BLOCKS),
            writes: Pool::new(block, WRITE_BLOCKS),
            files: Files::default(),
            reports: Reports::new(runtime.clone()),
            watches: Watches::default(),
            folders: Folders::default(),
            moving: tokio::sync::RwLock::default(),
            top: TopFolder::default(),
            folder_ahead: Mutex::new(FolderAhead::new(Kind::File)),
            files_ahead: FilesAhead::default(),
            tree_ahead: Mutex::new(FolderAhead::new(Kind::Directory)),
            listings_ahead: ListingsAhead::default(),
            asked_folders: Mutex::default(),
            own: Mutex::default(),
            unflushed: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            room: Notify::new(),
            lost: Mutex::new(None),
            is_versionless: AtomicBool::new(false),
            is_syncing: AtomicBool::new(false),
            sync_files: tokio::sync::Mutex::new(()),
            start: Instant::now(),
            tree,
            features,
            options,
            runtime,
            block,
        })
    }

    /// Runs a future on the calling thread. An impatient caller waits only as long as the server is
    /// not lost.
    pub(super) fn wait<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        let mut answer = None;
        self.wait_for(pin!(async { answer = Some(future.await) }));
        answer.unwrap_or_else(|| Err(Error::new(Op::Stat, &RelPath::root(), ErrorKind::Unreachable)))
    }

    /// Runs a future to its end, or gives it up. Its type is erased, so that the machinery of the
    /// runtime is compiled once, not for each operation.
    fn wait_for(&self, mut future: Pin<&mut dyn Future<Output = ()>>) {
        if !patience::is_impatient() {
            return self.runtime.block_on(future);
        }
        // Nothing is sent that would only be given up again.
        if self.lost_for().is_some() {
            return;
        }
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = future.as_mut() => {}
                () = self.lost() => {}
            }
        });
    }

    /// Starts a task. Boxed for the same reason.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(Box::pin(task) as Pending<'static, ()>);
    }

    /// Returns how long the server has been silent, if it is lost. From then on a task looks whether
    /// it is back.
    pub(super) fn lost_for(&self) -> Option<Duration> {
        let link = self.tree.share.client().link();
        let lost = link.reach.lost_for()?;
        if !link.is_recovering.swap(true, Ordering::AcqRel) {
            self.spawn(recovery::recover(Arc::downgrade(link)));
        }
        Some(lost)
    }

    /// Waits until the server is lost.
    async fn lost(&self) {
        while self.lost_for().is_none() {
            tokio::time::sleep(LOST_POLL).await;
        }
    }

    /// Returns how versions of files are told apart, unless the server tells too little for that.
    pub(super) fn versioning(&self) -> Option<Versioning> {
        if self.is_versionless.load(Ordering::Acquire) {
            return None;
        }
        Some(Versioning {
            now: self.tree.share.client().server_time()?,
            settle: SETTLE,
            memory: self.options.data_timeout.max(self.options.cache_timeout) + MEMORY_SLACK,
            writes_at_once: false,
        })
    }

    /// Returns the time since the store was opened.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns how long a reply that has just come is valid.
    pub(super) fn validity(&self) -> Validity {
        Validity {
            until: self.now() + self.options.cache_timeout,
            lease: None,
        }
    }

    /// Returns the distance to read ahead: twice what the connections allow in flight, which follow
    /// bandwidth and delay of the line.
    pub(super) fn window_max(&self) -> u64 {
        let client = self.tree.share.client();
        // 12 MB fill 622 Mbit/s over 75 ms. On a short line less is in flight anyway.
        let least = if client.is_far() { 16 << 20 } else { 4 << 20 };
        let wanted = client.info().window.saturating_mul(2).max(least);
        wanted.min(self.options.read_ahead_max)
    }

    /// Notes a change of a node, before it is made and after it.
    pub(super) fn changed(&self, path: &RelPath) {
        self.note_own(path);
        self.give_up_ahead(path);
        self.top.changed(path);
        self.cache.lock().changed(path);
    }

    /// Notes a change of a file's content or attributes, under all its names.
    pub(super) fn changed_file(&self, file: &SharedFile) {
        for path in file.names() {
            self.note_own(&path);
            self.give_up_ahead(&path);
            self.top.changed_attributes(&path);
            self.cache.lock().changed_attributes(&path);
        }
        self.cache.lock().changed_file(file.id);
    }

    /// Notes a change of a node and of all beneath it.
    pub(super) fn changed_below(&self, path: &RelPath) {
        self.note_own(path);
        self.give_up_ahead(path);
        self.top.changed(path);
        self.cache.lock().changed_below(path);
    }

    pub(super) fn note_own(&self, path: &RelPath) {
        if self.watches.is_any() {
            self.own.lock().note(path, self.now());
        }
    }

    /// Notes that the unflushed bytes of a file changed.
    pub(super) fn account(&self, before: u64, now: u64) {
        if now > before {
            self.unflushed.fetch_add(now - before, Ordering::AcqRel);
        } else if now < before {
            self.unflushed.fetch_sub(before - now, Ordering::AcqRel);
            self.room.notify_waiters();
        }
    }

    /// Whether more than half of the memory for unflushed data is in use, or a writer waits for it.
    pub(super) fn is_filling(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
            || self.unflushed.load(Ordering::Acquire) > self.options.write_buffer_max / 2
    }

    /// Whether `length` more bytes may be kept now.
    pub(super) fn has_room(&self, length: u64) -> bool {
        let used = self.unflushed.load(Ordering::Acquire);
        used == 0 || used + length <= self.options.write_buffer_max
    }

    /// Keeps an error that nobody is left to receive. The next [`sync`](Self::sync) returns it.
    pub(super) fn keep_error(&self, error: Error) {
        tracing::error!(%error, "written data was lost");
        self.lost.lock().get_or_insert(error);
    }

    /// Makes everything durable.
    pub(super) async fn sync(&self) -> Result<()> {
        let mut files = self.files.all();
        // What has no name any more is not looked for after a crash.
        files.retain(|file| file.is_lasting());
        let synced = join_all(files.iter().map(|file| file.sync())).await;
        // First, since a later call would report it again otherwise.
        if let Some(error) = self.lost.lock().take() {
            return Err(error);
        }
        synced.into_iter().collect::<Result<()>>()?;
        self.tree.sync().await?;
        match self.lost.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Flushes in the background once many files wait for it, and makes the caller wait once there
    /// are very many, so that all can be remembered.
    pub(super) async fn limit_unflushed_files(self: &Arc<Self>) {
        let files = self.tree.dirty.len();
        if files < FLUSH_FILES_FROM || (files < WAIT_FILES_FROM && self.is_syncing.load(Ordering::Acquire)) {
            return;
        }
        let this = Arc::clone(self);
        let syncing = async move {
            // Several callers may wait; one flushes.
            let _one = this.sync_files.lock().await;
            if this.tree.dirty.len() < FLUSH_FILES_FROM {
                return;
            }
            this.is_syncing.store(true, Ordering::Release);
            match this.tree.sync().await {
                // The files are still remembered, and flushed again by the next `sync`.
                Err(error) if error.verdict() == Verdict::Retry => {
                    tracing::warn!(%error, "written files could not be flushed in the background");
                }
                Err(error) => this.keep_error(error),
                Ok(()) => {}
            }
            this.is_syncing.store(false, Ordering::Release);
        };
        if files < WAIT_FILES_FROM {
            self.spawn(syncing);
        } else {
            syncing.await;
        }
    }

    /// Waits until `length` more bytes may be kept. Files flush meanwhile.
    ///
    /// # Errors
    /// `Unreachable` if no data could be flushed for twice the client's time limit.
    pub(super) async fn make_room(&self, length: u64, path: &RelPath) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let found = self.wait_for_room(length, path).await;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        found
    }

    async fn wait_for_room(&self, length: u64, path: &RelPath) -> Result<()> {
        let limit = self.tree.share.client().link().options.timeout * 2;
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Registered before the check, so that no notice is missed.
            room.as_mut().enable();
            if self.has_room(length) {
                return Ok(());
            }
            for file in self.files.all() {
                file.flush_soon();
            }
            if tokio::time::timeout(limit, room).await.is_err() {
                return Err(Error::new(Op::Write, path, ErrorKind::Unreachable));
            }
        }
    }
}
