//! Open nodes of the store in memory.

use parking_lot::{Mutex, MutexGuard};
use std::any::Any;
use std::sync::Arc;

use ropeway_vfs::external::Watching;
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, StreamInfo, StreamOpen};
use ropeway_vfs::{Error, ErrorKind, Extent, Kind, Name, Op, RelPath, Result, Xattr};

use super::state::{Content, State};

pub(super) struct MemoryNode {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) index: u64,
    pub(super) stream: Option<Name>,
    pub(super) access: Access,
}

fn error(kind: ErrorKind) -> Error {
    Error::new(Op::Stat, &RelPath::root(), kind)
}

impl MemoryNode {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Reads the content.
    fn content<T>(&self, read: impl FnOnce(&Content) -> T) -> Result<T> {
        let state = self.lock();
        let inode = state.peek(self.index);
        match &self.stream {
            Some(name) => inode
                .streams
                .get(name)
                .map(read)
                .ok_or(error(ErrorKind::NotFound)),
            None if inode.kind == Kind::Directory => Err(error(ErrorKind::IsADirectory)),
            None => Ok(read(&inode.content)),
        }
    }

    /// Changes the content.
    fn change_content(&self, change: impl FnOnce(&mut Content)) -> Result<()> {
        let mut state = self.lock();
        let now = state.now();
        let inode = state.inode(self.index);
        let content = match &self.stream {
            Some(name) => inode.streams.get_mut(name).ok_or(error(ErrorKind::NotFound))?,
            None if inode.kind == Kind::Directory => return Err(error(ErrorKind::IsADirectory)),
            None => &mut inode.content,
        };
        change(content);
        inode.modified = now;
        inode.changed = now;
        Ok(())
    }
}

impl Node for MemoryNode {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        Ok(self.lock().stat(self.index, self.stream.as_ref()))
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        let mut state = self.lock();
        let now = state.now();
        let inode = state.inode(self.index);
        inode.created = change.created.unwrap_or(inode.created);
        inode.accessed = change.accessed.unwrap_or(inode.accessed);
        inode.modified = change.modified.unwrap_or(inode.modified);
        inode.dos_attributes = change.dos_attributes.or(inode.dos_attributes);
        inode.changed = now;
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.content(|content| {
            let start = usize::try_from(offset)
                .unwrap_or(usize::MAX)
                .min(content.bytes.len());
            let count = buffer.len().min(content.bytes.len() - start);
            buffer[..count].copy_from_slice(&content.bytes[start..start + count]);
            count
        })
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        self.read_at(buffer, offset).map(Some)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        short_enough(offset.saturating_add(data.len() as u64))?;
        self.change_content(|content| content.write(data, offset))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        short_enough(length)?;
        self.change_content(|content| content.set_len(length))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        short_enough(length)?;
        self.change_content(|content| content.allocate(length))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.change_content(|content| content.zero(offset, length, hole))
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        self.content(|content| content.extents(offset, length, max))
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        let source: &Self = source
            .as_any()
            .downcast_ref()
            .ok_or(error(ErrorKind::CrossDevice))?;
        short_enough(length)?;
        let mut buffer = vec![0; usize::try_from(length).expect("tests copy small files")];
        let count = source.read_at(&mut buffer, source_offset)?;
        self.write_at(&buffer[..count], offset)?;
        Ok(count as u64)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        let state = self.lock();
        let entries = state.entries(self.index).ok_or(error(ErrorKind::NotADirectory))?;
        Ok(Box::new(MemoryEntries {
            state: Arc::clone(&self.state),
            folder: self.index,
            names: entries.keys().cloned().collect::<Vec<_>>().into_iter(),
        }))
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        let state = self.lock();
        let inode = state.peek(self.index);
        match inode.kind {
            Kind::Symlink => Ok(inode.target.clone()),
            _ => Err(error(ErrorKind::Misuse)),
        }
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        let state = self.lock();
        let streams = state.peek(self.index).streams.iter();
        Ok(streams
            .map(|(name, content)| StreamInfo {
                name: name.clone(),
                size: content.bytes.len() as u64,
            })
            .collect())
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let mut state = self.lock();
        let streams = &mut state.inode(self.index).streams;
        let found = streams
            .keys()
            .find(|other| other.as_bytes().eq_ignore_ascii_case(name.as_bytes()))
            .cloned();
        let created = found.is_none();
        match &found {
            Some(_) if how.exclusive => return Err(error(ErrorKind::AlreadyExists)),
            None if !how.create => return Err(error(ErrorKind::NotFound)),
            None => drop(streams.insert(name.clone(), Content::default())),
            Some(_) => {}
        }
        let node = Self {
            state: Arc::clone(&self.state),
            index: self.index,
            stream: found.or_else(|| Some(name.clone())),
            access: self.access,
        };
        Ok((Arc::new(node), created))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        let removed = self.lock().inode(self.index).streams.remove(name);
        removed.map(drop).ok_or(error(ErrorKind::NotFound))
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        let mut state = self.lock();
        let streams = &mut state.inode(self.index).streams;
        if streams.contains_key(to) && !replace {
            return Err(error(ErrorKind::AlreadyExists));
        }
        let content = streams.remove(name).ok_or(error(ErrorKind::NotFound))?;
        streams.insert(to.clone(), content);
        Ok(())
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.lock().peek(self.index).security.clone())
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.lock().inode(self.index).security = Some(descriptor.to_vec());
        Ok(())
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        Ok(self.lock().peek(self.index).eas.clone())
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let mut state = self.lock();
        let eas = &mut state.inode(self.index).eas;
        eas.retain(|ea| !ea.name.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            eas.push(Xattr {
                name: name.to_vec(),
                value: value.to_vec(),
            });
        }
        Ok(())
    }

    fn watch(&self, _: bool) -> Result<Watching> {
        Ok(Watching::needless())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Names at the beginning of the listing.
struct MemoryEntries {
    state: Arc<Mutex<State>>,
    folder: u64,
    names: std::vec::IntoIter<Name>,
}

impl Entries for MemoryEntries {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        let state = self.state.lock();
        for name in self.names.by_ref() {
            let index = state
                .entries(self.folder)
                .and_then(|entries| entries.get(&name).copied());
            if let Some(index) = index {
                return Ok(Some((name, state.stat(index, None))));
            }
        }
        Ok(None)
    }
}

/// Checks that memory can hold a file of this length.
fn short_enough(length: u64) -> Result<()> {
    const LENGTH_MAX: u64 = 16 << 20;
    match length <= LENGTH_MAX {
        true => Ok(()),
        false => Err(error(ErrorKind::FileTooLarge)),
    }
}
