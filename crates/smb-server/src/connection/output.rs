//! Response frames that wait to be sent.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::state::unsent::UnsentBytes;

/// Maximum number of frames in one system call.
const FRAMES_PER_SEND_MAX: usize = 64;
/// Number of buffers kept for further frames, and the size of the largest one.
const FREE_BUFFERS_MAX: usize = 4;
const FREE_BUFFER_LEN_MAX: usize = 9 << 20;
/// Capacity in bytes from which a buffer is kept for large frames.
const LARGE_BUFFER_MIN: usize = 64 << 10;
/// Buffers up to this size are never shrunk.
const SHRINK_MIN: usize = 16 << 10;

/// Frames that wait to be sent.
pub(crate) struct Output {
    total: Arc<UnsentBytes>,
    /// When the client last received something, or had nothing to receive.
    last_progress: Instant,
    frames: VecDeque<Vec<u8>>,
    /// Bytes of the first frame that were sent.
    sent: usize,
    waiting: usize,
    /// Largest number of bytes that ever waited.
    peak: usize,
    free_buffers: Vec<Vec<u8>>,
    /// As long as the last frames in them.
    free_large_buffers: Vec<Vec<u8>>,
}

impl Output {
    /// Bytes that may wait for a client before its requests are no longer executed.
    pub(crate) const WAITING_MAX: usize = 32 << 20;

    pub(crate) fn new(total: Arc<UnsentBytes>) -> Self {
        Self {
            total,
            last_progress: Instant::now(),
            frames: VecDeque::new(),
            sent: 0,
            waiting: 0,
            peak: 0,
            free_buffers: Vec::new(),
            free_large_buffers: Vec::new(),
        }
    }

    /// Returns how long the client has received nothing although frames wait.
    pub(crate) fn stalled(&self) -> Duration {
        match self.frames.is_empty() {
            true => Duration::ZERO,
            false => self.last_progress.elapsed(),
        }
    }

    /// Appends a frame. If a read returned much less than the client asked for, the frame is copied
    /// out of its large buffer, because waiting frames are accounted by length.
    pub(crate) fn push(&mut self, mut frame: Vec<u8>) {
        if frame.capacity() > SHRINK_MIN && frame.len() < frame.capacity() / 4 {
            // The copy is less than a quarter of the buffer.
            let short = frame.as_slice().to_vec();
            self.reuse(std::mem::replace(&mut frame, short));
        }
        if self.frames.is_empty() {
            self.last_progress = Instant::now();
        }
        self.waiting += frame.len();
        self.peak = self.peak.max(self.waiting);
        self.total.add(frame.len());
        self.frames.push_back(frame);
    }

    /// Keeps a buffer for another frame.
    pub(crate) fn reuse(&mut self, buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let free_buffers = match capacity >= LARGE_BUFFER_MIN {
            true => &mut self.free_large_buffers,
            false => &mut self.free_buffers,
        };
        if free_buffers.len() < FREE_BUFFERS_MAX && (1..=FREE_BUFFER_LEN_MAX).contains(&capacity) {
            free_buffers.push(buffer);
        }
    }

    /// Returns a used buffer of a large frame, as long as that was, or an empty one.
    pub(crate) fn large_buffer(&mut self) -> Vec<u8> {
        self.free_large_buffers.pop().unwrap_or_default()
    }

    /// Returns a used buffer or a new one.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.free_buffers.pop().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of bytes that the client has not received yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the largest number of bytes that ever waited.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }

    /// Sends as much as the socket accepts without waiting.
    pub(crate) fn send(&mut self, socket: &impl AsFd) -> io::Result<()> {
        while !self.frames.is_empty() {
            let mut parts: [IoSlice<'_>; FRAMES_PER_SEND_MAX] = [IoSlice::new(&[]); FRAMES_PER_SEND_MAX];
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
            self.last_progress = Instant::now();
        }
        while let Some(first) = self.frames.front() {
            if self.sent < first.len() {
                break;
            }
            self.sent -= first.len();
            self.waiting -= first.len();
            self.total.remove(first.len());
            let buffer = self.frames.pop_front().unwrap_or_default();
            self.reuse(buffer);
        }
    }

    /// Returns all waiting frames as if they were sent.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn take_all(&mut self) -> Vec<Vec<u8>> {
        self.total.remove(self.waiting);
        (self.waiting, self.sent) = (0, 0);
        self.frames.drain(..).collect()
    }

    /// Frees memory while nothing is in progress.
    pub(crate) fn shrink(&mut self) {
        self.free_buffers = Vec::new();
        self.free_large_buffers = Vec::new();
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.total.remove(self.waiting);
    }
}
