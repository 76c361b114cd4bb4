//! Network namespaces without names: they exist while a descriptor or a process refers to them.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::LinkError;
use super::sys;

/// Time for processes to end after SIGTERM (a guess), and again after SIGKILL.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// A network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    file: File,
    /// Device and inode, which identify a namespace.
    identity: (u64, u64),
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Namespaces are not permitted.
    pub(super) fn create() -> Result<Self, LinkError> {
        let made = on_thread(|| {
            sys::new_network_namespace()?;
            File::open("/proc/thread-self/ns/net")
        });
        let file = made.flatten().map_err(|source| LinkError::Forbidden {
            // Every error counts as forbidden: ENOSPC, for one, is the limit of namespaces
            // (namespaces(7)).
            what: "make a network namespace",
            source,
        })?;
        let metadata = file
            .metadata()
            .map_err(|error| LinkError::of("look at a namespace", error))?;
        Ok(Self {
            identity: (metadata.dev(), metadata.ino()),
            file,
        })
    }

    /// Path of the namespace, valid until drop.
    pub(super) fn path(&self) -> PathBuf {
        let process = std::process::id();
        format!("/proc/{process}/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Runs a closure on a new thread inside.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> io::Result<R> {
        on_thread(|| {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        })
        .flatten()
    }
}

/// Runs a closure on a new thread, since a namespace belongs to a thread.
fn on_thread<R: Send>(work: impl FnOnce() -> R + Send) -> io::Result<R> {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, work)?;
        match handle.join() {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Ends all processes inside by SIGTERM, then by SIGKILL.
pub(super) fn end_members(namespaces: &[&Namespace]) {
    for signal in [Signal::TERM, Signal::KILL] {
        let patience = Instant::now() + END_PATIENCE;
        let mut signalled = Vec::new();
        loop {
            let members = members(namespaces);
            if members.is_empty() {
                return;
            }
            if Instant::now() > patience {
                break;
            }
            for (pid, descriptor) in members {
                // SIGTERM once each, SIGKILL until they are gone.
                if signal == Signal::KILL || !signalled.contains(&pid) {
                    _ = pidfd_send_signal(descriptor, signal);
                    signalled.push(pid);
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns the processes inside, except this one. A process is checked again after its descriptor is
/// opened, so that the descriptor surely belongs to it.
fn members(namespaces: &[&Namespace]) -> Vec<(Pid, OwnedFd)> {
    let own = rustix::process::getpid();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let inside = |pid: &Pid| {
        let metadata = fs::metadata(format!("/proc/{}/ns/net", pid.as_raw_nonzero())).ok();
        let identity = metadata.map(|metadata| (metadata.dev(), metadata.ino()));
        identity.is_some_and(|identity| namespaces.iter().any(|namespace| namespace.identity == identity))
    };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| *pid != own && inside(pid))
        .filter_map(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)))
        .filter(|(pid, _)| inside(pid))
        .collect()
}
