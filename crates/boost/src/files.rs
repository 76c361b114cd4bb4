//! The files that the store knows something of. Bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_cache::FileKey;
use ropeway_vfs::store::{StreamInfo, Versioning};
use ropeway_vfs::{FileId, Xattr};

use crate::coherence::Coherence;
use crate::rates::Streams;

/// Files remembered, at most; some 400 bytes each.
const FILES_MAX: usize = 65_536;

/// What is known of a file, shared by its nodes.
pub(crate) struct FileState {
    pub(crate) key: FileKey,
    pub(crate) coherence: Mutex<Coherence>,
    pub(crate) streams: Mutex<Streams>,
    /// Whether all of it is to be kept.
    pub(crate) is_pinned: AtomicBool,
    /// What else the source said of it, and when it was asked.
    pub(crate) extras: Mutex<Extras>,
    /// Whether it waits to be confirmed.
    pub(crate) is_confirming: AtomicBool,
}

/// What clients ask of a file besides its attributes and content.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) eas: Option<(Duration, Vec<Xattr>)>,
    pub(crate) streams: Option<(Duration, Vec<StreamInfo>)>,
    pub(crate) security: Option<(Duration, Option<Vec<u8>>)>,
}

/// The table.
#[derive(Default)]
pub(crate) struct Files {
    table: Mutex<HashMap<FileId, Arc<FileState>>>,
    questions: AtomicU64,
    is_full: AtomicBool,
}

impl Files {
    /// Returns the number of a question to the source that is asked now.
    pub(crate) fn ask(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::AcqRel)
    }

    /// Whether there were too many changed files to remember: then no file may be cached.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Returns the state of a file that has one.
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileState>> {
        self.table.lock().get(&id).cloned()
    }

    /// Returns the state of a file. `forget` is called before states are removed to make room.
    pub(crate) fn of(
        &self,
        id: FileId,
        key: FileKey,
        now: Duration,
        source: Option<&Versioning>,
        forget: impl FnOnce(),
    ) -> Arc<FileState> {
        let mut table = self.table.lock();
        if let Some(file) = table.get(&id) {
            return Arc::clone(file);
        }
        if table.len() >= FILES_MAX {
            forget();
            table.retain(|_, file| {
                let forgettable = |source| file.coherence.lock().is_forgettable(now, source);
                Arc::strong_count(file) > 1 || !source.is_some_and(forgettable)
            });
        }
        let file = Arc::new(FileState {
            key,
            coherence: Mutex::default(),
            streams: Mutex::default(),
            is_pinned: AtomicBool::new(false),
            extras: Mutex::default(),
            is_confirming: AtomicBool::new(false),
        });
        if table.len() >= FILES_MAX {
            self.is_full.store(true, Ordering::Release);
        } else {
            table.insert(id, Arc::clone(&file));
        }
        file
    }
}
