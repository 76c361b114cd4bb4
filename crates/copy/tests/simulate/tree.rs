//! A tree in memory whose every operation is a step of the [`World`].

use std::any::Any;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::tree::Watch;
use ropeway_vfs::{
    Batch, BatchDone, BatchItem, BatchResult, Capabilities, Claim, ClaimKind, ContentHasher, DirEntry,
    EndError, Error, ErrorKind, Extent, File, HashAlgorithm, Listing, Loss, Metadata, MetadataChange, Name,
    Op, OpenOptions, Pending, RelPath, Result, Space, Tree, Xattr,
};

use super::world::{FaultKind, Side, World};

/// The tree as one process sees it.
pub struct SimTree {
    pub inner: Arc<MemoryTree>,
    gate: Gate,
    /// Whether it copies small files in batches, as local trees do.
    batches: bool,
}

/// When a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

/// Is called before and after each operation, and may change the trees. Before an operation it may
/// return how the operation fails.
pub type Hook = Arc<dyn Fn(When, Op, &RelPath) -> Option<FaultKind> + Send + Sync>;

/// Passes the operations of one side on, with their steps and faults.
#[derive(Clone)]
struct Gate {
    world: Arc<World>,
    side: Side,
    tree: Arc<MemoryTree>,
    hook: Option<Hook>,
}

impl SimTree {
    pub fn new(world: &Arc<World>, side: Side, tree: &MemoryTree, batches: bool) -> Arc<Self> {
        Self::of(world, side, tree, (None, batches))
    }

    /// A tree in a quiet world, where only `hook` makes anything go wrong.
    pub fn hooked(world: &Arc<World>, side: Side, tree: &MemoryTree, hook: Hook) -> Arc<Self> {
        Self::of(world, side, tree, (Some(hook), false))
    }

    fn of(
        world: &Arc<World>,
        side: Side,
        tree: &MemoryTree,
        (hook, batches): (Option<Hook>, bool),
    ) -> Arc<Self> {
        let inner = Arc::new(tree.reopen());
        Arc::new(Self {
            gate: Gate {
                world: Arc::clone(world),
                side,
                tree: Arc::clone(&inner),
                hook,
            },
            inner,
            batches,
        })
    }
}

impl Gate {
    async fn pass<T>(&self, op: Op, path: &RelPath, action: impl Future<Output = Result<T>>) -> Result<T> {
        let world = &self.world;
        world.step().await;
        let side = self.side;
        let hooked = self.hook.as_ref().and_then(|hook| hook(When::Before, op, path));
        let fault = hooked.or_else(|| world.fault(side, op, Some(path)));
        let result = match fault.or_else(|| world.lateness(side, op)) {
            Some(FaultKind::Error(kind)) => return Err(Error::new(op, path, kind)),
            Some(FaultKind::LostAnswer(kind)) => {
                let done = action.await;
                world.note(|| format!("{side:?} {op:?} {path} {}", shown(&done)));
                return Err(Error::new(op, path, kind));
            }
            Some(FaultKind::FailedFlush) => {
                let lost = self.tree.fail_writeback(world.draw());
                world.note(|| format!("lost: {lost}"));
                if lost {
                    world.lose();
                }
                action.await
            }
            Some(FaultKind::Late(span)) => {
                let done = action.await;
                tokio::time::sleep(span).await;
                done
            }
            _ => action.await,
        };
        world.note(|| format!("{side:?} {op:?} {path} {}", shown(&result)));
        if let Some(hook) = &self.hook {
            hook(When::After, op, path);
        }
        world.step().await;
        result
    }
}

fn shown<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => format!("{:?}", error.kind),
    }
}

impl Tree for SimTree {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self) -> String {
        format!("{:?}", self.gate.side)
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        Box::pin(self.gate.pass(Op::Stat, path, self.inner.metadata(path)))
    }

    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        Box::pin(
            self.gate
                .pass(Op::Stat, dir, async { self.inner.lookup(dir, names).await }),
        )
    }

    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let listing = async { self.inner.list(dir).await };
            let inner = self.gate.pass(Op::List, dir, listing).await?;
            Ok(Box::new(SimListing {
                inner,
                gate: self.gate.clone(),
                dir: dir.clone(),
            }) as Box<dyn Listing>)
        })
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let op = match options.create {
                ropeway_vfs::Create::No => Op::Open,
                _ => Op::Create,
            };
            let opening = async { self.inner.open(path, options).await };
            let inner = self.gate.pass(op, path, opening).await?;
            Ok(Arc::new(SimFile {
                inner,
                gate: self.gate.clone(),
                reflinks: self.batches,
            }) as Arc<dyn File>)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.make_dir(path, mode).await };
        Box::pin(self.gate.pass(Op::MakeDir, path, action))
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.make_symlink(path, text).await };
        Box::pin(self.gate.pass(Op::Link, path, action))
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.make_hard_link(existing, new).await };
        Box::pin(self.gate.pass(Op::Link, new, action))
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.make_special(path, metadata).await };
        Box::pin(self.gate.pass(Op::Link, path, action))
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        let action = async move { self.inner.read_link(path).await };
        Box::pin(self.gate.pass(Op::Stat, path, action))
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.remove_file(path).await };
        Box::pin(self.gate.pass(Op::Remove, path, action))
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.remove_dir(path).await };
        Box::pin(self.gate.pass(Op::Remove, path, action))
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        let action = async move {
            self.gate
                .world
                .note(|| format!("{:?} rename {from} to {to}", self.gate.side));
            self.inner.rename(from, to, replace).await
        };
        Box::pin(self.gate.pass(Op::Rename, to, action))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        let action = async move { self.inner.set_metadata(path, change).await };
        Box::pin(self.gate.pass(Op::SetAttributes, path, action))
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        let action = async move { self.inner.xattrs(path).await };
        Box::pin(self.gate.pass(Op::Xattr, path, action))
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        self.inner.space()
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let action = async { self.inner.sync().await };
            self.gate.pass(Op::Sync, &RelPath::root(), action).await
        })
    }

    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        let action = async move { self.inner.sync_dir(dir).await };
        Box::pin(self.gate.pass(Op::Sync, dir, action))
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Tree,
        batch: Batch,
    ) -> std::result::Result<Pending<'a, Vec<BatchResult>>, Batch> {
        let Some(source) = source.as_any().downcast_ref::<SimTree>() else {
            return Err(batch);
        };
        if !self.batches {
            return Err(batch);
        }
        Ok(Box::pin(async move {
            let mut results = Vec::new();
            for item in &batch.items {
                results.push(self.copy_one(source, &batch, item).await);
            }
            results
        }))
    }

    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        let action = async move { self.inner.names_with_prefix(dir, prefix).await };
        Box::pin(self.gate.pass(Op::List, dir, action))
    }

    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        Box::pin(async move {
            let action = async { self.inner.claim(path, create).await };
            let inner = self.gate.pass(Op::Create, path, action).await?;
            Ok(Box::new(SimClaim {
                inner,
                gate: self.gate.clone(),
                path: path.clone(),
            }) as Box<dyn Claim>)
        })
    }

    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        self.inner.watch()
    }
}

impl SimTree {
    /// One file of a batch, with the steps of a local tree.
    async fn copy_one(&self, source: &SimTree, batch: &Batch, item: &BatchItem) -> BatchResult {
        let from = batch.source_dir.join(&item.name);
        let to = batch.target_dir.join(&item.target);
        let read = source
            .open(&from, OpenOptions::read(batch.cache))
            .await
            .map_err(EndError::on_source)?;
        let before = read.metadata().await.map_err(EndError::on_source)?;
        let is_listed = |found: &Metadata| {
            (found.size, found.modified, found.changed)
                == (item.metadata.size, item.metadata.modified, item.metadata.changed)
        };
        let changed = BatchDone {
            source_changed: true,
            ..BatchDone::default()
        };
        if !is_listed(&before) {
            return Ok(changed);
        }
        let options = OpenOptions::write(item.create, batch.cache);
        let written = self.open(&to, options).await.map_err(EndError::on_target)?;
        let pool = ropeway_block::Pool::new(BLOCK, 1);
        let (mut at, mut hasher) = (0, batch.hash.map(HashAlgorithm::hasher));
        loop {
            let block = pool.get().await;
            let length = block.capacity();
            let (block, result) = read.read_at(block, at, length).await;
            result.map_err(EndError::on_source)?;
            if block.is_empty() {
                break;
            }
            let length = block.len() as u64;
            if let Some(hasher) = &mut hasher {
                hasher.update(&block);
            }
            written
                .write_at(block.freeze(), at)
                .await
                .map_err(EndError::on_target)?;
            at += length;
        }
        let xattrs = match batch.preserve.xattrs {
            true => Some(read.xattrs().await.map_err(EndError::on_source)?),
            false => None,
        };
        if at != before.size || !is_listed(&read.metadata().await.map_err(EndError::on_source)?) {
            return Ok(changed);
        }
        let mut change = MetadataChange::of(&before, &batch.preserve, xattrs);
        change.created = change.created.filter(|_| self.capabilities().creation_times);
        let losses = written
            .finish(&change, batch.sync_each)
            .await
            .map_err(EndError::on_target)?;
        if let Some(name) = &item.rename_to {
            self.rename(&to, &batch.target_dir.join(name), true)
                .await
                .map_err(EndError::on_target)?;
        }
        Ok(BatchDone {
            read: at,
            sent: at,
            size: at,
            losses,
            hash: hasher.map(ContentHasher::finish),
            source_changed: false,
        })
    }
}

/// Bytes of a block in simulated jobs.
pub const BLOCK: usize = 4096;

struct SimListing {
    inner: Box<dyn Listing>,
    gate: Gate,
    dir: RelPath,
}

impl Listing for SimListing {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        Box::pin(async move { self.gate.pass(Op::List, &self.dir, self.inner.next(max)).await })
    }
}

struct SimFile {
    inner: Arc<dyn File>,
    gate: Gate,
    reflinks: bool,
}

impl SimFile {
    fn pass<'a, T: Send + 'a>(
        &'a self,
        op: Op,
        action: impl Future<Output = Result<T>> + Send + 'a,
    ) -> Pending<'a, Result<T>> {
        Box::pin(self.gate.pass(op, self.inner.path(), action))
    }
}

impl File for SimFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        self.inner.path()
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        self.pass(Op::Stat, async { self.inner.metadata().await })
    }

    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        Box::pin(async move {
            let world = &self.gate.world;
            world.step().await;
            let fault = world.fault(self.gate.side, Op::Read, Some(self.path()));
            if let Some(FaultKind::Error(kind) | FaultKind::LostAnswer(kind)) = fault {
                let mut block = block;
                block.set_len(0);
                return (block, Err(Error::new(Op::Read, self.path(), kind)));
            }
            let (mut block, result) = self.inner.read_at(block, offset, length).await;
            if fault == Some(FaultKind::ShortRead) {
                let half = block.len() / 2;
                block.set_len(half);
            }
            world.note(|| {
                let length = block.len();
                format!("{:?} read {} {offset} {length}", self.gate.side, self.path())
            });
            world.step().await;
            (block, result)
        })
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        self.gate
            .world
            .note(|| format!("{:?} write at {offset} {}", self.gate.side, block.len()));
        self.pass(Op::Write, async move { self.inner.write_at(block, offset).await })
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        self.pass(Op::Extents, async move { self.inner.next_extent(offset).await })
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        self.pass(Op::SetLength, async move { self.inner.set_len(length).await })
    }

    fn allocate(&self, length: u64) -> Pending<'_, Result<()>> {
        self.inner.allocate(length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        let action = async move { self.inner.punch_hole(offset, length).await };
        self.pass(Op::SetLength, action)
    }

    fn copy_range_from<'a>(
        &'a self,
        source: &'a dyn File,
        offset: u64,
        length: u64,
    ) -> Pending<'a, Result<Option<u64>>> {
        Box::pin(async move {
            let Some(source) = source
                .as_any()
                .downcast_ref::<SimFile>()
                .filter(|_| self.reflinks)
            else {
                return Ok(None);
            };
            let copied = async {
                let pool = ropeway_block::Pool::new(BLOCK, 1);
                let length = usize::try_from(length).unwrap_or(BLOCK).min(BLOCK);
                let (block, read) = source.inner.read_at(pool.get().await, offset, length).await;
                read?;
                let length = block.len() as u64;
                if length > 0 {
                    self.inner.write_at(block.freeze(), offset).await?;
                }
                Ok(Some(length))
            };
            self.pass(Op::CopyRange, copied).await
        })
    }

    fn start_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.inner.start_writeback(offset, length)
    }

    fn wait_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.pass(Op::Sync, async move {
            self.inner.wait_writeback(offset, length).await
        })
    }

    fn sync(&self, data_only: bool) -> Pending<'_, Result<()>> {
        self.pass(Op::Sync, async move { self.inner.sync(data_only).await })
    }

    fn drop_cache(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.inner.drop_cache(offset, length)
    }

    fn cached(&self, offset: u64, length: u64) -> Pending<'_, Result<Option<u64>>> {
        self.inner.cached(offset, length)
    }

    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        let action = async move { self.inner.set_metadata(change).await };
        self.pass(Op::SetAttributes, action)
    }

    fn finish<'a>(&'a self, change: &'a MetadataChange, sync: bool) -> Pending<'a, Result<Vec<Loss>>> {
        Box::pin(async move {
            if sync && self.gate.tree.capabilities().remote {
                // The SMB client flushes a file before it sets the time, too.
                self.sync(false).await?;
            }
            let losses = self.set_metadata(change).await?;
            if sync {
                self.sync(false).await?;
            }
            Ok(losses)
        })
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        self.pass(Op::Xattr, async { self.inner.xattrs().await })
    }
}

struct SimClaim {
    inner: Box<dyn Claim>,
    gate: Gate,
    path: RelPath,
}

impl Claim for SimClaim {
    fn kind(&self) -> ClaimKind {
        self.inner.kind()
    }

    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>> {
        let action = async move { self.inner.read(max).await };
        Box::pin(self.gate.pass(Op::Read, &self.path, action))
    }

    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>> {
        let action = async move {
            match self
                .gate
                .world
                .fault(Side::Target, Op::CopyRange, Some(&self.path))
            {
                // A part of the text is written.
                Some(_) => {
                    self.inner.append(&text[..text.len() / 2]).await?;
                    Err(Error::new(Op::Write, &self.path, ErrorKind::DeviceError))
                }
                None => self.inner.append(text).await,
            }
        };
        Box::pin(self.gate.pass(Op::Write, &self.path, action))
    }

    fn remove(self: Box<Self>) -> Pending<'static, Result<()>> {
        Box::pin(async move {
            let Self { inner, gate, path } = *self;
            gate.pass(Op::Remove, &path, async move { inner.remove().await })
                .await
        })
    }
}
