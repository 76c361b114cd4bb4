//! A mount from its beginning to its end.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{Config, MountOption, Session, SessionACL};
use ropeway_vfs::store::Store;

use crate::attach;
use crate::fs::Fs;
use crate::fuse::Fuse;
use crate::mountpoint;
use crate::reader::PageReader;
use crate::uses::SharedObserver;
use crate::view::View;

/// What the kernel reads ahead of a program that reads in order, in bytes: four of the largest
/// requests, so that a store has several at once. From a cache on a disk (`--boost`) 256 MiB took
/// 0.45 s so, and 0.65 s with one.
const READ_AHEAD_BYTES: u32 = 4 << 20;

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Name of the source for `mount` and `df`.
    pub source: String,
    /// Whether nothing can be changed through the mount.
    pub read_only: bool,
    /// Whether other users may use the mount; the kernel checks modes and ACLs then as always.
    pub allow_other: bool,
    /// Owner and mode to show.
    pub view: View,
    /// Whether to mount on a folder that is not empty, or a mount point already.
    pub nonempty: bool,
    /// Threads that answer requests; each may wait for the store. A store on a network deserves as many
    /// as it can have requests under way.
    pub threads: usize,
    /// Whether the kernel may read and write files of a local disk by itself (Linux 6.9, root).
    pub passthrough: bool,
    /// Whether `close` returns before the store has everything. The store keeps the error of a write
    /// that fails then, and reports it at the end of the mount.
    pub late_close: bool,
    /// Options of the kernel, as in mount(8): `noatime`, `nodev`, `noexec`, `nosuid`, `sync`,
    /// `dirsync` and their opposites.
    pub kernel: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "ropeway".into(),
            read_only: false,
            allow_other: false,
            view: View::default(),
            nonempty: false,
            threads: default_threads(),
            passthrough: true,
            late_close: false,
            kernel: Vec::new(),
        }
    }
}

/// Two threads for each core, since each may wait for a disk. With more of them than needed, one
/// stream of writes is slower: each request lands in another thread's cold buffer (`cp` of 1 GiB on
/// two cores: 1.6 s with 4, 1.9 s with 16).
fn default_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    (2 * cores).clamp(4, 16)
}

/// A mount that did not come about.
#[derive(Debug)]
pub enum MountError {
    /// The mount point does not exist.
    Missing(PathBuf),
    /// The mount point is no folder.
    NoFolder(PathBuf),
    /// The mount point is not empty.
    NotEmpty(PathBuf),
    /// Something is mounted there.
    Busy(PathBuf),
    /// A mount is there whose process is dead.
    Stale(PathBuf),
    /// This kernel or container has no FUSE.
    NoFuse,
    /// Only root may let other users in, unless /etc/fuse.conf allows it.
    OthersRefused,
    /// The store's root cannot be read.
    Store(ropeway_vfs::Error),
    /// Anything else.
    Failed(PathBuf, io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |f: &mut fmt::Formatter<'_>, path: &Path, what: &str| {
            write!(f, "cannot mount on {}: {what}", path.display())
        };
        match self {
            Self::Missing(path) => at(f, path, "no such folder"),
            Self::NoFolder(path) => at(f, path, "not a folder"),
            Self::NotEmpty(path) => at(f, path, "the folder is not empty"),
            Self::Busy(path) => at(f, path, "something is mounted there already"),
            Self::Stale(path) => at(f, path, "a mount is there whose process is dead"),
            Self::NoFuse => f.write_str("cannot mount: there is no /dev/fuse"),
            Self::OthersRefused => f.write_str("cannot let other users use the mount: not allowed"),
            Self::Store(error) => write!(f, "{error}"),
            Self::Failed(path, error) => at(f, path, &error.to_string()),
        }
    }
}

impl std::error::Error for MountError {}

impl MountError {
    /// Returns what the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing(path) => Some(format!("make it: mkdir {}", path.display())),
            Self::NotEmpty(_) => Some("choose an empty folder, or hide its files with -o nonempty".into()),
            Self::Busy(path) => {
                let path = path.display();
                Some(format!(
                    "unmount it: umount {path} (or fusermount3 -u {path}); -o nonempty mounts over it"
                ))
            }
            Self::Stale(path) => Some(format!("remove it: fusermount3 -u {}", path.display())),
            Self::NoFuse => {
                Some("load the module with `modprobe fuse`; a container needs --device /dev/fuse".into())
            }
            Self::OthersRefused => Some("write the line user_allow_other into /etc/fuse.conf".into()),
            Self::Failed(_, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Some("mount as root, or let this user open /dev/fuse and write to the folder".into())
            }
            Self::NoFolder(_) | Self::Store(_) | Self::Failed(..) => None,
        }
    }
}

/// A store that is mounted. Requests wait until [`Self::run`] is called.
pub struct Mounted {
    session: Session<Fuse>,
    fs: Arc<Fs>,
    path: PathBuf,
    device: String,
    has_ended: Arc<AtomicBool>,
}

/// What a mount has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Requests of the kernel.
    pub requests: u64,
    /// Those of each kind: `read`, `write`, `open`, …
    pub by_kind: Vec<(&'static str, u64)>,
    /// Bytes that the kernel read through this process.
    pub bytes_read: u64,
    /// Bytes that the kernel wrote through this process.
    pub bytes_written: u64,
    /// Files open now.
    pub open_files: usize,
    /// Bytes written and not made durable since.
    pub dirty: u64,
}

/// Ends a mount from another thread.
#[derive(Clone)]
pub struct Unmounter {
    fs: Arc<Fs>,
    path: PathBuf,
    device: String,
    has_ended: Arc<AtomicBool>,
}

impl Mounted {
    /// Mounts a store on a folder.
    ///
    /// # Errors
    /// The folder cannot be mounted on, or the kernel refuses.
    pub fn new(store: Arc<dyn Store>, path: &Path, options: &MountOptions) -> Result<Self, MountError> {
        Self::observed(store, path, options, None)
    }

    /// Mounts a store on a folder, with an observer who hears what programs open and read. Then no file
    /// passes through: its reads would not be heard.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn observed(
        store: Arc<dyn Store>,
        path: &Path,
        options: &MountOptions,
        observer: Option<SharedObserver>,
    ) -> Result<Self, MountError> {
        let whole = mountpoint::check(path, options.nonempty)?;
        let is_read_only = options.read_only || store.features().read_only;
        let mut fs = Fs::new(store, options.view).map_err(MountError::Store)?;
        fs.closes_late = options.late_close;
        let passthrough = options.passthrough && observer.is_none();
        fs.observer = observer;
        let fs = Arc::new(fs);
        let config = config(options, is_read_only);
        let attached = attach::attach(&whole, options, is_read_only);
        let fuse = Fuse::new(Arc::clone(&fs), passthrough);
        let session = match attached.map_err(|error| refused(&whole, error))? {
            Some(device) => {
                let session = Session::from_fd(fuse, device, config.acl, config);
                session.inspect_err(|_| drop(mountpoint::unmount(&whole, true)))
            }
            None => Session::new(fuse, &whole, &config),
        };
        let session = session.map_err(|error| refused(&whole, error))?;
        mountpoint::set_read_ahead(&whole, READ_AHEAD_BYTES);
        let device = mountpoint::mounted_on(&whole)
            .map(|line| line.device)
            .unwrap_or_default();
        Ok(Self {
            session,
            fs,
            path: whole,
            device,
            has_ended: Arc::default(),
        })
    }

    /// Returns the mount point, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the device number of the mount, `0:57`.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns a reader of the mount's files, whose reads no observer hears. `program` is this one: it
    /// calls [`reader`](crate::reader) first.
    pub fn pages(&self, program: &Path) -> PageReader {
        PageReader::new(program, &self.path, &self.device, Arc::clone(&self.fs.reader))
    }

    /// Returns a handle to end the mount.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter {
            fs: Arc::clone(&self.fs),
            path: self.path.clone(),
            device: self.device.clone(),
            has_ended: Arc::clone(&self.has_ended),
        }
    }

    /// Answers requests until the mount ends.
    ///
    /// # Errors
    /// The connection to the kernel failed.
    pub fn run(self) -> io::Result<()> {
        let ended = self.session.run();
        self.has_ended.store(true, Ordering::Release);
        ended
    }
}

impl Unmounter {
    /// Unmounts if no file is open. Does nothing once the mount has ended: another one may be in its
    /// place.
    ///
    /// # Errors
    /// EBUSY while files are open.
    pub fn unmount(&self) -> io::Result<()> {
        match self.has_ended.load(Ordering::Acquire) {
            true => Ok(()),
            false => mountpoint::unmount(&self.path, false),
        }
    }

    /// Takes the mount away from its place while files are open. Writes to them fail from now on.
    pub fn detach(&self) {
        self.fs.end();
        match self.has_ended.load(Ordering::Acquire) {
            true => mountpoint::detach_dead(&self.path, &self.device),
            false => mountpoint::detach(&self.path, &self.device),
        }
    }

    /// Makes everything durable; returns how many bytes were not.
    ///
    /// # Errors
    /// Write-back failed.
    pub fn flush(&self) -> ropeway_vfs::Result<u64> {
        self.fs.sync_all()
    }

    /// Returns what the mount has done.
    pub fn counters(&self) -> Counters {
        let (bytes_read, bytes_written) = self.fs.bytes();
        Counters {
            by_kind: self.fs.requests_by_kind().collect(),
            bytes_read,
            bytes_written,
            requests: self.fs.requests(),
            open_files: self.fs.open_files(),
            dirty: self.fs.dirty(),
        }
    }
}

fn config(options: &MountOptions, is_read_only: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.replace(',', "\\,")),
        MountOption::Subtype("ropeway".into()),
        // The kernel checks modes, owners and ACLs: the store does not know who asks.
        MountOption::DefaultPermissions,
        if is_read_only {
            MountOption::RO
        } else {
            MountOption::RW
        },
    ];
    config
        .mount_options
        .extend(options.kernel.iter().filter_map(|name| kernel_option(name)));
    config.acl = match options.allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

fn kernel_option(name: &str) -> Option<MountOption> {
    Some(match name {
        "dev" => MountOption::Dev,
        "nodev" => MountOption::NoDev,
        "suid" => MountOption::Suid,
        "nosuid" => MountOption::NoSuid,
        "exec" => MountOption::Exec,
        "noexec" => MountOption::NoExec,
        "atime" => MountOption::Atime,
        "noatime" => MountOption::NoAtime,
        "sync" => MountOption::Sync,
        "async" => MountOption::Async,
        "dirsync" => MountOption::DirSync,
        _ => return None,
    })
}

fn refused(path: &Path, error: io::Error) -> MountError {
    let text = error.to_string();
    if text.contains("user_allow_other") {
        return MountError::OthersRefused;
    }
    if !Path::new("/dev/fuse").exists() {
        return MountError::NoFuse;
    }
    // fusermount3 explains on several lines.
    let line = text.lines().next().unwrap_or_default().trim();
    let line = line.strip_prefix("fusermount3: ").unwrap_or(line).to_owned();
    MountError::Failed(path.into(), io::Error::new(error.kind(), line))
}
