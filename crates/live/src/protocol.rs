//! JSON Lines on the socket: requests, replies, and the state of one client.
//!
//! Every line of a client gets one line back, with `ok`. After `watch` there is a further line with a
//! snapshot each interval, until `watch` with an interval of 0. Nothing is sent to a client that has
//! not read what it was sent before, so a slow one misses snapshots and costs no memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Snapshot;

/// Longest request in bytes. A guess: many times the longest useful one.
pub const REQUEST_MAX: usize = 4096;
/// Shortest and longest time between two snapshots of `watch`. Guesses.
pub const INTERVAL_MS: std::ops::RangeInclusive<u64> = 100..=60_000;
/// Time between them if the request does not say.
pub const INTERVAL_DEFAULT_MS: u64 = 1000;

/// Time after which a client is dropped that takes nothing of what it asked for, and one that asks for
/// nothing. Guesses.
const STALLED_MAX: Duration = Duration::from_secs(10);
const IDLE_MAX: Duration = Duration::from_secs(300);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Asks for one snapshot.
    Status {
        /// Whether it has the last five minutes.
        #[serde(default = "yes")]
        history: bool,
    },
    /// Asks for a snapshot now and each interval.
    Watch {
        /// Time between two snapshots; 0 ends the watch.
        #[serde(default = "default_interval")]
        interval_ms: u64,
        /// Whether they have the last five minutes.
        #[serde(default = "yes")]
        history: bool,
    },
    /// Pauses jobs.
    Pause {
        /// One job; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<u32>,
    },
    /// Resumes jobs.
    Resume {
        /// One job; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<u32>,
    },
    /// Changes the rate of jobs.
    Bwlimit {
        /// A rate, a timetable, or `off`, as after `--bwlimit`.
        value: String,
        /// One job; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<u32>,
    },
    /// Ends the process as Ctrl-C does.
    Cancel,
    /// Ends the session of a client of a server.
    CloseSession {
        /// Its number as in the snapshot.
        id: String,
    },
}

fn yes() -> bool {
    true
}

fn default_interval() -> u64 {
    INTERVAL_DEFAULT_MS
}

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    /// It is no request; the text says why.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("this is no request: {error}"))
    }
}

/// A reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Whether the request was carried out.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Box<Snapshot>>,
}

impl Reply {
    /// Makes the reply to a request that was carried out.
    pub fn done() -> Self {
        Self {
            ok: true,
            ..Self::default()
        }
    }

    /// Makes the reply to a request that was not.
    pub fn refused(why: impl Into<String>) -> Self {
        Self {
            error: Some(why.into()),
            ..Self::default()
        }
    }

    /// Makes a reply with a snapshot.
    pub fn of(snapshot: Snapshot) -> Self {
        Self {
            ok: true,
            error: None,
            snapshot: Some(Box::new(snapshot)),
        }
    }

    /// Returns the line for it.
    pub fn line(&self) -> Vec<u8> {
        // Structs with text keys always serialize; floats that are no number become null.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Cuts a stream of bytes into lines of bounded length.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Bytes at the front that were looked at and have no end of a line.
    seen: usize,
}

/// A line is longer than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line is too long")]
pub struct LineError;

impl Lines {
    /// Takes bytes from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete line without its end, if there is one.
    ///
    /// # Errors
    /// The line is longer than `max`.
    pub fn next(&mut self, max: usize) -> Result<Option<Vec<u8>>, LineError> {
        let end = self.buffer[self.seen..].iter().position(|byte| *byte == b'\n');
        match end.map(|end| self.seen + end) {
            Some(end) if end > max => Err(LineError),
            Some(end) => {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.truncate(end);
                self.seen = 0;
                Ok(Some(line))
            }
            None if self.buffer.len() > max => Err(LineError),
            None => {
                self.seen = self.buffer.len();
                Ok(None)
            }
        }
    }
}

/// Carries out requests.
pub trait Handler {
    /// Returns a snapshot.
    fn snapshot(&mut self, history: bool) -> Snapshot;
    /// Carries out any other request.
    fn control(&mut self, request: &Request) -> Reply;
}

/// The state of one client. Times are since a zero that the driver chooses.
#[derive(Debug)]
pub struct Client {
    lines: Lines,
    output: Vec<u8>,
    watch: Option<Watch>,
    /// When it last asked for something or took something.
    active: Duration,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    interval: Duration,
    due: Duration,
    history: bool,
}

impl Client {
    /// Makes the state of a client that has just come.
    pub fn new(now: Duration) -> Self {
        Self {
            lines: Lines::default(),
            output: Vec::new(),
            watch: None,
            active: now,
            ended: false,
        }
    }

    /// Whether bytes of the client are wanted: not before it has taken what it asked for.
    pub fn wants_input(&self) -> bool {
        self.output.is_empty() && !self.ended
    }

    /// Takes bytes of the client, and carries out what they ask for.
    pub fn input(&mut self, now: Duration, bytes: &[u8], handler: &mut dyn Handler) {
        self.active = now;
        self.lines.push(bytes);
        self.requests(now, handler);
    }

    /// Carries out complete requests, one for each time that the client has taken the reply before.
    fn requests(&mut self, now: Duration, handler: &mut dyn Handler) {
        while self.wants_input() {
            match self.lines.next(REQUEST_MAX) {
                Ok(Some(line)) if line.trim_ascii().is_empty() => {}
                Ok(Some(line)) => {
                    let reply = match Request::parse(&line) {
                        Ok(request) => self.request(now, &request, handler),
                        Err(why) => Reply::refused(why),
                    };
                    self.output.extend(reply.line());
                }
                Ok(None) => return,
                Err(error) => {
                    self.output.extend(Reply::refused(error.to_string()).line());
                    self.ended = true;
                }
            }
        }
    }

    fn request(&mut self, now: Duration, request: &Request, handler: &mut dyn Handler) -> Reply {
        match *request {
            Request::Status { history } => Reply::of(handler.snapshot(history)),
            Request::Watch { interval_ms: 0, .. } => {
                self.watch = None;
                Reply::done()
            }
            Request::Watch { interval_ms, history } => {
                let interval = interval_ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
                let interval = Duration::from_millis(interval);
                self.watch = Some(Watch {
                    interval,
                    due: now + interval,
                    history,
                });
                Reply::of(handler.snapshot(history))
            }
            ref other => handler.control(other),
        }
    }

    /// Sends a snapshot if one is due and the client has taken the one before.
    pub fn tick(&mut self, now: Duration, handler: &mut dyn Handler) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        if now < watch.due {
            return;
        }
        watch.due = (watch.due + watch.interval).max(now);
        let history = watch.history;
        if self.output.is_empty() && !self.ended {
            self.output.extend(Reply::of(handler.snapshot(history)).line());
            self.active = now;
        }
    }

    /// Returns what is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Notes that the client took this many bytes, and goes on with its requests.
    pub fn sent(&mut self, now: Duration, count: usize, handler: &mut dyn Handler) {
        self.active = now;
        self.output.drain(..count.min(self.output.len()));
        if self.output.is_empty() {
            // A large snapshot is rare, and its memory is not kept.
            self.output = Vec::new();
            self.requests(now, handler);
        }
    }

    /// Whether the client must be dropped: it is done, takes nothing, or asks for nothing.
    pub fn is_over(&self, now: Duration) -> bool {
        let span = now.saturating_sub(self.active);
        match self.output.is_empty() {
            true => self.ended || (self.watch.is_none() && span >= IDLE_MAX),
            false => span >= STALLED_MAX,
        }
    }

    /// Returns when [`tick`](Self::tick) or [`is_over`](Self::is_over) may change without any input.
    pub fn deadline(&self) -> Duration {
        match (self.output.is_empty(), &self.watch) {
            (true, Some(watch)) => watch.due,
            (true, None) => self.active + IDLE_MAX,
            (false, _) => self.active + STALLED_MAX,
        }
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
