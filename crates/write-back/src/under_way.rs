//! Files with a round under way, and the notes in their journals that data are still on their way.
//!
//! A later process tells by the last note whether the far file was changed by this one or by others. So
//! somebody writes it who waits for no far server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_vfs::{FileId, Timestamp};

use crate::files::File;
use crate::record::Record;
use crate::shared::Shared;

/// Time between the notes of a file.
const TICK: Duration = Duration::from_secs(1);
/// What waits for replies may arrive after the process has ended: as much later as it has waited already, at
/// most this. Others' changes within that time are taken for its own.
const LEAD_MAX: Duration = Duration::from_secs(30);

/// The files with a round under way.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<HashMap<FileId, (Arc<File>, Instant)>>);

/// A round, until it is dropped.
pub(crate) struct RoundUnderWay<'a> {
    all: &'a UnderWay,
    file: FileId,
}

impl UnderWay {
    /// Notes that a round of a file begins.
    pub(crate) fn begin(&self, file: &Arc<File>) -> RoundUnderWay<'_> {
        let of_file = (Arc::clone(file), Instant::now());
        self.0.lock().insert(file.id, of_file);
        RoundUnderWay {
            all: self,
            file: file.id,
        }
    }

    /// Notes that the far server has answered all that was sent of a file.
    pub(crate) fn answered(&self, file: &File) {
        if let Some((_, since)) = self.0.lock().get_mut(&file.id) {
            *since = Instant::now();
        }
    }
}

impl Drop for RoundUnderWay<'_> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.file);
    }
}

impl Shared {
    /// Starts the thread that writes the notes.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn note_rounds(self: &Arc<Self>) -> std::io::Result<()> {
        self.every(TICK, "write-back-notes", Self::tick_all)
    }

    fn tick_all(&self) {
        let all: Vec<_> = self.under_way.0.lock().values().cloned().collect();
        for (file, since) in all {
            self.tick(&file, since.elapsed().min(LEAD_MAX));
        }
    }

    /// Notes that data are still on their way, and may be for `lead` after the end of the process.
    pub(crate) fn tick(&self, file: &File, lead: Duration) {
        let at = Timestamp(self.far_now().0 + lead.as_nanos() as i128);
        let mut state = file.state.lock();
        let path = state.path.clone();
        if state.is_removed {
            return;
        }
        // A round that has ended meanwhile has said so in the journal.
        let pending = state.pending.as_mut();
        if let Some(pending) = pending.filter(|pending| pending.draining.is_some()) {
            pending.draining = Some(at);
            // At worst a conflict after a crash.
            let _ = pending.note_synced(&path, &Record::Draining { at, begins: false });
        }
    }
}
