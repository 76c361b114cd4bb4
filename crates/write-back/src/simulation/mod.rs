//! A simulated near disk and far store, and runs by seed with crashes at every step.

pub(crate) mod disk;
mod far;
mod judge;
#[cfg(test)]
mod others;
mod run;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use run::{Tally, run};

/// The process: it ends before one of its operations.
#[derive(Debug)]
pub(crate) struct Process {
    left: AtomicU64,
    is_dead: AtomicBool,
}

impl Process {
    pub(crate) fn new(operations: u64) -> Self {
        Self {
            left: AtomicU64::new(operations),
            is_dead: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// Lets it end after this many more operations.
    pub(crate) fn end_after(&self, operations: u64) {
        if !self.is_dead() {
            self.left.store(operations, Ordering::Relaxed);
        }
    }

    /// Counts an operation. The second result says that the process ends in the middle of this one.
    pub(crate) fn step(&self) -> (io::Result<()>, bool) {
        if self.is_dead() {
            return (Err(dead()), false);
        }
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            self.is_dead.store(true, Ordering::Relaxed);
            return (Err(dead()), true);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        (Ok(()), false)
    }
}

fn dead() -> io::Error {
    io::Error::other("the simulated process has ended")
}

/// Reads a list of ranges.
pub(crate) fn ranges_of(text: &[u8]) -> Vec<(usize, usize)> {
    let text = String::from_utf8_lossy(text).into_owned();
    let pairs = text.lines().filter_map(|line| {
        let (at, length) = line.split_once(' ')?;
        Some((at.parse().ok()?, length.parse().ok()?))
    });
    pairs.collect()
}
