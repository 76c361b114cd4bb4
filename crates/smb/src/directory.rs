//! Listings.

use ropeway_smb_proto::wire::info::DirectoryRecord;

use crate::{Error, Handle, Result};

/// A directory being listed. The next batch is asked for before the last one is taken.
#[derive(Debug)]
pub struct Directory {}

impl Directory {
    /// The next names, in the server's order, without `.` and `..`; `None` at the end.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn next(&mut self) -> Result<Option<Vec<DirectoryRecord>>> {
        Err(Error::Misuse("not yet"))
    }

    /// The open directory.
    pub fn handle(&self) -> &Handle {
        unreachable!("no directory is made yet")
    }
}
