//! An open file whose every operation passes a layer.

use std::any::Any;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};

use super::layer::{Action, Call, Done, Layer};
use super::tree::pass;
use crate::{Extent, FarContent, File, Loss, Metadata, MetadataChange, Pending, RelPath, Result, Xattr};

/// The block of a read is in its slot: an operation that runs to its end puts it back.
pub(super) const HELD: &str = "the operation puts the block back at its end";

pub(super) struct LayeredFile<L> {
    inner: Arc<dyn File>,
    layer: Arc<L>,
    direct: bool,
}

impl<L: Layer> LayeredFile<L> {
    pub(super) fn new(inner: Arc<dyn File>, layer: Arc<L>, direct: bool) -> Self {
        Self { inner, layer, direct }
    }

    fn call(&self, action: Action) -> Call<'_> {
        Call {
            direct: self.direct,
            ..Call::new(action, self.inner.path())
        }
    }

    fn pass<'a, T, F>(&'a self, call: Call<'a>, operation: F) -> Pending<'a, Result<T>>
    where
        T: Send + 'a,
        F: FnOnce() -> Pending<'a, Result<T>> + Send + 'a,
    {
        pass(&*self.layer, call, Box::new(operation))
    }
}

impl<L: Layer> File for LayeredFile<L> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        self.inner.path()
    }

    fn reports_size(&self) -> bool {
        self.inner.reports_size()
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        self.pass(self.call(Action::Stat), move || self.inner.metadata())
    }

    fn at_open(&self) -> Option<Metadata> {
        self.inner.at_open()
    }

    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        Box::pin(async move {
            let mut slot = Some(block);
            let call = self.call(Action::Read).range(offset, length as u64);
            let slot_ref = &mut slot;
            let operation = move || -> Pending<'_, Result<Done<()>>> {
                Box::pin(async move {
                    let block = slot_ref.take().expect(HELD);
                    let (block, result) = self.inner.read_at(block, offset, length).await;
                    let amount = block.len() as u64;
                    *slot_ref = Some(block);
                    result.map(|value| Done { value, amount })
                })
            };
            let result = self.layer.around(call, Box::new(operation)).await;
            let mut block = slot.expect(HELD);
            if result.is_err() {
                block.set_len(0);
            }
            (block, result.map(|done| done.value))
        })
    }

    fn examine_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        match L::BOUNDS_RATE {
            true => self.inner.examine_at(block, offset, length),
            false => self.read_at(block, offset, length),
        }
    }

    fn far_content(&self) -> Option<&dyn FarContent> {
        self.inner.far_content().filter(|_| L::BOUNDS_RATE)
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let amount = block.len() as u64;
            let call = self.call(Action::Write).range(offset, amount);
            let operation = move || -> Pending<'_, Result<Done<()>>> {
                Box::pin(async move {
                    self.inner.write_at(block, offset).await?;
                    Ok(Done { value: (), amount })
                })
            };
            self.layer
                .around(call, Box::new(operation))
                .await
                .map(|done| done.value)
        })
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        let call = self.call(Action::Extents).range(offset, 0);
        self.pass(call, move || self.inner.next_extent(offset))
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        let call = self.call(Action::SetLength).range(0, length);
        self.pass(call, move || self.inner.set_len(length))
    }

    fn allocate(&self, length: u64) -> Pending<'_, Result<()>> {
        let call = self.call(Action::Allocate).range(0, length);
        self.pass(call, move || self.inner.allocate(length))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        let call = self.call(Action::PunchHole).range(offset, length);
        self.pass(call, move || self.inner.punch_hole(offset, length))
    }

    fn start_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        let call = self.call(Action::StartWriteback).range(offset, length);
        self.pass(call, move || self.inner.start_writeback(offset, length))
    }

    fn wait_writeback(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        let call = self.call(Action::WaitWriteback).range(offset, length);
        self.pass(call, move || self.inner.wait_writeback(offset, length))
    }

    fn sync(&self, data_only: bool) -> Pending<'_, Result<()>> {
        self.pass(self.call(Action::SyncFile), move || self.inner.sync(data_only))
    }

    fn drop_cache(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        let call = self.call(Action::DropCache).range(offset, length);
        self.pass(call, move || self.inner.drop_cache(offset, length))
    }

    fn cached(&self, offset: u64, length: u64) -> Pending<'_, Result<Option<u64>>> {
        let call = self.call(Action::Cached).range(offset, length);
        self.pass(call, move || self.inner.cached(offset, length))
    }

    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        self.pass(self.call(Action::SetAttributes), move || {
            self.inner.set_metadata(change)
        })
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        self.pass(self.call(Action::Xattrs), move || self.inner.xattrs())
    }
}
