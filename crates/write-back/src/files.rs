//! The files in use, and those with a backlog.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use ropeway_vfs::external::ContentLease;
use ropeway_vfs::store::{Node, NodeStat};
use ropeway_vfs::{FileId, RelPath, Timestamp};

use crate::backlog::{Backlog, Piece};
use crate::log::{FileLog, Parts, snapshot_of};
use crate::record::{Record, Snapshot, Version};

/// A far file in use.
///
/// Locks are taken in the order `gate`, `drain`, `state`, and none of them while the table of files
/// is locked, except `state`.
pub(crate) struct File {
    pub(crate) id: FileId,
    /// Held for reading by what goes into the journal, for writing by what must not find a backlog.
    pub(crate) gate: RwLock<()>,
    /// Held by whoever brings the backlog to the far file.
    pub(crate) drain: Mutex<Drainer>,
    pub(crate) state: Mutex<State>,
    /// Nodes that near clients have open.
    pub(crate) nodes: AtomicUsize,
    /// Whether writes went to the far file past the journal, and were not flushed.
    pub(crate) is_through_dirty: AtomicBool,
    /// The number of the last change of the far file by this store.
    pub(crate) changed_at: AtomicU64,
}

/// What brings the backlog to the far file.
#[derive(Default)]
pub(crate) struct Drainer {
    /// The open far file.
    pub(crate) node: Option<Arc<dyn Node>>,
    /// The lease under which the version was last checked.
    pub(crate) lease: ContentLease,
    /// Whether a round of this process has begun and not ended.
    pub(crate) is_under_way: bool,
}

/// What is known of a file.
pub(crate) struct State {
    pub(crate) path: RelPath,
    /// The far file's attributes and when they were asked for; `None` after changes past the
    /// journal.
    pub(crate) known: Option<Known>,
    pub(crate) pending: Option<Pending>,
    /// Others have changed the far file under the backlog: nodes that were open then are of no use.
    pub(crate) is_lost: bool,
    /// A near client has removed the last name.
    pub(crate) is_removed: bool,
    /// Whether the queue has it.
    pub(crate) is_queued: bool,
    /// Failed attempts in a row to bring the backlog to the far file.
    pub(crate) failures: u32,
}

/// A far file's attributes.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) stat: NodeStat,
    /// When the far store was asked, and the number of changes then.
    pub(crate) at: Instant,
    pub(crate) count: u64,
}

/// A backlog and its journal.
pub(crate) struct Pending {
    pub(crate) log: FileLog,
    pub(crate) backlog: Backlog,
    /// The far file as it should be.
    pub(crate) base: Version,
    /// When data were last known to be on their way.
    pub(crate) draining: Option<Timestamp>,
    /// The far file's attributes when the backlog began; `None` after a restart.
    pub(crate) stat: Option<NodeStat>,
    /// When the backlog began.
    pub(crate) since: Timestamp,
    /// Whether the last name was about to be removed when the process ended.
    pub(crate) is_removing: bool,
    /// The decided conflict, and the file that gets our side.
    pub(crate) conflict: Option<Option<(RelPath, FileId)>>,
}

/// What a read needs of a backlog.
pub(crate) struct View {
    pub(crate) size: u64,
    pub(crate) far_valid: u64,
    pub(crate) pieces: Vec<(u64, Piece)>,
    pub(crate) parts: Parts,
}

impl File {
    pub(crate) fn new(id: FileId, path: &RelPath) -> Self {
        Self {
            id,
            gate: RwLock::new(()),
            drain: Mutex::default(),
            state: Mutex::new(State {
                path: path.clone(),
                known: None,
                pending: None,
                is_lost: false,
                is_removed: false,
                is_queued: false,
                failures: 0,
            }),
            nodes: AtomicUsize::new(0),
            is_through_dirty: AtomicBool::new(false),
            changed_at: AtomicU64::new(0),
        }
    }

    pub(crate) fn path(&self) -> RelPath {
        self.state.lock().path.clone()
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.state.lock().pending.is_some()
    }

    /// Returns what a read of a range needs; `None` where the far file has everything.
    pub(crate) fn view(&self, start: u64, end: u64) -> Option<View> {
        let state = self.state.lock();
        let pending = state.pending.as_ref().filter(|_| !state.is_lost)?;
        Some(View {
            size: pending.backlog.size,
            far_valid: pending.backlog.far_valid,
            pieces: pending.backlog.pieces_in(start, end),
            parts: pending.log.parts(),
        })
    }
}

impl State {
    /// Adds what the far file lacks to its attributes.
    pub(crate) fn overlay(&self, stat: &mut NodeStat) {
        let Some(pending) = self.pending.as_ref().filter(|_| !self.is_lost) else {
            return;
        };
        let backlog = &pending.backlog;
        stat.size = backlog.size;
        stat.allocated = match stat.allocated >= backlog.size {
            true => stat.allocated,
            false => backlog.size.next_multiple_of(4096),
        };
        let change = &backlog.change;
        stat.created = change.created.unwrap_or(stat.created);
        stat.accessed = change.accessed.unwrap_or(stat.accessed);
        stat.modified = change.modified.unwrap_or(stat.modified);
        stat.changed = stat
            .changed
            .max(change.changed.or(change.modified).unwrap_or(stat.changed));
        stat.dos_attributes = change.dos_attributes.or(stat.dos_attributes);
    }
}

impl Pending {
    pub(crate) fn snapshot(&self, path: &RelPath) -> Snapshot {
        snapshot_of(&self.backlog, path, self.base, self.draining)
    }

    /// Appends a record that has no number. On a full disk it takes the reserve: a backlog must be
    /// able to end there.
    fn note(&mut self, path: &RelPath, record: &Record<'_>) -> std::io::Result<()> {
        let snapshot = self.snapshot(path);
        match self.log.append(record, || snapshot.clone()) {
            Err(_) if self.log.give_up_reserve() => self.log.append(record, || snapshot).map(drop),
            noted => noted.map(drop),
        }
    }

    /// Appends a record that has no number, and returns once it is on the disk.
    pub(crate) fn note_synced(&mut self, path: &RelPath, record: &Record<'_>) -> std::io::Result<()> {
        self.note(path, record)?;
        // Where a sync has failed, this note matters all the same: it may be that the backlog has ended.
        match self.log.sync(self.backlog.next) {
            Err(_) => self.log.sync_last(),
            synced => synced,
        }
    }
}

/// Returns the version of a far file.
pub(crate) fn version_of(stat: &NodeStat) -> Version {
    Version {
        id: stat.id,
        size: stat.size,
        created: stat.created,
        modified: stat.modified,
        changed: stat.changed,
    }
}

/// Backlogs whose end is remembered, at most. A guess: those that end while one folder is listed.
const ENDS_MAX: usize = 4096;

/// Counts what changes far files, and remembers the attributes at the last ends of backlogs: an
/// answer of the far store that was asked for before lacks what only the backlog had.
#[derive(Default)]
pub(crate) struct Changes {
    count: AtomicU64,
    /// The number of the last change of a name.
    names_at: AtomicU64,
    ends: Mutex<VecDeque<(u64, NodeStat)>>,
}

impl Changes {
    /// Returns the number of changes so far, to be asked before the far store is.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether what was asked for at `count` changes says of a file what it is now.
    pub(crate) fn is_current(&self, file: &File, count: u64) -> bool {
        let last = file.changed_at.load(Ordering::Acquire);
        last.max(self.names_at.load(Ordering::Acquire)) <= count
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Notes a change of a far file past the journal.
    pub(crate) fn note(&self, file: &File) {
        file.changed_at.store(self.next(), Ordering::Release);
    }

    /// Notes a change of names: it changes the times of files, too.
    pub(crate) fn note_names(&self) {
        self.names_at.store(self.next(), Ordering::Release);
    }

    /// Notes the end of a backlog, before near clients see it.
    pub(crate) fn ended(&self, file: &File, stat: &NodeStat) {
        let number = self.next();
        file.changed_at.store(number, Ordering::Release);
        let mut ends = self.ends.lock();
        if ends.len() == ENDS_MAX {
            ends.pop_front();
        }
        ends.push_back((number, *stat));
    }

    /// Returns a file's attributes at the end of its backlog, if that came after `count`.
    pub(crate) fn end_since(&self, count: u64, id: FileId) -> Option<NodeStat> {
        if self.count() == count {
            return None;
        }
        let ends = self.ends.lock();
        let later = ends.iter().rev().take_while(|(number, _)| *number > count);
        later.map(|(_, stat)| *stat).find(|stat| stat.id == id)
    }
}

/// The files by their ids.
#[derive(Default)]
pub(crate) struct Files {
    by_id: Mutex<HashMap<FileId, Arc<File>>>,
    /// The number of the last change of those that were forgotten: an answer of the far store that was
    /// asked for before says nothing of a file that is taken up again.
    forgotten_at: AtomicU64,
}

impl Files {
    /// Returns the file that a near client has opened, and counts the node.
    pub(crate) fn opened(&self, id: FileId, path: &RelPath) -> Arc<File> {
        let mut files = self.by_id.lock();
        let file = files.entry(id).or_insert_with(|| {
            let mut file = File::new(id, path);
            *file.changed_at.get_mut() = self.forgotten_at.load(Ordering::Acquire);
            Arc::new(file)
        });
        file.nodes.fetch_add(1, Ordering::AcqRel);
        Arc::clone(file)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<File>> {
        self.by_id.lock().get(&id).cloned()
    }

    pub(crate) fn insert(&self, file: &Arc<File>) {
        self.by_id.lock().insert(file.id, Arc::clone(file));
    }

    /// Takes a file out: its id may soon be another file's.
    pub(crate) fn take_out(&self, file: &Arc<File>) {
        let mut files = self.by_id.lock();
        if files.get(&file.id).is_some_and(|there| Arc::ptr_eq(there, file)) {
            files.remove(&file.id);
            self.remember_change(file);
        }
    }

    fn remember_change(&self, file: &File) {
        let last = file.changed_at.load(Ordering::Acquire);
        self.forgotten_at.fetch_max(last, Ordering::AcqRel);
    }

    /// Forgets a file that nobody has open and that has no backlog.
    pub(crate) fn forget_if_idle(&self, file: &Arc<File>) {
        let mut files = self.by_id.lock();
        if file.nodes.load(Ordering::Acquire) == 0
            && files.get(&file.id).is_some_and(|there| Arc::ptr_eq(there, file))
            && file.state.lock().pending.is_none()
        {
            files.remove(&file.id);
            self.remember_change(file);
        }
    }

    /// Returns the files that a condition selects.
    pub(crate) fn select(&self, is_wanted: impl Fn(&State) -> bool) -> Vec<Arc<File>> {
        let files = self.by_id.lock();
        let wanted = files.values().filter(|file| is_wanted(&file.state.lock()));
        wanted.cloned().collect()
    }

    /// Notes that a name was changed, and with it those of everything beneath it.
    pub(crate) fn renamed(&self, from: &RelPath, to: &RelPath) {
        for file in self.by_id.lock().values() {
            let mut state = file.state.lock();
            if let Some(rest) = beneath(&state.path, from) {
                state.path = to.join_path(&rest);
            }
        }
    }
}

/// Returns the path of a node below a folder, or the root if it is the folder itself.
pub(crate) fn beneath(path: &RelPath, folder: &RelPath) -> Option<RelPath> {
    if path == folder {
        return Some(RelPath::root());
    }
    path.strip_prefix(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a backlog would begin with attributes from before the last one, and its own data would look
    /// like a change by others.
    #[test]
    fn a_file_that_was_forgotten_does_not_take_an_older_answer_for_a_current_one() {
        let (files, changes) = (Files::default(), Changes::default());
        let id = FileId { volume: 1, index: 2 };
        let path = RelPath::parse(b"f").unwrap();
        for is_removed in [false, true] {
            let asked = changes.count();
            let file = files.opened(id, &path);
            changes.note(&file);
            file.nodes.store(0, Ordering::Release);
            match is_removed {
                true => files.take_out(&file),
                false => files.forget_if_idle(&file),
            }
            let again = files.opened(id, &path);
            assert!(!Arc::ptr_eq(&file, &again));
            assert!(!changes.is_current(&again, asked));
            assert!(changes.is_current(&again, changes.count()));
            files.take_out(&again);
        }
    }
}
