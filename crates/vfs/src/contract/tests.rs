use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::End;
use crate::clock::simulate;
use crate::decorate::faults::Faults;
use crate::decorate::limit::{Limit, RateLimit};
use crate::decorate::slow::{DeviceModel, Slow};
use crate::decorate::trace::Traced;
use crate::trace::{Observer, Record};
use crate::{Capabilities, MemoryTree, VirtualClock};

fn check(clock: &VirtualClock, make: impl Fn() -> Arc<dyn Tree>) {
    let pool = Pool::new(1 << 16, 4);
    simulate(clock, check_tree(make, &pool));
    assert_eq!(pool.available(), 4, "all blocks came back");
}

fn memory() -> Arc<dyn Tree> {
    Arc::new(MemoryTree::new())
}

#[test]
fn memory_keeps_the_contract() {
    check(&VirtualClock::new(), memory);
    check(&VirtualClock::new(), || {
        Arc::new(MemoryTree::new().with_crash_model())
    });
}

#[test]
fn memory_keeps_the_contract_of_a_poor_volume() {
    let poor = Capabilities {
        time_granularity_ns: 2_000_000_000,
        case_sensitive: false,
        windows_names: true,
        raw_names: false,
        file_size_max: (4 << 30) - 1,
        owners: false,
        modes: false,
        xattrs: false,
        symlinks: false,
        hard_links: false,
        special_files: false,
        sparse: false,
        stable_ids: false,
        ..MemoryTree::new().capabilities().clone()
    };
    check(&VirtualClock::new(), || {
        Arc::new(MemoryTree::new().with_capabilities(poor.clone()))
    });
}

#[test]
fn neutral_decorators_keep_the_contract() {
    let clock = VirtualClock::new();
    let time: Arc<dyn crate::Clock> = Arc::new(clock.clone());
    check(&clock, || {
        Limit::new(memory(), RateLimit::new(|| None, Arc::clone(&time)))
    });
    check(&clock, || {
        Limit::new(memory(), RateLimit::new(|| Some(1_000_000), Arc::clone(&time)))
    });
    check(&clock, || Faults::new(memory(), Vec::new(), Arc::clone(&time)));
    check(&clock, || Traced::new(memory(), Arc::new(Deaf), End::Target));
}

#[test]
fn slow_devices_keep_the_contract() {
    let clock = VirtualClock::new();
    for model in ["disk", "usb-flash,cache=1M"] {
        check(&clock, || {
            let model = DeviceModel::parse(model).unwrap();
            Slow::new(memory(), model, Arc::new(clock.clone()))
        });
    }
}

#[test]
fn the_suite_finds_a_broken_tree() {
    let clock = VirtualClock::new();
    let rules = crate::decorate::faults::FaultRule::parse("rename:nth=1,kind=busy").unwrap();
    let time: Arc<dyn crate::Clock> = Arc::new(clock.clone());
    let broken = std::panic::catch_unwind(AssertUnwindSafe(|| {
        check(&clock, || Faults::new(memory(), rules.clone(), Arc::clone(&time)));
    }));
    let text = broken.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("rename_moves"), "{text}");
}

struct Deaf;

impl Observer for Deaf {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn record(&self, _record: Record<'_>) {}
}
