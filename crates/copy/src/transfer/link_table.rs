//! The names of files with several names: the first name of a file is copied, the others are linked
//! to that copy.
//!
//! An entry lives from the first name seen to the last. (The source tells how many there are.) So
//! memory grows only with the files whose other names the walk has not found yet.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_vfs::{FileId, Name, RelPath};

use crate::place::task::FileTask;

/// A node to copy or to link.
pub(crate) type LinkTask = FileTask;

/// The place of a copy.
pub(crate) struct LinkPlace {
    pub(crate) folder_path: RelPath,
    pub(crate) folder_shown: RelPath,
    pub(crate) name: Name,
    /// The folder was hidden when the copy was made, so the copy may not be durable.
    pub(crate) is_hidden: bool,
}

enum State {
    Copying { waiters: Vec<LinkTask> },
    Ready(Arc<LinkPlace>),
}

struct Entry {
    state: State,
    /// Names of the source that the walk has not found yet.
    left: u64,
}

/// The files with several names.
#[derive(Default)]
pub(crate) struct LinkTable {
    entries: Mutex<HashMap<FileId, Entry>>,
}

/// What to do with one name of a file.
pub(crate) enum Claim {
    /// It is the first: copy it, then complete or fail its links.
    First(LinkTask),
    /// The copy is under way, and the task waits for it.
    Waits,
    /// Link it to the finished copy.
    Link(LinkTask, LinkTarget),
}

/// A finished copy to link to.
pub(crate) struct LinkTarget(pub(crate) Arc<LinkPlace>);

impl LinkTable {
    pub(crate) fn claim(&self, id: FileId, task: LinkTask) -> Claim {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&id) else {
            let left = task.metadata.links.saturating_sub(1);
            entries.insert(
                id,
                Entry {
                    state: State::Copying { waiters: Vec::new() },
                    left,
                },
            );
            return Claim::First(task);
        };
        entry.left = entry.left.saturating_sub(1);
        let last = entry.left == 0;
        match &mut entry.state {
            State::Copying { waiters } => {
                waiters.push(task);
                Claim::Waits
            }
            State::Ready(place) => {
                let place = Arc::clone(place);
                if last {
                    entries.remove(&id);
                }
                Claim::Link(task, LinkTarget(place))
            }
        }
    }

    pub(crate) fn ready(&self, id: FileId, place: &Arc<LinkPlace>) -> Vec<LinkTask> {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&id) else {
            return Vec::new();
        };
        let waiters = match std::mem::replace(&mut entry.state, State::Ready(Arc::clone(place))) {
            State::Copying { waiters } => waiters,
            State::Ready(_) => Vec::new(),
        };
        if entry.left == 0 {
            entries.remove(&id);
        }
        waiters
    }

    /// Returns the waiter that takes the place of the first name, whose copy failed.
    pub(crate) fn next_first(&self, id: FileId) -> Option<LinkTask> {
        let mut entries = self.entries.lock();
        let Some(Entry {
            state: State::Copying { waiters },
            ..
        }) = entries.get_mut(&id)
        else {
            return None;
        };
        if let Some(next) = waiters.pop() {
            return Some(next);
        }
        // The next name that the walk finds is the first again.
        entries.remove(&id);
        None
    }
}
