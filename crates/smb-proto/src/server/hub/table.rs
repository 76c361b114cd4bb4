//! The tables of opens and of files with their streams, and their indices.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::upcase::{equal, fold};
use ropeway_smb_wire::{Guid, LeaseKey, SessionId, Text, TreeId};

use super::caching::Caching;
use super::durability::Durability;
use super::ids::{BaseKey, ConnectionId, FileKey, LeaseName, OpenId, WaiterId};
use super::open::AppInstance;
use super::range::Lock;
use super::sequence::Sequence;
use super::share_mode::ShareMode;
use super::summary::OpenSummary;

/// The description of an open ([MS-SMB2] 3.3.1.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInfo {
    /// Its id.
    pub id: OpenId,
    /// The file.
    pub file: FileKey,
    /// The connection it was created or reconnected on; `None` while a durable open has no client.
    pub connection: Option<ConnectionId>,
    /// The session. Meaningless without a connection.
    pub session: SessionId,
    /// The tree. Meaningless without a connection.
    pub tree: TreeId,
    /// The client that created it or reconnected to it.
    pub client: Guid,
    /// The user who created it.
    pub user: Arc<str>,
    /// The share.
    pub share_id: u32,
    /// The granted rights.
    pub access: AccessMask,
    /// The access that other opens may have.
    pub share_access: ShareAccess,
    /// Whether it is a folder.
    pub directory: bool,
    /// Whether the file is deleted when this open closes.
    pub delete_on_close: bool,
    /// The path, without the stream. Renames change it.
    pub path: Text,
    /// The lease key that the client has for the parent folder.
    pub parent_lease: Option<LeaseKey>,
    /// `AppInstanceId`, `ApplicationInstanceVersionHigh` and `Low`.
    pub app_instance: Option<AppInstance>,
}

/// An open with all its state.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) info: OpenInfo,
    /// The oplock, if there is no lease.
    pub(super) oplock: Caching,
    pub(super) lease: Option<LeaseName>,
    pub(super) durable: Option<Durability>,
    pub(super) sequence: Sequence,
    /// Number of its locks. Speeds up the case without locks.
    pub(super) lock_count: u32,
    /// `LockSequenceArray` ([MS-SMB2] 3.3.1.10): the last number in each bucket, or
    /// [`super::locks::UNKNOWN_SEQUENCE`].
    pub(super) lock_sequences: Option<Box<[u8; 64]>>,
}

impl Open {
    /// `Open.IsPersistent` ([MS-SMB2] 3.3.1.10).
    pub(super) fn is_persistent(&self) -> bool {
        self.durable.is_some_and(|durable| durable.persistent)
    }

    pub(super) fn mode(&self) -> ShareMode {
        ShareMode {
            access: self.info.access,
            share: self.info.share_access,
        }
    }
}

/// A file or folder with at least one open.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// Its open streams, unordered and few.
    pub(super) streams: Vec<Stream>,
    /// The names that are deleted at their last close: more than one for a file with hard links.
    pub(super) pending: Vec<PendingDeletion>,
    /// Requests that wait for breaks of this file.
    pub(super) waiters: BTreeSet<WaiterId>,
}

/// An open stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) name: Option<Text>,
    pub(super) summary: OpenSummary,
    pub(super) locks: Vec<Lock>,
    /// Waiting LOCK requests, oldest first.
    pub(super) lock_waiters: Vec<WaiterId>,
    /// Set if only this named stream is to be deleted.
    pub(super) pending: Option<PendingDeletion>,
}

/// The location of a file marked for deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingDeletion {
    pub(super) share_id: u32,
    pub(super) path: Text,
    pub(super) directory: bool,
    /// The user who marked it.
    pub(super) user: Arc<str>,
    /// The lease on the parent folder that the open named which marked it.
    pub(super) parent_lease: Option<LeaseKey>,
}

impl PendingDeletion {
    /// Whether an open by this path is one of the name to be deleted. A folder has one name. Two
    /// shares of one folder have different paths for a name, so an open of another share may be.
    pub(super) fn is_of(&self, share_id: u32, path: &Text) -> bool {
        self.directory || self.share_id != share_id || equal(&self.path, path)
    }
}

impl Base {
    /// Marks the file or one of its streams for deletion, unless that name is marked already.
    pub(super) fn mark(&mut self, stream: Option<&Text>, deletion: PendingDeletion) {
        if stream.is_none() {
            let is_marked = |marked: &PendingDeletion| marked.is_of(deletion.share_id, &deletion.path);
            if !self.pending.iter().any(is_marked) {
                self.pending.push(deletion);
            }
        } else if let Some(stream) = self.stream_mut(stream) {
            stream.pending.get_or_insert(deletion);
        }
    }

    pub(super) fn stream(&self, name: Option<&Text>) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.name.as_ref() == name)
    }

    pub(super) fn stream_mut(&mut self, name: Option<&Text>) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.name.as_ref() == name)
    }
}

/// Opens, files, and the indices over them.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) opens: HashMap<OpenId, Open>,
    pub(super) bases: HashMap<BaseKey, Base>,
    pub(super) sessions: HashMap<SessionId, BTreeSet<OpenId>>,
    /// Number of byte-range locks of all opens.
    pub(super) lock_count: usize,
    pub(super) connections: BTreeSet<(ConnectionId, OpenId)>,
    /// By share and upper-case path.
    pub(super) paths: BTreeMap<(u32, Text), BTreeSet<OpenId>>,
}

impl Tables {
    pub(super) fn stream(&self, file: &FileKey) -> Option<&Stream> {
        self.bases.get(&file.base())?.stream(file.stream.as_ref())
    }

    pub(super) fn stream_mut(&mut self, file: &FileKey) -> Option<&mut Stream> {
        self.bases.get_mut(&file.base())?.stream_mut(file.stream.as_ref())
    }

    /// Returns the opens of one stream.
    pub(super) fn opens_of<'a>(&'a self, file: &FileKey) -> impl Iterator<Item = &'a Open> + use<'a> {
        let ids = self.stream(file).map(|stream| stream.summary.opens());
        ids.into_iter().flatten().filter_map(|id| self.opens.get(&id))
    }

    pub(super) fn insert(&mut self, open: Open) {
        let info = &open.info;
        let base = self.bases.entry(info.file.base()).or_default();
        match base.stream_mut(info.file.stream.as_ref()) {
            Some(stream) => stream.summary.add(&open),
            None => {
                let mut summary = OpenSummary::default();
                summary.add(&open);
                base.streams.push(Stream {
                    name: info.file.stream.clone(),
                    summary,
                    locks: Vec::new(),
                    lock_waiters: Vec::new(),
                    pending: None,
                });
            }
        }
        let path = (info.share_id, fold(&info.path));
        self.paths.entry(path).or_default().insert(info.id);
        if let Some(connection) = info.connection {
            self.attach(info.id, connection, info.session);
        }
        self.opens.insert(open.info.id, open);
    }

    /// Removes the open from all tables except its file's streams.
    pub(super) fn remove(&mut self, id: OpenId) -> Option<Open> {
        let open = self.opens.remove(&id)?;
        self.detach(&open.info);
        let path = (open.info.share_id, fold(&open.info.path));
        if let Some(set) = self.paths.get_mut(&path) {
            set.remove(&id);
            if set.is_empty() {
                self.paths.remove(&path);
            }
        }
        Some(open)
    }

    /// Attaches the open to a session and a connection.
    pub(super) fn attach(&mut self, id: OpenId, connection: ConnectionId, session: SessionId) {
        self.connections.insert((connection, id));
        self.sessions.entry(session).or_default().insert(id);
    }

    /// Detaches the open from its session and connection.
    pub(super) fn detach(&mut self, info: &OpenInfo) {
        let Some(connection) = info.connection else {
            return;
        };
        self.connections.remove(&(connection, info.id));
        if let Some(set) = self.sessions.get_mut(&info.session) {
            set.remove(&info.id);
            if set.is_empty() {
                self.sessions.remove(&info.session);
            }
        }
    }

    pub(super) fn of_connection(&self, connection: ConnectionId) -> Vec<OpenId> {
        let range = (connection, OpenId(0))..=(connection, OpenId(u64::MAX));
        self.connections.range(range).map(|(_, id)| *id).collect()
    }

    pub(super) fn of_session(&self, session: SessionId) -> Vec<OpenId> {
        let set = self.sessions.get(&session);
        set.map(|set| set.iter().copied().collect()).unwrap_or_default()
    }

    /// Returns the opens whose upper-case path lies beneath the folder's.
    pub(super) fn beneath<'a>(
        &'a self,
        share_id: u32,
        folder: &Text,
    ) -> impl Iterator<Item = OpenId> + use<'a> {
        let (low, high) = beneath_bounds(share_id, folder);
        let range = self.paths.range((Bound::Excluded(low), Bound::Excluded(high)));
        range.flat_map(|(_, set)| set.iter().copied())
    }

    /// Changes the path of an open.
    pub(super) fn set_path(&mut self, id: OpenId, path: Text) {
        let Some(open) = self.opens.get_mut(&id) else {
            return;
        };
        let old = (open.info.share_id, fold(&open.info.path));
        let new = (open.info.share_id, fold(&path));
        open.info.path = path;
        if old == new {
            return;
        }
        if let Some(set) = self.paths.get_mut(&old) {
            set.remove(&id);
            if set.is_empty() {
                self.paths.remove(&old);
            }
        }
        self.paths.entry(new).or_default().insert(id);
    }
}

const SEPARATOR: u16 = b'\\' as u16;

/// Returns the exclusive bounds of the paths beneath a folder. The root is the empty path, and not
/// beneath itself.
fn beneath_bounds(share_id: u32, folder: &Text) -> ((u32, Text), (u32, Text)) {
    if folder.is_empty() {
        return (
            (share_id, Text::default()),
            (share_id.saturating_add(1), Text::default()),
        );
    }
    let with = |unit| {
        let units = folder.units().iter().copied().chain([unit]).collect();
        (share_id, Text::from_units(units))
    };
    (with(SEPARATOR), with(SEPARATOR + 1))
}
