//! Stores journals: in a folder of this machine, or wherever a test puts them.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::private::{close_to_others, make_private, private_folder, private_options};

pub(super) const FILE_NAME: &str = "journal";
/// Name of the file after a failed flush could not be recorded in it.
pub(super) const LOST_NAME: &str = "lost";

/// Holds the journals of all jobs of a user.
pub trait JournalStore: fmt::Debug + Send + Sync {
    /// Returns the identity of the store: a hash, so that a claim does not reveal its path.
    fn identity(&self) -> String;

    /// Returns where the journals are, for messages.
    fn describe(&self) -> String;

    /// Whether a job with this id has a journal.
    fn has_journal(&self, job: &str) -> bool;

    /// Opens or creates the journal of a job for this run alone.
    ///
    /// # Errors
    /// It cannot be opened, or (`WouldBlock`) another run has it open.
    fn open(&self, job: &str) -> io::Result<Box<dyn JournalFile>>;
}

/// An open journal: a file to which bytes are appended. Dropping it lets another run open it.
pub trait JournalFile: fmt::Debug + Send + Sync {
    /// Returns a folder for other files of the job, which is removed with the journal.
    fn folder(&self) -> Option<&Path>;

    /// Reads the whole journal.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Removes what lies beyond `length`.
    ///
    /// # Errors
    /// It cannot be shortened.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Appends bytes.
    ///
    /// # Errors
    /// They could not be written. Some of them may have been.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Makes durable what was appended.
    ///
    /// # Errors
    /// It may not be durable.
    fn sync(&self) -> io::Result<()>;

    /// Makes the journal's name durable.
    ///
    /// # Errors
    /// A power cut may remove the journal.
    fn sync_name(&self) -> io::Result<()>;

    /// Makes sure that no later run trusts this journal.
    ///
    /// # Errors
    /// It can still be read.
    fn spoil(&self) -> io::Result<()>;

    /// Whether an earlier run had to rename the journal to spoil it.
    fn is_lost(&self) -> bool;

    /// Forgets that an earlier run spoiled the journal.
    ///
    /// # Errors
    /// The mark stays.
    fn forget_lost(&self) -> io::Result<()>;

    /// Removes the journal and its folder.
    ///
    /// # Errors
    /// Some of it stays.
    fn remove(&self) -> io::Result<()>;
}

/// Journals in a folder of this machine, e.g. `$XDG_STATE_HOME/ropeway/jobs`. The folder is made if
/// it is missing.
#[derive(Clone, Debug)]
pub struct JournalFolder(PathBuf);

impl JournalFolder {
    /// Stores journals in `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

/// Whether a folder holds a journal.
pub(super) fn holds_journal(folder: &Path) -> bool {
    [FILE_NAME, LOST_NAME]
        .iter()
        .any(|name| folder.join(name).is_file())
}

impl JournalStore for JournalFolder {
    fn identity(&self) -> String {
        let machine = fs::read("/etc/machine-id").unwrap_or_default();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&machine);
        hasher.update(rustix::system::uname().nodename().to_bytes());
        hasher.update(&[0]);
        hasher.update(self.0.as_os_str().as_encoded_bytes());
        hasher.finalize().to_hex()[..16].to_owned()
    }

    fn describe(&self) -> String {
        self.0.display().to_string()
    }

    fn has_journal(&self, job: &str) -> bool {
        job.bytes().all(|byte| byte.is_ascii_hexdigit()) && holds_journal(&self.0.join(job))
    }

    fn open(&self, job: &str) -> io::Result<Box<dyn JournalFile>> {
        let folder = self.0.join(job);
        make_private(&self.0)?;
        // The nonce is secret until names are made with it.
        private_folder(&folder)?;
        let file = private_options()
            .create(true)
            .truncate(false)
            .read(true)
            .append(true)
            .open(folder.join(FILE_NAME))?;
        close_to_others(&file)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let above = self.0.clone();
        Ok(Box::new(Opened { above, folder, file }))
    }
}

#[derive(Debug)]
struct Opened {
    above: PathBuf,
    folder: PathBuf,
    file: File,
}

impl JournalFile for Opened {
    fn folder(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.folder.join(FILE_NAME))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_name(&self) -> io::Result<()> {
        for dir in [&self.folder, &self.above] {
            File::open(dir)?.sync_all()?;
        }
        Ok(())
    }

    fn spoil(&self) -> io::Result<()> {
        let path = self.folder.join(FILE_NAME);
        let overwrite = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.write_all_at(&[0xff; 8], 0)?;
            file.sync_data()
        };
        overwrite().or_else(|_| {
            fs::rename(&path, self.folder.join(LOST_NAME))?;
            File::open(&self.folder)?.sync_all()
        })
    }

    fn is_lost(&self) -> bool {
        self.folder.join(LOST_NAME).exists()
    }

    fn forget_lost(&self) -> io::Result<()> {
        match fs::remove_file(self.folder.join(LOST_NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)
    }
}
