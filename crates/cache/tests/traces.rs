//! Hit ratios on recorded traces, beside reference policies.

use crate::replay::{SIZES, hit_ratio, load, ours, references};

/// The references must give the figures that were published with the traces, or the replay is wrong.
#[test]
fn the_policy_reaches_s3_fifo_on_large_caches_and_fifo_on_small_ones() {
    for (name, published) in [
        (
            "P2",
            [
                [0.548, 0.659, 0.739, 0.830],
                [0.553, 0.667, 0.754, 0.854],
                [0.520, 0.669, 0.770, 0.874],
            ],
        ),
        (
            "P6",
            [
                [0.545, 0.640, 0.713, 0.887],
                [0.548, 0.644, 0.716, 0.920],
                [0.487, 0.634, 0.766, 0.932],
            ],
        ),
        (
            "cloudPhysicsIO",
            [
                [0.538, 0.577, 0.595, 0.655],
                [0.543, 0.579, 0.596, 0.645],
                [0.535, 0.581, 0.624, 0.679],
            ],
        ),
    ] {
        let Some(trace) = load(name) else {
            println!("skipped: the trace {name} is not in ../shared/traces");
            continue;
        };
        for (at, percent) in SIZES.iter().enumerate() {
            let blocks = trace.footprint * percent / 100;
            let mut ratios = Vec::new();
            for (row, (policy, mut cache)) in references(blocks).into_iter().enumerate() {
                let ratio = hit_ratio(&trace, |block| cache.access(block));
                assert!(
                    (ratio - published[row][at]).abs() < 0.0011,
                    "{name} {policy} {percent} %: {ratio}"
                );
                ratios.push(ratio);
            }
            let ratio = ours(&trace, blocks, 1);
            println!("{name} {percent} %: {ratio:.4}, FIFO, LRU, S3-FIFO {ratios:.4?}");
            let floor = if *percent >= 10 { ratios[2] } else { ratios[0] };
            assert!(ratio >= floor, "{name} {percent} %: {ratio} is below {floor}");
        }
    }
}
