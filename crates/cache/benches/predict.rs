//! What predictions cost on the way of a request: at most 2 microseconds.
//!
//! `cargo bench -p ropeway-cache --bench predict`
#![allow(missing_docs)]

#[path = "../tests/replay/mod.rs"]
mod replay;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use replay::{Trace, load};
use ropeway_cache::predict::{Block, Found, Superfetch};

/// Requests of one measurement.
const REQUESTS: usize = 10_000;
/// Blocks of the cache: 20 GiB in blocks of 64 KiB, so that the tables do not fit a processor's
/// cache.
const BLOCKS: usize = 327_680;

/// Asks for predictions as a miss does, which is the longest way: nothing is in the cache.
fn request(learned: &mut Superfetch, numbers: &[u64], fetches: &mut Vec<ropeway_cache::predict::Prediction>) {
    for number in numbers {
        fetches.clear();
        let block = Block::from_number(*number);
        black_box(learned.blocks.request(block, Found::Miss, |_| false, fetches));
    }
}

fn measure(criterion: &mut Criterion, name: &str, numbers: &[u64]) {
    let mut learned = Superfetch::new(BLOCKS);
    learned.blocks.set_lag(8);
    let mut fetches = Vec::with_capacity(64);
    request(&mut learned, numbers, &mut fetches);
    let mut chunks = numbers.chunks_exact(REQUESTS).cycle();
    let mut group = criterion.benchmark_group("request");
    group.throughput(Throughput::Elements(REQUESTS as u64));
    group.bench_function(name, |bencher| {
        bencher.iter_batched(
            || chunks.next().expect("a cycle does not end"),
            |chunk| request(&mut learned, chunk, &mut fetches),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn requests(criterion: &mut Criterion) {
    let mut rng = fastrand::Rng::with_seed(1);
    let random: Vec<u64> = (0..1_000_000).map(|_| rng.u64(..1 << 40)).collect();
    measure(criterion, "random", &random);
    let scan: Vec<u64> = (0..1_000_000).collect();
    measure(criterion, "sequential", &scan);
    let sequence: Vec<u64> = (0..10_000).map(|_| rng.u64(..1 << 40)).collect();
    measure(criterion, "repeated", &sequence.repeat(20));
    match load("P2") {
        Some(Trace { numbers, .. }) => measure(criterion, "P2", &numbers),
        None => println!("skipped: the trace P2 is not in ../shared/traces"),
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().without_plots();
    targets = requests
}
criterion_main!(benches);
