//! What was begun a moment ago, so that it is not begun again at once. Pure, and bounded.

use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug)]
struct Begun<T> {
    what: T,
    at: Duration,
    has_failed: bool,
}

/// Things that were begun, the last one at the end.
#[derive(Debug)]
pub(super) struct Recent<T> {
    begun: VecDeque<Begun<T>>,
    most: usize,
    /// For how long nothing is begun again.
    pause: Duration,
    /// The same if it failed.
    pause_if_failed: Duration,
}

impl<T: PartialEq> Recent<T> {
    /// Remembers so many things, at least one.
    pub(super) fn new(most: usize, pause: Duration, pause_if_failed: Duration) -> Self {
        Self {
            begun: VecDeque::new(),
            most: most.max(1),
            pause,
            pause_if_failed,
        }
    }

    /// Begins something. `false`: it was begun a moment ago.
    pub(super) fn begin(&mut self, what: T, now: Duration) -> bool {
        self.begin_after(what, self.pause, now)
    }

    /// Begins something, unless that was done less than `pause` ago.
    pub(super) fn begin_after(&mut self, what: T, pause: Duration, now: Duration) -> bool {
        let age = |begun: &Begun<T>| now.saturating_sub(begun.at);
        self.begun.retain(|begun| age(begun) < self.pause);
        let failed = self.pause_if_failed;
        let is_recent = |begun: &Begun<T>| {
            let pause = if begun.has_failed {
                failed.min(pause)
            } else {
                pause
            };
            begun.what == what && age(begun) < pause
        };
        if self.begun.iter().any(is_recent) {
            return false;
        }
        self.begun.retain(|begun| begun.what != what);
        if self.begun.len() == self.most {
            self.begun.pop_front();
        }
        self.begun.push_back(Begun {
            what,
            at: now,
            has_failed: false,
        });
        true
    }

    /// Notes that something could not be done.
    pub(super) fn failed(&mut self, what: &T) {
        for begun in self.begun.iter_mut().filter(|begun| begun.what == *what) {
            begun.has_failed = true;
        }
    }

    /// Forgets something that was not done after all.
    pub(super) fn forget(&mut self, what: &T) {
        self.begun.retain(|begun| begun.what != *what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn nothing_is_begun_twice_in_a_short_time_and_what_failed_is_tried_again_sooner() {
        let mut recent = Recent::new(3, at(1000), at(100));
        assert!(recent.begin(1, at(0)));
        assert!(!recent.begin(1, at(999)));
        assert!(recent.begin_after(1, at(500), at(999)));
        assert!(!recent.begin(1, at(1998)) && recent.begin(1, at(1999)));
        recent.failed(&1);
        assert!(!recent.begin(1, at(2098)) && recent.begin(1, at(2099)));
        recent.forget(&1);
        assert!(recent.begin(1, at(2100)));
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut recent = Recent::new(3, at(1000), at(100));
        for number in 0..100 {
            assert!(recent.begin(number, at(0)));
            assert!(recent.begun.len() <= 3);
        }
        assert!(recent.begin(96, at(1)) && !recent.begin(99, at(1)));
    }
}
