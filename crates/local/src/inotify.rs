//! inotify(7): one instance watches any number of folders by their descriptors.
//!
//! Both views use it: a tree's watch ([`watch`](crate::watch)) and the store's index of names.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ropeway_vfs::Name;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::xattr::proc_path;

/// Bytes of one read from the kernel: some hundred events.
const BUFFER_BYTES: usize = 16 * 1024;

/// The kernel's number of a watched folder.
pub(crate) type WatchId = i32;

/// One event of a watched folder.
pub(crate) struct Event {
    pub(crate) watch: WatchId,
    pub(crate) flags: ReadFlags,
    /// The entry it happened to; `None` for the folder itself.
    pub(crate) name: Option<Name>,
}

/// An inotify instance. Its drop ends all watches.
pub(crate) struct Instance(OwnedFd);

impl Instance {
    /// Makes an instance that does not block.
    pub(crate) fn new() -> rustix::io::Result<Self> {
        inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map(Self)
    }

    /// Watches an open folder, or changes what it is watched for.
    pub(crate) fn add(&self, dir: BorrowedFd<'_>, flags: WatchFlags) -> rustix::io::Result<WatchId> {
        // The magic link leads to the very folder that was opened.
        inotify::add_watch(&self.0, proc_path(&dir), flags)
    }

    /// Ends a watch. The kernel may have ended it with the folder.
    pub(crate) fn remove(&self, watch: WatchId) {
        let _ = inotify::remove_watch(&self.0, watch);
    }

    /// Reads a buffer full of waiting events and passes each to `each`. Returns `false` if none waited.
    ///
    /// # Errors
    /// What read(2) reports, except that no events wait.
    pub(crate) fn read(&self, mut each: impl FnMut(Event)) -> rustix::io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(self.0.as_fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => each(Event {
                    watch: event.wd(),
                    flags: event.events(),
                    name: event.file_name().and_then(|name| Name::new(name.to_bytes())),
                }),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
            if reader.is_buffer_empty() {
                return Ok(true);
            }
        }
    }
}

impl AsFd for Instance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
