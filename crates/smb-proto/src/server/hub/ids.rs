//! Names of what the hub keeps.

use std::fmt;

use ropeway_smb_wire::{FileId, Guid, LeaseKey, Text};

/// A transport connection, numbered by the owner of the hub; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u64);

/// An open ([MS-SMB2] 3.3.1.10), never reused; not 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpenId(pub(super) u64);

impl OpenId {
    /// From [`Self::get`]'s number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// As it is on the wire: both halves are the number.
    pub fn file_id(self) -> FileId {
        FileId {
            persistent: self.0,
            volatile: self.0,
        }
    }

    /// Back from the wire; `None` if the halves differ, or for the id of a related request.
    pub fn from_file_id(id: FileId) -> Option<Self> {
        let known = id.persistent == id.volatile && id.persistent != 0 && id != FileId::RELATED;
        known.then_some(Self(id.persistent))
    }

    /// From the half that survives a reconnect ([MS-SMB2] 3.3.5.9.7).
    pub(super) fn from_persistent(id: FileId) -> Self {
        Self(id.persistent)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A request that waits; its owner says which.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WaiterId {
    /// The connection it came on.
    pub connection: ConnectionId,
    /// Its number there.
    pub request: u64,
}

/// A file's or folder's content, or a named stream of one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The volume: two shares of one folder have the same.
    pub share_volume: u64,
    /// The file on it, whatever its names.
    pub index: u64,
    /// The stream's name in upper case; `None` for the unnamed one.
    pub stream: Option<Text>,
}

impl FileKey {
    pub(super) fn base(&self) -> BaseKey {
        BaseKey {
            volume: self.share_volume,
            index: self.index,
        }
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileKey({}:{}", self.share_volume, self.index)?;
        match &self.stream {
            Some(stream) => write!(f, ":{stream})"),
            None => f.write_str(")"),
        }
    }
}

/// A file with all its streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct BaseKey {
    pub(super) volume: u64,
    pub(super) index: u64,
}

/// A lease, by its client and the client's name for it ([MS-SMB2] 3.3.1.11, 3.3.1.12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct LeaseName {
    pub(super) client: Guid,
    pub(super) key: LeaseKey,
}

/// Who caches: a lease, shared by opens, or the oplock of one open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Holder {
    Oplock(OpenId),
    Lease(LeaseName),
}
