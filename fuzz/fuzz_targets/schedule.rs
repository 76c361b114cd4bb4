//! Bandwidth timetables. The first line picks a moment, the rest is the timetable. The rate changes
//! only at a whole minute, and the timetable repeats every week.

#![no_main]

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use libfuzzer_sys::fuzz_target;
use ropeway_plan::Schedule;

const WEEK_SECONDS: u64 = 7 * 24 * 3600;

/// A moment of the week from Monday, 2026-01-05.
fn moment(seed: &[u8]) -> DateTime {
    // FNV-1a, to spread what a mutation changes.
    let hash = seed.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let nanosecond = if hash >> 63 == 0 {
        0
    } else {
        (hash >> 32) as i32 % 1_000_000_000
    };
    let second = SignedDuration::new((hash % WEEK_SECONDS) as i64, nanosecond.max(0));
    date(2026, 1, 5).at(0, 0, 0, 0) + second
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let now = moment(parts.next().unwrap_or_default());
    let Ok(text) = std::str::from_utf8(parts.next().unwrap_or_default()) else {
        return;
    };
    let schedule = match Schedule::parse(text) {
        Ok(schedule) => schedule,
        Err(error) => {
            assert!(text.contains(&error.entry), "the fault names a part of the input");
            return;
        }
    };
    let rate = schedule.rate_at(now);
    assert!(rate != Some(0), "0 is no limit");
    assert!(schedule.limits() || rate.is_none());
    // Rates change at whole minutes only.
    let minute = now - SignedDuration::new(i64::from(now.second()), now.subsec_nanosecond());
    for moment in [
        minute,
        minute + SignedDuration::from_nanos(60 * 1_000_000_000 - 1),
    ] {
        assert_eq!(
            schedule.rate_at(moment),
            rate,
            "changed between {moment} and {now}"
        );
    }
    // The timetable repeats every week.
    let week = SignedDuration::from_secs(WEEK_SECONDS as i64);
    assert_eq!(schedule.rate_at(now + week), rate);
});
