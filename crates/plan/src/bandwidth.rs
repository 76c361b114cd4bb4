//! Parses `--bwlimit`: one rate, or a timetable of rates.
//!
//! The syntax is that of rclone's timetable: entries `[DAY-]HH:MM,RATE` separated by spaces. An
//! entry holds until the next one. An entry without a day holds on every day. Before the first
//! entry of the week the last one holds, since the week is a ring. `off` and `0` mean no limit.
//!
//! ```text
//! 8M
//! 08:00,512K 18:00,10M 23:00,off
//! Mon-08:00,1M Fri-20:00,off
//! ```
//!
//! Rates are bytes a second in the syntax of [`crate::filter::parse_size`]. (rclone counts bare
//! numbers in KiB; Ropeway counts bytes.) Days and times are those of the local clock, which the
//! caller passes in.

use std::fmt;

use jiff::civil::DateTime;

use crate::filter::parse_size;

const DAY_SECONDS: u32 = 24 * 3600;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Most entries accepted: one for each quarter of an hour of a week. More are surely a mistake.
const ENTRIES_MAX: usize = 7 * 24 * 4;

/// A `--bwlimit` that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{entry:?} is not a bandwidth: {reason}; write a rate such as 8M or off, or a timetable such as \
     \"08:00,512K 18:00,10M Sat-00:00,off\""
)]
pub struct ScheduleError {
    /// The part that cannot be parsed.
    pub entry: String,
    /// The reason.
    pub reason: String,
}

/// A moment of the week and the rate from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    /// Seconds since Monday 00:00.
    second: u32,
    /// Bytes a second; `None` means no limit.
    rate: Option<u64>,
}

/// The rate at which bytes may move, by time of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Sorted by moment; at least one; each moment once.
    changes: Vec<Change>,
}

impl Schedule {
    /// Makes a schedule with one constant rate in bytes a second; `None` means no limit.
    pub fn constant(rate: Option<u64>) -> Self {
        Self {
            changes: vec![Change { second: 0, rate }],
        }
    }

    /// Parses a rate or a timetable.
    ///
    /// # Errors
    /// An entry without a rate, an impossible time, or two entries for one moment.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let fault = |entry: &str, reason: &str| ScheduleError {
            entry: entry.to_owned(),
            reason: reason.to_owned(),
        };
        let entries: Vec<&str> = text.split_whitespace().collect();
        match entries.as_slice() {
            [] => return Err(fault(text, "it is empty")),
            [rate] if !rate.contains(',') => {
                let rate = parse_rate(rate).map_err(|reason| fault(rate, &reason))?;
                return Ok(Self::constant(rate));
            }
            entries if entries.len() > ENTRIES_MAX => return Err(fault(text, "it has too many entries")),
            _ => {}
        }
        let mut changes = Vec::new();
        for entry in entries {
            let (seconds, rate) = parse_entry(entry).map_err(|reason| fault(entry, &reason))?;
            changes.extend(seconds.into_iter().map(|second| Change { second, rate }));
        }
        changes.sort_by_key(|change| change.second);
        if changes.windows(2).any(|pair| pair[0].second == pair[1].second) {
            return Err(fault(text, "two entries are for the same time"));
        }
        Ok(Self { changes })
    }

    /// Returns the rate at a local day and time in bytes a second; `None` means no limit.
    pub fn rate_at(&self, local: DateTime) -> Option<u64> {
        let second = second_of_week(local);
        let later = self.changes.partition_point(|change| change.second <= second);
        // Before the first change the last one of the week holds.
        let index = later.checked_sub(1).unwrap_or(self.changes.len() - 1);
        self.changes[index].rate
    }

    /// Whether any time of the week has a limit.
    pub fn limits(&self) -> bool {
        self.changes.iter().any(|change| change.rate.is_some())
    }
}

impl fmt::Display for Schedule {
    /// Writes what [`Schedule::parse`] reads: one rate, or a timetable with a day in each entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.changes.as_slice() {
            return f.write_str(&rate_text(only.rate));
        }
        for (number, change) in self.changes.iter().enumerate() {
            let day = DAYS[(change.second / DAY_SECONDS) as usize % DAYS.len()];
            let (hours, minutes) = (change.second / 3600 % 24, change.second / 60 % 60);
            let space = if number > 0 { " " } else { "" };
            let rate = rate_text(change.rate);
            write!(f, "{space}{day}-{hours:02}:{minutes:02},{rate}")?;
        }
        Ok(())
    }
}

/// Returns `20M` for a rate, in the largest unit in which it is whole.
fn rate_text(rate: Option<u64>) -> String {
    let Some(rate) = rate else {
        return "off".to_owned();
    };
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let fits = units.into_iter().find(|(factor, _)| rate.is_multiple_of(*factor));
    let (factor, unit) = fits.unwrap_or((1, ""));
    format!("{}{unit}", rate / factor)
}

fn second_of_week(local: DateTime) -> u32 {
    // jiff guarantees that all parts are small and not negative.
    let day = local.date().weekday().to_monday_zero_offset().unsigned_abs();
    let part = |value: i8| u32::from(value.unsigned_abs());
    u32::from(day) * DAY_SECONDS
        + part(local.hour()) * 3600
        + part(local.minute()) * 60
        + part(local.second())
}

/// Parses `[DAY-]HH:MM,RATE` to seconds of the week (one, or one for each day) and the rate.
fn parse_entry(entry: &str) -> Result<(Vec<u32>, Option<u64>), String> {
    let (when, rate) = entry
        .split_once(',')
        .ok_or("a comma must separate the time from the rate")?;
    let (day, time) = match when.split_once('-') {
        Some((day, time)) => (Some(parse_day(day)?), time),
        None => (None, when),
    };
    let second = parse_time(time).ok_or_else(|| format!("{time:?} is not a time HH:MM"))?;
    let days = match day {
        Some(day) => day..day + 1,
        None => 0..7,
    };
    let seconds = days.map(|day| day * DAY_SECONDS + second).collect();
    Ok((seconds, parse_rate(rate)?))
}

/// Parses `Mon` or `Monday`, in any case, to 0..7.
fn parse_day(text: &str) -> Result<u32, String> {
    const FULL: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let lower = text.to_ascii_lowercase();
    (0..7_u32)
        .zip(DAYS.iter().zip(FULL))
        .find(|(_, (short, full))| lower == **short || lower == *full)
        .map(|(day, _)| day)
        .ok_or_else(|| format!("{text:?} is not a day (Mon, Tue, … Sun)"))
}

/// Parses `HH:MM` to seconds of the day.
fn parse_time(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, max: u32| {
        let plain = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|value| plain && *value < max)
    };
    Some(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)
}

/// Parses a size or `off`; 0 means `off` too, as in rclone.
fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    let rate = parse_size(text.strip_suffix("/s").unwrap_or(text)).map_err(|error| error.to_string())?;
    Ok(Some(rate).filter(|rate| *rate > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime {
        text.parse().unwrap()
    }

    // 2026-01-05 is a Monday.
    #[test]
    fn a_single_rate_holds_at_all_times() {
        let schedule = Schedule::parse("8M").unwrap();
        assert_eq!(schedule.rate_at(at("2026-01-05T00:00")), Some(8 << 20));
        assert!(!Schedule::parse("off").unwrap().limits());
        assert!(!Schedule::parse("0").unwrap().limits());
        assert_eq!(
            Schedule::parse("1MB/s").unwrap().rate_at(at("2026-01-05T00:00")),
            Some(1_000_000)
        );
    }

    #[test]
    fn a_daily_timetable_wraps_at_midnight() {
        let schedule = Schedule::parse("08:00,512K 18:00,10M 23:00,off").unwrap();
        for (time, rate) in [
            ("07:59:59", None),
            ("08:00:00", Some(512 << 10)),
            ("17:59:59", Some(512 << 10)),
            ("18:00:00", Some(10 << 20)),
            ("23:00:00", None),
        ] {
            for day in ["05", "08", "11"] {
                assert_eq!(
                    schedule.rate_at(at(&format!("2026-01-{day}T{time}"))),
                    rate,
                    "{time}"
                );
            }
        }
        // From Sunday night into Monday morning.
        assert_eq!(schedule.rate_at(at("2026-01-11T23:30:00.5")), None);
        assert_eq!(schedule.rate_at(at("2026-01-12T07:59:59")), None);
    }

    #[test]
    fn a_weekly_timetable_holds_over_days() {
        let schedule = Schedule::parse("Mon-08:00,1M Friday-20:00,off").unwrap();
        assert_eq!(schedule.rate_at(at("2026-01-05T07:00")), None);
        assert_eq!(schedule.rate_at(at("2026-01-07T03:00")), Some(1 << 20));
        assert_eq!(schedule.rate_at(at("2026-01-10T03:00")), None);
        assert_eq!(schedule.rate_at(at("2026-01-09T19:59:59")), Some(1 << 20));
        assert_eq!(schedule.rate_at(at("2026-01-09T20:00")), None);
    }

    #[test]
    fn a_schedule_is_written_as_it_is_read() {
        for (text, written) in [
            ("20M", "20M"),
            ("1MB", "1000000"),
            ("1536", "1536"),
            ("off", "off"),
            ("Mon-08:00,1M Friday-20:05,off", "mon-08:00,1M fri-20:05,off"),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            assert_eq!(schedule.to_string(), written);
            assert_eq!(Schedule::parse(written).unwrap(), schedule);
        }
        let daily = Schedule::parse("08:00,512K 18:00,10M").unwrap();
        assert_eq!(Schedule::parse(&daily.to_string()).unwrap(), daily);
    }

    #[test]
    fn an_error_names_the_faulty_part() {
        for bad in [
            "",
            "fast",
            "08:00",
            "08:00,",
            "25:00,1M",
            "08:60,1M",
            "8:0:0,1M",
            "Moon-08:00,1M",
            "08:00,1M 08:00,2M",
            "Mon-08:00,1M 08:00,2M",
            "1M 2M",
            "+8:00,1M",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad:?}");
        }
        let error = Schedule::parse("08:00,512K Moon-18:00,1M")
            .unwrap_err()
            .to_string();
        assert!(error.contains("Moon"), "{error}");
    }
}
