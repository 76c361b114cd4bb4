//! The state of a job as the views of this process have it.

use std::cmp::Reverse;

use ropeway_fleet::health::Rates;
use ropeway_fleet::status::{Status, WorkerStatus};
use ropeway_live::model::{Fleet, FleetFailure, FleetRates, FleetWorker, WORKERS_MAX};
use ropeway_vfs::Timestamp;
use serde::Serialize;

/// Returns the time of this machine.
pub(super) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_nanosecond())
}

/// Returns the figures of a job.
pub(super) fn of(status: &Status) -> Fleet {
    let sums = &status.sums;
    let mut workers: Vec<&WorkerStatus> = status.workers.iter().collect();
    // Those that did most come first; of those that have ended, the newest.
    workers.sort_by_key(|worker| {
        let bytes = Reverse(worker.beat.bytes);
        (worker.state.rank(), (!worker.state.is_past()).then_some(bytes))
    });
    let is_present = |worker: &&&WorkerStatus| worker.state.is_present();
    let workers_present = workers.iter().filter(is_present).count() as u64;
    workers.truncate(WORKERS_MAX);
    Fleet {
        id: 0,
        source: status.source.clone(),
        target: status.target.clone(),
        phase: word(&status.phase),
        rounds: status.rounds,
        tasks_done: status.tasks_done,
        tasks_open: status.tasks_open,
        tasks_claimed: status.tasks_claimed,
        files: sums.files,
        bytes: sums.bytes,
        folders: sums.folders,
        copied: sums.copied,
        copied_bytes: sums.copied_bytes,
        failed: status.failed,
        skipped: sums.skipped,
        extra: sums.extra,
        deleted: sums.deleted,
        files_expected: status.expected.map(|expected| expected.files),
        bytes_expected: status.expected.map(|expected| expected.bytes),
        rates: rates(&status.rates),
        eta: status.eta,
        eta_unknown: status.eta_unknown.as_ref().map(word).unwrap_or_default(),
        stragglers: status.stragglers,
        workers_total: status.workers_total,
        workers_present,
        workers: workers.into_iter().map(worker).collect(),
        failures: (status.failures.iter())
            .map(|failure| FleetFailure {
                path: failure.path.clone(),
                message: failure.message.clone(),
            })
            .collect(),
        ..Fleet::default()
    }
}

/// Returns the name of a variant, as in JSON.
fn word(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn rates(rates: &Rates) -> FleetRates {
    FleetRates {
        files: rates.files,
        copied: rates.copied,
        read: rates.read,
        written: rates.written,
    }
}

fn worker(worker: &WorkerStatus) -> FleetWorker {
    let beat = &worker.beat;
    FleetWorker {
        id: worker.id.clone(),
        host: beat.host.clone(),
        process: beat.process,
        state: word(&worker.state),
        silent_seconds: worker.silent_seconds,
        stalled_seconds: beat.stalled_ms as f64 / 1_000.0,
        files: beat.files,
        bytes: beat.bytes,
        rates: worker.rates.as_ref().map(rates),
        task: beat.task.clone(),
        reason: beat.reason.clone(),
    }
}
