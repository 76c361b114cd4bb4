//! Prints the hit ratios of the cache's policy on the traces of `../shared/traces`, beside FIFO, LRU
//! and S3-FIFO, as a Markdown table.
//!
//! `cargo run --release -p ropeway-cache --example replay [TRACE…]`
#![allow(missing_docs)]

#[path = "../tests/replay/mod.rs"]
mod replay;

use replay::{SIZES, hit_ratio, load, ours, references};

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = ["P2", "P6", "cloudPhysicsIO"].map(str::to_owned).into();
    }
    println!("| trace | policy | 1 % | 5 % | 10 % | 20 % |\n|---|---|---|---|---|---|");
    for name in &names {
        let Some(trace) = load(name) else {
            println!("skipped: the trace {name} is not in ../shared/traces");
            continue;
        };
        let sizes = SIZES.map(|percent| trace.footprint * percent / 100);
        for row in 0..3 {
            let policy = references(1)[row].0;
            let ratios = sizes.map(|blocks| {
                let [.., (_, mut cache)] = [references(blocks).into_iter().nth(row).expect("three rows")];
                hit_ratio(&trace, |block| cache.access(block))
            });
            print_row(name, policy, ratios);
        }
        for seed in 1..=3 {
            let ratios = sizes.map(|blocks| ours(&trace, blocks, seed));
            print_row(name, &format!("ours, seed {seed}"), ratios);
        }
    }
}

fn print_row(name: &str, policy: &str, ratios: [f64; 4]) {
    let [a, b, c, d] = ratios;
    println!("| {name} | {policy} | {a:.4} | {b:.4} | {c:.4} | {d:.4} |");
}
