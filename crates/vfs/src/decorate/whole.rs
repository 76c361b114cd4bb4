//! Small files in one go, as one call of a layer.

use std::sync::{Mutex, PoisonError};

use ropeway_block::BlockMut;

use super::layer::{Action, Call, Done, Layer};
use super::settle;
use crate::small::{GetSmall, GotSmall, PutSmall};
use crate::{Loss, Pending, Result, Tree};

/// Shows a write as one call; its bytes are those of the content.
pub(super) async fn put<L: Layer>(tree: &dyn Tree, layer: &L, put: PutSmall) -> Result<Vec<Loss>> {
    let amount = put.content.as_ref().map_or(0, |content| content.len() as u64);
    let path = put.path.clone();
    let call = Call::new(Action::PutSmall, &path).range(0, amount);
    let first = Mutex::new(Some(put.clone()));
    // The first try gets the only handle on the block, where nothing repeats: a header may go in front of it.
    let again = L::REPEATS.then_some(put);
    let (first, again) = (&first, &again);
    let attempt = move |tries| -> Pending<'_, Result<Done<Vec<Loss>>>> {
        let given = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let given = given.or_else(|| again.clone());
        Box::pin(async move {
            let given = given.expect("a layer that repeats says so");
            let value = settle::put_small(tree, given, tries).await?;
            Ok(Done { value, amount })
        })
    };
    layer.around(call, attempt).await.map(|done| done.value)
}

/// Shows a read as one call; it asks for the size that the file is said to have.
pub(super) async fn get<L: Layer>(
    tree: &dyn Tree,
    layer: &L,
    get: GetSmall,
    block: BlockMut,
) -> (BlockMut, Result<GotSmall>) {
    let call = Call::new(Action::GetSmall, &get.path).range(0, get.size.min(block.capacity() as u64));
    let slot = Mutex::new(Some(block));
    let (slot_ref, get_ref) = (&slot, &get);
    let attempt = move |_| -> Pending<'_, Result<Done<GotSmall>>> {
        Box::pin(async move {
            let block = take(slot_ref);
            let (block, result) = tree.get_small(get_ref.clone(), block).await;
            let amount = block.len() as u64;
            *slot_ref.lock().unwrap_or_else(PoisonError::into_inner) = Some(block);
            result.map(|value| Done { value, amount })
        })
    };
    let result = layer.around(call, attempt).await;
    let mut block = take(&slot);
    if result.is_err() {
        block.set_len(0);
    }
    (block, result.map(|done| done.value))
}

fn take(slot: &Mutex<Option<BlockMut>>) -> BlockMut {
    let block = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    block.expect("attempts run one after the other to their end, and each puts the block back")
}
