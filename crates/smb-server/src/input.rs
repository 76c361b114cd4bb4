//! Frames out of a byte stream: small ones many at once, big ones each into a buffer of its own.

use std::io;
use std::net::TcpStream;
use std::ops::Range;

use ropeway_smb_proto::server::Hangup;
use ropeway_smb_wire::frame::{FRAME_HEADER_LEN, frame_len};
use rustix::net::{RecvFlags, recv};

/// Received at once: a few hundred small requests.
const BUFFER_LEN: usize = 64 << 10;
/// Room at first: most clients that do not log in send little, or nothing.
const BUFFER_FIRST: usize = 4 << 10;
/// The least room for a frame with a buffer of its own. Its memory grows as its bytes come, so that whoever announces much
/// and sends little takes little.
const LARGE_STEP: usize = 256 << 10;
/// Frames from this length on get a buffer of their own. Below, their bytes would have to be moved more often.
const LARGE_MIN: usize = 16 << 10;
/// Buffers that are kept for further frames.
const SPARE_MAX: usize = 4;

/// What has been received and not been taken yet.
#[derive(Default)]
pub(super) struct Input {
    buffer: Vec<u8>,
    filled: Range<usize>,
    large: Option<Large>,
    spare: Vec<Vec<u8>>,
}

struct Large {
    /// As long as what has come so far, or somewhat longer.
    frame: Vec<u8>,
    filled: usize,
    length: usize,
}

/// A whole frame, without its length.
pub(super) enum Frame {
    /// In the common buffer, given by [`Input::small`].
    Small(Range<usize>),
    /// In a buffer of its own.
    Large(Vec<u8>),
}

/// What came of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// Some bytes.
    Some,
    /// None now.
    Nothing,
    /// The client has closed.
    End,
}

impl Large {
    /// Where the next bytes go; never empty while some are missing.
    fn room(&mut self) -> &mut [u8] {
        if self.filled >= self.frame.len() {
            // All at once as address space, which costs nothing; as memory little by little.
            self.frame.reserve_exact(self.length - self.frame.len());
            let length = (self.filled * 2).clamp(LARGE_STEP, self.length.max(LARGE_STEP));
            self.frame.resize(length.min(self.length), 0);
        }
        let end = self.frame.len().min(self.length);
        &mut self.frame[self.filled..end]
    }
}

impl Input {
    /// Receives once, without waiting.
    pub(super) fn receive(&mut self, socket: &TcpStream) -> io::Result<Received> {
        let room = match &mut self.large {
            Some(large) => large.room(),
            None => {
                if self.filled.is_empty() {
                    self.filled = 0..0;
                }
                if self.buffer.is_empty() {
                    self.buffer.resize(BUFFER_FIRST, 0);
                }
                &mut self.buffer[self.filled.end..]
            }
        };
        let count = match recv(socket, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(Received::End),
            Ok((count, _)) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        match &mut self.large {
            Some(large) => large.filled += count,
            None => {
                self.filled.end += count;
                if self.filled.end == self.buffer.len() && self.buffer.len() < BUFFER_LEN {
                    self.buffer.resize((self.buffer.len() * 4).min(BUFFER_LEN), 0);
                }
            }
        }
        Ok(Received::Some)
    }

    /// The next whole frame.
    pub(super) fn next(&mut self, length_max: usize) -> Result<Option<Frame>, Hangup> {
        if let Some(mut large) = self.large.take_if(|large| large.filled == large.length) {
            large.frame.truncate(large.length);
            return Ok(Some(Frame::Large(large.frame)));
        }
        if self.large.is_some() {
            return Ok(None);
        }
        let bytes = &self.buffer[self.filled.clone()];
        let Some(header) = bytes.first_chunk::<FRAME_HEADER_LEN>() else {
            self.make_room();
            return Ok(None);
        };
        let length = frame_len(*header).map_err(|_| Hangup("no frame"))?;
        if length > length_max {
            return Err(Hangup("a frame that is too long"));
        }
        let there = &bytes[FRAME_HEADER_LEN..];
        if length >= LARGE_MIN {
            let mut frame = self.spare.pop().unwrap_or_default();
            let filled = there.len().min(length);
            if frame.len() < filled {
                frame.resize(filled, 0);
            }
            frame[..filled].copy_from_slice(&there[..filled]);
            self.filled.start += FRAME_HEADER_LEN + filled;
            if filled == length {
                frame.truncate(length);
                return Ok(Some(Frame::Large(frame)));
            }
            self.large = Some(Large {
                frame,
                filled,
                length,
            });
            return Ok(None);
        }
        if there.len() < length {
            self.make_room();
            return Ok(None);
        }
        let start = self.filled.start + FRAME_HEADER_LEN;
        self.filled.start = start + length;
        Ok(Some(Frame::Small(start..start + length)))
    }

    /// Moves an unfinished small frame to the buffer's start.
    fn make_room(&mut self) {
        if self.filled.start > 0 {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
    }

    /// The common buffer, while its frames are served; to be given back by [`Self::put_back`].
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    pub(super) fn put_back(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// A big frame's buffer, for another one.
    pub(super) fn recycle(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(frame);
        }
    }

    /// Gives memory back while nothing is under way.
    pub(super) fn shrink(&mut self) {
        self.spare = Vec::new();
        if self.filled.is_empty() && self.large.is_none() {
            self.buffer = Vec::new();
            self.filled = 0..0;
        }
    }
}
