//! Documents as files: written atomically, and refused if they are of another version.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::atomic::replace;
use super::{Document, VERSION};

/// Name of the file in a lab's folder.
pub const FILE: &str = "report.json";
/// Largest size of a document in bytes: a hundred times that of the biggest lab.
const SIZE_MAX: u64 = 256 << 20;

/// A document cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is no document of this version.
    #[error("{}: {reason}", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
}

/// Writes a document atomically: a concurrent reader finds the old document or the new one.
///
/// # Errors
/// A system call fails.
pub fn save(document: &Document, path: &Path) -> Result<(), FileError> {
    save_json(document, path)
}

/// Writes a value as a line of JSON, atomically.
pub(crate) fn save_json(value: &impl Serialize, path: &Path) -> Result<(), FileError> {
    let write = || -> io::Result<()> {
        let mut bytes = serde_json::to_vec(value)?;
        bytes.push(b'\n');
        replace(path, &bytes)
    };
    write().map_err(|source| FileError::Io {
        what: "write",
        path: path.to_owned(),
        source,
    })
}

/// Reads a document.
///
/// # Errors
/// The file cannot be read, is no document, or is of another version.
pub fn load(path: &Path) -> Result<Document, FileError> {
    let strange = |reason: String| FileError::Strange {
        path: path.to_owned(),
        reason,
    };
    let value = load_json(path, "a lab")?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(strange(format!(
                "a report of version {version}, and this program knows {VERSION}"
            )));
        }
        None => return Err(strange("no report of a lab: it has no version".to_owned())),
    }
    serde_json::from_value(value).map_err(|error| strange(format!("no report of a lab: {error}")))
}

/// Reads a report of `whom` as JSON, of a bounded size.
pub(crate) fn load_json(path: &Path, whom: &str) -> Result<serde_json::Value, FileError> {
    let failed = |source| FileError::Io {
        what: "read",
        path: path.to_owned(),
        source,
    };
    let strange = |reason: String| FileError::Strange {
        path: path.to_owned(),
        reason,
    };
    // The length of the file proves nothing: a device or a FIFO has none.
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(SIZE_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(strange(format!("too big for a report of {whom}")));
    }
    serde_json::from_slice(&bytes).map_err(|error| strange(format!("no report of {whom}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_as_it_was_written_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert!(matches!(load(&path), Err(FileError::Io { .. })));
        let document = Document {
            version: VERSION,
            lab: "x".to_owned(),
            ..Document::default()
        };
        save(&document, &path).unwrap();
        assert_eq!(load(&path).unwrap(), document);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for (text, word) in [
            ("{", "no report"),
            ("[]", "no version"),
            ("{\"version\": 2}", "version 2"),
            ("{\"version\": 1}", "missing field"),
        ] {
            fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
