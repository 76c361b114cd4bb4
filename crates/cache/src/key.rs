//! What a block is known by: file, version and position.
//!
//! The version is part of the key, so a changed file has other keys and its old blocks cannot be
//! found. The whole key is authenticated with the block; the index keeps a 64-bit tag of it only.

use crate::mutations::{self, Mutation};

/// Bytes of an encoded key.
pub(crate) const KEY_BYTES: usize = 72;

/// A file on a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Identity of the share: a hash of server and share name.
    pub share: [u8; 16],
    /// Identity of the volume within the share.
    pub volume: u64,
    /// Identity of the file on the volume.
    pub file: u128,
}

/// What changes when the content of a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Change time as the source reports it, in its own units.
    pub change_time: u64,
    /// Size of the file in bytes.
    pub size: u64,
    /// Counter that the caller raises when a lease was lost.
    pub lease_epoch: u64,
}

/// A block of one version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The file.
    pub file: FileKey,
    /// The version of its content.
    pub version: Version,
    /// Number of the block within the file.
    pub block: u64,
}

impl FileKey {
    /// Returns the encoding that is hashed for the file's half of a tag.
    pub(crate) fn encode(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.share);
        bytes[16..24].copy_from_slice(&self.volume.to_le_bytes());
        bytes[24..].copy_from_slice(&self.file.to_le_bytes());
        bytes
    }
}

impl Key {
    /// Returns the encoding that is authenticated with the block.
    pub(crate) fn encode(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..40].copy_from_slice(&self.file.encode());
        if mutations::is(Mutation::VersionNotSealed) {
            bytes[64..].copy_from_slice(&self.block.to_le_bytes());
            return bytes;
        }
        bytes[40..48].copy_from_slice(&self.version.change_time.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.version.size.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.version.lease_epoch.to_le_bytes());
        bytes[64..].copy_from_slice(&self.block.to_le_bytes());
        bytes
    }
}
