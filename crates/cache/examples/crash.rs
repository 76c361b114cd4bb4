//! Runs the crash simulator: `cargo run --release -p ropeway-cache --example crash -- --seeds 100000`,
//! or one seed with `--seed N`.
//!
//! With the feature `mutations`, `--mutation all` breaks one rule of the cache after the other; each
//! must be found. `--mutation NAME --seed N` shows one.
#![allow(missing_docs)]

#[path = "../tests/crashes/mod.rs"]
mod crashes;

use std::process::ExitCode;

struct Args {
    first: u64,
    seeds: u64,
    mutation: Option<String>,
}

fn parse() -> Option<Args> {
    let mut args = Args {
        first: 0,
        seeds: 100_000,
        mutation: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next()?;
        match name.as_str() {
            "--seed" => (args.first, args.seeds) = (value.parse().ok()?, 1),
            "--first" => args.first = value.parse().ok()?,
            "--seeds" => args.seeds = value.parse().ok()?,
            "--mutation" => args.mutation = Some(value),
            _ => return None,
        }
    }
    Some(args)
}

fn main() -> ExitCode {
    let Some(args) = parse() else {
        eprintln!("usage: crash [--first N] [--seeds N] [--seed N] [--mutation all|NAME]");
        return ExitCode::from(1);
    };
    match &args.mutation {
        Some(name) => break_rules(name, &args),
        None => {
            run(&args);
            ExitCode::SUCCESS
        }
    }
}

fn run(args: &Args) {
    let mut total = crashes::Totals::default();
    for seed in args.first..args.first + args.seeds {
        total.add(&crashes::run(seed));
        if seed % 10_000 == 9_999 {
            println!("{} seeds", seed + 1);
        }
    }
    println!("no wrong byte and no nonce used twice: {total:?}");
}

#[cfg(not(feature = "mutations"))]
fn break_rules(_: &str, _: &Args) -> ExitCode {
    eprintln!("--mutation needs the feature `mutations`");
    ExitCode::from(1)
}

#[cfg(feature = "mutations")]
fn break_rules(name: &str, args: &Args) -> ExitCode {
    use ropeway_cache::mutations::{Mutation, choose};
    std::panic::set_hook(Box::new(|_| {}));
    let mut all = true;
    for mutation in Mutation::ALL {
        if name != "all" && name != mutation.name() {
            continue;
        }
        choose(Some(mutation));
        let mut seeds = args.first..args.first + args.seeds;
        let found = seeds.find_map(|seed| {
            let panic = std::panic::catch_unwind(|| crashes::run(seed)).err()?;
            let message = panic.downcast_ref::<String>().cloned();
            Some(message.unwrap_or_else(|| format!("seed {seed}: a panic")))
        });
        choose(None);
        all &= found.is_some();
        let verdict = found.map_or_else(|| "NOT FOUND".to_owned(), |message| format!("found, {message}"));
        println!("{}: {verdict}", mutation.name());
    }
    ExitCode::from(u8::from(!all))
}
