//! Crashes by seed. `examples/crash.rs` runs more of them.

use crate::crashes;

#[test]
fn no_crash_yields_a_wrong_byte() {
    let mut total = crashes::Totals::default();
    for seed in 0..1000 {
        total.add(&crashes::run(seed));
    }
    println!("{total:?}");
    assert!(
        total.hits_after_crash > 10_000,
        "the simulation must find what was kept: {total:?}"
    );
    assert!(total.torn_writes > 500 && total.forgets > 1000, "{total:?}");
}
