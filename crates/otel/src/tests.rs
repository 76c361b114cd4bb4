//! Exports to a small receiver on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use ropeway_live::model::{Job, Server, Session};
use ropeway_live::{Part, View};

use super::*;

/// Time that something under way has. Only a failure takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Fixed(Snapshot);

impl Part for Fixed {
    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        let numbered = |job: &Job| Job {
            id: view.id,
            ..job.clone()
        };
        snapshot.jobs.extend(self.0.jobs.iter().map(numbered));
        let numbered = |server: &Server| Server {
            id: view.id,
            ..server.clone()
        };
        snapshot.servers.extend(self.0.servers.iter().map(numbered));
    }
}

fn copy() -> Arc<dyn Part> {
    let mut job = Job {
        kind: "copy".into(),
        sources: vec!["/a".into()],
        target: "/b".into(),
        seconds: 3.0,
        errors: 2,
        ..Job::default()
    };
    job.counters.bytes_durable = 4711;
    Arc::new(Fixed(Snapshot {
        jobs: vec![job],
        ..Snapshot::default()
    }))
}

fn served() -> Arc<dyn Part> {
    let session = Session {
        id: "1f".into(),
        user: "ann".into(),
        seconds: 60,
        ..Session::default()
    };
    let server = Server {
        sessions: vec![session],
        sessions_total: 1,
        ..Server::default()
    };
    Arc::new(Fixed(Snapshot {
        servers: vec![server],
        ..Snapshot::default()
    }))
}

fn live() -> Live {
    Live::without_socket("copy", [])
}

fn settings(base: &str) -> Settings {
    let variable = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(base.to_owned()),
        "OTEL_SERVICE_NAME" => Some("test-service".to_owned()),
        _ => None,
    };
    Settings {
        flush_max: PATIENCE,
        ..Settings::read(variable).unwrap().unwrap()
    }
}

/// Reads one request; returns path and body.
fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn answer(mut stream: &TcpStream) {
    let reply = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    _ = stream.write_all(reply);
}

/// A collector that keeps what it is sent.
fn collector() -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Kept before it is answered: whoever has the answer may look for it at once.
            let Some(request) = request(&stream) else {
                continue;
            };
            if sender.send(request).is_err() {
                return;
            }
            answer(&stream);
        }
    });
    (base, received)
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

#[test]
fn a_copy_and_a_session_arrive_as_spans_and_figures() {
    let (base, received) = collector();
    let live = live();
    let export = Export::start(&live, settings(&base));
    let parts = [live.add(copy()), live.add(served())];
    drop(parts);
    drop(export);
    let all: Vec<(String, Vec<u8>)> = received.try_iter().collect();
    let of = |path: &'static str| {
        all.iter()
            .filter(move |(one, _)| one == path)
            .map(|(_, body)| body.as_slice())
    };
    let mut spans = Vec::new();
    for body in of("/v1/traces") {
        for resource in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            assert_eq!(text(&attributes, "service.name").unwrap(), "test-service");
            spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["copy", "session"]);
    let copy = &spans[0];
    assert_eq!(
        text(&copy.attributes, "ropeway.job.bytes_durable").unwrap(),
        "4711"
    );
    assert_eq!(text(&copy.attributes, "ropeway.job.target").unwrap(), "/b");
    let seconds = (copy.end_time_unix_nano - copy.start_time_unix_nano) as f64 / 1e9;
    assert!((2.9..3.1).contains(&seconds), "{seconds}");
    assert_eq!(copy.status.as_ref().unwrap().message, "2 items failed");
    assert_eq!(text(&spans[1].attributes, "enduser.id").unwrap(), "ann");
    let metrics: Vec<String> = of("/v1/metrics")
        .flat_map(|body| {
            ExportMetricsServiceRequest::decode(body)
                .unwrap()
                .resource_metrics
        })
        .flat_map(|resource| resource.scope_metrics)
        .flat_map(|scope| scope.metrics)
        .map(|metric| metric.name)
        .collect();
    for name in [
        "ropeway.job.bytes",
        "ropeway.job.errors",
        "ropeway.telemetry.dropped",
    ] {
        assert!(metrics.iter().any(|metric| metric == name), "{name}: {metrics:?}");
    }
}

#[test]
fn nobody_waits_for_a_collector_that_is_absent_or_silent() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Nobody accepts: connections stay in the kernel's queue, and are never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [gone, silent.local_addr().unwrap()] {
        let live = live();
        let settings = Settings {
            flush_max: Duration::from_millis(1),
            ..settings(&format!("http://{address}"))
        };
        let export = Export::start(&live, settings);
        for _ in 0..10 {
            drop(live.add(copy()));
        }
        drop(export);
        // Afterwards parts end as before.
        drop(live.add(copy()));
    }
}

#[test]
fn what_does_not_fit_is_counted() {
    let (queue, _receiver) = sync_channel(2);
    let ended = Ended {
        queue,
        dropped: Arc::default(),
    };
    for _ in 0..5 {
        ended.tell(Snapshot::default());
    }
    assert_eq!(ended.dropped.load(Ordering::Relaxed), 3);
}
