//! Runs a job to its end: signals, progress, summary.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ropeway_block::Pool;
use ropeway_copy::{Handle, Job, JobSpec, Outcome, Status};
use ropeway_vfs::decorate::limit::RateLimit;
use ropeway_vfs::event::{Event, Limit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::{Failure, code};
use crate::live::Watched;
use crate::servers::Servers;
use crate::ui::Reporter;

/// Time between updates of the progress bar.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// Time between updates without a bar; the estimate of the time left needs them.
const ESTIMATE_EVERY: Duration = Duration::from_millis(500);
/// Updates (of [`BAR_EVERY`]) from one progress line of `--json` to the next.
const LINE_EVERY: u64 = 5;

/// Threads of the runtime. They do control work only; file I/O has its own threads.
const WORKERS: usize = 2;

/// Builds the runtime of one command.
///
/// # Errors
/// The system cannot start threads.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .thread_name("ropeway")
        .build()
        .map_err(|error| {
            Failure::new(code::TARGET, format!("cannot start threads: {error}"))
                .hint("raise the limit of processes (ulimit -u)")
        })
}

/// Logs off from the servers and shuts the runtime down without waiting for tasks that hang.
pub(crate) fn shut_down(runtime: Runtime, servers: &Servers) {
    runtime.block_on(servers.log_off());
    runtime.shutdown_background();
}

/// Signals that a command handles, caught from now on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    status: Signal,
    resumed: Signal,
}

impl Signals {
    /// Starts catching the signals; needs a runtime.
    ///
    /// # Errors
    /// The system refuses to register a handler.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let catch = |kind| {
            signal(kind).map_err(|error: io::Error| {
                Failure::new(code::TARGET, format!("cannot catch signals: {error}"))
            })
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            status: catch(SignalKind::user_defined1())?,
            resumed: catch(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?,
        })
    }

    /// Completes at the next SIGINT or SIGTERM.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs a future until it completes or a signal stops it; `None` if a signal stopped it.
pub(crate) async fn until_stopped<T>(signals: &mut Signals, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        value = future => Some(value),
        () = signals.stop() => None,
    }
}

/// A job to run.
pub(crate) struct Run<'a> {
    /// What it does.
    pub(crate) spec: JobSpec,
    /// Its blocks.
    pub(crate) pool: Pool,
    /// The limit that its sources share.
    pub(crate) limit: &'a Arc<RateLimit>,
    /// The servers that it waits for.
    pub(crate) servers: &'a Servers,
}

/// Runs a job and reports to `reporter`. The first SIGINT or SIGTERM ends the job in order, the
/// second one ends the process at once.
pub(crate) async fn drive(run: Run<'_>, reporter: &Arc<Reporter>, signals: &mut Signals) -> Outcome {
    let Run {
        spec,
        pool,
        limit,
        servers,
    } = run;
    let job = Job::new(spec).with_pool(pool).with_limit(Arc::clone(limit));
    let handle = job.handle();
    let watched = handle.clone();
    reporter.attach(Watched {
        counters: Box::new(move || watched.counters()),
        limit: Arc::clone(limit),
        takes_rates: true,
    });
    let progress = || attribute_progress(handle.progress(), limit, servers);
    let sink = {
        let reporter = Arc::clone(reporter);
        Arc::new(move |event: Event| reporter.event(&event))
    };
    reporter.progress(&progress(), true);
    let mut run = tokio::spawn(job.run(sink));
    let frequent = reporter.wants_frequent_progress();
    let mut ticks = interval(if frequent { BAR_EVERY } else { ESTIMATE_EVERY });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut tick, mut stopping) = (0_u64, false);
    loop {
        tokio::select! {
            // The job's end comes first, because nothing may be reported after it.
            biased;
            ended = &mut run => match ended {
                Ok(outcome) => return attribute_outcome(outcome, limit, servers),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return cancelled(&handle),
            },
            _ = signals.interrupt.recv() => stop(&handle, reporter, &mut stopping),
            _ = signals.terminate.recv() => stop(&handle, reporter, &mut stopping),
            _ = signals.status.recv() => reporter.status(&progress()),
            _ = signals.resumed.recv() => reporter.continued(),
            _ = ticks.tick() => {
                tick += 1;
                reporter.progress(&progress(), !frequent || tick.is_multiple_of(LINE_EVERY));
            }
        }
    }
}

/// Reports `--bwlimit` as the bottleneck if the source seems slow only because of it, losses of the line
/// if those slow it down, and a server that does not answer.
fn attribute_progress(mut progress: Event, bandwidth: &RateLimit, servers: &Servers) -> Event {
    if let Event::Progress {
        seconds,
        counters,
        limit,
        connection_lost,
        ..
    } = &mut progress
    {
        *connection_lost = servers.lost();
        let elapsed = Duration::from_secs_f64(*seconds);
        *limit = bottleneck(*limit, elapsed, counters.bytes_sent, (bandwidth, servers));
    }
    progress
}

fn attribute_outcome(mut outcome: Outcome, bandwidth: &RateLimit, servers: &Servers) -> Outcome {
    let summary = &mut outcome.summary;
    let (found, sent) = (summary.limit, summary.counters.bytes_sent);
    summary.limit = bottleneck(found, summary.perceived, sent, (bandwidth, servers));
    outcome
}

/// Returns what limits a job that has moved `bytes` in this time.
fn bottleneck(
    found: Option<Limit>,
    elapsed: Duration,
    bytes: u64,
    (bandwidth, servers): (&RateLimit, &Servers),
) -> Option<Limit> {
    let found = bandwidth.bottleneck(found, elapsed);
    let rate = bytes as f64 / elapsed.as_secs_f64().max(0.001);
    match servers.line() {
        Some(line) => line.bottleneck(found, rate),
        None => found,
    }
}

fn stop(handle: &Handle, reporter: &Reporter, stopping: &mut bool) {
    if std::mem::replace(stopping, true) {
        // On the second signal data in flight may be lost; the journal tells the next run.
        std::process::exit(i32::from(code::INTERRUPTED));
    }
    handle.cancel();
    reporter.stopping();
    reporter.say("stopping; files in progress are finished first (interrupt again to stop at once)");
}

/// Returns an outcome for a job whose task was cancelled. No code here cancels it.
fn cancelled(handle: &Handle) -> Outcome {
    let summary = ropeway_vfs::event::Summary {
        counters: handle.counters(),
        ..Default::default()
    };
    Outcome {
        summary,
        status: Status::Interrupted,
        fatal: Some("the job was cancelled".to_owned()),
        hint: None,
    }
}
