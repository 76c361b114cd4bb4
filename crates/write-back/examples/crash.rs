//! Runs the simulation of crashes for many seeds:
//! `cargo run --release -p ropeway-write-back --example crash -- --seeds 100000 [--first N]`

use ropeway_write_back::simulation::{Tally, run};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        let value = at.and_then(|at| arguments.get(at + 1)?.parse().ok());
        value.unwrap_or(default)
    };
    let (first, seeds) = (value("--first", 0), value("--seeds", 10_000));
    let mut all = Tally::default();
    for seed in first..first + seeds {
        let tally = run(seed);
        all.crashes += tally.crashes;
        all.power_cuts += tally.power_cuts;
        all.conflicts += tally.conflicts;
        all.partial += tally.partial;
        all.refused += tally.refused;
    }
    println!("{seeds} seeds from {first}: nothing lost, nothing mixed up; {all:?}");
}
