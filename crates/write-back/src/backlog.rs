//! What a file's far copy lacks: the backlog. Pure.
//!
//! ```text
//! near content of byte b:   a piece covers b           the piece, in the journal
//!                           else b < far_valid         byte b of the far file
//!                           else b < size              zero
//! ```
//! The far file gets it in rounds. A round first cuts the far file to `far_valid`: what is behind
//! is left over from before a cut, or from a round that failed. Then it writes pieces in the order
//! in which they were written, and with the last of them it sets length, times and attributes.
//! Records of data, lengths and attributes are numbered; a round covers all up to its `mark`. What
//! is written during a round has a higher number and stays.

use std::collections::BTreeMap;

use ropeway_vfs::Timestamp;
use ropeway_vfs::store::NodeChange;

use crate::record::Snapshot;

/// Where a data record is in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the part.
    pub(crate) part: u32,
    /// Number of the record in the part.
    pub(crate) number: u64,
    /// Offset of its sealed bytes, and their length.
    pub(crate) at: u64,
    /// See [`at`](Self::at).
    pub(crate) length: u32,
}

/// A range of the file whose bytes are in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) length: u64,
    pub(crate) place: Place,
    /// Bytes of the record's data before the piece.
    pub(crate) skip: u32,
    /// Number of the record among all of the file.
    pub(crate) from: u64,
}

/// The backlog of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    pub(crate) size: u64,
    pub(crate) far_valid: u64,
    /// The least length that was set since the round under way began.
    pub(crate) least: Option<u64>,
    pub(crate) length_from: u64,
    pub(crate) change: NodeChange,
    pub(crate) change_from: u64,
    /// Number of the next record.
    pub(crate) next: u64,
    pieces: BTreeMap<u64, Piece>,
    bytes: u64,
}

/// What one round brings to the far file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round {
    /// The length to which the far file is cut first, if it is longer.
    pub(crate) far_valid: u64,
    /// Pieces by their offset, oldest first.
    pub(crate) pieces: Vec<(u64, Piece)>,
    /// The final length, times and attributes, if this is all there is.
    pub(crate) last: Option<(u64, NodeChange)>,
    /// The highest record that it covers.
    pub(crate) mark: u64,
}

impl Backlog {
    /// Begins with a far file of this size.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            far_valid: size,
            least: None,
            length_from: 0,
            change: NodeChange::default(),
            change_from: 0,
            next: 1,
            pieces: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Begins where a part begins.
    pub(crate) fn of_snapshot(snapshot: &Snapshot) -> Self {
        Self {
            far_valid: snapshot.far_valid,
            least: snapshot.least,
            length_from: snapshot.length_from,
            change: snapshot.change,
            change_from: snapshot.change_from,
            next: snapshot.next,
            ..Self::new(snapshot.size)
        }
    }

    /// Whether the far file lacks nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.length_from == 0 && self.change_from == 0
    }

    /// Bytes of data that the far file lacks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The oldest part that holds data of the backlog.
    pub(crate) fn oldest_part(&self) -> Option<u32> {
        self.pieces.values().map(|piece| piece.place.part).min()
    }

    /// Takes written bytes, which are in the journal at `place`.
    pub(crate) fn write(&mut self, offset: u64, length: u64, at: Timestamp, place: Place) {
        let from = self.number();
        let end = offset + length;
        self.clear(offset, end);
        let piece = Piece {
            length,
            place,
            skip: 0,
            from,
        };
        self.pieces.insert(offset, piece);
        self.bytes += length;
        self.size = self.size.max(end);
        self.touch(from, at);
    }

    /// Takes a new length.
    pub(crate) fn set_len(&mut self, length: u64, at: Timestamp) {
        let from = self.number();
        if length < self.size {
            self.clear(length, u64::MAX);
            self.least = Some(self.least.map_or(length, |least| least.min(length)));
            self.far_valid = self.far_valid.min(length);
        }
        self.size = length;
        self.length_from = from;
        self.touch(from, at);
    }

    /// Takes times and attributes.
    pub(crate) fn set(&mut self, change: &NodeChange) {
        let from = self.number();
        let now = &mut self.change;
        now.created = change.created.or(now.created);
        now.accessed = change.accessed.or(now.accessed);
        now.modified = change.modified.or(now.modified);
        now.changed = change.changed.or(now.changed);
        now.dos_attributes = change.dos_attributes.or(now.dos_attributes);
        self.change_from = from;
    }

    /// The time of the write stays the file's own after the round.
    fn touch(&mut self, from: u64, at: Timestamp) {
        self.change.modified = Some(at);
        self.change.changed = None;
        self.change_from = from;
    }

    fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Removes what is known of the bytes from `start` to `end`.
    fn clear(&mut self, start: u64, end: u64) {
        if let Some((at, piece)) = self
            .pieces
            .range(..start)
            .next_back()
            .map(|(at, piece)| (*at, *piece))
        {
            let piece_end = at + piece.length;
            if piece_end > start {
                self.bytes -= piece_end - start;
                self.resize(at, start - at);
                if piece_end > end {
                    self.insert_tail(at, piece, end);
                }
            }
        }
        let within: Vec<u64> = self.pieces.range(start..end).map(|(at, _)| *at).collect();
        for at in within {
            if let Some(piece) = self.pieces.remove(&at) {
                self.bytes -= piece.length;
                if at + piece.length > end {
                    self.insert_tail(at, piece, end);
                }
            }
        }
    }

    fn resize(&mut self, at: u64, length: u64) {
        if let Some(piece) = self.pieces.get_mut(&at) {
            piece.length = length;
        }
    }

    /// Inserts what is left of a piece behind `end`.
    fn insert_tail(&mut self, at: u64, piece: Piece, end: u64) {
        let gone = end - at;
        // A record has at most 256 KiB.
        let skip = piece.skip + u32::try_from(gone).expect("a piece is within a record");
        let length = piece.length - gone;
        self.pieces.insert(
            end,
            Piece {
                length,
                skip,
                ..piece
            },
        );
        self.bytes += length;
    }

    /// Returns the pieces that touch a range, whole.
    pub(crate) fn pieces_in(&self, start: u64, end: u64) -> Vec<(u64, Piece)> {
        let before = self.pieces.range(..start).next_back();
        let before = before.filter(|(at, piece)| *at + piece.length > start);
        let within = self.pieces.range(start..end.max(start));
        before
            .into_iter()
            .chain(within)
            .map(|(at, piece)| (*at, *piece))
            .collect()
    }

    /// Returns the ranges of the near file (offset, length) of which only the far file has the
    /// bytes.
    pub(crate) fn only_far(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        let (mut at, end) = (0, self.far_valid.min(self.size));
        for (start, piece) in &self.pieces {
            if *start >= end {
                break;
            }
            if *start > at {
                ranges.push((at, start - at));
            }
            at = at.max(start + piece.length);
        }
        if at < end {
            ranges.push((at, end - at));
        }
        ranges
    }

    /// Plans a round of about `bytes_max` bytes.
    pub(crate) fn plan(&self, bytes_max: u64) -> Round {
        let mut oldest: Vec<(u64, Piece)> = self.pieces.iter().map(|(at, piece)| (*at, *piece)).collect();
        oldest.sort_by_key(|(_, piece)| piece.from);
        let (mut taken, mut bytes) = (0, 0);
        while taken < oldest.len() && bytes < bytes_max {
            // All that is left of a record goes at once.
            let from = oldest[taken].1.from;
            while let Some((_, piece)) = oldest.get(taken).filter(|(_, piece)| piece.from == from) {
                bytes += piece.length;
                taken += 1;
            }
        }
        let is_all = taken == oldest.len();
        oldest.truncate(taken);
        let highest = oldest.last().map_or(0, |(_, piece)| piece.from);
        Round {
            far_valid: self.far_valid,
            mark: if is_all { self.next - 1 } else { highest },
            pieces: oldest,
            last: is_all.then_some((self.size, self.change)),
        }
    }

    /// Notes that a round that was planned just now begins.
    pub(crate) fn begin(&mut self) {
        self.least = None;
    }

    /// Notes that the far file has all up to `mark`, flushed, and `far_size` bytes.
    pub(crate) fn commit(&mut self, mark: u64, far_size: u64) {
        self.pieces.retain(|_, piece| piece.from > mark);
        self.bytes = self.pieces.values().map(|piece| piece.length).sum();
        if self.length_from <= mark {
            self.length_from = 0;
        }
        if self.change_from <= mark {
            self.change = NodeChange::default();
            self.change_from = 0;
        }
        // What was cut during the round is still in the far file.
        self.far_valid = far_size.min(self.least.take().unwrap_or(far_size));
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
