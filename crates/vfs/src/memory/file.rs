//! An open file of a memory tree.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ropeway_block::{Block, BlockMut};

use super::Shared;
use super::content::Content;
use super::far::FarChunks;
use super::state::State;
use crate::{
    CopyPiece, Error, ErrorKind, Extent, FarContent, File, Loss, Metadata, MetadataChange, Op, Pending,
    RelPath, Result, Xattr,
};

pub(super) struct MemoryFile {
    shared: Arc<Shared>,
    index: u64,
    path: RelPath,
    write: bool,
    /// Count of the write-back failures that a `sync` through this file has reported.
    reported: AtomicU64,
}

impl MemoryFile {
    /// Takes over one count of the node's open files.
    pub(super) fn new(
        shared: Arc<Shared>,
        (index, reported): (u64, u64),
        path: RelPath,
        write: bool,
    ) -> Self {
        Self {
            reported: AtomicU64::new(reported),
            shared,
            index,
            path,
            write,
        }
    }

    fn with<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut State, &Shared) -> Result<T>,
    ) -> Pending<'static, Result<T>> {
        let result = operation(&mut self.shared.lock(), &self.shared);
        Box::pin(std::future::ready(result))
    }

    fn writable(&self, op: Op) -> Result<()> {
        if self.write {
            return Ok(());
        }
        Err(Error::new(op, &self.path, ErrorKind::Misuse))
    }

    /// Returns what the tree says about chunks; `None` if it is not a far end.
    pub(super) fn far_chunks(&self) -> Option<FarChunks> {
        self.shared.far
    }

    /// Returns a range of the content, as far as the file reaches.
    pub(super) fn range(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let state = self.shared.lock();
        let content = self.content(&state, Op::Read)?;
        let end = range.end.min(content.size());
        // In memory, so it fits.
        let mut bytes = vec![0; end.saturating_sub(range.start) as usize];
        content.read(range.start, &mut bytes);
        Ok(bytes)
    }

    fn content<'a>(&self, state: &'a State, op: Op) -> Result<&'a Content> {
        let content = state.content(self.index);
        content.ok_or_else(|| Error::new(op, &self.path, ErrorKind::Misuse))
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.shared.lock().close(self.index);
    }
}

impl File for MemoryFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        &self.path
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        self.with(|state, shared| Ok(state.node(self.index).metadata(shared, self.index)))
    }

    fn read_at(
        &self,
        mut block: BlockMut,
        offset: u64,
        length: usize,
    ) -> Pending<'_, (BlockMut, Result<()>)> {
        assert!(length <= block.capacity(), "a read fits its block");
        let state = self.shared.lock();
        let result = self.content(&state, Op::Read).map(|content| {
            let done = content.read(offset, &mut block.capacity_mut()[..length]);
            block.set_len(done);
        });
        if result.is_err() {
            block.set_len(0);
        }
        Box::pin(std::future::ready((block, result)))
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        self.with(|state, shared| {
            self.writable(Op::Write)?;
            state.write(shared, self.index, &self.path, offset, &block)
        })
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        self.with(|state, shared| {
            let content = self.content(state, Op::Extents)?;
            if shared.capabilities.sparse {
                return Ok(content.next_extent(offset));
            }
            let length = content.size().saturating_sub(offset);
            Ok((length > 0).then_some(Extent { offset, length }))
        })
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        self.with(|state, shared| {
            self.writable(Op::SetLength)?;
            state.set_len(shared, self.index, &self.path, length)
        })
    }

    /// Checks that there is room; reserves none.
    fn allocate(&self, length: u64) -> Pending<'_, Result<()>> {
        self.with(|state, shared| {
            self.writable(Op::SetLength)?;
            let more = length.saturating_sub(self.content(state, Op::SetLength)?.charge());
            let fits = shared
                .space_total
                .is_none_or(|total| state.used.saturating_add(more) <= total);
            fits.then_some(())
                .ok_or_else(|| Error::new(Op::SetLength, &self.path, ErrorKind::NoSpace))
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        self.with(|state, shared| {
            self.writable(Op::SetLength)?;
            state.change(shared, self.index, &self.path, |content| {
                content.punch(offset, length)
            });
            Ok(())
        })
    }

    fn copy_pieces_from<'a>(
        &'a self,
        source: &'a dyn File,
        pieces: &'a [CopyPiece],
    ) -> Pending<'a, Result<bool>> {
        Box::pin(async move {
            let source = source.as_any().downcast_ref::<Self>();
            let Some(source) = source.filter(|source| Arc::ptr_eq(&source.shared, &self.shared)) else {
                return Ok(false);
            };
            for piece in pieces {
                let bytes = source.range(piece.from..piece.from.saturating_add(piece.length))?;
                if bytes.len() as u64 != piece.length {
                    return Ok(false);
                }
                self.with(|state, shared| {
                    self.writable(Op::CopyRange)?;
                    state.write(shared, self.index, &self.path, piece.to, &bytes)
                })
                .await?;
            }
            Ok(true)
        })
    }

    fn far_content(&self) -> Option<&dyn FarContent> {
        self.far_chunks().map(|_| self as &dyn FarContent)
    }

    fn start_writeback(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns at once, and makes nothing durable.
    fn wait_writeback(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn sync(&self, data_only: bool) -> Pending<'_, Result<()>> {
        self.with(|state, _| {
            let node = state.node_mut(self.index);
            node.sync(data_only);
            match node.failures.check(&self.reported) {
                true => Err(Error::new(Op::Sync, &self.path, ErrorKind::DeviceError)),
                false => Ok(()),
            }
        })
    }

    fn drop_cache(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn cached(&self, _offset: u64, _length: u64) -> Pending<'_, Result<Option<u64>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        self.with(|state, shared| Ok(state.set_metadata(shared, self.index, &self.path, change)))
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        self.with(|state, _| Ok(state.node(self.index).attributes.xattrs.clone()))
    }
}
