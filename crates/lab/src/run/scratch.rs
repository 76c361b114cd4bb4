//! One private folder for works and copies: in memory where that has room, and removed at the end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::LabError;
use super::cleanup::{PREFIX, private_folder};
use super::machine::memory_available;
use crate::work::Plan;

/// Room that is left to other programs, in bytes (a guess).
const MARGIN_BYTES: u64 = 512 << 20;

/// The folder; removed on drop.
#[derive(Debug)]
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    /// The folder on a disk, where one was asked for.
    on_disk: Mutex<Option<tempfile::TempDir>>,
    /// Whether the folder is in memory.
    pub(super) in_memory: bool,
    /// Bytes that copies may take at a time.
    pub(super) room_bytes: u64,
}

impl Scratch {
    /// Creates the folder where all works and one copy of the biggest have room.
    ///
    /// # Errors
    /// No place has room, or the folder cannot be created.
    pub(super) fn new(plans: &[Plan]) -> Result<Self, LabError> {
        let works: u64 = plans.iter().map(Plan::bytes).sum();
        let biggest = plans.iter().map(Plan::bytes).max().unwrap_or(0);
        let needed = works + biggest + biggest / 4 + MARGIN_BYTES;
        let places = [(PathBuf::from("/dev/shm"), true), (std::env::temp_dir(), false)];
        for (parent, in_memory) in places {
            remove_leftovers(&parent);
            let Ok(free) = free_bytes(&parent, in_memory) else {
                continue;
            };
            if free < needed {
                continue;
            }
            let Ok(folder) = private_folder(&parent, PREFIX) else {
                continue;
            };
            return Ok(Self {
                folder,
                on_disk: Mutex::default(),
                in_memory,
                room_bytes: free - works - MARGIN_BYTES,
            });
        }
        Err(LabError::NoRoom { needed })
    }

    /// Path of an entry.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Path of an entry of the folder for temporary files, which is on a disk as a rule.
    ///
    /// # Errors
    /// A folder cannot be created there.
    pub(super) fn on_disk(&self, name: &str) -> io::Result<PathBuf> {
        let mut folder = self.on_disk.lock();
        let known = match folder.take() {
            Some(known) => known,
            None => private_folder(&std::env::temp_dir(), PREFIX)?,
        };
        let path = known.path().join(name);
        *folder = Some(known);
        Ok(path)
    }

    /// Path of a work.
    pub(super) fn source(&self, plan: &Plan) -> PathBuf {
        self.at("works").join(plan.work.name())
    }
}

fn free_bytes(parent: &Path, in_memory: bool) -> io::Result<u64> {
    let state = rustix::fs::statvfs(parent)?;
    let free = state.f_bavail.saturating_mul(state.f_frsize);
    // Files in memory take memory; a fifth stays for programs.
    Ok(if in_memory {
        free.min(memory_available() / 5 * 4)
    } else {
        free
    })
}

/// Removes the folders of labs that were killed, which hold gigabytes.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some((id, _)) = rest.and_then(|rest| rest.split_once('-')) else {
            continue;
        };
        let dead = id.parse::<u32>().is_ok() && !Path::new("/proc").join(id).exists();
        if dead && let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::debug!(%error, path = %entry.path().display(), "an old folder stays");
        }
    }
}

/// Empties a folder, or creates it. The folder itself stays, since servers hold it open.
///
/// # Errors
/// A system call fails.
pub fn empty(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let removed = match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path()),
            false => fs::remove_file(entry.path()),
        };
        // A server may have removed it meanwhile.
        removed.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::work::Work;

    #[test]
    fn folders_of_dead_processes_are_removed_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut dead = Command::new("true").spawn().unwrap();
        let id = dead.id();
        dead.wait().unwrap();
        let own = format!("{PREFIX}{}-x", std::process::id());
        let gone = format!("{PREFIX}{id}-x");
        for name in [own.as_str(), gone.as_str(), PREFIX, "else-1-x"] {
            fs::create_dir_all(folder.path().join(name).join("near")).unwrap();
        }
        remove_leftovers(folder.path());
        assert!(!folder.path().join(gone).exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_lab_needs_room_for_its_works() {
        let scratch = Scratch::new(&[Work::Small3000.plan(1, 0.01)]).unwrap();
        assert!(scratch.room_bytes > 0 && scratch.at("").is_dir());
        let mut plan = Work::File100mb.plan(1, 1.0);
        plan.entries[0].bytes = 1 << 60;
        assert!(matches!(Scratch::new(&[plan]), Err(LabError::NoRoom { .. })));
    }
}
