//! The hashes of a job, spooled to a file so that memory does not grow with the tree.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_vfs::{ContentHash, HashAlgorithm, RelPath};

use crate::private::{close_to_others, private_options};
use crate::verify::manifest::write_line;

/// The hashes of a job, spooled to a file.
#[derive(Debug)]
pub(crate) struct Hashes {
    algorithm: HashAlgorithm,
    path: PathBuf,
    writer: Mutex<BufWriter<File>>,
    count: AtomicU64,
    /// Set while files are repaired: they have their lines already.
    held_back: AtomicBool,
}

impl Hashes {
    pub(crate) fn create(path: PathBuf, algorithm: HashAlgorithm) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = private_options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        close_to_others(&file)?;
        Ok(Self {
            algorithm,
            path,
            writer: Mutex::new(BufWriter::new(file)),
            count: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
        })
    }

    /// Returns how contents are hashed.
    pub(crate) fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    pub(crate) fn add(&self, path: &RelPath, hash: &ContentHash) -> io::Result<()> {
        if self.held_back.load(Ordering::Acquire) {
            return Ok(());
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        write_line(&mut *self.writer.lock(), self.algorithm, path.as_bytes(), hash)
    }

    /// Sets whether further hashes are left out.
    pub(crate) fn hold_back(&self, held_back: bool) {
        self.held_back.store(held_back, Ordering::Release);
    }

    /// Flushes the spool, so that it can be read. Returns its path.
    pub(crate) fn flush(&self) -> io::Result<&Path> {
        let mut writer = self.writer.lock();
        writer.flush()?;
        writer.get_ref().sync_data()?;
        Ok(&self.path)
    }

    pub(crate) fn remove(&self) {
        // The next job with this key overwrites a spool that stays.
        let _ = fs::remove_file(&self.path);
    }
}
