//! Formats numbers for people.

use std::time::Duration;

use ropeway_vfs::event::{Eta, Limit};

use crate::model::{Device, PageCache};

/// Most devices that are named beside the page cache. A guess: more do not fit in a line.
const DEVICES_MAX: usize = 4;

/// Formats a size as `512 B` or `41.2 GiB`: powers of 1024, one decimal.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be rounded to 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats a rate as `38.1 MiB/s`.
pub fn rate(bytes_per_s: f64) -> String {
    // `as` saturates, and NaN becomes 0.
    format!("{}/s", bytes(bytes_per_s.max(0.0) as u64))
}

/// Formats a number as `18,330`.
pub fn count(number: u64) -> String {
    grouped(&number.to_string())
}

/// Puts a comma before each three digits from the right.
pub fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 file`, `2 files`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats counts as `203 files in 36 folders`; without folders as `1 file`.
pub fn files_and_folders(files: u64, folders: u64) -> String {
    let files = counted(files, "file", "files");
    match folders {
        0 => files,
        folders => format!("{files} in {}", counted(folders, "folder", "folders")),
    }
}

/// Formats a duration as `0.04s`, `12.1s`, `43m02s` or `2h05m`.
pub fn duration(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    if seconds < 0.095 {
        return format!("{seconds:.2}s");
    }
    if seconds < 59.95 {
        return format!("{seconds:.1}s");
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        return format!("{}m{:02}s", whole / 60, whole % 60);
    }
    let minutes = whole.div_ceil(60);
    format!("{}h{:02}m", minutes / 60, minutes % 60)
}

/// Formats an estimate as `25m (22-29m)`, `40s (38-44s)` or `2.1h (1.9-2.6h)`, with one unit for
/// all three numbers.
pub fn eta(eta: &Eta) -> String {
    let [seconds, low, high, unit] = eta_parts(eta);
    format!("{seconds}{unit} ({low}-{high}{unit})")
}

/// Formats an estimate without its range.
pub fn eta_alone(eta: &Eta) -> String {
    let [seconds, .., unit] = eta_parts(eta);
    format!("{seconds}{unit}")
}

/// Returns the best guess, the range and their unit.
fn eta_parts(eta: &Eta) -> [String; 4] {
    let (unit_seconds, unit, decimals) = match eta.seconds {
        seconds if seconds < 100.0 => (1.0, "s", 0),
        seconds if seconds < 100.0 * 60.0 => (60.0, "m", 0),
        seconds if seconds < 48.0 * 3600.0 => (3600.0, "h", 1),
        _ => (86_400.0, "d", 1),
    };
    let show = |seconds: f64| format!("{:.decimals$}", seconds.max(0.0) / unit_seconds);
    [show(eta.seconds), show(eta.low), show(eta.high), unit.to_owned()]
}

/// Returns the name of the bottleneck.
pub fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Source => "source",
        Limit::Link => "link",
        Limit::Server => "server",
        Limit::Destination => "destination",
        Limit::SmallFiles => "small files",
        Limit::Bandwidth => "--bwlimit",
        Limit::Loss => "loss",
    }
}

/// Returns the share of a whole, 0 if there is none.
pub fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => (part as f64 / whole as f64).min(1.0),
    }
}

/// Formats seconds of any size, as [`duration`].
pub fn seconds(seconds: f64) -> String {
    let span = Duration::try_from_secs_f64(seconds.max(0.0));
    // A year is long enough for everything that a peer may make up.
    let most = Duration::from_secs(366 * 24 * 3600);
    duration(span.unwrap_or(most).min(most))
}

/// Returns what the page cache owes the machine's devices, and those that the process writes to.
pub fn page_cache(cache: &PageCache) -> String {
    let from = bytes(cache.held_from_bytes);
    let writers = match cache.writers.as_str() {
        "held" if cache.threads_held > 0 => {
            format!("held back: {}", counted(cache.threads_held, "thread", "threads"))
        }
        "held" | "would_wait" => format!("held back above {from}"),
        "free" => format!("free below {from}"),
        _ => "unknown".to_owned(),
    };
    let mut line = format!(
        "page cache: {} dirty, {} being written; writers {writers}",
        bytes(cache.dirty_bytes),
        bytes(cache.writeback_bytes),
    );
    let devices = cache.devices.iter().take(DEVICES_MAX).filter_map(device);
    line.extend(devices.map(|device| format!(" · {device}")));
    line
}

/// Returns what one device is owed, if that is known.
fn device(device: &Device) -> Option<String> {
    let owed = format!("{} {}", device.name, bytes(device.backlog_bytes()?));
    let drain = device.drain_seconds.filter(|seconds| *seconds >= 1.0);
    Some(match drain {
        Some(seconds) => format!("{owed}, drained in {}", self::seconds(seconds)),
        None => owed,
    })
}

/// Formats a rate of something countable: `12.3/s`, `1,234/s`.
pub fn per_second(rate: f64) -> String {
    match rate {
        rate if !rate.is_finite() || rate <= 0.0 => "0/s".to_owned(),
        rate if rate < 100.0 => format!("{rate:.1}/s"),
        rate => format!("{}/s", count(rate as u64)),
    }
}

/// Formats a share as a percentage.
pub fn percent(share: f64) -> String {
    let share = if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_never_show_four_digits_before_the_point() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (44_238_200_832, "41.2 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (number, text) in cases {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(rate(39_950_745.6), "38.1 MiB/s");
        assert_eq!(rate(f64::NAN), "0 B/s");
    }

    #[test]
    fn counts_have_separators() {
        let cases = [
            (0, "0"),
            (999, "999"),
            (1204, "1,204"),
            (18_330_000, "18,330,000"),
        ];
        for (number, text) in cases {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(1000, "file", "files"), "1,000 files");
    }

    #[test]
    fn times_are_short() {
        let cases = [
            (0.004, "0.00s"),
            (0.04, "0.04s"),
            (12.06, "12.1s"),
            (59.94, "59.9s"),
            (59.96, "1m00s"),
            (2582.0, "43m02s"),
            (7500.0, "2h05m"),
            (86_399.0, "24h00m"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn estimates_have_one_unit() {
        let show = |seconds, low, high| eta(&Eta { seconds, low, high });
        assert_eq!(show(1500.0, 1320.0, 1740.0), "25m (22-29m)");
        assert_eq!(show(40.2, 38.0, 44.4), "40s (38-44s)");
        assert_eq!(show(7560.0, 6840.0, 9360.0), "2.1h (1.9-2.6h)");
    }
}
