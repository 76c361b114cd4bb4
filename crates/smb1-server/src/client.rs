//! Messages from and to the client's socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, frame_header};
use rustix::event::{PollFd, PollFlags, poll};

use crate::line::Fault;

/// First byte of a keepalive (RFC 1002 4.3.6).
const KEEPALIVE: u8 = 0x85;

/// Bytes received at once.
const CHUNK: usize = 64 << 10;

/// The client's socket.
pub(crate) struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    /// Begins with bytes that were received already. `send_timeout`: time for the client to receive
    /// something of a response.
    pub(crate) fn new(socket: TcpStream, received: Vec<u8>, send_timeout: Duration) -> std::io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(send_timeout))?;
        Ok(Self { socket, received })
    }

    /// Waits for a message of at most `length_max` bytes, which is returned without its length. `None`
    /// if the client has left, or the server has ended the line.
    pub(crate) fn receive(&mut self, line: &UnixStream, length_max: usize) -> Result<Option<Vec<u8>>, Fault> {
        loop {
            if let Some(message) = self.take(length_max)? {
                return Ok(Some(message));
            }
            let (socket, ended) = {
                let mut fds = [
                    PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN),
                ];
                match poll(&mut fds, None) {
                    Ok(_) => {}
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(_) => return Ok(None),
                }
                (fds[0].revents(), fds[1].revents())
            };
            // Nothing was asked, so the line has ended.
            if !ended.is_empty() {
                return Ok(None);
            }
            if !socket.is_empty() && !self.fill() {
                return Ok(None);
            }
        }
    }

    /// Receives once. Returns `false` if the client has left.
    fn fill(&mut self) -> bool {
        let start = self.received.len();
        self.received.resize(start + CHUNK, 0);
        let count = self.socket.read(&mut self.received[start..]).unwrap_or(0);
        self.received.truncate(start + count);
        count > 0
    }

    /// Takes a complete message.
    fn take(&mut self, length_max: usize) -> Result<Option<Vec<u8>>, Fault> {
        while let Some([kind, high, middle, low]) = self.received.first_chunk::<FRAME_HEADER_LEN>().copied() {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            match kind {
                KEEPALIVE if length == 0 => _ = self.received.drain(..FRAME_HEADER_LEN),
                0 if length <= length_max => {
                    let end = FRAME_HEADER_LEN + length;
                    if self.received.len() < end {
                        return Ok(None);
                    }
                    let rest = self.received.split_off(end);
                    let mut message = std::mem::replace(&mut self.received, rest);
                    message.drain(..FRAME_HEADER_LEN);
                    return Ok(Some(message));
                }
                0 => return Err(Fault::End("the client sent a message that is too long")),
                _ => return Err(Fault::End("the client sent bytes that are not a message")),
            }
        }
        Ok(None)
    }

    /// Sends a message that begins with room for its length.
    pub(crate) fn send(&mut self, mut frame: Vec<u8>) -> Result<(), Fault> {
        let length = frame.len() - FRAME_HEADER_LEN;
        frame[..FRAME_HEADER_LEN].copy_from_slice(&frame_header(length));
        let sent = self.socket.write_all(&frame);
        sent.map_err(|_| Fault::End("the client does not receive its responses"))
    }
}
