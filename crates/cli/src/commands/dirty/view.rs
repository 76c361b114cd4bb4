//! A reading as text. Pure.

use std::path::Path;

use ropeway_dirty::Target;
use ropeway_dirty::estimate::Drain;
use ropeway_dirty::limits::Limits;
use ropeway_dirty::reading::{
    DeviceReading, DeviceState, Layer, MachineReading, Medium, Offenders, Reading, WriterState, Writers,
};

use crate::args::DirtyBy;
use crate::commands::ls::printable;
use crate::ui::format;

/// How to show a reading.
pub(super) struct Style<'a> {
    /// The only list to show.
    pub(super) by: Option<DirtyBy>,
    /// The only device to show.
    pub(super) target: Option<&'a Target>,
    /// Width of the terminal; lines of other outputs are not cut.
    pub(super) width: Option<usize>,
}

/// Returns the whole view: machine, devices, who is behind it, notes.
pub(super) fn lines(reading: &Reading, style: &Style<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    match style.target {
        Some(target) => lines.extend(target_lines(target, reading)),
        None => lines.extend(machine_lines(&reading.machine)),
    }
    if !reading.devices.is_empty() {
        lines.push(String::new());
        lines.push(HEADER.to_owned());
        for device in &reading.devices {
            lines.push(row(device, &reading.machine));
            lines.extend(places(device).map(|text| format!("  {text}")));
        }
    }
    for group in &reading.cgroups {
        let limit = group
            .limits
            .filter(|limits| limits.limit_bytes < reading.machine.limits.limit_bytes);
        if let Some(limits) = limit {
            lines.push(format!(
                "cgroup {}: {} dirty, {} on the way; {}",
                printable(&group.path),
                format::bytes(group.dirty_bytes),
                format::bytes(group.writeback_bytes),
                thresholds(&limits)
            ));
        }
    }
    lines.extend(offender_lines(&reading.offenders, style));
    if !reading.notes.is_empty() {
        lines.push(String::new());
        lines.extend(note_lines(reading));
    }
    if let Some(width) = style.width {
        for line in &mut lines {
            cut(line, width);
        }
    }
    lines
}

/// Returns a line for each device that is not clean, or one for the machine if no device can be told
/// apart; for outputs that are no terminal.
pub(super) fn log_lines(reading: &Reading) -> Vec<String> {
    let nanoseconds = i128::from((reading.time * 1e3) as i64) * 1_000_000;
    let time = crate::commands::nodes::local_time(ropeway_vfs::Timestamp(nanoseconds), false);
    let busy = |device: &&DeviceReading| device.state != DeviceState::Clean;
    let mut lines: Vec<String> = reading
        .devices
        .iter()
        .filter(busy)
        .map(|device| format!("{time} {}", state_line(device, &reading.machine)))
        .collect();
    if reading.devices.is_empty() {
        lines.extend(
            machine_lines(&reading.machine)
                .first()
                .map(|state| format!("{time} {state}")),
        );
    } else if lines.is_empty() {
        lines.push(format!("{time} every device is clean"));
    }
    lines
}

/// Returns what is missing in a reading.
pub(super) fn note_lines(reading: &Reading) -> impl Iterator<Item = String> {
    reading.notes.iter().map(|note| format!("note: {note}"))
}

fn machine_lines(machine: &MachineReading) -> Vec<String> {
    let mut state = format!(
        "{} dirty, {} on the way to devices; {}",
        format::bytes(machine.dirty_bytes),
        format::bytes(machine.writeback_bytes),
        writers_text(&machine.writers)
    );
    if let Some(pressure) = machine.io_pressure {
        state.push_str(&format!("; I/O pressure {:.0} %", pressure.some_percent));
    }
    let settings = &machine.settings;
    let either = |bytes: u64, ratio: u64| match bytes {
        0 => format!("{ratio} %"),
        bytes => format::bytes(bytes),
    };
    let limits = format!(
        "{} (vm.dirty {}); write-back begins at {} ({}) or after {:.0} s",
        thresholds(&machine.limits),
        either(settings.dirty_bytes, settings.dirty_ratio),
        format::bytes(machine.limits.background_bytes),
        either(settings.background_bytes, settings.background_ratio),
        machine.expire_seconds
    );
    vec![state, limits]
}

fn thresholds(limits: &Limits) -> String {
    format!(
        "writers wait from {}, limit {}",
        format::bytes(limits.held_from_bytes),
        format::bytes(limits.limit_bytes)
    )
}

fn writers_text(writers: &Writers) -> String {
    let mut text = match (writers.state, writers.threads) {
        (WriterState::Unknown, _) => "whether writers wait is not known".to_owned(),
        (WriterState::Free, _) => "writers are free".to_owned(),
        (WriterState::WouldWait, _) => "writers would wait".to_owned(),
        (WriterState::Held, 1) => "1 writer is held".to_owned(),
        (WriterState::Held, threads) => format!("{threads} writers are held"),
    };
    if let Some(ms) = writers.paused_ms.filter(|ms| *ms > 0) {
        text.push_str(&format!(" ({:.1} s of pauses)", ms as f64 / 1e3));
    }
    text
}

fn target_lines(target: &Target, reading: &Reading) -> Vec<String> {
    let shown = printable(&target.path.to_string_lossy());
    let on = match (&target.mount, &target.disk_name) {
        (Some(mount), Some(disk)) => format!("{} on {disk}", printable(&mount.fstype)),
        (Some(mount), None) => format!("{} of {}", printable(&mount.fstype), printable(&mount.source)),
        (None, disk) => disk.clone().unwrap_or_else(|| "a block device".to_owned()),
    };
    let medium = match target.medium {
        Medium::Removable => ", removable",
        Medium::Network => ", a server",
        Medium::Program => ", a FUSE program",
        Medium::Memory => ", in memory only",
        Medium::Fixed | Medium::Unknown => "",
    };
    let state = match reading.devices.first() {
        Some(device) => state_line(device, &reading.machine),
        None if target.medium == Medium::Memory => "nothing is ever written back".to_owned(),
        None => "the kernel does not say what is owed to it".to_owned(),
    };
    vec![format!("{shown}: {on}{medium}"), state]
}

/// Returns the state of a device in one line.
pub(super) fn state_line(device: &DeviceReading, machine: &MachineReading) -> String {
    let name = printable(&device.name);
    let writers = writers_text(&device.writers);
    let amount = match (device.backlog_bytes(), device.backlog_bytes_max) {
        (Some(bytes), _) => format::bytes(bytes),
        (None, Some(most)) => format!("at most {}", format::bytes(most)),
        (None, None) => return format!("{name}: what is owed to it is not known; {writers}"),
    };
    let rate = device
        .rate
        .map(|rate| format!(" at {}", format::rate(rate)))
        .unwrap_or_default();
    let left = device
        .drain
        .map(|drain| format!(", drained in {}", drain_text(&drain)))
        .unwrap_or_default();
    match device.state {
        DeviceState::Clean => format!("{name}: clean; {writers}"),
        DeviceState::Waiting => format!(
            "{name}: {amount} dirty, write-back begins within {:.0} s; {writers}",
            machine.expire_seconds
        ),
        DeviceState::Stalled => format!(
            "{name}: {amount} left, nothing completed for {:.0} s; {writers}",
            ropeway_dirty::judge::STALL_SECONDS
        ),
        DeviceState::Writing | DeviceState::Unknown => {
            format!("{name}: {amount} left{rate}{left}; {writers}")
        }
    }
}

/// Returns an estimate with its range; one that is the kernel's alone is marked.
pub(super) fn drain_text(drain: &Drain) -> String {
    let mark = match drain.basis {
        ropeway_dirty::estimate::Basis::Measured => "",
        _ => "~",
    };
    format!("{mark}{}", format::eta(&drain.eta))
}

/// Heads of the columns; rows are 80 columns wide.
const HEADER: &str = "device          dirty write-back  threshold         rate   time to drain writers";

fn row(device: &DeviceReading, machine: &MachineReading) -> String {
    let amount = |bytes: Option<u64>| bytes.map_or_else(|| "?".to_owned(), format::bytes);
    let dirty = match (device.dirty_bytes, device.backlog_bytes_max) {
        (None, Some(most)) => format!("≤{}", format::bytes(most)),
        (dirty, _) => amount(dirty),
    };
    let limits = device.own_limits.unwrap_or(machine.limits);
    let rate = device.rate.or(device.device_rate.filter(|rate| *rate > 0.0));
    let left = match device.state {
        DeviceState::Unknown => "?".to_owned(),
        DeviceState::Clean => "clean".to_owned(),
        DeviceState::Waiting => "waiting".to_owned(),
        DeviceState::Stalled => "stalled".to_owned(),
        DeviceState::Writing => device.drain.as_ref().map_or_else(|| "?".to_owned(), drain_text),
    };
    let writers = match device.writers.state {
        WriterState::Unknown => "?".to_owned(),
        WriterState::Free => "free".to_owned(),
        WriterState::WouldWait => "wait".to_owned(),
        WriterState::Held => format!("held {}", device.writers.threads),
    };
    let mut name = printable(&device.name);
    cut(&mut name, 10);
    let threshold = format::bytes(limits.held_from_bytes);
    let rate = rate.map_or_else(|| "-".to_owned(), format::rate);
    let writeback = amount(device.writeback_bytes);
    format!("{name:<10} {dirty:>10} {writeback:>10} {threshold:>10} {rate:>12} {left:>15} {writers}")
}

/// Returns where a device is mounted and what lies below it.
fn places(device: &DeviceReading) -> impl Iterator<Item = String> {
    let mut parts: Vec<String> = Vec::new();
    if let Some(first) = device.mounts.first() {
        let mut text = format!(
            "{} ({})",
            printable(&first.path.to_string_lossy()),
            printable(&first.fstype)
        );
        if device.mounts.len() > 1 {
            text.push_str(&format!(" and {} more", device.mounts.len() - 1));
        }
        parts.push(text);
    }
    let mut disks = Vec::new();
    for layer in &device.layers {
        match layer {
            Layer::Part { name } => disks.push(printable(name)),
            Layer::Image {
                path,
                on,
                dirty_bytes,
                writeback_bytes,
            } => parts.push(image_text(path, on.as_deref(), *dirty_bytes, *writeback_bytes)),
        }
    }
    if !disks.is_empty() {
        parts.push(format!("on {}", disks.join(", ")));
    }
    if device.medium == Medium::Removable {
        parts.push("removable".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(" · ")).into_iter()
}

/// Data of a file system in an image pass through the image's own pages.
fn image_text(path: &Path, on: Option<&str>, dirty: Option<u64>, writeback: Option<u64>) -> String {
    let path = printable(&path.to_string_lossy());
    let on = on.map(|on| format!(" on {}", printable(on))).unwrap_or_default();
    let owed = match (dirty, writeback) {
        (Some(dirty), Some(writeback)) => format!(
            ", itself {} dirty",
            format::bytes(dirty.saturating_add(writeback))
        ),
        _ => String::new(),
    };
    format!("image {path}{on}{owed}")
}

fn offender_lines(offenders: &Offenders, style: &Style<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if style.by != Some(DirtyBy::File) && !offenders.processes.is_empty() {
        lines.push(String::new());
        lines.push(format!(
            "{:<36} {:>14} {:>20}",
            "process", "makes dirty", "its files are owed"
        ));
        for process in &offenders.processes {
            let rate = process.dirtied_rate.map_or_else(|| "-".to_owned(), format::rate);
            let open = process.open_bytes.map_or_else(|| "?".to_owned(), format::bytes);
            let held = if process.held { "  held" } else { "" };
            let name = format!("{} ({})", printable(&process.name), process.pid);
            lines.push(format!("{name:<36} {rate:>14} {open:>20}{held}"));
        }
    }
    if style.by != Some(DirtyBy::Process) && !offenders.files.is_empty() {
        lines.push(String::new());
        lines.push(format!("{:>10} {:>10}  file", "dirty", "write-back"));
        for file in &offenders.files {
            let (dirty, writeback) = (
                format::bytes(file.dirty_bytes),
                format::bytes(file.writeback_bytes),
            );
            let path = printable(&file.path.to_string_lossy());
            lines.push(format!("{dirty:>10} {writeback:>10}  {path}"));
        }
    }
    lines
}

/// Cuts a line to a width in columns.
fn cut(text: &mut String, width: usize) {
    if text.chars().count() > width {
        *text = text.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
