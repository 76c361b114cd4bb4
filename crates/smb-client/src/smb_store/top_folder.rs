//! The attributes of the topmost folder, which are in no listing. Pure.
//!
//! Each program that walks a path asks for them. Adding, removing or renaming an entry changes
//! them, and breaks the lease on the folder, if the server has granted one. What others set directly
//! (times, DOS attributes) breaks no lease, so it is seen after some seconds.

use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeStat;

use super::node_cache::FolderLease;

/// How long they are kept while the lease lasts. A guess.
const KEPT: Duration = Duration::from_secs(5);

/// What is known.
#[derive(Default)]
pub(super) struct TopFolder(Mutex<State>);

#[derive(Default)]
struct State {
    known: Option<Known>,
    /// Number of the store's own changes.
    changes: u64,
}

struct Known {
    stat: NodeStat,
    lease: FolderLease,
    asked: Duration,
    /// Until when they are kept.
    until: Duration,
}

/// A question to the server.
pub(super) struct Question {
    lease: Option<FolderLease>,
    changes: u64,
}

impl TopFolder {
    /// Begins a question. `lease` is held now.
    pub(super) fn ask(&self, lease: Option<FolderLease>) -> Question {
        let changes = self.0.lock().changes;
        Question { lease, changes }
    }

    /// Keeps the reply, if there was a lease, and no own change since the question of `asked`.
    pub(super) fn put(&self, question: Question, stat: NodeStat, asked: Duration) {
        let mut state = self.0.lock();
        if question.changes == state.changes {
            state.known = question.lease.map(|lease| Known {
                stat,
                lease,
                asked,
                until: asked + KEPT,
            });
        }
    }

    /// Returns the attributes.
    pub(super) fn get(&self, now: Duration) -> Option<NodeStat> {
        let state = self.0.lock();
        let known = state.known.as_ref();
        let held = known.filter(|known| known.lease.may_cache_reads() && now < known.until);
        held.map(|known| known.stat)
    }

    /// Notes that the store made a node. Until the folder is asked again, at `until`, its times are
    /// those of a node that was made in it.
    pub(super) fn created(&self, path: &RelPath, made: &NodeStat, until: Duration) {
        if path.parent().is_some_and(|parent| parent.is_root()) {
            let mut state = self.0.lock();
            state.changes += 1;
            if let Some(known) = &mut state.known {
                known.stat.modified = known.stat.modified.max(made.changed);
                known.stat.changed = known.stat.changed.max(made.changed);
                known.until = until.min(known.asked + KEPT);
            }
        }
    }

    /// Notes an own change of a node's attributes.
    pub(super) fn changed_attributes(&self, path: &RelPath) {
        if path.is_root() {
            self.changed(path);
        }
    }

    /// Notes an own change of a name.
    pub(super) fn changed(&self, path: &RelPath) {
        if path.parent().is_none_or(|parent| parent.is_root()) {
            let mut state = self.0.lock();
            state.changes += 1;
            state.known = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caching::LeaseStatus;
    use ropeway_vfs::{FileId, Kind, Owner, Timestamp};

    fn stat(size: u64) -> NodeStat {
        NodeStat {
            kind: Kind::Directory,
            size,
            allocated: size,
            links: 1,
            id: FileId { volume: 1, index: 1 },
            mode: 0o755,
            owner: Owner { user: 0, group: 0 },
            created: Timestamp::default(),
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            dos_attributes: None,
        }
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    const START: Duration = Duration::from_secs(100);

    #[test]
    fn they_are_known_while_the_lease_lasts_and_not_for_long() {
        let (top, lease) = (TopFolder::default(), LeaseStatus::held());
        top.put(top.ask(None), stat(1), START);
        assert_eq!(top.get(START), None, "without a lease");
        top.put(top.ask(Some(lease.clone())), stat(2), START);
        assert_eq!(top.get(START + KEPT / 2), Some(stat(2)));
        assert_eq!(top.get(START + KEPT), None);
        lease.break_all();
        assert_eq!(top.get(START), None);
    }

    #[test]
    fn own_changes_end_them_and_overtake_replies() {
        let (top, lease) = (TopFolder::default(), LeaseStatus::held());
        for changed in ["", "a"] {
            let question = top.ask(Some(lease.clone()));
            top.changed(&path("a/b"));
            top.put(question, stat(1), START);
            assert_eq!(top.get(START), Some(stat(1)), "an entry of another folder");
            let question = top.ask(Some(lease.clone()));
            top.changed(&path(changed));
            assert_eq!(top.get(START), None);
            top.put(question, stat(1), START);
            assert_eq!(top.get(START), None, "the reply is older");
        }
    }
}
