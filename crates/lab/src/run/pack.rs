//! Which units of work run at the same time: slow links share the machine while the sums of their
//! rates and of their bytes stay within bounds.

use std::time::Duration;

/// Largest number of units at a time (a guess: each has servers and two threads of a link).
const LANES_MAX: usize = 12;

/// Resources of a unit while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Which.
    pub(super) id: usize,
    /// Bits a second; `None` for no limit, so that it runs alone.
    pub(super) rate: Option<u64>,
    /// Bytes of memory or disk.
    pub(super) bytes: u64,
}

/// Waiting and running units.
#[derive(Clone, Debug)]
pub(super) struct Packer {
    /// Largest sum of rates in bits a second; `None` for one unit at a time.
    rate_max: Option<u64>,
    bytes_max: u64,
    waiting: Vec<Unit>,
    running: Vec<Unit>,
}

impl Packer {
    /// Takes the units in the order in which they should start.
    pub(super) fn new(units: Vec<Unit>, rate_max: Option<u64>, bytes_max: u64) -> Self {
        Self {
            rate_max,
            bytes_max,
            waiting: units,
            running: Vec::new(),
        }
    }

    /// Starts the first unit that fits now.
    pub(super) fn start(&mut self) -> Option<usize> {
        let at = self.waiting.iter().position(|unit| self.fits(unit))?;
        let unit = self.waiting.remove(at);
        self.running.push(unit);
        Some(unit.id)
    }

    /// Ends a unit.
    pub(super) fn end(&mut self, id: usize) {
        self.running.retain(|unit| unit.id != id);
    }

    /// Ids of the units that have not started.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().map(|unit| unit.id)
    }

    /// Whether nothing runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    fn fits(&self, unit: &Unit) -> bool {
        if self.running.is_empty() {
            // Alone it may be bigger than what several may have together.
            return true;
        }
        let (Some(most), Some(rate)) = (self.rate_max, unit.rate) else {
            return false;
        };
        let others: Option<u64> = self.running.iter().map(|unit| unit.rate).sum();
        let bytes: u64 = self.running.iter().map(|unit| unit.bytes).sum();
        self.running.len() < LANES_MAX
            && others.is_some_and(|others| others.saturating_add(rate) <= most)
            && bytes.saturating_add(unit.bytes) <= self.bytes_max
    }

    /// How long what waits would take, from an idle machine, if each took so long.
    pub(super) fn duration(&self, of: impl Fn(usize) -> Duration) -> Duration {
        let mut packer = Self {
            running: Vec::new(),
            ..self.clone()
        };
        let (mut now, mut ends): (Duration, Vec<(Duration, usize)>) = (Duration::ZERO, Vec::new());
        loop {
            while let Some(id) = packer.start() {
                ends.push((now.saturating_add(of(id)), id));
            }
            let Some(next) = (0..ends.len()).min_by_key(|index| ends[*index]) else {
                return now;
            };
            let (at, id) = ends.swap_remove(next);
            now = at;
            packer.end(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unit(id: usize, mbit: u64) -> Unit {
        Unit {
            id,
            rate: Some(mbit * 1_000_000),
            bytes: 1,
        }
    }

    fn all(packer: &mut Packer) -> Vec<usize> {
        std::iter::from_fn(|| packer.start()).collect()
    }

    #[test]
    fn slow_links_go_together_and_fast_ones_alone() {
        let units = vec![
            unit(0, 52),
            unit(1, 155),
            unit(2, 622),
            unit(3, 1000),
            unit(4, 155),
        ];
        let mut packer = Packer::new(units, Some(640_000_000), u64::MAX);
        assert_eq!(all(&mut packer), [0, 1, 4]);
        assert_eq!(packer.waiting().collect::<Vec<_>>(), [2, 3]);
        for id in [0, 1] {
            packer.end(id);
            assert_eq!(packer.start(), None);
        }
        packer.end(4);
        assert_eq!(all(&mut packer), [2]);
        packer.end(2);
        assert_eq!(all(&mut packer), [3], "more than the sum, so alone");
        packer.end(3);
        assert!(packer.is_idle());
    }

    #[test]
    fn one_after_the_other_where_that_is_asked_for_or_there_is_no_rate() {
        let mut packer = Packer::new(vec![unit(0, 1), unit(1, 1)], None, u64::MAX);
        assert_eq!(all(&mut packer), [0]);
        let free = Unit {
            rate: None,
            ..unit(0, 1)
        };
        let mut packer = Packer::new(vec![free, unit(1, 1)], Some(u64::MAX), u64::MAX);
        assert_eq!(all(&mut packer), [0]);
    }

    #[test]
    fn room_is_a_bound_too() {
        let mut packer = Packer::new((0..5).map(|id| unit(id, 1)).collect(), Some(u64::MAX), 3);
        assert_eq!(all(&mut packer), [0, 1, 2]);
    }

    #[test]
    fn the_whole_duration_is_that_of_the_packing() {
        let packer = Packer::new(
            vec![unit(0, 300), unit(1, 300), unit(2, 300)],
            Some(640_000_000),
            u64::MAX,
        );
        let spans = [10, 20, 5].map(Duration::from_secs);
        assert_eq!(packer.duration(|id| spans[id]), Duration::from_secs(20));
        let alone = Packer::new(vec![unit(0, 300), unit(1, 300)], None, u64::MAX);
        assert_eq!(alone.duration(|id| spans[id]), Duration::from_secs(30));
    }

    proptest! {
        #[test]
        fn bounds_hold_and_everything_runs_once(rates in prop::collection::vec(1_u64..1000, 0..40), most in 1_u64..2000) {
            let units: Vec<Unit> = rates.iter().enumerate().map(|(id, rate)| unit(id, *rate)).collect();
            let mut packer = Packer::new(units, Some(most * 1_000_000), 7);
            let (mut done, mut running) = (Vec::new(), Vec::new());
            loop {
                running.extend(all(&mut packer));
                let sum: u64 = running.iter().map(|id: &usize| rates[*id]).sum();
                prop_assert!(running.len() <= 1 || (sum <= most && running.len() <= 7));
                let Some(id) = running.pop() else { break };
                packer.end(id);
                done.push(id);
            }
            done.sort_unstable();
            prop_assert_eq!(done, (0..rates.len()).collect::<Vec<_>>());
        }
    }
}
