//! The outages of a source, and which answers may be given again in one. Pure.
//!
//! What the source said is given again only while the source is lost, and for a bounded time. For
//! each answer this time begins with the first outage after it. So a line that comes back for a
//! moment does not make an answer valid for longer, unless the source has confirmed it in that
//! moment.

use std::collections::VecDeque;
use std::time::Duration;

/// Outages remembered. Answers from before the oldest one are not given any more.
const OUTAGES_MAX: usize = 64;
/// Age at which an answer is not given any more, whether or not there was an outage. A guess: what
/// somebody worked with yesterday.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The outages.
#[derive(Debug)]
pub(crate) struct Outages {
    /// Longest time for which an answer is given after it could not be confirmed any more.
    bound: Duration,
    /// When the last outages began, oldest first.
    starts: VecDeque<Duration>,
    /// Answers to questions from before are not given.
    floor: Duration,
    is_out: bool,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// An outage began at this time.
    Began(Duration),
    /// The source answers again, after this time.
    Ended(Duration),
}

impl Outages {
    pub(crate) fn new(bound: Duration) -> Self {
        Self {
            bound,
            starts: VecDeque::new(),
            floor: Duration::ZERO,
            is_out: false,
        }
    }

    /// Takes the state of the source: for how long it has been silent, if it is lost.
    pub(crate) fn observe(&mut self, now: Duration, silent: Option<Duration>) -> Option<Turn> {
        match (self.is_out, silent) {
            (false, Some(silent)) => {
                self.is_out = true;
                // Time does not go back, whatever the source says.
                let last = self.starts.back().copied().unwrap_or_default();
                let start = now.saturating_sub(silent).max(last);
                if self.starts.len() == OUTAGES_MAX {
                    self.floor = self.starts.pop_front().unwrap_or_default();
                }
                self.starts.push_back(start);
                Some(Turn::Began(start))
            }
            (true, None) => {
                self.is_out = false;
                let start = self.starts.back().copied().unwrap_or_default();
                Some(Turn::Ended(now.saturating_sub(start)))
            }
            _ => None,
        }
    }

    /// Whether the answer to a question that was asked at `asked` may be given again now.
    pub(crate) fn allows(&self, now: Duration, asked: Duration) -> bool {
        let first = self.starts.iter().find(|start| **start > asked);
        let Some(first) = first.or(self.starts.back()) else {
            return false;
        };
        self.is_out
            && asked >= self.floor
            && now.saturating_sub(*first) < self.bound
            && now.saturating_sub(asked) < AGE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn answers_are_given_again_only_in_an_outage_and_for_a_bounded_time() {
        let mut outages = Outages::new(at(600));
        assert!(!outages.allows(at(100), at(99)));
        assert_eq!(outages.observe(at(102), Some(at(2))), Some(Turn::Began(at(100))));
        assert_eq!(outages.observe(at(103), Some(at(3))), None);
        assert!(outages.allows(at(699), at(10)) && !outages.allows(at(700), at(10)));
        assert!(
            outages.allows(at(699), at(101)),
            "asked before the loss was known"
        );
        assert_eq!(outages.observe(at(130), None), Some(Turn::Ended(at(30))));
        assert!(!outages.allows(at(130), at(10)), "the source can be asked");
    }

    #[test]
    fn a_line_that_comes_and_goes_does_not_prolong_an_answer() {
        let mut outages = Outages::new(at(600));
        let mut given = 0;
        for now in 100..2000 {
            let is_lost = now % 3 != 0;
            outages.observe(at(now), is_lost.then_some(Duration::ZERO));
            let is_given = outages.allows(at(now), at(50));
            assert!(!is_given || now < 700, "{now}");
            assert_eq!(
                outages.allows(at(now), at(now - 1)),
                is_lost,
                "{now}: a new answer"
            );
            given += u64::from(is_given);
        }
        assert!(given > 0);
    }

    #[test]
    fn an_answer_of_last_week_is_not_given() {
        let mut outages = Outages::new(at(600));
        let now = at(30 * 3600);
        outages.observe(now, Some(at(2)));
        assert!(outages.allows(now, at(7 * 3600)));
        assert!(!outages.allows(now, at(6 * 3600)));
    }
}
