//! Runs a job to its end: signals, progress, summary.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ropeway_block::Pool;
use ropeway_copy::{Handle, Job, JobSpec, Outcome, Status};
use ropeway_plan::Schedule;
use ropeway_vfs::event::{Event, Limit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::{Failure, code};
use crate::servers::Servers;
use crate::ui::Reporter;

/// Time between updates of a bar.
const FREQUENT: Duration = Duration::from_millis(100);
/// Time between updates that nobody sees; the estimate lives on them.
const SELDOM: Duration = Duration::from_millis(500);
/// Time between two progress lines of `--json`, in updates of [`FREQUENT`].
const LINE_EVERY: u64 = 5;

/// Threads of the runtime: control work only; files have threads of their own.
const WORKERS: usize = 2;

/// The runtime of one command.
///
/// # Errors
/// The system gives no threads.
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

/// Takes leave of the servers, and ends the runtime without waiting for what hangs.
pub(crate) fn end(runtime: Runtime, servers: &Servers) {
    runtime.block_on(servers.leave());
    runtime.shutdown_background();
}

/// The signals a command answers to, caught from now on.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    status: Signal,
}

impl Signals {
    /// Catches them; needs a runtime.
    ///
    /// # Errors
    /// The system refuses.
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

/// Runs a future until it ends or a signal stops it; `None` if stopped.
pub(crate) async fn until_stopped<T>(signals: &mut Signals, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        value = future => Some(value),
        () = signals.stop() => None,
    }
}

/// Runs a job, reporting to `reporter`. The first SIGINT or SIGTERM ends it in order, the second one at once.
/// `bandwidth` is the limit put around the source, if any.
pub(crate) async fn drive(
    spec: JobSpec,
    pool: Pool,
    bandwidth: Option<&Schedule>,
    reporter: &Arc<Reporter>,
    signals: &mut Signals,
) -> Outcome {
    let job = Job::new(spec).with_pool(pool);
    let handle = job.handle();
    let progress = || blame_progress(handle.progress(), bandwidth);
    let sink = {
        let reporter = Arc::clone(reporter);
        Arc::new(move |event: Event| reporter.event(&event))
    };
    reporter.progress(&progress(), true);
    let mut run = tokio::spawn(job.run(sink));
    let frequent = reporter.wants_frequent_progress();
    let mut ticks = interval(if frequent { FREQUENT } else { SELDOM });
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut tick, mut stopping) = (0_u64, false);
    loop {
        tokio::select! {
            // The job's end first: nothing is to be said after it.
            biased;
            ended = &mut run => match ended {
                Ok(outcome) => return blame_outcome(outcome, bandwidth),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => return lost(&handle),
            },
            _ = signals.interrupt.recv() => stop(&handle, reporter, &mut stopping),
            _ = signals.terminate.recv() => stop(&handle, reporter, &mut stopping),
            _ = signals.status.recv() => reporter.status(&progress()),
            _ = ticks.tick() => {
                tick += 1;
                reporter.progress(&progress(), !frequent || tick.is_multiple_of(LINE_EVERY));
            }
        }
    }
}

/// Reading at this part of `--bwlimit` or above means that it is the limit (waiting for it looks like a slow source).
const BANDWIDTH_REACHED: f64 = 0.85;

/// Names `--bwlimit` as the limit where a source seems slow only because of it.
fn blame(limit: Option<Limit>, seconds: f64, bytes_read: u64, bandwidth: Option<&Schedule>) -> Option<Limit> {
    let allowed = bandwidth.and_then(|schedule| schedule.rate_at(jiff::Zoned::now().datetime()));
    match (limit, allowed) {
        (Some(Limit::Source), Some(allowed))
            if bytes_read as f64 >= BANDWIDTH_REACHED * allowed as f64 * seconds =>
        {
            Some(Limit::Bandwidth)
        }
        _ => limit,
    }
}

fn blame_progress(progress: Event, bandwidth: Option<&Schedule>) -> Event {
    match progress {
        Event::Progress {
            seconds,
            counters,
            rate,
            eta,
            limit,
        } => {
            let limit = blame(limit, seconds, counters.bytes_read, bandwidth);
            Event::Progress {
                seconds,
                counters,
                rate,
                eta,
                limit,
            }
        }
        other => other,
    }
}

fn blame_outcome(mut outcome: Outcome, bandwidth: Option<&Schedule>) -> Outcome {
    let summary = &mut outcome.summary;
    let seconds = summary.perceived.as_secs_f64();
    summary.limit = blame(summary.limit, seconds, summary.counters.bytes_read, bandwidth);
    outcome
}

fn stop(handle: &Handle, reporter: &Reporter, stopping: &mut bool) {
    if std::mem::replace(stopping, true) {
        // Asked twice: what is in flight may be lost, the journal tells the next run.
        std::process::exit(i32::from(code::INTERRUPTED));
    }
    handle.cancel();
    reporter.say("stopping; what is under way is finished first (again to stop at once)");
}

/// The task of the job was cancelled, which nothing here does.
fn lost(handle: &Handle) -> Outcome {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_not_blamed_for_the_limit() {
        let limited = Schedule::constant(Some(1000));
        let source = Some(Limit::Source);
        assert_eq!(blame(source, 10.0, 9_900, Some(&limited)), Some(Limit::Bandwidth));
        assert_eq!(blame(source, 10.0, 5_000, Some(&limited)), source);
        assert_eq!(blame(source, 10.0, 9_900, None), source);
        assert_eq!(
            blame(Some(Limit::Destination), 10.0, 9_900, Some(&limited)),
            Some(Limit::Destination)
        );
        assert_eq!(blame(None, 10.0, 9_900, Some(&limited)), None);
    }
}
