//! Pauses of writers, as the kernel orders them: the trace event `writeback:balance_dirty_pages`.
//!
//! The event is switched on in an instance of tracefs of our own (Documentation/trace/ftrace.rst,
//! "Instances"), so nobody else's tracing is touched. The instance is removed on drop. One of a
//! killed process is removed by the next [`Tracer`].

use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};

use super::debug;
use crate::parse::trace::Pause;

/// Folder names of instances: with the process id behind it.
const NAME: &str = "ropeway-dirty-";
/// Buffer of each processor in KiB: some thousand events, of which a writer causes about 100 a second.
const BUFFER_KIB: &str = "256";
/// Most bytes that are read at once.
const READ_MAX: usize = 1 << 20;
/// Most devices that are told apart.
const DEVICES_MAX: usize = 256;

/// Counts pauses.
#[derive(Debug)]
pub(crate) struct Tracer {
    instances: OwnedFd,
    name: String,
    pipe: std::fs::File,
    rest: Vec<u8>,
}

impl Tracer {
    /// Switches the event on.
    ///
    /// # Errors
    /// This user may not, or the kernel has no tracing.
    pub(crate) fn start() -> io::Result<Self> {
        let usual = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let instances = debug::open("tracefs", &usual, "instances")?;
        remove_leftovers(&instances);
        let name = format!("{NAME}{}", std::process::id());
        mkdirat(&instances, &*name, Mode::RWXU)?;
        let begun = Self::begin(&instances, &name);
        if begun.is_err() {
            _ = unlinkat(&instances, &*name, AtFlags::REMOVEDIR);
        }
        Ok(Self {
            pipe: begun?,
            instances,
            name,
            rest: Vec::new(),
        })
    }

    fn begin(instances: &OwnedFd, name: &str) -> io::Result<std::fs::File> {
        let write = |file: &str, text: &str| -> io::Result<()> {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let file = openat(instances, format!("{name}/{file}"), flags, Mode::empty())?;
            rustix::io::write(&file, text.as_bytes())?;
            Ok(())
        };
        write("buffer_size_kb", BUFFER_KIB)?;
        write("events/writeback/balance_dirty_pages/enable", "1")?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = openat(instances, format!("{name}/trace_pipe"), flags, Mode::empty())?;
        Ok(pipe.into())
    }

    /// Returns the milliseconds that writers were told to wait since the last call, by device, and the
    /// threads.
    pub(crate) fn pauses(&mut self) -> HashMap<String, (u64, Vec<u32>)> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut buffer = [0; 8192];
        while bytes.len() < READ_MAX {
            match self.pipe.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
        // A line that is longer than the buffer is none.
        if bytes.len() - whole < buffer.len() {
            self.rest = bytes[whole..].to_vec();
        }
        let mut found: HashMap<String, (u64, Vec<u32>)> = HashMap::new();
        for pause in text.lines().filter_map(Pause::parse) {
            if found.len() >= DEVICES_MAX && !found.contains_key(&pause.bdi) {
                continue;
            }
            let (sum, threads) = found.entry(pause.bdi).or_default();
            *sum = sum.saturating_add(pause.pause_ms);
            if !threads.contains(&pause.thread) && threads.len() < DEVICES_MAX {
                threads.push(pause.thread);
            }
        }
        found
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let name = format!("{}/events/writeback/balance_dirty_pages/enable", self.name);
        if let Ok(enable) = openat(
            &self.instances,
            name,
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            _ = rustix::io::write(&enable, b"0");
        }
        // An instance whose pipe is open is busy.
        if let Ok(null) = std::fs::File::open("/dev/null") {
            self.pipe = null;
        }
        if let Err(error) = unlinkat(&self.instances, &*self.name, AtFlags::REMOVEDIR) {
            ::tracing::warn!(%error, name = self.name, "a tracing instance is left behind");
        }
    }
}

/// Removes instances of processes that were killed.
fn remove_leftovers(instances: &OwnedFd) {
    let Ok(entries) = rustix::fs::Dir::read_from(instances) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let id = name.strip_prefix(NAME).and_then(|id| id.parse::<u32>().ok());
        if id.is_some_and(|id| !std::path::Path::new(&format!("/proc/{id}")).exists()) {
            _ = unlinkat(instances, name, AtFlags::REMOVEDIR);
        }
    }
}
