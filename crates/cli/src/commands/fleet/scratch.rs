//! The folder of a worker for the hashes of a slice. A killed worker leaves it; the next one removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::geteuid;
use tempfile::TempDir;

const PREFIX: &str = "ropeway-fleet-";
const LOCK: &str = "lock";
/// Age from which on a folder without a lock was left by a worker that was killed before it had one, or by a
/// version before this one.
const ABANDONED: Duration = Duration::from_secs(24 * 3_600);

/// A folder, and its lock.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: TempDir,
    /// Held as long as the folder.
    _lock: File,
}

impl Scratch {
    /// Makes a folder in `parent`, and removes there what killed workers of this user have left.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        sweep(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// What cannot be removed stays: it is small.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(PREFIX.as_bytes()) && is_left(&entry.path()) {
            // A link is not followed.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether a folder belongs to this user, and to no process that lives.
fn is_left(folder: &Path) -> bool {
    let found = match folder.symlink_metadata() {
        Ok(found) if found.is_dir() && found.uid() == geteuid().as_raw() => found,
        _ => return false,
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match open(folder.join(LOCK), flags, Mode::empty()) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(_) => {
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age > ABANDONED)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_a_killed_worker_has_left_is_removed_by_the_next_one() {
        let parent = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(parent.path()).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
        };
        let alive = Scratch::new(parent.path()).unwrap();
        let killed = Scratch::new(parent.path()).unwrap();
        fs::write(killed.path().join("slice-0"), "hashes").unwrap();
        let Scratch { folder, _lock: lock } = killed;
        let left = folder.keep();
        drop(lock);
        // Others, and one that is being made.
        let old = SystemTime::now() - 2 * ABANDONED;
        for (name, is_old) in [
            ("another", true),
            ("ropeway-fleet-new", false),
            ("ropeway-fleet-old", true),
        ] {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            if is_old {
                File::open(&folder).unwrap().set_modified(old).unwrap();
            }
        }
        let next = Scratch::new(parent.path()).unwrap();
        let mut expected: Vec<_> = ["another", "ropeway-fleet-new"]
            .map(|name| parent.path().join(name))
            .into();
        expected.extend([alive.path().to_owned(), next.path().to_owned()]);
        let mut found = names();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        assert!(!left.exists());
    }
}
