//! [`LocalTree`]: a local folder as one end of a copy.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_block::BlockMut;
use ropeway_vfs::tree::Watch;
use ropeway_vfs::{
    Batch, BatchResult, Capabilities, Claim, ClaimAbove, CompareBatch, CompareResult, Create, File, GetSmall,
    GotSmall, Listing, Loss, Metadata, MetadataChange, Name, Op, OpenOptions, Pending, PutDone, PutSmall,
    RelPath, Result, Space, Tree, Xattr,
};
use rustix::fs::StatxFlags;
use rustix::io::Errno;

use crate::attributes::xattr::View;
use crate::attributes::{self, Node, xattr};
use crate::beneath::{Links, Root, fault};
use crate::executor::{self, Lane};
use crate::io::{self, Io};
use crate::list::LocalListing;
use crate::observe::Trace;
use crate::winmeta::dos;
use crate::{IoEngine, LocalFile, LocalOptions, batch, claim, names, open, small, stat, volume, watch};

/// A local folder as a [`Tree`].
pub struct LocalTree {
    inner: Arc<Inner>,
}

/// State shared by the tree, its jobs and its open files.
pub(crate) struct Inner {
    pub(crate) root: Root,
    /// Form in which Windows metadata is shown and taken.
    pub(crate) view: View,
    pub(crate) path: PathBuf,
    engine: IoEngine,
    device: u64,
    pub(crate) capabilities: Capabilities,
    pub(crate) io: Io,
    pub(crate) trace: Trace,
    /// Whether files of this volume can share blocks.
    pub(crate) may_reflink: bool,
    /// Whether `RWF_DONTCACHE` works, by volume.
    dontcache: Mutex<HashMap<u64, bool>>,
}

impl LocalTree {
    /// Opens a folder as a tree.
    ///
    /// # Errors
    /// The root cannot be opened or made. `Misuse`: `ROPEWAY_IO` has a bad value. `Unsupported`: io_uring
    /// was asked for and is not available.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Arc<Self>> {
        let top = RelPath::root();
        let engine = io::choose(options.io, std::env::var_os("ROPEWAY_IO").as_deref())?;
        if options.create_root {
            std::fs::create_dir_all(root).map_err(|error| fault(Op::MakeDir, &top, error))?;
        }
        let failed = |error| fault(Op::Open, &top, error);
        let beneath = Root::open(root, Links::Refused).map_err(failed)?;
        let about = stat::raw(beneath.fd(), StatxFlags::INO).map_err(|error| failed(error.into()))?;
        let io = Io::start(engine, options.pool.as_ref()).map_err(failed)?;
        let threads = options.threads.unwrap_or_else(executor::short_threads_default);
        if options.threads.is_some() {
            executor::set_short_threads(threads);
        }
        let volume = volume::examine(beneath.fd(), root, options.probe, threads);
        let mut capabilities = volume.capabilities;
        let view = match options.raw_xattrs {
            true => View::Raw,
            false => View::Model,
        };
        capabilities.creation_times = view == View::Model && capabilities.xattrs;
        let inner = Inner {
            root: beneath,
            view,
            path: root.to_owned(),
            engine,
            device: stat::volume(&about),
            capabilities,
            io,
            may_reflink: volume.may_reflink,
            trace: Trace::new(options.observer),
            dontcache: Mutex::default(),
        };
        Ok(Arc::new(Self {
            inner: Arc::new(inner),
        }))
    }

    /// Returns the engine in use.
    pub fn engine(&self) -> IoEngine {
        self.inner.engine
    }

    /// Returns the path of the root as it was given.
    pub fn root(&self) -> &Path {
        &self.inner.path
    }

    /// Returns the device number of the root, as in [`ropeway_vfs::FileId::volume`].
    pub fn device(&self) -> u64 {
        self.inner.device
    }

    /// Runs an operation on a path and records it.
    fn call<T: Send + 'static>(
        &self,
        lane: Lane,
        kind: &'static str,
        path: &RelPath,
        operation: impl FnOnce(&Arc<Inner>, &RelPath) -> Result<T> + Send + 'static,
    ) -> Pending<'_, Result<T>> {
        let inner = Arc::clone(&self.inner);
        let path = path.clone();
        Box::pin(executor::run(lane, move || {
            inner
                .trace
                .call(kind, &path, (0, 0), |_| 0, || operation(&inner, &path))
        }))
    }
}

impl Inner {
    /// Returns the metadata of an open node.
    pub(crate) fn metadata_of(&self, node: &Node<'_>) -> rustix::io::Result<Metadata> {
        let metadata = stat::open(node.fd())?;
        match self.view {
            View::Model => stat::with_dos(metadata, || dos::read(node)),
            View::Raw => Ok(metadata),
        }
    }

    /// Behaves from now on as on a kernel without `RWF_DONTCACHE`.
    #[cfg(test)]
    fn forget_dontcache(&self) {
        let mut known = self.dontcache.lock();
        known.insert(self.device, false);
    }

    /// Whether `RWF_DONTCACHE` works on the volume of `fd`.
    pub(crate) fn takes_dontcache(&self, fd: &OwnedFd, volume: u64) -> bool {
        let mut known = self.dontcache.lock();
        *known.entry(volume).or_insert_with(|| open::probe_dontcache(fd))
    }
}

impl Tree for LocalTree {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self) -> String {
        self.inner.path.display().to_string()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        self.call(Lane::Short, "stat", path, |tree, path| {
            let node = tree.root.node(Op::Stat, path)?;
            tree.metadata_of(&Node::Path(node.as_fd()))
                .map_err(|error| fault(Op::Stat, path, error))
        })
    }

    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        let names = names.to_vec();
        self.call(Lane::Short, "stat", dir, move |tree, dir| {
            let place = tree.root.place(Op::Stat, dir)?;
            let look = |name: &Name| match metadata_at(tree.view, place.as_fd(), name) {
                Ok(metadata) => Ok(Some(metadata)),
                Err(Errno::NOENT) => Ok(None),
                Err(error) => Err(fault(Op::Stat, &dir.join(name), error)),
            };
            Ok(names.iter().map(look).collect())
        })
    }

    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        self.call(Lane::Short, "open", dir, |tree, dir| {
            let fd = tree.root.dir(Op::List, dir)?;
            let listing: Box<dyn Listing> =
                Box::new(LocalListing::new(fd, dir.clone(), tree.view, tree.trace.clone()));
            Ok(listing)
        })
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        let kind = if options.create == Create::No {
            "open"
        } else {
            "create"
        };
        self.call(Lane::Short, kind, path, move |tree, path| {
            let opened = open::open(tree, path, options)?;
            let file: Arc<dyn File> = Arc::new(LocalFile::new(Arc::clone(tree), path.clone(), opened));
            Ok(file)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>> {
        self.call(Lane::Short, "make_dir", path, move |tree, path| {
            names::make_dir(&tree.root, path, mode)
        })
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>> {
        let text = text.to_vec();
        self.call(Lane::Short, "link", path, move |tree, path| {
            names::make_symlink(&tree.root, path, &text)
        })
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        let existing = existing.clone();
        self.call(Lane::Short, "link", new, move |tree, new| {
            names::make_hard_link(&tree.root, &existing, new)
        })
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        let metadata = metadata.clone();
        self.call(Lane::Short, "link", path, move |tree, path| {
            names::make_special(&tree.root, path, &metadata)
        })
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        self.call(Lane::Short, "stat", path, |tree, path| {
            names::read_link(&tree.root, path)
        })
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.call(Lane::Short, "remove", path, |tree, path| {
            names::remove(&tree.root, path, false)
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.call(Lane::Short, "remove", path, |tree, path| {
            names::remove(&tree.root, path, true)
        })
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        let to = to.clone();
        self.call(Lane::Short, "rename", from, move |tree, from| {
            names::rename(&tree.root, !tree.capabilities.folder_renames, from, &to, replace)
        })
    }

    fn rename_in<'a>(&'a self, dir: &'a RelPath, pairs: &'a [(Name, Name)]) -> Pending<'a, Vec<Result<()>>> {
        let inner = Arc::clone(&self.inner);
        let (dir, pairs) = (dir.clone(), pairs.to_vec());
        Box::pin(executor::run(Lane::Short, move || {
            names::rename_in(&inner, &dir, &pairs)
        }))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        let change = change.clone();
        self.call(Lane::Short, "set_attributes", path, move |tree, path| {
            let node = tree.root.node(Op::SetAttributes, path)?;
            attributes::set(
                &Node::Path(node.as_fd()),
                &change,
                &tree.capabilities,
                tree.view,
                path,
            )
        })
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        self.call(Lane::Short, "xattr", path, |tree, path| {
            let node = tree.root.node(Op::Xattr, path)?;
            xattr::read(&Node::Path(node.as_fd()), tree.view).map_err(|error| fault(Op::Xattr, path, error))
        })
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        self.call(Lane::Short, "stat", &RelPath::root(), |tree, path| {
            let room = rustix::fs::fstatvfs(tree.root.fd()).map_err(|error| fault(Op::Stat, path, error))?;
            Ok(Space {
                total: room.f_blocks.saturating_mul(room.f_frsize),
                available: room.f_bavail.saturating_mul(room.f_frsize),
                nodes_available: (room.f_files > 0).then_some(room.f_favail),
            })
        })
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        self.call(Lane::Slow, "sync", &RelPath::root(), |tree, path| {
            rustix::fs::syncfs(tree.root.fd()).map_err(|error| fault(Op::Sync, path, error))
        })
    }

    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        self.call(Lane::Slow, "sync", dir, |tree, dir| {
            let fd = tree.root.dir(Op::Sync, dir)?;
            match rustix::fs::fsync(&fd) {
                // Volumes that cannot sync a folder (FUSE): only the sync of the whole volume is left.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
                result => result.map_err(|error| fault(Op::Sync, dir, error)),
            }
        })
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Tree,
        batch: Batch,
    ) -> std::result::Result<Pending<'a, Vec<BatchResult>>, Batch> {
        let Some(source) = source.as_any().downcast_ref::<LocalTree>() else {
            return Err(batch);
        };
        let (source, target) = (Arc::clone(&source.inner), Arc::clone(&self.inner));
        let folder = folder_key(&batch.target_dir);
        Ok(Box::pin(executor::run_batch(folder, move || {
            batch::copy(&source, &target, &batch)
        })))
    }

    fn compare_batch<'a>(
        &'a self,
        other: &'a dyn Tree,
        batch: CompareBatch,
    ) -> Option<Pending<'a, Vec<CompareResult>>> {
        let other = other.as_any().downcast_ref::<LocalTree>()?;
        if self.inner.trace.on() || other.inner.trace.on() {
            // The trace records each operation, so files are compared one by one.
            return None;
        }
        let (inner, other) = (Arc::clone(&self.inner), Arc::clone(&other.inner));
        let folder = folder_key(&batch.dir);
        Some(Box::pin(executor::run_batch(folder, move || {
            batch::compare(&inner, &other, &batch)
        })))
    }

    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<PutDone>> {
        if !small::is_plain(&self.inner, put.cache) {
            return Box::pin(ropeway_vfs::small::put_by_steps(self, put));
        }
        let inner = Arc::clone(&self.inner);
        let lane = if put.sync { Lane::Slow } else { Lane::Short };
        Box::pin(executor::run(lane, move || small::put(&inner, &put)))
    }

    fn get_small(&self, get: GetSmall, block: BlockMut) -> Pending<'_, (BlockMut, Result<GotSmall>)> {
        if !small::is_plain(&self.inner, get.cache) {
            return Box::pin(ropeway_vfs::small::get_by_steps(self, get, block));
        }
        let inner = Arc::clone(&self.inner);
        Box::pin(executor::run(Lane::Short, move || {
            small::get(&inner, &get, block)
        }))
    }

    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        let prefix = prefix.to_vec();
        self.call(Lane::Short, "list", dir, move |tree, dir| {
            claim::names_with_prefix(tree, dir, &prefix)
        })
    }

    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        let (inner, path) = (Arc::clone(&self.inner), path.clone());
        Box::pin(executor::run(Lane::Short, move || {
            let claim = claim::take(&inner, &path, create)?;
            Ok(Box::new(claim) as Box<dyn Claim>)
        }))
    }

    fn claim_above<'a>(&'a self, name: &'a Name) -> Pending<'a, Result<ClaimAbove>> {
        let (inner, name) = (Arc::clone(&self.inner), name.clone());
        Box::pin(executor::run(Lane::Short, move || {
            Ok(claim::above(&inner, &name))
        }))
    }

    fn above(&self) -> Option<Arc<dyn Tree>> {
        let options = LocalOptions {
            io: Some(self.inner.engine),
            ..LocalOptions::default()
        };
        let above = LocalTree::open(&self.inner.path.join(".."), options).ok()?;
        Some(above)
    }

    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        self.call(Lane::Slow, "watch", &RelPath::root(), |tree, _| {
            let watch: Box<dyn Watch> = Box::new(watch::LocalWatch::start(tree)?);
            Ok(watch)
        })
    }
}

impl std::fmt::Debug for LocalTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LocalTree({}, {:?})",
            self.inner.path.display(),
            self.inner.engine
        )
    }
}

/// Returns the metadata of a name in an open folder; follows no link and mounts nothing.
pub(crate) fn metadata_at(view: View, dir: BorrowedFd<'_>, name: &Name) -> rustix::io::Result<Metadata> {
    let metadata = stat::name(dir, name.as_bytes())?;
    match view {
        View::Model => stat::with_dos(metadata, || {
            dos::at(dir, &CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?)
        }),
        View::Raw => Ok(metadata),
    }
}

/// Returns a number for a folder of batches. Two folders with the same number only take turns.
fn folder_key(path: &RelPath) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;
    use ropeway_block::Pool;
    use ropeway_vfs::CacheMode;
    use std::os::unix::fs::FileExt;

    const MIB: u64 = 1 << 20;

    /// Returns the cached bytes, after waiting until they are few enough; dropping may take a moment.
    fn cached(file: &dyn File, enough: u64) -> u64 {
        let mut now = u64::MAX;
        for _ in 0..3000 {
            now = block_on(file.cached(0, u64::MAX)).unwrap().unwrap();
            if now <= enough {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        now
    }

    #[test]
    fn without_the_kernels_help_the_cache_is_left_as_it_was() {
        let base = tempfile::tempdir().unwrap();
        let tree = LocalTree::open(base.path(), LocalOptions::default()).unwrap();
        tree.inner.forget_dontcache();
        let pool = Pool::new(1 << 20, 4);
        let path = RelPath::parse(b"file").unwrap();
        let open = |options| block_on(tree.open(&path, options)).unwrap();
        let file = open(OpenOptions::write(Create::New, CacheMode::Leave));
        for at in 0..36 {
            let mut block = block_on(pool.get());
            block.capacity_mut().fill(at as u8);
            block.set_len(1 << 20);
            block_on(file.write_at(block.freeze(), at * MIB)).unwrap();
        }
        // Three full windows wait, the last is not full; closing the file drops them all.
        assert!(cached(&*file, 28 * MIB) <= 28 * MIB);
        drop(file);
        let reader = open(OpenOptions::read(CacheMode::Leave));
        assert_eq!(cached(&*reader, 0), 0);
        // A page of another program in the second window keeps only that window.
        let other = std::fs::File::open(base.path().join("file")).unwrap();
        rustix::fs::fadvise(&other, 0, None, rustix::fs::Advice::Random).unwrap();
        other.read_exact_at(&mut [0; 10], 9 * MIB).unwrap();
        for at in 0..36 {
            let (block, result) = block_on(reader.read_at(block_on(pool.get()), at * MIB, 1 << 20));
            result.unwrap();
            assert!(block.iter().all(|byte| *byte == at as u8));
        }
        drop(reader);
        let file = open(OpenOptions::read(CacheMode::Keep));
        let kept = cached(&*file, 8 * MIB);
        // The kernel may reclaim a few of its pages at any time.
        assert!((7 * MIB..=8 * MIB).contains(&kept), "{kept}");
    }
}
