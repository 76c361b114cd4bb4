//! The two handles on a slot.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::pool::Inner;
use crate::{HEADROOM, Pool};

/// A slot with one owner: fill it, then [`freeze`](Self::freeze) it.
pub struct BlockMut {
    pool: Arc<Inner>,
    slot: u32,
    len: usize,
}

impl BlockMut {
    /// The only handle on a slot that was taken from the free ones.
    pub(crate) fn new(pool: Arc<Inner>, slot: u32) -> Self {
        Self { pool, slot, len: 0 }
    }

    /// Bytes that the payload can hold.
    pub fn capacity(&self) -> usize {
        self.pool.payload
    }

    /// Bytes declared valid by [`set_len`](Self::set_len).
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

    /// The whole payload area, valid or not (it is always initialised memory).
    pub fn capacity_mut(&mut self) -> &mut [u8] {
        // SAFETY: this slot's payload is inside the region, initialised (zeroed at allocation), and `&mut self`
        // is its only handle.
        unsafe { std::slice::from_raw_parts_mut(self.pool.payload_ptr(self.slot), self.pool.payload) }
    }

    /// The [`HEADROOM`] bytes that end where the payload begins.
    pub fn headroom_mut(&mut self) -> &mut [u8] {
        // SAFETY: HEADROOM bytes in front of the payload belong to this slot; `&mut self` is its only handle.
        unsafe { std::slice::from_raw_parts_mut(self.pool.payload_ptr(self.slot).sub(HEADROOM), HEADROOM) }
    }

    /// The last `head` bytes of the headroom and the valid payload after them, in one piece: a protocol header and what it
    /// announces.
    ///
    /// # Panics
    /// If `head` exceeds [`HEADROOM`].
    pub fn framed_mut(&mut self, head: usize) -> &mut [u8] {
        assert!(head <= HEADROOM, "a head of {head} exceeds the headroom");
        // SAFETY: HEADROOM >= head bytes in front of the payload and `len` <= payload bytes from there on belong to this
        // slot and are initialised; `&mut self` is its only handle.
        unsafe {
            let start = self.pool.payload_ptr(self.slot).sub(head);
            std::slice::from_raw_parts_mut(start, head + self.len)
        }
    }

    /// Address of the payload, stable for the life of the slot's handles; for the kernel's use.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pool.payload_ptr(self.slot)
    }

    /// Whether this block lies in `pool`'s region.
    pub fn belongs_to(&self, pool: &Pool) -> bool {
        Arc::ptr_eq(&self.pool, &pool.inner)
    }

    /// Ends the writing: the valid bytes become shared and immutable.
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
        // SAFETY: as in `capacity_mut`, shared for the life of `&self`; `len` <= payload.
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
    /// A view of a part of this view.
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

    /// The last `head` bytes of the headroom and this view's bytes after them, in one piece.
    ///
    /// # Panics
    /// If `head` exceeds [`HEADROOM`], or is not 0 and the view does not start where the payload does.
    pub fn framed(&self, head: usize) -> &[u8] {
        assert!(head <= HEADROOM, "a head of {head} exceeds the headroom");
        assert!(
            head == 0 || self.start == 0,
            "only a view from the start has a head"
        );
        // SAFETY: `start` is 0 or `head` is, so the range lies in this slot's headroom and payload, all initialised; nobody
        // writes either while a `Block` lives.
        unsafe {
            let start = self.pool.payload_ptr(self.slot).add(self.start).sub(head);
            std::slice::from_raw_parts(start, head + self.len)
        }
    }

    /// The slot for writing again, with this view's length.
    ///
    /// # Errors
    /// Gives the view back if it is not the slot's only handle, or does not start where the payload does.
    pub fn try_into_mut(self) -> Result<BlockMut, Block> {
        // Acquire: what the other handles did before they went has happened. Only this handle could make new ones.
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
        // SAFETY: the range lies in this slot's payload (checked where made); nobody writes while a `Block` lives.
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
