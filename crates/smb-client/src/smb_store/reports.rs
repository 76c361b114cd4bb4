//! Reports to the store's observer: one after the other, from a thread that may block.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_vfs::FileId;
use ropeway_vfs::external::{BREAK_MAX, ExternalChange, LeaseLeft, Observer};
use tokio::runtime::Handle as Runtime;

/// Changes that wait for the observer, at most; with more, it learns that some were lost.
const CHANGES_MAX: usize = 4096;

/// The observer, and what it has not heard yet.
pub(super) struct Reports {
    runtime: Runtime,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    observer: Option<Arc<dyn Observer>>,
    waiting: Vec<ExternalChange>,
    is_running: bool,
}

impl State {
    fn add(&mut self, changes: Vec<ExternalChange>) {
        if self.waiting.len() + changes.len() <= CHANGES_MAX {
            self.waiting.extend(changes);
            return;
        }
        // Nodes are still reported one by one; there are no more than are watched.
        let all = self.waiting.drain(..).chain(changes);
        let mut kept: Vec<_> = all
            .filter(|change| matches!(change, ExternalChange::Node(_)))
            .collect();
        kept.sort_by_key(|change| match change {
            ExternalChange::Node(id) => (id.volume, id.index),
            _ => (0, 0),
        });
        kept.dedup();
        kept.push(ExternalChange::Lost);
        self.waiting = kept;
    }
}

impl Reports {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            state: Arc::default(),
        }
    }

    pub(super) fn observe(&self, observer: Arc<dyn Observer>) {
        let before = self.state.lock().observer.replace(observer);
        drop(before);
    }

    /// Reports changes after those reported before, and does not wait.
    pub(super) fn changed(&self, changes: Vec<ExternalChange>) {
        let mut state = self.state.lock();
        if state.observer.is_none() || changes.is_empty() {
            return;
        }
        state.add(changes);
        if std::mem::replace(&mut state.is_running, true) {
            return;
        }
        let state = Arc::clone(&self.state);
        self.runtime.spawn_blocking(move || run(&state));
    }

    /// Reports that a lease is about to be given up. Waits until the observer has answered, at most
    /// [`BREAK_MAX`].
    pub(super) async fn breaking(&self, id: FileId, left: LeaseLeft) {
        let Some(observer) = self.state.lock().observer.clone() else {
            return;
        };
        let asked = self.runtime.spawn_blocking(move || observer.breaking(id, left));
        if tokio::time::timeout(BREAK_MAX, asked).await.is_err() {
            tracing::warn!(
                index = id.index,
                "a lease is given up before its users have answered"
            );
        }
    }
}

/// Reports until nothing waits.
fn run(state: &Mutex<State>) {
    loop {
        let (observer, changes) = {
            let mut state = state.lock();
            let changes = std::mem::take(&mut state.waiting);
            let observer = state.observer.clone().filter(|_| !changes.is_empty());
            let Some(observer) = observer else {
                state.is_running = false;
                return;
            };
            (observer, changes)
        };
        observer.changed(&changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_and_nodes_are_kept() {
        let mut state = State::default();
        let node = |index| ExternalChange::Node(FileId { volume: 1, index });
        state.add(vec![node(7), node(3)]);
        state.add(vec![ExternalChange::Lost; CHANGES_MAX]);
        assert_eq!(state.waiting, [node(3), node(7), ExternalChange::Lost]);
        state.add(vec![node(3); CHANGES_MAX]);
        assert_eq!(state.waiting, [node(3), node(7), ExternalChange::Lost]);
        state.add(vec![node(4)]);
        assert_eq!(state.waiting.len(), 4);
    }
}
