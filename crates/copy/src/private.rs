//! Makes files and folders that show what was copied where. Only their owner may read them,
//! whatever the umask.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Permission bits of everybody except the owner.
const OTHERS: u32 = 0o077;

/// Makes a folder and the missing ones above it, with mode 0700.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a folder and the missing ones above it, with mode 0700. An existing folder of this user is
/// closed to others, so do not use it for shared folders such as `/tmp`.
///
/// # Errors
/// It cannot be made or closed.
pub fn private_folder(path: &Path) -> io::Result<()> {
    make_private(path)?;
    let metadata = fs::metadata(path)?;
    match is_open_and_own(&metadata) {
        true => fs::set_permissions(path, Permissions::from_mode(metadata.mode() & 0o7777 & !OTHERS)),
        false => Ok(()),
    }
}

/// Returns options that make a file with mode 0600.
pub fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Closes an open file of this user to others.
///
/// # Errors
/// The file system refuses.
pub(crate) fn close_to_others(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    match metadata.is_file() && is_open_and_own(&metadata) {
        true => file.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777 & !OTHERS)),
        false => Ok(()),
    }
}

fn is_open_and_own(metadata: &fs::Metadata) -> bool {
    metadata.mode() & OTHERS != 0 && metadata.uid() == rustix::process::geteuid().as_raw()
}
