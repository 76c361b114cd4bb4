//! A relay between client and server that commits one attack.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Commands of [MS-SMB2] 2.2.1.
const NEGOTIATE: u16 = 0x00;
const SESSION_SETUP: u16 = 0x01;
const LOGOFF: u16 = 0x02;
const TREE_DISCONNECT: u16 = 0x04;
const ECHO: u16 = 0x0D;

const HEADER: usize = 64;
/// Offsets of the status, the command, the flags and the session id in a header.
const STATUS: usize = 8;
const COMMAND: usize = 12;
const FLAGS: usize = 16;
const SESSION_ID: usize = 40;
const STATUS_PENDING: u32 = 0x0103;
const FLAG_SIGNED: u32 = 0x08;
const FLAG_ASYNC: u32 = 0x02;

/// Time between two interim replies, or two bytes.
const PULSE: Duration = Duration::from_millis(50);

/// The attack on the server's replies; those to ECHO are exempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    Nothing,
    /// Flips one bit of one reply.
    Flip,
    /// Removes a capability from the NEGOTIATE response.
    Downgrade,
    /// Drops one reply.
    DropOne,
    /// Answers each request with unsigned interim replies forever, and never with a result.
    Pending,
    /// Sends bytes one by one.
    Drip,
}

/// Events on all connections.
#[derive(Default)]
struct Seen {
    /// Connections on which a login began.
    logins: AtomicUsize,
    /// Logins after the attack: SESSION_SETUP requests that ask for a new session. A further
    /// connection of the session, which is opened at the same time, may still be bound to it.
    later: AtomicUsize,
    is_done: AtomicBool,
}

/// A relay that lives as long as the test's process: its threads wait in the kernel.
pub(crate) struct Relay {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl Relay {
    /// Starts the relay; `after`: number of replies after the login that pass unchanged.
    pub(crate) fn start(server: SocketAddr, attack: Attack, after: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Seen>::default();
        let known = Arc::clone(&seen);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                let line = Line {
                    attack,
                    after,
                    seen: Arc::clone(&known),
                    is_logged_in: false,
                };
                line.run(client, server);
            }
        });
        Self { address, seen }
    }

    /// Returns the URL of a path on the share `data`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("smb://ann@{}/data/{path}", self.address)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.seen.is_done.load(Ordering::SeqCst)
    }

    pub(crate) fn logins(&self) -> usize {
        self.seen.logins.load(Ordering::SeqCst)
    }

    /// Returns the number of logins that began after the attack.
    pub(crate) fn later_logins(&self) -> usize {
        self.seen.later.load(Ordering::SeqCst)
    }
}

/// One connection.
struct Line {
    attack: Attack,
    after: usize,
    seen: Arc<Seen>,
    is_logged_in: bool,
}

impl Line {
    fn run(mut self, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let seen = Arc::clone(&self.seen);
        thread::spawn(move || {
            let mut has_begun = false;
            while let Ok(frame) = frame_of(&mut from_client) {
                if command(&frame) == Some(SESSION_SETUP) {
                    seen.logins.fetch_add(usize::from(!has_begun), Ordering::SeqCst);
                    has_begun = true;
                    let is_later = seen.is_done.load(Ordering::SeqCst) && !names_session(&frame);
                    seen.later.fetch_add(usize::from(is_later), Ordering::SeqCst);
                }
                if to_server.write_all(&frame).is_err() {
                    break;
                }
            }
            _ = to_server.shutdown(Shutdown::Both);
        });
        let mut from_server = server;
        let to_client = Arc::new(Mutex::new(client));
        thread::spawn(move || {
            while let Ok(frame) = frame_of(&mut from_server) {
                if self.pass(frame, &to_client).is_err() {
                    break;
                }
            }
            _ = to_client.lock().unwrap().shutdown(Shutdown::Both);
        });
    }

    /// Passes on one frame of the server, or commits the attack.
    fn pass(&mut self, mut frame: Vec<u8>, client: &Arc<Mutex<TcpStream>>) -> io::Result<()> {
        let command = command(&frame);
        if command == Some(SESSION_SETUP) && number(&frame, STATUS) == 0 {
            self.is_logged_in = true;
        } else if self.is_logged_in && self.after > 0 {
            self.after -= usize::from(command != Some(ECHO));
        } else if self.is_logged_in && !matches!(command, Some(ECHO | LOGOFF | TREE_DISCONNECT)) {
            match self.attack {
                Attack::Flip if !self.mark() => *frame.last_mut().unwrap() ^= 1,
                Attack::DropOne if !self.mark() => return Ok(()),
                Attack::Pending => {
                    self.mark();
                    announce(frame, Arc::clone(client));
                    return Ok(());
                }
                Attack::Drip => {
                    self.mark();
                }
                _ => {}
            }
        } else if command == Some(NEGOTIATE) && self.attack == Attack::Downgrade {
            self.mark();
            // Capabilities (2.2.4): without DFS, leases and large requests.
            frame[4 + HEADER + 24] &= !0x07;
        }
        let mut client = client.lock().unwrap();
        if self.attack != Attack::Drip || !self.is_marked() {
            return client.write_all(&frame);
        }
        for byte in frame.chunks(1) {
            client.write_all(byte)?;
            thread::sleep(PULSE);
        }
        Ok(())
    }

    fn is_marked(&self) -> bool {
        self.seen.is_done.load(Ordering::SeqCst)
    }

    /// Notes that the attack is done; returns whether it was done before.
    fn mark(&self) -> bool {
        self.seen.is_done.swap(true, Ordering::SeqCst)
    }
}

/// Sends interim replies forever.
fn announce(mut frame: Vec<u8>, client: Arc<Mutex<TcpStream>>) {
    frame.truncate(4 + HEADER);
    frame[..4].copy_from_slice(&(HEADER as u32 + 9).to_be_bytes());
    let flags = (number(&frame, FLAGS) | FLAG_ASYNC) & !FLAG_SIGNED;
    put(&mut frame, STATUS, STATUS_PENDING);
    put(&mut frame, FLAGS, flags);
    // `NextCommand`, then the async id instead of process and tree, and no signature.
    put(&mut frame, 20, 0);
    put(&mut frame, 32, 77);
    put(&mut frame, 36, 0);
    frame[4 + 48..].fill(0);
    // The body of an error response without data.
    frame.extend([9, 0, 0, 0, 0, 0, 0, 0, 0]);
    thread::spawn(move || {
        while client.lock().unwrap().write_all(&frame).is_ok() {
            // Credits are granted once.
            frame[4 + 14..4 + 16].fill(0);
            thread::sleep(PULSE);
        }
    });
}

/// Reads a frame with its length.
fn frame_of(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = length.to_vec();
    frame.resize(4 + u32::from_be_bytes(length) as usize, 0);
    stream.read_exact(&mut frame[4..])?;
    Ok(frame)
}

/// Returns the first command of a frame; `None` if the frame is encrypted.
fn command(frame: &[u8]) -> Option<u16> {
    let is_plain = frame.len() >= 4 + HEADER && frame[4] == 0xFE;
    is_plain.then(|| u16::from_le_bytes([frame[4 + COMMAND], frame[4 + COMMAND + 1]]))
}

/// Whether a request is one of a session: a login's first one is not.
fn names_session(frame: &[u8]) -> bool {
    frame[4 + SESSION_ID..4 + SESSION_ID + 8] != [0; 8]
}

fn number(frame: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(frame[4 + at..4 + at + 4].try_into().unwrap())
}

fn put(frame: &mut [u8], at: usize, value: u32) {
    frame[4 + at..4 + at + 4].copy_from_slice(&value.to_le_bytes());
}
