//! When reads are answered normally again. Pure.
//!
//! The published experiment called a disk normal that was busy for at most 30 % of the time. Here the
//! flash device counts like the disk: pages that come from it are waited for too.

use std::collections::VecDeque;

/// Time over which the devices are judged.
const WINDOW_S: f64 = 1.0;
/// Share of it in which they may be busy.
const BUSY_MAX: f64 = 0.3;
/// Longest time of a read from memory, in seconds. The modelled flash needs more for any block.
pub(super) const FROM_MEMORY_S: f64 = 0.002;

/// Judges the last second.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// Moments, and the seconds for which the devices were busy until then.
    looks: VecDeque<(f64, f64)>,
    /// Reads since the last look, and those that memory answered.
    reads: (u64, u64),
    /// Reads so far.
    pub(super) all: u64,
}

impl Judge {
    /// Takes a read, and how long it took.
    pub(super) fn read(&mut self, took_s: f64) {
        self.all += 1;
        self.reads.0 += 1;
        self.reads.1 += u64::from(took_s <= FROM_MEMORY_S);
    }

    /// Returns the share of reads since the last call that memory answered; `None` without any.
    pub(super) fn share(&mut self) -> Option<f64> {
        let (all, quick) = std::mem::take(&mut self.reads);
        (all > 0).then(|| quick as f64 / all as f64)
    }

    /// Takes a look at the devices, which were busy for so long in all. Returns since when reads have
    /// been normal, if they are.
    pub(super) fn look(&mut self, now_s: f64, busy_s: f64) -> Option<f64> {
        self.looks.push_back((now_s, busy_s));
        // The newest look that is a window old stays in front.
        while self.looks.get(1).is_some_and(|(at, _)| now_s - at >= WINDOW_S) {
            self.looks.pop_front();
        }
        let (from, before) = *self.looks.front()?;
        let window = now_s - from;
        let is_normal = window >= WINDOW_S && (busy_s - before) / window <= BUSY_MAX;
        is_normal.then_some(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_normal_from_the_second_on_in_which_the_devices_rest() {
        let mut judge = Judge::default();
        let (mut busy, mut normal) = (0.0, None);
        // Busy for ten seconds, then a fifth of the time.
        for step in 0..400 {
            let now = f64::from(step) * 0.05;
            busy += if now <= 10.0 { 0.05 } else { 0.01 };
            normal = normal.or(judge.look(now, busy));
        }
        let normal = normal.expect("it becomes normal");
        assert!((9.7..=10.1).contains(&normal), "{normal}");
        assert!(judge.looks.len() < 30, "bounded");
    }

    #[test]
    fn devices_that_stay_busy_are_never_normal_and_a_second_must_have_passed() {
        let mut judge = Judge::default();
        for step in 0..200 {
            let now = f64::from(step) * 0.05;
            assert_eq!(judge.look(now, now * 0.35), None);
        }
        let mut judge = Judge::default();
        assert_eq!(judge.look(0.0, 0.0), None);
        assert_eq!(judge.look(0.9, 0.0), None);
        assert_eq!(judge.look(1.0, 0.0), Some(0.0));
    }

    #[test]
    fn the_share_is_that_of_the_reads_since_the_last_look() {
        let mut judge = Judge::default();
        assert_eq!(judge.share(), None);
        for took in [0.0001, 0.016, 0.0001, 0.0019] {
            judge.read(took);
        }
        assert_eq!(judge.share(), Some(0.75));
        assert_eq!((judge.share(), judge.all), (None, 4));
    }
}
