//! The contents of `/metrics`, in Prometheus' text format.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ropeway_boost::Status;
use ropeway_smb_server::ServerHandle;

use super::http::Pages;
use super::write_back::BacklogStatus;
use crate::commands::boost;

/// Metrics of a server.
pub(super) struct Metrics {
    server: ServerHandle,
    started: SystemTime,
    cache: Option<CacheStatus>,
    backlogs: BacklogStatus,
}

/// Returns the figures of the cache of far shares.
pub(super) type CacheStatus = Arc<dyn Fn() -> Status + Send + Sync>;

impl Metrics {
    /// Makes the metrics of a server, and of its cache of far shares.
    pub(super) fn new(server: ServerHandle, cache: Option<CacheStatus>, backlogs: BacklogStatus) -> Self {
        Self {
            server,
            cache,
            backlogs,
            started: SystemTime::now(),
        }
    }
}

impl Pages for Metrics {
    fn metrics(&self) -> String {
        let mut page = Page::default();
        let counters = self.server.counters();
        let (sessions, handles) = self.server.sizes();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter(
            "connections_total",
            "Connections accepted.",
            count(&counters.connections),
        );
        page.gauge(
            "connections",
            "Open connections.",
            count(&counters.connections_open),
        );
        page.gauge("sessions", "Client sessions.", sessions as u64);
        page.gauge("open_handles", "Open files, folders and pipes.", handles as u64);
        page.gauge(
            "shares",
            "Shared folders.",
            self.server.share_names().len() as u64,
        );
        page.counter("logins_total", "Logins that succeeded.", count(&counters.logins));
        page.counter(
            "logins_failed_total",
            "Logins that failed.",
            count(&counters.logins_failed),
        );
        page.counter("requests_total", "Requests executed.", count(&counters.requests));
        page.counter(
            "read_bytes_total",
            "Bytes read by clients.",
            count(&counters.bytes_read),
        );
        page.counter(
            "written_bytes_total",
            "Bytes written by clients.",
            count(&counters.bytes_written),
        );
        let label = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        page.add(
            "ropeway_build_info",
            "gauge",
            "Version of the program.",
            &label,
            1.0,
        );
        process(&mut page, self.started);
        if let Some(cache) = &self.cache {
            boost::metrics::add(&mut page, &cache());
        }
        boost::metrics::add_backlogs(&mut page, &(self.backlogs)());
        page.0
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Adds the kernel's figures for this process, under the names that all exporters use.
fn process(page: &mut Page, started: SystemTime) {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        if let Some(value) = value {
            page.add(name, "gauge", help, "", value);
        }
    };
    gauge(
        "process_start_time_seconds",
        "Start time of the server.",
        Some(since.as_secs_f64()),
    );
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let number: f64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
        Some(number * 1024.0)
    };
    gauge("process_resident_memory_bytes", "Memory in use.", kib("VmRSS:"));
    gauge("process_virtual_memory_bytes", "Memory mapped.", kib("VmSize:"));
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    gauge(
        "process_threads",
        "Threads.",
        threads.and_then(|text| text.trim().parse().ok()),
    );
    // The descriptor of the folder itself is one of them.
    let fds = fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1) as f64);
    gauge("process_open_fds", "Open descriptors.", fds.ok());
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    gauge(
        "process_max_fds",
        "Maximum number of open descriptors.",
        limit.map(|limit| limit as f64),
    );
    if let Some(seconds) = cpu_seconds() {
        page.add(
            "process_cpu_seconds_total",
            "counter",
            "Processor time, user and system.",
            "",
            seconds,
        );
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 14 and 15 of proc_pid_stat(5). The name in field 2 may contain blanks and ends at the
    // last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
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
    fn process_metrics_are_included() {
        let mut page = Page::default();
        process(&mut page, SystemTime::now());
        for name in [
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_cpu_seconds_total",
        ] {
            let value = page
                .0
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name} ")));
            assert!(value.unwrap().parse::<f64>().unwrap() >= 0.0, "{name}");
        }
    }
}
