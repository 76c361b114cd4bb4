//! Runs simulated fleets by seed, and checks that broken rules are found.
//!
//! `cargo run --release -p ropeway-fleet --features mutations --example fleets -- --seeds 10000`
//! runs 10,000 seeds; `--mutation all` breaks each rule in turn and fails if the seeds do not find
//! it.

#[path = "../tests/simulate/mod.rs"]
mod simulate;

use std::process::ExitCode;

use ropeway_fleet::mutations::Mutation;

struct Arguments {
    seeds: u64,
    from: u64,
    mutation: Option<String>,
}

fn arguments() -> Option<Arguments> {
    let mut parsed = Arguments {
        seeds: 1_000,
        from: 0,
        mutation: None,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(flag) = rest.next() {
        let value = rest.next()?;
        match flag.as_str() {
            "--seeds" => parsed.seeds = value.parse().ok()?,
            "--from" => parsed.from = value.parse().ok()?,
            "--mutation" => parsed.mutation = Some(value),
            _ => return None,
        }
    }
    Some(parsed)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: fleets [--seeds N] [--from N] [--mutation NAME|all]");
        return ExitCode::from(1);
    };
    let seeds = arguments.from..arguments.from + arguments.seeds;
    let Some(name) = arguments.mutation else {
        return all_hold(seeds);
    };
    let chosen = Mutation::ALL
        .into_iter()
        .filter(|mutation| name == "all" || mutation.name() == name);
    let mut code = ExitCode::SUCCESS;
    for mutation in chosen {
        match found(mutation, seeds.clone()) {
            Some((seed, fault)) => println!("{}: found by seed {seed}: {fault}", mutation.name()),
            None => {
                println!("{}: not found", mutation.name());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn all_hold(seeds: std::ops::Range<u64>) -> ExitCode {
    let mut totals = simulate::Totals::default();
    let mut broken = 0;
    for seed in seeds {
        match simulate::run(seed) {
            Ok(run) => totals.add(&run),
            Err(fault) => {
                println!("seed {seed}: {fault}");
                broken += 1;
            }
        }
    }
    println!("{totals:?}; {broken} seeds broke a promise");
    match broken {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Returns the first seed that finds the broken rule.
#[cfg(feature = "mutations")]
fn found(mutation: Mutation, seeds: std::ops::Range<u64>) -> Option<(u64, String)> {
    ropeway_fleet::mutations::choose(Some(mutation));
    let found = seeds
        .into_iter()
        .find_map(|seed| simulate::run(seed).err().map(|fault| (seed, fault)));
    ropeway_fleet::mutations::choose(None);
    found
}

#[cfg(not(feature = "mutations"))]
fn found(_: Mutation, _: std::ops::Range<u64>) -> Option<(u64, String)> {
    panic!("built without the feature `mutations`");
}
