//! Parses sizes, ages and lists of paths in the form people write them.

use jiff::civil;
use jiff::tz::TimeZone;
use ropeway_vfs::{RelPath, Timestamp};

use super::FilterError;

/// Parses a number of bytes: `4096`, `64K`, `1.5M`, `2GiB`. K, M, G, T, P and KiB, MiB, … are
/// powers of 1024; KB, MB, … powers of 1000; case does not matter.
///
/// # Errors
/// Anything else, and sizes above 2^63.
pub fn parse_size(text: &str) -> Result<u64, FilterError> {
    let fault = || FilterError::Size(text.to_owned());
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (prefix, base) = match unit.strip_suffix("ib") {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024_u64),
        Some(_) => return Err(fault()),
        None => match unit.strip_suffix('b') {
            Some(prefix) => (prefix, 1000),
            None => (unit.as_str(), 1024),
        },
    };
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(fault()),
    };
    let factor = base.pow(power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(factor)
            .filter(|bytes| *bytes <= 1 << 63)
            .ok_or_else(fault);
    }
    let parts: f64 = number.parse().map_err(|_| fault())?;
    let bytes = parts * factor as f64;
    if bytes.is_finite() && bytes <= (1_u64 << 63) as f64 {
        Ok(bytes.round() as u64)
    } else {
        Err(fault())
    }
}

/// Parses an age before `now`, or a date. Works like [`parse_age_in`] with dates in UTC.
///
/// # Errors
/// Anything else, and moments out of range.
pub fn parse_age(text: &str, now: Timestamp) -> Result<Timestamp, FilterError> {
    parse_age_in(text, now, &TimeZone::UTC)
}

/// Parses an age before `now` (`90s`, `30m`, `2h`, `3d`, `1w`, `6M` of 30 days, `1y` of 365 days,
/// or several in a row: `1d12h`), a date in `zone` (`2026-01-02`, `2026-01-02T15:04`), or a moment
/// (`2026-01-02T15:04:00Z`).
///
/// # Errors
/// Anything else, and moments out of range.
pub fn parse_age_in(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, FilterError> {
    let trimmed = text.trim();
    if let Some(span) = parse_span(trimmed) {
        return Ok(Timestamp(now.0 - span));
    }
    if let Ok(moment) = trimmed.parse::<jiff::Timestamp>() {
        return Ok(Timestamp(moment.as_nanosecond()));
    }
    trimmed
        .parse::<civil::DateTime>()
        .ok()
        .and_then(|date| date.to_zoned(zone.clone()).ok())
        .map(|zoned| Timestamp(zoned.timestamp().as_nanosecond()))
        .ok_or_else(|| FilterError::Age(text.to_owned()))
}

/// Parses `1w2d3.5h` to nanoseconds; `None` if it is not of this form.
fn parse_span(text: &str) -> Option<i128> {
    /// Longest duration accepted, in seconds (about 3,000 years): beyond the age of any file and
    /// far from overflow.
    const SECONDS_MAX: f64 = 1e11;
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let split = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, tail) = rest.split_at(split);
        let unit = tail.chars().next()?;
        let unit_seconds = match unit {
            's' => 1.0,
            'm' => 60.0,
            'h' => 3_600.0,
            'd' => 86_400.0,
            'w' => 604_800.0,
            'M' => 30.0 * 86_400.0,
            'y' => 365.0 * 86_400.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit_seconds;
        rest = &tail[unit.len_utf8()..];
    }
    (!text.is_empty() && seconds <= SECONDS_MAX).then_some((seconds * 1e9) as i128)
}

/// Parses a list of paths below the source, one on each line (`\r\n` and a missing last line end
/// are accepted), or separated by NUL if `zero_separated`. A leading `./` and a trailing `/` are
/// removed. Empty entries are skipped; `.` is the root.
///
/// # Errors
/// An entry that leads out of the source: absolute, or with `..`.
pub fn parse_file_list(bytes: &[u8], zero_separated: bool) -> Result<Vec<RelPath>, FilterError> {
    let separator = if zero_separated { 0 } else { b'\n' };
    let mut list = Vec::new();
    for (index, entry) in bytes.split(|byte| *byte == separator).enumerate() {
        let mut path = entry;
        if !zero_separated {
            path = path.strip_suffix(b"\r").unwrap_or(path);
        }
        if path.is_empty() {
            continue;
        }
        while let Some(rest) = path.strip_prefix(b"./") {
            path = rest;
        }
        while let Some(rest) = path.strip_suffix(b"/").filter(|rest| !rest.is_empty()) {
            path = rest;
        }
        if path == b"." {
            path = b"";
        }
        list.push(RelPath::parse(path).ok_or_else(|| FilterError::Path {
            line: index + 1,
            text: String::from_utf8_lossy(entry).into_owned(),
        })?);
    }
    Ok(list)
}
