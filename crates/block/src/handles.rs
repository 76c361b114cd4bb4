//! Implements the two handles on a slot: [`BlockMut`] and [`Block`].

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Pool;
use crate::pool::Inner;

/// The unique, writable handle on a slot. Fill it, then [`freeze`](Self::freeze) it.
pub struct BlockMut {
    pool: Arc<Inner>,
    slot: u32,
    len: usize,
}

impl BlockMut {
    /// Makes the only handle on a slot that was taken off the free list.
    pub(crate) fn new(pool: Arc<Inner>, slot: u32) -> Self {
        Self { pool, slot, len: 0 }
    }

    /// Returns the bytes that the payload can hold.
    pub fn capacity(&self) -> usize {
        self.pool.payload
    }

    /// Returns the bytes declared valid by [`set_len`](Self::set_len).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no byte is declared valid.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Declares the first `len` bytes valid.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "length {len} exceeds the block's {}",
            self.capacity()
        );
        self.len = len;
    }

    /// Returns the whole payload area, valid or not. It is always initialised memory.
    pub fn capacity_mut(&mut self) -> &mut [u8] {
        // SAFETY: this slot's payload is inside the region, initialised (zeroed at allocation), and
        // `&mut self` is its only handle.
        unsafe { std::slice::from_raw_parts_mut(self.pool.payload_ptr(self.slot), self.pool.payload) }
    }

    /// Returns the number of bytes in front of the payload: [`HEADROOM`](crate::HEADROOM), or less in
    /// a [packed](Pool::packed) pool.
    pub fn headroom(&self) -> usize {
        self.pool.headroom
    }

    /// Returns the bytes directly in front of the payload, all of the [headroom](Self::headroom).
    pub fn headroom_mut(&mut self) -> &mut [u8] {
        let headroom = self.pool.headroom;
        // SAFETY: `headroom` bytes in front of the payload belong to this slot; `&mut self` is its
        // only handle.
        unsafe { std::slice::from_raw_parts_mut(self.pool.payload_ptr(self.slot).sub(headroom), headroom) }
    }

    /// Returns the last `head` bytes of the headroom and the valid payload as one slice: a protocol
    /// header followed by its payload.
    ///
    /// # Panics
    /// If `head` exceeds the [headroom](Self::headroom).
    pub fn framed_mut(&mut self, head: usize) -> &mut [u8] {
        assert!(
            head <= self.pool.headroom,
            "a head of {head} exceeds the headroom"
        );
        // SAFETY: headroom >= head bytes in front of the payload and `len` <= payload bytes from
        // there on belong to this slot and are initialised. `&mut self` is its only handle.
        unsafe {
            let start = self.pool.payload_ptr(self.slot).sub(head);
            std::slice::from_raw_parts_mut(start, head + self.len)
        }
    }

    /// Returns the address of the payload, for the kernel's use. It stays valid while a handle on
    /// the slot lives.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pool.payload_ptr(self.slot)
    }

    /// Whether this block lies in `pool`'s region.
    pub fn belongs_to(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.pool, &pool.inner)
    }

    /// Ends writing: the valid bytes become shared and immutable.
    pub fn freeze(self) -> Block {
        let block = Block {
            pool: Arc::clone(&self.pool),
            slot: self.slot,
            start: 0,
            len: self.len,
        };
        block.pool.retain(block.slot);
        block
    }
}

impl Deref for BlockMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as in `capacity_mut`, shared while `&self` lives; `len` <= payload.
        unsafe { std::slice::from_raw_parts(self.pool.payload_ptr(self.slot), self.len) }
    }
}

impl fmt::Debug for BlockMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BlockMut(slot {}, {} of {})",
            self.slot,
            self.len,
            self.capacity()
        )
    }
}

impl Drop for BlockMut {
    fn drop(&mut self) {
        self.pool.release(self.slot);
    }
}

/// A shared, immutable view of a slot's bytes. Clones and slices share the slot.
pub struct Block {
    pool: Arc<Inner>,
    slot: u32,
    start: usize,
    len: usize,
}

impl Block {
    /// Returns a view of a part of this view.
    ///
    /// # Panics
    /// If `range` leaves this view.
    pub fn slice(&self, range: Range<usize>) -> Block {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} leaves a view of {}",
            self.len
        );
        let mut part = self.clone();
        part.start += range.start;
        part.len = range.len();
        part
    }

    /// Returns the last `head` bytes of the headroom and this view's bytes as one slice.
    ///
    /// # Panics
    /// If `head` exceeds the [headroom](BlockMut::headroom), or if `head` is not 0 and the view does not
    /// start at the payload's first byte.
    pub fn framed(&self, head: usize) -> &[u8] {
        assert!(
            head <= self.pool.headroom,
            "a head of {head} exceeds the headroom"
        );
        assert!(
            head == 0 || self.start == 0,
            "only a view from the start has a head"
        );
        // SAFETY: `start` or `head` is 0, so the range lies in this slot's headroom and payload,
        // all initialised. Nothing writes to either while a `Block` lives.
        unsafe {
            let start = self.pool.payload_ptr(self.slot).add(self.start).sub(head);
            std::slice::from_raw_parts(start, head + self.len)
        }
    }

    /// Makes the slot writable again, with this view's length.
    ///
    /// # Errors
    /// Returns the view unchanged if it is not the slot's only handle, or does not start at the
    /// payload's first byte.
    pub fn try_into_mut(self) -> Result<BlockMut, Block> {
        // Acquire: everything the other handles did before their drop has happened. Only this
        // handle could make new ones.
        if self.start != 0 || self.pool.references[self.slot as usize].load(Ordering::Acquire) != 1 {
            return Err(self);
        }
        self.pool.retain(self.slot);
        Ok(BlockMut {
            pool: Arc::clone(&self.pool),
            slot: self.slot,
            len: self.len,
        })
    }

    /// Whether this block lies in `pool`'s region.
    pub fn belongs_to(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.pool, &pool.inner)
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        self.pool.retain(self.slot);
        Self {
            pool: Arc::clone(&self.pool),
            slot: self.slot,
            start: self.start,
            len: self.len,
        }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in this slot's payload (checked when the view was made). Nothing
        // writes while a `Block` lives.
        unsafe { std::slice::from_raw_parts(self.pool.payload_ptr(self.slot).add(self.start), self.len) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block(slot {}, {}+{})", self.slot, self.start, self.len)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.release(self.slot);
    }
}
