//! What all workers of a job together may ask of its ends.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use ropeway_fleet::budget::{Budget, Shares, sharers};
use ropeway_fleet::job::JobFile;
use ropeway_plan::Schedule;
use ropeway_vfs::decorate::limit::{Limit, RateLimit};
use ropeway_vfs::{Clock, RelPath, Tree};

use crate::args::BudgetArgs;
use crate::failure::{Failure, code};

/// Operations by which `submit` measures how long one takes.
const MEASURED: usize = 9;
/// Times of such an operation that a goal must be: the operations of a copy do more than to examine a folder. A guess.
const GOAL_TIMES: u32 = 2;

/// Returns the budgets of source and target.
///
/// # Errors
/// A goal cannot be reached: an operation takes too long while nobody works.
pub(super) async fn of_job(
    args: &BudgetArgs,
    source: &dyn Tree,
    target: &dyn Tree,
) -> Result<(Budget, Budget), Failure> {
    let own = [
        ("SRC", source, args.source_ops, args.source_latency_goal),
        ("DST", target, args.target_ops, args.target_latency_goal),
    ];
    let mut budgets = [Budget::default(); 2];
    for ((end, tree, ops, goal), budget) in own.into_iter().zip(&mut budgets) {
        let goal = goal.or(args.latency_goal);
        if let Some(goal) = goal {
            check_goal(end, tree, goal).await?;
        }
        *budget = Budget {
            ops,
            latency_ms: goal.map(|goal| goal.as_millis() as u64),
        };
    }
    Ok((budgets[0], budgets[1]))
}

/// Workers would leave such an end nearly idle for ever.
async fn check_goal(end: &str, tree: &dyn Tree, goal: Duration) -> Result<(), Failure> {
    let mut times = Vec::with_capacity(MEASURED);
    for _ in 0..MEASURED {
        let begun = Instant::now();
        // Whether it can be used is found out elsewhere.
        let _ = tree.metadata(&RelPath::root()).await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let median = times[MEASURED / 2];
    if goal >= median * GOAL_TIMES {
        return Ok(());
    }
    let message = format!(
        "an operation at {end} takes {} ms from here, also without a copy: a goal of {} ms cannot be reached",
        median.as_millis(),
        goal.as_millis()
    );
    let least = median.as_millis() * u128::from(GOAL_TIMES) + 1;
    Err(Failure::usage(message).hint(format!("for example --latency-goal {}ms", least * 2)))
}

/// The ends of a worker, which keep to its share of the budgets, and what they keep to.
pub(super) struct Limited {
    pub(super) source: Arc<dyn Tree>,
    pub(super) target: Arc<dyn Tree>,
    pub(super) limit: Arc<RateLimit>,
    pub(super) shares: Shares,
}

impl Limited {
    /// Makes the ends keep to the share of this worker. `known`: how many workers are at work.
    ///
    /// # Errors
    /// The limit of the rate cannot be parsed.
    pub(super) fn new(
        job: &JobFile,
        (source, target): (Arc<dyn Tree>, Arc<dyn Tree>),
        known: &Arc<AtomicU64>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let mut shares = Shares::default();
        let source = shares.keep(job.source_budget, source, known, clock);
        let target = shares.keep(job.target_budget, target, known, clock);
        let Some(text) = &job.bwlimit else {
            let limit = RateLimit::unlimited(Arc::clone(clock));
            return Ok(Self {
                source,
                target,
                limit,
                shares,
            });
        };
        let schedule = Schedule::parse(text)
            .map_err(|error| Failure::new(code::TARGET, format!("the job cannot be read: {error}")))?;
        let known = Arc::clone(known);
        let rate = move || {
            let rate = schedule.rate_at(jiff::Zoned::now().datetime())?;
            Some((rate / sharers(&known)).max(1))
        };
        let limit = RateLimit::new(rate, Arc::clone(clock));
        Ok(Self {
            source: Limit::new(source, Arc::clone(&limit)),
            target,
            limit,
            shares,
        })
    }
}
