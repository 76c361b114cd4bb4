//! Takes readings, again and again.
//!
//! ```text
//!   sample   every 50 ms or so: counters of devices that are owed something, for the estimates
//!   read     every second or so: everything
//! ```
//!
//! A reader may live for months: what it remembers is bounded by the devices and processes that exist.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::estimate::DrainEstimator;
use crate::judge;
use crate::limits::{Limits, Memory, Share};
use crate::parse::bdi::{BdiStats, drift_bytes};
use crate::parse::block::BlockStat;
use crate::parse::pressure::Pressure;
use crate::parse::vmstat::Vmstat;
use crate::reading::{
    DeviceReading, DeviceState, MOUNTS_MAX, MachineReading, Medium, MountReading, Offenders, Reading,
    WriterState, Writers,
};
use crate::system::debug::Bdis;
use crate::system::disk::Disk;
use crate::system::limits::page_bytes;
use crate::system::looker::Looker;
use crate::system::processes::{Look, Wanted};
use crate::system::table::{Place, Table, medium_of};
use crate::system::target::{Target, layers};
use crate::system::tracing::Tracer;
use crate::system::walk::walk;
use crate::system::{groups, text, value};

/// Whole steps from which an estimate is steady. A guess: two of them bound the error of the third.
const STEADY_STEPS: f64 = 2.5;

/// What a reader looks at.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only this device, what lies below it, and files on it.
    pub target: Option<Target>,
    /// Whether to look for the processes and files behind the backlog, and for waiting threads.
    pub offenders: bool,
    /// Folder below which to look for dirty files that no process has open.
    pub below: Option<PathBuf>,
    /// Whether to count the pauses of writers (root).
    pub held: bool,
    /// Largest number of processes, and of files, to list.
    pub top: usize,
}

/// Takes readings. See the module.
#[derive(Debug)]
pub struct Reader {
    options: Options,
    debug: Bdis,
    tracer: Option<Tracer>,
    tracer_missing: Option<String>,
    drift_bytes: u64,
    machine: Option<(Duration, Vmstat)>,
    devices: HashMap<String, Track>,
    looker: Option<Looker>,
}

/// What is remembered of a device.
#[derive(Debug, Default)]
struct Track {
    estimator: DrainEstimator,
    disk: Option<Disk>,
    /// Counters at the last reading.
    last: Option<(Duration, Counters)>,
    /// When it last completed something, and the counter then.
    moved: (Duration, u64),
    /// Whether it was owed something when it was last looked at, or that cannot be told.
    is_owed: bool,
    is_new: bool,
}

/// Counters of a device at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    stats: Option<BdiStats>,
    block: Option<BlockStat>,
}

impl Counters {
    fn written(&self) -> Option<u64> {
        let block = self.block.map(|block| block.written_bytes);
        self.stats.map(|stats| stats.written_bytes).or(block)
    }
}

impl Reader {
    /// Makes a reader. Nothing is read yet.
    pub fn new(options: Options) -> Self {
        let processors = value_count("/sys/devices/system/cpu/possible");
        let (tracer, tracer_missing) = match options.held.then(Tracer::start) {
            None => (None, None),
            Some(Ok(tracer)) => (Some(tracer), None),
            Some(Err(error)) => (None, Some(error.to_string())),
        };
        let looker = options.offenders.then(Looker::start).and_then(|started| {
            started
                .inspect_err(|error| ::tracing::warn!(%error, "processes cannot be looked at"))
                .ok()
        });
        Self {
            options,
            debug: Bdis::open(),
            tracer,
            tracer_missing,
            drift_bytes: drift_bytes(processors, page_bytes()),
            machine: None,
            devices: HashMap::new(),
            looker,
        }
    }

    /// Returns the largest error of a device's amounts in bytes. Less than this may be nothing.
    pub fn drift_bytes(&self) -> u64 {
        self.drift_bytes
    }

    /// Records what devices have completed by `now`, the time since any fixed moment. Costs nearly
    /// nothing while no device is owed anything.
    pub fn sample(&mut self, now: Duration) {
        let vmstat = Vmstat::read().unwrap_or_default();
        let machine_writes = vmstat.writeback_bytes > self.drift_bytes;
        if vmstat.backlog_bytes() <= self.drift_bytes {
            return;
        }
        let is_known = self.devices.values().any(|track| track.is_owed);
        for (bdi, track) in &mut self.devices {
            if track.is_owed || !is_known {
                let counters = counters(&self.debug, bdi, track.disk.as_ref());
                track.observe(now, &counters, machine_writes, self.drift_bytes);
            }
        }
    }

    /// Returns whether some device is at work whose estimate is not steady yet.
    pub fn is_unsteady(&self) -> bool {
        let unsteady = |track: &Track| {
            let stats = track.last.and_then(|(_, counters)| counters.stats);
            let works = stats.is_some_and(|stats| stats.writeback_bytes > self.drift_bytes);
            works && track.estimator.steps() < STEADY_STEPS
        };
        self.devices.values().any(unsteady)
    }

    /// Reads everything at `now`, the time since any fixed moment.
    pub fn read(&mut self, now: Duration) -> Reading {
        let table = Arc::new(Table::read());
        // All amounts belong to one moment; whatever takes time comes later.
        let vmstat = Vmstat::read().unwrap_or_default();
        let amounts = self.amounts(&table);
        let time = wall_seconds();
        let mut machine = machine(&vmstat);
        if let Some((before, last)) = self.machine.replace((now, vmstat)) {
            machine.dirtied_rate = rate(before, now, last.dirtied_bytes, vmstat.dirtied_bytes);
            machine.written_rate = rate(before, now, last.written_bytes, vmstat.written_bytes);
        }
        let wanted = self.wanted();
        let mut look = match &mut self.looker {
            Some(looker) => looker.look(&table, wanted),
            None => Look::default(),
        };
        let pauses = self.tracer.as_mut().map(Tracer::pauses);
        machine.writers.threads = look.held_total;
        if let Some(pauses) = &pauses {
            machine.writers.paused_ms = Some(pauses.values().fold(0, |sum, (ms, _)| sum.saturating_add(*ms)));
            for (bdi, (_, threads)) in pauses {
                let held = look.held.entry(bdi.clone()).or_default();
                *held = (*held).max(threads.len() as u64);
            }
        }
        let limits = machine.limits;
        let mut devices = self.devices_at(now, &table, &amounts, &machine, &look);
        for device in &mut devices {
            if let Some(pauses) = &pauses {
                device.writers.paused_ms = Some(pauses.get(&device.bdi).map_or(0, |(ms, _)| *ms));
            }
        }
        let seen = devices
            .iter()
            .map(|device| device.writers.threads)
            .max()
            .unwrap_or(0);
        let threads = machine.writers.threads.max(seen);
        machine.writers.threads = threads;
        machine.writers.state = judge::writers(threads, (vmstat.backlog_bytes(), limits), None);
        self.bound_backlogs(now, &vmstat, &mut devices);
        let mut offenders = std::mem::take(&mut look.offenders);
        self.walk(&mut offenders);
        let pids: Vec<u32> = offenders.processes.iter().map(|process| process.pid).collect();
        let backlog = vmstat.backlog_bytes();
        let notes = self.notes(&table, &offenders);
        devices.retain(|device| is_worth_showing(device, self.drift_bytes, &self.options));
        devices.sort_by(|one, other| {
            order(one)
                .partial_cmp(&order(other))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        Reading {
            time,
            cgroups: groups::groups(&pids, &table, &machine.settings, backlog),
            machine,
            devices,
            offenders,
            notes,
        }
    }

    /// Returns what each device is owed, where the kernel tells.
    fn amounts(&self, table: &Table) -> HashMap<String, BdiStats> {
        let wanted = self.options.target.as_ref().map(|target| target.bdi.as_deref());
        let bdis = table.bdis.iter();
        bdis.filter(|bdi| wanted.is_none_or(|wanted| wanted == Some(bdi.as_str())))
            .filter_map(|bdi| Some((bdi.clone(), self.debug.stats(bdi)?)))
            .collect()
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            bdi: self.options.target.as_ref().map(|target| target.bdi.clone()),
            top: self.options.top,
        }
    }

    fn devices_at(
        &mut self,
        now: Duration,
        table: &Table,
        amounts: &HashMap<String, BdiStats>,
        machine: &MachineReading,
        look: &Look,
    ) -> Vec<DeviceReading> {
        let wanted = self.options.target.as_ref().map(|target| target.bdi.as_deref());
        let machine_writes = machine.writeback_bytes > self.drift_bytes;
        let mut by_bdi: HashMap<&str, Vec<&Place>> = HashMap::new();
        for place in &table.places {
            if let Some(bdi) = &place.bdi {
                by_bdi.entry(bdi).or_default().push(place);
            }
        }
        let mut kept = HashMap::new();
        let mut devices = Vec::new();
        for bdi in &table.bdis {
            if wanted.is_some_and(|wanted| wanted != Some(bdi)) {
                continue;
            }
            let places = by_bdi.get(bdi.as_str()).map(Vec::as_slice).unwrap_or_default();
            let disk = places
                .iter()
                .find_map(|place| place.disk.clone())
                .or_else(|| disk_of(bdi));
            let counters = Counters {
                stats: amounts.get(bdi).copied(),
                block: disk.as_ref().and_then(Disk::stat),
            };
            let mut track = self.devices.remove(bdi).unwrap_or_else(|| Track {
                is_new: true,
                ..Track::default()
            });
            track.disk = disk;
            track.observe(now, &counters, machine_writes, self.drift_bytes);
            let mut device = self.device(bdi, places, &track, &counters, now);
            device.writers.threads = look.held.get(bdi).copied().unwrap_or(0);
            device.own_limits = machine.settings.limits_of(&device.share);
            let own = device.own_limits.map(|limits| (device.backlog_bytes(), limits));
            let state = judge::writers(
                device.writers.threads,
                (machine.backlog_bytes(), machine.limits),
                own,
            );
            device.writers.state = state;
            device.layers = layers(
                track.disk.as_ref(),
                places.first().map_or(&[], |place| &place.disks),
                table,
            );
            track.last = Some((now, counters));
            track.is_new = false;
            kept.insert(bdi.clone(), track);
            devices.push(device);
        }
        // Devices that are gone are forgotten.
        self.devices = kept;
        devices
    }

    fn device(
        &self,
        bdi: &str,
        places: &[&Place],
        track: &Track,
        counters: &Counters,
        now: Duration,
    ) -> DeviceReading {
        let name = match (&track.disk, places.first()) {
            (Some(disk), Some(place)) if bdi.ends_with("-fuseblk") => {
                format!("{}:{}", place.mount.fstype, disk.name)
            }
            (Some(disk), _) => disk.name.clone(),
            (None, Some(place)) => place.mount.fstype.clone(),
            (None, None) => bdi.to_owned(),
        };
        let medium = match places.first() {
            Some(place) => place.medium(),
            None => track.disk.as_ref().map_or(Medium::Unknown, medium_of),
        };
        let mut device = DeviceReading {
            bdi: bdi.to_owned(),
            name,
            medium,
            mounts: mounts_of(places),
            share: Share::read_named(bdi),
            rate: track.estimator.rate(),
            ..DeviceReading::default()
        };
        if let Some((before, last)) = &track.last {
            let both =
                |value: fn(&Counters) -> Option<u64>| rate(*before, now, value(last)?, value(counters)?);
            device.dirtied_rate = both(|counters| Some(counters.stats?.dirtied_bytes));
            device.device_rate = both(|counters| Some(counters.block?.written_bytes));
        }
        let Some(stats) = counters.stats else {
            return device;
        };
        let idle = now.saturating_sub(track.moved.0).as_secs_f64();
        let (dirty, writeback) = (stats.dirty_bytes, stats.writeback_bytes);
        device.dirty_bytes = Some(dirty);
        device.writeback_bytes = Some(writeback);
        device.share_bytes = Some(stats.share_bytes);
        device.kernel_rate = Some(stats.kernel_rate);
        device.state = judge::state(dirty, writeback, idle, self.drift_bytes);
        let backlog = match device.state {
            DeviceState::Clean => 0,
            _ => stats.backlog_bytes(),
        };
        device.drain = track.estimator.drain(backlog, Some(stats.kernel_rate));
        if backlog > 0 {
            device.groups = self.debug.groups(bdi);
        }
        device
    }

    /// Where the kernel does not tell what a device is owed, it is at most what the machine owes; that
    /// is worth saying if only one device is written to.
    fn bound_backlogs(&self, now: Duration, vmstat: &Vmstat, devices: &mut [DeviceReading]) {
        let backlog = vmstat.backlog_bytes();
        let works =
            |device: &&mut DeviceReading| device.dirty_bytes.is_none() && device.device_rate > Some(0.0);
        let mut working = devices.iter_mut().filter(works);
        if let (Some(device), None) = (working.next(), working.next()) {
            device.backlog_bytes_max = Some(backlog);
            let track = self.devices.get(&device.bdi);
            device.drain = track.and_then(|track| track.estimator.drain(backlog, None));
            let idle = track.map_or(0.0, |track| now.saturating_sub(track.moved.0).as_secs_f64());
            device.state = judge::state(vmstat.dirty_bytes, vmstat.writeback_bytes, idle, self.drift_bytes);
        }
        if backlog > self.drift_bytes {
            return;
        }
        for device in devices.iter_mut().filter(|device| device.dirty_bytes.is_none()) {
            // Nobody is owed anything.
            device.backlog_bytes_max = Some(backlog);
            device.state = DeviceState::Clean;
        }
    }

    fn walk(&self, offenders: &mut Offenders) {
        let bdi = self
            .options
            .target
            .as_ref()
            .and_then(|target| target.bdi.as_deref());
        let (Some(below), Some(bdi)) = (&self.options.below, bdi) else {
            return;
        };
        let found = walk(below, bdi);
        offenders.files_seen += found.seen;
        if let Some(why) = found.cut_short {
            offenders.cut_short.get_or_insert(why);
        }
        for file in found.files {
            if !offenders.files.iter().any(|known| known.path == file.path) {
                offenders.files.push(file);
            }
        }
        offenders
            .files
            .sort_by_key(|file| std::cmp::Reverse(file.backlog_bytes()));
        offenders.files.truncate(self.options.top);
    }

    fn notes(&self, table: &Table, offenders: &Offenders) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(error) = &table.unreadable {
            notes.push(format!(
                "devices are unknown: /sys/class/bdi cannot be read ({error})"
            ));
        }
        if let Some(error) = self.debug.missing() {
            let root = rustix::process::geteuid().is_root();
            notes.push(match root {
                true => format!("amounts of each device are unknown: debugfs cannot be read ({error})"),
                false => "as root it also shows what each device is owed, and the processes and files of other users"
                    .to_owned(),
            });
        } else if offenders.processes_hidden > 0 {
            notes.push(match offenders.processes_hidden {
                1 => "1 process may not be looked at".to_owned(),
                hidden => format!("{hidden} processes may not be looked at"),
            });
        }
        if self.debug.missing().is_none() && splits_by_cgroup() && !has_wb_stats(&self.debug, table) {
            notes.push(
                "before Linux 6.10 the amounts of a device leave out cgroups; those of the machine are whole"
                    .to_owned(),
            );
        }
        if let Some(why) = &self.tracer_missing {
            notes.push(format!("pauses of writers cannot be counted: tracefs: {why}"));
        }
        if let Some(why) = &offenders.cut_short {
            notes.push(format!("the look took too long: {why}"));
        }
        notes
    }
}

impl Track {
    fn observe(&mut self, now: Duration, counters: &Counters, machine_writes: bool, drift: u64) {
        let Some(written) = counters.written() else { return };
        if self.is_new || self.moved.1 != written {
            self.moved = (now, written);
        }
        let is_writing = match counters.stats {
            Some(stats) => stats.writeback_bytes > drift,
            None => machine_writes,
        };
        self.is_owed = counters.stats.is_none_or(|stats| stats.backlog_bytes() > drift);
        self.estimator.observe(now, written, is_writing);
    }
}

fn counters(debug: &Bdis, bdi: &str, disk: Option<&Disk>) -> Counters {
    Counters {
        stats: debug.stats(bdi),
        block: disk.and_then(Disk::stat),
    }
}

/// Returns the disk of a backing device that is named by its number.
fn disk_of(bdi: &str) -> Option<Disk> {
    let (major, minor) = bdi.split_once(':')?;
    Disk::of((major.parse().ok()?, minor.parse().ok()?))
}

fn machine(vmstat: &Vmstat) -> MachineReading {
    let settings = Memory::read_with(vmstat).unwrap_or_default();
    let pressure = |name: &str| Pressure::parse(&text(format!("/proc/pressure/{name}")).ok()?);
    MachineReading {
        dirty_bytes: vmstat.dirty_bytes,
        writeback_bytes: vmstat.writeback_bytes,
        settings,
        limits: match settings.kernel_limit_bytes {
            0 => Limits::between(vmstat.limit_bytes, vmstat.background_bytes),
            _ => settings.limits(),
        },
        expire_seconds: value("/proc/sys/vm/dirty_expire_centisecs").unwrap_or(0) as f64 / 100.0,
        dirtied_rate: None,
        written_rate: None,
        writers: Writers {
            state: WriterState::Unknown,
            ..Writers::default()
        },
        io_pressure: pressure("io"),
        memory_pressure: pressure("memory"),
    }
}

fn rate(before: Duration, now: Duration, first: u64, last: u64) -> Option<f64> {
    let seconds = now.checked_sub(before)?.as_secs_f64();
    (seconds > 0.0).then(|| last.saturating_sub(first) as f64 / seconds)
}

/// Returns the mounts of a device, each file system first where its whole tree is mounted.
fn mounts_of(places: &[&Place]) -> Vec<MountReading> {
    let mut places = places.to_vec();
    places.sort_by_key(|place| (place.mount.root != std::path::Path::new("/"), place.mount.id));
    places
        .into_iter()
        .take(MOUNTS_MAX)
        .map(MountReading::of)
        .collect()
}

/// Whether a device is mounted for writing, is owed something, or writes.
fn is_worth_showing(device: &DeviceReading, drift: u64, options: &Options) -> bool {
    let writable = device.mounts.iter().any(|mount| !mount.read_only);
    let owed = device.backlog_bytes().is_some_and(|bytes| bytes > drift);
    writable || owed || device.device_rate > Some(0.0) || options.target.is_some()
}

/// The most indebted first, then the busiest, then by name.
fn order(device: &DeviceReading) -> (f64, f64, &str) {
    let backlog = device.backlog_bytes().or(device.backlog_bytes_max).unwrap_or(0);
    (
        -(backlog as f64),
        -device.device_rate.unwrap_or(0.0),
        &device.name,
    )
}

fn wall_seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

/// Returns the number of processors from a list like `0-3,8-11`; at least 1.
fn value_count(path: &str) -> usize {
    let text = text(path).unwrap_or_default();
    let last = text
        .trim()
        .rsplit([',', '-'])
        .next()
        .and_then(|last| last.parse::<usize>().ok());
    last.map_or(1, |last| last.saturating_add(1).min(1 << 16))
}

/// Whether the kernel accounts write-back by cgroup: version 2 with the memory and io controllers.
fn splits_by_cgroup() -> bool {
    let text = [
        "/sys/fs/cgroup/cgroup.controllers",
        "/sys/fs/cgroup/unified/cgroup.controllers",
    ]
    .into_iter()
    .find_map(|path| text(path).ok())
    .unwrap_or_default();
    let has = |name: &str| text.split_whitespace().any(|word| word == name);
    has("memory") && has("io")
}

fn has_wb_stats(debug: &Bdis, table: &Table) -> bool {
    table.bdis.iter().any(|bdi| debug.has_groups(bdi))
}
