//! What a running process tells of itself: the socket, its control, and `top`.
//!
//! ```text
//! jobs      pause, resume, rate, cancel, watch
//! parts     servers and mounts, and that no secret is told
//! hostile   strange clients, other users, dead and hanging processes
//! terminal  `top` and `check --tui` in a terminal
//! ```

mod hostile;
mod jobs;
mod parts;
mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Place, Running, file, wait_until};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// How long something may take. Generous: two cores may be shared with a whole build.
const PATIENCE: Duration = Duration::from_secs(120);

fn socket(place: &Place, pid: u32) -> PathBuf {
    place.join(format!(".run/ropeway/{pid}.sock"))
}

/// A view of a process.
struct View(BufReader<UnixStream>);

impl View {
    fn open(place: &Place, pid: u32) -> Self {
        let path = socket(place, pid);
        let mut found = None;
        wait_until(PATIENCE, || {
            found = UnixStream::connect(&path).ok();
            found.is_some()
        });
        let stream = found.unwrap_or_else(|| panic!("nobody listens on {}", path.display()));
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn send(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, request: Value) -> Value {
        self.send(&request.to_string());
        self.receive()
    }

    /// Asks for something that must be done.
    #[track_caller]
    fn order(&mut self, request: Value) {
        let reply = self.ask(request);
        assert_eq!(reply["ok"], true, "{reply}");
    }

    fn snapshot(&mut self) -> Value {
        let mut reply = self.ask(json!({"do": "status"}));
        assert_eq!(reply["ok"], true, "{reply}");
        reply["snapshot"].take()
    }

    fn job(&mut self) -> Value {
        let snapshot = self.snapshot();
        snapshot.pointer("/jobs/0").cloned().unwrap_or_default()
    }

    /// Waits until a job fits; returns it.
    #[track_caller]
    fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut job = Value::Null;
        let did = wait_until(PATIENCE, || {
            job = self.job();
            fits(&job)
        });
        assert!(did, "{what}: {job}");
        job
    }

    fn read(&mut self) -> u64 {
        self.job()["counters"]["bytes_read"].as_u64().unwrap()
    }

    /// Waits until what is under way has ended, and nothing is read any more.
    #[track_caller]
    fn rests(&mut self) -> u64 {
        let mut last = u64::MAX;
        let rests = wait_until(PATIENCE, || {
            let before = std::mem::replace(&mut last, self.read());
            std::thread::sleep(Duration::from_millis(400));
            before == last
        });
        assert!(rests, "it still reads");
        last
    }
}

/// Returns what `top --once --json` says of each process.
fn top(place: &Place) -> Vec<Value> {
    let finished = place.ropeway("top").args(["--once", "--json"]).ok();
    let all: Value = serde_json::from_str(&finished.out).unwrap();
    all.as_array().unwrap().clone()
}

/// Starts a copy of a large file that takes a minute.
fn slow_copy(place: &Place) -> Running {
    file(&place.join("big"), 64 * MIB, 1);
    place.copy("big", "target").args(["--bwlimit", "1M"]).start()
}
