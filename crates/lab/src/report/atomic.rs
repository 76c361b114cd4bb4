//! Files that are replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file atomically: a concurrent reader finds the old file or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let write = || -> io::Result<()> {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        // After a power cut the new name must not refer to an empty file.
        file.sync_data()?;
        fs::rename(&part, path)
    };
    let done = write();
    if done.is_err() {
        // Leaves no partial file.
        _ = fs::remove_file(&part);
    }
    done
}
