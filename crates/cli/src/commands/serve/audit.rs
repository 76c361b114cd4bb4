//! `--audit FILE`: a JSON line for each login and file operation.
//!
//! ```json
//! {"time":"2026-01-31T11:00:00.123456Z","action":"rename","peer":"192.0.2.7:50123","user":"ann","share":"photos","path":"a.jpg","target":"b.jpg","status":"STATUS_SUCCESS"}
//! ```
//!
//! Connections hand lines to a thread that writes them, over a queue with a bound: a slow disk never holds a client up.
//! What did not fit is counted and told by a line `"action":"dropped"`. A batch of whole lines is one write to a file opened for
//! appending. SIGHUP opens the file again, for who rotates it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ropeway_smb_server as server;
use ropeway_smb_wire::NtStatus;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, code};

/// Lines that wait. A line is some 250 bytes, 100 KB at the very worst.
const QUEUE: usize = 4096;
/// A batch is written when it is so long. Bytes.
const BATCH_LEN: usize = 64 << 10;
/// How long a file that takes nothing is waited for at the end. A guess.
const PATIENCE: Duration = Duration::from_secs(5);

enum Message {
    Line(Vec<u8>),
    Reopen,
    Stop,
}

/// Takes records; cheap to clone.
#[derive(Clone)]
pub(super) struct Audit {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// The thread that writes.
pub(super) struct Writer {
    queue: SyncSender<Message>,
    ended: Mutex<Receiver<()>>,
}

impl Audit {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn start(path: &Path) -> Result<(Self, Writer), Failure> {
        let fault = |error: &io::Error| {
            let message = format!("cannot write the audit {}: {error}", path.display());
            Failure::of_end(message, error, code::TARGET).hint("choose another file with --audit FILE")
        };
        let file = open(path).map_err(|error| fault(&error))?;
        let (sender, receiver) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = Log {
            path: path.to_owned(),
            file,
            is_torn: false,
            dropped: Arc::clone(&dropped),
        };
        let (end, ended) = sync_channel(0);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let work = move || {
            let _end: SyncSender<()> = end;
            log.run(&receiver);
        };
        thread.spawn(work).map_err(|error| fault(&error))?;
        let writer = Writer {
            queue: sender.clone(),
            ended: Mutex::new(ended),
        };
        Ok((
            Self {
                queue: sender,
                dropped,
            },
            writer,
        ))
    }
}

impl server::Audit for Audit {
    fn record(&self, record: &server::Record<'_>) {
        if self.queue.try_send(Message::Line(line(record))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Writer {
    /// Opens the file again by its name.
    pub(super) fn reopen(&self) {
        if !self.send(Message::Reopen) {
            tracing::warn!("the audit is stuck and goes on in the old file");
        }
    }

    /// Writes what waits, and ends.
    pub(super) fn finish(&self) {
        let ended = self.send(Message::Stop) && {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            // The thread drops its end.
            ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Disconnected)
        };
        if !ended {
            tracing::warn!("the audit is stuck: its last lines are not written");
        }
    }

    /// Whether the thread will see it; a file that takes nothing must not hold up signals.
    fn send(&self, message: Message) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut message = message;
        loop {
            match self.queue.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(back)) if Instant::now() < end => message = back,
                Err(_) => return false,
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

fn now() -> String {
    // RFC 3339 in UTC.
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
        .to_string()
}

fn line(record: &server::Record<'_>) -> Vec<u8> {
    let mut fields = Map::new();
    fields.insert("time".to_owned(), json!(now()));
    fields.insert("action".to_owned(), json!(record.action));
    if let Some(peer) = record.peer {
        fields.insert("peer".to_owned(), json!(peer.to_string()));
    }
    let texts = [
        ("user", record.user),
        ("share", record.share),
        ("path", record.path),
        ("target", record.target),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            fields.insert(name.to_owned(), json!(text));
        }
    }
    fields.insert("status".to_owned(), json!(status(record.status)));
    let mut line = Value::Object(fields).to_string().into_bytes();
    line.push(b'\n');
    line
}

fn status(status: NtStatus) -> String {
    status.to_string()
}

struct Log {
    path: PathBuf,
    file: File,
    /// The last write ended inside a line.
    is_torn: bool,
    dropped: Arc<AtomicU64>,
}

impl Log {
    fn run(mut self, queue: &Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH_LEN);
        while let Ok(message) = queue.recv() {
            let mut next = Some(message);
            let mut count = 0;
            let mut then = None;
            while let Some(message) = next.take() {
                match message {
                    Message::Line(line) => {
                        batch.extend_from_slice(&line);
                        count += 1;
                    }
                    other => {
                        then = Some(other);
                        break;
                    }
                }
                if batch.len() < BATCH_LEN {
                    next = queue.try_recv().ok();
                }
            }
            self.write(&mut batch, count);
            match then {
                Some(Message::Stop) => return,
                Some(Message::Reopen) => self.reopen(),
                _ => {}
            }
        }
    }

    fn write(&mut self, batch: &mut Vec<u8>, count: u64) {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let line = json!({"time": now(), "action": "dropped", "count": dropped});
            batch.extend_from_slice(format!("{line}\n").as_bytes());
        }
        if batch.is_empty() {
            return;
        }
        if self.is_torn {
            batch.insert(0, b'\n');
        }
        match self.file.write_all(batch) {
            Ok(()) => self.is_torn = false,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, lines = count, "the audit lacks lines");
                self.is_torn = true;
                self.dropped.fetch_add(count + dropped, Ordering::Relaxed);
            }
        }
        batch.clear();
    }

    fn reopen(&mut self) {
        match open(&self.path) {
            Ok(file) => {
                self.file = file;
                self.is_torn = false;
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the audit goes on in the old file");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_smb_server::{Audit as _, Record};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn record(action: &'static str) -> Record<'static> {
        Record {
            action,
            peer: Some("192.0.2.7:5".parse().unwrap()),
            user: Some("ann \"x\"\n"),
            share: Some("photos"),
            path: Some("a/b"),
            target: None,
            status: NtStatus::ACCESS_DENIED,
        }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn records_are_lines_and_a_rotated_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let (audit, writer) = Audit::start(&path).unwrap();
        audit.record(&record("open"));
        // Written before the file is opened again, whatever its name is by then.
        let old = folder.path().join("audit.1");
        fs::rename(&path, &old).unwrap();
        writer.reopen();
        audit.record(&record("close"));
        writer.finish();
        let (first, second) = (lines(&old), lines(&path));
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_eq!(first[0]["action"], "open");
        assert_eq!(first[0]["user"], "ann \"x\"\n");
        assert_eq!(first[0]["status"], "STATUS_ACCESS_DENIED");
        assert_eq!(first[0].get("target"), None);
        assert!(
            first[0]["time"]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .is_ok()
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (sender, receiver) = sync_channel(2);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let dropped = Arc::new(AtomicU64::new(0));
        let audit = Audit {
            queue: sender,
            dropped: Arc::clone(&dropped),
        };
        for _ in 0..5 {
            audit.record(&record("open"));
        }
        let log = Log {
            path: path.clone(),
            file: open(&path).unwrap(),
            is_torn: false,
            dropped,
        };
        drop(audit);
        log.run(&receiver);
        let lines = lines(&path);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (&lines[2]["action"], &lines[2]["count"]),
            (&json!("dropped"), &json!(3))
        );
    }
}
