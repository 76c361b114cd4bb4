//! What a storm must not touch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Each path with its length, its time and its content.
type Look = BTreeMap<PathBuf, (SystemTime, Vec<u8>)>;

/// A folder that nobody may change, with canaries in it.
pub(crate) struct Kept {
    folder: PathBuf,
    before: Look,
}

fn look(folder: &Path, into: &mut Look) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = std::fs::symlink_metadata(&path)?;
        let mut content = Vec::new();
        if metadata.is_dir() {
            look(&path, into)?;
        } else if metadata.is_file() {
            content = std::fs::read(&path)?;
        }
        into.insert(path, (metadata.modified()?, content));
    }
    Ok(())
}

impl Kept {
    /// Makes `outside` below `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let make = || -> std::io::Result<Self> {
            let folder = folder.join("outside");
            std::fs::create_dir_all(folder.join("sub"))?;
            std::fs::write(folder.join("canary"), "a canary sings")?;
            std::fs::write(folder.join("sub/canary"), "another one")?;
            let mut before = Look::new();
            look(&folder, &mut before)?;
            Ok(Self { folder, before })
        };
        make().map_err(|error| format!("no canaries: {error}"))
    }

    /// # Errors
    /// Something is not as it was.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut now = Look::new();
        look(&self.folder, &mut now).map_err(|error| format!("the canaries cannot be read: {error}"))?;
        match now == self.before {
            true => Ok(()),
            false => Err(format!(
                "outside of the folder something has changed: {:?}",
                now.keys()
            )),
        }
    }
}
