//! The nodes and the clock of the store in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Error, ErrorKind, Extent, FileId, Kind, Name, Op, RelPath, Result, Timestamp, Xattr};

use super::{OWNER, UNIT, VOLUME};

/// Maximum number of links followed on one path.
const LINKS_MAX: usize = 40;
/// Index of the root.
const ROOT: u64 = 1;
const BLOCK: u64 = UNIT as u64;

pub(super) struct State {
    inodes: HashMap<u64, Inode>,
    next: u64,
    clock_s: i64,
}

/// A node. Nodes without a name stay until the store is dropped.
pub(super) struct Inode {
    pub(super) kind: Kind,
    pub(super) entries: BTreeMap<Name, u64>,
    pub(super) content: Content,
    pub(super) target: Vec<u8>,
    pub(super) streams: BTreeMap<Name, Content>,
    pub(super) eas: Vec<Xattr>,
    pub(super) security: Option<Vec<u8>>,
    pub(super) dos_attributes: Option<u32>,
    pub(super) links: u64,
    pub(super) created: Timestamp,
    pub(super) accessed: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
}

/// Bytes, and the blocks that are allocated for them.
#[derive(Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    blocks: BTreeSet<u64>,
}

impl Content {
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        let start = usize::try_from(offset).expect("tests write small files");
        let end = start + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(data);
        if !data.is_empty() {
            let last = (offset + data.len() as u64 - 1) / BLOCK;
            self.blocks.extend(offset / BLOCK..=last);
        }
    }

    pub(super) fn set_len(&mut self, length: u64) {
        self.bytes
            .resize(usize::try_from(length).expect("tests write small files"), 0);
        self.blocks.retain(|block| block * BLOCK < length);
    }

    pub(super) fn allocate(&mut self, length: u64) {
        self.blocks.extend(0..length.div_ceil(BLOCK));
    }

    pub(super) fn zero(&mut self, offset: u64, length: u64, hole: bool) {
        let size = self.bytes.len() as u64;
        let (start, end) = (offset.min(size), offset.saturating_add(length).min(size));
        self.bytes[start as usize..end as usize].fill(0);
        if hole {
            let last = if end == size {
                end.div_ceil(BLOCK)
            } else {
                end / BLOCK
            };
            self.blocks
                .retain(|block| *block < start.div_ceil(BLOCK) || *block >= last);
        }
    }

    pub(super) fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        let end = (offset + length).min(self.bytes.len() as u64);
        let mut extents: Vec<Extent> = Vec::new();
        for block in &self.blocks {
            let (start, stop) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
            if start >= stop {
                continue;
            }
            match extents.last_mut() {
                Some(last) if last.offset + last.length == start => last.length += stop - start,
                _ => extents.push(Extent {
                    offset: start,
                    length: stop - start,
                }),
            }
        }
        extents.truncate(max);
        extents
    }

    fn allocated(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }
}

fn error<T>(path: &RelPath, kind: ErrorKind) -> Result<T> {
    Err(Error::new(Op::Open, path, kind))
}

impl State {
    pub(super) fn new() -> Self {
        let mut state = Self {
            inodes: HashMap::new(),
            next: ROOT,
            clock_s: 1_700_000_000,
        };
        state.add(Kind::Directory);
        state
    }

    fn add(&mut self, kind: Kind) -> u64 {
        let now = self.now();
        let index = self.next;
        self.next += 1;
        let inode = Inode {
            kind,
            entries: BTreeMap::new(),
            content: Content::default(),
            target: Vec::new(),
            streams: BTreeMap::new(),
            eas: Vec::new(),
            security: None,
            dos_attributes: None,
            links: u64::from(index == ROOT),
            created: now,
            accessed: now,
            modified: now,
            changed: now,
        };
        self.inodes.insert(index, inode);
        index
    }

    /// Returns the time; each call is a second later.
    pub(super) fn now(&mut self) -> Timestamp {
        self.clock_s += 1;
        Timestamp::from_unix(self.clock_s, 0)
    }

    pub(super) fn inode(&mut self, index: u64) -> &mut Inode {
        self.inodes.get_mut(&index).expect("nodes stay")
    }

    pub(super) fn peek(&self, index: u64) -> &Inode {
        self.inodes.get(&index).expect("nodes stay")
    }

    /// Returns the entries of a folder; `None` for other nodes.
    pub(super) fn entries(&self, index: u64) -> Option<&BTreeMap<Name, u64>> {
        let inode = self.peek(index);
        (inode.kind == Kind::Directory).then_some(&inode.entries)
    }

    /// Finds the node of a path. Links are followed while they stay inside.
    pub(super) fn find(&self, path: &RelPath, follow_last: bool) -> Result<u64> {
        let mut waiting: Vec<Vec<u8>> = path.components().map(|name| name.as_bytes().to_vec()).collect();
        waiting.reverse();
        let mut above = vec![ROOT];
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            if part == b".." {
                above.pop();
                if above.is_empty() {
                    return error(path, ErrorKind::SymbolicLink);
                }
                continue;
            }
            let folder = *above.last().expect("the root is never left");
            let Some(entries) = self.entries(folder) else {
                return error(path, ErrorKind::NotADirectory);
            };
            let Some(index) = entries.get(part.as_slice()) else {
                return error(path, ErrorKind::NotFound);
            };
            let inode = self.peek(*index);
            if inode.kind == Kind::Symlink && (follow_last || !waiting.is_empty()) {
                links += 1;
                if links > LINKS_MAX || inode.target.first() == Some(&b'/') {
                    return error(path, ErrorKind::SymbolicLink);
                }
                let parts = inode.target.split(|byte| *byte == b'/').rev();
                waiting.extend(
                    parts
                        .filter(|part| !matches!(part, [] | [b'.']))
                        .map(<[u8]>::to_vec),
                );
                continue;
            }
            above.push(*index);
        }
        Ok(*above.last().expect("the root is never left"))
    }

    /// Creates a node; its folder must exist.
    pub(super) fn make(&mut self, path: &RelPath, kind: Kind) -> Result<u64> {
        let index = self.add(kind);
        self.enter(path, index)?;
        Ok(index)
    }

    /// Gives a node a name.
    pub(super) fn enter(&mut self, path: &RelPath, index: u64) -> Result<()> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return error(path, ErrorKind::AlreadyExists);
        };
        let folder = self.find(&folder, true)?;
        if self.entries(folder).is_none() {
            return error(path, ErrorKind::NotADirectory);
        }
        let now = self.now();
        let inode = self.inode(folder);
        inode.entries.insert(name, index);
        inode.modified = now;
        inode.changed = now;
        self.inode(index).links += 1;
        Ok(())
    }

    /// Removes a name.
    pub(super) fn unlink(&mut self, path: &RelPath) -> Result<()> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return error(path, ErrorKind::PermissionDenied);
        };
        let folder = self.find(&folder, true)?;
        let now = self.now();
        let inode = self.inode(folder);
        inode.modified = now;
        inode.changed = now;
        let Some(index) = inode.entries.remove(&name) else {
            return error(path, ErrorKind::NotFound);
        };
        self.inode(index).links -= 1;
        Ok(())
    }

    pub(super) fn stat(&self, index: u64, stream: Option<&Name>) -> NodeStat {
        let inode = self.peek(index);
        let content = stream
            .and_then(|name| inode.streams.get(name))
            .unwrap_or(&inode.content);
        NodeStat {
            kind: match stream {
                Some(_) => Kind::File,
                None => inode.kind,
            },
            size: content.bytes.len() as u64,
            allocated: content.allocated(),
            links: inode.links,
            id: FileId {
                volume: VOLUME,
                index,
            },
            mode: 0o640,
            owner: OWNER,
            created: inode.created,
            accessed: inode.accessed,
            modified: inode.modified,
            changed: inode.changed,
            dos_attributes: inode.dos_attributes,
        }
    }
}
