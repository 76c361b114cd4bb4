//! The contents of `/metrics`, in Prometheus' text format: the same snapshot that `top` shows.

use std::fmt::Write as _;
use std::sync::Arc;

use ropeway_live::model::{Latency, Mount, Operations, Process, Server, Snapshot};

use super::http::Pages;
use crate::commands::boost;

/// Metrics of a process.
pub(crate) struct Metrics(pub(crate) Snapshots);

/// Returns what the process does now, with or without the last five minutes.
pub(crate) type Snapshots = Arc<dyn Fn(bool) -> Snapshot + Send + Sync>;

impl Pages for Metrics {
    fn metrics(&self) -> String {
        page(&(self.0)(false)).text()
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Returns the page for a snapshot.
fn page(snapshot: &Snapshot) -> Page {
    let mut page = Page::default();
    // A process has one server, and the figures have no label for several.
    if let Some(server) = snapshot.servers.first() {
        of_server(&mut page, server);
    }
    mounts(&mut page, &snapshot.mounts);
    let label = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    page.add(
        "ropeway_build_info",
        "gauge",
        "Version of the program.",
        &label,
        1.0,
    );
    process(&mut page, &snapshot.process);
    if let Some(cache) = snapshot.caches.first() {
        boost::metrics::add(&mut page, &cache.status);
    }
    boost::metrics::add_backlogs(&mut page, &snapshot.backlogs);
    page
}

fn of_server(page: &mut Page, server: &Server) {
    page.counter(
        "connections_total",
        "Connections accepted.",
        server.connections_total,
    );
    page.gauge("connections", "Open connections.", server.connections);
    page.gauge("sessions", "Client sessions.", server.sessions_total);
    page.gauge("users", "Users with a session.", server.users);
    page.gauge(
        "open_handles",
        "Open files, folders and pipes.",
        server.open_total,
    );
    page.gauge("shares", "Shared folders.", server.shares.len() as u64);
    page.counter("logins_total", "Logins that succeeded.", server.logins);
    page.counter("logins_failed_total", "Logins that failed.", server.logins_failed);
    page.counter("requests_total", "Requests executed.", server.requests);
    page.counter("read_bytes_total", "Bytes read by clients.", server.bytes_read);
    page.counter(
        "written_bytes_total",
        "Bytes written by clients.",
        server.bytes_written,
    );
    page.gauge(
        "unsent_bytes",
        "Bytes of replies that clients have not received.",
        server.unsent_bytes,
    );
    operations(page, "ropeway_smb", &server.operations);
    latency(page, &server.latency);
}

/// Adds the requests of each kind, and how long they took.
fn operations(page: &mut Page, prefix: &str, operations: &Operations) {
    let rows = |value: fn(&ropeway_live::model::Operation) -> f64| {
        operations
            .iter()
            .map(move |(kind, operation)| (format!("{{kind=\"{kind}\"}}"), value(operation)))
    };
    page.add_rows(
        &format!("{prefix}_operations_total"),
        "counter",
        "Requests executed, by kind.",
        rows(|operation| operation.count as f64),
    );
    if operations.values().any(|operation| operation.seconds > 0.0) {
        page.add_rows(
            &format!("{prefix}_operation_seconds_total"),
            "counter",
            "Seconds that they took, without the wait for other clients.",
            rows(|operation| operation.seconds),
        );
    }
}

/// Adds a histogram of the times of all requests.
fn latency(page: &mut Page, latency: &Latency) {
    let (mut sum, mut rows) = (0_u64, Vec::new());
    for (power, count) in (0_i32..).zip(&latency.buckets) {
        sum = sum.saturating_add(*count);
        // The last one has no bound.
        let bound = match power as usize + 1 < latency.buckets.len() {
            true => (2_f64.powi(power) / 1e6).to_string(),
            false => "+Inf".to_owned(),
        };
        rows.push((format!("_bucket{{le=\"{bound}\"}}"), sum as f64));
    }
    rows.push(("_sum".to_owned(), latency.seconds));
    rows.push(("_count".to_owned(), sum as f64));
    page.add_rows(
        "ropeway_smb_request_seconds",
        "histogram",
        "How long requests took, without the wait for other clients.",
        rows.into_iter(),
    );
}

fn mounts(page: &mut Page, mounts: &[Mount]) {
    // A process has one mount.
    let Some(mount) = mounts.first() else { return };
    let mut add = |name: &str, kind: &str, help: &str, value: u64| {
        page.add(&format!("ropeway_mount_{name}"), kind, help, "", value as f64);
    };
    add(
        "requests_total",
        "counter",
        "Requests of the kernel.",
        mount.requests,
    );
    add(
        "read_bytes_total",
        "counter",
        "Bytes read by the kernel.",
        mount.bytes_read,
    );
    add(
        "written_bytes_total",
        "counter",
        "Bytes written by the kernel.",
        mount.bytes_written,
    );
    add("open_files", "gauge", "Open files.", mount.open_files);
    add(
        "unflushed_bytes",
        "gauge",
        "Bytes written and not durable yet.",
        mount.unflushed_bytes,
    );
    operations(page, "ropeway_mount", &mount.operations);
}

/// Adds the kernel's figures for this process, under the names that all exporters use.
fn process(page: &mut Page, process: &Process) {
    let resources = &process.resources;
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.add(name, "gauge", help, "", value);
        }
    };
    let number = |value: Option<u64>| value.map(|value| value as f64);
    gauge(
        "process_start_time_seconds",
        "Start time of the process.",
        Some(process.started),
    );
    gauge(
        "process_resident_memory_bytes",
        "Memory in use.",
        number(resources.resident_bytes),
    );
    gauge(
        "process_virtual_memory_bytes",
        "Memory mapped.",
        number(resources.virtual_bytes),
    );
    gauge("process_threads", "Threads.", number(resources.threads));
    gauge(
        "process_open_fds",
        "Open descriptors.",
        number(resources.open_fds),
    );
    gauge(
        "process_max_fds",
        "Maximum number of open descriptors.",
        number(resources.fds_max),
    );
    if let Some(seconds) = resources.cpu_seconds {
        page.add(
            "process_cpu_seconds_total",
            "counter",
            "Processor time, user and system.",
            "",
            seconds,
        );
    }
}

/// A page of metrics.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// Returns the text.
    pub(crate) fn text(self) -> String {
        self.0
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(&format!("ropeway_smb_{name}"), "counter", help, "", value as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.add(&format!("ropeway_smb_{name}"), "gauge", help, "", value as f64);
    }

    /// Adds a metric.
    pub(crate) fn add(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: f64) {
        _ = write!(
            self.0,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name}{labels} {value}\n"
        );
    }

    /// Adds a metric with a row for each set of labels; nothing without rows.
    pub(crate) fn add_rows(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        rows: impl Iterator<Item = (String, f64)>,
    ) {
        for (index, (labels, value)) in rows.enumerate() {
            match index {
                0 => self.add(name, kind, help, &labels, value),
                _ => _ = writeln!(self.0, "{name}{labels} {value}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_prometheus_text_format() {
        let mut page = Page::default();
        page.counter("requests_total", "Requests executed.", 12_345_678_901);
        assert_eq!(
            page.0,
            "# HELP ropeway_smb_requests_total Requests executed.\n# TYPE ropeway_smb_requests_total counter\n\
             ropeway_smb_requests_total 12345678901\n"
        );
    }

    #[test]
    fn a_snapshot_becomes_a_page() {
        let mut snapshot = Snapshot::default();
        snapshot.process.resources.open_fds = Some(7);
        snapshot.servers.push(Server {
            requests: 12,
            operations: [(
                "read".to_owned(),
                ropeway_live::model::Operation {
                    count: 5,
                    seconds: 0.5,
                },
            )]
            .into(),
            latency: Latency {
                buckets: vec![1, 0, 4],
                seconds: 0.5,
            },
            ..Server::default()
        });
        snapshot.mounts.push(Mount {
            unflushed_bytes: 9,
            ..Mount::default()
        });
        let text = page(&snapshot).text();
        for line in [
            "ropeway_smb_requests_total 12",
            "ropeway_smb_operations_total{kind=\"read\"} 5",
            "ropeway_smb_operation_seconds_total{kind=\"read\"} 0.5",
            "# TYPE ropeway_smb_request_seconds histogram",
            "ropeway_smb_request_seconds_bucket{le=\"0.000001\"} 1",
            "ropeway_smb_request_seconds_bucket{le=\"+Inf\"} 5",
            "ropeway_smb_request_seconds_sum 0.5",
            "ropeway_smb_request_seconds_count 5",
            "ropeway_mount_unflushed_bytes 9",
            "process_open_fds 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("# TYPE ropeway_smb_operations_total").count(), 1);
    }
}
