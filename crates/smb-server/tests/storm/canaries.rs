//! Files outside the share, which a storm must not change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Time and content of each path.
type Snapshot = BTreeMap<PathBuf, (SystemTime, Vec<u8>)>;

/// A folder with canary files that no client may change.
pub(crate) struct Canaries {
    folder: PathBuf,
    before: Snapshot,
}

fn collect(folder: &Path, into: &mut Snapshot) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = std::fs::symlink_metadata(&path)?;
        let mut content = Vec::new();
        if metadata.is_dir() {
            collect(&path, into)?;
        } else if metadata.is_file() {
            content = std::fs::read(&path)?;
        }
        into.insert(path, (metadata.modified()?, content));
    }
    Ok(())
}

impl Canaries {
    /// Creates `outside` below `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Self, String> {
        let make = || -> std::io::Result<Self> {
            let folder = folder.join("outside");
            std::fs::create_dir_all(folder.join("sub"))?;
            std::fs::write(folder.join("canary"), "a canary sings")?;
            std::fs::write(folder.join("sub/canary"), "another one")?;
            let mut before = Snapshot::new();
            collect(&folder, &mut before)?;
            Ok(Self { folder, before })
        };
        make().map_err(|error| format!("no canaries: {error}"))
    }

    /// Checks that nothing has changed.
    ///
    /// # Errors
    /// What has changed.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut now = Snapshot::new();
        collect(&self.folder, &mut now).map_err(|error| format!("the canaries cannot be read: {error}"))?;
        match now == self.before {
            true => Ok(()),
            false => Err(format!(
                "outside of the folder something has changed: {:?}",
                now.keys()
            )),
        }
    }
}
