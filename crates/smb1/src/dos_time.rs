//! Times of old commands: dates of DOS, and seconds since 1970 ([MS-CIFS] 2.2.1.4).
//!
//! Both are local times of the server, without a zone. A connection learns the server's distance
//! from UTC when it negotiates.

use ropeway_smb_wire::FileTime;

/// A date and a time of DOS: years 1980 to 2107, steps of two seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DosTime {
    /// SMB_DATE: 7 bits of the year since 1980, 4 of the month, 5 of the day; 0 for no time.
    pub date: u16,
    /// SMB_TIME: 5 bits of the hour, 6 of the minute, 5 of the second divided by two.
    pub time: u16,
}

/// A server's distance from UTC in minutes, positive west of it ([MS-CIFS] 2.2.4.52.2,
/// `ServerTimeZone`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone(pub i16);

impl Zone {
    fn seconds(self) -> i64 {
        i64::from(self.0) * 60
    }
}

impl DosTime {
    /// Returns the time of a FILETIME, rounded down to two seconds. Times that DOS does not know
    /// become no time.
    pub fn of(time: FileTime, zone: Zone) -> Self {
        if time == FileTime::KEEP || time > FileTime::MAX {
            return Self::default();
        }
        let local = time.to_unix().0 - zone.seconds();
        let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        if !(1980..=2107).contains(&year) {
            return Self::default();
        }
        Self {
            date: ((year - 1980) as u16) << 9 | (month as u16) << 5 | day as u16,
            time: ((second / 3600) as u16) << 11
                | ((second / 60 % 60) as u16) << 5
                | (second % 60 / 2) as u16,
        }
    }

    /// Returns the FILETIME; [`FileTime::KEEP`] for no time, and for what is none.
    pub fn to_file_time(self, zone: Zone) -> FileTime {
        let (year, month, day) = (
            i64::from(self.date >> 9) + 1980,
            i64::from(self.date >> 5 & 15),
            i64::from(self.date & 31),
        );
        let (hour, minute, second) = (
            i64::from(self.time >> 11),
            i64::from(self.time >> 5 & 63),
            i64::from(self.time & 31) * 2,
        );
        let is_time = (1..=12).contains(&month) && day > 0 && hour < 24 && minute < 60 && second < 60;
        if !is_time {
            return FileTime::KEEP;
        }
        let local = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
        FileTime::from_unix(local + zone.seconds(), 0)
    }
}

/// Returns the seconds since 1970 of a FILETIME in the server's zone (UTIME); 0 for no time, and for
/// what does not fit.
pub fn utime(time: FileTime, zone: Zone) -> u32 {
    if time == FileTime::KEEP || time > FileTime::MAX {
        return 0;
    }
    u32::try_from(time.to_unix().0 - zone.seconds()).unwrap_or(0)
}

/// Returns the FILETIME of seconds since 1970 in the server's zone; [`FileTime::KEEP`] for 0 and -1,
/// which mean no time.
pub fn from_utime(seconds: u32, zone: Zone) -> FileTime {
    match seconds {
        0 | u32::MAX => FileTime::KEEP,
        seconds => FileTime::from_unix(i64::from(seconds) + zone.seconds(), 0),
    }
}

/// Returns year, month and day of a day since 1970 (the proleptic Gregorian calendar, counted from
/// March in eras of 400 years).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the days since 1970 of a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        // 2001-09-09 01:46:40 UTC is second 1,000,000,000.
        let time = FileTime::from_unix(1_000_000_000, 0);
        let dos = DosTime::of(time, Zone(0));
        assert_eq!(dos.date, (2001 - 1980) << 9 | 9 << 5 | 9);
        assert_eq!(dos.time, 1 << 11 | 46 << 5 | 20);
        assert_eq!(dos.to_file_time(Zone(0)), time);
        assert_eq!(utime(time, Zone(-60)), 1_000_003_600);
        assert_eq!(from_utime(1_000_003_600, Zone(-60)), time);
        assert_eq!(from_utime(0, Zone(0)), FileTime::KEEP);
        assert_eq!(DosTime::default().to_file_time(Zone(0)), FileTime::KEEP);
        assert_eq!(
            DosTime::of(FileTime::from_unix(0, 0), Zone(0)),
            DosTime::default()
        );
    }

    proptest! {
        #[test]
        fn times_come_back_to_two_seconds(second in 315_532_800_i64..4_354_819_200, zone in -840_i16..840) {
            let time = FileTime::from_unix(second, 0);
            let dos = DosTime::of(time, Zone(zone));
            prop_assume!(dos != DosTime::default());
            let back = dos.to_file_time(Zone(zone));
            prop_assert!((0..2).contains(&(second - back.to_unix().0)));
            prop_assert_eq!(DosTime::of(back, Zone(zone)), dos);
        }

        #[test]
        fn any_bits_are_a_time_or_none(date: u16, time: u16, zone: i16, seconds: u32) {
            _ = DosTime { date, time }.to_file_time(Zone(zone));
            _ = from_utime(seconds, Zone(zone));
            _ = DosTime::of(FileTime(u64::from(seconds) << 32), Zone(zone));
        }
    }
}
