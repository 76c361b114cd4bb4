//! The folder with the sockets of a user's processes.
//!
//! It is `ropeway` in `$XDG_RUNTIME_DIR`, else in `/run/user/UID`, else `ropeway-UID` in the folder for
//! temporary files. It must belong to the user and be closed to others; a folder that is not is
//! refused, never repaired. Everything happens relative to a descriptor of the checked folder, so that
//! nobody can put another one in its place.
//!
//! A socket without a process behind it is removed by whoever finds it. A connection that is refused
//! shows that nobody listens; the number in its name does not, since the kernel uses numbers again. A
//! lock on the folder keeps a socket that is just being made from being taken for a dead one.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, chmodat, flock, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use rustix::process::{Pid, geteuid, test_kill_process};

/// Name of the folder below the user's runtime folder.
const NAME: &str = "ropeway";
/// Connections that wait to be accepted: several views at once (a guess).
const BACKLOG: i32 = 16;
/// Most sockets that are looked at in one folder (a guess: more processes than a machine runs).
const SOCKETS_MAX: usize = 1024;
/// Sockets of one process number: processes of several PID namespaces may share the folder.
const SAME_PID_MAX: u32 = 16;
/// Tries to lock the folder, and the time between them. Whoever holds the lock needs a millisecond,
/// unless it is stopped.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It is somebody else's, or open to others.
    #[error("{} {what}", path.display())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system refuses.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A checked folder with sockets.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    uid: u32,
}

/// A socket that this process listens on. Removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    folder: Folder,
    name: String,
    /// Device and number of its file, to remove no other.
    identity: (u64, u64),
}

/// What came of an attempt to connect.
#[derive(Debug)]
pub enum Connected {
    /// A process listens, and it is the owner's.
    Yes(UnixStream),
    /// Nobody listens: the socket was removed.
    Stale,
    /// It cannot be reached; the text says why.
    No(String),
}

/// Returns where this process makes its socket: the first place whose parent exists and is the user's.
pub fn own_path() -> PathBuf {
    let uid = geteuid().as_raw();
    let is_own = |path: &PathBuf| {
        let metadata = std::fs::symlink_metadata(path);
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid)
    };
    match runtime_parents(uid).into_iter().find(is_own) {
        Some(parent) => parent.join(NAME),
        None => temporary(uid),
    }
}

/// Returns all places where sockets of this user may be.
pub fn own_paths() -> Vec<PathBuf> {
    let uid = geteuid().as_raw();
    let mut paths: Vec<PathBuf> = runtime_parents(uid)
        .into_iter()
        .map(|parent| parent.join(NAME))
        .collect();
    paths.push(temporary(uid));
    paths.push(Path::new("/tmp").join(format!("{NAME}-{uid}")));
    let mut unique = Vec::new();
    for path in paths {
        if !unique.contains(&path) {
            unique.push(path);
        }
    }
    unique
}

/// Returns all places where sockets of any user may be, for root.
pub fn all_paths() -> Vec<PathBuf> {
    let mut paths = own_paths();
    let below = |folder: &str, add: &mut dyn FnMut(PathBuf)| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.take(SOCKETS_MAX).for_each(|entry| add(entry.path()));
    };
    // Services have runtime folders in /run, users in /run/user.
    for folder in ["/run/user", "/run"] {
        below(folder, &mut |path| paths.push(path.join(NAME)));
    }
    let temporary = std::env::temp_dir();
    let mut of_users = |path: PathBuf| {
        let prefix = format!("{NAME}-");
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name
            .strip_prefix(&prefix)
            .is_some_and(|uid| uid.parse::<u32>().is_ok())
        {
            paths.push(path);
        }
    };
    below("/tmp", &mut of_users);
    below(&temporary.to_string_lossy(), &mut of_users);
    paths.sort();
    paths.dedup();
    paths.retain(|path| std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()));
    paths
}

fn runtime_parents(uid: u32) -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let given = given.filter(|path| path.is_absolute());
    given
        .into_iter()
        .chain([Path::new("/run/user").join(uid.to_string())])
        .collect()
}

fn temporary(uid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{NAME}-{uid}"))
}

impl Folder {
    /// Opens a folder with sockets. `of` is the user whose folder it must be; root may open those of
    /// others. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// It must not be used.
    pub fn open(path: &Path, of: Option<u32>) -> Result<Option<Self>, FolderError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refuse = |what: String| {
            Err(FolderError::Unsafe {
                path: path.to_owned(),
                what,
            })
        };
        let fd = match openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => return refuse("is no folder".to_owned()),
            Err(error) => {
                return Err(FolderError::Io {
                    path: path.to_owned(),
                    source: error.into(),
                });
            }
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| FolderError::Io {
            path: path.to_owned(),
            source: error.into(),
        })?;
        if of.is_some_and(|of| of != stat.st_uid) {
            return refuse(format!("belongs to user {}", stat.st_uid));
        }
        if stat.st_mode & 0o077 != 0 {
            return refuse(format!("is open to others (mode {:o})", stat.st_mode & 0o777));
        }
        Ok(Some(Self {
            fd,
            path: path.to_owned(),
            uid: stat.st_uid,
        }))
    }

    /// Opens this user's folder at `path`, and makes it if it does not exist.
    ///
    /// # Errors
    /// It must not be used, or cannot be made.
    pub fn make(path: &Path) -> Result<Self, FolderError> {
        let fault = |source| FolderError::Io {
            path: path.to_owned(),
            source,
        };
        let made = std::fs::DirBuilder::new().mode(0o700).create(path);
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(fault(error)),
            _ => {}
        }
        let opened = Self::open(path, Some(geteuid().as_raw()))?;
        opened.ok_or_else(|| fault(io::ErrorKind::NotFound.into()))
    }

    /// Returns the user that it belongs to.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of the sockets, lowest process number first.
    pub fn sockets(&self) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        let Ok(entries) = Dir::read_from(&self.fd) else {
            return found;
        };
        for entry in entries.flatten() {
            if found.len() >= SOCKETS_MAX {
                break;
            }
            let name = entry.file_name().to_str().ok();
            if let Some((pid, name)) = name.and_then(|name| Some((pid_of(name)?, name))) {
                found.push((pid, name.to_owned()));
            }
        }
        found.sort();
        found
    }

    /// Connects to a socket. Removes it if nobody listens.
    pub fn connect(&self, name: &str) -> Connected {
        match self.try_connect(name) {
            Ok(stream) => Connected::Yes(stream),
            Err(ConnectError::Refused) => {
                self.locked(|| match self.try_connect(name) {
                    Ok(stream) => Connected::Yes(stream),
                    Err(ConnectError::Refused) => {
                        // Somebody else may have removed it.
                        _ = unlinkat(&self.fd, name, AtFlags::empty());
                        Connected::Stale
                    }
                    Err(ConnectError::Gone) => Connected::Stale,
                    Err(ConnectError::Other(why)) => Connected::No(why),
                })
            }
            Err(ConnectError::Gone) => Connected::Stale,
            Err(ConnectError::Other(why)) => Connected::No(why),
        }
    }

    fn try_connect(&self, name: &str) -> Result<UnixStream, ConnectError> {
        let other = |error: Errno| match error {
            Errno::CONNREFUSED => ConnectError::Refused,
            Errno::NOENT => ConnectError::Gone,
            Errno::AGAIN => ConnectError::Other("too many views are waiting for it".to_owned()),
            error => ConnectError::Other(io::Error::from(error).to_string()),
        };
        let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(other)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_uid != self.uid {
            return Err(ConnectError::Other(
                "it is no socket of the folder's owner".to_owned(),
            ));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(other)?;
        let address = self.address(name).map_err(other)?;
        connect(&socket, &address).map_err(other)?;
        // The name may lead elsewhere by now. The kernel says who listens.
        let peer = sockopt::socket_peercred(&socket).map_err(other)?;
        if peer.uid.as_raw() != self.uid {
            return Err(ConnectError::Other("another user listens there".to_owned()));
        }
        let stream = UnixStream::from(socket);
        stream
            .set_nonblocking(false)
            .map_err(|error| ConnectError::Other(error.to_string()))?;
        Ok(stream)
    }

    /// Returns the address of a socket. It leads through the descriptor: it stays short, and nobody can
    /// put another folder in the place of this one.
    fn address(&self, name: &str) -> rustix::io::Result<SocketAddrUnix> {
        SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// Listens on a new socket of this process, and removes those of dead ones.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn listen(self, pid: u32) -> io::Result<Listener> {
        self.remove_dead();
        self.lock();
        let listening = self.listen_locked(pid);
        self.unlock();
        let (socket, name, identity) = listening?;
        Ok(Listener {
            socket,
            folder: self,
            name,
            identity,
        })
    }

    fn listen_locked(&self, pid: u32) -> io::Result<(OwnedFd, String, (u64, u64))> {
        for number in 1..=SAME_PID_MAX {
            let name = match number {
                1 => format!("{pid}.sock"),
                number => format!("{pid}-{number}.sock"),
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let address = self.address(&name)?;
            match bind(&socket, &address) {
                Ok(()) => {}
                Err(Errno::ADDRINUSE) => match self.try_connect(&name) {
                    Err(ConnectError::Refused) => {
                        unlinkat(&self.fd, &*name, AtFlags::empty())?;
                        bind(&socket, &address)?;
                    }
                    _ => continue,
                },
                Err(error) => return Err(error.into()),
            }
            let made = || -> rustix::io::Result<_> {
                chmodat(&self.fd, &*name, Mode::from_raw_mode(0o600), AtFlags::empty())?;
                listen(&socket, BACKLOG)?;
                let stat = statat(&self.fd, &*name, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok((stat.st_dev, stat.st_ino))
            };
            return match made() {
                Ok(identity) => Ok((socket, name, identity)),
                Err(error) => {
                    _ = unlinkat(&self.fd, &*name, AtFlags::empty());
                    Err(error.into())
                }
            };
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Removes sockets whose process seems to be dead, if nobody listens on them.
    fn remove_dead(&self) {
        for (pid, name) in self.sockets() {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let seems_dead = pid.is_none_or(|pid| test_kill_process(pid) == Err(Errno::SRCH));
            if seems_dead {
                drop(self.connect(&name));
            }
        }
    }

    fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        self.lock();
        let done = work();
        self.unlock();
        done
    }

    /// Locks the folder. Goes on without the lock if its holder does not give it back.
    fn lock(&self) {
        for _ in 0..LOCK_TRIES {
            match flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE),
                _ => return,
            }
        }
    }

    fn unlock(&self) {
        // Does not fail for a descriptor that is open.
        _ = flock(&self.fd, FlockOperation::Unlock);
    }
}

enum ConnectError {
    Refused,
    Gone,
    Other(String),
}

impl Listener {
    /// Returns the name of the socket in its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the socket from its folder, if it is still this one. Nobody finds it any more.
    pub fn remove(&self) {
        let found = statat(&self.folder.fd, &*self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity) {
            _ = unlinkat(&self.folder.fd, &*self.name, AtFlags::empty());
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the process number in a socket's name.
fn pid_of(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".sock")?;
    let (pid, number) = match stem.split_once('-') {
        Some((pid, number)) => (pid, number.parse::<u32>().ok()),
        None => (stem, Some(1)),
    };
    let is_number = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    number?;
    is_number.then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(NAME);
        (place, path)
    }

    #[test]
    fn names_have_a_process_number() {
        assert_eq!(pid_of("123.sock"), Some(123));
        assert_eq!(pid_of("123-2.sock"), Some(123));
        for bad in [
            "",
            ".sock",
            "x.sock",
            "+1.sock",
            "1-.sock",
            "1-x.sock",
            "99999999999.sock",
            "123",
            "123.sock~",
        ] {
            assert_eq!(pid_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_folder_and_the_socket_are_private() {
        let (_place, path) = place();
        let listener = Folder::make(&path).unwrap().listen(42).unwrap();
        assert_eq!(listener.name(), "42.sock");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("42.sock"))), (0o700, 0o600));
        let folder = Folder::open(&path, None).unwrap().unwrap();
        assert_eq!(folder.sockets(), [(42, "42.sock".to_owned())]);
        assert!(matches!(folder.connect("42.sock"), Connected::Yes(_)));
        drop(listener);
        assert!(folder.sockets().is_empty(), "it is removed at the end");
    }

    #[test]
    fn unsafe_folders_are_refused() {
        let (place, path) = place();
        let mine = geteuid().as_raw();
        assert!(Folder::open(&path, Some(mine)).unwrap().is_none());
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let refused = Folder::make(&path).unwrap_err().to_string();
        assert!(refused.contains("open to others"), "{refused}");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        assert!(Folder::make(&path).is_ok());
        let refused = Folder::open(&path, Some(mine + 1)).unwrap_err().to_string();
        assert!(refused.contains("belongs to user"), "{refused}");
        let link = place.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(Folder::make(&link), Err(FolderError::Unsafe { .. })));
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(Folder::make(&place.path().join("file")).is_err());
    }

    #[test]
    fn a_socket_without_a_process_is_removed_and_its_name_used_again() {
        let (_place, path) = place();
        let folder = Folder::make(&path).unwrap();
        // What a killed process leaves.
        drop(UnixListener::bind(path.join("7.sock")).unwrap());
        drop(UnixListener::bind(path.join("42.sock")).unwrap());
        assert_eq!(folder.sockets().len(), 2);
        assert!(matches!(folder.connect("7.sock"), Connected::Stale));
        assert!(matches!(folder.connect("7.sock"), Connected::Stale));
        let listener = folder.listen(42).unwrap();
        assert_eq!(listener.name(), "42.sock");
    }

    #[test]
    fn dead_processes_leave_nothing_behind_for_long() {
        let (_place, path) = place();
        let folder = Folder::make(&path).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (dead, alive) = (
            format!("{}.sock", child.id()),
            format!("{}.sock", std::process::id()),
        );
        drop(UnixListener::bind(path.join(&dead)).unwrap());
        let _listening = UnixListener::bind(path.join(&alive)).unwrap();
        let listener = folder.listen(std::process::id()).unwrap();
        assert!(!path.join(dead).exists());
        // Somebody listens there: a process of another namespace, with the same number.
        assert!(path.join(alive).exists());
        assert_eq!(listener.name(), format!("{}-2.sock", std::process::id()));
    }

    #[test]
    fn what_is_no_socket_is_neither_used_nor_removed() {
        let (place, path) = place();
        let folder = Folder::make(&path).unwrap();
        let elsewhere = place.path().join("elsewhere.sock");
        let _listening = UnixListener::bind(&elsewhere).unwrap();
        symlink(&elsewhere, path.join("8.sock")).unwrap();
        std::fs::write(path.join("9.sock"), "").unwrap();
        for name in ["8.sock", "9.sock"] {
            assert!(matches!(folder.connect(name), Connected::No(_)), "{name}");
            assert!(path.join(name).symlink_metadata().is_ok());
        }
    }
}
