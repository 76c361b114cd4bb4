//! Keeps lists of block hashes between runs.
//!
//! ```text
//!   FOLDER/HASH.list     the hashes of the blocks of one file of a target
//!   FOLDER/HASH.stamp    what the target said of the file when all of it was durable, and the hash of the list
//! ```
//!
//! `HASH` is that of the target and the file's path. Without its stamp a list is worth nothing. The stamp goes,
//! durably, before anything is written to the file, and comes back when all of the job is durable. So what an
//! interrupted run left in a file is never taken for what the list says.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ropeway_vfs::{FileId, Kind, Metadata, RelPath, Timestamp};
use serde::{Deserialize, Serialize};

use super::list::BlockList;
use crate::private::{private_folder, private_options};

const LIST: &str = "list";
const STAMP: &str = "stamp";
/// Largest number of lists that are kept, and bytes of all of them: the oldest go first. Guesses.
pub(crate) const LISTS_MAX: usize = 1000;
const BYTES_MAX: u64 = 1 << 30;
/// Largest difference of a modification time that a target rounds (FAT: 2 s).
const GRAIN_NS: u128 = 2_000_000_000;
/// Largest stamp that is read, in bytes.
const STAMP_MAX: u64 = 4096;

/// Where lists of block hashes of one target are kept.
#[derive(Clone, Debug)]
pub struct KeptBlocks {
    folder: PathBuf,
    target: String,
}

/// What the target said of a file that is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    size: u64,
    modified: Timestamp,
    /// Of the content or the attributes, by the clock of the target. No program can set it, except on Samba's
    /// shares, which show the modification time instead.
    changed: Timestamp,
    id: Option<FileId>,
    /// The BLAKE3 hash of the list's bytes.
    list: String,
}

impl Stamp {
    /// Whether the target shows the modification time as change time, so that a program may have set it.
    pub(crate) fn has_no_change_time(&self) -> bool {
        self.changed == self.modified
    }

    /// Makes the stamp of a file as it is; `None` where the target does not tell when a file was changed.
    fn of(found: &Metadata, list: &str) -> Option<Self> {
        Some(Self {
            size: found.size,
            modified: found.modified.known()?,
            changed: found.changed?,
            id: found.id,
            list: list.to_owned(),
        })
    }

    /// Whether a file is as it was.
    pub(crate) fn is_of(&self, found: &Metadata) -> bool {
        found.kind == Kind::File && Self::of(found, &self.list).is_some_and(|now| now == *self)
    }
}

/// A list whose file is not durable yet.
#[derive(Clone, Debug)]
pub(crate) struct StagedList {
    pub(crate) path: RelPath,
    /// Size and modification time that the file got.
    pub(crate) size: u64,
    pub(crate) modified: Option<Timestamp>,
    /// What the target said of a file that had its final name when it was complete.
    pub(crate) stamp: Option<Stamp>,
    list: String,
}

impl StagedList {
    /// Whether a file is as this job left it, as far as that can be known.
    pub(crate) fn is_of(&self, found: &Metadata) -> bool {
        match &self.stamp {
            Some(stamp) => stamp.is_of(found),
            None => {
                found.size == self.size
                    && self
                        .modified
                        .is_none_or(|modified| found.modified.0.abs_diff(modified.0) <= GRAIN_NS)
            }
        }
    }
}

impl KeptBlocks {
    /// Keeps the lists of a target in `folder`, which is made when it is needed. `target` names the target
    /// tree, e.g. by its URL.
    pub fn new(folder: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        Self {
            folder: folder.into(),
            target: target.into(),
        }
    }

    fn place(&self, path: &RelPath, what: &str) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.target.as_bytes());
        hasher.update(&[0]);
        hasher.update(path.as_bytes());
        let name = hasher.finalize().to_hex();
        self.folder.join(format!("{}.{what}", &name[..32]))
    }

    /// Takes the stamp of a file: it is gone, and stays gone, when this returns. `None` if there is none.
    ///
    /// # Errors
    /// It cannot be removed, so that nothing may be written to the file.
    pub(crate) fn take_stamp(&self, path: &RelPath) -> io::Result<Option<Stamp>> {
        let place = self.place(path, STAMP);
        let size = match fs::symlink_metadata(&place) {
            Ok(metadata) => metadata.len(),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                // A removal that was not durable would be undone by a power cut.
                return match File::open(&self.folder) {
                    Ok(folder) => folder.sync_all().map(|()| None),
                    Err(_) => Ok(None),
                };
            }
            Err(error) => return Err(error),
        };
        let text = (size <= STAMP_MAX).then(|| fs::read(&place)).transpose();
        fs::remove_file(&place)?;
        File::open(&self.folder)?.sync_all()?;
        let text = text.ok().flatten().unwrap_or_default();
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Reads the list of a stamp; `None` if there is none, or another one.
    pub(crate) fn list(&self, path: &RelPath, stamp: &Stamp) -> Option<BlockList> {
        let bytes = fs::read(self.place(path, LIST)).ok()?;
        (blake3::hash(&bytes).to_hex().as_str() == stamp.list)
            .then(|| BlockList::from_bytes(stamp.size, &bytes))
            .flatten()
    }

    /// Writes the list of a file. It is worth nothing before [`Self::keep`].
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn stage(
        &self,
        path: &RelPath,
        list: &BlockList,
        (modified, found): (Option<Timestamp>, Option<Metadata>),
    ) -> io::Result<StagedList> {
        private_folder(&self.folder)?;
        let bytes = list.to_bytes();
        let mut options = private_options();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.place(path, LIST))?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        let hash = blake3::hash(&bytes).to_hex().to_string();
        Ok(StagedList {
            path: path.clone(),
            size: list.size(),
            modified,
            stamp: found.and_then(|found| Stamp::of(&found, &hash)),
            list: hash,
        })
    }

    /// Keeps a staged list for the next run. `found`: the file, which is durable, as the target shows it now.
    ///
    /// # Errors
    /// The stamp cannot be written.
    pub(crate) fn keep(&self, staged: &StagedList, found: &Metadata) -> io::Result<()> {
        let Some(stamp) = Stamp::of(found, &staged.list) else {
            return Ok(());
        };
        let place = self.place(&staged.path, STAMP);
        let part = self.place(&staged.path, "part");
        let mut options = private_options();
        let mut file = options.write(true).create(true).truncate(true).open(&part)?;
        file.write_all(&serde_json::to_vec(&stamp)?)?;
        file.sync_data()?;
        fs::rename(&part, &place)
    }

    /// Returns the folder, for messages.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the oldest lists if there are too many.
    ///
    /// # Errors
    /// The folder cannot be read, or something cannot be removed.
    pub(crate) fn prune(&self) -> io::Result<()> {
        let mut lists = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == LIST) {
                let metadata = entry.metadata()?;
                let age = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                lists.push((age, metadata.len(), path));
            }
        }
        lists.sort();
        let mut bytes: u64 = lists.iter().map(|(_, bytes, _)| *bytes).sum();
        let mut count = lists.len();
        for (_, length, path) in lists {
            if count <= LISTS_MAX && bytes <= BYTES_MAX {
                break;
            }
            match fs::remove_file(path.with_extension(STAMP)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => fs::remove_file(&path)?,
            }
            (count, bytes) = (count - 1, bytes - length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(size: u64, changed: i128) -> Metadata {
        Metadata {
            changed: Some(Timestamp(changed)),
            ..Metadata::bare(Kind::File, size, Timestamp(5))
        }
    }

    #[test]
    fn a_list_is_worth_something_while_its_stamp_is_there_and_the_file_is_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptBlocks::new(folder.path().join("blocks"), "smb://nas/data");
        let path = RelPath::parse(b"images/disk").unwrap();
        assert!(kept.take_stamp(&path).unwrap().is_none(), "not even a folder");
        let size = 5 << 20;
        let list = BlockList::unknown(size).unwrap();
        let staged = kept.stage(&path, &list, (None, None)).unwrap();
        assert!(kept.take_stamp(&path).unwrap().is_none(), "it is not durable yet");
        kept.keep(&staged, &found(size, 7)).unwrap();
        let other = KeptBlocks::new(folder.path().join("blocks"), "smb://nas/other");
        assert!(other.take_stamp(&path).unwrap().is_none());
        let stamp = kept.take_stamp(&path).unwrap().unwrap();
        assert!(stamp.is_of(&found(size, 7)));
        assert!(!stamp.is_of(&found(size, 8)) && !stamp.is_of(&found(size + 1, 7)));
        assert!(!stamp.is_of(&Metadata::bare(Kind::File, size, Timestamp(5))));
        assert_eq!(kept.list(&path, &stamp), Some(list));
        assert!(kept.take_stamp(&path).unwrap().is_none(), "it was taken");
        // A run that was killed has overwritten the list.
        fs::write(kept.place(&path, LIST), vec![1; 80 * 16]).unwrap();
        assert_eq!(kept.list(&path, &stamp), None);
    }

    #[test]
    fn a_target_that_tells_no_change_time_has_no_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptBlocks::new(folder.path(), "x");
        let path = RelPath::parse(b"f").unwrap();
        let staged = kept
            .stage(&path, &BlockList::unknown(5 << 20).unwrap(), (None, None))
            .unwrap();
        kept.keep(&staged, &Metadata::bare(Kind::File, 5 << 20, Timestamp(5)))
            .unwrap();
        assert!(kept.take_stamp(&path).unwrap().is_none());
    }

    #[test]
    fn the_oldest_lists_go() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptBlocks::new(folder.path(), "x");
        let list = BlockList::unknown(4 << 20).unwrap();
        let path = |number: usize| RelPath::parse(format!("f{number}").as_bytes()).unwrap();
        for number in 0..LISTS_MAX + 2 {
            fs::write(kept.place(&path(number), LIST), list.to_bytes()).unwrap();
        }
        let old = SystemTime::UNIX_EPOCH;
        for number in [3, 8] {
            let file = File::options().append(true).open(kept.place(&path(number), LIST));
            file.unwrap().set_modified(old).unwrap();
            fs::write(kept.place(&path(number), STAMP), "{}").unwrap();
        }
        kept.prune().unwrap();
        for number in [3, 8] {
            assert!(!kept.place(&path(number), LIST).exists());
            assert!(!kept.place(&path(number), STAMP).exists());
        }
        assert!(kept.place(&path(4), LIST).exists());
    }
}
