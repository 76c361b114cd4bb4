//! Runs `ropeway dirty` as a user does, and reads its lines.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::compare::Look;

/// Most looks that are kept: an hour of them.
const LOOKS_MAX: usize = 20_000;
/// Longest time for the program to end after SIGINT.
const END_MAX: Duration = Duration::from_secs(5);

/// A running `ropeway dirty --watch --json`.
pub(super) struct Watching {
    child: Child,
    looks: Arc<Mutex<Vec<Look>>>,
    reader: Option<JoinHandle<()>>,
}

impl Watching {
    /// Starts it. `bdi` is the device in question.
    ///
    /// # Errors
    /// The program does not start.
    pub(super) fn start(program: &Path, interval: Duration, bdi: &str) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args([
                "dirty",
                "--json",
                "--watch",
                &format!("{}ms", interval.as_millis()),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let looks = Arc::new(Mutex::new(Vec::new()));
        let out = child.stdout.take();
        let reader = {
            let (looks, bdi) = (Arc::clone(&looks), bdi.to_owned());
            thread::Builder::new()
                .name("looks".to_owned())
                .spawn(move || read(out, &bdi, &looks))?
        };
        Ok(Self {
            child,
            looks,
            reader: Some(reader),
        })
    }

    /// Returns the number of looks so far.
    pub(super) fn count(&self) -> usize {
        self.looks.lock().len()
    }

    /// Ends it and returns all looks.
    pub(super) fn finish(mut self) -> Vec<Look> {
        self.end();
        std::mem::take(&mut *self.looks.lock())
    }

    fn end(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(id)) = (self.child.try_wait(), id) {
            _ = kill_process(id, Signal::INT);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > END_MAX {
                _ = self.child.kill();
                _ = self.child.wait();
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        if let Some(reader) = self.reader.take() {
            _ = reader.join();
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(out: Option<ChildStdout>, bdi: &str, looks: &Mutex<Vec<Look>>) {
    let Some(out) = out else { return };
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if let Some(look) = look(&line, bdi) {
            let mut looks = looks.lock();
            if looks.len() < LOOKS_MAX {
                looks.push(look);
            }
        }
    }
}

/// Parses a line; the last one repeats the look before it.
fn look(line: &str, bdi: &str) -> Option<Look> {
    let value: Value = serde_json::from_str(line).ok()?;
    if value["type"] != "dirty" {
        return None;
    }
    let backlog = |of: &Value| Some(of["dirty_bytes"].as_f64()? + of["writeback_bytes"].as_f64()?);
    let devices = value["devices"].as_array()?;
    let own = devices.iter().find(|device| device["bdi"] == bdi);
    let is_writing = |device: &&Value| device["state"] == "writing" && device["drain"]["basis"] == "measured";
    let left = own.filter(is_writing).and_then(|device| {
        let drain = &device["drain"];
        Some([
            drain["seconds"].as_f64()?,
            drain["low"].as_f64()?,
            drain["high"].as_f64()?,
        ])
    });
    Some(Look {
        time: value["time"].as_f64()?,
        machine: backlog(&value["machine"])?,
        devices: devices.iter().filter_map(backlog).sum(),
        device: own.and_then(backlog),
        left,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_look() {
        let line = r#"{"type":"dirty","time":5.5,"machine":{"dirty_bytes":30,"writeback_bytes":12},"devices":[
            {"bdi":"7:0","dirty_bytes":10,"writeback_bytes":12,"state":"writing",
             "drain":{"seconds":2.0,"low":1.0,"high":3.0,"basis":"measured"}},
            {"bdi":"8:0","dirty_bytes":20,"writeback_bytes":0,"state":"waiting","drain":null},
            {"bdi":"0:5","dirty_bytes":null,"writeback_bytes":null}]}"#;
        let found = look(line, "7:0").unwrap();
        assert_eq!(
            (found.machine, found.devices, found.device),
            (42.0, 42.0, Some(22.0))
        );
        assert_eq!(found.left, Some([2.0, 1.0, 3.0]));
        assert_eq!(look(line, "8:0").unwrap().left, None);
        assert_eq!(look(&line.replace("\"dirty\",", "\"summary\","), "7:0"), None);
        assert_eq!(look("{", "7:0"), None);
    }
}
