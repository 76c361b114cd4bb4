//! The message ids and credits of one connection ([MS-SMB2] 3.3.1.1, 3.3.1.2, 3.3.5.2.3).

use std::collections::VecDeque;

/// Bits of a word of [`Window::used`].
const WORD: u64 = u64::BITS as u64;

/// The message ids that were granted to the client.
#[derive(Debug)]
pub(super) struct Window {
    /// The first id not used yet.
    first: u64,
    /// One more than the last id granted.
    end: u64,
    /// A bit for each id that was used, from the multiple of [`WORD`] at or before `first` to the word
    /// of the last id used. A client that uses its ids in order needs one word.
    used: VecDeque<u64>,
    /// Number of ids granted and not used.
    free: u64,
    credits_max: u64,
}

/// The id was not granted, or was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfWindow;

impl Window {
    /// Creates a window with the one credit of every new connection.
    pub(super) fn new(credits_max: u16) -> Self {
        Self {
            first: 0,
            end: 1,
            used: VecDeque::new(),
            free: 1,
            credits_max: u64::from(credits_max.max(1)),
        }
    }

    /// Uses `charge` ids, starting with `id`.
    pub(super) fn take(&mut self, id: u64, charge: u16) -> Result<(), OutOfWindow> {
        let charge = u64::from(charge.max(1));
        let end = id.checked_add(charge).ok_or(OutOfWindow)?;
        if id < self.first || end > self.end || (id..end).any(|id| self.is_used(id)) {
            return Err(OutOfWindow);
        }
        for id in id..end {
            let (word, bit) = self.place(id);
            if word >= self.used.len() {
                self.used.resize(word + 1, 0);
            }
            self.used[word] |= bit;
        }
        self.free -= charge;
        while let Some(word) = self.used.front() {
            let ones = (word >> (self.first % WORD)).trailing_ones();
            self.first += u64::from(ones);
            if ones == 0 || !self.first.is_multiple_of(WORD) {
                break;
            }
            self.used.pop_front();
        }
        Ok(())
    }

    /// Grants up to `asked` further ids, and at least one if the client would have none. A client
    /// that skips an id is granted ids within two windows of it.
    pub(super) fn grant(&mut self, asked: u16) -> u16 {
        let room = self.credits_max.saturating_sub(self.free);
        let span = (2 * self.credits_max).saturating_sub(self.end - self.first);
        let least = u64::from(self.free == 0);
        let granted = u64::from(asked.max(1)).min(room).min(span).max(least);
        self.end += granted;
        self.free += granted;
        // The cast is exact: the value is at most `asked`, or 1.
        granted as u16
    }

    /// Returns the word and the bit of an id from `first` on. The window has less than 2^17 ids.
    fn place(&self, id: u64) -> (usize, u64) {
        let word = id / WORD - self.first / WORD;
        (word as usize, 1 << (id % WORD))
    }

    fn is_used(&self, id: u64) -> bool {
        let (word, bit) = self.place(id);
        self.used.get(word).is_some_and(|word| word & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_used_once_and_only_when_granted() {
        let mut window = Window::new(8192);
        assert_eq!(window.take(1, 1), Err(OutOfWindow));
        assert_eq!(window.take(0, 1), Ok(()));
        assert_eq!(window.take(0, 1), Err(OutOfWindow));
        assert_eq!(window.grant(10), 10);
        assert_eq!(window.take(4, 3), Ok(()));
        assert_eq!(window.take(3, 2), Err(OutOfWindow));
        assert_eq!(window.take(10, 2), Err(OutOfWindow));
        assert_eq!(window.take(u64::MAX, 1), Err(OutOfWindow));
        assert_eq!(window.take(1, 3), Ok(()));
        assert_eq!(window.first, 7);
    }

    #[test]
    fn a_client_is_never_left_without_and_never_has_too_many() {
        let mut window = Window::new(4);
        assert_eq!(window.take(0, 1), Ok(()));
        assert_eq!(window.grant(0), 1);
        assert_eq!(window.grant(100), 3);
        assert_eq!(window.grant(100), 0);
        // Id 1 is skipped, so ids are granted up to two windows beyond it.
        for id in 2..8 {
            assert_eq!(window.take(id, 1), Ok(()), "{id}");
            window.grant(1);
        }
        assert!(window.end - window.first <= 9);
    }

    #[test]
    fn ids_in_order_take_no_memory() {
        let mut window = Window::new(8192);
        for id in 0..100_000 {
            assert_eq!(window.take(id, 1), Ok(()));
            window.grant(8192);
            assert!(window.used.len() <= 1, "{id}");
        }
        assert_eq!(window.end - window.first, 8192);
    }

    proptest! {
        #[test]
        fn ids_are_used_as_a_set_of_them_has_it(steps in prop::collection::vec((0..600_u64, 0..80_u16, 0..200_u16), 0..100)) {
            let mut window = Window::new(500);
            let mut used = std::collections::HashSet::new();
            for (ahead, charge, asked) in steps {
                let id = window.first + ahead;
                let ids = id..id + u64::from(charge.max(1));
                let fits = ids.end <= window.end && ids.clone().all(|id| !used.contains(&id));
                prop_assert_eq!(window.take(id, charge).is_ok(), fits);
                if fits {
                    used.extend(ids);
                }
                window.grant(asked);
                prop_assert!(!used.contains(&window.first));
                prop_assert!((0..window.first).all(|id| used.contains(&id)));
            }
        }

        #[test]
        fn counts_agree(steps in prop::collection::vec((0..40_u64, 0..6_u16, 0..20_u16), 0..200)) {
            let mut window = Window::new(16);
            for (ahead, charge, asked) in steps {
                _ = window.take(window.first.saturating_add(ahead), charge);
                window.grant(asked);
                let free = (window.first..window.end).filter(|id| !window.is_used(*id)).count() as u64;
                prop_assert_eq!(window.free, free);
                prop_assert!((1..=16).contains(&free) && window.end - window.first <= 33);
            }
        }
    }
}
