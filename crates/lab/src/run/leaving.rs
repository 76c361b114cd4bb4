//! Private folders of labs, and how a lab goes when nobody waits for it: its processes are killed and its folders removed,
//! whatever its threads are at.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::kill_descendants;

/// Of the folders' names; the id of their process follows.
pub(super) const PREFIX: &str = "ropeway-lab-";
/// How long it is tried to end processes and remove folders, while threads of the lab may make them anew. A guess.
const GONE_MAX: Duration = Duration::from_secs(10);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Folders that labs of this process have made; they may be gone.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Makes a private folder; removed when dropped, or by [`abandon`].
///
/// # Errors
/// It cannot be made there.
pub(crate) fn private_folder(parent: &Path) -> io::Result<TempDir> {
    // From before it is made, so that whoever abandons the lab knows of it.
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir_in(parent)?;
    folders.push(folder.path().to_owned());
    Ok(folder)
}

/// Kills all processes that descend from this one, and removes the folders of its labs. Threads of a lab go on meanwhile
/// and fail at everything, so whoever calls this ends the process right afterwards.
pub fn abandon() {
    // Held to the end: no lab makes another one.
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    let end = Instant::now() + GONE_MAX;
    loop {
        let were_there = kill_descendants();
        for folder in folders.iter() {
            // Whatever is made in it meanwhile goes the next time.
            _ = fs::remove_dir_all(folder);
        }
        let are_gone = folders.iter().all(|folder| !folder.exists());
        if (are_gone && !were_there) || Instant::now() >= end {
            return;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // That all is removed is shown with the program: here other tests' processes and folders would go too.
    #[test]
    fn folders_are_named_after_the_process_and_known() {
        let parent = tempfile::tempdir().unwrap();
        let folder = private_folder(parent.path()).unwrap();
        let name = folder.path().file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name.starts_with(&format!("{PREFIX}{}-", std::process::id())),
            "{name}"
        );
        let known = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(known.iter().any(|path| path == folder.path()));
        drop(known);
        assert!(private_folder(&parent.path().join("nowhere")).is_err());
    }
}
