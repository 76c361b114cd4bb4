//! Prints hit ratios and write amplification of the whole engine on the traces of
//! `../shared/traces`, beside the policy alone, FIFO and S3-FIFO with as many blocks as the device
//! has room for.
//!
//! `cargo run --release -p ropeway-cache --example replay_engine [TRACE…]`
//!
//! The device has 1, 5, 10 and 20 % of the bytes of the footprint. There is no memory in front of
//! it.
#![allow(missing_docs)]

#[path = "../tests/replay/mod.rs"]
mod replay;

use replay::engine::{Content, Outcome, replay as run};
use replay::{SIZES, hit_ratio, load, ours, references};

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = ["P2", "P6", "cloudPhysicsIO"].map(str::to_owned).into();
    }
    println!("| trace | | 1 % | 5 % | 10 % | 20 % |\n|---|---|---|---|---|---|");
    for name in &names {
        let Some(trace) = load(name) else {
            println!("skipped: the trace {name} is not in ../shared/traces");
            continue;
        };
        let sizes = SIZES.map(|percent| trace.footprint * percent / 100);
        for row in [0, 2] {
            let policy = references(1)[row].0;
            let ratios = sizes.map(|blocks| {
                let (_, mut cache) = references(blocks).into_iter().nth(row).expect("three rows");
                hit_ratio(&trace, |block| cache.access(block))
            });
            print_row(name, policy, ratios.map(|ratio| format!("{ratio:.4}")));
        }
        let ratios = sizes.map(|blocks| ours(&trace, blocks, 1));
        print_row(
            name,
            "the policy alone",
            ratios.map(|ratio| format!("{ratio:.4}")),
        );
        for kind in [Content::Random, Content::Half] {
            let outcomes = std::thread::scope(|scope| {
                let trace = &trace;
                let running = SIZES.map(|percent| scope.spawn(move || run(trace, percent, kind, 1)));
                running.map(|thread| thread.join().expect("a replay"))
            });
            let title = format!("the engine, {kind:?}");
            print_row(
                name,
                &title,
                outcomes.each_ref().map(|of| format!("{:.4}", of.hit_ratio)),
            );
            print_row(
                name,
                "written for each byte taken in",
                outcomes.each_ref().map(amplification),
            );
            print_row(name, "blocks at the end", outcomes.each_ref().map(blocks));
        }
    }
}

fn amplification(of: &Outcome) -> String {
    let stored = of.stats.write_amplification();
    let taken = of.stats.bytes_written as f64 / of.stats.bytes_inserted as f64;
    format!(
        "{taken:.2} ({stored:.2} of the stored, {} dropped)",
        of.stats.dropped
    )
}

fn blocks(of: &Outcome) -> String {
    format!(
        "{} in {:.1} MiB",
        of.stats.blocks,
        of.device_bytes as f64 / f64::from(1 << 20)
    )
}

fn print_row(name: &str, title: &str, [a, b, c, d]: [String; 4]) {
    println!("| {name} | {title} | {a} | {b} | {c} | {d} |");
}
