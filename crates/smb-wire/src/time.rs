//! FILETIME: how SMB tells the time.

use super::{Reader, Result, Writer};

/// Seconds from 1601-01-01 to 1970-01-01, both 00:00 UTC.
const UNIX_EPOCH_S: i128 = 11_644_473_600;
/// FILETIME's unit is 100 ns.
const TICKS_PER_SECOND: i128 = 10_000_000;

/// 100 ns steps since 1601-01-01 00:00 UTC ([MS-DTYP] 2.3.3).
///
/// Whether a time stands for something else ([`FileTime::KEEP`], [`FileTime::FREEZE`], [`FileTime::THAW`]) depends on
/// the structure that holds it: only in `FileBasicInformation` to be set does it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileTime(pub u64);

impl FileTime {
    /// To set: do not change this time. From a server: there is no such time ([MS-FSCC] 2.4.7).
    pub const KEEP: Self = Self(0);
    /// To set (-1): do not change this time, and no longer change it for operations through this open.
    pub const FREEZE: Self = Self(u64::MAX);
    /// To set (-2): change it again for operations through this open, which ends [`FileTime::FREEZE`].
    pub const THAW: Self = Self(u64::MAX - 1);
    /// The latest time: FILETIME is signed where Windows computes with it.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// The moment `seconds` after (before, if negative) 1970 and `nanoseconds` more; what is not a whole step is cut
    /// off towards the past. Moments outside 1601 to the year 30828 become the nearest that can be said; none becomes
    /// [`FileTime::KEEP`], as setting 1601 would then set nothing.
    pub fn from_unix(seconds: i64, nanoseconds: u32) -> Self {
        let ticks = (i128::from(seconds) + UNIX_EPOCH_S) * TICKS_PER_SECOND + i128::from(nanoseconds / 100);
        Self(u64::try_from(ticks.clamp(1, i128::from(Self::MAX.0))).unwrap_or(Self::MAX.0))
    }

    /// Seconds since 1970 (negative before) and nanoseconds within the second. Times past [`FileTime::MAX`] count as
    /// that.
    pub fn to_unix(self) -> (i64, u32) {
        let ticks = i128::from(self.0.min(Self::MAX.0)) - UNIX_EPOCH_S * TICKS_PER_SECOND;
        let seconds = ticks.div_euclid(TICKS_PER_SECOND);
        let nanoseconds = ticks.rem_euclid(TICKS_PER_SECOND) * 100;
        // Both fit: |ticks| < 2^63 and nanoseconds < 10^9.
        (
            i64::try_from(seconds).unwrap_or(i64::MAX),
            u32::try_from(nanoseconds).unwrap_or(0),
        )
    }

    /// Reads eight bytes.
    ///
    /// # Errors
    /// The message ends before.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        reader.u64().map(Self)
    }

    /// Appends eight bytes.
    pub fn write(self, writer: &mut Writer<'_>) {
        writer.u64(self.0);
    }
}

impl std::fmt::Debug for FileTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::KEEP => f.write_str("FileTime(KEEP)"),
            Self::FREEZE => f.write_str("FileTime(FREEZE)"),
            Self::THAW => f.write_str("FileTime(THAW)"),
            _ => {
                let (seconds, nanoseconds) = self.to_unix();
                write!(f, "FileTime({seconds}.{nanoseconds:09} s after 1970)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments() {
        assert_eq!(FileTime::from_unix(0, 0), FileTime(116_444_736_000_000_000));
        assert_eq!(FileTime::from_unix(0, 199), FileTime(116_444_736_000_000_001));
        assert_eq!(
            FileTime::from_unix(-1, 999_999_999),
            FileTime(116_444_735_999_999_999)
        );
        assert_eq!(FileTime(116_444_735_999_999_999).to_unix(), (-1, 999_999_900));
        assert_eq!(FileTime::KEEP.to_unix(), (-11_644_473_600, 0));
    }

    #[test]
    fn moments_out_of_reach_become_the_nearest() {
        assert_eq!(FileTime::from_unix(i64::MIN, 0), FileTime(1));
        assert_eq!(FileTime::from_unix(i64::MAX, u32::MAX), FileTime::MAX);
        assert_eq!(FileTime::FREEZE.to_unix(), FileTime::MAX.to_unix());
    }

    proptest! {
        #[test]
        fn every_step_round_trips(ticks in 1..=FileTime::MAX.0) {
            let (seconds, nanoseconds) = FileTime(ticks).to_unix();
            prop_assert!(nanoseconds < 1_000_000_000);
            prop_assert_eq!(FileTime::from_unix(seconds, nanoseconds), FileTime(ticks));
        }

        #[test]
        fn later_is_never_earlier(a: i64, b: i64, nanoseconds: u32) {
            let (a, b) = (a.min(b), a.max(b));
            prop_assert!(FileTime::from_unix(a, nanoseconds) <= FileTime::from_unix(b, nanoseconds));
        }
    }
}
