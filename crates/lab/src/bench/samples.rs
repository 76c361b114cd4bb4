//! A report with every kind of cell, for tests.

use crate::bench::cell::{Key, Mode, Pattern};
use crate::bench::grid::Grid;
use crate::bench::result::{Conditions, NodeOperation, Report, Sample, Settings, Target};
use crate::report::Machine;

/// Rate of the modelled device.
pub(super) const DEVICE_BPS: f64 = 200e6;
/// Rate of the modelled memory.
pub(super) const MEMORY_BPS: f64 = 4e9;
/// Memory of the modelled machine.
pub(super) const MEMORY: u64 = 16 << 30;

/// Returns the report of a whole run on a flash disk of 200 MB/s, 100 µs a request.
pub(super) fn report() -> Report {
    let grid = Grid::whole();
    let settings = Settings {
        sizes: grid.sizes.clone(),
        records: grid.records.clone(),
        patterns: grid.patterns.clone(),
        modes: grid.modes.clone(),
        depths: grid.depths.clone(),
        runs: 3,
        budget_seconds: 900.0,
        pass_seconds: 1.0,
        files: 1000,
        seed: 1,
        engine: "io_uring".to_owned(),
        ..Settings::default()
    };
    let conditions = Conditions {
        machine: Machine {
            kernel: "6.18".to_owned(),
            processor: "a <processor>".to_owned(),
            processors: 2,
            memory_bytes: MEMORY,
            system: "a system".to_owned(),
        },
        dirty_background_bytes: Some(MEMORY / 10),
        ..Conditions::default()
    };
    let target = Target {
        shown: "/mnt/disk".to_owned(),
        kind: "folder".to_owned(),
        file_system: Some("ext4".to_owned()),
        source: Some("/dev/sda1".to_owned()),
        connection: None,
    };
    let mut report = Report::new(target, conditions, settings, "2026-01-02T03:04:05Z".to_owned());
    report.complete = true;
    for step in grid.steps(u64::MAX) {
        for key in step.keys() {
            for run in 0..3 {
                report.add(key, sample(&key, run));
            }
        }
    }
    for depth in [1, 16] {
        for (operation, rate) in NodeOperation::ALL.into_iter().zip([50e3, 400e3, 2e6, 80e3, 60e3]) {
            let run = Sample {
                seconds: 1000.0 / rate,
                operations: 1000,
                p50_us: 1e6 / rate,
                p99_us: 3e6 / rate,
                max_us: 9e6 / rate,
                ..Sample::default()
            };
            report.add_node(operation, depth, run);
        }
    }
    report
}

/// Returns a run of a cell: the second is 2 % slower than the first, the third 4 %.
pub(super) fn sample(key: &Key, run: u32) -> Sample {
    let (one, operations) = (100e-6, key.records());
    let in_flight = f64::from(key.depth).min(operations as f64);
    let device = (key.size as f64 / DEVICE_BPS).max(operations as f64 * one / in_flight);
    let memory = key.size as f64 / MEMORY_BPS + operations as f64 * 1e-6;
    let is_memory = key.mode == Mode::Cached && (key.pattern.writes() || key.pattern == Pattern::Reread);
    let seconds = if is_memory { memory } else { device } * (1.0 + 0.02 * f64::from(run));
    let reads = !key.pattern.writes();
    let warm = f64::from(u8::from(key.pattern == Pattern::Reread));
    Sample {
        seconds,
        bytes: key.size,
        operations,
        flush_seconds: (key.mode == Mode::Fsync).then_some(seconds / 2.0),
        p50_us: seconds / operations as f64 * in_flight * 1e6,
        p99_us: seconds / operations as f64 * in_flight * 3e6,
        max_us: seconds / operations as f64 * in_flight * 5e6,
        in_memory_before: reads.then_some(if key.mode == Mode::Direct { 0.0 } else { warm }),
        not_written: (!reads && key.mode != Mode::Direct).then_some(f64::from(u8::from(is_memory))),
        ..Sample::default()
    }
}
