//! A store in memory and opens of its files, for tests.
//!
//! It fulfils the contract of [`Store`] with everything a server may ask for: sparse files,
//! folders, links, streams, extended attributes, security descriptors. Each change advances its
//! clock by a second, so that times show what changed.

mod node;
mod state;

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ropeway_smb_proto::server::hub::FileKey;
use ropeway_smb_wire::create::{AccessMask, CreateAction, CreateOptions};
use ropeway_smb_wire::security::Sid;
use ropeway_vfs::store::{Access, NewNode, Node, NodeOpen, NodeStat, Opened, Removal, Store, StoreFeatures};
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Op, Owner, RelPath, Result, Space, Timestamp};

use crate::share::Share;
use crate::state::open::{Open, OpenState};
use crate::token::Token;
use node::MemoryNode;
use state::State;

/// Size of the volume in bytes.
pub(crate) const TOTAL: u64 = 1 << 30;
/// Serial number of the volume.
pub(crate) const VOLUME: u64 = 0x1234_5678_9ABC_DEF0;
/// Size of an allocation unit in bytes.
pub(crate) const UNIT: u32 = 4096;
/// User and group of all files.
pub(crate) const OWNER: Owner = Owner {
    user: 1000,
    group: 100,
};

/// Returns the features of the store in memory.
pub(crate) fn features() -> StoreFeatures {
    StoreFeatures {
        volume: VOLUME,
        name_max: 255,
        unit: UNIT,
        read_only: false,
        sparse: true,
        windows_metadata: true,
        created: Timestamp::from_unix(1_600_000_000, 0),
    }
}

/// Returns default attributes of a node.
pub(crate) fn stat(kind: Kind) -> NodeStat {
    let time = Timestamp::from_unix(1_700_000_000, 0);
    NodeStat {
        kind,
        size: 0,
        allocated: 0,
        links: 1,
        id: FileId {
            volume: VOLUME,
            index: 7,
        },
        mode: 0o640,
        owner: OWNER,
        created: time,
        accessed: time,
        modified: time,
        changed: time,
        dos_attributes: None,
    }
}

/// Returns an empty share in memory.
pub(crate) fn share() -> Arc<Share> {
    Arc::new(Share {
        name: "data".into(),
        comment: "a share in memory".into(),
        store: Arc::new(MemoryStore::default()),
        read_only: false,
        encrypt: false,
        anonymous: false,
        hide_dot_files: true,
        links: Default::default(),
        far: false,
        recycle_bin: None,
        snapshots: None,
        journal: None,
    })
}

/// Returns the token of the user who owns the files.
pub(crate) fn token() -> Token {
    let sid = |text: &str| text.parse::<Sid>().expect("a SID");
    Token {
        name: "user".into(),
        is_anonymous: false,
        user: sid("S-1-22-1-1000"),
        group: sid("S-1-22-2-100"),
        groups: vec![sid("S-1-1-0"), sid("S-1-5-11"), sid("S-1-5-2")],
    }
}

/// Parses a path.
pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

/// Opens a file with these rights; creates it if it does not exist.
pub(crate) fn open(share: &Arc<Share>, name: &str, access: AccessMask) -> Open {
    opened(share, name, access, Some(false))
}

/// Opens a folder with all rights; creates it if it does not exist.
pub(crate) fn folder(share: &Arc<Share>, name: &str) -> Open {
    let create = (!name.is_empty()).then_some(true);
    opened(share, name, AccessMask::FILE_ALL, create)
}

/// Opens an existing node with all rights; links are not followed.
pub(crate) fn existing(share: &Arc<Share>, name: &str) -> Open {
    opened(share, name, AccessMask::FILE_ALL, None)
}

fn opened(share: &Arc<Share>, name: &str, access: AccessMask, create: Option<bool>) -> Open {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let path = path(name);
    let how = NodeOpen {
        access: Access::Write,
        allow_less_access: true,
        create: create.map(|directory| NewNode {
            directory,
            dos_attributes: None,
        }),
        exclusive: false,
        link_itself: true,
    };
    let Opened { node, stat, .. } = share.store.open(&path, &how).expect("it opens");
    Open {
        session: AtomicU64::new(0),
        tree: AtomicU32::new(0),
        file: FileKey {
            share_volume: stat.id.volume,
            index: stat.id.index,
            stream: None,
        },
        base: None,
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        share: Arc::clone(share),
        node,
        stream: None,
        short_name: None,
        directory: stat.kind == Kind::Directory,
        access,
        may_overwrite: true,
        options: CreateOptions::default(),
        action: CreateAction::OPENED,
        path: Mutex::new(path),
        position: AtomicU64::new(0),
        scan: Mutex::new(None),
        state: OpenState::default(),
    }
}

/// A store in memory.
pub(crate) struct MemoryStore {
    features: StoreFeatures,
    state: Arc<Mutex<State>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            features: features(),
            state: Arc::new(Mutex::new(State::new())),
        }
    }
}

fn fail<T>(path: &RelPath, kind: ErrorKind) -> Result<T> {
    Err(Error::new(Op::Open, path, kind))
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn node(&self, index: u64, access: Access) -> Arc<MemoryNode> {
        Arc::new(MemoryNode {
            state: Arc::clone(&self.state),
            index,
            stream: None,
            access,
        })
    }
}

impl MemoryStore {
    /// Returns the node's attributes if it has this name.
    fn has(&self, id: FileId, path: &RelPath) -> Result<NodeStat> {
        let state = self.lock();
        let index = state.find(path, false)?;
        let stat = state.stat(index, None);
        if stat.id == id {
            Ok(stat)
        } else {
            fail(path, ErrorKind::Gone)
        }
    }
}

impl Store for MemoryStore {
    fn features(&self) -> &StoreFeatures {
        &self.features
    }

    fn space(&self) -> Result<Space> {
        Ok(Space {
            total: TOTAL,
            available: TOTAL / 2,
            nodes_available: None,
        })
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        let state = self.lock();
        let mut found = RelPath::root();
        let names: Vec<_> = path.components().collect();
        for (at, name) in names.iter().enumerate() {
            let last = at + 1 == names.len();
            let folder = state.find(&found, true)?;
            let Some(entries) = state.entries(folder) else {
                return fail(path, ErrorKind::NotADirectory);
            };
            let alike = || {
                let folded = name.as_bytes().to_ascii_lowercase();
                entries
                    .keys()
                    .find(|other| other.as_bytes().to_ascii_lowercase() == folded)
            };
            let actual = entries.get_key_value(name).map(|(name, _)| name).or_else(alike);
            match actual {
                Some(actual) => found = found.join(actual),
                None if last => found = found.join(name),
                None => return fail(path, ErrorKind::NotFound),
            }
        }
        Ok(found)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let mut state = self.lock();
        let (index, created) = match state.find(path, !how.link_itself) {
            Ok(_) if how.exclusive => return fail(path, ErrorKind::AlreadyExists),
            Ok(index) => (index, false),
            Err(error) if error.kind == ErrorKind::NotFound => match how.create {
                None => return Err(error),
                Some(new) => {
                    let kind = match new.directory {
                        true => Kind::Directory,
                        false => Kind::File,
                    };
                    let index = state.make(path, kind)?;
                    state.inode(index).dos_attributes = new.dos_attributes;
                    (index, true)
                }
            },
            Err(error) => return Err(error),
        };
        let stat = state.stat(index, None);
        drop(state);
        Ok(Opened {
            node: self.node(index, how.access),
            stat,
            created,
        })
    }

    fn remove(&self, path: &RelPath, directory: bool) -> Result<()> {
        let mut state = self.lock();
        let index = state.find(path, false)?;
        match state.entries(index) {
            Some(_) if !directory => return fail(path, ErrorKind::IsADirectory),
            Some(entries) if !entries.is_empty() => return fail(path, ErrorKind::NotEmpty),
            None if directory => return fail(path, ErrorKind::NotADirectory),
            _ => {}
        }
        state.unlink(path)
    }

    fn remove_node(&self, id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        let stat = self.has(id, path)?;
        if what == Removal::EmptyFile && stat.size > 0 {
            return fail(path, ErrorKind::NotEmpty);
        }
        self.remove(path, what == Removal::Directory)
    }

    fn rename_node(&self, id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.has(id, from)?;
        self.rename(from, to, replace)
    }

    fn link_node(&self, node: &dyn Node, to: &RelPath, replace: bool) -> Result<()> {
        let Some(node) = node.as_any().downcast_ref::<MemoryNode>() else {
            return fail(to, ErrorKind::Misuse);
        };
        let mut state = self.lock();
        if state.find(to, false).is_ok() {
            if !replace {
                return fail(to, ErrorKind::AlreadyExists);
            }
            state.unlink(to)?;
        }
        state.enter(to, node.index)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let mut state = self.lock();
        let index = state.find(from, false)?;
        match state.find(to, false) {
            Ok(other) if other == index => {}
            Ok(_) if !replace => return fail(to, ErrorKind::AlreadyExists),
            Ok(other) if state.entries(other).is_some() => return fail(to, ErrorKind::IsADirectory),
            Ok(_) => state.unlink(to)?,
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        state.unlink(from)?;
        state.enter(to, index)
    }

    fn link(&self, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let mut state = self.lock();
        let index = state.find(from, false)?;
        if state.find(to, false).is_ok() {
            if !replace {
                return fail(to, ErrorKind::AlreadyExists);
            }
            state.unlink(to)?;
        }
        state.enter(to, index)
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if state.find(path, false).is_ok() {
            return fail(path, ErrorKind::AlreadyExists);
        }
        let index = state.make(path, Kind::Symlink)?;
        state.inode(index).target = target.to_vec();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
