//! Makes a device have everything, and finds out what keeps it from being unplugged.
//!
//! [`flush`] waits in the kernel without a way out, so commands call it in a process of their own:
//! that process may be left behind when the user gives up. [`Condition::of`] looks at the device
//! afterwards.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::judge::{Condition, Writer};
use crate::parse::bdi::{BdiStats, drift_bytes};
use crate::parse::process::SharedMap;
use crate::reading::{Medium, MountReading};
use crate::system::debug::Bdis;
use crate::system::disk::{Disk, Number};
use crate::system::limits::page_bytes;
use crate::system::processes::{name_of, pids};
use crate::system::table::{Place, Table};
use crate::system::target::Target;
use crate::system::{open_files, text};

/// Most writers that are named.
const WRITERS_MAX: usize = 16;
/// Most processes that are looked at.
const PROCESSES_MAX: usize = 32_768;
/// Longest time of a look at all processes. What was not looked at counts as hidden.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Interval at which the counters of a FUSE device are read.
const COUNT_EVERY: Duration = Duration::from_millis(20);
/// Time without any progress after which a program has taken the last pages. A guess: some requests of a
/// slow stick.
const QUIET: Duration = Duration::from_millis(500);
/// Inode number of the machine's own process name space (include/linux/proc_ns.h,
/// `PROC_PID_INIT_INO`). In another one not all processes are seen.
const FIRST_PID_SPACE: u64 = 0xEFFF_FFFC;

/// How the device's own cache was flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheFlush {
    /// By fsync(2) of the block device.
    Device,
    /// By fsync(2) of a folder, since this user may not open the device or cannot tell it. The file system
    /// passes the flush on.
    FileSystem,
    /// There is no block device: a server or a program has been asked to store everything.
    Remote,
}

/// A flush that failed.
#[derive(Debug)]
pub struct FlushError {
    /// What could not be done.
    pub what: String,
    /// The cause.
    pub source: io::Error,
}

impl std::fmt::Display for FlushError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for FlushError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn failed(what: String) -> impl FnOnce(io::Error) -> FlushError {
    move |source| FlushError { what, source }
}

/// Writes everything back that is dirty on the file system of a path, and has the device flush its own
/// cache. With `whole`, or for a block device itself, all mounted file systems of the disk.
///
/// # Errors
/// Something could not be opened, or did not reach the device. The kernel reports an error once to
/// each open file, also one that nobody has seen before.
pub fn flush(target: &Target, whole: bool) -> Result<CacheFlush, FlushError> {
    let mut folders = BTreeSet::new();
    if target.mount.is_some() {
        folders.insert(target.path.clone());
    }
    if whole || target.mount.is_none() {
        let mounts = mounts_of(target);
        folders.extend(
            mounts
                .into_iter()
                .filter(|mount| !mount.read_only)
                .map(|mount| mount.path),
        );
    }
    // Opened before the first write, so that every error is seen.
    let open = |path: &PathBuf| {
        let file = open_for_sync(path).map_err(failed(format!("cannot open {}", path.display())))?;
        Ok((path.clone(), file))
    };
    let opened: Vec<(PathBuf, File)> = folders.iter().map(open).collect::<Result<_, _>>()?;
    let device = target.disk.as_ref().map(open_device);
    for (path, file) in &opened {
        let result = rustix::fs::syncfs(file.as_fd()).map_err(io::Error::from);
        result.map_err(failed(format!(
            "some data of {} did not reach the device",
            path.display()
        )))?;
        wait_for_program(path)?;
    }
    match (device, &target.disk) {
        (Some(Ok(device)), Some(disk)) => {
            device.sync_all().map_err(failed(format!(
                "the device {} did not flush its cache",
                disk.name
            )))?;
            Ok(CacheFlush::Device)
        }
        (Some(Err(error)), Some(disk)) if opened.is_empty() => {
            Err(failed(format!("cannot open the device {}", disk.name))(error))
        }
        (None, _) if opened.is_empty() => {
            let what = format!("cannot tell which device {} is", target.path.display());
            Err(failed(what)(io::ErrorKind::NotFound.into()))
        }
        (None, _) if target.medium != Medium::Unknown => Ok(CacheFlush::Remote),
        _ => flush_through(&opened),
    }
}

/// Waits until the program behind a FUSE file system has taken everything: syncfs(2) only begins to
/// hand it over. What is less than the error of the kernel's counters counts as taken once nothing
/// has moved for a while.
fn wait_for_program(path: &Path) -> Result<(), FlushError> {
    let table = Table::read();
    let mount = ropeway_local::mount_of(path).ok();
    let place = mount.and_then(|mount| table.by_mount(mount.id));
    let Some(place) = place.filter(|place| place.mount.fstype.starts_with("fuse")) else {
        return Ok(());
    };
    let debug = Bdis::open();
    let stats = || {
        let stats = place.bdi.as_ref().and_then(|bdi| debug.stats(bdi));
        stats.ok_or_else(|| {
            let shown = path.display();
            let what = format!("only root sees when the program behind {shown} has taken everything");
            failed(what)(rustix::io::Errno::ACCESS.into())
        })
    };
    let drift = drift_bytes(
        std::thread::available_parallelism().map_or(1, NonZero::get),
        page_bytes(),
    );
    // The share of the limit changes with the machine's memory.
    let progress = |stats: &BdiStats| (stats.written_bytes, stats.backlog_bytes());
    let mut last = stats()?;
    let enough = last
        .written_bytes
        .saturating_add(last.backlog_bytes())
        .saturating_add(drift);
    let mut moved_at = Instant::now();
    loop {
        std::thread::sleep(COUNT_EVERY);
        let next = stats()?;
        if progress(&next) != progress(&last) {
            (last, moved_at) = (next, Instant::now());
        }
        let is_quiet = next.backlog_bytes() <= drift && moved_at.elapsed() >= QUIET;
        if is_quiet || next.written_bytes >= enough {
            return Ok(());
        }
    }
}

/// Has file systems flush their device, which this user may not open or which sysfs does not show.
fn flush_through(opened: &[(PathBuf, File)]) -> Result<CacheFlush, FlushError> {
    for (path, file) in opened {
        file.sync_all().map_err(failed(format!(
            "the file system of {} did not flush the device",
            path.display()
        )))?;
    }
    Ok(CacheFlush::FileSystem)
}

/// Opens a file or folder for syncfs(2); a FIFO or a device is not opened, but its folder.
fn open_for_sync(path: &Path) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_dir() || kind.is_file() {
        return File::open(path);
    }
    File::open(path.parent().unwrap_or(Path::new("/")))
}

fn open_device(disk: &Disk) -> io::Result<File> {
    File::open(Path::new("/dev").join(&disk.name))
}

/// Returns the file systems that are mounted from the disk of a target, partitions and volumes on it
/// included.
pub fn mounts_of(target: &Target) -> Vec<MountReading> {
    let table = Table::read();
    let family = family(target);
    let places = table
        .places
        .iter()
        .filter(|place| belongs(place, &family, target));
    places.map(MountReading::of).collect()
}

/// Returns the numbers of everything on the disks that a target is on.
fn family(target: &Target) -> BTreeSet<Number> {
    let bottom = target.disk.as_ref().map(Disk::bottom).unwrap_or_default();
    bottom.iter().flat_map(Disk::family).collect()
}

fn belongs(place: &Place, family: &BTreeSet<Number>, target: &Target) -> bool {
    let on_disk = place
        .disk
        .as_ref()
        .is_some_and(|disk| family.contains(&disk.number));
    on_disk || family.contains(&place.mount.device) || (place.bdi.is_some() && place.bdi == target.bdi)
}

impl Condition {
    /// Looks at everything on the disk of a target.
    pub fn of(target: &Target) -> Self {
        if matches!(target.medium, Medium::Memory | Medium::Network) {
            return Self {
                medium: target.medium,
                ..Self::default()
            };
        }
        let table = Table::read();
        let family = family(target);
        let places: Vec<&Place> = table
            .places
            .iter()
            .filter(|place| belongs(place, &family, target))
            .collect();
        let bdis: BTreeSet<&str> = places
            .iter()
            .filter_map(|place| place.bdi.as_deref())
            .chain(target.bdi.as_deref())
            .collect();
        let debug = Bdis::open();
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let drift = drift_bytes(processors, page_bytes());
        let above = |bytes: u64| if bytes > drift { bytes } else { 0 };
        let amounts: Vec<BdiStats> = bdis.iter().filter_map(|bdi| debug.stats(bdi)).collect();
        let is_known = !amounts.is_empty() && amounts.len() == bdis.len();
        let sum = amounts
            .iter()
            .map(|stats| above(stats.backlog_bytes()))
            .fold(0, u64::saturating_add);
        let mut look = Look {
            table: &table,
            places: &places,
            writers: Vec::new(),
            hidden: u64::from(sees_a_part()),
        };
        look.kernel();
        look.processes();
        Self {
            medium: target.medium,
            backlog_bytes: is_known.then_some(sum),
            mounted: places.iter().any(|place| !place.mount.read_only),
            writers: look.writers,
            processes_hidden: look.hidden,
        }
    }
}

/// A look for whoever may write to some mounts.
struct Look<'a> {
    table: &'a Table,
    places: &'a [&'a Place],
    writers: Vec<Writer>,
    hidden: u64,
}

impl Look<'_> {
    fn add(&mut self, pid: u32, name: String, path: PathBuf) {
        if self.writers.len() < WRITERS_MAX {
            self.writers.push(Writer { pid, name, path });
        }
    }

    fn is_here(&self, place: &Place) -> bool {
        self.places
            .iter()
            .any(|own| own.mount.device == place.mount.device)
    }

    /// Loop devices and swap files write without any process.
    fn kernel(&mut self) {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        for device in devices.take(PROCESSES_MAX) {
            let name = device.file_name().to_string_lossy().into_owned();
            let Ok(image) = text(device.path().join("loop/backing_file")) else {
                continue;
            };
            let image = PathBuf::from(image.trim_end_matches('\n'));
            if self.holds(&image) {
                self.add(0, name, image);
            }
        }
        let swaps = text("/proc/swaps").unwrap_or_default();
        for line in swaps.lines().skip(1) {
            let path = PathBuf::from(line.split_ascii_whitespace().next().unwrap_or_default());
            if self.holds(&path) {
                self.add(0, "swap".to_owned(), path);
            }
        }
    }

    /// Whether a file is on one of the mounts, by its name.
    fn holds(&self, path: &Path) -> bool {
        let place = self.table.of_path(path).filter(|_| path.is_absolute());
        place.is_some_and(|place| place.mount.fstype != "devtmpfs" && self.is_here(place))
    }

    fn processes(&mut self) {
        let begun = Instant::now();
        for (index, pid) in pids().enumerate() {
            if index >= PROCESSES_MAX || begun.elapsed() > LOOK_MAX || self.writers.len() >= WRITERS_MAX {
                self.hidden += 1;
                break;
            }
            if pid != std::process::id() {
                self.process(pid);
            }
        }
    }

    fn process(&mut self, pid: u32) {
        let table = self.table;
        let mut first = None;
        let looked = open_files::for_each_writable(pid, |open| {
            let here = table.of_file(&open).is_some_and(|place| self.is_here(place));
            if here {
                first = open_files::path_of(pid, open.descriptor);
            }
            first.is_none()
        });
        if let Err(error) = looked
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            // Of threads of the kernel even root's look at /proc/PID/fd succeeds; others have none.
            self.hidden += u64::from(fs::read_link(format!("/proc/{pid}/exe")).is_err() && has_memory(pid));
            return;
        }
        if first.is_none() {
            let maps = text(format!("/proc/{pid}/maps")).unwrap_or_default();
            let mut shared = maps.lines().filter_map(SharedMap::parse);
            let here = |map: &SharedMap| self.places.iter().any(|place| place.mount.device == map.device);
            first = shared.find(here).map(|map| PathBuf::from(map.path));
        }
        if let Some(path) = first {
            self.add(pid, name_of(pid).unwrap_or_default(), path);
        }
    }
}

/// Threads of the kernel have no memory of their own (proc_pid_statm(5)).
fn has_memory(pid: u32) -> bool {
    let statm = text(format!("/proc/{pid}/statm")).unwrap_or_default();
    statm.split_whitespace().next().is_some_and(|size| size != "0")
}

/// Whether /proc shows this process only a part of all processes.
fn sees_a_part() -> bool {
    use std::os::unix::fs::MetadataExt;
    let space = fs::metadata("/proc/self/ns/pid").map(|node| node.ino());
    if space.is_ok_and(|space| space != FIRST_PID_SPACE) {
        return true;
    }
    let hides = ropeway_local::mount_of(Path::new("/proc")).is_ok_and(|mount| {
        let mut options = mount.super_options.split(',');
        options.any(|option| {
            option
                .strip_prefix("hidepid=")
                .is_some_and(|how| how != "0" && how != "off")
        })
    });
    hides && !rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_flushed_and_memory_is_not_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), [7; 10_000]).unwrap();
        let target = Target::of(folder.path()).unwrap();
        assert!(flush(&target, false).is_ok());
        let condition = Condition::of(&target);
        assert_eq!(condition.medium, target.medium);
        let proc = Target::of(Path::new("/proc")).unwrap();
        assert_eq!(Condition::of(&proc).writers, []);
        assert!(
            flush(
                &Target {
                    path: "/does/not/exist".into(),
                    ..target
                },
                false
            )
            .is_err()
        );
    }
}
