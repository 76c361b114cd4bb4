//! One reading of the machine: what commands print, and what other views show too.
//!
//! All amounts are bytes, all rates bytes a second. `None` means that this process cannot know it;
//! [`Reading::notes`] says why.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::estimate::Drain;
use crate::limits::{Limits, Memory, Share};
use crate::parse::bdi::GroupStats;
use crate::parse::pressure::Pressure;

/// Everything that one look at the machine finds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reading {
    /// Time of day, in seconds since 1970.
    pub time: f64,
    /// The whole machine.
    pub machine: MachineReading,
    /// Devices that are mounted, owed something, or written to; the most indebted first.
    pub devices: Vec<DeviceReading>,
    /// Memory groups (cgroups) of the processes that make most dirty.
    pub cgroups: Vec<GroupReading>,
    /// Processes and files behind the backlog.
    pub offenders: Offenders,
    /// What is missing, and what would show it.
    pub notes: Vec<String>,
}

/// Dirty pages of the whole machine, and the limits in force.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MachineReading {
    /// Dirty and not yet being written.
    pub dirty_bytes: u64,
    /// On the way to some device.
    pub writeback_bytes: u64,
    /// Settings, and the memory that they refer to.
    pub settings: Memory,
    /// The limits that follow.
    pub limits: Limits,
    /// Age at which dirty data are written back (`vm.dirty_expire_centisecs`), in seconds.
    pub expire_seconds: f64,
    /// Bytes made dirty in a second.
    pub dirtied_rate: Option<f64>,
    /// Bytes written back in a second.
    pub written_rate: Option<f64>,
    /// Whether writers wait anywhere.
    pub writers: Writers,
    /// Share of time in which tasks wait for I/O.
    pub io_pressure: Option<Pressure>,
    /// Share of time in which tasks wait for memory.
    pub memory_pressure: Option<Pressure>,
}

impl MachineReading {
    /// Returns the bytes that some device has not taken yet.
    pub fn backlog_bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.writeback_bytes)
    }
}

/// Whether writers have to wait until a device has taken more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Writers {
    /// What is known.
    pub state: WriterState,
    /// Threads that were seen waiting.
    pub threads: u64,
    /// Time that threads were told to wait, in milliseconds, summed since the last reading (`--held`).
    pub paused_ms: Option<u64>,
}

/// What is known of writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriterState {
    /// The backlog cannot be told.
    #[default]
    Unknown,
    /// The backlog is below the amount from which writers wait.
    Free,
    /// It is above, so whoever writes has to wait; nobody was seen.
    WouldWait,
    /// Threads were seen waiting.
    Held,
}

/// State of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceState {
    /// Its backlog cannot be told.
    #[default]
    Unknown,
    /// It is owed nothing.
    Clean,
    /// Something is dirty, and nothing is on its way yet.
    Waiting,
    /// It takes data.
    Writing,
    /// Data are on their way, and it has completed nothing for some seconds.
    Stalled,
}

/// What lies below a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// It cannot be told.
    #[default]
    Unknown,
    /// A block device that people unplug.
    Removable,
    /// A block device that stays.
    Fixed,
    /// A server.
    Network,
    /// A FUSE program without a known device.
    Program,
    /// Memory: nothing is ever written back.
    Memory,
}

/// One device: a backing device of the kernel (`/sys/class/bdi`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceReading {
    /// Name in `/sys/class/bdi`: `8:16`, `0:51`, `btrfs-1`.
    pub bdi: String,
    /// Name for people: `sdb`, or the type of file system if there is no block device.
    pub name: String,
    /// What it is.
    pub medium: Medium,
    /// Mounted file systems, at most [`MOUNTS_MAX`].
    pub mounts: Vec<MountReading>,
    /// Dirty and not yet being written.
    pub dirty_bytes: Option<u64>,
    /// On the way to the device.
    pub writeback_bytes: Option<u64>,
    /// Upper bound of both, where they cannot be told: the machine's, if only this device is
    /// written to.
    pub backlog_bytes_max: Option<u64>,
    /// Its state.
    pub state: DeviceState,
    /// Bytes made dirty in a second.
    pub dirtied_rate: Option<f64>,
    /// Write-back in a second, averaged over recent work (also of earlier work, if it is idle now).
    pub rate: Option<f64>,
    /// The kernel's own estimate of the device's speed.
    pub kernel_rate: Option<u64>,
    /// All bytes that the block device completes in a second, direct I/O and journals included.
    pub device_rate: Option<f64>,
    /// Time until it will have everything, if nobody wrote more.
    pub drain: Option<Drain>,
    /// Limits of the device itself, if it has any (`strict_limit`).
    pub own_limits: Option<Limits>,
    /// Settings of its share.
    pub share: Share,
    /// Present share of the machine's limit, by the kernel's own account.
    pub share_bytes: Option<u64>,
    /// Whether its writers wait.
    pub writers: Writers,
    /// Parts of cgroups in its backlog (Linux 6.10).
    pub groups: Vec<GroupStats>,
    /// What lies below: an image, the disks of a volume.
    pub layers: Vec<Layer>,
}

/// Most mounts that are listed for one device.
pub const MOUNTS_MAX: usize = 16;

impl DeviceReading {
    /// Returns the bytes that the device has not taken yet.
    pub fn backlog_bytes(&self) -> Option<u64> {
        Some(self.dirty_bytes?.saturating_add(self.writeback_bytes?))
    }
}

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountReading {
    /// Mount point.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Type of file system.
    pub fstype: String,
    /// Source: a device, a server's path, a program's name.
    pub source: String,
    /// Whether nothing can be written to it.
    pub read_only: bool,
}

/// What lies below a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Layer {
    /// A file that a loop device shows as a disk. Its own dirty pages are owed to the device that the
    /// file is on: data that left the file system in the image may still wait there.
    Image {
        /// The file.
        #[serde(serialize_with = "lossy")]
        path: PathBuf,
        /// Name of the device that it is on, if that is known.
        on: Option<String>,
        /// Dirty bytes of the file, where that can be told.
        dirty_bytes: Option<u64>,
        /// Bytes of the file on the way to its device.
        writeback_bytes: Option<u64>,
    },
    /// A disk or volume that a mapped or striped device consists of.
    Part {
        /// Its name.
        name: String,
    },
}

/// A memory group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupReading {
    /// Path in the tree of groups.
    pub path: String,
    /// Version of the controller, 1 or 2.
    pub version: u32,
    /// Dirty and not yet being written.
    pub dirty_bytes: u64,
    /// On the way to a device.
    pub writeback_bytes: u64,
    /// Its limits; version 1 has none.
    pub limits: Option<Limits>,
}

/// Who is behind the backlog.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Offenders {
    /// Processes that make most dirty.
    pub processes: Vec<ProcessReading>,
    /// Files with most dirty pages.
    pub files: Vec<FileReading>,
    /// Processes looked at.
    pub processes_seen: u64,
    /// Processes that this user may not look at.
    pub processes_hidden: u64,
    /// Open files, and files below a folder, looked at.
    pub files_seen: u64,
    /// Why the look ended early, if it did.
    pub cut_short: Option<String>,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessReading {
    /// Process id.
    pub pid: u32,
    /// Name of its program.
    pub name: String,
    /// Bytes that it makes dirty in a second.
    pub dirtied_rate: Option<f64>,
    /// Dirty bytes, and bytes on their way, of files that it has open for writing.
    pub open_bytes: Option<u64>,
    /// Whether a thread of it was seen waiting.
    pub held: bool,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileReading {
    /// Its path.
    #[serde(serialize_with = "lossy")]
    pub path: PathBuf,
    /// Device that it is on, as in [`DeviceReading::bdi`].
    pub bdi: String,
    /// Dirty and not yet being written.
    pub dirty_bytes: u64,
    /// On the way to the device.
    pub writeback_bytes: u64,
    /// Processes that have it open for writing, at most four.
    pub pids: Vec<u32>,
}

impl FileReading {
    /// Returns the bytes that the device has not taken yet.
    pub fn backlog_bytes(&self) -> u64 {
        self.dirty_bytes.saturating_add(self.writeback_bytes)
    }
}

/// Writes a path as text. One that is not UTF-8 must not cost the whole reading.
pub(crate) fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_path_that_is_no_text_does_not_cost_the_reading() {
        let file = FileReading {
            path: Path::new(std::ffi::OsStr::from_bytes(b"/a\xff")).to_owned(),
            bdi: "7:0".to_owned(),
            dirty_bytes: u64::MAX,
            writeback_bytes: 1,
            pids: Vec::new(),
        };
        assert_eq!(file.backlog_bytes(), u64::MAX);
        let text = serde_json::to_string(&file).unwrap();
        assert!(text.contains("/a\u{fffd}"), "{text}");
    }
}
