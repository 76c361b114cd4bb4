//! Open alternate data streams; stored as [`winmeta::streams`] says.
//!
//! All nodes of one stream share its [`Body`]. It knows the present name of the attribute, serialises changes (a
//! change reads, changes and writes the whole value), and holds the content of a stream removed while open.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use ropeway_vfs::external::Watching;
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, StreamInfo, StreamOpen};
use ropeway_vfs::{Error, ErrorKind, Extent, FileId, Name, Op, Result, Xattr};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::descriptors::Handle;
use super::node::LocalNode;
use super::root::failed;
use super::xattrs::{self, Target};
use crate::winmeta::fold;
use crate::winmeta::streams::{LENGTH_MAX, attribute_of, content_of, content_size, name_of, value_of};
use crate::xattr;

/// Bytes copied at once to or from a stream.
const COPY_BYTES: u64 = 64 * 1024;

/// The streams that are open, of all files.
#[derive(Default)]
pub(super) struct OpenStreams {
    bodies: Mutex<HashMap<Key, Weak<Body>>>,
}

/// A file and the stream's attribute without regard to case.
type Key = (FileId, Vec<u8>);

/// What the nodes of one stream share.
struct Body {
    state: Mutex<State>,
}

enum State {
    /// Kept under this attribute.
    Kept(Vec<u8>),
    /// Removed; the content is here.
    Removed(Vec<u8>),
}

/// An open stream.
pub(super) struct StreamNode {
    core: Arc<super::Core>,
    /// The file's.
    file: Arc<Handle>,
    file_kind: ropeway_vfs::Kind,
    body: Arc<Body>,
}

impl OpenStreams {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Body>>> {
        self.bodies.lock()
    }

    /// The stream's body, shared with whoever has it open.
    fn body(&self, file: FileId, attribute: &[u8]) -> Arc<Body> {
        let mut bodies = self.lock();
        let key = (file, fold::fold(attribute));
        if let Some(body) = bodies.get(&key).and_then(Weak::upgrade) {
            return body;
        }
        let state = Mutex::new(State::Kept(attribute.to_vec()));
        let body = Arc::new(Body { state });
        bodies.insert(key, Arc::downgrade(&body));
        body
    }

    fn take(&self, file: FileId, attribute: &[u8]) -> Option<Arc<Body>> {
        let body = self.lock().remove(&(file, fold::fold(attribute)))?;
        body.upgrade()
    }

    fn put(&self, file: FileId, attribute: &[u8], body: &Arc<Body>) {
        self.lock()
            .insert((file, fold::fold(attribute)), Arc::downgrade(body));
    }

    /// Forgets the body of a stream that is not open any more.
    fn tidy(&self, file: FileId, attribute: &[u8]) {
        let mut bodies = self.lock();
        let key = (file, fold::fold(attribute));
        if bodies.get(&key).is_some_and(|body| body.strong_count() == 0) {
            bodies.remove(&key);
        }
    }
}

impl Body {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Named streams of a node.
pub(super) fn list(node: &LocalNode) -> Result<Vec<StreamInfo>> {
    let target = Target::of(&node.handle)?;
    let fault = |error| failed(Op::Xattr, &node.handle.path(), error);
    let mut found = Vec::new();
    for attribute in xattr::list(&target.node()).map_err(fault)? {
        let Some(name) = name_of(&attribute) else {
            continue;
        };
        // `None`: removed since it was listed.
        if let Some(size) = xattr::size(&target.node(), &attribute).map_err(fault)? {
            let size = content_size(size) as u64;
            found.push(StreamInfo { name, size });
        }
    }
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Opens a stream; the flag says whether it was made.
pub(super) fn open(node: &LocalNode, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
    xattrs::require_attributes(&node.handle, node.kind)?;
    let refused = |kind| Err(Error::new(Op::Open, &node.handle.path(), kind));
    let lock = node.core.changing(node.handle.id());
    let _one = lock.lock();
    let target = Target::of(&node.handle)?;
    let known = find(node, &target, name)?;
    let (attribute, made) = match known {
        Some(_) if how.exclusive => return refused(ErrorKind::AlreadyExists),
        Some(attribute) => (attribute, false),
        None if !how.create => return refused(ErrorKind::NotFound),
        None => {
            let attribute = named(node, name)?;
            xattr::set_with(
                &target.node(),
                &attribute,
                &value_of(Vec::new()),
                XattrFlags::CREATE,
            )
            .map_err(|error| xattrs::value_fault(&node.handle, error))?;
            (attribute, true)
        }
    };
    let stream = StreamNode {
        core: Arc::clone(&node.core),
        file: Arc::clone(&node.handle),
        file_kind: node.kind,
        body: node.core.streams.body(node.handle.id(), &attribute),
    };
    Ok((Arc::new(stream), made))
}

/// Removes a stream; who has it open keeps its content.
pub(super) fn remove(node: &LocalNode, name: &Name) -> Result<()> {
    let lock = node.core.changing(node.handle.id());
    let _one = lock.lock();
    let target = Target::of(&node.handle)?;
    let Some(attribute) = find(node, &target, name)? else {
        return Err(Error::new(Op::Remove, &node.handle.path(), ErrorKind::NotFound));
    };
    detach(node, &target, &attribute)?;
    xattr::remove(&target.node(), &attribute).map_err(|error| failed(Op::Remove, &node.handle.path(), error))
}

/// Renames a stream.
pub(super) fn rename(node: &LocalNode, name: &Name, to: &Name, replace: bool) -> Result<()> {
    let refused = |kind| Err(Error::new(Op::Rename, &node.handle.path(), kind));
    let lock = node.core.changing(node.handle.id());
    let _one = lock.lock();
    let target = Target::of(&node.handle)?;
    let Some(old) = find(node, &target, name)? else {
        return refused(ErrorKind::NotFound);
    };
    let new = named(node, to)?;
    if old == new {
        return Ok(());
    }
    let taken = find(node, &target, to)?.filter(|taken| *taken != old);
    if taken.is_some() && !replace {
        return refused(ErrorKind::AlreadyExists);
    }
    let fault = |error| xattrs::value_fault(&node.handle, error);
    if let Some(taken) = &taken {
        detach(node, &target, taken)?;
    }
    let streams = &node.core.streams;
    let body = streams.take(node.handle.id(), &old);
    // Nobody writes while the value moves.
    let mut state = body.as_ref().map(|body| body.lock());
    let moved = (|| {
        let node = &target.node();
        let value = xattr::get(node, &old)?.unwrap_or_else(|| value_of(Vec::new()));
        if let Some(taken) = taken.filter(|taken| *taken != new) {
            xattr::remove(node, &taken)?;
        }
        match xattr::set(node, &new, &value) {
            // No room for both at once.
            Err(Errno::NOSPC | Errno::RANGE | Errno::TOOBIG) => {}
            result => return result.and_then(|()| xattr::remove(node, &old)),
        }
        xattr::remove(node, &old)?;
        let moved = xattr::set(node, &new, &value);
        if moved.is_err() {
            xattr::set(node, &old, &value)?;
        }
        moved
    })();
    let now = if moved.is_ok() { &new } else { &old };
    if let Some(state) = &mut state {
        **state = State::Kept(now.clone());
    }
    drop(state);
    if let Some(body) = &body {
        streams.put(node.handle.id(), now, body);
    }
    moved.map_err(fault)
}

/// Copies into a file from a node that is none, or the other way round.
pub(super) fn copy(
    target: &dyn Node,
    source: &dyn Node,
    source_offset: u64,
    offset: u64,
    length: u64,
) -> Result<u64> {
    let mut buffer = vec![0; COPY_BYTES.min(length) as usize];
    let mut done = 0;
    while done < length {
        let count = (length - done).min(COPY_BYTES) as usize;
        let read = source.read_at(&mut buffer[..count], source_offset.saturating_add(done))?;
        target.write_at(&buffer[..read], offset.saturating_add(done))?;
        done += read as u64;
        if read < count {
            break;
        }
    }
    Ok(done)
}

/// Whoever has the stream open gets its content to keep.
fn detach(node: &LocalNode, target: &Target, attribute: &[u8]) -> Result<()> {
    let Some(body) = node.core.streams.take(node.handle.id(), attribute) else {
        return Ok(());
    };
    let mut state = body.lock();
    let value = xattr::get(&target.node(), attribute)
        .map_err(|error| failed(Op::Remove, &node.handle.path(), error))?;
    *state = State::Removed(content_of(value.unwrap_or_default()));
    Ok(())
}

/// The attribute of a stream, as it is written or with another case.
fn find(node: &LocalNode, target: &Target, name: &Name) -> Result<Option<Vec<u8>>> {
    let attribute = named(node, name)?;
    let fault = |error| failed(Op::Xattr, &node.handle.path(), error);
    if xattr::size(&target.node(), &attribute).map_err(fault)?.is_some() {
        return Ok(Some(attribute));
    }
    let names = xattr::list(&target.node()).map_err(fault)?;
    Ok(names
        .into_iter()
        .find(|known| name_of(known).is_some_and(|known| fold::equal(known.as_bytes(), name.as_bytes()))))
}

/// The attribute of a stream; an error if no stream can have that name.
fn named(node: &LocalNode, name: &Name) -> Result<Vec<u8>> {
    attribute_of(name).ok_or_else(|| Error::new(Op::Open, &node.handle.path(), ErrorKind::NameRefused))
}

impl StreamNode {
    fn failed(&self, op: Op) -> impl Fn(Errno) -> Error + '_ {
        move |error| failed(op, &self.file.path(), error)
    }

    fn refuse<T>(&self, op: Op, kind: ErrorKind) -> Result<T> {
        Err(Error::new(op, &self.file.path(), kind))
    }

    fn content(&self, op: Op, state: &State) -> Result<Vec<u8>> {
        match state {
            State::Removed(content) => Ok(content.clone()),
            State::Kept(attribute) => {
                let value =
                    xattr::get(&Target::of(&self.file)?.node(), attribute).map_err(self.failed(op))?;
                // Removed behind the store's back.
                value
                    .map(content_of)
                    .ok_or_else(|| Error::new(op, &self.file.path(), ErrorKind::Gone))
            }
        }
    }

    fn update(&self, op: Op, change: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let mut state = self.body.lock();
        let mut content = self.content(op, &state)?;
        change(&mut content)?;
        match &mut *state {
            State::Removed(kept) => *kept = content,
            State::Kept(attribute) => {
                xattr::set(&Target::of(&self.file)?.node(), attribute, &value_of(content))
                    .map_err(|error| xattrs::value_fault(&self.file, error))?;
            }
        }
        Ok(())
    }

    /// An end that a stream can have.
    fn end(&self, op: Op, offset: u64, length: u64) -> Result<usize> {
        let end = usize::try_from(offset.saturating_add(length)).unwrap_or(usize::MAX);
        if end > LENGTH_MAX {
            return self.refuse(op, ErrorKind::NoSpace);
        }
        Ok(end)
    }

    fn file(&self) -> LocalNode {
        LocalNode {
            core: Arc::clone(&self.core),
            handle: Arc::clone(&self.file),
            kind: self.file_kind,
            access: Access::Attributes,
        }
    }
}

impl Drop for StreamNode {
    fn drop(&mut self) {
        let attribute = match &*self.body.lock() {
            State::Kept(attribute) => attribute.clone(),
            State::Removed(_) => return,
        };
        // This node's own share of the body goes first.
        self.body = Arc::new(Body {
            state: Mutex::new(State::Removed(Vec::new())),
        });
        self.core.streams.tidy(self.file.id(), &attribute);
    }
}

impl Node for StreamNode {
    fn access(&self) -> Access {
        Access::Write
    }

    fn stat(&self) -> Result<NodeStat> {
        let mut stat = self.file().stat()?;
        let size = match &*self.body.lock() {
            State::Removed(content) => content.len(),
            State::Kept(attribute) => xattr::size(&Target::of(&self.file)?.node(), attribute)
                .map_err(self.failed(Op::Stat))?
                .map_or(0, content_size),
        };
        stat.kind = ropeway_vfs::Kind::File;
        stat.size = size as u64;
        stat.allocated = size as u64;
        Ok(stat)
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        self.file().change(change)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let content = self.content(Op::Read, &self.body.lock())?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn read_cached(&self, _: &mut [u8], _: u64) -> Result<Option<usize>> {
        Ok(None)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = self.end(Op::Write, offset, data.len() as u64)?;
        self.update(Op::Write, |content| {
            if content.len() < end {
                content.resize(end, 0);
            }
            content[end - data.len()..end].copy_from_slice(data);
            Ok(())
        })
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let end = self.end(Op::SetLength, 0, length)?;
        self.update(Op::SetLength, |content| {
            content.resize(end, 0);
            Ok(())
        })
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.end(Op::SetLength, 0, length).map(|_| ())
    }

    fn zero(&self, offset: u64, length: u64, _hole: bool) -> Result<()> {
        self.update(Op::Write, |content| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
            let end = usize::try_from(offset.saturating_add(length)).unwrap_or(usize::MAX);
            let end = end.min(content.len());
            content[start..end].fill(0);
            Ok(())
        })
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        let size = self.content(Op::Extents, &self.body.lock())?.len() as u64;
        let end = offset.saturating_add(length).min(size);
        if offset >= end || max == 0 {
            return Ok(Vec::new());
        }
        let length = end - offset;
        Ok(vec![Extent { offset, length }])
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        copy(self, source, source_offset, offset, length)
    }

    fn sync(&self) -> Result<()> {
        self.file().sync()
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        self.refuse(Op::List, ErrorKind::NotADirectory)
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.refuse(Op::Stat, ErrorKind::Misuse)
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        list(&self.file())
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        open(&self.file(), name, how)
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        remove(&self.file(), name)
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        rename(&self.file(), name, to, replace)
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        xattrs::security(&self.file)
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        xattrs::set_security(&self.file, self.file_kind, descriptor)
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        xattrs::eas(&self.file)
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        xattrs::set_ea(&self.file, self.file_kind, name, value)
    }

    fn watch(&self, _: bool) -> Result<Watching> {
        self.file().watch(false)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
