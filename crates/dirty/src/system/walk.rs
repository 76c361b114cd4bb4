//! Dirty files below a folder, whether a process has them open or not.
//!
//! A file that `cp` closed a second ago is dirty, and no process has it open. Only files that changed
//! lately are opened: dirty pages give a file a new change time. The walk stays on one file system,
//! follows no links and is bounded.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::open_files::open_regular;
use crate::reading::FileReading;

/// Most entries of folders that are looked at.
const ENTRIES_MAX: u64 = 200_000;
/// Most folders that wait to be entered.
const FOLDERS_MAX: usize = 50_000;
/// Longest time of a walk.
const WALK_MAX: Duration = Duration::from_secs(2);
/// Age of a change after which a file counts as written back. A guess: a stick of 1 MB/s takes 7 GB
/// in two hours, more than most machines let become dirty.
const CHANGED_WITHIN: Duration = Duration::from_secs(2 * 3600);

/// What a walk finds.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) files: Vec<FileReading>,
    pub(crate) seen: u64,
    pub(crate) cut_short: Option<String>,
}

/// Looks for dirty files below a folder, or at a single file.
pub(crate) fn walk(root: &Path, bdi: &str) -> Walk {
    let begun = Instant::now();
    let mut walk = Walk::default();
    let Ok(metadata) = fs::metadata(root) else {
        return walk;
    };
    if metadata.is_file() {
        walk.seen = 1;
        walk.files.extend(dirty(root, bdi));
        return walk;
    }
    let after = SystemTime::now()
        .checked_sub(CHANGED_WITHIN)
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
        .map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        // A folder may be removed meanwhile.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            walk.seen += 1;
            if walk.seen > ENTRIES_MAX || begun.elapsed() > WALK_MAX {
                walk.cut_short = Some(format!(
                    "only {} names below {} were looked at",
                    walk.seen - 1,
                    root.display()
                ));
                return walk;
            }
            let Ok(node) = entry.metadata() else { continue };
            if node.dev() != metadata.dev() {
                continue;
            }
            if node.is_dir() {
                keep(&mut folders, entry.path(), &mut walk.cut_short);
            } else if node.is_file() && node.size() > 0 && node.ctime() >= after {
                walk.files.extend(dirty(&entry.path(), bdi));
            }
        }
    }
    walk
}

fn keep(folders: &mut Vec<PathBuf>, folder: PathBuf, cut_short: &mut Option<String>) {
    if folders.len() < FOLDERS_MAX {
        folders.push(folder);
    } else {
        cut_short.get_or_insert_with(|| "some folders were not looked at".to_owned());
    }
}

fn dirty(path: &Path, bdi: &str) -> Option<FileReading> {
    let file = open_regular(path).ok()?;
    let [dirty_bytes, writeback_bytes] = ropeway_local::unflushed(file.as_fd()).ok()?;
    (dirty_bytes | writeback_bytes != 0).then(|| FileReading {
        path: path.to_owned(),
        bdi: bdi.to_owned(),
        dirty_bytes,
        writeback_bytes,
        pids: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_counted_and_missing_folders_are_empty() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/file"), [1; 20_000]).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        let found = walk(folder.path(), "7:0");
        assert_eq!((found.seen, found.cut_short), (4, None));
        assert!(found.files.iter().all(|file| file.path.ends_with("a/b/file")));
        assert_eq!(walk(Path::new("/does/not/exist"), "7:0").seen, 0);
    }
}
