//! What a bulk transfer takes from the heap in its steady state: nothing of a block's size, and little else.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::alloc::System;

use common::{bytes, connect_with, options, start, text};
use futures_util::{StreamExt, stream};
use ropeway_block::Pool;
use ropeway_peers::or_skip;
use ropeway_smb_client::{ClientOptions, Encryption, FileAttributes, Handle, OpenFile, PutSmall};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::negotiate::Dialect;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

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
async fn heap_in_the_steady_state() {
    // One after the other: the counters are the whole process's.
    blocks_cost_no_large_allocation().await;
    small_files_cost_no_large_allocation().await;
}

/// Whole files in compounds: signed without a copy, and sealed where they lie.
async fn small_files_cost_no_large_allocation() {
    let folder = tempfile::tempdir().unwrap();
    let smbd = or_skip!(start(folder.path()));
    for encryption in [Encryption::Off, Encryption::Required] {
        let options = ClientOptions {
            encryption,
            ..options()
        };
        let client = connect_with(&smbd, options).await.unwrap();
        let share = client.share("data").await.unwrap();
        // Room behind the content for what follows it in the compound.
        let pool = Pool::new(BLOCK + 4096, 16);
        let put = async |index: u64| {
            let mut block = pool.get().await;
            block.set_len(BLOCK);
            let put = PutSmall {
                path: text(&format!("f{index}")),
                temporary: None,
                disposition: CreateDisposition::OverwriteIf,
                content: Some(block.freeze()),
                attributes: FileAttributes::NORMAL,
                basic: Some(FileBasicInformation::default()),
                flush: false,
                replace: false,
            };
            share.put_small(put).await.unwrap().basic.unwrap();
        };
        stream::iter(0..32).for_each_concurrent(8, &put).await;
        let (region, files) = (Region::new(ALLOCATOR), 128);
        stream::iter(0..files).for_each_concurrent(8, &put).await;
        let bytes = region.change().bytes_allocated / files as usize;
        println!("{encryption:?}: {bytes} bytes for each small file");
        assert!(bytes < 16 << 10, "{encryption:?}: {bytes} bytes for each file");
    }
}

async fn blocks_cost_no_large_allocation() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), bytes(64 << 20, 1)).unwrap();
    let smbd = or_skip!(start(folder.path()));
    // Signed by AES-GMAC where the frames are, and by AES-CMAC by workers.
    for dialect in [Dialect::Smb311, Dialect::Smb300] {
        let options = ClientOptions {
            dialects: dialect..=dialect,
            ..options()
        };
        let client = connect_with(&smbd, options).await.unwrap();
        let share = client.share("data").await.unwrap();
        let pool = Pool::new(BLOCK, 16);
        let blocks = 256;
        let file = share
            .open(&text("f"), &OpenFile::write(CreateDisposition::Open))
            .await
            .unwrap();
        for write in [false, true] {
            pass(&file, &pool, blocks, write).await;
            let region = Region::new(ALLOCATOR);
            pass(&file, &pool, blocks, write).await;
            let change = region.change();
            let count = change.allocations + change.reallocations;
            let bytes = change.bytes_allocated / blocks as usize;
            println!(
                "{dialect:?}, write {write}: {count} allocations for {blocks} blocks, {bytes} bytes for each"
            );
            // Requests, answers and their bookkeeping: none as large as a page, let alone a block.
            assert!(bytes < 4096, "{bytes} bytes for each block");
            assert!(
                count <= 24 * blocks as usize,
                "{count} allocations for {blocks} blocks"
            );
        }
    }
}
