//! Simulated fleets by seed; `examples/fleets.rs` runs more of them, and breaks rules on purpose.

use crate::simulate;

#[test]
fn nothing_is_lost_and_nothing_stale_is_committed() {
    let mut totals = simulate::Totals::default();
    for seed in 0..150 {
        match simulate::run(seed) {
            Ok(run) => totals.add(&run),
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
    // The runs come across what they are for.
    assert!(totals.kills > 100 && totals.claims > totals.tasks, "{totals:?}");
    assert!(totals.joined > 100 && totals.deleted > 100, "{totals:?}");
}
