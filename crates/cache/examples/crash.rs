//! Runs the crash simulator: `cargo run --release -p ropeway-cache --example crash -- --seeds 100000`,
//! or one seed with `--seed N`.
#![allow(missing_docs)]

#[path = "../tests/crashes/mod.rs"]
mod crashes;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let seeds = match number("--seed") {
        Some(seed) => seed..seed + 1,
        None => 0..number("--seeds").unwrap_or(100_000),
    };
    let mut total = crashes::Totals::default();
    for seed in seeds {
        total.add(&crashes::run(seed));
        if seed % 10_000 == 9_999 {
            println!("{} seeds", seed + 1);
        }
    }
    println!("no wrong byte: {total:?}");
}
