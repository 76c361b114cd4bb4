//! A folder of a share as a [`Store`] that can only be read: to look around on a machine, and to
//! open single files there, before everything is copied.
//!
//! A store is synchronous: each call blocks the caller's thread until the tasks of the runtime have
//! done the work, so no thread of the runtime itself may call. Nothing is kept between calls: the
//! kernel keeps what it has read. Names are found without regard to case, as the server finds them.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use ropeway_block::Pool;
use ropeway_smb_client::common::wire_name;
use ropeway_smb_wire::upcase;
use ropeway_vfs::store::{
    Access, Entries, Node, NodeChange, NodeOpen, NodeStat, Opened, Removal, Store, StoreFeatures, StreamInfo,
    StreamOpen,
};
use ropeway_vfs::tree::{Extent, Space};
use ropeway_vfs::{
    Error, ErrorKind, File, FileId, Kind, Listing, Metadata, Name, Op, OpenOptions, Owner, RelPath, Result,
    Timestamp, Tree, Xattr,
};
use tokio::runtime::Handle;

use crate::tree::Smb1Tree;

/// Bytes of one read of the kernel's read-ahead, and how many are served at the same time. Guesses.
const READ_LEN: usize = 128 << 10;
const READS: usize = 16;

/// Entries fetched at once for a program that lists a folder.
const ENTRIES: usize = 256;

/// Unit in which sizes on disk are shown; SMB 1 servers have no better one.
const UNIT: u32 = 4096;

/// Permission bits of nodes: SMB 1 tells none, and nothing can be changed.
const FOLDER_MODE: u32 = 0o555;
const FILE_MODE: u32 = 0o444;

/// A folder of a share as a store. Clones are the same store.
#[derive(Clone)]
pub struct Smb1Store {
    shared: Arc<Shared>,
}

struct Shared {
    tree: Smb1Tree,
    runtime: Handle,
    pool: Pool,
    features: StoreFeatures,
}

impl Smb1Store {
    /// Makes a store of a tree. `runtime` is the one in which the client was connected.
    pub fn new(tree: Smb1Tree, runtime: Handle) -> Self {
        let features = StoreFeatures {
            volume: tree.serial(),
            name_max: tree.capabilities().name_max,
            unit: UNIT,
            read_only: true,
            sparse: false,
            windows_metadata: true,
            created: Timestamp::UNKNOWN,
        };
        Self {
            shared: Arc::new(Shared {
                tree,
                runtime,
                pool: Pool::new(READ_LEN, READS),
                features,
            }),
        }
    }
}

impl Shared {
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        let metadata = self.wait(self.tree.metadata(path))?;
        Ok(self.stat_of(&metadata, path))
    }

    fn stat_of(&self, metadata: &Metadata, path: &RelPath) -> NodeStat {
        let mode = match metadata.kind {
            Kind::Directory => FOLDER_MODE,
            Kind::Symlink => 0o777,
            _ => FILE_MODE,
        };
        let modified = metadata.modified.known().unwrap_or_default();
        NodeStat {
            kind: metadata.kind,
            size: metadata.size,
            allocated: metadata.allocated.unwrap_or(metadata.size),
            links: metadata.links,
            id: metadata.id.unwrap_or_else(|| self.id_of(path)),
            mode,
            owner: Owner { user: 0, group: 0 },
            created: metadata.created.unwrap_or(modified),
            accessed: metadata.accessed.unwrap_or(modified),
            modified,
            changed: metadata.changed.unwrap_or(modified),
            dos_attributes: metadata.dos_attributes,
        }
    }

    /// Returns an id for a node of a server that has none.
    fn id_of(&self, path: &RelPath) -> FileId {
        let mut hasher = DefaultHasher::new();
        path.as_bytes().hash(&mut hasher);
        FileId {
            volume: self.features.volume,
            index: hasher.finish(),
        }
    }

    /// Returns the name of an entry that matches `name`, exactly if there is one.
    fn spelled(&self, dir: &RelPath, name: &Name) -> Result<Option<Name>> {
        let wanted = wire_name(name);
        self.wait(async {
            let mut listing = self.tree.list(dir).await?;
            let mut found = None;
            loop {
                let batch = listing.next(ENTRIES).await?;
                if batch.is_empty() {
                    return Ok(found);
                }
                for entry in batch {
                    if entry.name == *name {
                        return Ok(Some(entry.name));
                    }
                    if found.is_none() && upcase::equal(&wire_name(&entry.name), &wanted) {
                        found = Some(entry.name);
                    }
                }
            }
        })
    }
}

fn read_only<T>(op: Op, path: &RelPath) -> Result<T> {
    Err(Error::new(op, path, ErrorKind::ReadOnly))
}

impl Store for Smb1Store {
    fn features(&self) -> &StoreFeatures {
        &self.shared.features
    }

    fn space(&self) -> Result<Space> {
        self.shared.wait(self.shared.tree.space())
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        let mut resolved = RelPath::root();
        let mut names = path.components().peekable();
        while let Some(name) = names.next() {
            let spelled = self.shared.spelled(&resolved, &name)?;
            if spelled.is_none() && names.peek().is_some() {
                return Err(Error::new(Op::Open, path, ErrorKind::NotFound));
            }
            resolved = resolved.join(&spelled.unwrap_or(name));
        }
        Ok(resolved)
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let shared = &self.shared;
        let stat = match shared.look(path) {
            Err(error) if error.kind == ErrorKind::NotFound && how.create.is_some() => {
                return read_only(Op::Create, path);
            }
            found => found?,
        };
        if how.create.is_some() && how.exclusive {
            return Err(Error::new(Op::Create, path, ErrorKind::AlreadyExists));
        }
        if stat.kind == Kind::Symlink && !how.link_itself {
            return Err(Error::new(Op::Open, path, ErrorKind::SymbolicLink));
        }
        if how.access == Access::Write && !how.allow_less_access {
            return read_only(Op::Open, path);
        }
        let access = how.access.min(Access::Read);
        let file = match (stat.kind, access) {
            (Kind::File, Access::Read) => Some(shared.wait(shared.tree.open(path, OpenOptions::default()))?),
            _ => None,
        };
        let node = Smb1Node {
            shared: Arc::clone(shared),
            path: path.clone(),
            kind: stat.kind,
            access,
            file,
        };
        Ok(Opened {
            node: Arc::new(node),
            stat,
            created: false,
        })
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        self.shared.look(path)
    }

    fn remove(&self, path: &RelPath, _directory: bool) -> Result<()> {
        read_only(Op::Remove, path)
    }

    fn remove_node(&self, _id: FileId, path: &RelPath, _what: Removal) -> Result<()> {
        read_only(Op::Remove, path)
    }

    fn check_remove(&self, path: &RelPath) -> Result<()> {
        read_only(Op::Remove, path)
    }

    fn rename(&self, from: &RelPath, _to: &RelPath, _replace: bool) -> Result<()> {
        read_only(Op::Rename, from)
    }

    fn rename_node(&self, _id: FileId, from: &RelPath, _to: &RelPath, _replace: bool) -> Result<()> {
        read_only(Op::Rename, from)
    }

    fn link_node(&self, _node: &dyn Node, to: &RelPath, _replace: bool) -> Result<()> {
        read_only(Op::Link, to)
    }

    fn link(&self, _from: &RelPath, to: &RelPath, _replace: bool) -> Result<()> {
        read_only(Op::Link, to)
    }

    fn symlink(&self, path: &RelPath, _target: &[u8]) -> Result<()> {
        read_only(Op::Link, path)
    }

    fn may_hold_security(&self) -> bool {
        false
    }

    fn may_have_xattrs(&self) -> bool {
        false
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// An open node.
struct Smb1Node {
    shared: Arc<Shared>,
    path: RelPath,
    kind: Kind,
    access: Access,
    file: Option<Arc<dyn File>>,
}

impl Smb1Node {
    fn fault<T>(&self, op: Op, kind: ErrorKind) -> Result<T> {
        Err(Error::new(op, &self.path, kind))
    }
}

impl Node for Smb1Node {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        self.shared.look(&self.path)
    }

    fn change(&self, _change: &NodeChange) -> Result<()> {
        read_only(Op::SetAttributes, &self.path)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.kind == Kind::Directory {
            return self.fault(Op::Read, ErrorKind::IsADirectory);
        }
        let Some(file) = &self.file else {
            return self.fault(Op::Read, ErrorKind::PermissionDenied);
        };
        self.shared.wait(async {
            let mut done = 0;
            while done < buffer.len() {
                let wanted = (buffer.len() - done).min(READ_LEN);
                let block = self.shared.pool.get().await;
                let (block, outcome) = file.read_at(block, offset + done as u64, wanted).await;
                outcome?;
                let length = block.len();
                buffer[done..done + length].copy_from_slice(&block);
                done += length;
                if length < wanted {
                    break;
                }
            }
            Ok(done)
        })
    }

    fn read_cached(&self, _buffer: &mut [u8], _offset: u64) -> Result<Option<usize>> {
        Ok(None)
    }

    fn write_at(&self, _data: &[u8], _offset: u64) -> Result<()> {
        read_only(Op::Write, &self.path)
    }

    fn set_len(&self, _length: u64) -> Result<()> {
        read_only(Op::SetLength, &self.path)
    }

    fn allocate(&self, _length: u64) -> Result<()> {
        read_only(Op::SetLength, &self.path)
    }

    fn zero(&self, _offset: u64, _length: u64, _hole: bool) -> Result<()> {
        read_only(Op::Write, &self.path)
    }

    /// Servers of SMB 1 tell no holes: one run.
    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        let end = self.stat()?.size.min(offset.saturating_add(length));
        Ok(match end > offset && max > 0 {
            true => vec![Extent {
                offset,
                length: end - offset,
            }],
            false => Vec::new(),
        })
    }

    fn copy_from(&self, _source: &dyn Node, _from: u64, _to: u64, _length: u64) -> Result<u64> {
        read_only(Op::CopyRange, &self.path)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        if self.kind != Kind::Directory {
            return self.fault(Op::List, ErrorKind::NotADirectory);
        }
        let listing = self.shared.wait(self.shared.tree.list(&self.path))?;
        Ok(Box::new(Smb1Entries {
            shared: Arc::clone(&self.shared),
            dir: self.path.clone(),
            listing,
            ready: VecDeque::new(),
        }))
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        match self.kind {
            Kind::Symlink => self.shared.wait(self.shared.tree.read_link(&self.path)),
            _ => self.fault(Op::Link, ErrorKind::Misuse),
        }
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        Ok(Vec::new())
    }

    fn open_stream(&self, _name: &Name, _how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        self.fault(Op::Open, ErrorKind::NotFound)
    }

    fn remove_stream(&self, _name: &Name) -> Result<()> {
        self.fault(Op::Remove, ErrorKind::NotFound)
    }

    fn rename_stream(&self, _name: &Name, _to: &Name, _replace: bool) -> Result<()> {
        self.fault(Op::Rename, ErrorKind::NotFound)
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn set_security(&self, _descriptor: &[u8]) -> Result<()> {
        read_only(Op::SetAttributes, &self.path)
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        Ok(Vec::new())
    }

    fn set_ea(&self, _name: &[u8], _value: &[u8]) -> Result<()> {
        read_only(Op::Xattr, &self.path)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// A listing in progress.
struct Smb1Entries {
    shared: Arc<Shared>,
    dir: RelPath,
    listing: Box<dyn Listing>,
    ready: VecDeque<(Name, Metadata)>,
}

impl Entries for Smb1Entries {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        while self.ready.is_empty() {
            let batch = self.shared.wait(self.listing.next(ENTRIES))?;
            if batch.is_empty() {
                return Ok(None);
            }
            for entry in batch {
                match entry.metadata {
                    Ok(metadata) => self.ready.push_back((entry.name, metadata)),
                    // It vanished, or no program could use its name.
                    Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::InvalidReply) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self.ready.pop_front().map(|(name, metadata)| {
            let stat = self.shared.stat_of(&metadata, &self.dir.join(&name));
            (name, stat)
        }))
    }
}
