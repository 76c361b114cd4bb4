//! When reads are answered normally again. Pure.

use std::collections::VecDeque;

/// Time over which reads are judged.
const WINDOW_S: f64 = 1.0;
/// Share of reads that must be answered from memory.
const SHARE: f64 = 0.95;
/// Longest time of a read from memory, in seconds. The modelled flash needs more for any block.
pub(super) const FROM_MEMORY_S: f64 = 0.002;
/// Reads of a window, at least.
const READS_MIN: usize = 20;

/// Judges the reads of the last second.
#[derive(Debug, Default)]
pub(super) struct Judge {
    reads: VecDeque<(f64, bool)>,
    quick: usize,
    /// Reads so far, and those that memory answered.
    pub(super) all: u64,
    pub(super) all_quick: u64,
}

impl Judge {
    /// Takes a read that ended at a moment, and how long it took.
    pub(super) fn read(&mut self, ended_s: f64, took_s: f64) {
        let is_quick = took_s <= FROM_MEMORY_S;
        self.all += 1;
        self.all_quick += u64::from(is_quick);
        self.quick += usize::from(is_quick);
        self.reads.push_back((ended_s, is_quick));
        self.forget(ended_s);
    }

    fn forget(&mut self, now_s: f64) {
        while let Some((ended, is_quick)) = self.reads.front().copied()
            && now_s - ended > WINDOW_S
        {
            self.quick -= usize::from(is_quick);
            self.reads.pop_front();
        }
    }

    /// Returns the share of the last second's reads that memory answered; `None` for too few.
    pub(super) fn share(&mut self, now_s: f64) -> Option<f64> {
        self.forget(now_s);
        let all = self.reads.len();
        (all >= READS_MIN).then(|| self.quick as f64 / all as f64)
    }

    /// Returns since when the reads have been normal, if those of the last second were.
    pub(super) fn normal_since(&mut self, now_s: f64) -> Option<f64> {
        let is_normal = now_s >= WINDOW_S && self.share(now_s).is_some_and(|share| share >= SHARE);
        is_normal.then_some(now_s - WINDOW_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_normal_from_the_second_on_in_which_memory_answers_nearly_all() {
        let mut judge = Judge::default();
        // Ten seconds in which every fourth read waits, then every fiftieth.
        let mut normal = None;
        for step in 0..2000 {
            let now = f64::from(step) * 0.01;
            let waits = if now < 10.0 { step % 4 == 0 } else { step % 50 == 0 };
            judge.read(now, if waits { 0.016 } else { 0.0001 });
            normal = normal.or(judge.normal_since(now));
        }
        let normal = normal.expect("it becomes normal");
        assert!((9.0..10.0).contains(&normal), "{normal}");
        assert_eq!(judge.all, 2000);
    }

    #[test]
    fn without_reads_nothing_is_known() {
        let mut judge = Judge::default();
        assert_eq!(judge.normal_since(5.0), None);
        (0..19).for_each(|_| judge.read(5.0, 0.0));
        assert_eq!(judge.normal_since(5.5), None);
        judge.read(5.6, 0.0);
        assert_eq!(judge.normal_since(5.6), Some(4.6));
        assert_eq!(judge.share(9.0), None);
    }
}
