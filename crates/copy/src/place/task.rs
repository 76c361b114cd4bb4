//! A node to copy: its source, its name on the target, and what stands there.

use std::sync::Arc;

use ropeway_plan::Locality;
use ropeway_vfs::{FileId, Metadata, Name, RelPath};

use crate::journal::token::{Token, token_of};
use crate::place::folder::Folder;

/// A file to copy.
#[derive(Clone)]
pub(crate) struct FileTask {
    pub(crate) folder: Arc<Folder>,
    pub(crate) source_path: RelPath,
    /// Its name on the target.
    pub(crate) name: Name,
    pub(crate) metadata: Metadata,
    /// What stands under the name now.
    pub(crate) existing: Option<Metadata>,
    /// Whether what stands there looks like a copy that an earlier run made and that may lack data.
    /// It must not replace a backup.
    pub(crate) existing_is_own: bool,
    /// The identity of the file, if other names of it wait for this copy.
    pub(crate) link: Option<FileId>,
}

impl FileTask {
    pub(crate) fn token(&self) -> Token {
        token_of(self.folder.root().index, &self.source_path)
    }

    /// Returns where its data is kept.
    pub(crate) fn locality(&self) -> Locality {
        match self.folder.root().root.source.capabilities().on_network {
            true => Locality::Remote,
            false => Locality::Local,
        }
    }

    /// Whether a folder stands where this node goes. A mirror removes it when the copy is complete.
    pub(crate) fn is_blocked(&self) -> bool {
        self.existing.as_ref().is_some_and(Metadata::is_dir) && !self.metadata.is_dir()
    }

    /// Returns its final path on the target.
    pub(crate) fn final_path(&self) -> RelPath {
        self.folder.shown(&self.name)
    }

    /// Returns the path of the source for messages.
    pub(crate) fn shown_source(&self) -> RelPath {
        self.folder.root().shown(&self.source_path)
    }

    /// Returns the path for messages about the target: the final path, with the name that the user knows if it had
    /// to be mapped.
    pub(crate) fn shown(&self) -> RelPath {
        let known = self.source_path.file_name().filter(|name| {
            self.folder
                .root()
                .names
                .map(name)
                .is_ok_and(|mapped| mapped.changed && mapped.name == self.name)
        });
        self.folder.shown(known.as_ref().unwrap_or(&self.name))
    }
}
