//! The windows in which a file is written back: started early and awaited in order, so that dirty
//! data stays bounded and the last flush is short.

use std::collections::VecDeque;

/// The write-back windows of one file: written, started, on the device.
pub(crate) struct Windows {
    /// Bytes of a window ([`Sizes::window`](crate::Sizes::window)).
    window: u64,
    /// Where the next window begins.
    begin: u64,
    /// Bytes written since then.
    bytes: u64,
    contiguous: u64,
    to_start: VecDeque<(u64, u64)>,
    /// Started windows: offset, length, bytes written in it.
    started: VecDeque<(u64, u64, u64)>,
    dirty: u64,
    /// Bytes of all windows that are on the device.
    clean: u64,
    settling: bool,
}

impl Windows {
    /// Makes the windows of a file that is written from `begin` on.
    pub(crate) fn new(begin: u64, window: u64) -> Self {
        Self {
            window,
            begin,
            bytes: 0,
            contiguous: begin,
            to_start: VecDeque::new(),
            started: VecDeque::new(),
            dirty: 0,
            clean: 0,
            settling: false,
        }
    }

    /// Notes that `length` bytes were written and that all below `contiguous` is.
    pub(crate) fn wrote(&mut self, length: u64, contiguous: u64) {
        self.bytes += length;
        self.dirty += length;
        self.contiguous = contiguous;
        if self.bytes >= self.window && contiguous >= self.begin + self.window {
            let length = contiguous - self.begin;
            self.to_start.push_back((self.begin, length));
            self.started.push_back((self.begin, length, self.bytes));
            self.begin = contiguous;
            self.bytes = 0;
        }
    }

    /// Returns a window (offset, length) whose write-back must be started.
    pub(crate) fn next_to_start(&mut self) -> Option<(u64, u64)> {
        self.to_start.pop_front()
    }

    /// Whether more is dirty than allowed, and waiting helps.
    pub(crate) fn is_over(&self, bound: u64) -> bool {
        self.dirty >= bound && (self.settling || !self.started.is_empty())
    }

    /// Returns the oldest window to await (offset, length, bytes written in it) if at least
    /// `dirty_min` bytes are dirty. One at a time.
    pub(crate) fn next_to_settle(&mut self, dirty_min: u64) -> Option<(u64, u64, u64)> {
        if self.settling || self.dirty < dirty_min {
            return None;
        }
        let window = self.started.pop_front()?;
        self.settling = true;
        Some(window)
    }

    /// Notes that the awaited window is on the device. Returns how many bytes of the file are.
    pub(crate) fn settled(&mut self, bytes: u64) -> u64 {
        self.settling = false;
        self.dirty = self.dirty.saturating_sub(bytes);
        self.clean += bytes;
        self.clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 8 << 20;

    #[test]
    fn windows_bound_dirty_data_and_wait_for_the_oldest() {
        let mut windows = Windows::new(0, WINDOW);
        let mut upto = 0;
        while windows.dirty < 4 * WINDOW {
            upto += 1 << 20;
            windows.wrote(1 << 20, upto);
        }
        assert!(windows.is_over(2 * WINDOW) && !windows.is_over(5 * WINDOW));
        assert_eq!(windows.next_to_start(), Some((0, WINDOW)));
        assert_eq!(windows.next_to_settle(2 * WINDOW), Some((0, WINDOW, WINDOW)));
        assert_eq!(windows.next_to_settle(2 * WINDOW), None, "one at a time");
        assert_eq!(windows.settled(WINDOW), WINDOW);
        assert_eq!(windows.dirty, 3 * WINDOW);
    }
}
