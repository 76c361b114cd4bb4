//! Changes for watchers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::tree::{Change, Watch};
use crate::{Pending, RelPath, Result};

/// Most changes that wait to be fetched; with more, the watcher has to examine everything anyway. A
/// guess.
const CHANGES_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    changes: VecDeque<RelPath>,
    overflow: bool,
    waker: Option<Waker>,
}

impl Queue {
    pub(super) fn push(&self, path: &RelPath) {
        let mut waiting = self.waiting.lock();
        if waiting.changes.len() >= CHANGES_MAX {
            waiting.changes.clear();
            waiting.overflow = true;
        }
        if waiting.changes.back() != Some(path) {
            waiting.changes.push_back(path.clone());
        }
        if let Some(waker) = waiting.waker.take() {
            waker.wake();
        }
    }
}

pub(super) struct MemoryWatch {
    pub(super) queue: Arc<Queue>,
}

impl Watch for MemoryWatch {
    fn next(&mut self) -> Pending<'_, Result<Vec<Change>>> {
        Box::pin(poll_fn(|cx| {
            let mut waiting = self.queue.waiting.lock();
            if !waiting.overflow && waiting.changes.is_empty() {
                waiting.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let overflow = std::mem::take(&mut waiting.overflow).then_some(Change::Overflow);
            let paths = waiting.changes.drain(..).map(Change::Path);
            Poll::Ready(Ok(overflow.into_iter().chain(paths).collect()))
        }))
    }
}
