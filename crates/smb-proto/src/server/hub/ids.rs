//! Identifiers of the objects in the hub.

use std::fmt;

use ropeway_smb_wire::{FileId, Guid, LeaseKey, Text};

/// A transport connection, numbered by the hub's owner. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnectionId(pub u64);

/// An open ([MS-SMB2] 3.3.1.10). Never reused, never 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OpenId(pub(super) u64);

impl OpenId {
    /// CreateReplays an id from the number that [`Self::get`] returns.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the id on the wire. Both halves hold the number.
    pub fn file_id(self) -> FileId {
        FileId {
            persistent: self.0,
            volatile: self.0,
        }
    }

    /// Parses an id from the wire. Returns `None` if the halves differ, or for the id of a related
    /// request.
    pub fn from_file_id(id: FileId) -> Option<Self> {
        let known = id.persistent == id.volatile && id.persistent != 0 && id != FileId::RELATED;
        known.then_some(Self(id.persistent))
    }

    /// CreateReplays an id from the half that survives a reconnect ([MS-SMB2] 3.3.5.9.7).
    pub(super) fn from_persistent(id: FileId) -> Self {
        Self(id.persistent)
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// A request that may wait, identified by the hub's owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct WaiterId {
    /// The connection it arrived on.
    pub connection: ConnectionId,
    /// Its number on that connection.
    pub request: u64,
}

/// The content of a file or folder, or a named stream of it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The volume. Two shares of one folder have the same.
    pub share_volume: u64,
    /// The file on the volume, independent of its names.
    pub index: u64,
    /// The stream's name in upper case; `None` for the unnamed stream.
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

/// A lease: its client and the client's key for it ([MS-SMB2] 3.3.1.11, 3.3.1.12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct LeaseName {
    pub(super) client: Guid,
    pub(super) key: LeaseKey,
}

/// The holder of caching: a lease, shared by opens, or the oplock of one open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Holder {
    Oplock(OpenId),
    Lease(LeaseName),
}
