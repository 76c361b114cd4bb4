//! The bytes of one file: pages over a base.
//!
//! Invariant: no page is at or beyond the end, and the bytes of the last page beyond the end are
//! zero.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::random::Random;
use crate::Extent;

/// Bytes of a page: as on most file systems, and the granularity of holes.
pub(super) const PAGE: u64 = 4096;

pub(super) type Page = [u8; PAGE as usize];
pub(super) type Pages = BTreeMap<u64, Arc<Page>>;

/// The content of a file where it has no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Holes.
    Zero,
    /// The bytes of [`synthetic`] up to `length`; a hole beyond.
    Synthetic { seed: u64, length: u64 },
    /// Bytes that were written and discarded.
    Discard,
}

/// The part of a file that surely survives a power cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Durable {
    pub(super) size: u64,
    pub(super) pages: Pages,
    /// Pages missing from the map of the file's blocks: whatever is written there is not found again.
    pub(super) unmapped: BTreeSet<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct Content {
    size: u64,
    pub(super) pages: Pages,
    base: Base,
    /// The synced content, and the pages changed since; only with the crash model.
    pub(super) durable: Option<(Durable, BTreeSet<u64>)>,
}

impl Content {
    pub(super) fn new(base: Base, crash_model: bool) -> Self {
        Self {
            size: 0,
            pages: Pages::new(),
            base,
            durable: crash_model.then(Default::default),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn fill_synthetic(&mut self, size: u64, seed: u64) {
        self.size = size;
        self.base = Base::Synthetic { seed, length: size };
        if let Some((durable, _)) = &mut self.durable {
            durable.size = size;
        }
    }

    /// Returns the bytes allocated: whole pages; for a synthetic or discarded file its length.
    pub(super) fn allocated(&self) -> u64 {
        match self.base {
            Base::Zero => self.pages.len() as u64 * PAGE,
            Base::Synthetic { length, .. } => length.max(self.pages.len() as u64 * PAGE),
            Base::Discard => self.size,
        }
    }

    /// Returns the bytes that count against the tree's space.
    pub(super) fn charge(&self) -> u64 {
        match self.base {
            Base::Zero | Base::Synthetic { .. } => self.pages.len() as u64 * PAGE,
            Base::Discard => self.size,
        }
    }

    /// Returns by how much a write would increase [`charge`](Self::charge).
    pub(super) fn charge_of_write(&self, offset: u64, length: u64) -> u64 {
        let end = offset.saturating_add(length);
        if self.base == Base::Discard {
            return end.saturating_sub(self.size);
        }
        if length == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        let there = self.pages.range(first..=last).count() as u64;
        (last - first + 1 - there).saturating_mul(PAGE)
    }

    /// Fills `buffer` from `offset`. Returns the number of bytes that the file has there.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let length = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (length - done).min(PAGE as usize - within);
            let target = &mut buffer[done..done + part];
            match self.pages.get(&(at / PAGE)) {
                Some(page) => target.copy_from_slice(&page[within..within + part]),
                None => self.read_base(at, target),
            }
            done += part;
        }
        length
    }

    fn read_base(&self, offset: u64, target: &mut [u8]) {
        target.fill(0);
        if let Base::Synthetic { seed, length } = self.base {
            let there = length.saturating_sub(offset).min(target.len() as u64) as usize;
            synthetic(seed, offset, &mut target[..there]);
        }
    }

    /// Writes; the file grows as needed. The caller has checked the space and the largest size.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        if !bytes.is_empty() {
            self.size = self.size.max(end);
        }
        if self.base == Base::Discard {
            return;
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let part = (bytes.len() - done).min(PAGE as usize - within);
            self.page_mut(at / PAGE)[within..within + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
    }

    /// Returns a page to change; makes it from the base if it does not exist.
    fn page_mut(&mut self, number: u64) -> &mut Page {
        self.touch(number);
        if !self.pages.contains_key(&number) {
            let mut page = [0; PAGE as usize];
            self.read_base(number * PAGE, &mut page);
            self.pages.insert(number, Arc::new(page));
        }
        let page = self
            .pages
            .get_mut(&number)
            .expect("inserted above if it was missing");
        // Copies the page only if the durable state shares it.
        Arc::make_mut(page)
    }

    fn touch(&mut self, number: u64) {
        if let Some((_, dirty)) = &mut self.durable {
            dirty.insert(number);
        }
    }

    fn drop_page(&mut self, number: u64) {
        self.touch(number);
        self.pages.remove(&number);
    }

    pub(super) fn set_len(&mut self, length: u64) {
        if let Some((durable, dirty)) = &mut self.durable {
            let first_gone = length.div_ceil(PAGE);
            durable.unmapped.retain(|number| *number < first_gone);
            dirty.extend(durable.pages.range(first_gone..).map(|(number, _)| *number));
        }
        if length < self.size {
            let first_gone = length.div_ceil(PAGE);
            let gone: Vec<u64> = self
                .pages
                .range(first_gone..)
                .map(|(number, _)| *number)
                .collect();
            for number in gone {
                self.drop_page(number);
            }
            if let Base::Synthetic { length: had, .. } = &mut self.base {
                *had = length.min(*had);
            }
            let within = (length % PAGE) as usize;
            if within > 0 && self.pages.contains_key(&(length / PAGE)) {
                self.page_mut(length / PAGE)[within..].fill(0);
            }
        }
        self.size = length;
    }

    /// Makes a range read as zeroes; whole pages of it become holes.
    pub(super) fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end || self.base == Base::Discard {
            return;
        }
        let synthetic_end = match self.base {
            Base::Synthetic { length, .. } => length,
            _ => 0,
        };
        // Pages to change: those that exist, and those that the base fills.
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        let mut numbers: BTreeSet<u64> = self
            .pages
            .range(first..=last)
            .map(|(number, _)| *number)
            .collect();
        numbers.extend(
            first
                ..last
                    .saturating_add(1)
                    .min(synthetic_end.div_ceil(PAGE))
                    .max(first),
        );
        for number in numbers {
            let start = number * PAGE;
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            let whole = from == start && (to == start + PAGE || to == self.size);
            if whole && start >= synthetic_end {
                self.drop_page(number);
            } else {
                self.page_mut(number)[(from - start) as usize..(to - start) as usize].fill(0);
            }
        }
    }

    /// Returns the first run of data at or after `offset`.
    pub(super) fn next_extent(&self, offset: u64) -> Option<Extent> {
        if offset >= self.size {
            return None;
        }
        let base_end = match self.base {
            Base::Zero => 0,
            Base::Synthetic { length, .. } => length,
            Base::Discard => self.size,
        };
        let mut start = offset;
        if offset >= base_end && !self.pages.contains_key(&(offset / PAGE)) {
            start = self.pages.range(offset / PAGE..).next()?.0 * PAGE;
        }
        let mut end = start.max(base_end);
        for (number, _) in self.pages.range(end / PAGE..) {
            if number * PAGE > end {
                break;
            }
            end = (number + 1) * PAGE;
        }
        let end = end.min(self.size);
        Some(Extent {
            offset: start,
            length: end - start,
        })
    }

    /// Makes the data durable.
    pub(super) fn sync(&mut self) {
        let Some((durable, dirty)) = &mut self.durable else {
            return;
        };
        for number in std::mem::take(dirty) {
            match self.pages.get(&number) {
                Some(_) if durable.unmapped.contains(&number) => durable.pages.remove(&number),
                Some(page) => durable.pages.insert(number, Arc::clone(page)),
                None => durable.pages.remove(&number),
            };
        }
        durable.size = self.size;
    }

    /// Drops some dirty pages, which stay in the page cache. Returns whether any were lost. Without a
    /// journal of metadata the map of the blocks may be lost with them.
    pub(super) fn fail_writeback(&mut self, random: &mut Random, journals_metadata: bool) -> bool {
        let Some((durable, dirty)) = &mut self.durable else {
            return false;
        };
        let before = dirty.len();
        // Pages that were truncated are a change of metadata, not of data.
        let pages = &self.pages;
        dirty.retain(|number| !pages.contains_key(number) || !random.flip());
        let failed = dirty.len() < before;
        if failed && !journals_metadata && random.flip() {
            let first = random.below(self.size.div_ceil(PAGE));
            let last = self.size.div_ceil(PAGE);
            durable.unmapped.extend(first..last);
            durable.pages.split_off(&first);
        }
        failed
    }

    /// Replaces size and pages by what a crash left.
    pub(super) fn restore(&mut self, size: u64, pages: Pages) {
        self.size = size;
        self.pages = pages;
        let first_gone = size.div_ceil(PAGE);
        self.pages.split_off(&first_gone);
        let within = (size % PAGE) as usize;
        if within > 0
            && let Some(page) = self.pages.get_mut(&(size / PAGE))
        {
            Arc::make_mut(page)[within..].fill(0);
        }
        self.durable = Some((
            Durable {
                size,
                pages: self.pages.clone(),
                unmapped: BTreeSet::new(),
            },
            BTreeSet::new(),
        ));
    }
}

/// Fills `buffer` with the bytes of the synthetic file of `seed` from `offset` on: noise that does
/// not compress and differs at every place.
pub fn synthetic(seed: u64, offset: u64, buffer: &mut [u8]) {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + done as u64;
        let within = (at % 8) as usize;
        let part = (buffer.len() - done).min(8 - within);
        let word = mix(seed, at / 8).to_le_bytes();
        buffer[done..done + part].copy_from_slice(&word[within..within + part]);
        done += part;
    }
}

/// Hashes (seed, n) to 64 bits: number `n` of the SplitMix64 sequence of `seed` (Steele et al.
/// 2014). A generator with state cannot replace it, since content is read at any offset.
pub(super) fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
