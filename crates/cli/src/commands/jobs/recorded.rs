//! The command line of a job, stored next to its journal: `jobs resume` runs it again, and `jobs
//! rm` finds the target.
//!
//! Passwords are never part of a command line, so they are not stored.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ropeway_copy::{JobKey, private_folder, private_options};
use ropeway_vfs::RelPath;
use serde::{Deserialize, Serialize};

use crate::ends::Ends;
use crate::failure::Failure;
use crate::place::Place;

const FILE_NAME: &str = "command.json";

/// Text, or bytes if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum TextOrBytes {
    Text(String),
    Bytes(Vec<u8>),
}

impl TextOrBytes {
    fn of(text: &OsStr) -> Self {
        match text.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(text.as_bytes().to_vec()),
        }
    }

    fn text(self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredCommand {
    folder: TextOrBytes,
    arguments: Vec<TextOrBytes>,
    target_tree: TextOrBytes,
    target_paths: Vec<TextOrBytes>,
}

/// The command of a job.
#[derive(Debug)]
pub(crate) struct RecordedCommand {
    /// Folder where it was run.
    pub(crate) folder: PathBuf,
    /// Its arguments without the program.
    pub(crate) arguments: Vec<OsString>,
    target_tree: OsString,
    /// Paths of the job's roots in the target tree.
    target_paths: Vec<RelPath>,
}

impl RecordedCommand {
    /// Loads the command of the job with this id; `None` if none is stored.
    pub(crate) fn load(state_dir: &Path, id: &str) -> Option<Self> {
        let kept: StoredCommand =
            serde_json::from_slice(&fs::read(state_dir.join(id).join(FILE_NAME)).ok()?).ok()?;
        let paths = kept.target_paths.into_iter().map(TextOrBytes::text);
        Some(Self {
            folder: kept.folder.text().into(),
            arguments: kept.arguments.into_iter().map(TextOrBytes::text).collect(),
            target_tree: kept.target_tree.text(),
            target_paths: paths.filter_map(|path| RelPath::parse(path.as_bytes())).collect(),
        })
    }

    /// Returns the tree to open.
    ///
    /// # Errors
    /// The text is no longer a valid place.
    pub(crate) fn target_tree(&self) -> Result<Place, Failure> {
        Place::parse_target(Path::new(&self.target_tree))
    }

    /// Returns the folders of that tree that may contain the job's claims.
    pub(crate) fn claim_folders(&self) -> Vec<RelPath> {
        let with_parent = |path: &RelPath| path.parent().into_iter().chain([path.clone()]);
        let mut folders: Vec<RelPath> = self.target_paths.iter().flat_map(with_parent).collect();
        folders.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        folders.dedup();
        folders
    }
}

/// This process's command line, stored while its job has a journal.
pub(crate) struct CommandRecord {
    state_dir: PathBuf,
    key: JobKey,
}

impl CommandRecord {
    /// Keeps it for the job with a journal in this folder and these ends. Best effort: without it only `jobs resume` and `jobs rm` are missing.
    pub(crate) fn of(state_dir: Option<&Path>, ends: &Ends) -> Option<Self> {
        let state_dir = state_dir?.to_owned();
        if let Err(error) = keep(&state_dir, ends) {
            tracing::debug!(%error, "the command line is not kept");
        }
        let key = ends.key.clone();
        Some(Self { state_dir, key })
    }
}

impl Drop for CommandRecord {
    /// Removes it if the job is done or never started, and so has no journal.
    fn drop(&mut self) {
        if !ropeway_copy::unfinished(&self.state_dir, &self.key) {
            let folder = self.state_dir.join(self.key.id());
            _ = fs::remove_file(folder.join(FILE_NAME));
            _ = fs::remove_dir(folder);
        }
    }
}

fn keep(state_dir: &Path, ends: &Ends) -> io::Result<()> {
    let target_tree = match &ends.target_tree {
        Place::Local(path) => TextOrBytes::of(path.as_os_str()),
        Place::Remote(url) => TextOrBytes::Text(url.to_string()),
    };
    let target_paths = ends
        .sources
        .iter()
        .map(|source| TextOrBytes::of(OsStr::from_bytes(source.target_path.as_bytes())));
    let kept = StoredCommand {
        folder: TextOrBytes::of(std::env::current_dir()?.as_os_str()),
        arguments: std::env::args_os()
            .skip(1)
            .map(|argument| TextOrBytes::of(&argument))
            .collect(),
        target_tree,
        target_paths: target_paths.collect(),
    };
    let folder = state_dir.join(ends.key.id());
    // As private as the journal next to it.
    private_folder(state_dir)?;
    private_folder(&folder)?;
    let part = folder.join(format!("{FILE_NAME}.{}", std::process::id()));
    let mut file = private_options()
        .create(true)
        .write(true)
        .truncate(true)
        .open(&part)?;
    file.write_all(&serde_json::to_vec(&kept)?)?;
    fs::rename(&part, folder.join(FILE_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_argument_is_stored_and_loaded() {
        for bytes in [b"plain".as_slice(), b"\xff\xfe", b"", "gr\u{fc}n".as_bytes()] {
            let words = TextOrBytes::of(OsStr::from_bytes(bytes));
            let json = serde_json::to_vec(&words).unwrap();
            let back: TextOrBytes = serde_json::from_slice(&json).unwrap();
            assert_eq!(back.text().as_bytes(), bytes);
        }
    }
}
