//! Predictions on recorded and on made-up traces.

use crate::replay::{Learned, Nothing, S3Fifo, SIZES, Tally, Trace, hit_ratio, load, replay};
use ropeway_cache::predict::Source;
use ropeway_cache::replay::Reference;

/// Replays with predictions and without; returns both, and the requests that the former fetched for.
fn both(trace: &Trace, blocks: usize, delay: usize) -> (Tally, Tally, Learned) {
    let mut learned = Learned::new(blocks, delay as u32);
    let with = replay(trace, blocks, delay, 1, &mut learned);
    let without = replay(trace, blocks, delay, 1, &mut Nothing);
    (with, without, learned)
}

/// The goals for 5 % of the footprint in blocks of 64 KiB. The constants were chosen on P2 only.
#[test]
fn the_goals_on_recorded_traces_are_reached() {
    for (name, delay, hits) in [("P6", 8, 0.80), ("P6", 32, 0.75), ("cloudPhysicsIO", 8, 0.87)] {
        let Some(trace) = load(name) else {
            println!("skipped: the trace {name} is not in ../shared/traces");
            continue;
        };
        let blocks = trace.footprint * 5 / 100;
        let (with, without, _) = both(&trace, blocks, delay);
        let (precision, traffic) = (with.precision().expect("prefetches"), with.traffic(&without));
        println!(
            "{name} {delay}: {:.4} {precision:.3} {traffic:.3}",
            with.hit_ratio()
        );
        assert!(with.hit_ratio() >= hits, "{name} {delay}: {}", with.hit_ratio());
        assert!(precision >= 0.55, "{name} {delay}: a precision of {precision}");
        assert!(traffic <= 1.35, "{name} {delay}: {traffic} times the traffic");
    }
}

#[test]
fn predictions_never_cost_hits_beside_s3_fifo() {
    for name in ["P2", "P6", "cloudPhysicsIO"] {
        let Some(trace) = load(name) else {
            println!("skipped: the trace {name} is not in ../shared/traces");
            continue;
        };
        for percent in SIZES {
            let blocks = trace.footprint * percent / 100;
            let mut reference = S3Fifo::new(blocks);
            let floor = hit_ratio(&trace, |block| reference.access(block)) - 0.005;
            for delay in [0, 2, 8, 32] {
                let mut learned = Learned::new(blocks, delay as u32);
                let ratio = replay(&trace, blocks, delay, 1, &mut learned).hit_ratio();
                assert!(
                    ratio >= floor,
                    "{name} {percent} % {delay}: {ratio} is below {floor}"
                );
            }
        }
    }
}

const REQUESTS: usize = 100_000;

fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(1)
}

/// Requests without any order.
fn random(blocks: u64) -> Trace {
    let mut rng = rng();
    Trace::new((0..REQUESTS).map(|_| rng.u64(..blocks)).collect())
}

/// Popular blocks in random order.
fn popular() -> Trace {
    let mut rng = rng();
    let block = |rng: &mut fastrand::Rng| 50_000_f64.powf(rng.f64()) as u64 * 7919 % 50_021;
    Trace::new((0..REQUESTS).map(|_| block(&mut rng)).collect())
}

/// Beginnings of streams that end before a fetch could help.
fn short_runs() -> Trace {
    let mut rng = rng();
    let mut numbers = Vec::new();
    while numbers.len() < REQUESTS {
        let (start, length) = (rng.u64(..1 << 30), rng.u64(2..6));
        numbers.extend(start..start + length);
    }
    Trace::new(numbers)
}

/// Sequences that are repeated until they are trusted, and never again.
fn broken_promises() -> Trace {
    let mut rng = rng();
    let mut numbers = Vec::new();
    while numbers.len() < REQUESTS {
        let sequence: Vec<u64> = (0..20).map(|_| rng.u64(..1 << 40)).collect();
        for _ in 0..3 {
            numbers.extend(&sequence);
            numbers.extend((0..1500).map(|_| rng.u64(..1 << 40)));
        }
        // From here on, each of them is followed by something else.
        for block in sequence {
            numbers.push(block);
            numbers.extend((0..40).map(|_| rng.u64(..1 << 40)));
        }
    }
    Trace::new(numbers)
}

#[test]
fn traces_that_cannot_be_predicted_cost_less_than_5_percent() {
    let traces = [
        ("random", random(100_000)),
        ("random, small", random(5000)),
        ("popular", popular()),
        ("short runs", short_runs()),
        ("broken promises", broken_promises()),
    ];
    for (name, trace) in traces {
        for blocks in [100, 1000] {
            for delay in [8, 32] {
                let (with, without, _) = both(&trace, blocks, delay);
                let traffic = with.traffic(&without);
                let prefetched = with.prefetched as f64 / with.requests as f64;
                assert!(
                    traffic < 1.05,
                    "{name} {blocks} {delay}: {traffic} times the traffic"
                );
                assert!(
                    prefetched < 0.05,
                    "{name} {blocks} {delay}: {prefetched} prefetches a request"
                );
                let lost = without.hit_ratio() - with.hit_ratio();
                assert!(lost < 0.005, "{name} {blocks} {delay}: {lost} fewer hits");
            }
        }
    }
}

#[test]
fn scans_cost_nothing_and_are_hits() {
    let scans = [
        ("once", Trace::new((0..REQUESTS as u64).collect())),
        (
            "in a circle",
            Trace::new((0..REQUESTS as u64).map(|at| at % 20_000).collect()),
        ),
        ("backward", Trace::new((0..REQUESTS as u64).rev().collect())),
        (
            "strided",
            Trace::new((0..REQUESTS as u64).map(|at| at * 7).collect()),
        ),
        (
            "32 at once",
            Trace::new(
                (0..REQUESTS as u64)
                    .map(|at| (at % 32) << 24 | (at / 32))
                    .collect(),
            ),
        ),
    ];
    for (name, trace) in scans {
        for delay in [0, 8, 32] {
            let (with, without, _) = both(&trace, 1000, delay);
            let traffic = with.traffic(&without);
            assert!(traffic < 1.05, "{name} {delay}: {traffic} times the traffic");
            assert!(with.hit_ratio() > 0.98, "{name} {delay}: {}", with.hit_ratio());
        }
    }
}

/// A reader who knows how prefetching works: it builds trust with one long stream, then asks for the
/// beginnings of streams only.
#[test]
fn trust_is_lost_sooner_than_it_costs() {
    let mut rng = rng();
    let mut numbers: Vec<u64> = (0..20_000).collect();
    let trusted = numbers.len() as u64;
    while numbers.len() < REQUESTS {
        let start = rng.u64(..1 << 40);
        // Three blocks ask for the next ones, and none of those is ever used.
        numbers.extend([start, start + 1, start + 2]);
    }
    let (with, without, learned) = both(&Trace::new(numbers), 1000, 8);
    let wasted = with.prefetched - with.used - with.late;
    let misses = with.requests - trusted;
    assert!(with.traffic(&without) < 1.05, "{}", with.traffic(&without));
    assert!(wasted < misses / 20, "{wasted} of {misses}");
    let [stream, _] = learned.0.blocks.sources();
    assert_eq!(stream.source, Source::Stream);
}

/// What repeats with other requests in between is found, at every delay.
#[test]
fn a_sequence_that_repeats_is_predicted_by_pairs() {
    let mut rng = rng();
    let sequence: Vec<u64> = (0..400).map(|_| rng.u64(..1 << 40)).collect();
    let mut numbers = Vec::new();
    for _ in 0..40 {
        numbers.extend(&sequence);
        numbers.extend((0..600).map(|_| rng.u64(..1 << 40)));
    }
    let trace = Trace::new(numbers);
    for delay in [0, 2, 8, 32] {
        // Too small to keep the sequence.
        let (with, without, _) = both(&trace, 300, delay);
        assert!(without.hit_ratio() < 0.05, "{}", without.hit_ratio());
        assert!(with.hit_ratio() > 0.27, "{delay}: {} of 0.4", with.hit_ratio());
    }
}
