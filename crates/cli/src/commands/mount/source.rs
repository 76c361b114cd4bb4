//! SRC as a store.

use std::path::Path;
use std::sync::Arc;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::End;
use ropeway_vfs::store::Store;

use crate::failure::{Failure, code};
use crate::place::Place;

/// A store to mount.
pub(super) struct Source {
    /// The store.
    pub(super) store: Arc<dyn Store>,
    /// Its name for `mount` and `df`.
    pub(super) name: String,
}

/// Opens SRC.
///
/// # Errors
/// It cannot be opened, or MNT is inside of it.
pub(super) fn open_store(source: &Path, mountpoint: &Path) -> Result<Source, Failure> {
    match Place::parse_end(source)? {
        Place::Local(path) => open_folder(&path, mountpoint),
        Place::Remote(url) => Err(Failure::usage(format!("{url}: shares cannot be mounted yet"))
            .hint("mount a folder, or copy from the share with `ropeway copy`")),
    }
}

fn open_folder(path: &Path, mountpoint: &Path) -> Result<Source, Failure> {
    let store = LocalStore::open(path, &StoreOptions::default())
        .map_err(|error| Failure::of_tree(&path.display().to_string(), &error, End::Source))?;
    let whole = path.canonicalize();
    let whole = whole.map_err(|error| Failure::of_end(error.to_string(), &error, code::SOURCE))?;
    let inside = |mountpoint: &Path| mountpoint != whole && mountpoint.starts_with(&whole);
    if mountpoint
        .canonicalize()
        .is_ok_and(|mountpoint| inside(&mountpoint))
    {
        // The mount would contain itself.
        let message = format!("cannot mount {} inside itself", path.display());
        return Err(Failure::new(code::REFUSED, message).hint("choose a folder outside for the mount"));
    }
    Ok(Source {
        store: Arc::new(store),
        name: whole.display().to_string(),
    })
}
