//! The command line of a job, kept beside its journal: what `jobs resume` runs again, and where its target is.
//!
//! Passwords are never part of a command line, so they are not part of this.

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

/// Text, or bytes where it is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    Bytes(Vec<u8>),
}

impl Words {
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
struct Command {
    folder: Words,
    arguments: Vec<Words>,
    target_tree: Words,
    target_paths: Vec<Words>,
}

/// The command of a job.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// Where it was run.
    pub(crate) folder: PathBuf,
    /// Without the program.
    pub(crate) arguments: Vec<OsString>,
    target_tree: OsString,
    /// Where its roots go, on the target tree.
    target_paths: Vec<RelPath>,
}

impl Recorded {
    /// The command of the job with this id; `None` if none is kept.
    pub(crate) fn load(state_dir: &Path, id: &str) -> Option<Self> {
        let kept: Command =
            serde_json::from_slice(&fs::read(state_dir.join(id).join(FILE_NAME)).ok()?).ok()?;
        let paths = kept.target_paths.into_iter().map(Words::text);
        Some(Self {
            folder: kept.folder.text().into(),
            arguments: kept.arguments.into_iter().map(Words::text).collect(),
            target_tree: kept.target_tree.text(),
            target_paths: paths.filter_map(|path| RelPath::parse(path.as_bytes())).collect(),
        })
    }

    /// The tree to open.
    ///
    /// # Errors
    /// It is no place any more.
    pub(crate) fn target_tree(&self) -> Result<Place, Failure> {
        Place::parse_target(Path::new(&self.target_tree))
    }

    /// Folders of that tree in which the job's claims may lie.
    pub(crate) fn claim_folders(&self) -> Vec<RelPath> {
        let with_parent = |path: &RelPath| path.parent().into_iter().chain([path.clone()]);
        let mut folders: Vec<RelPath> = self.target_paths.iter().flat_map(with_parent).collect();
        folders.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        folders.dedup();
        folders
    }
}

/// This process's command line, kept for the time that its job has a journal.
pub(crate) struct Kept {
    state_dir: PathBuf,
    key: JobKey,
}

impl Kept {
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

impl Drop for Kept {
    /// A job that is done, or that never began, has no journal.
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
        Place::Local(path) => Words::of(path.as_os_str()),
        Place::Remote(url) => Words::Text(url.to_string()),
    };
    let target_paths = ends
        .sources
        .iter()
        .map(|source| Words::of(OsStr::from_bytes(source.target_path.as_bytes())));
    let kept = Command {
        folder: Words::of(std::env::current_dir()?.as_os_str()),
        arguments: std::env::args_os()
            .skip(1)
            .map(|argument| Words::of(&argument))
            .collect(),
        target_tree,
        target_paths: target_paths.collect(),
    };
    let folder = state_dir.join(ends.key.id());
    // As private as the journal that comes beside it.
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
    fn any_argument_is_kept() {
        for bytes in [b"plain".as_slice(), b"\xff\xfe", b"", "gr\u{fc}n".as_bytes()] {
            let words = Words::of(OsStr::from_bytes(bytes));
            let json = serde_json::to_vec(&words).unwrap();
            let back: Words = serde_json::from_slice(&json).unwrap();
            assert_eq!(back.text().as_bytes(), bytes);
        }
    }
}
