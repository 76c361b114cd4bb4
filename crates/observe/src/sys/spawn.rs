//! Starting a program that waits, before it is executed, until it is watched.
//!
//! ```text
//!   this process                         child
//!     fork ─────────────────────────────> writes its number, waits
//!     watches that number
//!     release ──────────────────────────> installs the filter, executes the program
//!     reads: nothing (executed), or an errno
//! ```

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread::JoinHandle;

use rustix::pipe::{PipeFlags, pipe_with};

/// Exit code of a program that could not be executed, as in shells. Nobody sees it: the errno is
/// reported.
const NOT_EXECUTED: i32 = 127;

/// One instruction of a seccomp filter (`struct sock_filter` of linux/filter.h).
pub(crate) type FilterInstruction = libc::sock_filter;

/// What to execute, prepared before the fork: a child must not allocate.
struct Image {
    path: CString,
    /// Arguments and environment, with a null pointer at the end of each.
    arguments: Pointers,
    environment: Pointers,
}

/// Strings and the pointers to them.
struct Pointers {
    _strings: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

// SAFETY: the pointers lead into the strings beside them, which never change.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn new(strings: Vec<CString>) -> Self {
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self {
            _strings: strings,
            pointers,
        }
    }
}

impl Image {
    fn new(path: &OsStr, command: &[OsString]) -> io::Result<Self> {
        let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput.into());
        let arguments: io::Result<Vec<CString>> = command
            .iter()
            .map(|part| text(part.as_bytes().to_vec()))
            .collect();
        let environment: io::Result<Vec<CString>> = std::env::vars_os()
            .map(|(name, value)| text([name.into_vec(), value.into_vec()].join(&b'=')))
            .collect();
        Ok(Self {
            path: text(path.as_bytes().to_vec())?,
            arguments: Pointers::new(arguments?),
            environment: Pointers::new(environment?),
        })
    }
}

/// A child that waits.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its number.
    pub(crate) process: u32,
    go: File,
    child: JoinHandle<io::Result<Child>>,
}

/// A child that was released.
#[derive(Debug)]
pub(crate) struct Released {
    child: JoinHandle<io::Result<Child>>,
}

impl Held {
    /// Forks a child that waits to execute `path` with these arguments, the name of the program
    /// first. `filter` is installed in front of it.
    ///
    /// # Errors
    /// No process, pipe or thread can be made.
    pub(crate) fn start(
        path: &OsStr,
        command: &[OsString],
        filter: Option<Vec<FilterInstruction>>,
    ) -> io::Result<Self> {
        let image = Image::new(path, command)?;
        let (from_child, to_parent) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from_parent, go) = pipe_with(PipeFlags::CLOEXEC)?;
        let parents_end = go.as_raw_fd();
        let mut child = Command::new(path);
        let in_child = move || execute(&image, &to_parent, &from_parent, parents_end, filter.as_deref());
        // SAFETY: `execute` makes system calls only; it does not allocate, lock or unwind.
        unsafe { child.pre_exec(in_child) };
        let (sender, number) = std::sync::mpsc::sync_channel(1);
        let child = std::thread::Builder::new()
            .name("ropeway-spawn".into())
            .spawn(move || spawn(child, from_child, &sender))?;
        match number.recv() {
            Ok(process) => Ok(Self {
                process,
                go: File::from(go),
                child,
            }),
            Err(_) => Err(match join(child) {
                Err(error) => error,
                Ok(_) => io::ErrorKind::BrokenPipe.into(),
            }),
        }
    }

    /// Lets the child execute its program.
    ///
    /// # Errors
    /// The child has ended.
    pub(crate) fn release(mut self) -> io::Result<Released> {
        self.go.write_all(&[1])?;
        Ok(Released { child: self.child })
    }
}

impl Released {
    /// Waits until the program is executed.
    ///
    /// # Errors
    /// It could not be executed.
    pub(crate) fn wait(self) -> io::Result<Child> {
        join(self.child)
    }
}

fn join(child: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    match child.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Forks the child, passes on its number, and waits until it has executed its program.
fn spawn(
    mut child: Command,
    from_child: OwnedFd,
    number: &std::sync::mpsc::SyncSender<u32>,
) -> io::Result<Child> {
    let mut from_child = File::from(from_child);
    let mut reader = from_child.try_clone()?;
    let number = number.clone();
    // `Command::spawn` returns when the program is executed, so the number comes another way.
    let early = std::thread::Builder::new()
        .name("ropeway-spawn".into())
        .spawn(move || {
            let mut bytes = [0; 4];
            if reader.read_exact(&mut bytes).is_ok() {
                // Nobody waits for it any more if the start was given up.
                let _ = number.send(u32::from_ne_bytes(bytes));
            }
        })?;
    let spawned = child.spawn();
    // The pipe's end for the child is in the command.
    drop(child);
    if early.join().is_err() {
        return Err(io::ErrorKind::Other.into());
    }
    let mut spawned = spawned?;
    let mut errno = [0; 4];
    match from_child.read_exact(&mut errno) {
        // Closed without a word: the program runs.
        Err(_) => Ok(spawned),
        Ok(()) => {
            // Its end has been seen by whoever waits for children, or is seen here.
            let _ = spawned.wait();
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
        }
    }
}

/// In the child: waits, and executes the program. Returns only if the parent has gone.
fn execute(
    image: &Image,
    to_parent: &OwnedFd,
    from_parent: &OwnedFd,
    parents_end: i32,
    filter: Option<&[FilterInstruction]>,
) -> io::Result<()> {
    // The parent's end of the pipe, so that its death is seen.
    // SAFETY: the child has its own copy of the descriptor, which nothing else in it uses.
    unsafe { libc::close(parents_end) };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    rustix::io::write(to_parent, &own.to_ne_bytes())?;
    let mut go = [0];
    while match rustix::io::read(from_parent, &mut go) {
        Ok(0) => return Err(io::ErrorKind::BrokenPipe.into()),
        Ok(_) => false,
        Err(rustix::io::Errno::INTR) => true,
        Err(error) => return Err(error.into()),
    } {}
    let error = match filter.map_or(Ok(()), install) {
        // SAFETY: path, arguments and environment are strings that end in NUL, and lists of them
        // that end in a null pointer; all live in `image`.
        Ok(()) => unsafe {
            libc::execve(
                image.path.as_ptr(),
                image.arguments.pointers.as_ptr(),
                image.environment.pointers.as_ptr(),
            );
            io::Error::last_os_error()
        },
        Err(error) => error,
    };
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let _ = rustix::io::write(to_parent, &errno.to_ne_bytes());
    // SAFETY: ends the child without running anything of the parent's.
    unsafe { libc::_exit(NOT_EXECUTED) }
}

/// Installs a filter for this thread and what it executes (seccomp(2)).
fn install(filter: &[FilterInstruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_ptr().cast_mut(),
    };
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: `program` says how long the filter is; the kernel copies it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const program,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(parts: &[&str]) -> Vec<OsString> {
        parts.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_child_waits_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let command = command(&["touch", made.to_str().unwrap()]);
        let held = Held::start(OsStr::new("/usr/bin/touch"), &command, None).unwrap();
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", held.process)).unwrap();
        assert!(!comm.starts_with("touch") && !made.exists());
        let mut child = held.release().unwrap().wait().unwrap();
        assert!(child.wait().unwrap().success() && made.exists());
    }

    #[test]
    fn what_cannot_be_executed_is_reported() {
        let held = Held::start(OsStr::new("/proc/version"), &command(&["x"]), None).unwrap();
        let error = held.release().unwrap().wait().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn a_child_that_is_not_released_ends() {
        let held = Held::start(OsStr::new("/bin/true"), &command(&["true"]), None).unwrap();
        let process = held.process;
        let Held { go, child, .. } = held;
        drop(go);
        assert!(join(child).is_err());
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
    }
}
