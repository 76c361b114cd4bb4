//! Which figures are exported: those of the last snapshot, and of the jobs that have ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter, MeterProvider as _};
use opentelemetry_sdk::metrics::SdkMeterProvider;
use parking_lot::Mutex;
use ropeway_live::model::{Job, Operations, Snapshot};

/// Ended jobs whose figures are kept, so that a copy shorter than the time between two exports is
/// told too. A guess: a process has one.
const JOBS_KEPT: usize = 16;

/// The figures of the moment.
#[derive(Default)]
pub(crate) struct Figures(Mutex<Known>);

#[derive(Default)]
struct Known {
    last: Snapshot,
    /// Jobs that have ended, oldest first.
    ended: Vec<Job>,
}

/// Reports one figure with its attributes.
type Report<'a> = &'a dyn Fn(u64, &[KeyValue]);

/// A figure: its name, its unit, and what reports it.
type Figure = (&'static str, &'static str, fn(&Known, Report<'_>));

impl Figures {
    /// Registers everything that is exported.
    pub(crate) fn register(provider: &SdkMeterProvider, dropped: Arc<AtomicU64>) -> Arc<Self> {
        let figures = Arc::new(Self::default());
        let meter = provider.meter("ropeway");
        let counters: [Figure; 6] = [
            ("ropeway.job.bytes", "By", job_bytes),
            ("ropeway.job.files", "{file}", job_files),
            ("ropeway.job.errors", "{error}", job_errors),
            ("ropeway.transfer.bytes", "By", bytes),
            ("ropeway.requests", "{request}", requests),
            ("ropeway.request.time", "us", request_time),
        ];
        for (name, unit, of) in counters {
            let source = Arc::clone(&figures);
            let callback = move |to: &dyn AsyncInstrument<u64>| source.report(of, to);
            _ = meter
                .u64_observable_counter(name)
                .with_unit(unit)
                .with_callback(callback)
                .build();
        }
        let gauges: [Figure; 5] = [
            ("ropeway.not_durable", "By", not_durable),
            ("ropeway.server.sessions", "{session}", sessions),
            ("ropeway.server.open_files", "{file}", open_files),
            ("ropeway.page_cache", "By", page_cache),
            ("process.memory.usage", "By", memory),
        ];
        for (name, unit, of) in gauges {
            let source = Arc::clone(&figures);
            let callback = move |to: &dyn AsyncInstrument<u64>| source.report(of, to);
            _ = meter
                .u64_observable_gauge(name)
                .with_unit(unit)
                .with_callback(callback)
                .build();
        }
        register_dropped(&meter, dropped);
        figures
    }

    /// Takes the figures of the moment.
    pub(crate) fn see(&self, snapshot: Snapshot) {
        self.0.lock().last = snapshot;
    }

    /// Takes the last figures of parts that have ended.
    pub(crate) fn ended(&self, snapshot: Snapshot) {
        let mut known = self.0.lock();
        for job in snapshot.jobs {
            known.last.jobs.retain(|running| running.id != job.id);
            if known.ended.len() >= JOBS_KEPT {
                known.ended.remove(0);
            }
            known.ended.push(job);
        }
    }

    fn report(&self, of: fn(&Known, Report<'_>), to: &dyn AsyncInstrument<u64>) {
        of(&self.0.lock(), &|value, attributes| to.observe(value, attributes));
    }
}

fn register_dropped(meter: &Meter, dropped: Arc<AtomicU64>) {
    _ = meter
        .u64_observable_counter("ropeway.telemetry.dropped")
        .with_unit("{span}")
        .with_callback(move |to| to.observe(dropped.load(Ordering::Relaxed), &[]))
        .build();
}

fn jobs(known: &Known) -> impl Iterator<Item = (&Job, [KeyValue; 2])> {
    let all = known.ended.iter().chain(&known.last.jobs);
    all.map(|job| {
        let attributes = [
            KeyValue::new("kind", job.kind.clone()),
            KeyValue::new("job", i64::from(job.id)),
        ];
        (job, attributes)
    })
}

/// Reports some figures of each job, told apart by an attribute.
fn of_jobs<const N: usize>(
    known: &Known,
    report: Report<'_>,
    key: &'static str,
    of: fn(&Job) -> [(&'static str, u64); N],
) {
    for (job, [kind, id]) in jobs(known) {
        for (name, value) in of(job) {
            report(value, &[kind.clone(), id.clone(), KeyValue::new(key, name)]);
        }
    }
}

fn job_bytes(known: &Known, report: Report<'_>) {
    of_jobs(known, report, "counter", |job| {
        let counters = &job.counters;
        [
            ("read", counters.bytes_read),
            ("sent", counters.bytes_sent),
            ("durable", counters.bytes_durable),
        ]
    });
}

fn job_files(known: &Known, report: Report<'_>) {
    of_jobs(known, report, "outcome", |job| {
        let counters = &job.counters;
        [
            ("done", counters.files_done),
            ("skipped", counters.files_skipped),
            ("failed", counters.files_failed),
        ]
    });
}

fn job_errors(known: &Known, report: Report<'_>) {
    for (job, attributes) in jobs(known) {
        report(job.errors, &attributes);
    }
}

/// What servers and mounts have passed on.
fn bytes(known: &Known, report: Report<'_>) {
    let servers = known.last.servers.iter();
    let servers = servers.map(|server| ("server", server.id, server.bytes_read, server.bytes_written));
    let mounts = known.last.mounts.iter();
    let mounts = mounts.map(|mount| ("mount", mount.id, mount.bytes_read, mount.bytes_written));
    for (part, id, read, written) in servers.chain(mounts) {
        for (direction, value) in [("read", read), ("written", written)] {
            let direction = KeyValue::new("direction", direction);
            report(
                value,
                &[
                    KeyValue::new("part", part),
                    KeyValue::new("id", i64::from(id)),
                    direction,
                ],
            );
        }
    }
}

/// The operations of servers and mounts, by kind.
fn operations(known: &Known) -> impl Iterator<Item = (&'static str, u32, &Operations)> {
    let servers = known
        .last
        .servers
        .iter()
        .map(|server| ("server", server.id, &server.operations));
    let mounts = known
        .last
        .mounts
        .iter()
        .map(|mount| ("mount", mount.id, &mount.operations));
    servers.chain(mounts)
}

fn of_operations(known: &Known, report: Report<'_>, of: fn(u64, f64) -> u64) {
    for (part, id, operations) in operations(known) {
        for (kind, operation) in operations {
            let kind = KeyValue::new("kind", kind.clone());
            let value = of(operation.count, operation.seconds);
            report(
                value,
                &[
                    KeyValue::new("part", part),
                    KeyValue::new("id", i64::from(id)),
                    kind,
                ],
            );
        }
    }
}

fn requests(known: &Known, report: Report<'_>) {
    of_operations(known, report, |count, _| count);
}

fn request_time(known: &Known, report: Report<'_>) {
    of_operations(known, report, |_, seconds| (seconds * 1e6) as u64);
}

fn not_durable(known: &Known, report: Report<'_>) {
    report(known.last.dirty_bytes(), &[]);
}

fn sessions(known: &Known, report: Report<'_>) {
    for server in &known.last.servers {
        report(
            server.sessions_total,
            &[KeyValue::new("id", i64::from(server.id))],
        );
    }
}

fn open_files(known: &Known, report: Report<'_>) {
    for server in &known.last.servers {
        report(server.open_total, &[KeyValue::new("id", i64::from(server.id))]);
    }
}

fn page_cache(known: &Known, report: Report<'_>) {
    if let Some(cache) = &known.last.page_cache {
        for (state, value) in [("dirty", cache.dirty_bytes), ("writeback", cache.writeback_bytes)] {
            report(value, &[KeyValue::new("state", state)]);
        }
    }
}

fn memory(known: &Known, report: Report<'_>) {
    if let Some(bytes) = known.last.process.resources.resident_bytes {
        report(bytes, &[]);
    }
}
