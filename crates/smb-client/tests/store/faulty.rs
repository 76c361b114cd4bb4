//! A folder on a disk that fails to write something, says so once, and forgets it, as Linux does; and that
//! refuses to open files.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_vfs::store::{
    Access, Entries, Node, NodeChange, NodeOpen, NodeStat, Opened, Removal, Store, StoreFeatures, StreamInfo,
    StreamOpen,
};
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{Error, ErrorKind, FileId, Name, Op, RelPath, Result, Space, Xattr};

/// Forwards methods to `inner`.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result { self.inner.$name($($argument),*) })*
    };
}

/// What is to fail.
#[derive(Default)]
pub(crate) struct Faults {
    /// The next flush of a file.
    pub(crate) flush: AtomicBool,
    /// Of the next opens for writing the one with this number; 0: none.
    pub(crate) open: AtomicU32,
}

/// The store.
pub(crate) struct FaultyStore {
    inner: LocalStore,
    faults: Arc<Faults>,
}

struct FaultyNode {
    inner: Arc<dyn Node>,
    faults: Arc<Faults>,
}

impl FaultyStore {
    pub(crate) fn open(folder: &Path, faults: &Arc<Faults>) -> Self {
        Self {
            inner: LocalStore::open(folder, &StoreOptions::default()).unwrap(),
            faults: Arc::clone(faults),
        }
    }
}

impl Store for FaultyStore {
    forward! {
        features() -> &StoreFeatures;
        space() -> Result<Space>;
        resolve(path: &RelPath) -> Result<RelPath>;
        remove(path: &RelPath, directory: bool) -> Result<()>;
        remove_node(id: FileId, path: &RelPath, what: Removal) -> Result<()>;
        rename(from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;
        rename_node(id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;
        link_node(node: &dyn Node, to: &RelPath, replace: bool) -> Result<()>;
        link(from: &RelPath, to: &RelPath, replace: bool) -> Result<()>;
        symlink(path: &RelPath, target: &[u8]) -> Result<()>;
        sync() -> Result<()>;
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let next = |number: u32| number.checked_sub(1);
        let open = &self.faults.open;
        if how.access == Access::Write
            && open.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) == Ok(1)
        {
            return Err(Error::new(Op::Open, path, ErrorKind::NoSpace));
        }
        let opened = self.inner.open(path, how)?;
        let (inner, faults) = (opened.node, Arc::clone(&self.faults));
        Ok(Opened {
            node: Arc::new(FaultyNode { inner, faults }),
            ..opened
        })
    }
}

impl Node for FaultyNode {
    forward! {
        access() -> Access;
        stat() -> Result<NodeStat>;
        change(change: &NodeChange) -> Result<()>;
        read_at(buffer: &mut [u8], offset: u64) -> Result<usize>;
        read_cached(buffer: &mut [u8], offset: u64) -> Result<Option<usize>>;
        write_at(data: &[u8], offset: u64) -> Result<()>;
        set_len(length: u64) -> Result<()>;
        allocate(length: u64) -> Result<()>;
        zero(offset: u64, length: u64, hole: bool) -> Result<()>;
        extents(offset: u64, length: u64, max: usize) -> Result<Vec<Extent>>;
        copy_from(source: &dyn Node, from: u64, offset: u64, length: u64) -> Result<u64>;
        entries() -> Result<Box<dyn Entries>>;
        link_target() -> Result<Vec<u8>>;
        streams() -> Result<Vec<StreamInfo>>;
        open_stream(name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)>;
        remove_stream(name: &Name) -> Result<()>;
        rename_stream(name: &Name, to: &Name, replace: bool) -> Result<()>;
        security() -> Result<Option<Vec<u8>>>;
        set_security(descriptor: &[u8]) -> Result<()>;
        eas() -> Result<Vec<Xattr>>;
        set_ea(name: &[u8], value: &[u8]) -> Result<()>;
    }

    /// Where it fails, nothing is left of what was written.
    fn sync(&self) -> Result<()> {
        if self.faults.flush.swap(false, Ordering::AcqRel) {
            self.inner.set_len(0)?;
            return Err(Error::new(Op::Sync, &RelPath::root(), ErrorKind::DeviceError));
        }
        self.inner.sync()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
