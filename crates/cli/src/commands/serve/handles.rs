//! Where the journals of persistent handles lie: a folder for each shared folder with `:ca`.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_smb_server::{HandleJournal, HandleJournalError};

use super::shares::RequestedShare;
use crate::boot;
use crate::failure::{Failure, code};

/// Opens the journal of a folder, which is given by its canonical path. `base` is where the journals lie
/// if a flag says so.
///
/// # Errors
/// Another server uses it, or it cannot be read or written.
pub(super) fn start(folder: &Path, base: Option<&Path>) -> Result<Arc<HandleJournal>, Failure> {
    let base = match base {
        Some(base) => base.to_path_buf(),
        None => boot::handles_folder().ok_or_else(|| {
            Failure::usage(format!(
                "{} is to keep handles, but there is no home folder",
                folder.display()
            ))
            .hint("say where: --handles DIR")
        })?,
    };
    let place = place_of(&base, folder);
    let journal = HandleJournal::open(&place).map_err(|error| {
        let (code, hint) = match &error {
            HandleJournalError::InUse => (
                code::TARGET,
                "stop the other server, or give each its own with --handles",
            ),
            HandleJournalError::Exposed => (
                code::PERMISSION,
                "remove it, or name another place with --handles",
            ),
            HandleJournalError::Io(_) => (
                code::TARGET,
                "choose a place that this user can write with --handles",
            ),
        };
        let what = format!(
            "cannot keep the handles of {} in {}: {error}",
            folder.display(),
            place.display()
        );
        Failure::new(code, what).hint(hint)
    })?;
    note_folder(&place, folder);
    Ok(Arc::new(journal))
}

/// Returns the folder of a journal: named after the path of the shared folder, which may be too long for
/// a name.
fn place_of(base: &Path, folder: &Path) -> PathBuf {
    let hash = blake3::hash(folder.as_os_str().as_bytes()).to_hex();
    base.join(&hash[..32])
}

/// Writes down for people whose handles a journal keeps.
fn note_folder(place: &Path, folder: &Path) {
    let mut options = fs::OpenOptions::new();
    let note = options.write(true).create(true).truncate(true).mode(0o600);
    let written = note.open(place.join("folder")).and_then(|mut file| {
        file.write_all(folder.as_os_str().as_bytes())?;
        file.write_all(b"\n")
    });
    if let Err(error) = written {
        tracing::warn!(%error, "cannot note the folder beside its handles");
    }
}

/// Checks that the shares with `:ca` stay the same: journals are read when the server starts.
///
/// # Errors
/// They do not.
pub(super) fn check_reload(before: &[RequestedShare], wanted: &[RequestedShare]) -> Result<(), Failure> {
    let lists = |all: &[RequestedShare]| {
        let available = all.iter().filter(|share| share.available);
        let mut list: Vec<_> = available
            .map(|share| (share.name.clone(), share.place.to_string()))
            .collect();
        list.sort();
        list
    };
    match lists(before) == lists(wanted) {
        true => Ok(()),
        false => Err(Failure::usage(
            "shares with :ca are added, changed and removed by a restart only",
        )),
    }
}
