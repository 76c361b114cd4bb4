//! The parts of this process, and what is known of them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustix::process::{Signal, geteuid, getpid, kill_process};

use crate::history::{History, Rates, Ring, Totals};
use crate::model::{MESSAGE_MAX, MESSAGES_MAX, Message, Process, Snapshot, VERSION};
use crate::page_cache::Looks;
use crate::protocol::{Handler, Reply, Request};
use crate::serve::Serving;
use crate::text::{bounded, clean};
use crate::{redact, resources};

/// Something that a user wants of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control<'a> {
    /// Take on no new work.
    Pause,
    /// Go on.
    Resume,
    /// Keep to this rate: a value as after `--bwlimit`, or `off`.
    Bwlimit(&'a str),
    /// End the session of a client.
    CloseSession(u64),
}

/// What a part says to that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// It is done, or was so already.
    Done,
    /// It cannot be done; the text says why.
    Refused(String),
    /// The part has nothing of the kind.
    NotMine,
}

/// What the registry knows of a part, for its description.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Its number in the process.
    pub id: u32,
    /// Its rates over the last seconds.
    pub rates: Rates,
    /// Its last five minutes; empty if nobody asked for them.
    pub history: History,
}

/// A part of a process: a job, a server, a mount, a cache, a run.
pub trait Part: Send + Sync {
    /// Returns the totals so far. Asked each second, so it must be quick.
    fn totals(&self) -> Totals {
        Totals::default()
    }

    /// Adds itself to a snapshot.
    fn describe(&self, view: View, snapshot: &mut Snapshot);

    /// Returns the local path that it writes to, if it is a job with one.
    fn local_target(&self) -> Option<PathBuf> {
        None
    }

    /// Does what a user wants of it. Must not wait.
    fn control(&self, _control: Control<'_>) -> Response {
        Response::NotMine
    }
}

/// What a running process tells of itself, until this is dropped.
///
/// Making one never fails and never waits: the socket is made by a thread, and a process without a
/// socket does its work all the same.
pub struct Live {
    shared: Arc<Shared>,
    serving: Option<Serving>,
}

/// This process as a view inside of it sees it.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

/// A part that stays registered until this is dropped.
#[must_use = "the part is removed when this is dropped"]
pub struct PartHandle {
    shared: Arc<Shared>,
    id: u32,
}

/// Is told the last figures of a part: a snapshot with nothing else. Must not wait.
pub type OnPartEnd = Box<dyn Fn(Snapshot) + Send + Sync>;

/// The last messages of a part, bounded.
#[derive(Debug, Default)]
pub struct Messages(Mutex<VecDeque<Message>>);

pub(crate) struct Shared {
    command: &'static str,
    arguments: Vec<String>,
    started: SystemTime,
    begun: Instant,
    next: AtomicU32,
    slots: Mutex<Vec<Slot>>,
    stopping: AtomicBool,
    /// Name of the user, once it was looked up.
    user: Mutex<Option<String>>,
    page_cache: Looks,
    /// Is told the last figures of each part.
    on_part_end: OnceLock<OnPartEnd>,
}

struct Slot {
    id: u32,
    part: Arc<dyn Part>,
    ring: Ring,
}

impl Live {
    /// Registers this process: `command` is what it does, `arguments` its whole command line.
    pub fn start(command: &'static str, arguments: impl IntoIterator<Item = OsString>) -> Self {
        let live = Self::without_socket(command, arguments);
        let serving = Serving::start(Arc::clone(&live.shared));
        Self { serving, ..live }
    }

    /// As [`start`](Self::start), without a socket: for views inside the process, and for tests.
    pub fn without_socket(command: &'static str, arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self {
            shared: Arc::new(Shared {
                command,
                arguments: redact::arguments(arguments),
                started: SystemTime::now(),
                begun: Instant::now(),
                next: AtomicU32::new(1),
                slots: Mutex::default(),
                stopping: AtomicBool::new(false),
                user: Mutex::default(),
                page_cache: Looks::default(),
                on_part_end: OnceLock::new(),
            }),
            serving: None,
        }
    }

    /// Adds a part.
    pub fn add(&self, part: Arc<dyn Part>) -> PartHandle {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mut ring = Ring::default();
        ring.sample(self.shared.now(), part.totals());
        self.shared.slots.lock().push(Slot { id, part, ring });
        PartHandle {
            shared: Arc::clone(&self.shared),
            id,
        }
    }

    /// Returns what the process does now. `history`: with the last five minutes.
    pub fn snapshot(&self, history: bool) -> Snapshot {
        self.shared.snapshot(history)
    }

    /// Returns a handle for views on other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Tells the last figures of each part that ends from now on. There is one listener: further ones are
    /// not called.
    pub fn on_part_end(&self, tell: OnPartEnd) {
        _ = self.shared.on_part_end.set(tell);
    }

    /// Waits until the socket can be found, or until it is clear that there will be none, but not long.
    /// For commands that say when they are ready.
    pub fn wait(&self) {
        if let Some(serving) = &self.serving {
            serving.wait();
        }
    }
}

impl Handle {
    /// Returns what the process does now. `history`: with the last five minutes.
    pub fn snapshot(&self, history: bool) -> Snapshot {
        self.0.snapshot(history)
    }

    /// Carries out a request that changes something, as the socket does.
    pub fn control(&self, request: &Request) -> Reply {
        Registered(&self.0).control(request)
    }
}

impl Drop for PartHandle {
    fn drop(&mut self) {
        let ended = {
            let mut slots = self.shared.slots.lock();
            let place = slots.iter().position(|slot| slot.id == self.id);
            place.map(|place| slots.remove(place))
        };
        if let (Some(tell), Some(slot)) = (self.shared.on_part_end.get(), ended) {
            let mut snapshot = Snapshot {
                version: VERSION,
                taken: unix_seconds(SystemTime::now()),
                ..Snapshot::default()
            };
            let view = View {
                id: slot.id,
                rates: slot.ring.rates(),
                history: History::default(),
            };
            slot.part.describe(view, &mut snapshot);
            tell(snapshot);
        }
    }
}

impl Messages {
    /// Adds a message; the oldest one goes if there are too many.
    pub fn add(&self, is_error: bool, text: &str) {
        let message = Message {
            at: unix_seconds(SystemTime::now()),
            is_error,
            text: bounded(&clean(text), MESSAGE_MAX),
        };
        let mut messages = self.0.lock();
        if messages.len() >= MESSAGES_MAX {
            messages.pop_front();
        }
        messages.push_back(message);
    }

    /// Returns all of them, oldest first.
    pub fn all(&self) -> Vec<Message> {
        self.0.lock().iter().cloned().collect()
    }
}

impl Shared {
    /// Time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes a sample of each part.
    pub(crate) fn sample(&self) {
        let now = self.now();
        for (id, part) in self.parts() {
            let totals = part.totals();
            let mut slots = self.slots.lock();
            if let Some(slot) = slots.iter_mut().find(|slot| slot.id == id) {
                slot.ring.sample(now, totals);
            }
        }
    }

    fn parts(&self) -> Vec<(u32, Arc<dyn Part>)> {
        let slots = self.slots.lock();
        slots
            .iter()
            .map(|slot| (slot.id, Arc::clone(&slot.part)))
            .collect()
    }

    fn snapshot(&self, history: bool) -> Snapshot {
        let mut snapshot = Snapshot {
            version: VERSION,
            taken: unix_seconds(SystemTime::now()),
            process: self.process(),
            ..Snapshot::default()
        };
        let parts: Vec<(Arc<dyn Part>, View)> = {
            let slots = self.slots.lock();
            let view = |slot: &Slot| View {
                id: slot.id,
                rates: slot.ring.rates(),
                history: match history {
                    true => slot.ring.history(),
                    false => History::default(),
                },
            };
            slots
                .iter()
                .map(|slot| (Arc::clone(&slot.part), view(slot)))
                .collect()
        };
        let target = |(part, view): &(Arc<dyn Part>, View)| Some((view.id, part.local_target()?));
        snapshot.page_cache = self.page_cache.last(parts.iter().filter_map(target).collect());
        // Parts have locks of their own, and may add and remove parts meanwhile.
        for (part, view) in parts {
            part.describe(view, &mut snapshot);
        }
        snapshot
    }

    fn process(&self) -> Process {
        let uid = geteuid().as_raw();
        let user = self.user.lock().get_or_insert_with(|| user_name(uid)).clone();
        Process {
            pid: std::process::id(),
            command: self.command.to_owned(),
            arguments: self.arguments.clone(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            uid,
            user,
            started: unix_seconds(self.started),
            stopping: self.stopping.load(Ordering::Relaxed),
            resources: resources::own(),
        }
    }

    /// Asks the parts; `job` names one of them.
    fn ask(&self, job: Option<u32>, control: Control<'_>, none: &str) -> Reply {
        let (mut done, mut refused) = (false, None);
        for (id, part) in self.parts() {
            if job.is_some_and(|job| job != id) {
                continue;
            }
            match part.control(control) {
                Response::Done => done = true,
                Response::Refused(why) => refused = refused.or(Some(why)),
                Response::NotMine => {}
            }
        }
        match (done, refused) {
            (_, Some(why)) => Reply::refused(why),
            (true, None) => Reply::done(),
            (false, None) => Reply::refused(none),
        }
    }

    /// Ends the process as Ctrl-C does, once: what a second Ctrl-C does is up to its terminal.
    fn cancel(&self) -> Reply {
        if self.stopping.swap(true, Ordering::Relaxed) {
            return Reply::refused("it is stopping already");
        }
        match kill_process(getpid(), Signal::INT) {
            Ok(()) => Reply::done(),
            Err(error) => Reply::refused(format!("cannot send the signal: {error}")),
        }
    }
}

/// Carries out the requests of clients.
pub(crate) struct Registered<'a>(pub(crate) &'a Shared);

impl Handler for Registered<'_> {
    fn snapshot(&mut self, history: bool) -> Snapshot {
        self.0.snapshot(history)
    }

    fn control(&mut self, request: &Request) -> Reply {
        const NO_JOB: &str = "this process has no such job";
        match request {
            Request::Pause { job } => self.0.ask(*job, Control::Pause, NO_JOB),
            Request::Resume { job } => self.0.ask(*job, Control::Resume, NO_JOB),
            Request::Bwlimit { value, job } => self.0.ask(*job, Control::Bwlimit(value), NO_JOB),
            Request::Cancel => self.0.cancel(),
            Request::CloseSession { id } => match u64::from_str_radix(id, 16) {
                Ok(id) => {
                    let control = Control::CloseSession(id);
                    self.0.ask(None, control, "this process has no such session")
                }
                Err(_) => Reply::refused("the number of a session is hexadecimal"),
            },
            // The protocol itself answers these.
            Request::Status { .. } | Request::Watch { .. } => Reply::default(),
        }
    }
}

/// Returns the name of a user; empty without one.
pub(crate) fn user_name(uid: u32) -> String {
    let found = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    found
        .ok()
        .flatten()
        .map(|user| clean(&user.name))
        .unwrap_or_default()
}

fn unix_seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::model::Job;

    #[derive(Default)]
    struct Copying {
        read: AtomicU64,
        paused: AtomicBool,
    }

    impl Part for Copying {
        fn totals(&self) -> Totals {
            Totals {
                read: self.read.load(Ordering::Relaxed),
                ..Totals::default()
            }
        }

        fn describe(&self, view: View, snapshot: &mut Snapshot) {
            snapshot.jobs.push(Job {
                id: view.id,
                paused: self.paused.load(Ordering::Relaxed),
                history: view.history,
                ..Job::default()
            });
        }

        fn control(&self, control: Control<'_>) -> Response {
            match control {
                Control::Pause => self.paused.store(true, Ordering::Relaxed),
                Control::Resume => self.paused.store(false, Ordering::Relaxed),
                Control::Bwlimit(_) => return Response::Refused("no rate".into()),
                Control::CloseSession(_) => return Response::NotMine,
            }
            Response::Done
        }
    }

    fn live() -> Live {
        Live::without_socket("copy", ["copy", "a", "b"].map(OsString::from))
    }

    #[test]
    fn a_snapshot_has_the_parts_that_are_there() {
        let live = live();
        assert!(live.snapshot(true).jobs.is_empty());
        let one = live.add(Arc::new(Copying::default()));
        let two = live.add(Arc::new(Copying::default()));
        assert_eq!(live.snapshot(true).jobs.len(), 2);
        drop(one);
        let left = live.snapshot(true);
        assert_eq!(left.jobs[0].id, two.id);
        assert_eq!(
            (left.process.command.as_str(), left.process.pid),
            ("copy", std::process::id())
        );
        assert_eq!(left.process.arguments, ["copy", "a", "b"]);
    }

    #[test]
    fn samples_become_history() {
        let live = live();
        let part = Arc::new(Copying::default());
        let _part = live.add(Arc::clone(&part) as Arc<dyn Part>);
        part.read.store(1000, Ordering::Relaxed);
        live.shared.sample();
        assert_eq!(live.snapshot(true).jobs[0].history.read.len(), 1);
        assert!(live.snapshot(false).jobs[0].history.read.is_empty());
    }

    #[test]
    fn control_reaches_the_parts_that_are_meant() {
        let live = live();
        let mut handler = Registered(&live.shared);
        let mut ask = |text: &str| handler.control(&Request::parse(text.as_bytes()).unwrap());
        assert!(ask(r#"{"do":"pause"}"#).error.unwrap().contains("no such job"));
        let parts = [
            live.add(Arc::new(Copying::default())),
            live.add(Arc::new(Copying::default())),
        ];
        let paused = || {
            live.snapshot(false)
                .jobs
                .iter()
                .map(|job| job.paused)
                .collect::<Vec<_>>()
        };
        assert!(ask(&format!(r#"{{"do":"pause","job":{}}}"#, parts[1].id)).ok);
        assert_eq!(paused(), [false, true]);
        assert!(ask(r#"{"do":"pause"}"#).ok);
        assert!(ask(r#"{"do":"resume","job":1}"#).ok);
        assert_eq!(paused(), [false, true]);
        assert_eq!(ask(r#"{"do":"bwlimit","value":"1M"}"#).error.unwrap(), "no rate");
        assert!(!ask(r#"{"do":"pause","job":99}"#).ok);
        assert!(
            ask(r#"{"do":"close_session","id":"zz"}"#)
                .error
                .unwrap()
                .contains("hexadecimal")
        );
        assert!(!ask(r#"{"do":"close_session","id":"1f"}"#).ok);
    }

    #[test]
    fn messages_are_bounded() {
        let messages = Messages::default();
        for number in 0..100 {
            messages.add(false, &format!("{number}\u{1b}[2J{}", "x".repeat(5000)));
        }
        let all = messages.all();
        assert_eq!(all.len(), MESSAGES_MAX);
        assert!(all[0].text.starts_with("80\u{fffd}"), "{}", all[0].text);
        assert!(
            all.iter()
                .all(|message| message.text.chars().count() <= MESSAGE_MAX)
        );
    }
}
