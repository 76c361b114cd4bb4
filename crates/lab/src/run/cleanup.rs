//! Private folders of labs, and the removal of everything when a lab is abandoned: its processes are
//! killed and its folders removed, whatever its threads do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::process::kill_descendants;

/// Prefix of the names of laboratories' folders; the id of their process follows.
pub(crate) const PREFIX: &str = "ropeway-lab-";
/// Time for ending processes and removing folders while threads of the lab may create new ones. A
/// guess.
const GONE_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Folders that labs of this process have created; some may be gone.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Creates a private folder whose name begins with `prefix`; it is removed on drop or by [`abandon`].
///
/// # Errors
/// It cannot be created there.
pub(crate) fn private_folder(parent: &Path, prefix: &str) -> io::Result<TempDir> {
    // Locked before the folder is created, so that `abandon` knows of every folder.
    let mut folders = FOLDERS.lock();
    let folder = tempfile::Builder::new()
        .prefix(&format!("{prefix}{}-", std::process::id()))
        .tempdir_in(parent)?;
    folders.push(folder.path().to_owned());
    Ok(folder)
}

/// Kills all descendants of this process and removes the folders of its labs. Threads of a lab go on
/// and fail at everything, so the caller must end the process right afterwards.
pub fn abandon() {
    // Held to the end, so that no lab creates another folder.
    let folders = FOLDERS.lock();
    let end = Instant::now() + GONE_MAX;
    loop {
        let were_there = kill_descendants();
        for folder in folders.iter() {
            // The next attempt removes what is created meanwhile.
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

    // The command's tests show that everything is removed. Here it would end other tests' processes.
    #[test]
    fn folders_are_named_after_the_process_and_known() {
        let parent = tempfile::tempdir().unwrap();
        let folder = private_folder(parent.path(), PREFIX).unwrap();
        let name = folder.path().file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            name.starts_with(&format!("{PREFIX}{}-", std::process::id())),
            "{name}"
        );
        let known = FOLDERS.lock();
        assert!(known.iter().any(|path| path == folder.path()));
        drop(known);
        assert!(private_folder(&parent.path().join("nowhere"), PREFIX).is_err());
    }
}
