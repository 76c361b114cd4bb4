//! Frames on their way to the client.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// Bytes that may wait for a client before nothing more is done for it.
const WAITING_MAX: usize = 32 << 20;
/// Frames sent by one call.
const AT_ONCE_MAX: usize = 64;
/// Buffers kept for further frames, and the largest of them.
const SPARE_MAX: usize = 4;
const SPARE_LEN_MAX: usize = 9 << 20;

/// Frames that wait to be sent.
#[derive(Default)]
pub(super) struct Output {
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first that were sent.
    sent: usize,
    waiting: usize,
    spare: Vec<Vec<u8>>,
}

impl Output {
    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.waiting += frame.len();
        self.frames.push_back(frame);
    }

    /// A used buffer, or a new one.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The client takes less than it asks for.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= WAITING_MAX
    }

    /// Sends what the socket takes without waiting.
    pub(super) fn send(&mut self, socket: &TcpStream) -> io::Result<()> {
        while !self.frames.is_empty() {
            let mut parts: [IoSlice<'_>; AT_ONCE_MAX] = [IoSlice::new(&[]); AT_ONCE_MAX];
            let mut count = 0;
            for (part, frame) in parts.iter_mut().zip(&self.frames) {
                let from = if count == 0 { self.sent } else { 0 };
                *part = IoSlice::new(&frame[from..]);
                count += 1;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = match sendmsg(
                socket,
                &parts[..count],
                &mut SendAncillaryBuffer::default(),
                flags,
            ) {
                Ok(sent) => sent,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.drop_sent(sent);
        }
        Ok(())
    }

    fn drop_sent(&mut self, count: usize) {
        self.sent += count;
        while let Some(first) = self.frames.front() {
            if self.sent < first.len() {
                break;
            }
            self.sent -= first.len();
            self.waiting -= first.len();
            let buffer = self.frames.pop_front().unwrap_or_default();
            if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_LEN_MAX {
                self.spare.push(buffer);
            }
        }
    }

    /// Gives memory back while nothing is under way.
    pub(super) fn shrink(&mut self) {
        self.spare = Vec::new();
    }
}
