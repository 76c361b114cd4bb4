//! The modelled disk: a real folder whose files are read as slowly as the model says. It does one thing at a
//! time, and a read that does not continue where the last one ended costs a seek.

use std::any::Any;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_local::{LocalStore, StoreOptions};
use ropeway_mount::{MountOptions, Mounted, Unmounter};
use ropeway_vfs::store::{
    Access, Entries, Node, NodeChange, NodeOpen, NodeStat, Opened, Removal, Store, StoreFeatures, StreamInfo,
    StreamOpen, Versioning,
};
use ropeway_vfs::tree::{Extent, Space};
use ropeway_vfs::{Error, ErrorKind, FileId, Name, Op, RelPath, Result, Timestamp, Xattr};
use rustix::fs::{Advice, fadvise};

/// What the kernel reads ahead on a [`MountedDisk`], in KiB: its default for disks.
const READ_AHEAD_KIB: u32 = 128;

/// The times of a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskTimes {
    /// Bytes a second in sequence.
    pub bytes_per_s: f64,
    /// Shortest and longest seek.
    pub seek: (Duration, Duration),
}

pub(crate) fn seconds(bytes: usize, rate: f64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / rate)
}

/// What a modelled device did.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    reads: AtomicU64,
    micros: AtomicU64,
}

impl Busy {
    pub(crate) fn add(&self, time: Duration) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the reads so far, and the seconds that they took.
    pub(crate) fn so_far(&self) -> (u64, f64) {
        let micros = self.micros.load(Ordering::Relaxed);
        (self.reads.load(Ordering::Relaxed), micros as f64 / 1e6)
    }
}

/// Where the arm is: behind the last byte of the last read.
struct Arm {
    at: (FileId, u64),
    random: fastrand::Rng,
}

/// The arm and what it did; nothing takes time while the model is off.
pub(crate) struct Disk {
    times: DiskTimes,
    is_on: Arc<AtomicBool>,
    arm: Mutex<Arm>,
    pub(crate) busy: Busy,
}

impl Disk {
    pub(crate) fn new(times: DiskTimes, is_on: &Arc<AtomicBool>, seed: u64) -> Arc<Self> {
        let nowhere = FileId {
            volume: u64::MAX,
            index: u64::MAX,
        };
        Arc::new(Self {
            times,
            is_on: Arc::clone(is_on),
            arm: Mutex::new(Arm {
                at: (nowhere, 0),
                random: fastrand::Rng::with_seed(seed),
            }),
            busy: Busy::default(),
        })
    }

    /// Reads by `read`, which takes as long as on the modelled disk.
    fn read(&self, file: FileId, offset: u64, read: impl FnOnce() -> Result<usize>) -> Result<usize> {
        if !self.is_on.load(Ordering::Relaxed) {
            return read();
        }
        let mut arm = self.arm.lock();
        let start = Instant::now();
        let count = read()?;
        let mut time = seconds(count, self.times.bytes_per_s);
        if arm.at != (file, offset) {
            let (least, most) = self.times.seek;
            time += least + (most - least).mul_f64(arm.random.f64());
        }
        arm.at = (file, offset + count as u64);
        std::thread::sleep(time.saturating_sub(start.elapsed()));
        self.busy.add(start.elapsed());
        Ok(count)
    }
}

/// A local folder as a modelled disk that can only be read.
pub(crate) struct DiskStore {
    inner: Arc<dyn Store>,
    disk: Arc<Disk>,
}

impl DiskStore {
    pub(crate) fn new(inner: Arc<dyn Store>, disk: Arc<Disk>) -> Self {
        Self { inner, disk }
    }

    fn wrapped(&self, opened: Opened) -> Opened {
        let node = DiskNode {
            id: opened.stat.id,
            inner: opened.node,
            disk: Arc::clone(&self.disk),
        };
        Opened {
            node: Arc::new(node),
            ..opened
        }
    }
}

fn refused<T>(op: Op, path: &RelPath) -> Result<T> {
    Err(Error::new(op, path, ErrorKind::ReadOnly))
}

impl Store for DiskStore {
    fn features(&self) -> &StoreFeatures {
        self.inner.features()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        self.inner.resolve(path)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        self.inner.open(path, how).map(|opened| self.wrapped(opened))
    }

    fn open_itself(&self, path: &RelPath, access: Access) -> Result<Opened> {
        let opened = self.inner.open_itself(path, access)?;
        Ok(self.wrapped(opened))
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        self.inner.look(path)
    }

    /// No file changes while the lab runs, so the minute is not waited for after which a local store
    /// trusts a file's time.
    fn versioning(&self) -> Option<Versioning> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        Some(Versioning {
            now: Timestamp::from_unix(
                i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
                now.subsec_nanos(),
            ),
            settle: Duration::from_millis(10),
            memory: Duration::ZERO,
            writes_at_once: true,
        })
    }

    fn may_have_xattrs(&self) -> bool {
        false
    }

    fn remove(&self, path: &RelPath, _: bool) -> Result<()> {
        refused(Op::Remove, path)
    }

    fn remove_node(&self, _: FileId, path: &RelPath, _: Removal) -> Result<()> {
        refused(Op::Remove, path)
    }

    fn rename(&self, from: &RelPath, _: &RelPath, _: bool) -> Result<()> {
        refused(Op::Rename, from)
    }

    fn rename_node(&self, _: FileId, from: &RelPath, _: &RelPath, _: bool) -> Result<()> {
        refused(Op::Rename, from)
    }

    fn link_node(&self, _: &dyn Node, to: &RelPath, _: bool) -> Result<()> {
        refused(Op::Link, to)
    }

    fn link(&self, from: &RelPath, _: &RelPath, _: bool) -> Result<()> {
        refused(Op::Link, from)
    }

    fn symlink(&self, path: &RelPath, _: &[u8]) -> Result<()> {
        refused(Op::Create, path)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// A node of a [`DiskStore`].
struct DiskNode {
    id: FileId,
    inner: Arc<dyn Node>,
    disk: Arc<Disk>,
}

impl DiskNode {
    fn refused<T>(&self, op: Op) -> Result<T> {
        refused(op, &RelPath::root())
    }
}

impl Node for DiskNode {
    fn access(&self) -> Access {
        self.inner.access()
    }

    fn stat(&self) -> Result<NodeStat> {
        self.inner.stat()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let count = self
            .disk
            .read(self.id, offset, || self.inner.read_at(buffer, offset));
        if let Some(descriptor) = self.inner.content_descriptor() {
            // The page cache of the mount is the one of the experiment, not the one behind it.
            let _ = fadvise(&*descriptor, 0, None, Advice::DontNeed);
        }
        count
    }

    fn read_cached(&self, _: &mut [u8], _: u64) -> Result<Option<usize>> {
        Ok(None)
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        self.inner.extents(offset, length, max)
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        self.inner.entries()
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.inner.link_target()
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        Ok(Vec::new())
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        Ok(Vec::new())
    }

    fn write_out(&self) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn change(&self, _: &NodeChange) -> Result<()> {
        self.refused(Op::SetAttributes)
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        self.refused(Op::Write)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        self.refused(Op::SetLength)
    }

    fn allocate(&self, _: u64) -> Result<()> {
        self.refused(Op::SetLength)
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> Result<()> {
        self.refused(Op::Write)
    }

    fn copy_from(&self, _: &dyn Node, _: u64, _: u64, _: u64) -> Result<u64> {
        self.refused(Op::Write)
    }

    fn open_stream(&self, _: &Name, _: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        self.refused(Op::Open)
    }

    fn remove_stream(&self, _: &Name) -> Result<()> {
        self.refused(Op::Remove)
    }

    fn rename_stream(&self, _: &Name, _: &Name, _: bool) -> Result<()> {
        self.refused(Op::Rename)
    }

    fn set_security(&self, _: &[u8]) -> Result<()> {
        self.refused(Op::SetAttributes)
    }

    fn set_ea(&self, _: &[u8], _: &[u8]) -> Result<()> {
        self.refused(Op::SetAttributes)
    }
}

/// A mount of a folder as a modelled disk that can only be read, until it is dropped. The process that has it
/// must not use its files: it would wait for itself.
pub struct MountedDisk {
    at: PathBuf,
    unmounter: Unmounter,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl MountedDisk {
    /// Mounts `folder` on the empty folder `at`.
    ///
    /// # Errors
    /// The folder cannot be opened, or nothing can be mounted here.
    pub fn start(folder: &Path, at: &Path, times: DiskTimes) -> io::Result<Self> {
        let local = LocalStore::open(folder, &StoreOptions::default()).map_err(io::Error::other)?;
        let disk = Disk::new(times, &Arc::new(AtomicBool::new(true)), 1);
        let store = Arc::new(DiskStore::new(Arc::new(local), disk));
        let options = MountOptions {
            source: "ropeway lab".to_owned(),
            read_only: true,
            passthrough: false,
            // In the order of the requests: of two threads the later request may come first, and cost a seek.
            threads: 1,
            ..MountOptions::default()
        };
        let mounted =
            Mounted::new(store, at, &options).map_err(|error| io::Error::other(error.to_string()))?;
        let ahead = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device());
        fs::write(ahead, READ_AHEAD_KIB.to_string())?;
        let unmounter = mounted.unmounter();
        let thread = std::thread::Builder::new().spawn(move || mounted.run())?;
        Ok(Self {
            at: at.to_owned(),
            unmounter,
            thread: Some(thread),
        })
    }
}

impl Drop for MountedDisk {
    fn drop(&mut self) {
        if self.unmounter.unmount().is_err() {
            self.unmounter.detach();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for MountedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountedDisk")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
