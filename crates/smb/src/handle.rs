//! An open file, directory or pipe.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_proto::wire::change_notify::{CompletionFilter, FileNotifyInformation};
use ropeway_smb_proto::wire::fsctl::CtlCode;
use ropeway_smb_proto::wire::info::FileInformation;
use ropeway_smb_proto::wire::query_info::SecurityInformation;

use crate::{Created, Error, Result};

/// An open file, directory or pipe. Its requests may be under way at the same time, from several tasks. Dropping it
/// closes it in the background; [`close`](Self::close) waits and tells.
#[derive(Debug)]
pub struct Handle {}

impl Handle {
    /// Reads up to `length` bytes at `offset` into the block, whose `len` is then what was read: less at the end of
    /// the file, 0 behind it. `length` may not exceed [`Limits::read_max`](crate::Limits) nor the block.
    pub async fn read_at(&self, offset: u64, block: BlockMut, length: usize) -> (BlockMut, Result<()>) {
        let _ = (offset, length);
        (block, Err(Error::Misuse("not yet")))
    }

    /// Writes the whole block at `offset`, at most [`Limits::write_max`](crate::Limits).
    ///
    /// # Errors
    /// [`Error::PeerRefused`] and what any request may meet; a short write is one.
    pub async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let _ = (offset, block);
        Err(Error::Misuse("not yet"))
    }

    /// Waits until the server has the file on its disk.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn flush(&self) -> Result<()> {
        Err(Error::Misuse("not yet"))
    }

    /// Asks for information, for instance `query::<FileAllInformation>()`.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn query<I: FileInformation>(&self) -> Result<I> {
        Err(Error::Misuse("not yet"))
    }

    /// Sets information, for instance `FileBasicInformation`, `FileEndOfFileInformation`, `FileRenameInformation`.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn set<I: FileInformation>(&self, information: &I) -> Result<()> {
        let _ = information;
        Err(Error::Misuse("not yet"))
    }

    /// A security descriptor, self-relative ([MS-DTYP] 2.4.6).
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn query_security(&self, what: SecurityInformation) -> Result<Vec<u8>> {
        let _ = what;
        Err(Error::Misuse("not yet"))
    }

    /// Sets a security descriptor, self-relative.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn set_security(&self, what: SecurityInformation, descriptor: &[u8]) -> Result<()> {
        let _ = (what, descriptor);
        Err(Error::Misuse("not yet"))
    }

    /// FSCTL on this open; what it answers.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn ioctl(&self, code: CtlCode, input: &[u8], output_max: u32) -> Result<Vec<u8>> {
        let _ = (code, input, output_max);
        Err(Error::Misuse("not yet"))
    }

    /// Waits for changes in this directory. An empty list: too many to tell, look for yourself.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn watch(
        &self,
        filter: CompletionFilter,
        recursive: bool,
    ) -> Result<Vec<FileNotifyInformation>> {
        let _ = (filter, recursive);
        Err(Error::Misuse("not yet"))
    }

    /// Closes it and waits for the server's word.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn close(self) -> Result<()> {
        Err(Error::Misuse("not yet"))
    }

    /// What CREATE answered.
    pub fn created(&self) -> &Created {
        unreachable!("no handle is made yet")
    }
}
