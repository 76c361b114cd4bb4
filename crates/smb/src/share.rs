//! A share, connected to.

use ropeway_smb_proto::wire::Text;
use ropeway_smb_proto::wire::info::{
    FileAllInformation, FileFsAttributeInformation, FileFsFullSizeInformation, FileFsVolumeInformation,
};
use ropeway_smb_proto::wire::negotiate::Dialect;
use ropeway_smb_proto::wire::tree_connect::{ShareCapabilities, ShareFlags, ShareType};

use crate::{Client, Directory, Error, Handle, OpenFile, Operation, Reply, Result};

/// A share, connected to. Clones are the same share. A lost connection is made again, and the share with it.
#[derive(Clone, Debug)]
pub struct Share {}

/// What one request may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one READ.
    pub read_max: u32,
    /// Bytes of one WRITE.
    pub write_max: u32,
    /// Bytes of one QUERY, SET, IOCTL or listing.
    pub transact_max: u32,
    /// Dialect agreed.
    pub dialect: Dialect,
}

/// What a share's volume is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Volume {
    /// Serial number, label, when made.
    pub volume: FileFsVolumeInformation,
    /// What the file system can do, its name, longest name.
    pub attributes: FileFsAttributeInformation,
    /// Space.
    pub size: FileFsFullSizeInformation,
}

impl Share {
    /// Its name, as given.
    pub fn name(&self) -> &str {
        ""
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Client {
        unreachable!("no share is made yet")
    }

    /// Disk, pipe or printer.
    pub fn share_type(&self) -> ShareType {
        unreachable!("no share is made yet")
    }

    /// How it is to be cached, and whether it is in DFS or sealed.
    pub fn flags(&self) -> ShareFlags {
        unreachable!("no share is made yet")
    }

    /// What it is capable of.
    pub fn capabilities(&self) -> ShareCapabilities {
        unreachable!("no share is made yet")
    }

    /// Opens or makes a file or directory. `path` has backslashes between names and none at either end; empty is the
    /// share's root.
    ///
    /// # Errors
    /// [`Error::PeerRefused`] and what any request may meet.
    pub async fn open(&self, path: &Text, open: &OpenFile) -> Result<Handle> {
        let _ = (path, open);
        Err(Error::Misuse("not yet"))
    }

    /// Sends requests of the caller's own making, as one compound. The tree of each operation is filled in.
    ///
    /// # Errors
    /// The requests did not get there or back; what the server says to each is in its [`Reply`].
    pub async fn chain(&self, operations: Vec<Operation>, related: bool) -> Result<Vec<Reply>> {
        let _ = (operations, related);
        Err(Error::Misuse("not yet"))
    }

    /// Lists a directory, `*` for all.
    ///
    /// # Errors
    /// The directory cannot be opened or listed. One without a matching name is an empty list.
    pub async fn list(&self, path: &Text, pattern: &str) -> Result<Directory> {
        let _ = (path, pattern);
        Err(Error::Misuse("not yet"))
    }

    /// All about a file or directory, in one round trip; a reparse point is not followed.
    ///
    /// # Errors
    /// It is not there, or the user may not.
    pub async fn stat(&self, path: &Text) -> Result<FileAllInformation> {
        let _ = path;
        Err(Error::Misuse("not yet"))
    }

    /// Makes a directory, in one round trip.
    ///
    /// # Errors
    /// The name is taken, or the user may not.
    pub async fn make_directory(&self, path: &Text) -> Result<()> {
        let _ = path;
        Err(Error::Misuse("not yet"))
    }

    /// Removes a file or an empty directory, in one round trip; a reparse point itself, not what it leads to.
    ///
    /// # Errors
    /// It is not there, not empty, in use, or the user may not.
    pub async fn remove(&self, path: &Text) -> Result<()> {
        let _ = path;
        Err(Error::Misuse("not yet"))
    }

    /// Renames, in one round trip.
    ///
    /// # Errors
    /// The new name is taken and `replace` is not set, or the user may not.
    pub async fn rename(&self, from: &Text, to: &Text, replace: bool) -> Result<()> {
        let _ = (from, to, replace);
        Err(Error::Misuse("not yet"))
    }

    /// What the volume is, and its space, in one round trip.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn volume(&self) -> Result<Volume> {
        Err(Error::Misuse("not yet"))
    }

    /// What one request may carry.
    pub fn limits(&self) -> Limits {
        unreachable!("no share is made yet")
    }
}
