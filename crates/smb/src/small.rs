//! Small files: one related compound, one round trip.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_proto::wire::create::CreateDisposition;
use ropeway_smb_proto::wire::info::FileBasicInformation;
use ropeway_smb_proto::wire::{FileAttributes, Text};

use crate::{Created, Error, Result, Share};

/// A small file to write.
#[derive(Clone, Debug)]
pub struct PutSmall {
    /// Its path.
    pub path: Text,
    /// Written under this path first, then renamed to `path`.
    pub temporary: Option<Text>,
    /// What to do if it exists, and if not; with `temporary`, for that path.
    pub disposition: CreateDisposition,
    /// Its content, at most [`Limits::write_max`](crate::Limits); `None`: an empty file.
    pub content: Option<Block>,
    /// Attributes with which it is made.
    pub attributes: FileAttributes,
    /// Times and attributes to set afterwards.
    pub basic: Option<FileBasicInformation>,
    /// Whether the server is to flush it.
    pub flush: bool,
    /// With `temporary`: whether a file that has the name already is replaced.
    pub replace: bool,
}

/// What became of a [`PutSmall`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PutDone {
    /// What CREATE answered.
    pub created: Created,
    /// Why times and attributes could not be set, if so; the content is written all the same.
    pub basic: Result<()>,
}

/// What became of a `get_small`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GotSmall {
    /// What CREATE answered. `created.end_of_file` beyond the block's `len` says that there is more.
    pub created: Created,
}

impl Share {
    /// Writes a small file in one round trip. A server that refuses the compound gets the plain sequence.
    ///
    /// # Errors
    /// The first step that failed. If it was not the first, a file may be left, at `temporary` where there is one.
    pub async fn put_small(&self, put: PutSmall) -> Result<PutDone> {
        let _ = put;
        Err(Error::Misuse("not yet"))
    }

    /// Reads a small file in one round trip, as much as the block holds (and [`Limits::read_max`](crate::Limits)
    /// allows).
    pub async fn get_small(&self, path: &Text, block: BlockMut) -> (BlockMut, Result<GotSmall>) {
        let _ = path;
        (block, Err(Error::Misuse("not yet")))
    }
}
