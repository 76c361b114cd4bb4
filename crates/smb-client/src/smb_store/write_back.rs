//! Gathers the writes of one file, and keeps them until the server has flushed them. Pure.
//!
//! ```text
//! write ──> pending ──take──> sending ──answered──> written ──flushed──> forgotten
//!              ▲                 │ failed, kept        │ the server lost the open file
//!              └─────────────────┴─────────────────────┘
//! ```
//! Each state is a set of ranges that do not overlap. The newest data of a byte is in `pending`,
//! else in `sending`, else in `written`, else on the server. A pending range is not sent while one
//! that overlaps it is on its way, since a server with several connections may answer in any order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The unflushed writes of one file.
#[derive(Debug)]
pub(super) struct WriteBack {
    /// Largest range to send in one request, in bytes.
    block_max: usize,
    /// Unsent ranges. Adjacent writes are joined.
    pending: BTreeMap<u64, Vec<u8>>,
    /// Ranges on their way.
    sending: BTreeMap<u64, Arc<Vec<u8>>>,
    /// Answered and not flushed.
    written: BTreeMap<u64, Piece>,
    /// Counts the answered ranges.
    answered: u64,
    /// Bytes in all three.
    bytes: u64,
}

/// A part of a range that was sent. Later writes may have covered the rest.
#[derive(Clone, Debug)]
struct Piece {
    data: Arc<Vec<u8>>,
    part: Range<usize>,
    number: u64,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        &self.data[self.part.clone()]
    }
}

/// A range to send.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// First byte in the file.
    pub(super) offset: u64,
    /// The bytes.
    pub(super) data: Arc<Vec<u8>>,
}

/// The point in time at which a flush began: it covers what had been answered before.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushMark(u64);

/// Unflushed data within a range, oldest first.
#[derive(Debug, Default)]
pub(super) struct Overlay(Vec<(u64, Vec<u8>)>);

impl WriteBack {
    /// Makes an empty set. Requests carry at most `block_max` bytes.
    pub(super) fn new(block_max: usize) -> Self {
        assert!(block_max > 0, "a request carries data");
        Self {
            block_max,
            pending: BTreeMap::new(),
            sending: BTreeMap::new(),
            written: BTreeMap::new(),
            answered: 0,
            bytes: 0,
        }
    }

    /// Takes a write.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut offset = offset;
        let mut data = data;
        // In place, as programs rewrite their last block.
        if let Some((start, there)) = self.pending.range_mut(..=offset).next_back() {
            let at = offset - start;
            if at.saturating_add(data.len() as u64) <= there.len() as u64 {
                let at = index(at);
                there[at..at + data.len()].copy_from_slice(data);
                return;
            }
        }
        self.clear_pending(offset, data.len());
        self.bytes += data.len() as u64;
        if let Some((start, before)) = self.pending.range_mut(..offset).next_back()
            && start + before.len() as u64 == offset
        {
            let room = self.block_max.saturating_sub(before.len()).min(data.len());
            before.extend_from_slice(&data[..room]);
            offset += room as u64;
            data = &data[room..];
        }
        for piece in data.chunks(self.block_max) {
            self.pending.insert(offset, piece.to_vec());
            offset += piece.len() as u64;
        }
    }

    /// Returns a range to send: a full block, or any with `all`. It is on its way until
    /// [`answered`](Self::answered) or [`failed`](Self::failed).
    pub(super) fn take(&mut self, all: bool) -> Option<Outgoing> {
        let may_go = |(offset, data): &(&u64, &Vec<u8>)| {
            (all || data.len() >= self.block_max) && !self.is_sending(**offset, data.len())
        };
        let offset = *self.pending.iter().find(may_go)?.0;
        let mut data = self.pending.remove(&offset)?;
        // What was written later behind a short range may continue it.
        while let Some(next) = self.pending.get(&(offset + data.len() as u64)) {
            let at = offset + data.len() as u64;
            if data.len() + next.len() > self.block_max || self.is_sending(at, next.len()) {
                break;
            }
            data.extend(self.pending.remove(&at).unwrap_or_default());
        }
        let data = Arc::new(data);
        self.sending.insert(offset, Arc::clone(&data));
        Some(Outgoing { offset, data })
    }

    /// Notes that the server has answered a write.
    pub(super) fn answered(&mut self, sent: &Outgoing) {
        self.sending.remove(&sent.offset);
        self.clear_written(sent.offset, sent.data.len());
        self.answered += 1;
        let piece = Piece {
            part: 0..sent.data.len(),
            data: Arc::clone(&sent.data),
            number: self.answered,
        };
        self.written.insert(sent.offset, piece);
    }

    /// Notes that a write failed. `keep` makes it pending again, except for what has been written
    /// over it since; otherwise it is forgotten.
    pub(super) fn failed(&mut self, sent: &Outgoing, keep: bool) {
        self.sending.remove(&sent.offset);
        self.bytes -= sent.data.len() as u64;
        if keep {
            self.put_below(sent.offset, &sent.data);
        }
    }

    /// Begins a flush. It covers the writes answered so far.
    pub(super) fn begin_flush(&self) -> FlushMark {
        FlushMark(self.answered)
    }

    /// Notes that the server has flushed.
    pub(super) fn flushed(&mut self, mark: FlushMark) {
        let mut gone = 0;
        self.written.retain(|_, piece| {
            let stays = piece.number > mark.0;
            gone += if stays { 0 } else { piece.part.len() as u64 };
            stays
        });
        self.bytes -= gone;
    }

    /// Makes everything pending again that was answered and not flushed: the server may have lost
    /// it.
    pub(super) fn rewrite(&mut self) {
        let written = std::mem::take(&mut self.written);
        for (offset, piece) in written {
            self.bytes -= piece.part.len() as u64;
            // Below what is on its way too: that is newer.
            let mut parts = vec![(offset, piece.bytes())];
            for (start, sending) in &self.sending {
                parts = subtract(parts, *start, sending.len());
            }
            let parts: Vec<(u64, Vec<u8>)> =
                parts.into_iter().map(|(at, part)| (at, part.to_vec())).collect();
            for (at, part) in parts {
                self.put_below(at, &part);
            }
        }
    }

    /// Cuts everything from `length` on. Nothing is on its way.
    pub(super) fn truncate(&mut self, length: u64) {
        self.clear_pending(length, usize::MAX);
        self.clear_written(length, usize::MAX);
    }

    /// Returns the unflushed data within a range.
    pub(super) fn overlay(&self, offset: u64, length: usize) -> Overlay {
        let mut parts = Vec::new();
        for (start, piece) in overlapping(&self.written, offset, length, |piece| piece.part.len()) {
            parts.extend(cut(start, piece.bytes(), offset, length));
        }
        for (start, data) in overlapping(&self.sending, offset, length, |data| data.len()) {
            parts.extend(cut(start, data, offset, length));
        }
        for (start, data) in overlapping(&self.pending, offset, length, Vec::len) {
            parts.extend(cut(start, data, offset, length));
        }
        Overlay(parts)
    }

    /// Returns the end of the last range that the server has not answered; 0 if there is none.
    pub(super) fn unanswered_end(&self) -> u64 {
        let pending = self.pending.last_key_value();
        let pending = pending.map_or(0, |(start, data)| start + data.len() as u64);
        let sending = self.sending.last_key_value();
        pending.max(sending.map_or(0, |(start, data)| start + data.len() as u64))
    }

    /// Whether any write within a range has not been answered.
    pub(super) fn is_unanswered(&self, range: &Range<u64>) -> bool {
        let length = index(range.end - range.start);
        overlapping(&self.pending, range.start, length, Vec::len)
            .next()
            .is_some()
            || self.is_sending(range.start, length)
    }

    /// Whether nothing is pending or on its way.
    pub(super) fn is_answered(&self) -> bool {
        self.pending.is_empty() && self.sending.is_empty()
    }

    /// Whether anything has been answered that is not flushed.
    pub(super) fn has_answered(&self) -> bool {
        !self.written.is_empty()
    }

    /// Number of unsent ranges.
    pub(super) fn ranges(&self) -> usize {
        self.pending.len()
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets everything. Returns the bytes that the server has not answered.
    pub(super) fn discard(&mut self) -> u64 {
        let lost = self.pending.values().map(|data| data.len() as u64).sum();
        self.pending.clear();
        self.written.clear();
        self.bytes = self.sending.values().map(|data| data.len() as u64).sum();
        lost
    }

    fn is_sending(&self, offset: u64, length: usize) -> bool {
        overlapping(&self.sending, offset, length, |data| data.len())
            .next()
            .is_some()
    }

    /// Adds data below newer pending data.
    fn put_below(&mut self, offset: u64, data: &[u8]) {
        let mut parts = vec![(offset, data)];
        for (start, newer) in overlapping(&self.pending, offset, data.len(), Vec::len) {
            parts = subtract(parts, start, newer.len());
        }
        for (at, part) in parts {
            self.bytes += part.len() as u64;
            self.pending.insert(at, part.to_vec());
        }
    }

    fn clear_pending(&mut self, offset: u64, length: usize) {
        let end = offset.saturating_add(length as u64);
        let keys: Vec<u64> = overlapping(&self.pending, offset, length, Vec::len)
            .map(|(start, _)| start)
            .collect();
        for start in keys {
            let Some(mut data) = self.pending.remove(&start) else {
                continue;
            };
            let before = data.len();
            let there = start + before as u64;
            let mut kept = 0;
            if there > end {
                let right = data.split_off(index(end.max(start) - start));
                kept += right.len();
                self.pending.insert(end.max(start), right);
            }
            data.truncate(index(offset.saturating_sub(start)));
            if !data.is_empty() {
                kept += data.len();
                self.pending.insert(start, data);
            }
            self.bytes -= (before - kept) as u64;
        }
    }

    fn clear_written(&mut self, offset: u64, length: usize) {
        let end = offset.saturating_add(length as u64);
        let keys: Vec<u64> = overlapping(&self.written, offset, length, |piece| piece.part.len())
            .map(|(start, _)| start)
            .collect();
        for start in keys {
            let Some(piece) = self.written.remove(&start) else {
                continue;
            };
            let before = piece.part.len();
            let there = start + before as u64;
            let mut kept = 0;
            if there > end {
                let skipped = index(end.max(start) - start);
                let part = piece.part.start + skipped..piece.part.end;
                kept += part.len();
                let right = Piece {
                    part,
                    ..piece.clone()
                };
                self.written.insert(end.max(start), right);
            }
            let left = index(offset.saturating_sub(start)).min(before);
            if left > 0 {
                kept += left;
                let part = piece.part.start..piece.part.start + left;
                self.written.insert(start, Piece { part, ..piece });
            }
            self.bytes -= (before - kept) as u64;
        }
    }
}

impl Overlay {
    /// Puts the data over what was read at `offset`: the first `count` bytes of the buffer. Returns
    /// the bytes that the buffer holds then. A gap behind the server's end of the file is zeros.
    pub(super) fn apply(&self, buffer: &mut [u8], offset: u64, count: usize) -> usize {
        let mut upto = count;
        for (start, data) in &self.0 {
            let at = index(start - offset);
            if at > upto {
                buffer[upto..at].fill(0);
            }
            buffer[at..at + data.len()].copy_from_slice(data);
            upto = upto.max(at + data.len());
        }
        upto
    }

    /// Whether the data cover the whole range.
    pub(super) fn covers(&self, offset: u64, length: usize) -> bool {
        let mut parts: Vec<(u64, usize)> = self.0.iter().map(|(at, data)| (*at, data.len())).collect();
        parts.sort_unstable();
        let mut at = offset;
        for (start, length) in parts {
            if start > at {
                return false;
            }
            at = at.max(start + length as u64);
        }
        at >= offset.saturating_add(length as u64)
    }
}

/// Returns the entries that overlap a range.
fn overlapping<'a, T>(
    map: &'a BTreeMap<u64, T>,
    offset: u64,
    length: usize,
    length_of: impl Fn(&T) -> usize + 'a,
) -> impl Iterator<Item = (u64, &'a T)> {
    let end = offset.saturating_add(length as u64);
    let before = map.range(..offset).next_back();
    let first = before.map_or(offset, |(start, _)| *start);
    let all = map.range(first..).take_while(move |(start, _)| **start < end);
    all.filter(move |(start, value)| **start + length_of(value) as u64 > offset)
        .map(|(start, value)| (*start, value))
}

/// Returns the part of data that lies in a range.
fn cut(start: u64, data: &[u8], offset: u64, length: usize) -> Option<(u64, Vec<u8>)> {
    let from = start.max(offset);
    let upto = (start + data.len() as u64).min(offset.saturating_add(length as u64));
    // Copied: the data may be written over while the server is asked for the rest.
    (from < upto).then(|| (from, data[index(from - start)..index(upto - start)].to_vec()))
}

/// Takes a range away from parts.
fn subtract(parts: Vec<(u64, &[u8])>, start: u64, length: usize) -> Vec<(u64, &[u8])> {
    let end = start + length as u64;
    let mut left = Vec::new();
    for (at, part) in parts {
        let upto = at + part.len() as u64;
        if at < start {
            left.push((at, &part[..index(start.min(upto) - at)]));
        }
        if upto > end {
            let from = end.max(at);
            left.push((from, &part[index(from - at)..]));
        }
        // A part that the range does not touch came out whole on one side.
    }
    left
}

/// A distance within data in memory.
fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that keeps what it has flushed, and may lose the rest.
    #[derive(Default)]
    struct Server {
        memory: Vec<u8>,
        disk: Vec<u8>,
    }

    impl Server {
        fn write(&mut self, sent: &Outgoing) {
            let (at, end) = (index(sent.offset), index(sent.offset) + sent.data.len());
            self.memory.resize(self.memory.len().max(end), 0);
            self.memory[at..end].copy_from_slice(&sent.data);
        }
    }

    struct Bench {
        write: WriteBack,
        server: Server,
        sent: Vec<Outgoing>,
        file: Vec<u8>,
    }

    impl Bench {
        fn write(&mut self, offset: usize, data: &[u8]) {
            self.write.write(offset as u64, data);
            let end = offset + data.len();
            self.file.resize(self.file.len().max(end), 0);
            self.file[offset..end].copy_from_slice(data);
        }

        fn read(&self, offset: usize, length: usize) -> Vec<u8> {
            let memory = &self.server.memory;
            let upto = (offset + length).min(memory.len());
            let mut buffer = vec![0xEE; length];
            let count = upto.saturating_sub(offset);
            buffer[..count].copy_from_slice(&memory[upto - count..upto]);
            let overlay = self.write.overlay(offset as u64, length);
            let count = overlay.apply(&mut buffer, offset as u64, count);
            buffer.truncate(count);
            buffer
        }

        fn check(&self, random: &mut fastrand::Rng, seed: u64) {
            let (offset, length) = (random.usize(0..400), random.usize(1..300));
            let end = (offset + length).min(self.file.len());
            let expected = &self.file[offset.min(end)..end];
            let found = self.read(offset, length);
            // A hole behind the server's end is known to the caller by the length of the file.
            assert_eq!(found, expected[..found.len()], "{seed}");
            assert!(expected[found.len()..].iter().all(|byte| *byte == 0), "{seed}");
            let kept: usize = self.write.pending.values().map(Vec::len).sum::<usize>()
                + self.write.sending.values().map(|data| data.len()).sum::<usize>()
                + self
                    .write
                    .written
                    .values()
                    .map(|piece| piece.part.len())
                    .sum::<usize>();
            assert_eq!(self.write.bytes(), kept as u64, "{seed}");
        }

        /// Writes everything out and flushes.
        fn sync(&mut self) {
            loop {
                self.sent.extend(std::iter::from_fn(|| self.write.take(true)));
                let Some(sent) = self.sent.pop() else { break };
                self.server.write(&sent);
                self.write.answered(&sent);
            }
            assert!(self.write.is_answered());
            let mark = self.write.begin_flush();
            self.server.disk = self.server.memory.clone();
            self.write.flushed(mark);
            assert_eq!(self.write.bytes(), 0);
        }

        fn step(&mut self, random: &mut fastrand::Rng) {
            match random.u8(0..12) {
                0..=3 => {
                    let data: Vec<u8> = (0..random.usize(1..90)).map(|_| random.u8(1..)).collect();
                    self.write(random.usize(0..300), &data);
                }
                4 | 5 => self.sent.extend(self.write.take(random.bool())),
                6 | 7 if !self.sent.is_empty() => {
                    let sent = self.sent.swap_remove(random.usize(0..self.sent.len()));
                    if random.u8(0..4) > 0 {
                        self.server.write(&sent);
                        self.write.answered(&sent);
                    } else {
                        self.write.failed(&sent, true);
                    }
                }
                8 => {
                    let mark = self.write.begin_flush();
                    self.server.disk = self.server.memory.clone();
                    self.write.flushed(mark);
                }
                9 if random.u8(0..3) == 0 => {
                    // The server restarts without what it had not flushed.
                    self.server.memory = self.server.disk.clone();
                    self.write.rewrite();
                }
                10 if self.write.is_answered() => {
                    let length = random.usize(0..300);
                    self.write.truncate(length as u64);
                    self.file.resize(length, 0);
                    self.server.memory.resize(length, 0);
                    self.sync();
                }
                _ => {}
            }
        }
    }

    #[test]
    fn nothing_is_lost_whatever_the_server_loses() {
        for seed in 0..3000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bench = Bench {
                write: WriteBack::new(random.usize(1..80)),
                server: Server::default(),
                sent: Vec::new(),
                file: Vec::new(),
            };
            for _ in 0..80 {
                bench.step(&mut random);
                bench.check(&mut random, seed);
            }
            bench.sync();
            assert_eq!(bench.server.disk, bench.file, "{seed}");
        }
    }

    #[test]
    fn small_writes_become_full_blocks() {
        let mut write = WriteBack::new(1 << 20);
        for at in 0..1000_u64 {
            write.write(at * 4096, &[7; 4096]);
        }
        let full: Vec<usize> = std::iter::from_fn(|| write.take(false))
            .map(|sent| sent.data.len())
            .collect();
        assert_eq!(full, [1 << 20; 3]);
        let rest = write.take(true).unwrap();
        assert_eq!(
            (rest.offset, rest.data.len()),
            (3 << 20, (1000 << 12) - (3 << 20))
        );
        assert!(write.take(true).is_none());
        assert_eq!(write.bytes(), 1000 << 12);
    }

    #[test]
    fn what_overlaps_waits_for_its_turn() {
        let mut write = WriteBack::new(100);
        write.write(0, &[1; 50]);
        let first = write.take(true).unwrap();
        write.write(40, &[2; 50]);
        assert!(write.take(true).is_none());
        write.write(200, &[3; 10]);
        assert_eq!(write.take(true).unwrap().offset, 200);
        write.answered(&first);
        assert_eq!(write.take(true).unwrap().offset, 40);
    }

    #[test]
    fn data_that_was_overwritten_is_not_written_again() {
        let mut write = WriteBack::new(100);
        write.write(0, b"old old old");
        let sent = write.take(true).unwrap();
        write.write(4, b"new");
        write.failed(&sent, true);
        let overlay = write.overlay(0, 11);
        assert!(overlay.covers(0, 11) && !overlay.covers(0, 12));
        let mut buffer = [0; 11];
        assert_eq!(overlay.apply(&mut buffer, 0, 0), 11);
        assert_eq!(&buffer, b"old new old");
    }
}
