//! Simulated jobs by seed: some of them here, 20,000 in CI, and seeds that once broke a promise.

use crate::simulate;

/// Number of seeds of this test, unless `ROPEWAY_SEEDS` is set.
const SEEDS: u64 = 150;

#[test]
fn simulate_keeps_every_promise_for_each_seed() {
    let seeds = std::env::var("ROPEWAY_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |seeds| seeds.parse().expect("ROPEWAY_SEEDS is a number"));
    for seed in 0..seeds {
        let faults = simulate::run(seed, false).faults;
        assert!(faults.is_empty(), "seed {seed}: {faults:?}");
    }
}

#[test]
fn a_seed_gives_the_same_trace_each_time() {
    for seed in 0..40 {
        let (one, other) = (simulate::run(seed, true).trace, simulate::run(seed, true).trace);
        let differs = one.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert!(one == other, "seed {seed}: {differs:?}");
    }
}

/// Threads that run one seed at once.
const THREADS: usize = 6;

#[test]
fn a_seed_gives_the_same_trace_beside_others() {
    for seed in 0..40 {
        let trace = simulate::run(seed, true).trace;
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        simulate::run(1_000 + seed + thread as u64, false);
                        simulate::run(seed, true).trace
                    })
                })
                .collect();
            for run in runs {
                let other = run.join().expect("it does not panic");
                let differs = trace.lines().zip(other.lines()).find(|(one, other)| one != other);
                assert!(trace == other, "seed {seed}: {differs:?}");
            }
        });
    }
}
