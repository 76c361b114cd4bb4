//! What predictions may cost.
//!
//! * **Budgets.** Each source has one: the share of its likely predictions that are carried out. Its
//!   precision is that of the shadow statistics, so it is known whether or not they are carried out.
//!   Below 0.4 the budget is halved, and otherwise doubled again, up to all.
//! * **A ledger.** A fetch costs a credit. A block that is used in time brings it back, and
//!   [`GAIN`] more; each miss adds [`ALLOWANCE`]. So blocks fetched in vain are never more than
//!   `FIRST + ALLOWANCE x misses + GAIN x used`, whatever the requests are: at most 3 % of the
//!   misses where nothing can be predicted.

use crate::predict::class::Source;
use crate::predict::trials::Outcome;

/// Precision below which a source's budget is halved.
const PRECISION_MIN: f32 = 0.4;
/// Outcomes between two decisions on a budget. A guess: the error of a precision is then .06.
const OUTCOMES: u32 = 256;
/// Smallest budget.
const BUDGET_MIN: f32 = 1.0 / 1024.0;
/// Blocks that may be fetched in vain for each one that is used in time: a precision of 1 / 1.8 = .56.
pub(super) const GAIN: f32 = 0.8;
/// Blocks that may be fetched in vain for each miss. With what they drive out it stays below 5 %.
pub(super) const ALLOWANCE: f32 = 0.03;
/// Credits at the beginning.
pub(super) const FIRST: f32 = 16.0;

#[derive(Clone, Copy, Debug)]
struct Budget {
    share: f32,
    /// Part of a prediction saved up by those that were not carried out.
    saved: f32,
    outcomes: u32,
    right: u32,
    precision: f32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            share: 1.0,
            saved: 0.0,
            outcomes: 0,
            right: 0,
            precision: 0.5,
        }
    }
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceState {
    /// The source.
    pub source: Source,
    /// Share of its likely predictions that are carried out.
    pub budget: f32,
    /// Precision of its likely predictions, from the last 64 outcomes of the shadow statistics.
    pub precision: f32,
}

/// The budgets and the ledger.
#[derive(Debug)]
pub(super) struct Governor {
    budgets: [Budget; Source::ALL.len()],
    credit: f32,
    credit_max: f32,
}

impl Governor {
    /// Makes a governor that allows so many open fetches.
    pub(super) fn new(open_max: usize) -> Self {
        Self {
            budgets: [Budget::default(); Source::ALL.len()],
            credit: FIRST,
            credit_max: open_max as f32,
        }
    }

    /// Learns what became of a likely prediction.
    pub(super) fn outcome(&mut self, outcome: Outcome) {
        let budget = &mut self.budgets[outcome.class.source() as usize];
        budget.outcomes += 1;
        budget.right += u32::from(outcome.is_right);
        if budget.outcomes < OUTCOMES {
            return;
        }
        budget.precision = budget.right as f32 / budget.outcomes as f32;
        let factor = if budget.precision < PRECISION_MIN {
            0.5
        } else {
            2.0
        };
        budget.share = (budget.share * factor).clamp(BUDGET_MIN, 1.0);
        (budget.outcomes, budget.right) = (0, 0);
    }

    fn pay(&mut self, credit: f32) {
        self.credit = (self.credit + credit).min(self.credit_max);
    }

    /// A request missed.
    pub(super) fn missed(&mut self) {
        self.pay(ALLOWANCE);
    }

    /// A fetched block was requested.
    pub(super) fn used(&mut self, is_late: bool) {
        self.pay(if is_late { 1.0 } else { 1.0 + GAIN });
    }

    /// Whether a likely prediction of a source may be carried out now; it is paid for if so.
    pub(super) fn allows(&mut self, source: Source) -> bool {
        let budget = &mut self.budgets[source as usize];
        budget.saved = (budget.saved + budget.share).min(1.0);
        if budget.saved < 1.0 || self.credit < 1.0 {
            return false;
        }
        budget.saved = 0.0;
        self.credit -= 1.0;
        true
    }

    /// Returns what is known of each source.
    pub(super) fn sources(&self) -> [SourceState; Source::ALL.len()] {
        Source::ALL.map(|source| {
            let budget = &self.budgets[source as usize];
            SourceState {
                source,
                budget: budget.share,
                precision: budget.precision,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::class::Class;

    fn tell(governor: &mut Governor, class: Class, is_right: bool) {
        for _ in 0..OUTCOMES {
            governor.outcome(Outcome { class, is_right });
        }
    }

    #[test]
    fn an_imprecise_source_loses_half_of_its_budget_at_a_time_and_gets_it_back() {
        let mut governor = Governor::new(1000);
        let class = Class::pair(3, 5);
        for halvings in 1..=3 {
            tell(&mut governor, class, false);
            let [stream, pair] = governor.sources();
            assert_eq!((stream.budget, pair.budget), (1.0, 0.5_f32.powi(halvings)));
        }
        for _ in 0..8 {
            governor.used(false);
        }
        let allowed = (0..160).filter(|_| governor.allows(Source::Pair)).count();
        assert_eq!(allowed, 20, "an eighth");
        for _ in 0..3 {
            tell(&mut governor, class, true);
        }
        assert_eq!(governor.sources()[1].budget, 1.0);
    }

    #[test]
    fn waste_is_bounded_whatever_happens() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut governor = Governor::new(1000);
            let (mut fetched, mut used, mut misses) = (0_u32, 0_u32, 0_u32);
            let usefulness = rng.f32();
            for _ in 0..20_000 {
                if governor.allows(Source::ALL[rng.usize(..2)]) {
                    fetched += 1;
                    if rng.f32() < usefulness {
                        used += 1;
                        governor.used(false);
                    }
                } else {
                    misses += 1;
                    governor.missed();
                }
                let wasted = (fetched - used) as f32;
                let bound = FIRST + ALLOWANCE * misses as f32 + GAIN * used as f32;
                assert!(wasted <= bound + 1.0, "seed {seed}: {wasted} > {bound}");
            }
        }
    }
}
