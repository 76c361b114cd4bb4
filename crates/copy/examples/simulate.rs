//! Runs simulated copy jobs by seed and prints those that break a promise.
//!
//! ```text
//! cargo run --release -p ropeway-copy --example simulate -- --seeds 20000
//! cargo run --release -p ropeway-copy --example simulate -- --replay 17 --trace
//! cargo run --release -p ropeway-copy --features mutations --example simulate -- --mutation all
//! ```

#[path = "../tests/simulate/mod.rs"]
mod simulate;

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Default)]
struct Args {
    seeds: u64,
    first: u64,
    replay: Option<u64>,
    trace: bool,
    mutation: Option<String>,
}

fn args() -> Result<Args, String> {
    let mut parsed = Args {
        seeds: 1_000,
        ..Args::default()
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match arg.as_str() {
            "--seeds" => parsed.seeds = number(value()?)?,
            "--first" => parsed.first = number(value()?)?,
            "--replay" => parsed.replay = Some(number(value()?)?),
            "--mutation" => parsed.mutation = Some(value()?),
            "--trace" => parsed.trace = true,
            _ => return Err(format!("unknown argument {arg}")),
        }
    }
    Ok(parsed)
}

/// Breaks one rule after the other; each must be found within `seeds` seeds.
#[cfg(feature = "mutations")]
fn find_all(seeds: u64) -> ExitCode {
    use ropeway_copy::mutations::{Mutation, choose};
    let mut all = true;
    for mutation in Mutation::ALL {
        choose(Some(mutation));
        let found = (0..seeds).find(|seed| {
            let verdict = std::panic::catch_unwind(|| simulate::run(*seed, false).faults);
            verdict.map_or(true, |faults| !faults.is_empty())
        });
        choose(None);
        match found {
            Some(seed) => println!("{}: found by seed {seed}", mutation.name()),
            None => println!("{}: not found in {seeds} seeds", mutation.name()),
        }
        all &= found.is_some();
    }
    ExitCode::from(u8::from(!all))
}

/// Breaks the rule that was asked for, on this thread.
fn choose(args: &Args) -> Result<(), String> {
    let Some(wanted) = &args.mutation else {
        return Ok(());
    };
    #[cfg(feature = "mutations")]
    {
        use ropeway_copy::mutations::{Mutation, choose};
        let known = Mutation::ALL.into_iter().find(|known| known.name() == wanted);
        choose(Some(
            known.ok_or_else(|| format!("there is no mutation {wanted}"))?,
        ));
        Ok(())
    }
    #[cfg(not(feature = "mutations"))]
    Err(format!("--mutation {wanted} needs the feature `mutations`"))
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    #[cfg(feature = "mutations")]
    if args.mutation.as_deref() == Some("all") {
        return find_all(args.seeds);
    }
    if let Err(error) = choose(&args) {
        eprintln!("{error}");
        return ExitCode::from(2);
    }
    if let Some(seed) = args.replay {
        let verdict = simulate::run(seed, args.trace);
        print!("{}", verdict.trace);
        for fault in &verdict.faults {
            println!("seed {seed}: {fault}");
        }
        return ExitCode::from(u8::from(!verdict.faults.is_empty()));
    }
    let began = Instant::now();
    let (next, failed) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // Each thread breaks the rule for itself.
                let _ = choose(&args);
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= args.seeds {
                        return;
                    }
                    let seed = args.first + at;
                    let verdict = std::panic::catch_unwind(|| simulate::run(seed, false).faults);
                    let faults = verdict.unwrap_or_else(|_| vec!["panics".to_owned()]);
                    if let Some(fault) = faults.first() {
                        println!("seed {seed}: {fault}");
                        failed.lock().expect("no thread panics here").push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics here");
    let seconds = began.elapsed().as_secs_f64();
    println!("{} seeds in {seconds:.1} s, {} failed", args.seeds, failed.len());
    ExitCode::from(u8::from(!failed.is_empty()))
}
