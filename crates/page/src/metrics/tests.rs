use std::collections::BTreeSet;

use hyper::header::HeaderValue;
use ropeway_live::model::{Backlog, Cache, Job, Operation};

use super::*;

/// A process that does everything at once.
fn everything() -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.process.resources.open_fds = Some(7);
    let operation = Operation {
        count: 5,
        seconds: 0.5,
    };
    snapshot.servers.push(Server {
        requests: 12,
        operations: [("read".to_owned(), operation)].into(),
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
    let mut job = Job {
        id: 3,
        kind: "copy".to_owned(),
        sources: vec!["/a\"b\\c\nd".to_owned()],
        errors: 2,
        ..Job::default()
    };
    job.counters.bytes_durable = 1 << 40;
    snapshot.jobs = vec![job, Job::default()];
    snapshot.caches.push(Cache::default());
    snapshot.backlogs.push(Backlog::default());
    snapshot
}

#[test]
fn a_snapshot_becomes_a_page() {
    let text = page(&everything()).text(Format::Text);
    for line in [
        "ropeway_smb_requests_total 12",
        "# TYPE ropeway_smb_requests_total counter",
        "ropeway_smb_operations_total{kind=\"read\"} 5",
        "ropeway_smb_operation_seconds_total{kind=\"read\"} 0.5",
        "# TYPE ropeway_smb_request_seconds histogram",
        "ropeway_smb_request_seconds_bucket{le=\"0.000001\"} 1",
        "ropeway_smb_request_seconds_bucket{le=\"+Inf\"} 5",
        "ropeway_smb_request_seconds_sum 0.5",
        "ropeway_smb_request_seconds_count 5",
        "ropeway_mount_unflushed_bytes 9",
        "process_open_fds 7",
        "ropeway_job_durable_bytes_total{job=\"3\",kind=\"copy\"} 1099511627776",
        "ropeway_job_errors_total{job=\"3\",kind=\"copy\"} 2",
        "ropeway_job_info{job=\"3\",kind=\"copy\",source=\"/a\\\"b\\\\c\\nd\",target=\"\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(text.matches("# TYPE ropeway_smb_operations_total").count(), 1);
    assert_eq!(text.matches("# TYPE ropeway_job_errors_total").count(), 1);
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
}

/// The rules of OpenMetrics 1.0.0 that a scraper may insist on.
#[test]
fn open_metrics_has_its_rules() {
    let text = page(&everything()).text(Format::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n"));
    let (mut names, mut current) = (BTreeSet::new(), ("", ""));
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => {
                assert!(names.insert(name), "{name} twice");
                assert!(kind != "counter" || !name.ends_with("_total"), "{line}");
                current = (name, kind);
            }
            ["#", "UNIT", name, unit] => {
                assert!(name == current.0 && name.ends_with(&format!("_{unit}")), "{line}");
            }
            ["#", "HELP" | "EOF", ..] => {}
            _ => {
                let end = line.find(['{', ' ']).unwrap();
                let suffixes: &[&str] = match current.1 {
                    "counter" => &["_total"],
                    "info" => &["_info"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                let suffix = line[..end].strip_prefix(current.0);
                assert!(
                    suffix.is_some_and(|suffix| suffixes.contains(&suffix)),
                    "{line} after {current:?}"
                );
            }
        }
    }
    for line in [
        "# TYPE ropeway_smb_requests counter",
        "ropeway_smb_requests_total 12",
        "# TYPE ropeway_job_durable_bytes counter",
        "# UNIT ropeway_job_durable_bytes bytes",
        "# TYPE ropeway_build info",
        // There is a gauge of the name.
        "# TYPE ropeway_smb_connections gauge",
        "# TYPE ropeway_smb_connections_total unknown",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn the_format_is_what_a_scraper_accepts() {
    for (accept, format) in [
        (None, Format::Text),
        (Some("*/*"), Format::Text),
        (Some("text/plain;version=0.0.4"), Format::Text),
        (Some("application/openmetrics-text"), Format::OpenMetrics),
        (
            Some("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"),
            Format::OpenMetrics,
        ),
        (Some("application/openmetrics-text;q=0, text/plain"), Format::Text),
    ] {
        let accept = accept.map(HeaderValue::from_static);
        assert_eq!(Format::wanted(accept.as_ref()), format, "{accept:?}");
    }
}
