//! Asks other processes.
//!
//! Their answers are hostile until parsed: root looks at processes of all users. A reply is bounded, a
//! process that does not answer is given up, and no text can move the cursor of a terminal.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::geteuid;
use serde_json::Value;

use crate::folder::{self, Connected, Folder, FolderError};
use crate::live::user_name;
use crate::model::{Snapshot, VERSION};
use crate::protocol::{Lines, Reply, Request};
use crate::text::clean;

/// Longest reply in bytes. A guess: a snapshot with all its rows has less than 1 MiB.
const REPLY_MAX: usize = 4 << 20;
/// Most elements of one list that are looked at: more than this version has in any of them.
const LIST_MAX: usize = 512;
/// Most folders with sockets: one for each user and service.
const FOLDERS_MAX: usize = 1024;

/// Why a process told nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It has ended.
    #[error("it has ended")]
    Ended,
    /// It does not answer.
    #[error("it does not answer")]
    Silent,
    /// It refused; it says why.
    #[error("{0}")]
    Refused(String),
    /// What it says cannot be understood.
    #[error("it cannot be understood: {0}")]
    Strange(String),
}

/// A process that can be asked, and the folder of its socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The folder.
    pub folder: PathBuf,
    /// Name of the socket.
    pub name: String,
    /// The process number in that name.
    pub pid: u32,
    /// The user of the folder.
    pub uid: u32,
}

/// A connection to a process.
pub struct Connection {
    stream: UnixStream,
    lines: Lines,
    owner: Option<Owner>,
}

/// Whose process it is, by the folder of its socket. What it says itself may be a lie.
struct Owner {
    pid: u32,
    uid: u32,
    user: String,
}

/// The processes that were found, and the folders that must not be used.
#[derive(Debug, Default)]
pub struct Scan {
    /// The processes.
    pub found: Vec<Address>,
    /// Why a folder was left out.
    pub refused: Vec<String>,
}

/// Finds the sockets of this user's processes; for root those of all users.
pub fn scan() -> Scan {
    let me = geteuid();
    let (paths, of) = match me.is_root() {
        true => (folder::all_paths(), None),
        false => (folder::own_paths(), Some(me.as_raw())),
    };
    let mut scan = Scan::default();
    for path in paths.into_iter().take(FOLDERS_MAX) {
        match Folder::open(&path, of) {
            Ok(Some(folder)) => scan
                .found
                .extend(folder.sockets().into_iter().map(|(pid, name)| Address {
                    folder: path.clone(),
                    name,
                    pid,
                    uid: folder.uid(),
                })),
            Ok(None) => {}
            Err(error) => scan.refused.push(error.to_string()),
        }
    }
    scan.found
        .sort_by(|a, b| (a.pid, &a.name, &a.folder).cmp(&(b.pid, &b.name, &b.folder)));
    scan.found.dedup();
    scan
}

impl Address {
    /// Connects.
    ///
    /// # Errors
    /// It has ended, or must not be asked.
    pub fn connect(&self) -> Result<Connection, ClientError> {
        let folder = match Folder::open(&self.folder, Some(self.uid)) {
            Ok(Some(folder)) => folder,
            Ok(None) => return Err(ClientError::Ended),
            Err(error @ (FolderError::Unsafe { .. } | FolderError::Io { .. })) => {
                return Err(ClientError::Refused(error.to_string()));
            }
        };
        match folder.connect(&self.name) {
            Connected::Yes(stream) => Ok(Connection {
                owner: Some(Owner {
                    pid: self.pid,
                    uid: self.uid,
                    user: user_name(self.uid),
                }),
                ..Connection::new(stream)
            }),
            Connected::Stale => Err(ClientError::Ended),
            Connected::No(why) => Err(ClientError::Refused(clean(&why))),
        }
    }

    /// Asks one thing and returns the reply.
    ///
    /// # Errors
    /// There is none within `patience`, or it says no.
    pub fn ask(&self, request: &Request, patience: Duration) -> Result<Option<Snapshot>, ClientError> {
        let mut connection = self.connect()?;
        connection.send(request, patience)?;
        connection.receive(patience)
    }
}

impl Connection {
    /// Talks over a connected stream.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            lines: Lines::default(),
            owner: None,
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The process takes nothing within `patience`, or has ended.
    pub fn send(&mut self, request: &Request, patience: Duration) -> Result<(), ClientError> {
        // Plain enums always serialize.
        let mut line = serde_json::to_vec(request).unwrap_or_default();
        line.push(b'\n');
        let sent = self
            .stream
            .set_write_timeout(Some(patience.max(Duration::from_millis(1))))
            .and_then(|()| self.stream.write_all(&line));
        sent.map_err(|error| fault(&error))
    }

    /// Receives the next reply.
    ///
    /// # Errors
    /// There is none within `patience`, or it says no.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<Snapshot>, ClientError> {
        let deadline = Instant::now() + patience;
        let mut bytes = vec![0; 64 << 10];
        loop {
            let line = self.lines.next(REPLY_MAX);
            if let Some(line) = line.map_err(|error| ClientError::Strange(error.to_string()))? {
                let told = understood(&line)?;
                return Ok(told.map(|snapshot| self.owned(snapshot)));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClientError::Silent);
            }
            let received = self
                .stream
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))
                .and_then(|()| self.stream.read(&mut bytes));
            match received {
                Ok(0) => return Err(ClientError::Ended),
                Ok(count) => self.lines.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fault(&error)),
            }
        }
    }

    /// Returns the snapshot with the process that was asked, not with the one that it claims to be.
    fn owned(&self, mut snapshot: Snapshot) -> Snapshot {
        if let Some(owner) = &self.owner {
            snapshot.process.pid = owner.pid;
            snapshot.process.uid = owner.uid;
            snapshot.process.user.clone_from(&owner.user);
        }
        snapshot
    }
}

fn fault(error: &io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
            ClientError::Ended
        }
        _ => ClientError::Strange(error.to_string()),
    }
}

/// Held while a reply is parsed: a hostile one takes many times its length for a moment, and processes
/// are asked by many threads.
static PARSING: Mutex<()> = Mutex::new(());

/// Parses a reply. Its texts are plain and bounded then, and its lists too.
fn understood(line: &[u8]) -> Result<Option<Snapshot>, ClientError> {
    let _one_at_a_time = PARSING.lock();
    let strange = |error: serde_json::Error| ClientError::Strange(clean(&error.to_string()));
    let mut value: Value = serde_json::from_slice(line).map_err(strange)?;
    let version = value.pointer("/snapshot/version").and_then(Value::as_u64);
    make_plain(&mut value);
    let reply: Result<Reply, _> = serde_json::from_value(value);
    let reply = match (reply, version) {
        (Err(_), Some(version)) if version != u64::from(VERSION) => {
            let why = format!("it tells version {version} of the figures, and this ropeway knows {VERSION}");
            return Err(ClientError::Strange(why));
        }
        (reply, _) => reply.map_err(strange)?,
    };
    match reply.ok {
        true => Ok(reply.snapshot.map(|snapshot| *snapshot)),
        false => Err(ClientError::Refused(
            reply.error.unwrap_or_else(|| "it says no".to_owned()),
        )),
    }
}

fn make_plain(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(list) => {
            list.truncate(LIST_MAX);
            list.iter_mut().for_each(make_plain);
        }
        Value::Object(map) => {
            // Names that begin with a control character belong to nothing that is known.
            map.values_mut().for_each(make_plain);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patience() -> Duration {
        Duration::from_secs(30)
    }

    /// Returns what a client makes of these bytes, and of the end after them.
    fn received(bytes: &[u8]) -> Result<Option<Snapshot>, ClientError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let bytes = bytes.to_vec();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The client may have given up.
                _ = theirs.write_all(&bytes);
            });
            Connection::new(ours).receive(patience())
        })
    }

    #[test]
    fn replies_are_understood() {
        let snapshot = Snapshot {
            version: VERSION,
            ..Snapshot::default()
        };
        let line = Reply::of(snapshot.clone()).line();
        assert_eq!(received(&line), Ok(Some(snapshot)));
        assert_eq!(received(&Reply::done().line()), Ok(None));
        let refused = received(&Reply::refused("no\u{1b}[2J").line());
        assert_eq!(refused, Err(ClientError::Refused("no\u{fffd}[2J".into())));
    }

    #[test]
    fn a_process_cannot_claim_to_be_another_one() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection {
            owner: Some(Owner {
                pid: 7,
                uid: 1000,
                user: "ann".into(),
            }),
            ..Connection::new(ours)
        };
        let mut snapshot = Snapshot {
            version: VERSION,
            ..Snapshot::default()
        };
        snapshot.process.pid = 1;
        snapshot.process.user = "root".into();
        theirs.write_all(&Reply::of(snapshot).line()).unwrap();
        let told = connection.receive(patience()).unwrap().unwrap().process;
        assert_eq!((told.pid, told.uid, told.user.as_str()), (7, 1000, "ann"));
    }

    #[test]
    fn hostile_replies_are_errors() {
        assert_eq!(received(b""), Err(ClientError::Ended));
        assert_eq!(received(b"{\"ok\":tru"), Err(ClientError::Ended));
        for strange in [
            "\n",
            "[1]\n",
            "{\"ok\":1}\n",
            "{\"ok\":true,\"snapshot\":{\"jobs\":5}}\n",
        ] {
            assert!(
                matches!(received(strange.as_bytes()), Err(ClientError::Strange(_))),
                "{strange}"
            );
        }
        let endless = vec![b'x'; REPLY_MAX + (256 << 10)];
        assert!(matches!(received(&endless), Err(ClientError::Strange(_))));
        let newer = received(b"{\"ok\":true,\"snapshot\":{\"version\":9,\"jobs\":5}}\n").unwrap_err();
        assert!(newer.to_string().contains("version 9"), "{newer}");
        let many = format!(
            "{{\"ok\":true,\"snapshot\":{{\"jobs\":[{}{{}}]}}}}\n",
            "{},".repeat(100_000)
        );
        assert_eq!(received(many.as_bytes()).unwrap().unwrap().jobs.len(), LIST_MAX);
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::new(ours);
        let short = Duration::from_millis(20);
        assert_eq!(connection.receive(short), Err(ClientError::Silent));
        // It takes nothing either: the buffer of the socket is full some time.
        let request = Request::Bwlimit {
            value: "x".repeat(10 << 20),
            job: None,
        };
        assert_eq!(connection.send(&request, short), Err(ClientError::Silent));
        drop(theirs);
        assert!(connection.receive(short).is_err());
    }

    proptest! {
        #[test]
        fn any_line_is_understood_or_refused(line in ".{0,200}") {
            drop(understood(line.as_bytes()));
        }

        #[test]
        fn any_json_is_understood_or_refused(key in "(ok|snapshot|jobs|error|version)", number in any::<f64>(), text in ".*") {
            for value in [Value::from(number), Value::from(text.clone()), Value::Null] {
                let line = serde_json::json!({"ok": true, "snapshot": {key.clone(): value.clone()}, key.clone(): value});
                drop(understood(line.to_string().as_bytes()));
            }
        }
    }
}
