//! Pages of the kernel's ring buffer, as `trace_pipe_raw` returns them
//! (kernel/trace/ring_buffer.c, `events/header_page` and `events/header_event`).
//!
//! ```text
//!   u64 time   local_t committed bytes, and flags   data: entry, entry, …
//!   entry: u32 (kind or length: 5 bits, time since the entry before: 27 bits), payload
//! ```

use super::format;

/// Flags in the field of committed bytes.
const MISSED: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
/// Bits of that field that are a length; above are counters of the kernel.
const LENGTH_MASK: u64 = 0xf_ffff;
/// Kinds of entries; smaller ones are lengths in words of 4 bytes.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time in an entry's first word.
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time that an entry holds; the rest is that of the page.
const STAMP_BITS: u32 = 59;

/// Where the parts of a page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    commit_offset: usize,
    commit_size: usize,
    data_offset: usize,
    data_size: usize,
}

impl PageLayout {
    /// Parses `events/header_page`; `None` if it is of an unknown kind.
    pub fn parse(text: &str) -> Option<Self> {
        let fields = format::fields(text);
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        let (time, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        let is_known = time.offset == 0 && time.size == 8 && matches!(commit.size, 4 | 8);
        is_known.then_some(Self {
            commit_offset: commit.offset,
            commit_size: commit.size,
            data_offset: data.offset,
            data_size: data.size,
        })
    }

    /// Returns the size of a whole page.
    pub fn page_bytes(&self) -> usize {
        self.data_offset + self.data_size
    }
}

/// One event: its time, and its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'p> {
    /// Time by the buffer's clock.
    pub time: u64,
    /// The event, as its `format` file describes.
    pub payload: &'p [u8],
}

/// The events of a page.
#[derive(Clone, Debug)]
pub struct Page<'p> {
    data: &'p [u8],
    time: u64,
    /// Events that the kernel dropped before this page; `Some(0)` if it does not know how many.
    lost: Option<u64>,
}

impl<'p> Page<'p> {
    /// Finds the parts of a page; `None` if it is too short.
    pub fn parse(bytes: &'p [u8], layout: &PageLayout) -> Option<Self> {
        let time = u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
        let commit = bytes.get(layout.commit_offset..)?.get(..layout.commit_size)?;
        let commit = match commit.len() {
            4 => u64::from(u32::from_ne_bytes(commit.try_into().ok()?)),
            _ => u64::from_ne_bytes(commit.try_into().ok()?),
        };
        // Bounded by the mask.
        let length = (commit & LENGTH_MASK) as usize;
        let data = bytes.get(layout.data_offset..)?;
        let lost = (commit & MISSED != 0).then(|| {
            let stored = data.get(length..).and_then(|rest| rest.get(..8));
            match stored {
                Some(stored) if commit & MISSED_STORED != 0 => {
                    u64::from_ne_bytes(stored.try_into().expect("eight bytes"))
                }
                _ => 0,
            }
        });
        Some(Self {
            data: data.get(..length)?,
            time,
            lost,
        })
    }

    /// Returns how many events the kernel dropped before this page, if any; 0 if it does not know.
    pub fn lost(&self) -> Option<u64> {
        self.lost
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.data.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// Takes one entry off the data. `Some(None)` for entries that are no event.
    fn step(&mut self) -> Option<Option<Entry<'p>>> {
        let head = self.word(0)?;
        let (kind, delta) = (head & 0x1f, u64::from(head >> 5));
        let (payload, end) = match kind {
            PADDING if delta == 0 => return None,
            PADDING => {
                self.skip(4_usize.checked_add(self.word(4)? as usize)?)?;
                return Some(None);
            }
            TIME_EXTEND | TIME_STAMP => {
                let time = u64::from(self.word(4)?) << DELTA_BITS | delta;
                self.time = if kind == TIME_EXTEND {
                    self.time.wrapping_add(time)
                } else {
                    time | self.time & !((1 << STAMP_BITS) - 1)
                };
                self.skip(8)?;
                return Some(None);
            }
            0 => {
                let length = self.word(4)? as usize;
                (8, 4_usize.checked_add(length)?)
            }
            words => (4, 4 + 4 * words as usize),
        };
        self.time = self.time.wrapping_add(delta);
        let payload = self.data.get(payload..end)?;
        self.skip(end)?;
        Some(Some(Entry {
            time: self.time,
            payload,
        }))
    }

    /// Drops bytes, rounded up to words.
    fn skip(&mut self, bytes: usize) -> Option<()> {
        let bytes = bytes.checked_next_multiple_of(4)?.min(self.data.len());
        self.data = self.data.get(bytes..)?;
        Some(())
    }
}

impl<'p> Iterator for Page<'p> {
    type Item = Entry<'p>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Some(Some(entry)) => return Some(entry),
                Some(None) => {}
                None => {
                    // Whatever follows is not understood.
                    self.data = &[];
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: PageLayout = PageLayout {
        commit_offset: 8,
        commit_size: 8,
        data_offset: 16,
        data_size: 4080,
    };

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let length = words.len() as u64 * 4;
        let mut bytes = time.to_ne_bytes().to_vec();
        bytes.extend((length | flags).to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn the_layout_is_that_of_the_kernel() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
            \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
            \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(PageLayout::parse(text), Some(LAYOUT));
        assert_eq!(LAYOUT.page_bytes(), 4096);
        assert_eq!(PageLayout::parse("x"), None);
    }

    #[test]
    fn entries_have_times_and_payloads() {
        let words = [
            2 | 5 << 5,
            0xa,
            0xb,
            // A time extend of 1 << 27 and 3.
            TIME_EXTEND | 3 << 5,
            1,
            // A discarded entry of two words behind its head.
            PADDING | 1 << 5,
            8,
            0,
            // A long entry: the length includes itself.
            7 << 5,
            8,
            0xc,
        ];
        let bytes = page(100, 0, &words);
        let page = Page::parse(&bytes, &LAYOUT).unwrap();
        assert_eq!(page.lost(), None);
        let entries: Vec<(u64, usize)> = page.map(|entry| (entry.time, entry.payload.len())).collect();
        assert_eq!(entries, [(105, 8), (105 + (1 << 27) + 3 + 7, 4)]);
    }

    #[test]
    fn lost_events_are_told() {
        let mut bytes = page(1, MISSED | MISSED_STORED, &[1 | 1 << 5, 9]);
        bytes.extend(77_u64.to_ne_bytes());
        let counted = Page::parse(&bytes, &LAYOUT).unwrap();
        assert_eq!((counted.lost(), counted.count()), (Some(77), 1));
        let bytes = page(1, MISSED, &[]);
        assert_eq!(Page::parse(&bytes, &LAYOUT).unwrap().lost(), Some(0));
    }

    proptest! {
        #[test]
        fn hostile_pages_end(bytes in proptest::collection::vec(any::<u8>(), 0..300), time: u64) {
            if let Some(page) = Page::parse(&bytes, &LAYOUT) {
                prop_assert!(page.count() <= bytes.len());
            }
            // Most random lengths are too long; this one fits.
            let words: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
            let bytes = page(time, 0, &words);
            let count = Page::parse(&bytes, &LAYOUT).unwrap().count();
            prop_assert!(count <= words.len());
        }
    }
}
