//! Claims: files by which a job shows others that it is alive.
//!
//! A job holds a claim in the topmost folder of the target in which it makes temporary names. Whoever finds such names
//! tries to take the claim: while that is [`Busy`](crate::ErrorKind::Busy), the job is alive. After the holder's death
//! the file stays, and what was written into it, but anybody may take it.

use crate::error::Result;
use crate::path::{Name, RelPath};
use crate::tree::{Pending, Tree};

/// By which mechanism a claim is held. A lock of one kind is not seen by those who look for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// A lock of the file system.
    Local,
    /// An open of a share that shares nothing.
    Share,
    /// Within this process.
    Memory,
}

impl ClaimKind {
    /// Its name in the claim's file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Share => "share",
            Self::Memory => "memory",
        }
    }
}

/// A claim that is held. Dropping it lets go and leaves the file where it is.
pub trait Claim: Send + Sync {
    /// How it is held.
    fn kind(&self) -> ClaimKind;

    /// Up to `max` bytes of what the file said when it was taken; empty for a new one.
    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>>;

    /// Appends to the file.
    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>>;

    /// Removes the file, then lets go.
    fn remove(self: Box<Self>) -> Pending<'static, Result<()>>;
}

/// What lies above a tree's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimAbove {
    /// A claim that is held.
    Held,
    /// A claim, and its holder is dead.
    Abandoned,
    /// A claim of which nobody here can tell.
    Unknown,
    /// None.
    Absent,
}

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// Lists the folder and keeps what fits.
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
