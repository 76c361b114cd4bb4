//! The modelled slow device: a FUSE file system whose writes take as long as the model says.
//!
//! The kernel keeps written pages in its page cache (`FUSE_WRITEBACK_CACHE`) and writes them back as to
//! a stick; contents are kept in memory, which is never written back itself. One request is served at a
//! time, as by the one channel of a stick. It runs in a process of its own, which ends with the lab: a
//! process that waits for its own file system could never end.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use ropeway_vfs::decorate::slow::DeviceModel;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

/// Time for which the kernel may trust names and attributes: nobody else changes them.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Largest write of one request in bytes.
const REQUEST_BYTES: u32 = 1 << 20;
/// Threads that take requests; all wait for the one channel.
const THREADS: usize = 2;
/// Most files.
const FILES_MAX: usize = 64;
/// Room that the file system claims to have.
const ROOM_BYTES: u64 = 64 << 30;
/// Interval of reports.
const REPORT_EVERY: Duration = Duration::from_millis(10);
/// Longest time until the mount is there.
const START_MAX: Duration = Duration::from_secs(10);

/// What the worker is asked to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// Empty folder to mount on.
    mount_point: PathBuf,
    /// Times of the device: see [`DeviceModel`].
    seek: Duration,
    write_bytes_per_s: u64,
    read_bytes_per_s: u64,
}

/// Serves a modelled device until standard input ends.
///
/// # Errors
/// The task is not one, or cannot be mounted.
pub fn work(task: &str) -> io::Result<()> {
    let task: Task = serde_json::from_str(task)?;
    let taken = Arc::new(AtomicU64::new(0));
    let stick = Stick {
        channel: Mutex::new(Channel::default()),
        taken: Arc::clone(&taken),
        files: Mutex::new(Files::default()),
        task: task.clone(),
    };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("modelled-stick".into())];
    config.n_threads = Some(THREADS);
    let session = Session::new(stick, &task.mount_point, &config)?;
    let mount_point = task.mount_point.clone();
    thread::Builder::new().name("end".to_owned()).spawn(move || {
        // The lab holds the other end, and closes it at the latest when it ends.
        _ = io::stdin().read(&mut [0]);
        _ = unmount(&mount_point, UnmountFlags::DETACH);
    })?;
    thread::Builder::new().name("report".to_owned()).spawn(move || {
        let mut out = io::stdout().lock();
        while writeln!(out, "{}", taken.load(Ordering::Relaxed))
            .and_then(|()| out.flush())
            .is_ok()
        {
            thread::sleep(REPORT_EVERY);
        }
    })?;
    session.run()
}

/// A mounted modelled device. Unmounted on drop.
pub(super) struct Mounted {
    child: Child,
    mount_point: PathBuf,
    taken: Arc<AtomicU64>,
}

impl Mounted {
    /// Mounts a device on an empty folder. `program` is this one.
    ///
    /// # Errors
    /// The worker does not start, or cannot mount.
    pub(super) fn new(program: &Path, mount_point: &Path, model: &DeviceModel) -> io::Result<Self> {
        let task = Task {
            mount_point: mount_point.to_owned(),
            seek: model.seek,
            write_bytes_per_s: model.write_bytes_per_s,
            read_bytes_per_s: model.read_bytes_per_s,
        };
        let mut child = Command::new(program)
            .args(["lab", "dirty-worker"])
            .arg(serde_json::to_string(&task)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let taken = Arc::new(AtomicU64::new(0));
        if let Some(out) = child.stdout.take() {
            let taken = Arc::clone(&taken);
            thread::Builder::new().name("taken".to_owned()).spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    taken.store(line.parse().unwrap_or(0), Ordering::Relaxed);
                }
            })?;
        }
        let mut mounted = Self {
            child,
            mount_point: mount_point.to_owned(),
            taken,
        };
        mounted.wait_for_mount()?;
        Ok(mounted)
    }

    fn wait_for_mount(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let device = |path: &Path| rustix::fs::stat(path).map(|node| node.st_dev);
        let above = self.mount_point.parent().map(device);
        while begun.elapsed() < START_MAX {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the modelled device ended: {status}")));
            }
            if let (Ok(own), Some(Ok(above))) = (device(&self.mount_point), above)
                && own != above
            {
                return Ok(());
            }
            thread::sleep(REPORT_EVERY);
        }
        Err(io::Error::other("the modelled device was not mounted in time"))
    }

    /// Returns the bytes that the device has taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Ends the worker's wait, which unmounts.
        drop(self.child.stdin.take());
        _ = self.child.wait();
        // Ctrl-C in a terminal has ended the worker too, and left the mount.
        _ = unmount(&self.mount_point, UnmountFlags::DETACH);
    }
}

/// The one channel of the device.
#[derive(Debug, Default)]
struct Channel {
    /// Where the last access ended.
    head: Option<(u64, u64)>,
}

/// The files: contents in memory, and sizes.
#[derive(Debug, Default)]
struct Files {
    names: BTreeMap<OsString, u64>,
    nodes: BTreeMap<u64, Node>,
    last: u64,
}

#[derive(Debug)]
struct Node {
    content: Arc<File>,
    size: u64,
    modified: SystemTime,
}

struct Stick {
    channel: Mutex<Channel>,
    taken: Arc<AtomicU64>,
    files: Mutex<Files>,
    task: Task,
}

impl Stick {
    /// Lets an access take its time on the one channel.
    fn serve<T>(&self, node: u64, offset: u64, bytes: usize, rate: u64, access: impl FnOnce() -> T) -> T {
        let mut channel = self.channel.lock();
        let begun = Instant::now();
        let mut time = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        if channel.head != Some((node, offset)) {
            time += self.task.seek;
        }
        let done = access();
        channel.head = Some((node, offset.saturating_add(bytes as u64)));
        thread::sleep(time.saturating_sub(begun.elapsed()));
        done
    }

    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let files = self.files.lock();
        let found = files.nodes.get(&node.0);
        if found.is_none() && node != INodeNo::ROOT {
            return None;
        }
        let (size, modified) = found.map_or((0, SystemTime::UNIX_EPOCH), |node| (node.size, node.modified));
        let kind = match found {
            Some(_) => FileType::RegularFile,
            None => FileType::Directory,
        };
        Some(FileAttr {
            ino: node,
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: modified,
            kind,
            perm: if found.is_some() { 0o644 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn content(&self, node: INodeNo) -> Option<Arc<File>> {
        self.files
            .lock()
            .nodes
            .get(&node.0)
            .map(|node| Arc::clone(&node.content))
    }

    fn make(&self, name: &OsStr) -> Result<FileAttr, Errno> {
        let mut files = self.files.lock();
        if files.nodes.len() >= FILES_MAX {
            return Err(Errno::ENOSPC);
        }
        let content = memfd_create("modelled-stick", MemfdFlags::CLOEXEC).map_err(|_| Errno::ENOMEM)?;
        files.last = files.last.max(INodeNo::ROOT.0) + 1;
        let number = files.last;
        let node = Node {
            content: Arc::new(File::from(content)),
            size: 0,
            modified: SystemTime::now(),
        };
        files.nodes.insert(number, node);
        files.names.insert(name.to_owned(), number);
        drop(files);
        self.attributes(INodeNo(number)).ok_or(Errno::EIO)
    }
}

impl Filesystem for Stick {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_WRITEBACK_CACHE;
        config
            .add_capabilities(wanted)
            .map_err(|_| io::Error::other("this kernel has no write-back cache for FUSE"))?;
        _ = config.set_max_write(REQUEST_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = self.files.lock().names.get(name).copied();
        match number.and_then(|number| self.attributes(INodeNo(number))) {
            Some(attributes) => reply.entry(&LIFETIME, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(attributes) => reply.attr(&LIFETIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size
            && let Some(found) = self.files.lock().nodes.get_mut(&node.0)
        {
            found.size = size;
            _ = found.content.set_len(size);
        }
        match self.attributes(node) {
            Some(attributes) => reply.attr(&LIFETIME, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut files = self.files.lock();
        match files.names.remove(name) {
            Some(number) => {
                files.nodes.remove(&number);
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.make(name) {
            Ok(attributes) => {
                reply.created(
                    &LIFETIME,
                    &attributes,
                    Generation(0),
                    FileHandle(0),
                    FopenFlags::FOPEN_KEEP_CACHE,
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(content) = self.content(node) else {
            return reply.error(Errno::ENOENT);
        };
        let mut buffer = vec![0; size as usize];
        let rate = self.task.read_bytes_per_s;
        match self.serve(node.0, offset, buffer.len(), rate, || {
            content.read_at(&mut buffer, offset)
        }) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(content) = self.content(node) else {
            return reply.error(Errno::ENOENT);
        };
        let rate = self.task.write_bytes_per_s;
        let written = self.serve(node.0, offset, data.len(), rate, || {
            content.write_all_at(data, offset)
        });
        if let Err(error) = written {
            return reply.error(error.into());
        }
        if let Some(found) = self.files.lock().nodes.get_mut(&node.0) {
            found.size = found.size.max(offset + data.len() as u64);
        }
        self.taken.fetch_add(data.len() as u64, Ordering::Relaxed);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let files = self.files.lock();
        let own = [
            (OsStr::new("."), INodeNo::ROOT.0),
            (OsStr::new(".."), INodeNo::ROOT.0),
        ];
        let named = files
            .names
            .iter()
            .map(|(name, number)| (name.as_os_str(), *number));
        for (index, (name, number)) in own.into_iter().chain(named).enumerate().skip(offset as usize) {
            let kind = match number == INodeNo::ROOT.0 {
                true => FileType::Directory,
                false => FileType::RegularFile,
            };
            if reply.add(INodeNo(number), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = ROOM_BYTES / 4096;
        reply.statfs(
            blocks,
            blocks,
            blocks,
            FILES_MAX as u64,
            FILES_MAX as u64,
            4096,
            255,
            4096,
        );
    }
}
