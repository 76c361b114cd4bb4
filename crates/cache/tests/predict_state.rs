//! What is learned: how it is saved, how it is forgotten.

use proptest::prelude::*;
use ropeway_cache::predict::{Block, DecodeError, Found, Moment, Program, Superfetch, VERSION};

const BLOCKS: usize = 512;

fn block(file: u32, index: u64) -> Block {
    Block::new(file, index).expect("within bounds")
}

/// Runs requests, openings and hours by seed.
fn trained(seed: u64, requests: usize) -> Superfetch {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut learned = Superfetch::new(BLOCKS);
    learned.blocks.set_lag(rng.u32(1..40));
    let mut fetches = Vec::new();
    // A habit, with other requests in between.
    let habit: Vec<Block> = (0..150).map(|_| block(rng.u32(..50), rng.u64(..20))).collect();
    for at in 0..requests {
        let requested = match rng.u8(..4) {
            0 => block(rng.u32(..50), rng.u64(..20)),
            _ => habit[at % habit.len()],
        };
        let found = if rng.u8(..4) == 0 { Found::Hit } else { Found::Miss };
        fetches.clear();
        learned.blocks.request(requested, found, |_| false, &mut fetches);
        let file = requested.file();
        let program = Program {
            name: rng.u64(..4),
            pid: rng.u32(..8),
        };
        learned.files.opened(program, file).for_each(drop);
        let (day, hour) = (19_000 + (at / 100) as u16, rng.u8(..24));
        learned.calendar.used(file, Moment { day, hour });
    }
    learned
}

/// Returns what it predicts when one file after the other is used.
fn predictions(learned: &mut Superfetch) -> String {
    let mut text = String::new();
    for number in 0..50 {
        let mut fetches = Vec::new();
        for index in 0..30 {
            let requested = block(number, index);
            learned
                .blocks
                .request(requested, Found::Miss, |_| false, &mut fetches);
        }
        let program = Program {
            name: 1,
            pid: 1000 + number,
        };
        let next: Vec<(u32, f32)> = learned.files.opened(program, number).collect();
        text += &format!("{fetches:?} {next:?}\n");
    }
    let now = Moment { day: 19_010, hour: 9 };
    text + &format!("{:?}", learned.calendar.due(now, 100))
}

#[test]
fn what_was_saved_predicts_the_same() {
    for seed in 0..10 {
        let mut learned = trained(seed, 20_000);
        let saved = learned.encode(BLOCKS);
        let mut loaded = Superfetch::decode(&saved, BLOCKS).expect("own bytes");
        assert_eq!(loaded.encode(BLOCKS), saved, "seed {seed}");
        // The first has requests, a lag and budgets that are not saved.
        let mut again = Superfetch::decode(&learned.encode(BLOCKS), BLOCKS).expect("own bytes");
        assert_eq!(predictions(&mut loaded), predictions(&mut again), "seed {seed}");
        assert!(
            predictions(&mut learned).contains("Pair"),
            "seed {seed}: it learned nothing"
        );
    }
}

#[test]
fn other_versions_sizes_and_files_are_refused() {
    let refused = |bytes: &[u8], blocks: usize| Superfetch::decode(bytes, blocks).expect_err("refused");
    let saved = trained(1, 1000).encode(BLOCKS);
    assert_eq!(refused(&[], BLOCKS), DecodeError::Foreign);
    assert_eq!(refused(b"something else entirely", BLOCKS), DecodeError::Foreign);
    assert_eq!(refused(&saved, BLOCKS + 1), DecodeError::OtherSize(BLOCKS as u64));
    let mut newer = saved.clone();
    newer[8] += 1;
    assert_eq!(refused(&newer, BLOCKS), DecodeError::OtherVersion(VERSION + 1));
    let (found, expected) = (saved.len() - 1, saved.len());
    assert_eq!(
        refused(&saved[..found], BLOCKS),
        DecodeError::OtherLength { found, expected }
    );
}

#[test]
fn nothing_remains_after_forgetting() {
    let fresh = Superfetch::new(BLOCKS).encode(BLOCKS);
    let mut learned = trained(3, 20_000);
    assert_ne!(learned.encode(BLOCKS), fresh);
    learned.forget();
    assert_eq!(learned.encode(BLOCKS), fresh);
    let mut learned = Superfetch::new(BLOCKS);
    let mut fetches = Vec::new();
    for index in (0..4000).map(|at| at * 37 % 400) {
        learned
            .blocks
            .request(block(7, index), Found::Miss, |_| false, &mut fetches);
        let program = Program {
            name: 1,
            pid: index as u32,
        };
        learned.files.opened(program, 7).for_each(drop);
        learned.calendar.used(7, Moment { day: 19_000, hour: 9 });
    }
    learned.forget_file(7, 400, &[1]);
    let left = learned.encode(BLOCKS);
    // The precision of the classes, at the front, is no one's file; the checksum is at the end.
    let tables = fresh.len() - 4 - (BLOCKS * 110)..fresh.len() - 4;
    assert!(
        left[tables.clone()] == fresh[tables],
        "a trace of the file is left"
    );
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert!(Superfetch::decode(&bytes, BLOCKS).is_err());
    }

    /// Damage that fits its checksum, as an attacker would write it.
    #[test]
    fn forged_bytes_are_refused_or_harmless(
        seed in 0..20_u64,
        changes in prop::collection::vec((20..100_000_usize, any::<u8>()), 1..200),
    ) {
        let mut bytes = trained(seed, 500).encode(BLOCKS);
        let end = bytes.len() - 4;
        for (at, value) in changes {
            bytes[20 + at % (end - 20)] = value;
        }
        let checksum = crc32fast::hash(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        match Superfetch::decode(&bytes, BLOCKS) {
            Ok(mut learned) => {
                predictions(&mut learned);
                prop_assert!(learned.memory_bytes() <= Superfetch::memory_max(BLOCKS));
            }
            Err(error) => prop_assert_eq!(error, DecodeError::Impossible),
        }
    }

    #[test]
    fn one_changed_bit_is_found(seed in 0..20_u64, at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let mut bytes = trained(seed, 500).encode(BLOCKS);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Superfetch::decode(&bytes, BLOCKS).is_err());
    }
}
