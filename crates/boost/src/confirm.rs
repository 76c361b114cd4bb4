//! Confirms what was kept, and watches for the end of an outage: one thread for each source that
//! may be lost.
//!
//! While the source is lost, blocks of a file are given out only if the source reported their
//! version once more after the last of them was kept (`coherence`, rule 6). Where nobody asks for
//! the attributes of a file that was read, this thread does, some two seconds after the last read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::store::NodeOpen;
use ropeway_vfs::{RelPath, patience};

use crate::files::FileState;
use crate::store::StoreShared;

/// Files that wait to be confirmed, at most. Others are not read while the source is lost until a
/// program asks for their attributes.
const WAITING_MAX: usize = 16_384;
/// Time between two looks. A guess: an outage that ends is noticed after half of it.
const PAUSE: Duration = Duration::from_millis(250);
/// Questions in a row before the session's end is looked for.
const BATCH: usize = 64;

/// The files that wait.
#[derive(Default)]
pub(crate) struct Confirmer(Mutex<VecDeque<Waiting>>);

struct Waiting {
    file: Arc<FileState>,
    path: RelPath,
    link_itself: bool,
}

/// Marks a file as one that does not wait any more when it is dropped.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Confirmer {
    /// Adds a file of which a block was kept.
    pub(crate) fn add(&self, file: &Arc<FileState>, path: &RelPath, link_itself: bool) {
        if file.is_confirming.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.len() >= WAITING_MAX {
            file.is_confirming.store(false, Ordering::Release);
            return;
        }
        waiting.push_back(Waiting {
            file: Arc::clone(file),
            path: path.clone(),
            link_itself,
        });
    }
}

/// Starts the thread. It ends with the store or the session.
pub(crate) fn start(store: &Arc<StoreShared>) {
    let store = Arc::downgrade(store);
    let thread = std::thread::Builder::new().name("boost-offline".into());
    if let Err(error) = thread.spawn(move || run(&store)) {
        tracing::warn!(%error, "no thread: files that were read now cannot be read while the source is lost");
    }
}

fn run(store: &Weak<StoreShared>) {
    while let Some(store) = store.upgrade() {
        let boost = Arc::clone(&store.boost.shared);
        if boost.is_closed() {
            return;
        }
        if !store.is_lost() {
            store.confirm();
        }
        // The store must not live on for this thread alone.
        drop(store);
        boost.wait(PAUSE);
    }
}

impl StoreShared {
    /// Asks for the attributes of the files that are due.
    fn confirm(&self) {
        let Some(offline) = &self.offline else { return };
        // A statement of its own: in the loop's head the lock would be held for the whole loop.
        let count = self.confirmer.0.lock().len().min(BATCH);
        for _ in 0..count {
            let Some(waiting) = self.confirmer.0.lock().pop_front() else {
                return;
            };
            let due = waiting.file.coherence.lock().to_confirm(offline.memory);
            match due {
                Some(due) if due > self.boost.shared.now() => {
                    self.confirmer.0.lock().push_back(waiting);
                }
                Some(_) => {
                    let _done = Done(&waiting.file.is_confirming);
                    self.confirm_one(&waiting);
                }
                None => drop(Done(&waiting.file.is_confirming)),
            }
        }
    }

    fn confirm_one(&self, waiting: &Waiting) {
        let how = NodeOpen {
            link_itself: waiting.link_itself,
            ..NodeOpen::default()
        };
        let question = self.question();
        let asked = patience::impatiently(|| self.inner.open(&waiting.path, &how));
        // Another file may have the name by now: then this one stays unconfirmed.
        if let Ok(opened) = asked
            && self.file_key(&opened.stat) == Some(waiting.file.key)
        {
            self.learn(&waiting.file, (question.number, question.at), &opened.stat);
        }
    }
}
