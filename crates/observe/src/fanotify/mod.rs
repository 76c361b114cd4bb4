//! What all programs do on one file system, by fanotify(7).
//!
//! The kernel tells which node, what, and which process; not offsets, lengths or times. So each
//! record has the time at which it was read, and 0 in the others.

pub mod events;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ropeway_vfs::trace::{By, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use self::events::{Event, Events, Place};
use crate::decode::{Sink, System as _};
use crate::mechanism::{Losses, Mechanism};
use crate::proc::Procfs;
use crate::sys::fanotify;

/// Bytes that are read at a time: some hundred events.
const BUFFER_BYTES: usize = 64 << 10;
/// Most folders and programs whose names are kept. Then all are forgotten.
const NAMES_MAX: usize = 16_384;
/// How long names are kept: folders are renamed, and numbers of processes used again.
const NAMES_AGE_MAX: Duration = Duration::from_secs(1);

/// What the bits of an event mean, in the order in which merged events probably happened.
const MEANINGS: [(u64, &str, &str); 12] = [
    (libc::FAN_CREATE, "create", "make_dir"),
    (libc::FAN_MOVED_FROM, "rename", "rename"),
    (libc::FAN_MOVED_TO, "rename", "rename"),
    (fanotify::RENAME, "rename", "rename"),
    (libc::FAN_OPEN, "open", "open"),
    (libc::FAN_OPEN_EXEC, "execute", "execute"),
    (libc::FAN_ACCESS, "read", "list"),
    (libc::FAN_MODIFY, "write", "write"),
    (libc::FAN_ATTRIB, "set_attributes", "set_attributes"),
    (libc::FAN_CLOSE_WRITE, "close", "close"),
    (libc::FAN_CLOSE_NOWRITE, "close", "close"),
    (libc::FAN_DELETE, "remove", "remove"),
];

/// Handle of a folder: kind and bytes.
type Handle = (i32, Box<[u8]>);

/// A file system that is watched.
#[derive(Debug)]
pub struct Volume {
    group: File,
    /// A folder of it, for opening nodes by handle.
    folder: OwnedFd,
    buffer: Vec<u8>,
    folders: HashMap<Handle, Rc<[u8]>>,
    programs: HashMap<u32, Rc<[u8]>>,
    names_since: Duration,
    zero: Duration,
    overflows: u64,
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

impl Volume {
    /// Begins to watch the file system of a folder.
    ///
    /// # Errors
    /// No permission, or the file system cannot be watched.
    pub fn watch(folder: &Path) -> io::Result<Self> {
        let opened: OwnedFd = File::open(folder)?.into();
        let group = fanotify::group()?;
        fanotify::mark(&group, folder)?;
        Ok(Self {
            group: File::from(group),
            folder: opened,
            buffer: vec![0; BUFFER_BYTES],
            folders: HashMap::new(),
            programs: HashMap::new(),
            names_since: Duration::ZERO,
            zero: now(),
            overflows: 0,
        })
    }

    /// Counts times from this moment of CLOCK_MONOTONIC, in nanoseconds.
    pub fn count_from(&mut self, zero_ns: u64) {
        self.zero = Duration::from_nanos(zero_ns);
    }

    /// Returns what such a recording cannot show.
    pub fn unseen() -> Vec<String> {
        Mechanism::Fanotify.unseen(true)
    }

    /// Returns what was lost up to now; how many events, the kernel does not tell.
    pub fn losses(&self) -> Losses {
        Losses {
            events: self.overflows,
            foreign: 0,
        }
    }

    /// Waits for events, at most `timeout`, and passes on the operations.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn poll(&mut self, timeout: Duration, sink: Sink<'_>) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).ok();
        // A signal ends the wait early, which is harmless.
        let _ = poll(&mut [PollFd::new(&self.group, PollFlags::IN)], timeout.as_ref());
        self.drain(sink)
    }

    /// Passes on what has happened up to now.
    ///
    /// # Errors
    /// The events cannot be read.
    pub fn drain(&mut self, sink: Sink<'_>) -> io::Result<()> {
        // As much as was there at the begin, about: other programs may never pause.
        for _ in 0..NAMES_MAX {
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.group.read(&mut buffer);
            if let Ok(length) = read {
                let at = now();
                for event in Events::new(&buffer[..length]) {
                    self.take(&event, at, sink);
                }
            }
            self.buffer = buffer;
            match read {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>, at: Duration, sink: Sink<'_>) {
        if event.what & libc::FAN_Q_OVERFLOW != 0 {
            self.overflows += 1;
            return;
        }
        // What this process does would be recorded by writing it down, without end.
        if event.process == std::process::id() {
            return;
        }
        let is_old = at.saturating_sub(self.names_since) > NAMES_AGE_MAX;
        if is_old || self.folders.len() + self.programs.len() > NAMES_MAX {
            self.folders.clear();
            self.programs.clear();
            self.names_since = at;
        }
        let path = event.place.map(|place| self.path(&place)).unwrap_or_default();
        let to = event.new_place.map(|place| self.path(&place)).unwrap_or_default();
        let program = self.program(event.process);
        let is_folder = event.what & libc::FAN_ONDIR != 0;
        if is_folder && event.what & (fanotify::RENAME | libc::FAN_MOVED_FROM | libc::FAN_DELETE) != 0 {
            self.folders.clear();
        }
        for (bit, of_file, of_folder) in MEANINGS {
            if event.what & bit == 0 {
                continue;
            }
            sink(Record {
                start: at.saturating_sub(self.zero),
                duration: Duration::ZERO,
                end: None,
                kind: if is_folder { of_folder } else { of_file },
                path: &path,
                to: if bit == fanotify::RENAME { &to } else { &[] },
                offset: 0,
                length: 0,
                result: 0,
                by: By {
                    process: (event.process != 0).then_some(event.process),
                    program: &program,
                    ..By::default()
                },
            });
        }
    }

    fn program(&mut self, process: u32) -> Rc<[u8]> {
        if let Some(known) = self.programs.get(&process) {
            return Rc::clone(known);
        }
        let name: Rc<[u8]> = Rc::from(Procfs.program(process).unwrap_or_default());
        self.programs.insert(process, Rc::clone(&name));
        name
    }

    /// Returns a node's path. The folder's one is asked for by its handle; if it is gone, it is `?`.
    fn path(&mut self, place: &Place<'_>) -> Vec<u8> {
        let handle: Handle = (place.handle_kind, Box::from(place.handle));
        let folder = match self.folders.get(&handle) {
            Some(known) => Rc::clone(known),
            None => {
                let opened = fanotify::open_by_handle(&self.folder, place.handle_kind, place.handle);
                let link = opened
                    .and_then(|opened| std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())));
                let path = link.map_or_else(|_| b"?".to_vec(), |link| link.into_os_string().into_vec());
                let path: Rc<[u8]> = Rc::from(path);
                self.folders.insert(handle, Rc::clone(&path));
                path
            }
        };
        let mut path = folder.strip_suffix(b"/").unwrap_or(&folder).to_vec();
        if place.name != b"." && !place.name.is_empty() {
            path.push(b'/');
            path.extend_from_slice(place.name);
        } else if path.is_empty() {
            path.push(b'/');
        }
        path
    }
}
