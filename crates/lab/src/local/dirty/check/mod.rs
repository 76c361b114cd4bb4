//! `lab dirty --check`: is what `ropeway dirty` says true?
//!
//! ```text
//!   devices   ext4 on a loop device under blkio throttling; a FUSE model of a stick
//!   for each  write a file, `ropeway dirty drain`; beside it `ropeway dirty --watch --json`
//!   truth     /proc/vmstat every 5 ms; the bytes that the device has taken; when the drain ended
//!   compare   the deviations                                                           pure
//!   report    the document                                                             pure
//! ```

pub mod compare;
mod report;
pub mod stick;
mod watch;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use ropeway_dirty::Target;
use ropeway_dirty::parse::vmstat::Vmstat;
use ropeway_vfs::decorate::slow::DeviceModel;

use self::compare::{Figures, Recording, Truth};
use self::watch::Watching;
use super::kernel::device_moved;
use crate::local::volume::{FileSystem, Throttle, Volume, Volumes, settle};
use crate::local::{LocalError, Record, folder_with_room, make_out};
use crate::random::SplitMix64;
use crate::report::{Document, FILE};

/// Allowed deviations in percent: of backlogs, and of the time to drain.
pub const BACKLOG_PERCENT: f64 = 5.0;
/// See [`BACKLOG_PERCENT`].
pub const DRAIN_PERCENT: f64 = 20.0;
/// Bytes that the device's counter may be behind when the drain ends: it is read every 10 ms.
const LEFT_BYTES: f64 = 1_048_576.0;
/// Interval of `ropeway dirty --watch`.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Interval of the truth.
const TRUTH_EVERY: Duration = Duration::from_millis(5);
/// Bytes of one write(2).
const WRITE_BYTES: usize = 1 << 20;
/// Dirty bytes of the machine before a device is measured, at most.
const QUIET_BYTES: u64 = 8 << 20;
/// Longest wait for that.
const QUIET_MAX: Duration = Duration::from_secs(20);
/// Looks before the first write, and between the last write and the flush.
const LOOKS_AROUND: usize = 4;
/// Longest wait for a look.
const LOOKS_MAX: Duration = Duration::from_secs(20);
/// Room in addition to the file.
const ROOM_MORE: u64 = 256 << 20;

/// What the check does.
#[derive(Clone, Debug)]
pub struct Options {
    /// This program.
    pub program: PathBuf,
    /// Folder for the image of the loop device.
    pub dir: PathBuf,
    /// Bytes to write.
    pub bytes: u64,
    /// Rate of both devices in bytes a second.
    pub rate: u64,
    /// Longest time of one drain.
    pub limit: Duration,
    /// Folder of the report.
    pub out: PathBuf,
}

/// One device and its figures.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Short name.
    pub name: &'static str,
    /// What it is.
    pub what: String,
    /// The figures.
    pub figures: Figures,
    /// All that was seen.
    pub recording: Recording,
}

impl Checked {
    /// Returns whether all figures are within the allowed deviations.
    pub fn is_within(&self) -> bool {
        let found = &self.figures;
        let backlogs = [found.machine, found.devices, found.device];
        let seen = backlogs.iter().all(|deviation| deviation.looks > 0) && found.left.looks > 0;
        seen && backlogs
            .iter()
            .all(|deviation| deviation.largest_percent <= BACKLOG_PERCENT)
            && found.left.largest_percent <= DRAIN_PERCENT
            && found.left_bytes <= LEFT_BYTES
    }
}

/// Returns the figures of a device as lines for people: name and text.
pub fn lines(checked: &Checked) -> Vec<(String, String)> {
    report::lines(checked)
}

/// Runs the check. Needs root.
///
/// # Errors
/// A device cannot be made, there is too little room, or the check was interrupted.
pub fn run(
    options: &Options,
    stop: &AtomicBool,
    notify: &dyn Fn(&str),
) -> Result<(Document, Vec<Checked>), LocalError> {
    let folder = folder_with_room(&options.dir, options.bytes + ROOM_MORE)?;
    make_out(&options.out)?;
    let record = Record {
        document: report::begun(options),
        path: options.out.join(FILE),
        stop,
        notify,
    };
    let mut all = Vec::new();
    let result = [Kind::Throttled, Kind::Modelled]
        .into_iter()
        .try_for_each(|kind| {
            record.check_stop()?;
            record.notify(&format!("measuring: {}", kind.describe(options)));
            all.push(check(kind, options, folder.path(), stop)?);
            Ok(())
        });
    let mut record = record;
    report::fill(&mut record.document, &all);
    let document = record.finish(result.map(|()| true), Some(&options.out))?;
    Ok((document, all))
}

/// A slow device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Throttled,
    Modelled,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Modelled => "modelled",
        }
    }

    fn describe(self, options: &Options) -> String {
        let rate = options.rate as f64 / 1e6;
        match self {
            Self::Throttled => format!("ext4 on a loop device that blkio throttles to {rate} MB/s"),
            Self::Modelled => {
                format!("a FUSE model of a stick, {rate} MB/s, 1 ms a seek, with write-back cache")
            }
        }
    }
}

/// A slow device that is mounted.
enum Device {
    Throttled { volume: Volume, _throttle: Throttle },
    Modelled { stick: stick::Mounted, root: PathBuf },
}

impl Device {
    fn make(kind: Kind, options: &Options, folder: &Path) -> io::Result<Self> {
        match kind {
            Kind::Throttled => {
                // Direct: the image's own pages would count as dirty a second time.
                let volumes = Volumes::new(folder, FileSystem::Ext4, true, 1.0)?;
                if !volumes.are_real() {
                    return Err(io::Error::from(io::ErrorKind::PermissionDenied));
                }
                let volume = volumes.create("throttled")?;
                settle();
                let throttle = volume.throttle(options.rate)?;
                Ok(Self::Throttled {
                    volume,
                    _throttle: throttle,
                })
            }
            Kind::Modelled => {
                let root = folder.join("modelled");
                fs::create_dir_all(&root)?;
                let model = DeviceModel {
                    seek: Duration::from_millis(1),
                    write_bytes_per_s: options.rate,
                    ..DeviceModel::instant()
                };
                let stick = stick::Mounted::new(&options.program, &root, &model)?;
                let device = Self::Modelled { stick, root };
                device.allow_all_memory()?;
                Ok(device)
            }
        }
    }

    /// FUSE file systems may have one percent of the limit; here the whole file is to become dirty.
    fn allow_all_memory(&self) -> io::Result<()> {
        let bdi = Target::of(self.root())?.bdi.unwrap_or_default();
        let folder = Path::new("/sys/class/bdi").join(bdi);
        fs::write(folder.join("max_ratio"), "100")?;
        // Since Linux 6.2; before, a FUSE device was strict for good.
        _ = fs::write(folder.join("strict_limit"), "0");
        Ok(())
    }

    fn root(&self) -> &Path {
        match self {
            Self::Throttled { volume, .. } => volume.root(),
            Self::Modelled { root, .. } => root,
        }
    }

    /// Returns a function that tells how many bytes the device has taken.
    fn taken(&self) -> io::Result<Box<dyn Fn() -> u64 + Sync + '_>> {
        match self {
            Self::Modelled { stick, .. } => Ok(Box::new(|| stick.taken())),
            Self::Throttled { volume, .. } => {
                let device = rustix::fs::stat(volume.root())?.st_dev;
                let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
                Ok(Box::new(move || {
                    device_moved(major, minor).map_or(0, |[_, written]| written)
                }))
            }
        }
    }
}

fn check(kind: Kind, options: &Options, folder: &Path, stop: &AtomicBool) -> Result<Checked, LocalError> {
    let made = Device::make(kind, options, folder);
    let device = made.map_err(LocalError::io(format!("make {}", kind.describe(options))))?;
    wait_for_quiet(stop)?;
    let recording = record(&device, options, stop).map_err(LocalError::io("measure"))?;
    Ok(Checked {
        name: kind.name(),
        what: kind.describe(options),
        figures: recording.figures(),
        recording,
    })
}

/// Waits until other programs' pages are written back.
fn wait_for_quiet(stop: &AtomicBool) -> Result<(), LocalError> {
    let begun = Instant::now();
    settle();
    while Vmstat::read().is_ok_and(|vmstat| vmstat.backlog_bytes() > QUIET_BYTES)
        && begun.elapsed() < QUIET_MAX
    {
        if stop.load(Ordering::Acquire) {
            return Err(LocalError::Interrupted);
        }
        thread::sleep(Duration::from_millis(200));
        settle();
    }
    Ok(())
}

fn record(device: &Device, options: &Options, stop: &AtomicBool) -> io::Result<Recording> {
    let bdi = Target::of(device.root())?.bdi.unwrap_or_default();
    let taken = device.taken()?;
    let taken_before = taken() as f64;
    let (truths, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let mut recording = Recording {
        taken_before,
        written: options.bytes as f64,
        ..Recording::default()
    };
    let done: io::Result<Recording> = thread::scope(|scope| {
        let sampler = thread::Builder::new().name("truth".to_owned());
        sampler.spawn_scoped(scope, || sample(&*taken, &truths, &is_over))?;
        let result = work(device.root(), &bdi, options, stop, &mut recording);
        is_over.store(true, Ordering::Release);
        result.map(|()| recording)
    });
    let mut recording = done?;
    recording.truths = std::mem::take(&mut *truths.lock());
    let taken_at = recording.taken_at().unwrap_or(recording.ended_at);
    recording.drained_at = taken_at.min(recording.ended_at);
    Ok(recording)
}

/// Samples the truth until it is over. The device's counter is handed over, so it lives in this thread.
fn sample(taken: &(dyn Fn() -> u64 + Sync), truths: &Mutex<Vec<Truth>>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        if let Ok(vmstat) = Vmstat::read() {
            truths.lock().push(Truth {
                time: wall_seconds(),
                vmstat: vmstat.backlog_bytes() as f64,
                taken: taken() as f64,
            });
        }
        thread::sleep(TRUTH_EVERY);
    }
}

fn work(
    root: &Path,
    bdi: &str,
    options: &Options,
    stop: &AtomicBool,
    recording: &mut Recording,
) -> io::Result<()> {
    let watching = Watching::start(&options.program, LOOK_EVERY, bdi)?;
    wait_for_looks(&watching, LOOKS_AROUND, stop)?;
    let drain = Drain::prepare(root, options)?;
    let path = root.join("workload");
    let held = Arc::new(write(&path, options.bytes, stop)?);
    recording.written_at = wall_seconds();
    let seen = watching.count();
    wait_for_looks(&watching, seen + LOOKS_AROUND, stop)?;
    recording.drain_from = wall_seconds();
    drain.finish(options, stop)?;
    recording.ended_at = wall_seconds();
    drop(held);
    let seen = watching.count();
    wait_for_looks(&watching, seen + 1, stop)?;
    recording.looks = watching.finish();
    fs::remove_file(&path)
}

fn wait_for_looks(watching: &Watching, count: usize, stop: &AtomicBool) -> io::Result<()> {
    let begun = Instant::now();
    while watching.count() < count {
        check_stop(stop)?;
        if begun.elapsed() > LOOKS_MAX {
            return Err(io::Error::other("`ropeway dirty --watch` says nothing"));
        }
        thread::sleep(TRUTH_EVERY);
    }
    Ok(())
}

fn check_stop(stop: &AtomicBool) -> io::Result<()> {
    match stop.load(Ordering::Acquire) {
        true => Err(io::Error::from(io::ErrorKind::Interrupted)),
        false => Ok(()),
    }
}

/// Writes the workload. The file stays open: closing a file of FUSE writes it back.
fn write(path: &Path, bytes: u64, stop: &AtomicBool) -> io::Result<File> {
    let mut file = File::create(path)?;
    let mut buffer = vec![0; WRITE_BYTES];
    SplitMix64::new(bytes).fill(&mut buffer);
    let mut left = bytes;
    while left > 0 {
        check_stop(stop)?;
        let length = left.min(WRITE_BYTES as u64);
        file.write_all(&buffer[..length as usize])?;
        left -= length;
    }
    Ok(file)
}

/// A `ropeway dirty drain` that waits to begin.
///
/// It is forked before the workload's file is open: execve(2) closes what a process has inherited, and
/// closing a file of FUSE writes it back.
struct Drain(Child);

impl Drain {
    fn prepare(root: &Path, options: &Options) -> io::Result<Self> {
        let child = Command::new("sh")
            .args(["-c", "read -r go && exec \"$0\" \"$@\" </dev/null"])
            .arg(&options.program)
            .args(["dirty", "drain", "--json", "--no-wait"])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    /// Lets it begin, and waits for its end.
    fn finish(mut self, options: &Options, stop: &AtomicBool) -> io::Result<()> {
        if let Some(mut gate) = self.0.stdin.take() {
            gate.write_all(b"go\n")?;
        }
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(io::Error::other(format!(
                        "`ropeway dirty drain` ended with {status}"
                    ))),
                };
            }
            check_stop(stop)?;
            if begun.elapsed() > options.limit {
                return Err(io::Error::other("the device took too long"));
            }
            thread::sleep(TRUTH_EVERY);
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // It has ended already unless something failed.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn wall_seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
