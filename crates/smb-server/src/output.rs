//! Frames on their way to the client.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

/// Frames sent by one call.
const AT_ONCE_MAX: usize = 64;
/// Buffers kept for further frames, and the largest of them.
const SPARE_MAX: usize = 4;
const SPARE_LEN_MAX: usize = 9 << 20;
/// Buffers up to this length are not looked at for what they hold.
const SMALL_MAX: usize = 16 << 10;

/// Bytes of answers that clients have not taken yet, of all connections together.
pub(super) struct Unsent {
    bytes: AtomicUsize,
    max: usize,
}

impl Unsent {
    pub(super) fn new(max: usize) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            max,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there are too many.
    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= self.max
    }
}

/// Frames that wait to be sent.
pub(super) struct Output {
    all: Arc<Unsent>,
    /// When the client took something, or had nothing to take, the last time.
    taken: Instant,
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first that were sent.
    sent: usize,
    waiting: usize,
    /// The most that waited.
    most: usize,
    spare: Vec<Vec<u8>>,
}

impl Output {
    /// Bytes that may wait for a client before nothing more is done for it.
    pub(super) const WAITING_MAX: usize = 32 << 20;

    pub(super) fn new(all: Arc<Unsent>) -> Self {
        Self {
            all,
            taken: Instant::now(),
            frames: VecDeque::new(),
            sent: 0,
            waiting: 0,
            most: 0,
            spare: Vec::new(),
        }
    }

    /// How long the client has taken nothing of what waits for it.
    pub(super) fn stalled(&self) -> Duration {
        match self.frames.is_empty() {
            true => Duration::ZERO,
            false => self.taken.elapsed(),
        }
    }

    /// Puts a frame behind the others. One that is short for its buffer, because little was read of much that was asked
    /// for, gives the buffer back: what waits is counted by its bytes.
    pub(super) fn push(&mut self, mut frame: Vec<u8>) {
        if frame.capacity() > SMALL_MAX && frame.len() < frame.capacity() / 4 {
            // A copy of less than a quarter of what was reserved.
            let short = frame.as_slice().to_vec();
            self.keep(std::mem::replace(&mut frame, short));
        }
        if self.frames.is_empty() {
            self.taken = Instant::now();
        }
        self.waiting += frame.len();
        self.most = self.most.max(self.waiting);
        self.all.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        self.frames.push_back(frame);
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && buffer.capacity() <= SPARE_LEN_MAX {
            self.spare.push(buffer);
        }
    }

    /// A used buffer, or a new one.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Bytes that the client has not taken yet, headers' memory included.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The most that ever waited.
    pub(super) fn most(&self) -> usize {
        self.most
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
        if count > 0 {
            self.taken = Instant::now();
        }
        while let Some(first) = self.frames.front() {
            if self.sent < first.len() {
                break;
            }
            self.sent -= first.len();
            self.waiting -= first.len();
            self.all.bytes.fetch_sub(first.len(), Ordering::Relaxed);
            let buffer = self.frames.pop_front().unwrap_or_default();
            self.keep(buffer);
        }
    }

    /// What waits, as if it was sent.
    #[cfg(feature = "fuzzing")]
    pub(super) fn take(&mut self) -> Vec<Vec<u8>> {
        self.all.bytes.fetch_sub(self.waiting, Ordering::Relaxed);
        (self.waiting, self.sent) = (0, 0);
        self.frames.drain(..).collect()
    }

    /// Gives memory back while nothing is under way.
    pub(super) fn shrink(&mut self) {
        self.spare = Vec::new();
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.waiting, Ordering::Relaxed);
    }
}
