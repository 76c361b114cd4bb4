//! The transfer machine under any driver: engines, limits, extents that make sense or not, short
//! reads, completions in any order. See the invariants in `ropeway_plan::transfer`.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use ropeway_plan::{Engine, Locality, Step, Transfer, TransferLimits};
use ropeway_vfs::Extent;

/// Largest file: three cycles of Vista and a part.
const SIZE_MAX: u64 = 50 << 20;
/// Approximate number of blocks of a file at most, for speed.
const BLOCKS_MAX: u64 = 1000;
/// Steps after which a transfer counts as stuck: each block needs a few, each extent two.
const STEPS_MAX: usize = 100_000;

/// Byte ranges, by start; never overlapping.
#[derive(Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn insert(&mut self, start: u64, end: u64, what: &str) {
        let before = self.0.range(..end).next_back();
        assert!(
            before.is_none_or(|(_, before)| *before <= start),
            "{what} twice: {start}..{end}"
        );
        self.0.insert(start, end);
    }

    /// Returns the bytes of `start..end` that are in the set.
    fn covered(&self, start: u64, end: u64) -> u64 {
        let earlier = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(first, _)| *first);
        let touching = self.0.range(earlier..end.max(earlier));
        let parts = touching.map(|(first, last)| (*last).min(end).saturating_sub((*first).max(start)));
        parts.sum()
    }
}

/// The file and the driver's side of the transfer.
struct Driver {
    engine: Engine,
    size: u64,
    start: u64,
    /// The data of the file; with `None`, extents are answered at random.
    data: Option<Vec<Extent>>,
    depth_max: usize,
    question: Option<u64>,
    reading: Vec<(u64, usize)>,
    writing: Vec<(u64, usize)>,
    /// Blocks that are read and not being written yet, with the bytes the read returned.
    got: BTreeMap<u64, usize>,
    planned: Ranges,
    written: Ranges,
    bytes_written: u64,
    /// End of the shortest read.
    end: u64,
    contiguous: u64,
    last_write: Option<u64>,
}

fn limits(u: &mut Unstructured<'_>, size: u64) -> Result<TransferLimits> {
    let block_size = u.int_in_range(0..=4_u64 << 20)?.max(size / BLOCKS_MAX) as usize;
    let depth = u.int_in_range(0..=20)?;
    Ok(TransferLimits { block_size, depth })
}

fn extents(u: &mut Unstructured<'_>, size: u64) -> Result<Vec<Extent>> {
    let mut list = Vec::new();
    let mut at = 0;
    for _ in 0..u.int_in_range(0..=8)? {
        let offset = at + u.int_in_range(0..=size / 4)?;
        let length = u.int_in_range(1..=size.max(1))?;
        if offset >= size {
            break;
        }
        let length = length.min(size - offset);
        list.push(Extent { offset, length });
        at = offset + length + 1;
    }
    Ok(list)
}

impl Driver {
    fn new(u: &mut Unstructured<'_>) -> Result<(Self, Transfer)> {
        let engine = *u.choose(&Engine::ALL)?;
        let size = u.int_in_range(0..=SIZE_MAX)?;
        let start = if u.ratio(1, 2)? {
            0
        } else {
            u.int_in_range(0..=size + 10)?
        };
        let data = if u.ratio(3, 4)? {
            Some(extents(u, size)?)
        } else {
            None
        };
        let limits = limits(u, size)?;
        let from = *u.choose(&[Locality::Local, Locality::Remote])?;
        let transfer = Transfer::new(engine, from, size, start, limits);
        let driver = Self {
            engine,
            size,
            start,
            data,
            depth_max: match engine {
                Engine::Auto => limits.depth.max(1),
                Engine::Xp | Engine::XpSmb1 => 1,
                Engine::Vista => 8,
                Engine::VistaSp1 => 4,
                Engine::Win7Smb1 => 15,
                Engine::Win7Smb2 => 64,
            },
            question: None,
            reading: Vec::new(),
            writing: Vec::new(),
            got: BTreeMap::new(),
            planned: Ranges::default(),
            written: Ranges::default(),
            bytes_written: 0,
            end: size,
            contiguous: transfer.contiguous(),
            last_write: None,
        };
        Ok((driver, transfer))
    }

    /// Takes one step; returns whether the transfer is done.
    fn step(&mut self, transfer: &mut Transfer, u: &mut Unstructured<'_>) -> bool {
        match transfer.poll() {
            Step::NextExtent { from } => {
                assert!(from < self.size);
                assert_eq!(self.question.replace(from), None, "one question at a time");
            }
            Step::Read { offset, length } => {
                let end = offset + length as u64;
                assert!(length > 0 && offset >= self.start && end <= self.size);
                assert!(self.engine == Engine::Auto || length <= self.engine.block_size_max());
                self.planned.insert(offset, end, "planned");
                if let Some(data) = &self.data {
                    assert_eq!(data_within(data, offset, end), length as u64, "a hole is read");
                }
                self.reading.push((offset, length));
            }
            Step::Write { offset, length } => {
                assert_eq!(self.got.remove(&offset), Some(length), "written as read");
                let in_order = self.last_write.replace(offset).is_none_or(|last| last < offset);
                assert!(in_order || self.engine != Engine::VistaSp1, "in order");
                self.writing.push((offset, length));
            }
            Step::Wait => self.complete(transfer, u),
            Step::Done { length } => {
                assert_eq!(length, self.bytes_written);
                assert_eq!(transfer.poll(), Step::Done { length }, "stays done");
                return true;
            }
        }
        false
    }

    /// Reports one of the operations in flight. When the input is used up, reports the first,
    /// without variation.
    fn complete(&mut self, transfer: &mut Transfer, u: &mut Unstructured<'_>) {
        let in_flight = self.reading.len() + self.writing.len();
        let choices = in_flight + usize::from(self.question.is_some());
        assert!(choices > 0, "waits for nothing");
        let choice = u.choose_index(choices).unwrap_or(0);
        if choice < self.reading.len() {
            let (offset, asked) = self.reading.swap_remove(choice);
            let short = u.ratio(1_u8, 16).unwrap_or(false);
            let length = if short {
                u.int_in_range(0..=asked).unwrap_or(asked)
            } else {
                asked
            };
            if length < asked {
                self.end = self.end.min(offset + length as u64);
            }
            self.got.insert(offset, length);
            transfer.read_done(offset, length);
        } else if choice < in_flight {
            let (offset, length) = self.writing.swap_remove(choice - self.reading.len());
            self.written.insert(offset, offset + length as u64, "written");
            self.bytes_written += length as u64;
            transfer.write_done(offset, length);
        } else if let Some(from) = self.question.take() {
            transfer.extent(self.answer(from, u));
        }
        if u.ratio(1_u8, 32).unwrap_or(false)
            && let Ok(limits) = limits(u, self.size)
        {
            transfer.set_limits(limits);
            if self.engine == Engine::Auto {
                self.depth_max = self.depth_max.max(limits.depth);
            }
        }
    }

    fn answer(&self, from: u64, u: &mut Unstructured<'_>) -> Option<Extent> {
        match &self.data {
            Some(data) => data
                .iter()
                .copied()
                .find(|extent| extent.offset + extent.length > from),
            None => {
                let offset = u.arbitrary::<u64>().ok()? >> u.int_in_range(0..=63).ok()?;
                let length = u.arbitrary::<u64>().ok()? >> u.int_in_range(0..=63).ok()?;
                // In small pieces a file would take for ever; that is the driver's fault, not the
                // machine's.
                let length = length.max(self.size / BLOCKS_MAX);
                Some(Extent { offset, length })
            }
        }
    }

    fn check(&mut self, transfer: &Transfer) {
        assert!(
            transfer.in_flight() <= self.depth_max,
            "{} in flight",
            transfer.in_flight()
        );
        assert_eq!(transfer.size(), self.end);
        assert_eq!(transfer.has_shrunk(), self.end < self.size);
        let contiguous = transfer.contiguous();
        assert!(contiguous >= self.contiguous, "never goes back");
        assert!(contiguous <= self.end);
        self.check_written(self.contiguous, contiguous);
        self.contiguous = contiguous;
    }

    /// Asserts that all data of this range was written.
    fn check_written(&self, from: u64, to: u64) {
        let from = from.max(self.start);
        let there = self.written.covered(from, to);
        let wanted = match &self.data {
            Some(data) => data_within(data, from, to),
            None => self.planned.covered(from, to),
        };
        assert_eq!(there, wanted, "data of {from}..{to} is missing");
    }

    fn check_end(&self, transfer: &Transfer) {
        assert!(self.reading.is_empty() && self.writing.is_empty() && self.question.is_none());
        assert_eq!(transfer.in_flight(), 0);
        assert_eq!(transfer.contiguous(), transfer.size());
        self.check_written(self.start, self.end);
    }
}

/// Returns the bytes of data in a range.
fn data_within(data: &[Extent], from: u64, to: u64) -> u64 {
    let parts = data.iter().map(|extent| {
        let end = (extent.offset + extent.length).min(to);
        end.saturating_sub(extent.offset.max(from))
    });
    parts.sum()
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok((mut driver, mut transfer)) = Driver::new(&mut u) else {
        return;
    };
    for _ in 0..STEPS_MAX {
        if driver.step(&mut transfer, &mut u) {
            driver.check_end(&transfer);
            return;
        }
        driver.check(&transfer);
    }
    panic!("no end");
});
