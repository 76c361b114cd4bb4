//! Small files as one call of a layer.

use ropeway_block::BlockMut;

use super::file::HELD;
use super::layer::{Action, Call, Done, Layer};
use crate::small::{GetSmall, GotSmall, PutDone, PutSmall};
use crate::{Pending, Result, Tree};

/// Passes a write as one call; its length is that of the content.
pub(super) async fn put<L: Layer>(tree: &dyn Tree, layer: &L, mut put: PutSmall) -> Result<PutDone> {
    if !L::BOUNDS_RATE {
        // It sees all content.
        put.same_as = None;
    }
    let amount = put.content.as_ref().map_or(0, |content| content.len() as u64);
    let path = put.path.clone();
    let call = Call::new(Action::PutSmall, &path).range(0, amount);
    let operation = move || -> Pending<'_, Result<Done<PutDone>>> {
        Box::pin(async move {
            let value = tree.put_small(put).await?;
            Ok(Done { value, amount })
        })
    };
    layer
        .around(call, Box::new(operation))
        .await
        .map(|done| done.value)
}

/// Passes a read as one call; its length is the expected size of the file.
pub(super) async fn get<L: Layer>(
    tree: &dyn Tree,
    layer: &L,
    mut get: GetSmall,
    block: BlockMut,
) -> (BlockMut, Result<GotSmall>) {
    get.is_known &= L::BOUNDS_RATE;
    let call = Call::new(Action::GetSmall, &get.path).range(0, get.size.min(block.capacity() as u64));
    let mut slot = Some(block);
    let (slot_ref, get_ref) = (&mut slot, &get);
    let operation = move || -> Pending<'_, Result<Done<GotSmall>>> {
        Box::pin(async move {
            let block = slot_ref.take().expect(HELD);
            let (block, result) = tree.get_small(get_ref.clone(), block).await;
            let length = block.len() as u64;
            *slot_ref = Some(block);
            result.map(|value| Done {
                amount: if value.reused { 0 } else { length },
                value,
            })
        })
    };
    let result = layer.around(call, Box::new(operation)).await;
    let mut block = slot.expect(HELD);
    if result.is_err() {
        block.set_len(0);
    }
    (block, result.map(|done| done.value))
}
