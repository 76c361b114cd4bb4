//! When two modification times count as equal although they differ.
//!
//! * The ends report how precisely they keep times: SMB 100 ns, FAT 2 s, ext2 and ext3 with small
//!   inodes 1 s.
//! * The volume behind a share or a FUSE file system cannot report it. Its times show it: where all
//!   times in a folder are whole seconds, the volume keeps no more ([`TimeGranularity::learned`]).
//! * A tree that went over a share and came back has lost everything below 100 ns, wherever it is
//!   now. Nobody changes a file twice within that time, so such a difference counts as none.
//! * `--modify-window` sets how much more may differ.

use std::time::Duration;

use ropeway_vfs::{Capabilities, Timestamp};

/// SMB's unit of time ([MS-DTYP] 2.3.3), in nanoseconds.
const SMB_NS: u64 = 100;

/// Granularities in use, finest first: SMB and NTFS, microseconds (UDF, NFS servers), milliseconds,
/// exFAT, seconds, FAT. Each is a multiple of those before it.
const KNOWN_NS: [u64; 6] = [SMB_NS, 1_000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// How times of two ends are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeGranularity {
    /// The coarser granularity of both ends, in nanoseconds; 0 works like 1.
    pub granularity_ns: u64,
    /// `--modify-window`: times that differ by no more than this are equal, in nanoseconds.
    pub window_ns: u64,
    /// Whether the source's and the target's volume may be coarser than the end reports.
    uncertain: (bool, bool),
}

impl TimeGranularity {
    /// Combines what both ends report.
    pub fn between(source: &Capabilities, target: &Capabilities) -> Self {
        Self {
            granularity_ns: source.time_granularity_ns.max(target.time_granularity_ns),
            window_ns: 0,
            uncertain: (!source.time_granularity_known, !target.time_granularity_known),
        }
    }

    /// Adds `--modify-window`.
    #[must_use]
    pub fn with_window(self, window: Duration) -> Self {
        Self {
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            ..self
        }
    }

    /// Adapts to the nodes of one folder from the times that both ends list there. The granularity
    /// of an end that cannot report it is the coarsest one of which all its times are multiples.
    #[must_use]
    pub fn learned(
        self,
        source: impl Iterator<Item = Timestamp>,
        target: impl Iterator<Item = Timestamp>,
    ) -> Self {
        let source = if self.uncertain.0 { coarsest(source) } else { 1 };
        let target = if self.uncertain.1 { coarsest(target) } else { 1 };
        Self {
            granularity_ns: self.granularity_ns.max(source).max(target),
            ..self
        }
    }

    /// Returns the nanoseconds by which two times may differ that count as equal, or more.
    pub fn reach_ns(&self) -> u64 {
        self.granularity_ns
            .max(self.window_ns.saturating_add(1))
            .max(SMB_NS)
    }

    /// Whether two times count as equal. An unknown time equals no time.
    pub fn equal(&self, one: Timestamp, other: Timestamp) -> bool {
        let went_over_smb = [one, other].iter().any(|time| is_multiple(*time, SMB_NS));
        one.equal_within(other, self.granularity_ns.max(self.window_ns.saturating_add(1)))
            || (went_over_smb && one.equal_within(other, SMB_NS))
    }
}

fn is_multiple(time: Timestamp, step_ns: u64) -> bool {
    time.0.rem_euclid(i128::from(step_ns)) == 0
}

/// Returns the coarsest granularity that explains all of these times; 1 if there are none.
fn coarsest(times: impl Iterator<Item = Timestamp>) -> u64 {
    let times = times.filter(|time| time.is_known());
    let (mut possible, mut any) = (KNOWN_NS.len(), false);
    for time in times {
        any = true;
        possible = KNOWN_NS[..possible]
            .iter()
            .take_while(|step| is_multiple(time, **step))
            .count();
        if possible == 0 {
            return 1;
        }
    }
    match (any, possible.checked_sub(1)) {
        (true, Some(index)) => KNOWN_NS[index],
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::capabilities;
    use proptest::prelude::*;

    const SECOND: i128 = 1_000_000_000;

    fn unknown() -> Capabilities {
        Capabilities {
            time_granularity_known: false,
            ..capabilities()
        }
    }

    #[test]
    fn only_differences_made_by_smb_count_as_equal() {
        let grain = TimeGranularity::between(&capabilities(), &capabilities());
        let exact = Timestamp(7 * SECOND + 987_654_321);
        assert!(grain.equal(exact, Timestamp(7 * SECOND + 987_654_300)));
        assert!(grain.equal(Timestamp(7 * SECOND + 987_654_300), exact));
        assert!(!grain.equal(exact, Timestamp(7 * SECOND + 987_654_322)));
        assert!(!grain.equal(exact, Timestamp(7 * SECOND + 987_654_200)));
        assert!(!grain.equal(exact, Timestamp(7 * SECOND)));
    }

    #[test]
    fn a_window_is_as_wide_as_asked_for() {
        let grain =
            TimeGranularity::between(&capabilities(), &capabilities()).with_window(Duration::from_secs(2));
        assert!(grain.equal(Timestamp(0), Timestamp(2 * SECOND)));
        assert!(!grain.equal(Timestamp(0), Timestamp(2 * SECOND + 1)));
    }

    #[test]
    fn an_unknown_granularity_is_learned_from_the_times() {
        let grain = TimeGranularity::between(&capabilities(), &unknown());
        let fine = [Timestamp(1), Timestamp(3)];
        let seconds = [Timestamp(3 * SECOND), Timestamp(4 * SECOND)];
        let learned = |times: &[Timestamp]| grain.learned(fine.into_iter(), times.iter().copied());
        assert_eq!(learned(&seconds).granularity_ns, 1_000_000_000);
        assert_eq!(learned(&[Timestamp(2 * SECOND)]).granularity_ns, 2_000_000_000);
        assert_eq!(learned(&fine).granularity_ns, 1);
        assert_eq!(learned(&[]).granularity_ns, 1);
        assert_eq!(
            learned(&[seconds[0], Timestamp(SECOND + 100)]).granularity_ns,
            100
        );
        // A known granularity is not doubted, whatever the times are.
        let sure = TimeGranularity::between(&capabilities(), &capabilities());
        assert_eq!(
            sure.learned(seconds.into_iter(), seconds.into_iter())
                .granularity_ns,
            1
        );
    }

    proptest! {
        #[test]
        fn coarsely_kept_times_equal_the_originals(
            times in prop::collection::vec(0_i128..4_000_000_000_000_000_000, 1..20),
            step in prop::sample::select(KNOWN_NS.to_vec()),
        ) {
            let kept: Vec<_> = times
                .iter()
                .map(|time| Timestamp(time.div_euclid(i128::from(step)) * i128::from(step)))
                .collect();
            let grain = TimeGranularity::between(&capabilities(), &unknown())
                .learned(times.iter().map(|time| Timestamp(*time)), kept.iter().copied());
            prop_assert!(grain.granularity_ns >= step);
            for (time, kept) in times.iter().zip(&kept) {
                prop_assert!(grain.equal(Timestamp(*time), *kept));
            }
        }
    }
}
