//! Memory for packets in flight: read straight into it, written straight out of it, and released in the
//! same order.
//!
//! Packets lie one after the other in chunks; a chunk is reused when all its packets are released. The
//! line bounds the packets in flight, so the arena needs no further bound.

use std::collections::VecDeque;

use super::packet::PACKET_MAX_BYTES;

/// Size of a chunk: a guess between waste at its end (at most one packet, 6 %) and granularity.
const CHUNK_BYTES: usize = 1 << 20;
/// Free chunks that are kept for the next burst (a guess).
const SPARE_MAX: usize = 16;

#[derive(Debug)]
struct Chunk {
    bytes: Box<[u8]>,
    used: usize,
    packets: usize,
}

/// Position of a packet.
#[derive(Debug)]
pub(super) struct Slot {
    chunk: u64,
    at: usize,
    length: usize,
}

/// The memory of one direction.
#[derive(Debug, Default)]
pub(super) struct Arena {
    chunks: VecDeque<Chunk>,
    /// Number of the first chunk.
    first: u64,
    spare: Vec<Box<[u8]>>,
}

impl Arena {
    /// Returns room for the next packet, of the largest possible size.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let fits = |chunk: &Chunk| chunk.used + PACKET_MAX_BYTES <= CHUNK_BYTES;
        if !self.chunks.back().is_some_and(fits) {
            let bytes = self
                .spare
                .pop()
                .unwrap_or_else(|| vec![0; CHUNK_BYTES].into_boxed_slice());
            self.chunks.push_back(Chunk {
                bytes,
                used: 0,
                packets: 0,
            });
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        &mut chunk.bytes[chunk.used..]
    }

    /// Returns the content of the room, before it is kept.
    pub(super) fn pending(&mut self, length: usize) -> &[u8] {
        &self.room()[..length]
    }

    /// Keeps the first bytes of the room.
    pub(super) fn keep(&mut self, length: usize) -> Slot {
        self.room();
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        let slot = Slot {
            chunk: self.first + last as u64,
            at: chunk.used,
            length,
        };
        chunk.used += length;
        chunk.packets += 1;
        slot
    }

    /// Copies a packet in.
    pub(super) fn put(&mut self, packet: &[u8]) -> Slot {
        self.room()[..packet.len()].copy_from_slice(packet);
        self.keep(packet.len())
    }

    /// Returns the bytes of a packet.
    pub(super) fn get(&self, slot: &Slot) -> &[u8] {
        let chunk = &self.chunks[(slot.chunk - self.first) as usize];
        &chunk.bytes[slot.at..slot.at + slot.length]
    }

    /// Releases a packet's memory. Packets are released in the order of their arrival.
    pub(super) fn release(&mut self, slot: Slot) {
        self.chunks[(slot.chunk - self.first) as usize].packets -= 1;
        while self.chunks.len() > 1 && self.chunks[0].packets == 0 {
            self.first += 1;
            let chunk = self.chunks.pop_front();
            self.spare.extend(chunk.map(|chunk| chunk.bytes));
            self.spare.truncate(SPARE_MAX);
        }
        if let [chunk] = self.chunks.make_contiguous()
            && chunk.packets == 0
        {
            chunk.used = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_as_they_were() {
        let mut arena = Arena::default();
        let mut slots = VecDeque::new();
        for round in 0..2000_usize {
            let packet = vec![round as u8; 1 + round * 37 % PACKET_MAX_BYTES];
            slots.push_back((arena.put(&packet), packet));
            if slots.len() > round % 97 {
                let (slot, packet) = slots.pop_front().unwrap();
                assert_eq!(arena.get(&slot), packet);
                arena.release(slot);
            }
        }
        while let Some((slot, packet)) = slots.pop_front() {
            assert_eq!(arena.get(&slot), packet);
            arena.release(slot);
        }
        assert_eq!((arena.chunks.len(), arena.chunks[0].used), (1, 0));
        assert!(arena.spare.len() <= SPARE_MAX);
    }
}
