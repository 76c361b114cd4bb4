//! A relay that records what clients and a server say to each other, and what Wireshark's `tshark`
//! reads in the recording: an independent reader of what is sent.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::PeerError;
use crate::procfs::program;

/// Port of the server in the recording: readers know SMB by it.
const SMB_PORT: u16 = 445;
/// First port of the clients in the recording.
const CLIENT_PORTS: u16 = 50_000;
/// Flags of TCP.
const SYN: u8 = 2;
/// See [`SYN`].
const PSH: u8 = 8;
/// See [`SYN`].
const ACK: u8 = 16;
/// Bytes of a recorded segment: an IPv4 packet holds 65,535.
const SEGMENT_MAX: usize = 60_000;
/// Bytes of headers before a segment's data: IPv4 and TCP without options.
const HEADERS: usize = 40;
/// Severity of what tshark's experts call an error.
const EXPERT_ERROR: u32 = 0x0080_0000;
/// Bytes that one connection passes on at once.
const CHUNK: usize = 1 << 16;

/// A relay on 127.0.0.1 before a server. It ends when it is dropped.
#[derive(Debug)]
pub struct Recorder {
    address: SocketAddr,
    record: Arc<Mutex<Record>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Record {
    chunks: Vec<Chunk>,
    connections: u16,
    open: Vec<TcpStream>,
}

/// Bytes of one connection in one direction.
#[derive(Debug)]
struct Chunk {
    connection: u16,
    to_server: bool,
    bytes: Vec<u8>,
}

impl Recorder {
    /// Starts a relay to `server`.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let record = Arc::new(Mutex::new(Record::default()));
        let ends = Arc::new(AtomicBool::new(false));
        let accepts = (Arc::clone(&record), Arc::clone(&ends));
        let thread = thread::spawn(move || accept(&listener, server, &accepts.0, &accepts.1));
        Ok(Self {
            address,
            record,
            ends,
            thread: Some(thread),
        })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections and writes what was recorded, in the format of libpcap.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self, path: &Path) -> io::Result<()> {
        self.end();
        let mut file = Capture::new();
        for chunk in &lock(&self.record).chunks {
            file.add(chunk);
        }
        fs::write(path, file.bytes)
    }

    fn end(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        _ = TcpStream::connect(self.address);
        for socket in lock(&self.record).open.drain(..) {
            _ = socket.shutdown(Shutdown::Both);
        }
        _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &TcpListener, server: SocketAddr, record: &Arc<Mutex<Record>>, ends: &AtomicBool) {
    let mut threads = Vec::new();
    while let Ok((client, _)) = listener.accept() {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        let Ok(far) = TcpStream::connect(server) else {
            continue;
        };
        _ = client.set_nodelay(true);
        _ = far.set_nodelay(true);
        let connection = {
            let mut record = lock(record);
            record.connections += 1;
            record.open.extend(client.try_clone());
            record.open.extend(far.try_clone());
            record.connections
        };
        for to_server in [true, false] {
            let (Ok(from), Ok(to)) = (client.try_clone(), far.try_clone()) else {
                continue;
            };
            let (from, to) = if to_server { (from, to) } else { (to, from) };
            let record = Arc::clone(record);
            threads.push(thread::spawn(move || {
                pass_on(from, to, &record, connection, to_server)
            }));
        }
    }
    for thread in threads {
        _ = thread.join();
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, record: &Mutex<Record>, connection: u16, to_server: bool) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        // Before it goes on, so that no answer is recorded before its question.
        lock(record).chunks.push(Chunk {
            connection,
            to_server,
            bytes: buffer[..count].to_vec(),
        });
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    _ = to.shutdown(Shutdown::Write);
}

/// A capture file with made-up packets around the recorded bytes.
struct Capture {
    bytes: Vec<u8>,
    packets: u32,
    /// The next sequence number of each connection: from the client, and from the server.
    sequences: BTreeMap<u16, [u32; 2]>,
}

impl Capture {
    fn new() -> Self {
        // The header of libpcap: version 2.4, packets begin with IP (LINKTYPE_RAW).
        let mut bytes = Vec::new();
        for number in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
            bytes.extend(number.to_le_bytes());
        }
        Self {
            bytes,
            packets: 0,
            sequences: BTreeMap::new(),
        }
    }

    fn add(&mut self, chunk: &Chunk) {
        if let Entry::Vacant(begins) = self.sequences.entry(chunk.connection) {
            begins.insert([0, 0]);
            for (to_server, flags) in [(true, SYN), (false, SYN | ACK)] {
                self.packet(chunk.connection, to_server, flags, &[]);
                self.advance(chunk.connection, to_server, 1);
            }
            self.packet(chunk.connection, true, ACK, &[]);
        }
        for segment in chunk.bytes.chunks(SEGMENT_MAX) {
            self.packet(chunk.connection, chunk.to_server, PSH | ACK, segment);
            self.advance(chunk.connection, chunk.to_server, segment.len());
        }
    }

    fn advance(&mut self, connection: u16, to_server: bool, count: usize) {
        let sequences = self.sequences.entry(connection).or_default();
        let own = &mut sequences[usize::from(!to_server)];
        *own = own.wrapping_add(u32::try_from(count).unwrap_or(0));
    }

    fn packet(&mut self, connection: u16, to_server: bool, flags: u8, data: &[u8]) {
        let length = HEADERS + data.len();
        let client = (CLIENT_PORTS.wrapping_add(connection), 1);
        let server = (SMB_PORT, 2);
        let (from, to) = if to_server {
            (client, server)
        } else {
            (server, client)
        };
        let sequences = self.sequences.get(&connection).copied().unwrap_or_default();
        let (own, other) = match to_server {
            true => (sequences[0], sequences[1]),
            false => (sequences[1], sequences[0]),
        };
        // One packet each microsecond.
        let length32 = u32::try_from(length).unwrap_or(u32::MAX);
        for number in [
            self.packets / 1_000_000,
            self.packets % 1_000_000,
            length32,
            length32,
        ] {
            self.bytes.extend(number.to_le_bytes());
        }
        self.packets += 1;
        let mut put = |bytes: &[u8]| self.bytes.extend(bytes);
        put(&[0x45, 0]);
        put(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        put(&[0, 0, 0, 0, 64, 6, 0, 0]);
        put(&[10, 0, 0, from.1, 10, 0, 0, to.1]);
        put(&from.0.to_be_bytes());
        put(&to.0.to_be_bytes());
        put(&own.to_be_bytes());
        put(&other.to_be_bytes());
        put(&[0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        put(data);
    }
}

/// What tshark reads in a recording.
#[derive(Clone, Debug, Default)]
pub struct Dissection {
    /// Numbers of the commands of SMB 2 that clients sent.
    pub asked: BTreeSet<u16>,
    /// Numbers of the commands of SMB 2 that the server answered, or sent by itself.
    pub answered: BTreeSet<u16>,
    /// Numbers of the commands of SMB 1, of either side.
    pub smb1: BTreeSet<u16>,
    /// Packets that tshark calls malformed, or marks as an error.
    pub complaints: Vec<String>,
}

impl Dissection {
    /// Reads a recording.
    ///
    /// # Errors
    /// tshark is missing, or fails.
    pub fn of(path: &Path) -> Result<Self, PeerError> {
        let mut dissection = Self::default();
        let fields = ["smb2.cmd", "smb2.flags.response", "smb.cmd"];
        for line in tshark(path, "smb2 || smb", &fields)?.lines() {
            let mut columns = line.split('\t').map(|column| column.split(','));
            let numbers = |words: Option<std::str::Split<'_, char>>| -> Vec<u16> {
                let words = words.into_iter().flatten();
                words.filter_map(number).collect()
            };
            let commands = numbers(columns.next());
            let responses = numbers(columns.next());
            for (command, is_response) in commands.into_iter().zip(responses) {
                match is_response {
                    0 => dissection.asked.insert(command),
                    _ => dissection.answered.insert(command),
                };
            }
            dissection.smb1.extend(numbers(columns.next()));
        }
        let complaint =
            format!("_ws.malformed || _ws.expert.severity >= {EXPERT_ERROR} || tcp.analysis.lost_segment");
        let fields = ["frame.number", "_ws.col.Info", "_ws.expert.message"];
        dissection.complaints = tshark(path, &complaint, &fields)?
            .lines()
            .map(str::to_owned)
            .collect();
        Ok(dissection)
    }
}

/// Parses a number or a truth value of tshark.
fn number(word: &str) -> Option<u16> {
    match word {
        "True" => Some(1),
        "False" => Some(0),
        word => word.strip_prefix("0x").map_or_else(
            || word.parse().ok(),
            |digits| u16::from_str_radix(digits, 16).ok(),
        ),
    }
}

fn tshark(path: &Path, filter: &str, fields: &[&str]) -> Result<String, PeerError> {
    let tshark = program("tshark").ok_or_else(|| PeerError::not_installed("tshark", "tshark"))?;
    let mut command = Command::new(tshark);
    command.arg("-r").arg(path).args(["-Y", filter, "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command
        .output()
        .map_err(|error| PeerError::failed("cannot run tshark", error))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(PeerError::failed(
            "tshark",
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )),
    }
}
