//! Finds the processes, watches each of them on a thread of its own, and sends requests to them.
//!
//! A process that hangs holds up nobody but its own thread. Threads and rows are bounded; what ended is
//! shown for some time and then forgotten.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_live::client::{Address, ClientError, scan};
use ropeway_live::model::Snapshot;
use ropeway_live::protocol::Request;
use rustix::process::geteuid;

/// Most processes that are watched. A guess: more than a person looks at.
const WATCHED_MAX: usize = 128;
/// Time for which a process that ended is shown.
const ENDED_SHOWN: Duration = Duration::from_secs(10);
/// Time after which a process is asked again that refused or was not understood.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Time between two scans.
const SCAN_EVERY: Duration = Duration::from_secs(1);
/// Time that a process has for a snapshot, beyond the interval, before it counts as silent.
const PATIENCE: Duration = Duration::from_secs(3);
/// Requests under way at once.
const REQUESTS_MAX: usize = 8;

/// What is known of a process.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) address: Address,
    /// The last snapshot.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) state: State,
    /// Since when it is in this state.
    since: Instant,
    is_watched: bool,
}

/// How it is to be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was found and has not answered yet.
    Found,
    /// It answers.
    Alive,
    /// It does not answer, or not what can be understood.
    Failing(String),
    /// It has ended.
    Ended,
}

/// The outcome of a request of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) is_error: bool,
    pub(super) text: String,
}

/// What a view needs to know and to do.
pub(super) trait Processes {
    /// Returns all processes, in the order of their numbers.
    fn rows(&self) -> Vec<Row>;
    /// Returns why some processes are not among them.
    fn left_out(&self) -> Vec<String>;
    /// Asks a process for something; `what` says it in words. The outcome comes as a notice.
    fn send(&self, address: &Address, request: Request, what: String);
    /// Returns the outcome of the last request, once.
    fn notice(&self) -> Option<Notice>;
}

/// The threads that watch, and what they found.
#[derive(Clone)]
pub(super) struct Collector(Arc<Shared>);

struct Shared {
    interval: Duration,
    user: Option<u32>,
    rows: Mutex<BTreeMap<Address, Row>>,
    left_out: Mutex<Vec<String>>,
    notice: Mutex<Option<Notice>>,
    requests: AtomicUsize,
}

impl Collector {
    /// Starts to find and watch processes, for as long as this process lives.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(interval: Duration, user: Option<u32>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            interval,
            user,
            rows: Mutex::default(),
            left_out: Mutex::default(),
            notice: Mutex::default(),
            requests: AtomicUsize::new(0),
        });
        let collector = Self(shared);
        let scanning = collector.clone();
        let thread = Builder::new().name("scan".to_owned());
        thread.spawn(move || {
            loop {
                scanning.scan();
                sleep(SCAN_EVERY);
            }
        })?;
        Ok(collector)
    }

    /// Looks for processes once, and begins to watch new ones.
    fn scan(&self) {
        let scan = scan();
        let mut left_out = scan.refused;
        let user = self.0.user;
        let wanted = scan.found.into_iter();
        let mut found: Vec<Address> = wanted
            .filter(|address| user.is_none_or(|user| user == address.uid))
            .collect();
        // For root: sockets that somebody else made up must not hide its own processes.
        let own = geteuid().as_raw();
        found.sort_by_key(|address| address.uid != own);
        if found.len() > WATCHED_MAX {
            left_out.push(format!(
                "{} more processes are not watched",
                found.len() - WATCHED_MAX
            ));
            found.truncate(WATCHED_MAX);
        }
        *self.0.left_out.lock() = left_out;
        let fresh = {
            let mut rows = self.0.rows.lock();
            rows.retain(|_, row| row.state != State::Ended || row.since.elapsed() < ENDED_SHOWN);
            found.retain(|address| match rows.get(address) {
                None => rows.len() < 2 * WATCHED_MAX,
                Some(row) => {
                    let failed = matches!(row.state, State::Failing(_)) && row.since.elapsed() >= AGAIN_AFTER;
                    !row.is_watched && (failed || row.state == State::Ended)
                }
            });
            for address in &found {
                let row = rows
                    .entry(address.clone())
                    .or_insert_with(|| Row::new(address.clone()));
                row.is_watched = true;
            }
            found
        };
        for address in fresh {
            let (watching, thread) = (self.clone(), Builder::new().name("watch".to_owned()));
            let watched = address.clone();
            let spawned = thread.spawn(move || {
                let ended = watching.watch(&watched);
                watching.change(&watched, |row| {
                    row.is_watched = false;
                    row.set(match ended {
                        ClientError::Ended => State::Ended,
                        error => State::Failing(error.to_string()),
                    });
                });
            });
            if let Err(error) = spawned {
                self.change(&address, |row| {
                    row.is_watched = false;
                    row.set(State::Failing(error.to_string()));
                });
            }
        }
    }

    /// Watches a process until it ends, or cannot be watched.
    fn watch(&self, address: &Address) -> ClientError {
        let request = Request::Watch {
            interval_ms: u64::try_from(self.0.interval.as_millis())
                .unwrap_or(u64::MAX)
                .max(1),
            history: true,
        };
        let patience = self.0.interval + PATIENCE;
        let connection = address.connect().and_then(|mut connection| {
            connection.send(&request, patience)?;
            Ok(connection)
        });
        let mut connection = match connection {
            Ok(connection) => connection,
            Err(error) => return error,
        };
        loop {
            match connection.receive(patience) {
                Ok(Some(snapshot)) => self.change(address, |row| {
                    row.snapshot = Some(Arc::new(snapshot));
                    row.set(State::Alive);
                }),
                Ok(None) => {}
                // It may be stopped for a while: the connection stays.
                Err(ClientError::Silent) => {
                    self.change(address, |row| {
                        row.set(State::Failing(ClientError::Silent.to_string()))
                    });
                }
                Err(error) => return error,
            }
        }
    }

    fn change(&self, address: &Address, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.0.rows.lock().get_mut(address) {
            change(row);
        }
    }
}

impl Processes for Collector {
    fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.0.rows.lock().values().cloned().collect();
        rows.sort_by(|a, b| (a.address.pid, &a.address).cmp(&(b.address.pid, &b.address)));
        rows
    }

    fn left_out(&self) -> Vec<String> {
        self.0.left_out.lock().clone()
    }

    fn send(&self, address: &Address, request: Request, what: String) {
        let full = || {
            *self.0.notice.lock() = Some(Notice {
                is_error: true,
                text: "too many requests are under way".to_owned(),
            });
        };
        if self.0.requests.fetch_add(1, Ordering::AcqRel) >= REQUESTS_MAX {
            self.0.requests.fetch_sub(1, Ordering::AcqRel);
            return full();
        }
        let (shared, address) = (Arc::clone(&self.0), address.clone());
        let thread = Builder::new().name("request".to_owned());
        let spawned = thread.spawn(move || {
            let notice = match address.ask(&request, PATIENCE) {
                Ok(_) => Notice {
                    is_error: false,
                    text: format!("process {}: {what}", address.pid),
                },
                Err(error) => Notice {
                    is_error: true,
                    text: format!("process {}: {error}", address.pid),
                },
            };
            *shared.notice.lock() = Some(notice);
            shared.requests.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            self.0.requests.fetch_sub(1, Ordering::AcqRel);
            full();
        }
    }

    fn notice(&self) -> Option<Notice> {
        self.0.notice.lock().take()
    }
}

impl Row {
    /// Makes the row of a process that was just found.
    pub(super) fn new(address: Address) -> Self {
        Self {
            address,
            snapshot: None,
            state: State::Found,
            since: Instant::now(),
            is_watched: false,
        }
    }

    fn set(&mut self, state: State) {
        if self.state != state {
            self.state = state;
            self.since = Instant::now();
        }
    }
}
