//! Checks the planned I/O lists against the fact sheet, and random runs against a plain model.

use super::*;
use crate::test_support::Random;
use proptest::prelude::*;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// The list as (kind, offset, length) by waves.
fn waves(engine: Engine, size: u64) -> Vec<Vec<(IoKind, u64, u64)>> {
    let mut waves: Vec<Vec<_>> = Vec::new();
    for io in io_list(engine, size) {
        waves.resize(waves.len().max(io.wave + 1), Vec::new());
        waves[io.wave].push((io.kind, io.offset, io.length as u64));
    }
    waves
}

fn run(kind: IoKind, from: u64, count: u64, length: u64) -> Vec<(IoKind, u64, u64)> {
    (0..count)
        .map(|index| (kind, from + index * length, length))
        .collect()
}

use IoKind::{Read, Write};

#[test]
fn an_empty_file_needs_no_io() {
    for engine in Engine::ALL {
        assert!(io_list(engine, 0).is_empty());
        let mut transfer = Transfer::new(engine, Locality::Local, 0, 0, TransferLimits::default());
        assert_eq!(transfer.poll(), Step::Done { length: 0 });
        assert_eq!(transfer.contiguous(), 0);
    }
}

/// Fact sheet, XP SP2: 64 KiB, one in flight.
#[test]
fn xp_reads_and_writes_64_kib_in_turns() {
    assert_eq!(
        waves(Engine::Xp, 130 * KIB),
        [
            run(Read, 0, 1, 64 * KIB),
            run(Write, 0, 1, 64 * KIB),
            run(Read, 64 * KIB, 1, 64 * KIB),
            run(Write, 64 * KIB, 1, 64 * KIB),
            run(Read, 128 * KIB, 1, 2 * KIB),
            run(Write, 128 * KIB, 1, 2 * KIB),
        ]
    );
}

/// Fact sheet, XP SP2: 60 KiB reads over SMB 1.
#[test]
fn xp_reads_60_kib_from_a_server() {
    let limits = TransferLimits::default();
    let mut transfer = Transfer::new(Engine::XpSmb1, Locality::Remote, MIB, 0, limits);
    assert_eq!(transfer.poll(), Step::NextExtent { from: 0 });
    let length = MIB;
    transfer.extent(Some(Extent { offset: 0, length }));
    let length = 61_440;
    assert_eq!(transfer.poll(), Step::Read { offset: 0, length });
    assert_eq!(transfer.poll(), Step::Wait);
}

/// Fact sheet, Vista RTM: "a 16 MiB file is one cycle of 8 x 2 MiB".
#[test]
fn vista_moves_16_mib_in_one_cycle_of_eight() {
    assert_eq!(
        waves(Engine::Vista, 16 * MIB),
        [run(Read, 0, 8, 2 * MIB), run(Write, 0, 8, 2 * MIB)]
    );
}

/// Fact sheet, Vista RTM: "the file's size below 1 MiB; 1 MiB from 1 to 2 MiB; 2 MiB above"; "2 [in
/// flight] for files up to 2 MiB, rising to 8 above 8 MiB".
#[test]
fn vista_sizes_its_io_by_the_file() {
    for size in [1, 4 * KIB, MIB - 1] {
        assert_eq!(
            waves(Engine::Vista, size),
            [run(Read, 0, 1, size), run(Write, 0, 1, size)]
        );
    }
    assert_eq!(
        waves(Engine::Vista, MIB),
        [run(Read, 0, 1, MIB), run(Write, 0, 1, MIB)]
    );
    assert_eq!(
        waves(Engine::Vista, 2 * MIB),
        [run(Read, 0, 2, MIB), run(Write, 0, 2, MIB)]
    );
    // Between 2 and 8 MiB: our guess of 4 in flight.
    assert_eq!(
        waves(Engine::Vista, 8 * MIB),
        [run(Read, 0, 4, 2 * MIB), run(Write, 0, 4, 2 * MIB)]
    );
    let cycles = waves(Engine::Vista, 34 * MIB + 5);
    assert_eq!(cycles.len(), 6);
    assert_eq!(cycles[2], run(Read, 16 * MIB, 8, 2 * MIB));
    assert_eq!(cycles[3], run(Write, 16 * MIB, 8, 2 * MIB));
    assert_eq!(
        cycles[4],
        [(Read, 32 * MIB, 2 * MIB), (Read, 34 * MIB, 5)],
        "the last cycle is short"
    );
}

/// Our documented choice: within a cycle, writes start in the order in which reads finished.
#[test]
fn vista_writes_in_the_order_in_which_reads_finished() {
    let mut transfer = Transfer::new(
        Engine::Vista,
        Locality::Local,
        16 * MIB,
        0,
        TransferLimits::default(),
    );
    transfer.poll();
    transfer.extent(Some(Extent {
        offset: 0,
        length: 16 * MIB,
    }));
    let reads: Vec<Step> = (0..8).map(|_| transfer.poll()).collect();
    assert_eq!(transfer.poll(), Step::Wait);
    let order = [5, 0, 7, 1, 6, 2, 4, 3];
    for index in order {
        assert_eq!(transfer.poll(), Step::Wait, "no write before the last read");
        let Step::Read { offset, length } = reads[index] else {
            panic!("{reads:?}");
        };
        transfer.read_done(offset, length);
    }
    for index in order {
        let offset = index as u64 * 2 * MIB;
        let length = 2 * MIB as usize;
        assert_eq!(transfer.poll(), Step::Write { offset, length });
    }
    assert_eq!(transfer.poll(), Step::Wait);
}

/// Fact sheet, Vista SP1: 1 MiB, 4 initial requests, assembled in order.
#[test]
fn vista_sp1_pipelines_reads_and_writes_in_order() {
    let list = io_list(Engine::VistaSp1, 10 * MIB);
    let first: Vec<_> = list.iter().take_while(|io| io.wave == 0).collect();
    assert_eq!(first.len(), 4);
    assert!(first.iter().all(|io| io.kind == Read && io.length as u64 == MIB));
    let writes: Vec<u64> = list
        .iter()
        .filter(|io| io.kind == Write)
        .map(|io| io.offset)
        .collect();
    assert_eq!(writes, (0..10).map(|index| index * MIB).collect::<Vec<_>>());
    // The first write starts as soon as the first read is back.
    assert_eq!((list[4].kind, list[4].offset), (Write, 0));

    // A late first block holds back all writes.
    let mut transfer = Transfer::new(
        Engine::VistaSp1,
        Locality::Local,
        4 * MIB,
        0,
        TransferLimits::default(),
    );
    transfer.poll();
    transfer.extent(Some(Extent {
        offset: 0,
        length: 4 * MIB,
    }));
    while transfer.poll() != Step::Wait {}
    for block in [3, 2, 1] {
        transfer.read_done(block * MIB, MIB as usize);
        assert_eq!(transfer.poll(), Step::Wait);
    }
    transfer.read_done(0, MIB as usize);
    let length = MIB as usize;
    assert_eq!(transfer.poll(), Step::Write { offset: 0, length });
    assert_eq!(transfer.poll(), Step::Wait, "one write at a time");
}

#[test]
fn auto_refills_at_once_and_aligns_after_an_odd_start() {
    let limits = TransferLimits {
        block_size: 64 * 1024,
        depth: 3,
    };
    let mut transfer = Transfer::new(Engine::Auto, Locality::Local, 1 << 20, 1000, limits);
    assert_eq!(transfer.contiguous(), 1000);
    assert_eq!(transfer.poll(), Step::NextExtent { from: 1000 });
    assert_eq!(transfer.poll(), Step::Wait, "asked once only");
    transfer.extent(Some(Extent {
        offset: 0,
        length: 1 << 20,
    }));
    let read = |offset, length| Step::Read { offset, length };
    assert_eq!(transfer.poll(), read(1000, 64536));
    assert_eq!(transfer.poll(), read(65536, 65536));
    assert_eq!(transfer.poll(), read(131_072, 65536));
    assert_eq!(transfer.poll(), Step::Wait);
    transfer.read_done(65536, 65536);
    let (offset, length) = (65536, 65536);
    assert_eq!(transfer.poll(), Step::Write { offset, length });
    assert_eq!(transfer.poll(), Step::Wait);
    transfer.write_done(offset, length);
    assert_eq!(transfer.contiguous(), 1000);
    transfer.set_limits(TransferLimits {
        block_size: 128 * 1024,
        depth: 3,
    });
    assert_eq!(transfer.poll(), read(196_608, 65536), "up to the new alignment");
}

#[test]
fn a_short_read_ends_the_file() {
    let limits = TransferLimits {
        block_size: 4096,
        depth: 4,
    };
    let mut transfer = Transfer::new(Engine::Auto, Locality::Local, 1 << 20, 0, limits);
    transfer.poll();
    transfer.extent(Some(Extent {
        offset: 0,
        length: 1 << 20,
    }));
    while transfer.poll() != Step::Wait {}
    transfer.read_done(8192, 4096);
    transfer.read_done(4096, 10);
    assert!(transfer.has_shrunk());
    assert_eq!(transfer.size(), 4106);
    let (offset, length) = (4096, 10);
    assert_eq!(transfer.poll(), Step::Write { offset, length });
    transfer.read_done(12288, 0);
    transfer.read_done(0, 4096);
    let (offset, length) = (0, 4096);
    assert_eq!(transfer.poll(), Step::Write { offset, length });
    assert_eq!(transfer.poll(), Step::Wait);
    transfer.write_done(4096, 10);
    transfer.write_done(0, 4096);
    assert_eq!(transfer.poll(), Step::Done { length: 4106 });
    assert_eq!(transfer.contiguous(), 4106);
}

#[test]
fn a_senseless_extent_loses_no_data() {
    let mut transfer = Transfer::new(Engine::Xp, Locality::Local, 10, 4, TransferLimits::default());
    transfer.poll();
    transfer.extent(Some(Extent { offset: 0, length: 3 }));
    let (offset, length) = (4, 6);
    assert_eq!(transfer.poll(), Step::Read { offset, length });
}

#[test]
#[should_panic(expected = "no read at 0")]
fn a_completion_without_an_operation_panics() {
    Transfer::new(Engine::Xp, Locality::Local, 10, 0, TransferLimits::default()).read_done(0, 1);
}

/// A source of 64-byte cells, to keep counts small: which bytes are data, and where it really ends.
struct Model {
    size: u64,
    real_size: u64,
    extents: Vec<Extent>,
    /// How often each byte was read and written.
    read: Vec<u8>,
    written: Vec<u8>,
}

impl Model {
    fn next_extent(&self, from: u64) -> Option<Extent> {
        self.extents
            .iter()
            .copied()
            .find(|extent| extent.offset + extent.length > from)
    }

    fn is_data(&self, offset: u64) -> bool {
        self.extents
            .iter()
            .any(|extent| (extent.offset..extent.offset + extent.length).contains(&offset))
    }
}

fn depth_max(engine: Engine, limits: TransferLimits) -> usize {
    match engine {
        Engine::Auto => limits.depth,
        Engine::Xp | Engine::XpSmb1 => 1,
        Engine::Vista => 8,
        Engine::VistaSp1 => 4,
        Engine::Win7Smb1 => 15,
        Engine::Win7Smb2 => 64,
    }
}

/// Runs a transfer with completions in random order and checks every invariant on the way.
fn drive(engine: Engine, model: &mut Model, start: u64, limits: TransferLimits, seed: u64) {
    let mut random = Random::new(seed);
    let mut transfer = Transfer::new(engine, Locality::Local, model.size, start, limits);
    let mut in_flight: Vec<(IoKind, u64, usize)> = Vec::new();
    let mut question = None;
    let mut got = std::collections::HashMap::new();
    let mut contiguous = transfer.contiguous();
    let (mut written, mut last_write) = (0_u64, None);
    for _ in 0..1_000_000 {
        let step = transfer.poll();
        match step {
            Step::NextExtent { from } => {
                assert_eq!(question.replace(from), None, "one question at a time");
            }
            Step::Read { offset, length } => {
                assert!(length > 0 && offset >= start && offset + length as u64 <= model.size);
                in_flight.push((Read, offset, length));
                for at in offset..offset + length as u64 {
                    assert!(model.is_data(at), "read in a hole at {at}");
                    model.read[at as usize] += 1;
                }
            }
            Step::Write { offset, length } => {
                assert_eq!(got.remove(&offset), Some(length), "written as read");
                in_flight.push((Write, offset, length));
                if matches!(engine, Engine::VistaSp1 | Engine::Win7Smb1 | Engine::Win7Smb2) {
                    assert!(
                        last_write.replace(offset).is_none_or(|last| last < offset),
                        "in order"
                    );
                }
            }
            Step::Done { length } => {
                assert!(in_flight.is_empty() && question.is_none());
                assert_eq!(length, written);
                assert_eq!(transfer.contiguous(), transfer.size());
                assert_eq!(transfer.poll(), step, "stays done");
                check_end(model, &transfer, start);
                return;
            }
            Step::Wait => {
                assert!(!in_flight.is_empty() || question.is_some(), "stuck");
                let answer = question.is_some() && (in_flight.is_empty() || random.below(3) == 0);
                if answer {
                    transfer.extent(model.next_extent(question.take().unwrap_or(0)));
                } else {
                    let (kind, offset, length) = in_flight.swap_remove(random.below(in_flight.len()));
                    if kind == Read {
                        let length = length.min(model.real_size.saturating_sub(offset) as usize);
                        got.insert(offset, length);
                        transfer.read_done(offset, length);
                    } else {
                        (offset..offset + length as u64).for_each(|at| model.written[at as usize] += 1);
                        written += length as u64;
                        transfer.write_done(offset, length);
                    }
                }
            }
        }
        assert!(transfer.in_flight() <= depth_max(engine, limits));
        assert!(transfer.contiguous() >= contiguous, "never goes back");
        contiguous = transfer.contiguous();
        let below = (start..contiguous).filter(|at| model.is_data(*at));
        below.for_each(|at| assert_eq!(model.written[at as usize], 1, "below contiguous at {at}"));
    }
    panic!("no end");
}

fn check_end(model: &Model, transfer: &Transfer, start: u64) {
    for at in 0..model.size {
        let is_wanted = model.is_data(at) && at >= start && at < model.real_size;
        let index = at as usize;
        assert!(model.read[index] <= 1, "read twice at {at}");
        assert!(model.written[index] <= model.read[index]);
        if is_wanted {
            assert_eq!(model.written[index], 1, "not written at {at}");
        } else if at < start {
            assert_eq!(model.read[index], 0, "read below the start at {at}");
        }
        if at >= model.real_size {
            assert_eq!(model.written[index], 0, "wrote what was not read at {at}");
        }
    }
    let data_lost = (model.real_size..model.size).any(|at| at >= start && model.is_data(at));
    assert_eq!(transfer.has_shrunk(), data_lost);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_byte_once_in_any_order_of_completions(
        runs in prop::collection::vec((0..9_000_u64, 1..20_000_u64), 0..6), tail in 0..9_000_u64,
        start_part in 0.0..1.2_f64, real_part in prop::option::of(0.0..1.0_f64),
        block_size in 0..20_000_usize, depth in 0..9_usize, seed: u64,
    ) {
        let mut extents = Vec::new();
        let mut at = 0;
        for (hole, length) in runs {
            extents.push(Extent { offset: at + hole, length });
            at += hole + length;
        }
        let size = at + tail;
        let start = (size as f64 * start_part) as u64;
        let real_size = real_part.map_or(size, |part| (size as f64 * part) as u64);
        let limits = TransferLimits { block_size, depth: depth.max(1) };
        for engine in Engine::ALL {
            let mut model = Model {
                size, real_size,
                extents: extents.clone(),
                read: vec![0; size as usize],
                written: vec![0; size as usize],
            };
            drive(engine, &mut model, start.min(size), limits, seed);
        }
    }

    #[test]
    fn lists_cover_the_file(size in 0..40_000_000_u64) {
        for engine in Engine::ALL {
            for kind in [Read, Write] {
                let mut blocks: Vec<_> = io_list(engine, size).into_iter().filter(|io| io.kind == kind).collect();
                blocks.sort_by_key(|io| io.offset);
                let end = blocks.iter().fold(0, |end, io| {
                    assert_eq!(io.offset, end);
                    assert!(io.length <= engine.block_size_max());
                    end + io.length as u64
                });
                prop_assert_eq!(end, size);
            }
        }
    }
}
