//! Spans and metrics of this process for a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! ```text
//!   Live ── a snapshot each second, the last one of each part ──> bounded queue ──> thread
//!                                                     spans: jobs and sessions that ended ┤
//!                                                     metrics: the figures of the moment ─┴─> collector
//! ```
//!
//! * [`Settings`]: the standard variables `OTEL_…`; without an endpoint nothing is started;
//! * [`Export`]: the thread, until it is dropped;
//! * `spans`: which spans follow from snapshots; `metrics`: which figures; `client`: plain HTTP.
//!
//! Nothing here may delay the work that is watched: the queue is bounded and what does not fit is
//! dropped and counted, and at the end the process waits for the collector [`Settings::flush_max`] at most.

mod client;
mod metrics;
mod settings;
mod spans;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use ropeway_live::model::Snapshot;
use ropeway_live::{Handle, Live};

use self::client::Client;
use self::metrics::Figures;
use self::spans::Spans;
pub use settings::{Settings, SettingsError};

/// Time between two snapshots.
const EVERY: Duration = Duration::from_secs(1);
/// Snapshots of ended parts that wait, at most. A guess: a process has a few parts.
const QUEUE_MAX: usize = 64;

/// Exports what a process does, until this is dropped.
#[must_use = "the export ends when this is dropped"]
pub struct Export {
    ended: Option<Arc<Ended>>,
    finished: Receiver<()>,
    flush_max: Duration,
}

/// The queue of snapshots with parts that have ended.
struct Ended {
    queue: SyncSender<Snapshot>,
    dropped: Arc<AtomicU64>,
}

impl Ended {
    /// Takes the last snapshot of a part; never waits.
    fn tell(&self, snapshot: Snapshot) {
        if self.queue.try_send(snapshot).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Export {
    /// Starts to export what `live` tells.
    ///
    /// Never fails and never waits: what is wrong with the collector is logged.
    pub fn start(live: &Live, settings: Settings) -> Self {
        let (queue, ended) = sync_channel(QUEUE_MAX);
        let (done, finished) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let flush_max = settings.flush_max;
        let (live_now, counted) = (live.handle(), Arc::clone(&dropped));
        let thread = Builder::new().name("otel".to_owned());
        let spawned = thread.spawn(move || {
            match Pipeline::new(&settings, &counted) {
                Ok(pipeline) => pipeline.run(&live_now, &ended),
                Err(error) => tracing::warn!(%error, "nothing is exported to OpenTelemetry"),
            }
            let _ = done.send(());
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "nothing is exported to OpenTelemetry");
        }
        let ended = Arc::new(Ended { queue, dropped });
        let weak = Arc::downgrade(&ended);
        live.on_part_end(Box::new(move |snapshot| {
            if let Some(ended) = weak.upgrade() {
                ended.tell(snapshot);
            }
        }));
        Self {
            ended: Some(ended),
            finished,
            flush_max,
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let dropped = self
            .ended
            .take()
            .map_or(0, |ended| ended.dropped.load(Ordering::Relaxed));
        if let Err(RecvTimeoutError::Timeout) = self.finished.recv_timeout(self.flush_max) {
            tracing::warn!(
                "the collector of OpenTelemetry is slow: its last spans and figures may be missing"
            );
        }
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "spans for OpenTelemetry were dropped: the collector is too slow"
            );
        }
    }
}

/// Providers of spans and metrics.
struct Pipeline {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
    figures: Arc<Figures>,
    flush_max: Duration,
}

impl Pipeline {
    fn new(
        settings: &Settings,
        dropped: &Arc<AtomicU64>,
    ) -> Result<Self, opentelemetry_otlp::ExporterBuildError> {
        let client = Client::new(settings.timeout);
        let service = settings.service_name.clone();
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attribute(opentelemetry::KeyValue::new(
                "service.version",
                env!("CARGO_PKG_VERSION"),
            ))
            .build();
        let mut traces = SdkTracerProvider::builder().with_resource(resource.clone());
        if let Some(endpoint) = &settings.traces {
            let exporter = SpanExporter::builder()
                .with_http()
                .with_http_client(client.clone())
                .with_endpoint(endpoint)
                .build()?;
            traces = traces.with_batch_exporter(exporter);
        }
        let mut metrics = SdkMeterProvider::builder().with_resource(resource);
        if let Some(endpoint) = &settings.metrics {
            let exporter = MetricExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_endpoint(endpoint)
                .build()?;
            let reader = PeriodicReader::builder(exporter).with_interval(settings.metrics_every);
            metrics = metrics.with_reader(reader.build());
        }
        let metrics = metrics.build();
        let figures = Figures::register(&metrics, Arc::clone(dropped));
        Ok(Self {
            traces: traces.build(),
            metrics,
            figures,
            flush_max: settings.flush_max,
        })
    }

    /// Exports until the queue is closed.
    fn run(self, live: &Handle, ended: &Receiver<Snapshot>) {
        let tracer = self.traces.tracer("ropeway");
        let mut spans = Spans::default();
        loop {
            match ended.recv_timeout(EVERY) {
                Ok(snapshot) => {
                    spans.ended(&snapshot, &tracer);
                    self.figures.ended(snapshot);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let snapshot = live.snapshot(false);
                    spans.see(&snapshot, &tracer);
                    self.figures.see(snapshot);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        spans.end_all(&tracer);
        // Both wait for the collector; whoever drops the export waits no longer than it says.
        let flushed = self.traces.shutdown_with_timeout(self.flush_max);
        let told = self.metrics.shutdown_with_timeout(self.flush_max);
        for error in [flushed.err(), told.err()].into_iter().flatten() {
            tracing::debug!(%error, "the last spans or figures did not reach the collector");
        }
    }
}

#[cfg(test)]
mod tests;
