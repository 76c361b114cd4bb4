//! The tables: opens, files with their streams, and the indices over them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::caching::Caching;
use super::crowd::Crowd;
use super::durable::Durability;
use super::ids::{BaseKey, ConnectionId, FileKey, LeaseName, OpenId, WaiterId};
use super::range::Lock;
use super::sequence::Sequence;
use super::share_mode::Mode;
use ropeway_smb_wire::create::{AccessMask, ShareAccess};
use ropeway_smb_wire::upcase::fold;
use ropeway_smb_wire::{Guid, LeaseKey, SessionId, Text, TreeId};

/// What is known of an open ([MS-SMB2] 3.3.1.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInfo {
    /// Its number.
    pub id: OpenId,
    /// What is open.
    pub file: FileKey,
    /// The connection it was made or reconnected on; `None` while nobody holds the durable open.
    pub connection: Option<ConnectionId>,
    /// Its session; of no meaning without a connection.
    pub session: SessionId,
    /// Its tree; of no meaning without a connection.
    pub tree: TreeId,
    /// The client that made it, or came back for it.
    pub client: Guid,
    /// The user who made it.
    pub user: Arc<str>,
    /// Its share.
    pub share_id: u32,
    /// Granted rights.
    pub access: AccessMask,
    /// What others may do meanwhile.
    pub share_access: ShareAccess,
    /// A folder.
    pub directory: bool,
    /// It was opened to be deleted when it closes.
    pub delete_on_close: bool,
    /// Its path without the stream; renames change it.
    pub path: Text,
    /// The lease of the folder it is in, as the client calls it.
    pub parent_lease: Option<LeaseKey>,
    /// `AppInstanceId`.
    pub app_instance: Option<Guid>,
}

/// An open with all that hangs on it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) info: OpenInfo,
    /// The oplock, if there is no lease.
    pub(super) oplock: Caching,
    pub(super) lease: Option<LeaseName>,
    pub(super) durable: Option<Durability>,
    pub(super) sequence: Sequence,
    /// Locks it holds, to be quick where there are none.
    pub(super) lock_count: u32,
    /// `LockSequenceArray` ([MS-SMB2] 3.3.1.10): the last number seen in each bucket, [`super::locks::UNSEEN`] if none.
    pub(super) lock_sequences: Option<Box<[u8; 64]>>,
}

impl Open {
    pub(super) fn mode(&self) -> Mode {
        Mode {
            access: self.info.access,
            share: self.info.share_access,
        }
    }
}

/// A file or folder that is open in some way.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// Streams that are open, in no order; few.
    pub(super) streams: Vec<Stream>,
    /// The file is to be deleted with its last close; how it was called by whoever decided that.
    pub(super) pending: Option<Doomed>,
    /// Requests that wait for breaks here.
    pub(super) waiters: BTreeSet<WaiterId>,
}

/// A stream that is open.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) name: Option<Text>,
    pub(super) crowd: Crowd,
    pub(super) locks: Vec<Lock>,
    /// LOCK requests that wait, first come first.
    pub(super) lock_waiters: Vec<WaiterId>,
    /// This named stream alone is to be deleted.
    pub(super) pending: Option<Doomed>,
}

/// Where that which is to be deleted lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    pub(super) share_id: u32,
    pub(super) path: Text,
    pub(super) directory: bool,
    /// Who decided it.
    pub(super) user: Arc<str>,
}

impl Base {
    pub(super) fn stream(&self, name: Option<&Text>) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.name.as_ref() == name)
    }

    pub(super) fn stream_mut(&mut self, name: Option<&Text>) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.name.as_ref() == name)
    }
}

/// Opens, files, and who has which.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) opens: HashMap<OpenId, Open>,
    pub(super) bases: HashMap<BaseKey, Base>,
    pub(super) sessions: HashMap<SessionId, BTreeSet<OpenId>>,
    /// Byte-range locks of all opens.
    pub(super) lock_count: usize,
    pub(super) connections: BTreeSet<(ConnectionId, OpenId)>,
    /// By share and path in upper case.
    pub(super) paths: BTreeMap<(u32, Text), BTreeSet<OpenId>>,
}

impl Tables {
    pub(super) fn stream(&self, file: &FileKey) -> Option<&Stream> {
        self.bases.get(&file.base())?.stream(file.stream.as_ref())
    }

    pub(super) fn stream_mut(&mut self, file: &FileKey) -> Option<&mut Stream> {
        self.bases.get_mut(&file.base())?.stream_mut(file.stream.as_ref())
    }

    /// Opens of one stream.
    pub(super) fn opens_of<'a>(&'a self, file: &FileKey) -> impl Iterator<Item = &'a Open> + use<'a> {
        let ids = self.stream(file).map(|stream| stream.crowd.opens());
        ids.into_iter().flatten().filter_map(|id| self.opens.get(&id))
    }

    pub(super) fn insert(&mut self, open: Open) {
        let info = &open.info;
        let base = self.bases.entry(info.file.base()).or_default();
        match base.stream_mut(info.file.stream.as_ref()) {
            Some(stream) => stream.crowd.add(&open),
            None => {
                let mut crowd = Crowd::default();
                crowd.add(&open);
                base.streams.push(Stream {
                    name: info.file.stream.clone(),
                    crowd,
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

    /// Takes the open out of everything but its file's streams.
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

    /// The session has the open, on that connection.
    pub(super) fn attach(&mut self, id: OpenId, connection: ConnectionId, session: SessionId) {
        self.connections.insert((connection, id));
        self.sessions.entry(session).or_default().insert(id);
    }

    /// Nobody has the open.
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

    /// Opens whose path, in upper case, lies beneath the folder's.
    pub(super) fn beneath<'a>(
        &'a self,
        share_id: u32,
        folder: &Text,
    ) -> impl Iterator<Item = OpenId> + use<'a> {
        let (low, high) = beneath_bounds(share_id, folder);
        let range = self.paths.range((Bound::Excluded(low), Bound::Excluded(high)));
        range.flat_map(|(_, set)| set.iter().copied())
    }

    /// Gives the open another path.
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

/// What lies strictly between is beneath the folder (the root is the empty path, and beneath itself is nothing).
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
