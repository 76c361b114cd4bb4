//! Which spans follow from snapshots: one for each job, and one for each session of a server, when it
//! has ended. Their requests are metrics: a span for each would be millions.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _};
use opentelemetry_sdk::trace::SdkTracer;
use ropeway_live::model::{Job, Session, Snapshot};

/// Jobs and sessions that run, as they were last seen. Bounded by those of a snapshot.
#[derive(Default)]
pub(crate) struct Spans {
    jobs: BTreeMap<u32, (f64, Job)>,
    /// By number of the server and of the session.
    sessions: BTreeMap<(u32, String), (f64, Session)>,
    /// Jobs whose spans are written already: their part may be seen once more.
    written: Option<u32>,
}

impl Spans {
    /// Sees the process as it is. What is there no more has ended.
    pub(crate) fn see(&mut self, snapshot: &Snapshot, tracer: &SdkTracer) {
        let before = std::mem::take(self);
        self.written = before.written;
        self.remember(snapshot);
        for (id, (at, job)) in before.jobs {
            if !self.jobs.contains_key(&id) {
                job_span(at, &job, tracer);
            }
        }
        for (key, (at, session)) in before.sessions {
            if !self.sessions.contains_key(&key) {
                session_span(at, &session, tracer);
            }
        }
    }

    /// Parts of the process have ended, with these figures.
    pub(crate) fn ended(&mut self, snapshot: &Snapshot, tracer: &SdkTracer) {
        for job in &snapshot.jobs {
            self.jobs.remove(&job.id);
            self.written = self.written.max(Some(job.id));
            job_span(snapshot.taken, job, tracer);
        }
        for server in &snapshot.servers {
            for session in &server.sessions {
                self.sessions.remove(&(server.id, session.id.clone()));
                session_span(snapshot.taken, session, tracer);
            }
            let left: Vec<_> = self
                .sessions
                .keys()
                .filter(|(id, _)| *id == server.id)
                .cloned()
                .collect();
            for key in left {
                if let Some((at, session)) = self.sessions.remove(&key) {
                    session_span(at, &session, tracer);
                }
            }
        }
    }

    /// Everything ends with the process.
    pub(crate) fn end_all(&mut self, tracer: &SdkTracer) {
        self.see(&Snapshot::default(), tracer);
    }

    fn remember(&mut self, snapshot: &Snapshot) {
        let jobs = snapshot.jobs.iter().filter(|job| Some(job.id) > self.written);
        self.jobs = jobs.map(|job| (job.id, (snapshot.taken, job.clone()))).collect();
        let sessions = snapshot.servers.iter().flat_map(|server| {
            let of =
                move |session: &Session| ((server.id, session.id.clone()), (snapshot.taken, session.clone()));
            server.sessions.iter().map(of)
        });
        self.sessions = sessions.collect();
    }
}

/// Returns a moment, from seconds since 1970.
fn moment(seconds: f64) -> SystemTime {
    let since = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    SystemTime::UNIX_EPOCH + since
}

fn number(key: &'static str, number: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(number).unwrap_or(i64::MAX))
}

/// Writes the span of a job that was last seen at a moment.
fn job_span(at: f64, job: &Job, tracer: &SdkTracer) {
    let counters = &job.counters;
    let attributes = vec![
        KeyValue::new("ropeway.job.kind", job.kind.clone()),
        KeyValue::new(
            "ropeway.job.source",
            job.sources.first().cloned().unwrap_or_default(),
        ),
        KeyValue::new("ropeway.job.target", job.target.clone()),
        number("ropeway.job.sources", job.sources_total),
        number("ropeway.job.bytes_total", counters.bytes_total),
        number("ropeway.job.bytes_read", counters.bytes_read),
        number("ropeway.job.bytes_sent", counters.bytes_sent),
        number("ropeway.job.bytes_durable", counters.bytes_durable),
        number("ropeway.job.files_done", counters.files_done),
        number("ropeway.job.files_skipped", counters.files_skipped),
        number("ropeway.job.files_failed", counters.files_failed),
        number("ropeway.job.retries", counters.retries),
        number("ropeway.job.errors", job.errors),
        number("ropeway.job.differences", job.differences),
        KeyValue::new("ropeway.job.stopped", job.stopping),
    ];
    let mut span = tracer
        .span_builder(job.kind.clone())
        .with_kind(SpanKind::Internal)
        .with_start_time(moment(at - job.seconds))
        .with_attributes(attributes)
        .start(tracer);
    for message in &job.messages {
        let name = if message.is_error { "error" } else { "note" };
        let text = vec![KeyValue::new("message", message.text.clone())];
        span.add_event_with_timestamp(name, moment(message.at), text);
    }
    if job.errors > 0 {
        span.set_status(Status::error(format!("{} items failed", job.errors)));
    }
    span.end_with_timestamp(moment(at));
}

/// Writes the span of a session that was last seen at a moment.
fn session_span(at: f64, session: &Session, tracer: &SdkTracer) {
    let attributes = vec![
        KeyValue::new("enduser.id", session.user.clone()),
        KeyValue::new(
            "client.address",
            session.clients.first().cloned().unwrap_or_default(),
        ),
        KeyValue::new("ropeway.session.dialect", session.dialect.clone()),
        KeyValue::new("ropeway.session.shares", session.shares.join(" ")),
        KeyValue::new("ropeway.session.encrypted", session.encrypted),
        number("ropeway.session.bytes_read", session.bytes_read),
        number("ropeway.session.bytes_written", session.bytes_written),
        number("ropeway.session.requests", session.requests()),
    ];
    let mut span = tracer
        .span_builder("session")
        .with_kind(SpanKind::Server)
        .with_start_time(moment(at - session.seconds as f64))
        .with_attributes(attributes)
        .start(tracer);
    span.end_with_timestamp(moment(at));
}
