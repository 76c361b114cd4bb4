//! Texts of fault rules and device models. Any text is either a clear error or a value within its
//! bounds, and a tree built from it answers without a panic. The first line holds rules, the second
//! a model.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use ropeway_vfs::clock::{VirtualClock, simulate};
use ropeway_vfs::decorate::faults::{Delay, FaultRule, Faults};
use ropeway_vfs::decorate::slow::{DeviceModel, Slow};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{RelPath, Tree};

fn check_rule(rule: &FaultRule) {
    assert!(
        rule.fault.is_some() || rule.delay.is_some(),
        "a rule does something"
    );
    assert!(
        rule.probability
            .is_none_or(|chance| (0.0..=1.0).contains(&chance))
    );
    assert!(rule.offset.as_ref().is_none_or(|range| range.start < range.end));
}

fn check_model(model: &DeviceModel) {
    assert!(model.read_bytes_per_s > 0 && model.write_bytes_per_s > 0);
    assert!(!model.name.is_empty());
}

/// Runs a few operations on a device of this model that fails by these rules.
fn exercise(rules: Vec<FaultRule>, model: DeviceModel) {
    // An operation that never completes cannot be driven to its end.
    if rules
        .iter()
        .any(|rule| matches!(rule.delay, Some(Delay::Forever)))
    {
        return;
    }
    let clock = VirtualClock::new();
    // Any moment except zero: a deadline is counted from it.
    clock.advance(Duration::from_secs(1));
    let slow = Slow::new(Arc::new(MemoryTree::new()), model, Arc::new(clock.clone()));
    let tree = Faults::new(slow, rules, Arc::new(clock.clone()));
    let path = |name: &str| RelPath::parse(name.as_bytes()).expect("a plain name");
    let (one, two) = (path("a"), path("b"));
    simulate(&clock, async {
        // Failures are expected: the rules inject them.
        for _ in 0..2 {
            let _ = tree.make_dir(&one, 0o755).await;
            let _ = tree.rename(&one, &two, false).await;
            let _ = tree.sync().await;
        }
    });
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let (first, second) = text.split_once('\n').unwrap_or((&text, ""));
    let rules = FaultRule::parse(first);
    let model = DeviceModel::parse(second);
    for error in [rules.as_ref().err(), model.as_ref().err()].into_iter().flatten() {
        assert!(!error.to_string().is_empty());
    }
    if let Ok(rules) = &rules {
        rules.iter().for_each(check_rule);
    }
    if let Ok(model) = &model {
        check_model(model);
    }
    if rules.is_ok() || model.is_ok() {
        exercise(
            rules.unwrap_or_default(),
            model.unwrap_or_else(|_| DeviceModel::instant()),
        );
    }
});
