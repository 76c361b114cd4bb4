//! Tests of the estimate: devices that complete in steps, pause, or change their speed.

use proptest::prelude::*;

use super::*;

const MIB: f64 = 1_048_576.0;

/// A device that completes `step` bytes each `step / rate` seconds.
struct Device {
    rate: f64,
    step: f64,
}

impl Device {
    /// Returns the bytes completed after some time of work.
    fn written(&self, seconds: f64) -> u64 {
        ((seconds * self.rate / self.step).floor() * self.step) as u64
    }
}

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Watches a device for some time, every 100 ms.
fn watched(device: &Device, from: f64, seconds: f64) -> DrainEstimator {
    let mut estimator = DrainEstimator::default();
    let mut time = from;
    while time <= from + seconds {
        estimator.observe(at(time), device.written(time), true);
        time += 0.1;
    }
    estimator
}

#[test]
fn a_throttled_device_is_estimated_from_two_steps_on() {
    let device = Device {
        rate: 20e6,
        step: 8.0 * MIB,
    };
    for begin in [0.05, 0.13, 0.29, 0.41, 3.3] {
        for seconds in [1.4, 2.0, 5.0, 20.0] {
            let estimator = watched(&device, begin, seconds);
            let left = 512.0 * MIB - device.written(begin + seconds) as f64;
            let drain = estimator.drain(left as u64, Some(42_776 << 10)).unwrap();
            let truth = 512.0 * MIB / 20e6 - begin - seconds;
            let error = drain.eta.seconds / truth - 1.0;
            assert_eq!(drain.basis, Basis::Measured);
            assert!(
                error.abs() < 0.14,
                "after {seconds} s: {:?} instead of {truth}",
                drain.eta
            );
            assert!(
                drain.eta.low <= truth && truth <= drain.eta.high,
                "{:?}, {truth}",
                drain.eta
            );
        }
    }
}

#[test]
fn before_the_first_step_the_kernel_is_asked_and_not_believed() {
    let mut estimator = DrainEstimator::default();
    assert_eq!(estimator.drain(100, None), None);
    estimator.observe(at(1.0), 5_000, true);
    let drain = estimator.drain(100_000_000, Some(100_000_000)).unwrap();
    assert_eq!(drain.basis, Basis::Kernel);
    assert!((drain.eta.seconds - 1.0).abs() < 1e-9 && drain.eta.high >= 4.0);
    // One step that began before the first look says little.
    estimator.observe(at(1.5), 10_005_000, true);
    let drain = estimator.drain(100_000_000, Some(100_000_000)).unwrap();
    assert_eq!(drain.basis, Basis::FirstStep);
    assert!((drain.eta.seconds - 5.0).abs() < 1e-9 && drain.eta.high > 9.0);
}

#[test]
fn time_without_work_is_not_slowness() {
    let device = Device {
        rate: 10e6,
        step: 1e6,
    };
    let mut estimator = watched(&device, 0.0, 5.0);
    let before = estimator.rate().unwrap();
    let written = device.written(5.0);
    for minute in 0..60 {
        estimator.observe(at(5.1 + 60.0 * f64::from(minute)), written, false);
    }
    for tenth in 0..30 {
        let worked = f64::from(tenth) / 10.0;
        estimator.observe(at(4000.0 + worked), written + device.written(worked), true);
    }
    let after = estimator.rate().unwrap();
    assert!(
        (before / 10e6 - 1.0).abs() < 0.05 && (after / 10e6 - 1.0).abs() < 0.05,
        "{before} {after}"
    );
}

#[test]
fn a_device_that_stalls_shows_it() {
    let device = Device {
        rate: 10e6,
        step: 1e6,
    };
    let mut estimator = watched(&device, 0.0, 10.0);
    let usual = estimator.drain(100_000_000, None).unwrap().eta.seconds;
    for second in 1..20 {
        estimator.observe(at(10.0 + f64::from(second)), device.written(10.0), true);
    }
    let stalled = estimator.drain(100_000_000, None).unwrap().eta;
    assert!((usual - 10.0).abs() < 0.5, "{usual}");
    assert!(stalled.seconds > 20.0 && stalled.low <= 10.0, "{stalled:?}");
}

#[test]
fn a_device_that_became_slower_is_soon_known_and_the_range_says_what_it_was() {
    let (fast, slow) = (
        Device {
            rate: 40e6,
            step: 1e6,
        },
        Device { rate: 8e6, step: 1e6 },
    );
    let mut estimator = watched(&fast, 0.0, 60.0);
    let written = fast.written(60.0);
    for tenth in 1..=150 {
        let worked = f64::from(tenth) / 10.0;
        estimator.observe(at(60.0 + worked), written + slow.written(worked), true);
    }
    let eta = estimator.drain(80_000_000, None).unwrap().eta;
    assert!((8.0..13.0).contains(&eta.seconds), "{eta:?}");
    assert!(eta.low < 8.0, "{eta:?}");
}

#[test]
fn pauses_widen_the_range() {
    let steady = Device {
        rate: 10e6,
        step: 1e6,
    };
    let bursts = Device {
        rate: 10e6,
        step: 20e6,
    };
    let range = |device: &Device| {
        let eta = watched(device, 0.0, 30.0).drain(100_000_000, None).unwrap().eta;
        eta.high - eta.low
    };
    assert!(range(&bursts) > 1.5 * range(&steady));
}

#[test]
fn a_counter_that_goes_back_is_another_device() {
    let device = Device {
        rate: 10e6,
        step: 1e6,
    };
    let mut estimator = watched(&device, 0.0, 5.0);
    assert!(estimator.steps() > 10.0);
    estimator.observe(at(6.0), 0, true);
    assert_eq!((estimator.rate(), estimator.steps()), (None, 0.0));
    assert_eq!(estimator.drain(0, None).unwrap().eta.high, 0.0);
}

proptest! {
    #[test]
    fn every_history_gives_an_ordered_finite_range(
        looks in proptest::collection::vec((0.0_f64..100.0, 0_u64..1 << 40, any::<bool>()), 0..60),
        backlog in any::<u64>(),
        kernel in proptest::option::of(any::<u64>()),
    ) {
        let (mut estimator, mut time, mut written) = (DrainEstimator::default(), 0.0, 0_u64);
        for (seconds, bytes, is_writing) in looks {
            time += seconds;
            written = if bytes % 7 == 0 { 0 } else { written.saturating_add(bytes) };
            estimator.observe(at(time), written, is_writing);
        }
        if let Some(Drain { eta, .. }) = estimator.drain(backlog, kernel) {
            prop_assert!(eta.seconds.is_finite() && eta.high.is_finite());
            prop_assert!(0.0 <= eta.low && eta.low <= eta.seconds && eta.seconds <= eta.high, "{eta:?}");
        }
    }

    #[test]
    fn steady_devices_of_any_speed_are_estimated(rate in 1e5_f64..1e9, step in 4096.0_f64..4e6, seconds in 2.0_f64..40.0) {
        let device = Device { rate, step: step.min(rate / 3.0) };
        let estimator = watched(&device, 0.0, seconds);
        let backlog = rate * 30.0;
        let eta = estimator.drain(backlog as u64, None).unwrap().eta;
        prop_assert!((eta.seconds / 30.0 - 1.0).abs() < 0.2, "{eta:?}");
    }
}
