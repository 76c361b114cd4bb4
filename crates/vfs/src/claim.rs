//! Claims: files by which a job shows other jobs that it is alive.
//!
//! A job holds a claim in the topmost folder of the target in which it makes temporary names.
//! Another job that finds such names tries to take the claim. While that fails with
//! [`Busy`](crate::ErrorKind::Busy), the first job is alive. After the holder's death the file and
//! its content remain, but any job may take the claim.

use crate::error::Result;
use crate::path::{Name, RelPath};
use crate::tree::{Pending, Tree};

/// The mechanism that holds a claim. A lock of one kind is invisible to jobs that look for another
/// kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// A lock of the file system.
    Local,
    /// An open of a share with no sharing allowed.
    Share,
    /// Within this process.
    Memory,
}

impl ClaimKind {
    /// Returns its name in the claim's file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Share => "share",
            Self::Memory => "memory",
        }
    }
}

/// A claim that is held. Dropping it releases the claim and leaves the file in place.
pub trait Claim: Send + Sync {
    /// Returns the mechanism that holds it.
    fn kind(&self) -> ClaimKind;

    /// Reads up to `max` bytes of what the file held when the claim was taken; empty for a new
    /// file.
    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>>;

    /// Appends to the file.
    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>>;

    /// Removes the file, then releases the claim.
    fn remove(self: Box<Self>) -> Pending<'static, Result<()>>;
}

/// The claim in a folder above a tree's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAbove {
    /// There is a claim, and it is held.
    Held,
    /// There is a claim, and its holder is dead.
    Abandoned,
    /// There is a claim, and whether it is held is not known here.
    Unknown,
    /// There is no claim.
    Absent,
}

/// Entries read from a listing at once.
const CHUNK: usize = 1024;

/// Lists the folder and keeps the names with the prefix.
pub(crate) async fn names_by_listing<T: Tree + ?Sized>(
    tree: &T,
    dir: &RelPath,
    prefix: &[u8],
) -> Result<Vec<Name>> {
    let mut listing = tree.list(dir).await?;
    let mut found = Vec::new();
    loop {
        let entries = listing.next(CHUNK).await?;
        if entries.is_empty() {
            return Ok(found);
        }
        let names = entries.into_iter().map(|entry| entry.name);
        found.extend(names.filter(|name| name.as_bytes().starts_with(prefix)));
    }
}
