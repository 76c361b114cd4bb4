//! Compares what `ropeway dirty` said with what was true. Pure.

use serde::Serialize;

/// Backlogs below this are not compared: pages of other programs would decide.
const LEAST_BYTES: f64 = 32.0 * 1_048_576.0;
/// Times left below this are not compared, in seconds: a step of the device would decide.
const LEAST_SECONDS: f64 = 2.0;
/// Parts of the drain at which the estimate is shown.
const MOMENTS: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// One look of `ropeway dirty`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Time of day in seconds.
    pub time: f64,
    /// Backlog of the machine, and the sum over all devices, in bytes.
    pub machine: f64,
    /// See [`Look::machine`].
    pub devices: f64,
    /// Backlog of the device in question.
    pub device: Option<f64>,
    /// Time left with its range, from whole steps of the device, while it writes.
    pub left: Option<[f64; 3]>,
}

/// What was true at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truth {
    /// Time of day in seconds.
    pub time: f64,
    /// Dirty bytes and those on their way, by /proc/vmstat.
    pub vmstat: f64,
    /// Bytes that the device has taken.
    pub taken: f64,
}

/// Everything that was seen of one device.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Looks, in order.
    pub looks: Vec<Look>,
    /// Truths, in order.
    pub truths: Vec<Truth>,
    /// Bytes that were written, and when the last write returned.
    pub written: f64,
    /// See [`Recording::written`].
    pub written_at: f64,
    /// When the flush began, and when the device had everything.
    pub drain_from: f64,
    /// See [`Recording::drain_from`].
    pub drained_at: f64,
    /// When `ropeway dirty drain` ended.
    pub ended_at: f64,
    /// Bytes that the device had taken before.
    pub taken_before: f64,
}

/// A deviation over many looks, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Deviation {
    /// Number of looks.
    pub looks: usize,
    /// Median of its amount.
    pub median_percent: f64,
    /// Largest amount.
    pub largest_percent: f64,
}

/// One moment of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Seconds since the flush began.
    pub seconds: f64,
    /// Time left as it was estimated, with its range.
    pub said: [f64; 3],
    /// Time left in truth.
    pub truth: f64,
}

impl Moment {
    /// Returns the deviation in percent.
    pub fn percent(&self) -> f64 {
        (self.said[0] / self.truth - 1.0) * 100.0
    }
}

/// The figures of one device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Backlog of the machine, beside /proc/vmstat.
    pub machine: Deviation,
    /// Sum of the devices' backlogs, beside /proc/vmstat.
    pub devices: Deviation,
    /// Backlog of the device, beside the bytes written less those that it has taken.
    pub device: Deviation,
    /// Time left, beside the true one.
    pub left: Deviation,
    /// Share of looks whose range held the truth, in percent.
    pub in_range_percent: f64,
    /// The estimate at some moments.
    pub moments: Vec<Moment>,
    /// Seconds from the flush to the last byte.
    pub drain_seconds: f64,
    /// Bytes that the device had not taken when `ropeway dirty drain` ended.
    pub left_bytes: f64,
}

impl Recording {
    /// Returns the figures.
    pub fn figures(&self) -> Figures {
        let pairs = |said: &dyn Fn(&Look) -> Option<f64>, truth: &dyn Fn(&Look) -> Option<f64>| {
            let both = self
                .looks
                .iter()
                .filter_map(|look| Some((said(look)?, truth(look)?)));
            deviation(both.filter(|(_, truth)| *truth >= LEAST_BYTES))
        };
        let vmstat = |look: &Look| self.at(look.time, |truth| truth.vmstat);
        let owed = |look: &Look| {
            let taken = self.at(look.time, |truth| truth.taken)?;
            (look.time >= self.written_at).then_some(self.written - (taken - self.taken_before))
        };
        let moments = self.moments();
        let inside = moments.iter().filter(|moment| {
            let [_, low, high] = moment.said;
            (low..=high).contains(&moment.truth)
        });
        let looks = moments.len().max(1) as f64;
        Figures {
            machine: pairs(&|look| Some(look.machine), &vmstat),
            devices: pairs(&|look| Some(look.devices), &vmstat),
            device: pairs(&|look| look.device, &owed),
            in_range_percent: inside.count() as f64 / looks * 100.0,
            left: deviation(moments.iter().map(|moment| (moment.said[0], moment.truth))),
            drain_seconds: self.drained_at - self.drain_from,
            left_bytes: self.left_at_end(),
            moments: self.some_of(&moments),
        }
    }

    /// Returns every estimate during the drain.
    pub fn moments(&self) -> Vec<Moment> {
        let during = |look: &&Look| look.time >= self.drain_from && look.time < self.drained_at;
        let looks = self.looks.iter().filter(during);
        looks
            .filter_map(|look| {
                Some(Moment {
                    seconds: look.time - self.drain_from,
                    said: look.left?,
                    truth: self.drained_at - look.time,
                })
            })
            .filter(|moment| moment.truth >= LEAST_SECONDS)
            .collect()
    }

    /// Returns when the device had taken everything, by its own counter.
    pub fn taken_at(&self) -> Option<f64> {
        let all = self.taken_before + self.written;
        let has_all = |truth: &&Truth| truth.taken >= all;
        self.truths.iter().find(has_all).map(|truth| truth.time)
    }

    fn left_at_end(&self) -> f64 {
        let taken = self.at(self.ended_at, |truth| truth.taken);
        let all = self.taken_before + self.written;
        taken.map_or(0.0, |taken| (all - taken).max(0.0))
    }

    fn some_of(&self, moments: &[Moment]) -> Vec<Moment> {
        let whole = self.drained_at - self.drain_from;
        let first = moments.first().copied();
        let at = |part: f64| {
            moments
                .iter()
                .find(|moment| moment.seconds >= part * whole)
                .copied()
        };
        let mut some: Vec<Moment> = first
            .into_iter()
            .chain(MOMENTS.iter().filter_map(|part| at(*part)))
            .collect();
        some.dedup();
        some
    }

    /// Returns what was true at a time, between the two nearest samples.
    pub fn at(&self, time: f64, of: impl Fn(&Truth) -> f64) -> Option<f64> {
        let next = self.truths.partition_point(|truth| truth.time < time);
        let (one, other) = (self.truths.get(next.checked_sub(1)?)?, self.truths.get(next)?);
        let part = (time - one.time) / (other.time - one.time).max(f64::EPSILON);
        Some(of(one) + (of(other) - of(one)) * part.clamp(0.0, 1.0))
    }
}

/// Returns how far values lie from the truth; each pair is a value and the truth.
fn deviation(pairs: impl Iterator<Item = (f64, f64)>) -> Deviation {
    let mut percents: Vec<f64> = pairs
        .filter(|(_, truth)| *truth > 0.0)
        .map(|(said, truth)| ((said / truth - 1.0) * 100.0).abs())
        .collect();
    percents.sort_by(f64::total_cmp);
    Deviation {
        looks: percents.len(),
        median_percent: percents.get(percents.len() / 2).copied().unwrap_or(0.0),
        largest_percent: percents.last().copied().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = 1_048_576.0;

    /// A device that takes 100 MiB in ten seconds, and looks that say two percent too much.
    fn recording() -> Recording {
        let left = |time: f64| (100.0 - 10.0 * time).max(0.0) * MIB;
        let look = |index: i32| {
            let time = f64::from(index) * 0.5;
            let truth = 10.0 - time;
            Look {
                time,
                machine: left(time) * 1.02,
                devices: left(time),
                device: Some(left(time) * 0.99),
                left: (index > 1).then_some([truth * 1.1, truth * 0.9, truth * 1.3]),
            }
        };
        let truth = |index: i32| {
            let time = f64::from(index) * 0.1 - 0.05;
            Truth {
                time,
                vmstat: left(time),
                taken: 7.0 + 100.0 * MIB - left(time),
            }
        };
        Recording {
            looks: (0..20).map(look).collect(),
            truths: (0..110).map(truth).collect(),
            written: 100.0 * MIB,
            written_at: 0.0,
            drain_from: 0.0,
            drained_at: 10.0,
            ended_at: 9.0,
            taken_before: 7.0,
        }
    }

    #[test]
    fn deviations_are_from_the_truth_of_the_same_moment() {
        let figures = recording().figures();
        assert!((figures.machine.largest_percent - 2.0).abs() < 0.6, "{figures:?}");
        assert!(figures.devices.median_percent < 0.1, "{figures:?}");
        assert!((figures.device.median_percent - 1.0).abs() < 0.2, "{figures:?}");
        assert!((figures.left.largest_percent - 10.0).abs() < 1e-6, "{figures:?}");
        assert!(
            (figures.in_range_percent - 100.0).abs() < 1e-9 && (figures.drain_seconds - 10.0).abs() < 1e-9
        );
        assert!((figures.left_bytes - 10.0 * MIB).abs() < 1.0, "{figures:?}");
        assert!((recording().taken_at().unwrap() - 10.0).abs() < 0.2);
        assert_eq!(figures.moments.len(), 4);
        assert!((figures.moments[0].percent() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_seen_is_no_deviation() {
        let empty = Recording::default().figures();
        assert_eq!((empty.machine.looks, empty.left.looks), (0, 0));
        assert!(empty.moments.is_empty());
        assert_eq!(Recording::default().at(1.0, |truth| truth.vmstat), None);
    }
}
