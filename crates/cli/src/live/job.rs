//! A copy, mirror, comparison or image as a part of this process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ropeway_live::history::Totals;
use ropeway_live::model::{Job, Snapshot};
use ropeway_live::{Control, Messages, Part, Response, View, redact};
use ropeway_vfs::decorate::limit::{Rate, RateLimit};
use ropeway_vfs::event::{Counters, Event, Phase};

use crate::args::values;

/// Most sources that are shown.
const SOURCES_MAX: usize = 8;

/// A job as other processes see it. It hears the same events as the bar.
pub(crate) struct JobPart {
    kind: &'static str,
    sources: Vec<String>,
    sources_total: u64,
    target: String,
    /// The target as a path, if something is written to it here.
    local_target: Option<PathBuf>,
    begun: Instant,
    state: Mutex<State>,
    messages: Messages,
    errors: AtomicU64,
    differences: AtomicU64,
    stopping: AtomicBool,
    watched: OnceLock<Watched>,
}

#[derive(Default)]
struct State {
    phase: Option<Phase>,
    /// The last report of progress.
    progress: Option<Event>,
    bwlimit: String,
}

/// The running job behind it.
pub(crate) struct Watched {
    /// Returns the counters of the moment.
    pub(crate) counters: Box<dyn Fn() -> Counters + Send + Sync>,
    /// What pauses it.
    pub(crate) limit: Arc<RateLimit>,
    /// Whether the limit may get a rate.
    pub(crate) takes_rates: bool,
}

impl JobPart {
    /// Makes the part of a job that has not begun. `bwlimit` is the flag as given.
    pub(crate) fn new(
        kind: &'static str,
        sources: &[String],
        target: &str,
        bwlimit: Option<&str>,
    ) -> Arc<Self> {
        let shown = sources.iter().take(SOURCES_MAX);
        Arc::new(Self {
            kind,
            sources: shown.map(|source| redact::text(source)).collect(),
            sources_total: sources.len() as u64,
            target: redact::text(target),
            local_target: (kind != "check" && !target.contains("://")).then(|| PathBuf::from(target)),
            begun: Instant::now(),
            state: Mutex::new(State {
                bwlimit: bwlimit.unwrap_or_default().to_owned(),
                ..State::default()
            }),
            messages: Messages::default(),
            errors: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            watched: OnceLock::new(),
        })
    }

    /// Attaches the job, which begins now.
    pub(crate) fn attach(&self, watched: Watched) {
        // There is one job for each part.
        _ = self.watched.set(watched);
    }

    /// Notes that the job stops.
    pub(crate) fn stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Hears an event of the job.
    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Phase { phase } => self.state.lock().phase = Some(*phase),
            Event::Progress { .. } => self.state.lock().progress = Some(event.clone()),
            Event::ItemError { message, .. } => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                self.messages.add(true, message);
            }
            Event::Note {
                path: Some(path),
                message,
            } => self.messages.add(false, &format!("{path}: {message}")),
            Event::Note { path: None, message } => self.messages.add(false, message),
            Event::Item {
                action: "missing" | "extra" | "differs" | "attributes",
                ..
            } if self.kind == "check" => {
                self.differences.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn counters(&self) -> Counters {
        self.watched
            .get()
            .map_or_else(Counters::default, |watched| (watched.counters)())
    }

    fn set_rate(&self, watched: &Watched, text: &str) -> Response {
        if !watched.takes_rates {
            return Response::Refused(format!("a {} has no bandwidth limit", self.kind));
        }
        let schedule = match values::bwlimit(text) {
            Ok(schedule) => schedule,
            Err(why) => return Response::Refused(why),
        };
        let limits = schedule.limits();
        let rate: Option<Rate> =
            limits.then(|| -> Rate { Box::new(move || schedule.rate_at(jiff::Zoned::now().datetime())) });
        watched.limit.set_rate(rate);
        self.state.lock().bwlimit = match limits {
            true => text.trim().to_owned(),
            false => String::new(),
        };
        Response::Done
    }
}

impl Part for JobPart {
    fn totals(&self) -> Totals {
        let counters = self.counters();
        Totals {
            read: counters.bytes_read,
            written: counters.bytes_sent,
            durable: counters.bytes_durable,
            files: counters.files_done,
            operations: counters.operations,
        }
    }

    fn describe(&self, view: View, snapshot: &mut Snapshot) {
        let watched = self.watched.get();
        let mut job = Job {
            id: view.id,
            kind: self.kind.to_owned(),
            sources: self.sources.clone(),
            sources_total: self.sources_total,
            target: self.target.clone(),
            seconds: self.begun.elapsed().as_secs_f64(),
            counters: self.counters(),
            paused: watched.is_some_and(|watched| watched.limit.is_paused()),
            stopping: self.stopping.load(Ordering::Relaxed),
            bwlimit_bytes_per_s: watched.and_then(|watched| watched.limit.rate()),
            errors: self.errors.load(Ordering::Relaxed),
            differences: self.differences.load(Ordering::Relaxed),
            messages: self.messages.all(),
            rates: view.rates,
            history: view.history,
            ..Job::default()
        };
        job.controls.pause = watched.is_some();
        job.controls.bwlimit = watched.is_some_and(|watched| watched.takes_rates);
        let state = self.state.lock();
        job.phase = state.phase;
        job.bwlimit.clone_from(&state.bwlimit);
        if let Some(Event::Progress { rate, eta, limit, .. }) = &state.progress {
            (job.rate, job.eta, job.limit) = (*rate, *eta, *limit);
        }
        snapshot.jobs.push(job);
    }

    fn local_target(&self) -> Option<PathBuf> {
        self.local_target.clone()
    }

    fn control(&self, control: Control<'_>) -> Response {
        let Some(watched) = self.watched.get() else {
            return match control {
                Control::CloseSession(_) => Response::NotMine,
                _ => Response::Refused("it has not begun yet".to_owned()),
            };
        };
        match control {
            Control::Pause => {
                watched.limit.pause();
            }
            Control::Resume => {
                watched.limit.resume();
            }
            Control::Bwlimit(text) => return self.set_rate(watched, text),
            Control::CloseSession(_) => return Response::NotMine,
        }
        Response::Done
    }
}

#[cfg(test)]
mod tests {
    use ropeway_copy::RuntimeClock;

    use super::*;

    fn part(takes_rates: bool) -> (Arc<JobPart>, Arc<RateLimit>) {
        let part = JobPart::new("copy", &["smb://ann:geheim@nas/s".to_owned()], "/t", Some("1M"));
        let limit = RateLimit::unlimited(Arc::new(RuntimeClock::new()));
        part.attach(Watched {
            counters: Box::new(|| Counters {
                bytes_read: 7,
                ..Counters::default()
            }),
            limit: Arc::clone(&limit),
            takes_rates,
        });
        (part, limit)
    }

    fn job(part: &JobPart) -> Job {
        let mut snapshot = Snapshot::default();
        part.describe(View::default(), &mut snapshot);
        snapshot.jobs.remove(0)
    }

    #[test]
    fn a_job_is_what_its_events_say() {
        let (part, _) = part(true);
        part.event(&Event::Phase {
            phase: Phase::Copying,
        });
        part.event(&Event::Note {
            path: Some("a".into()),
            message: "odd".into(),
        });
        part.event(&Event::Progress {
            seconds: 1.0,
            counters: Counters::default(),
            rate: 5.0,
            files_rate: 0.0,
            percent: None,
            eta: None,
            limit: Some(ropeway_vfs::event::Limit::Link),
            paused: false,
            connection_lost: None,
        });
        let job = job(&part);
        assert_eq!(
            (job.kind.as_str(), job.counters.bytes_read, job.rate),
            ("copy", 7, 5.0)
        );
        assert_eq!(
            (job.phase, job.messages[0].text.as_str()),
            (Some(Phase::Copying), "a: odd")
        );
        assert_eq!(job.sources, ["smb://ann:***@nas/s"]);
        assert_eq!(part.totals().read, 7);
    }

    #[test]
    fn a_job_is_paused_and_gets_rates() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let (part, limit) = part(true);
        assert_eq!(part.control(Control::Pause), Response::Done);
        assert!(limit.is_paused() && job(&part).paused);
        assert_eq!(part.control(Control::Resume), Response::Done);
        assert!(!job(&part).paused);
        assert_eq!(part.control(Control::Bwlimit("20M")), Response::Done);
        assert_eq!(
            (limit.rate(), job(&part).bwlimit.as_str()),
            (Some(20 << 20), "20M")
        );
        assert_eq!(part.control(Control::Bwlimit("off")), Response::Done);
        assert_eq!((limit.rate(), job(&part).bwlimit.as_str()), (None, ""));
        assert!(matches!(
            part.control(Control::Bwlimit("fast")),
            Response::Refused(_)
        ));
        assert_eq!(part.control(Control::CloseSession(1)), Response::NotMine);
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let (part, _) = part(false);
        let Response::Refused(why) = part.control(Control::Bwlimit("1M")) else {
            panic!("refused");
        };
        assert!(why.contains("no bandwidth limit"), "{why}");
        let waiting = JobPart::new("copy", &[], "/t", None);
        assert!(matches!(waiting.control(Control::Pause), Response::Refused(_)));
    }
}
