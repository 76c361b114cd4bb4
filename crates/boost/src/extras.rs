//! What clients ask of folders besides their attributes, kept for an outage. Pure and bounded.
//!
//! Files keep it in their own state. Folders have none, so it is kept here by path, with the question:
//! a later change of names or attributes there makes it unknown, as `known` tells.

use std::collections::{BTreeMap, VecDeque};

use ropeway_vfs::{FileId, RelPath};

use crate::files::Extras;
use crate::known::Question;

/// Folders kept, at most. A guess: of each up to 3 KiB, so some 12 MiB in the worst case.
const FOLDERS_MAX: usize = 4096;

/// The table.
#[derive(Default)]
pub(crate) struct FolderExtras {
    folders: BTreeMap<RelPath, Folder>,
    /// Paths in the order in which they were added.
    order: VecDeque<RelPath>,
}

struct Folder {
    id: FileId,
    /// The oldest question whose answer is kept.
    question: Question,
    extras: Extras,
}

impl FolderExtras {
    /// Returns what is kept of a folder, to be completed by the answer to `question`. What a change
    /// since has made unknown is dropped.
    pub(crate) fn place(
        &mut self,
        path: &RelPath,
        id: FileId,
        question: Question,
        is_changed_since: impl Fn(Question) -> bool,
    ) -> &mut Extras {
        if !self.folders.contains_key(path) {
            if self.order.len() >= FOLDERS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.folders.remove(&oldest);
            }
            self.order.push_back(path.clone());
        }
        let new = || Folder {
            id,
            question,
            extras: Extras::default(),
        };
        let folder = self.folders.entry(path.clone()).or_insert_with(new);
        if folder.id != id || is_changed_since(folder.question) {
            *folder = new();
        }
        &mut folder.extras
    }

    /// Returns what is kept of a folder, unless a change since has made it unknown.
    pub(crate) fn get(
        &mut self,
        path: &RelPath,
        id: FileId,
        is_changed_since: impl Fn(Question) -> bool,
    ) -> Option<&mut Extras> {
        let folder = self.folders.get_mut(path)?;
        let is_valid = folder.id == id && !is_changed_since(folder.question);
        is_valid.then_some(&mut folder.extras)
    }
}
