//! The contents of `/metrics`: the same snapshot that `top` and the page show.
//!
//! ```text
//! families   names, kinds, rows; as Prometheus' text format or as OpenMetrics
//! boost      caches and write-back backlogs
//! jobs       copies, mirrors, comparisons
//! ```

mod boost;
mod families;
mod jobs;

use ropeway_live::model::{Latency, Mount, Operations, Process, Server, Snapshot};

use self::families::labels;
pub(crate) use self::families::{Families, Format};

/// Returns the page for a snapshot.
pub(crate) fn page(snapshot: &Snapshot) -> Families {
    let mut page = Families::default();
    // A process has one server, and the figures have no label for several.
    if let Some(server) = snapshot.servers.first() {
        of_server(&mut page, server);
    }
    mounts(&mut page, &snapshot.mounts);
    jobs::add(&mut page, &snapshot.jobs);
    let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
    page.add(
        "ropeway_build_info",
        "gauge",
        "Version of the program.",
        &version,
        1.0,
    );
    process(&mut page, &snapshot.process);
    if let Some(cache) = snapshot.caches.first() {
        boost::add(&mut page, &cache.status);
    }
    boost::add_backlogs(&mut page, &snapshot.backlogs);
    page
}

fn of_server(families: &mut Families, server: &Server) {
    let mut page = Smb(families);
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
    operations(families, "ropeway_smb", &server.operations);
    latency(families, &server.latency);
}

/// Adds the requests of each kind, and how long they took.
fn operations(page: &mut Families, prefix: &str, operations: &Operations) {
    let rows = |value: fn(&ropeway_live::model::Operation) -> f64| {
        operations
            .iter()
            .map(move |(kind, operation)| (labels(&[("kind", kind)]), value(operation)))
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
fn latency(page: &mut Families, latency: &Latency) {
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

fn mounts(page: &mut Families, mounts: &[Mount]) {
    // A process has one mount.
    let Some(mount) = mounts.first() else { return };
    let mut add = |name: &str, kind: &'static str, help: &str, value: u64| {
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
fn process(page: &mut Families, process: &Process) {
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

/// Families of the server.
struct Smb<'a>(&'a mut Families);

impl Smb<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.0
            .add(&format!("ropeway_smb_{name}"), "counter", help, "", value as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.0
            .add(&format!("ropeway_smb_{name}"), "gauge", help, "", value as f64);
    }
}

#[cfg(test)]
mod tests;
