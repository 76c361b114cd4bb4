//! The index's memory, counted by the allocator.
#![allow(missing_docs)]

use std::alloc::System;

use ropeway_cache::index::{Index, Place};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// 1 GiB and 20 GiB of blocks of 64 KiB.
#[test]
fn an_index_takes_at_most_32_bytes_a_block() {
    for blocks in [16_384_usize, 327_680] {
        let region = Region::new(ALLOCATOR);
        let mut index = Index::new(blocks, 1);
        for tag in 0..blocks as u64 {
            let tag = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert_eq!(index.access(tag), None);
            let place = Place {
                sector: 0,
                sectors: 129,
            };
            index.insert(tag, place).expect("a free slot");
        }
        let change = region.change();
        let bytes = change.bytes_allocated - change.bytes_deallocated;
        let each = bytes as f64 / blocks as f64;
        println!("{blocks} blocks: {bytes} bytes, {each:.1} a block");
        assert!(each <= 32.0, "{each} bytes a block");
        assert!(index.memory_bytes() >= bytes - 4096);
    }
}
