//! What a bulk transfer takes from the heap in its steady state: nothing of a block's size, and little else.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{bytes, connect, start, text};
use futures_util::{StreamExt, stream};
use ropeway_block::Pool;
use ropeway_peers::or_skip;
use ropeway_smb::{Handle, OpenFile};
use ropeway_smb_proto::wire::create::CreateDisposition;

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);
static LARGE: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        if layout.size() >= 4096 {
            LARGE.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK: usize = 256 << 10;

async fn pass(file: &Handle, pool: &Pool, blocks: u64, write: bool) {
    stream::iter(0..blocks)
        .for_each_concurrent(8, |index| async move {
            let mut block = pool.get().await;
            let offset = index * BLOCK as u64;
            if write {
                block.set_len(BLOCK);
                file.write_at(offset, block.freeze()).await.unwrap();
            } else {
                let (block, outcome) = file.read_at(offset, block, BLOCK).await;
                outcome.unwrap();
                assert_eq!(block.len(), BLOCK);
            }
        })
        .await;
}

#[tokio::test]
async fn blocks_cost_no_large_allocation() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), bytes(64 << 20, 1)).unwrap();
    let smbd = or_skip!(start(folder.path()));
    let client = connect(&smbd).await;
    let share = client.share("data").await.unwrap();
    let pool = Pool::new(BLOCK, 16);
    let blocks = 256;
    let file = share
        .open(&text("f"), &OpenFile::write(CreateDisposition::Open))
        .await
        .unwrap();
    for write in [false, true] {
        pass(&file, &pool, blocks, write).await;
        let before = (COUNT.load(Ordering::Relaxed), LARGE.load(Ordering::Relaxed));
        pass(&file, &pool, blocks, write).await;
        let count = COUNT.load(Ordering::Relaxed) - before.0;
        let large = LARGE.load(Ordering::Relaxed) - before.1;
        println!("write {write}: {count} allocations for {blocks} blocks, {large} of 4 KiB and more");
        assert!(large <= 4, "{large} large allocations");
        assert!(count <= 24 * blocks, "{count} allocations for {blocks} blocks");
    }
}
