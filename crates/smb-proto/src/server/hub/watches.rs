//! The watched folders and the changes kept for them.

use std::collections::{BTreeSet, HashMap, VecDeque};

use ropeway_smb_wire::change_notify::{CompletionFilter, FileNotifyInformation};
use ropeway_smb_wire::upcase::fold;
use ropeway_smb_wire::{NtStatus, Text};

use super::ids::{OpenId, WaiterId};

/// The watch of one open.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) place: (u32, Text),
    pub(super) filter: CompletionFilter,
    pub(super) recursive: bool,
    pub(super) bytes_max: usize,
    pub(super) changes: Vec<FileNotifyInformation>,
    pub(super) bytes: usize,
    pub(super) overflown: bool,
    pub(super) waiters: VecDeque<(WaiterId, usize)>,
}

/// All watches, by open and by share and upper-case path.
#[derive(Debug, Default)]
pub(super) struct Watches {
    pub(super) watches: HashMap<OpenId, Watch>,
    pub(super) places: HashMap<(u32, Text), BTreeSet<OpenId>>,
}

impl Watches {
    pub(super) fn stop_waiting(&mut self, open: OpenId, waiter: WaiterId) {
        if let Some(watch) = self.watches.get_mut(&open) {
            watch.waiters.retain(|(other, _)| *other != waiter);
        }
    }

    pub(super) fn insert(&mut self, open: OpenId, watch: Watch) {
        self.places.entry(watch.place.clone()).or_default().insert(open);
        self.watches.insert(open, watch);
    }

    pub(super) fn remove(&mut self, open: OpenId) -> Option<Watch> {
        let watch = self.watches.remove(&open)?;
        if let Some(opens) = self.places.get_mut(&watch.place) {
            opens.remove(&open);
            if opens.is_empty() {
                self.places.remove(&watch.place);
            }
        }
        Some(watch)
    }

    /// Changes the path of an open's folder after a rename.
    pub(super) fn set_path(&mut self, open: OpenId, path: &Text) {
        if let Some(mut watch) = self.remove(open) {
            watch.place.1 = fold(path);
            self.insert(open, watch);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty() && self.places.is_empty()
    }
}

impl Watch {
    /// Takes the kept changes for a response of at most `output_max` bytes. Returns `None` if there
    /// are none.
    pub(super) fn take(&mut self, output_max: usize) -> Option<(NtStatus, Vec<FileNotifyInformation>)> {
        if self.changes.is_empty() && !self.overflown {
            return None;
        }
        let changes = std::mem::take(&mut self.changes);
        let bytes = std::mem::take(&mut self.bytes);
        if std::mem::take(&mut self.overflown) || bytes > output_max.min(self.bytes_max) {
            return Some((NtStatus::NOTIFY_ENUM_DIR, Vec::new()));
        }
        Some((NtStatus::SUCCESS, changes))
    }

    pub(super) fn keep(&mut self, change: FileNotifyInformation, bytes_max: usize) {
        self.bytes += wire_len(&change);
        if self.overflown || self.bytes > bytes_max {
            self.overflow();
        } else {
            self.changes.push(change);
        }
    }

    pub(super) fn overflow(&mut self) {
        self.overflown = true;
        self.changes = Vec::new();
        self.bytes = 0;
    }
}

/// Returns the length of a FILE_NOTIFY_INFORMATION with its padding ([MS-FSCC] 2.7.1), in bytes.
fn wire_len(change: &FileNotifyInformation) -> usize {
    (12 + change.file_name.wire_len()).next_multiple_of(4)
}
