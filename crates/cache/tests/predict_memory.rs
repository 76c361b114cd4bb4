//! The memory of what is learned. The only test of its program, since it counts what all threads allocate.
#![allow(missing_docs)]

use std::alloc::System;

use ropeway_cache::predict::{Block, Found, Moment, PREDICTIONS_MAX, Program, Superfetch};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn ten_million_random_blocks_stay_within_120_bytes_a_block_of_the_cache() {
    for (blocks, requests) in [(1024_usize, 1_000_000_u64), (65_536, 10_000_000)] {
        let region = Region::new(ALLOCATOR);
        let mut learned = Superfetch::new(blocks);
        learned.blocks.set_lag(8);
        let mut fetches = Vec::with_capacity(64);
        let mut rng = fastrand::Rng::with_seed(1);
        for at in 0..requests {
            fetches.clear();
            let requested = Block::from_number(rng.u64(..));
            learned
                .blocks
                .request(requested, Found::Miss, |_| false, &mut fetches);
            assert!(fetches.len() <= PREDICTIONS_MAX);
            if at % 8 == 0 {
                let program = Program {
                    name: rng.u64(..100),
                    pid: rng.u32(..1000),
                };
                let file = rng.u32(..1 << 24);
                learned.files.opened(program, file).for_each(drop);
                learned.calendar.used(
                    file,
                    Moment {
                        day: (at >> 12) as u16,
                        hour: 9,
                    },
                );
            }
        }
        let change = region.change();
        let bytes = change.bytes_allocated - change.bytes_deallocated;
        let bound = Superfetch::memory_max(blocks);
        println!("{blocks} blocks: {bytes} bytes, at most {bound}");
        assert!(bytes <= bound, "{bytes} > {bound}");
        assert!(
            learned.memory_bytes() + 4096 >= bytes,
            "{} < {bytes}",
            learned.memory_bytes()
        );
        assert_eq!(bound, blocks * 120 + (24 << 10));
    }
}
