//! The message ids and credits of one connection ([MS-SMB2] 3.3.1.1, 3.3.1.2, 3.3.5.2.3).

use std::collections::VecDeque;

/// The message ids that were granted to the client.
#[derive(Debug)]
pub(super) struct Window {
    /// The first id not used yet.
    first: u64,
    /// Whether each id was used, from `first` to the last one granted.
    used: VecDeque<bool>,
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
            used: VecDeque::from([false]),
            free: 1,
            credits_max: u64::from(credits_max.max(1)),
        }
    }

    /// Uses `charge` ids, starting with `id`.
    pub(super) fn take(&mut self, id: u64, charge: u16) -> Result<(), OutOfWindow> {
        let start = id.checked_sub(self.first).ok_or(OutOfWindow)?;
        let start = usize::try_from(start).map_err(|_| OutOfWindow)?;
        let end = start
            .checked_add(usize::from(charge.max(1)))
            .filter(|end| *end <= self.used.len())
            .ok_or(OutOfWindow)?;
        if self.used.range(start..end).any(|used| *used) {
            return Err(OutOfWindow);
        }
        self.used.range_mut(start..end).for_each(|used| *used = true);
        self.free -= (end - start) as u64;
        while self.used.front() == Some(&true) {
            self.used.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// Grants up to `asked` further ids, and at least one if the client would have none. A client
    /// that skips an id is granted ids within two windows of it.
    pub(super) fn grant(&mut self, asked: u16) -> u16 {
        let room = self.credits_max.saturating_sub(self.free);
        let span = (2 * self.credits_max).saturating_sub(self.used.len() as u64);
        let least = u64::from(self.free == 0);
        let granted = u64::from(asked.max(1)).min(room).min(span).max(least);
        self.used.resize(self.used.len() + granted as usize, false);
        self.free += granted;
        // The cast is exact: the value is at most `asked`, or 1.
        granted as u16
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
        assert!(window.used.len() <= 9);
    }

    proptest! {
        #[test]
        fn counts_agree(steps in prop::collection::vec((0..40_u64, 0..6_u16, 0..20_u16), 0..200)) {
            let mut window = Window::new(16);
            for (ahead, charge, asked) in steps {
                _ = window.take(window.first.saturating_add(ahead), charge);
                window.grant(asked);
                let free = window.used.iter().filter(|used| !**used).count() as u64;
                prop_assert_eq!(window.free, free);
                prop_assert!((1..=16).contains(&free) && window.used.len() <= 33);
            }
        }
    }
}
