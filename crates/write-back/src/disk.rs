//! The near disk as the journal needs it: a folder of files that are appended to.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A folder of files that only this process changes. Files are named anew at each call, so that a
/// backlog of many files takes no descriptors.
pub trait Disk: Send + Sync {
    /// Makes an empty file, which must not exist.
    ///
    /// # Errors
    /// The disk is full or fails.
    fn create(&self, name: &str) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, the present end.
    ///
    /// # Errors
    /// The disk is full or fails; a part may have been written.
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// The file is shorter, or the disk fails.
    fn read(&self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Cuts the file.
    ///
    /// # Errors
    /// The disk fails.
    fn truncate(&self, name: &str, length: u64) -> io::Result<()>;
    /// Returns once the content of the file is on the disk.
    ///
    /// # Errors
    /// The disk fails.
    fn sync(&self, name: &str) -> io::Result<()>;
    /// Returns once all names that were made and removed are so on the disk.
    ///
    /// # Errors
    /// The disk fails.
    fn sync_names(&self) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// The disk fails.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Keeps a file that cannot be read under its name with the ending `.damaged`.
    ///
    /// # Errors
    /// The disk fails.
    fn set_aside(&self, name: &str) -> io::Result<()>;
    /// Returns the files with their lengths.
    ///
    /// # Errors
    /// The disk fails.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Keeps some space in reserve, if there is enough.
    fn reserve(&self);
    /// Gives the reserve up; returns whether there was one.
    fn give_up_reserve(&self) -> bool;
}

/// The file that holds space in reserve, and its length: several hundred notes.
const RESERVE: &str = "reserve";
const RESERVE_BYTES: u64 = 1 << 20;

/// A folder of the system.
#[derive(Debug)]
pub struct FolderDisk {
    path: PathBuf,
    folder: File,
}

impl FolderDisk {
    /// Opens a folder.
    ///
    /// # Errors
    /// It does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            folder: File::open(path)?,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn writable(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.at(name))
    }
}

impl Disk for FolderDisk {
    fn create(&self, name: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        options.open(self.at(name)).map(drop)
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writable(name)?.write_all_at(bytes, offset)
    }

    fn read(&self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<()> {
        File::open(self.at(name))?.read_exact_at(into, offset)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.writable(name)?.set_len(length)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.writable(name)?.sync_data()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.at(name))
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        fs::rename(self.at(name), self.at(&format!("{name}.damaged")))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                files.push((name, entry.metadata()?.len()));
            }
        }
        Ok(files)
    }

    fn reserve(&self) {
        let at = self.at(RESERVE);
        if at.exists() {
            return;
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let made = options.open(&at).and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            Ok(rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES)?)
        });
        if made.is_err() {
            // There is none then.
            let _ = fs::remove_file(&at);
        }
    }

    fn give_up_reserve(&self) -> bool {
        fs::remove_file(self.at(RESERVE)).is_ok()
    }
}
