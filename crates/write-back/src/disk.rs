//! The near disk as the journal needs it: a folder of files that are appended to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

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

/// A folder of the system. It stays the same one when it is renamed, and another one takes its path.
#[derive(Debug)]
pub struct FolderDisk(File);

impl FolderDisk {
    /// Opens a folder.
    ///
    /// # Errors
    /// It does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    fn writable(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::WRONLY)
    }

    fn made(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }
}

impl Disk for FolderDisk {
    fn create(&self, name: &str) -> io::Result<()> {
        self.made(name).map(drop)
    }

    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writable(name)?.write_all_at(bytes, offset)
    }

    fn read(&self, name: &str, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file(name, OFlags::RDONLY)?.read_exact_at(into, offset)
    }

    fn truncate(&self, name: &str, length: u64) -> io::Result<()> {
        self.writable(name)?.set_len(length)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.writable(name)?.sync_data()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        Ok(renameat(&self.0, name, &self.0, format!("{name}.damaged"))?)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_str();
            if let Some(name) = name.ok().filter(|name| ![".", ".."].contains(name)) {
                let found = match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                    // The process that uses the journal has removed it meanwhile.
                    Err(Errno::NOENT) => continue,
                    found => found?,
                };
                files.push((name.to_owned(), u64::try_from(found.st_size).unwrap_or(0)));
            }
        }
        Ok(files)
    }

    fn reserve(&self) {
        let Ok(file) = self.made(RESERVE) else { return };
        let flags = rustix::fs::FallocateFlags::empty();
        if rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES).is_err() {
            // There is none then.
            let _ = self.remove(RESERVE);
        }
    }

    fn give_up_reserve(&self) -> bool {
        self.remove(RESERVE).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Else what was acknowledged would be in two folders, and syncs of names would be those of the
    /// wrong one.
    #[test]
    fn a_folder_that_is_swapped_stays_the_one_that_was_opened() {
        let place = tempfile::tempdir().unwrap();
        let (path, away) = (place.path().join("journal"), place.path().join("away"));
        fs::create_dir(&path).unwrap();
        let disk = FolderDisk::open(&path).unwrap();
        disk.create("a").unwrap();
        disk.write("a", 0, b"before").unwrap();
        fs::rename(&path, &away).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join("a"), "theirs").unwrap();
        disk.write("a", 6, b", after").unwrap();
        disk.sync("a").unwrap();
        disk.create("b").unwrap();
        disk.sync_names().unwrap();
        let mut read = [0; 13];
        disk.read("a", 0, &mut read).unwrap();
        assert_eq!(&read, b"before, after");
        let names = disk.list().unwrap().into_iter().map(|(name, _)| name);
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
        disk.set_aside("b").unwrap();
        disk.remove("a").unwrap();
        disk.reserve();
        assert!(away.join("b.damaged").exists() && !away.join("a").exists());
        assert_eq!(fs::read(path.join("a")).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        assert!(disk.give_up_reserve());
        // Nor is a link followed.
        std::os::unix::fs::symlink(path.join("a"), away.join("link")).unwrap();
        assert!(disk.write("link", 0, b"x").is_err() && disk.sync("link").is_err());
        assert_eq!(fs::read(path.join("a")).unwrap(), b"theirs");
    }
}
