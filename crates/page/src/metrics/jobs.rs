//! The figures of copies, mirrors and comparisons, with the number of the job as a label.

use ropeway_live::model::Job;

use super::families::{Families, labels};

/// Adds the figures of all jobs.
#[rustfmt::skip]
pub(super) fn add(page: &mut Families, jobs: &[Job]) {
    type Figure = (&'static str, &'static str, &'static str, fn(&Job) -> Option<f64>);
    let figures: [Figure; 20] = [
        ("read_bytes_total", "counter", "Bytes read from the source.", |job| Some(job.counters.bytes_read as f64)),
        ("sent_bytes_total", "counter", "Bytes passed to the target.", |job| Some(job.counters.bytes_sent as f64)),
        ("durable_bytes_total", "counter", "Bytes known to be durable on the target.", |job| Some(job.counters.bytes_durable as f64)),
        ("found_bytes", "gauge", "Bytes found in the source so far.", |job| Some(job.counters.bytes_total as f64)),
        ("files_total", "counter", "Files finished: copied, linked, skipped or compared.", |job| Some(job.counters.files_done as f64)),
        ("files_skipped_total", "counter", "Files skipped because they are equal already.", |job| Some(job.counters.files_skipped as f64)),
        ("files_failed_total", "counter", "Files that failed.", |job| Some(job.counters.files_failed as f64)),
        ("found_files", "gauge", "Files found in the source so far.", |job| Some(job.counters.files_total as f64)),
        ("found_all", "gauge", "Whether everything was found.", |job| Some(f64::from(u8::from(job.counters.totals_final)))),
        ("errors_total", "counter", "Items that failed.", |job| Some(job.errors as f64)),
        ("differences_total", "counter", "Differences that a comparison found.", |job| Some(job.differences as f64)),
        ("deleted_total", "counter", "Nodes deleted by a mirror.", |job| Some(job.counters.deleted as f64)),
        ("retries_total", "counter", "Attempts repeated after a temporary error.", |job| Some(job.counters.retries as f64)),
        ("operations_total", "counter", "Operations that moved or changed something.", |job| Some(job.counters.operations as f64)),
        ("dirty_bytes", "gauge", "Bytes sent and not known to be durable.", |job| Some(job.dirty_bytes() as f64)),
        ("running_seconds", "gauge", "Time since the beginning.", |job| Some(job.seconds)),
        ("left_seconds", "gauge", "Time left, as estimated.", |job| job.eta.map(|eta| eta.seconds)),
        ("bwlimit_bytes_per_second", "gauge", "Bytes a second that --bwlimit allows now.", |job| job.bwlimit_bytes_per_s.map(|rate| rate as f64)),
        ("paused", "gauge", "Whether it is paused.", |job| Some(f64::from(u8::from(job.paused)))),
        ("done", "gauge", "Whether it has finished.", |job| Some(f64::from(u8::from(job.state() == "done")))),
    ];
    let rows = jobs.iter().map(|job| {
        let (id, source) = (job.id.to_string(), job.sources.first().map_or("", String::as_str));
        let ends = [("job", id.as_str()), ("kind", &job.kind), ("source", source), ("target", &job.target)];
        (labels(&ends), 1.0)
    });
    page.add_rows("ropeway_job_info", "gauge", "The jobs, and their ends.", rows);
    for (name, kind, help, value) in figures {
        let rows = jobs.iter().filter_map(|job| {
            let id = job.id.to_string();
            Some((labels(&[("job", &id), ("kind", &job.kind)]), value(job)?))
        });
        page.add_rows(&format!("ropeway_job_{name}"), kind, help, rows);
    }
}
