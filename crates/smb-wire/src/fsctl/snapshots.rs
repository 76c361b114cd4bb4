//! Earlier states of a file: "previous versions" ([MS-SMB2] 2.2.32.2). A token such as `@GMT-2018.06.30-19.34.17` names
//! one; opening the file as it was then takes its time in a timewarp context ([MS-SMB2] 2.2.13.2.7).

use super::{terminated, write_terminated};
use crate::lengths::{len_u32, place};
use crate::{Fault, FileTime, Reader, Result, Text, Writer};

/// Most units of a token: a guess; tokens have 24.
const TOKEN_UNITS_MAX: usize = 255;

/// SRV_SNAPSHOT_ARRAY ([MS-SMB2] 2.2.32.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotArray {
    /// How many there are.
    pub number_of_snapshots: u32,
    /// Bytes that the tokens of all of them take; ask again with 12 more.
    pub snapshot_array_size: u32,
    /// The tokens; none if they did not all fit.
    pub snapshots: Vec<Text>,
}

impl SnapshotArray {
    /// All tokens.
    pub fn all(snapshots: Vec<Text>) -> Self {
        let bytes: usize = snapshots.iter().map(|token| token.wire_len() + 2).sum();
        Self {
            number_of_snapshots: len_u32(snapshots.len()),
            snapshot_array_size: len_u32(bytes + 2),
            snapshots,
        }
    }

    /// The same without tokens, for an answer that may not be that long ([MS-SMB2] 3.3.5.15.1).
    #[must_use]
    pub fn without_tokens(self) -> Self {
        Self {
            snapshots: Vec::new(),
            ..self
        }
    }

    /// Reads the IOCTL's output.
    ///
    /// # Errors
    /// Truncation, fewer tokens than announced, a token that is far too long.
    pub fn decode(output: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(output, "SRV_SNAPSHOT_ARRAY");
        let number_of_snapshots = reader.u32()?;
        let returned = place(reader.u32()?);
        let snapshot_array_size = reader.u32()?;
        let mut snapshots = Vec::new();
        // Each token takes bytes, so the bytes bound the loop.
        while snapshots.len() < returned {
            let token = terminated(&mut reader, TOKEN_UNITS_MAX)?;
            if token.is_empty() {
                return Err(reader.fault(Fault::Value));
            }
            snapshots.push(token);
        }
        Ok(Self {
            number_of_snapshots,
            snapshot_array_size,
            snapshots,
        })
    }

    /// Appends the IOCTL's output.
    ///
    /// # Panics
    /// If a token is empty or holds a unit of 0.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.number_of_snapshots);
        w.u32(len_u32(self.snapshots.len()));
        w.u32(self.snapshot_array_size);
        for token in &self.snapshots {
            assert!(!token.is_empty(), "an empty token ends the list");
            write_terminated(token, w);
        }
        w.u16(0);
        // Windows' answers have 16 bytes at least, and clients of it ask for no less.
        if self.snapshots.is_empty() {
            w.u16(0);
        }
    }
}

/// FILETIME ticks of a second.
const TICKS_PER_SECOND: u64 = 10_000_000;

/// Days from 0000-03-01 to 1601-01-01 in the proleptic Gregorian calendar.
const DAYS_TO_1601: u64 = 584_694;

/// The time that a token names; `None` if it is not a token.
pub fn token_time(token: &Text) -> Option<FileTime> {
    let text: Vec<u8> = token
        .units()
        .iter()
        .map(|unit| u8::try_from(*unit).ok())
        .collect::<Option<_>>()?;
    let pattern = b"@GMT-0000.00.00-00.00.00";
    let shaped = text.len() == pattern.len()
        && text.iter().zip(pattern).all(|(byte, like)| match like {
            b'0' => byte.is_ascii_digit(),
            _ => byte == like,
        });
    if !shaped {
        return None;
    }
    let mut numbers = text
        .split(|byte| !byte.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| {
            digits
                .iter()
                .fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
        });
    let mut next = || numbers.next();
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let plausible = year >= 1601
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !plausible {
        return None;
    }
    let days = days_from_march(year, month, day) - DAYS_TO_1601;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(FileTime(seconds * TICKS_PER_SECOND))
}

/// The token of a time, to the second; `None` beyond the year 9999.
pub fn token(time: FileTime) -> Option<Text> {
    let seconds = time.0 / TICKS_PER_SECOND;
    let (year, month, day) = date_from_march(seconds / 86_400 + DAYS_TO_1601);
    if year > 9_999 {
        return None;
    }
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let token = format!("@GMT-{year:04}.{month:02}.{day:02}-{hour:02}.{minute:02}.{second:02}");
    Some(Text::from(token.as_str()))
}

/// Days since 0000-03-01. With years that begin in March the leap day comes last, and a month's first day is linear in
/// its number (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_from_march(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1
}

/// The inverse of [`days_from_march`].
fn date_from_march(days: u64) -> (u64, u64, u64) {
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year_of_era;
    if month < 10 {
        (year, month + 3, day)
    } else {
        (year + 1, month - 9, day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(tokens in proptest::collection::vec(proptest::collection::vec(1_u16.., 1..30), 0..10)) {
            let array = SnapshotArray::all(tokens.into_iter().map(Text::from_units).collect());
            let bytes = structure(|w| array.encode(w));
            prop_assert_eq!(SnapshotArray::decode(&bytes), Ok(array.clone()));
            if !array.snapshots.is_empty() {
                prop_assert_eq!(bytes.len(), 12 + array.snapshot_array_size as usize);
            }
            let counts = array.without_tokens();
            let bytes = structure(|w| counts.encode(w));
            prop_assert_eq!(bytes.len(), 16);
            prop_assert_eq!(SnapshotArray::decode(&bytes), Ok(counts));
        }

        #[test]
        fn tokens_and_times_round_trip(seconds in 0..265_000_000_000_u64) {
            let time = FileTime(seconds * TICKS_PER_SECOND);
            prop_assert_eq!(token(time).and_then(|token| token_time(&token)), Some(time));
        }

        #[test]
        fn no_token_panics(units in proptest::collection::vec(any::<u16>(), 0..30), ticks: u64) {
            let _ = token_time(&Text::from_units(units));
            let _ = token(FileTime(ticks));
        }
    }

    #[test]
    fn known_tokens() {
        assert_eq!(token_time(&"@GMT-1601.01.01-00.00.00".into()), Some(FileTime(0)));
        // The Unix epoch ([MS-DTYP] 2.3.3 and every converter's constant).
        let epoch = FileTime(116_444_736_000_000_000);
        assert_eq!(token_time(&"@GMT-1970.01.01-00.00.00".into()), Some(epoch));
        assert_eq!(token(epoch), Some("@GMT-1970.01.01-00.00.00".into()));
        // 2024-02-29 23:59:59 UTC is 1709251199 in Unix seconds.
        let leap = FileTime(epoch.0 + 1_709_251_199 * TICKS_PER_SECOND);
        assert_eq!(token(leap), Some("@GMT-2024.02.29-23.59.59".into()));
        for wrong in [
            "",
            "@GMT-1970.13.01-00.00.00",
            "@GMT-1970-01.01.00.00.00",
            "@GMT-1600.01.01-00.00.00",
            "@GMT-19700.1.01-00.00.00",
        ] {
            assert_eq!(token_time(&wrong.into()), None, "{wrong}");
        }
        assert_eq!(token(FileTime(u64::MAX)), None);
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let array = SnapshotArray::all(vec![
            "@GMT-2018.06.30-19.34.17".into(),
            "@GMT-2018.06.30-19.33.37".into(),
        ]);
        let bytes = structure(|w| array.encode(w));
        assert_eq!(array.snapshot_array_size, 102, "as Windows says for two");
        attack(&bytes, 0, |bytes| SnapshotArray::decode(bytes).is_ok());
    }
}
