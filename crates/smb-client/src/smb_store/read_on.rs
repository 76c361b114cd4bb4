//! Reads on into the next file of a folder while the last bytes of one are on their way.
//!
//! ```text
//! file a   ─────────────── reader ▷ ═ requested ═┤
//! file b                                         ├═ begun ═╪═ read on ═▷
//!                                  └───────── window ──────────────────┘
//! ```
//! Without this nothing would be on the line between the last reply of a file and the first request
//! behind the beginning of the next: a round trip for each file.
//!
//! The window is the reader's: what it does not need in its file any more, the next file may use,
//! behind its beginning, which came long ago.
//! The files have been opened by `files_ahead`, whose rules hold for all that is read of them.

use ropeway_vfs::RelPath;
use ropeway_vfs::store::NodeStat;

use super::ahead_table::Entry;
use super::shared::Shared;

/// Files considered behind the one that is read. A guess: more are small, and have been read whole.
const NEXT_MAX: usize = 4;

impl Shared {
    /// Reads `spare` bytes of the files that will probably be read after the one at `path`,
    /// which has been requested to its end.
    pub(super) fn read_on(&self, path: &RelPath, spare: u64) {
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return;
        };
        let next = self.folder_ahead.lock().after(&dir, &name, NEXT_MAX);
        let mut spare = spare;
        let mut table = self.files_ahead.0.lock();
        for (name, stat) in next {
            let entry = table.files.get_mut(&dir.join(&name));
            // One that is in use has its own reader.
            let Some(entry) = entry.filter(|entry| entry.id == stat.id) else {
                return;
            };
            if !self.extend_ahead(entry, &stat, spare) {
                return;
            }
            spare = spare.saturating_sub(entry.bytes_behind());
        }
    }

    /// Requests `spare` bytes of a file behind its beginning. Returns whether it has been requested
    /// to its end, so that the file after it has its turn.
    fn extend_ahead(&self, entry: &mut Entry, stat: &NodeStat, spare: u64) -> bool {
        // Not open yet, or not at all.
        let Some(begun) = entry.begun.get() else {
            return entry.bytes == 0;
        };
        let end = stat.size.min(begun.file.known_length());
        let upto = (begun.upto + spare).min(end);
        let more = &mut entry.opening.more;
        let mut from = more.last().map_or(begun.upto, |piece| piece.range.end);
        let block = self.block as u64;
        // Full blocks, and what is left at the end.
        while upto.saturating_sub(from) >= block || (from < upto && upto == end) {
            // A quarter is for other readers.
            let is_memory = self.ahead.available() * 4 > self.ahead.slots();
            let Some(memory) = is_memory.then(|| self.ahead.try_get()).flatten() else {
                return false;
            };
            let range = from..upto.min(from + block);
            from = range.end;
            entry.bytes = entry.bytes.max(from);
            more.push(self.request_ahead(&begun.file, memory, range));
        }
        from >= end
    }
}
