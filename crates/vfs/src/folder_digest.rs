//! Digests of folders: how an end that is far away tells, in a few bytes, that a folder of it holds the
//! same as one that is near.

use std::fmt::Debug;

use crate::descent::Origin;
use crate::metadata::DirEntry;

/// A digest of a folder of a far end, as it was when the answer was made.
///
/// It covers the names and kinds of all entries, and sizes and modification times of files. Everything
/// else that a listing shows of folders, and what it shows of files that a copy compares, comes with it.
pub trait FolderDigest: Debug + Send + Sync {
    /// Returns the entries of the folder as a listing would show them, if `twin` has the same names,
    /// kinds, sizes and times. `twin` is the whole listing of a folder that is near, in any order.
    ///
    /// Of files, fields are unknown that neither the digest covers nor a comparison by size and time
    /// needs: ids, the sizes on the disk, and all times but the modification time.
    fn entries(&self, twin: &[DirEntry]) -> Option<Vec<DirEntry>>;

    /// Returns what the listing would report of the folder itself.
    fn origin(&self) -> Option<Origin>;
}
