//! The pool, its slots and the two handles on a slot.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use memmap2::MmapMut;

use crate::{ALIGNMENT, HEADROOM};

/// A bounded set of equal buffers in one contiguous region. Cheap to clone.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    /// A pool of `count` slots of `payload` bytes each; `payload` is rounded up to [`ALIGNMENT`].
    ///
    /// Memory is taken from the system lazily: a slot that was never used costs address space only.
    ///
    /// # Panics
    /// If `count` is 0 or above `u32::MAX`, if `payload` is 0, or if the region exceeds `isize::MAX`.
    pub fn new(payload: usize, count: usize) -> Self {
        assert!(
            payload > 0 && count > 0,
            "a pool has at least one slot of at least one byte"
        );
        let slots = u32::try_from(count).expect("at most u32::MAX slots");
        let payload = payload.next_multiple_of(ALIGNMENT);
        let stride = payload + HEADROOM;
        let bytes = stride.checked_mul(count).expect("region fits the address space");
        // A mapping of its own: an allocator may give memory that was used before, and writes every page to zero it.
        let mut region = match MmapMut::map_anon(bytes) {
            Ok(region) => region,
            Err(_) => handle_alloc_error(
                Layout::from_size_align(bytes, ALIGNMENT).expect("region fits the address space"),
            ),
        };
        let base = NonNull::from(&mut region[..]).cast::<u8>();
        let free = (0..slots).rev().collect();
        let references = (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            inner: Arc::new(Inner {
                base,
                _region: region,
                payload,
                references,
                free: Mutex::new(Free {
                    slots: free,
                    waiters: VecDeque::new(),
                }),
            }),
        }
    }

    /// A free slot, or `None` when all are in use.
    pub fn try_get(&self) -> Option<BlockMut> {
        let slot = self.inner.lock().slots.pop()?;
        Some(self.inner.take(slot))
    }

    /// Waits for a free slot. Waiters are served in turn; dropping the future gives up the place.
    pub fn get(&self) -> GetBlock<'_> {
        GetBlock { pool: self }
    }

    /// Payload bytes of one slot.
    pub fn block_size(&self) -> usize {
        self.inner.payload
    }

    /// Number of slots, free or not.
    pub fn slots(&self) -> usize {
        self.inner.references.len()
    }

    /// Slots free at this moment.
    pub fn available(&self) -> usize {
        self.inner.lock().slots.len()
    }

    /// The whole region as address and length in bytes, for registration with the kernel (io_uring fixed
    /// buffers). Every payload of this pool lies inside. Valid as long as a handle on the pool lives.
    pub fn region(&self) -> (*const u8, usize) {
        (
            self.inner.base.as_ptr(),
            self.slots() * (self.block_size() + HEADROOM),
        )
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pool({} of {} x {} free)",
            self.available(),
            self.slots(),
            self.block_size()
        )
    }
}

struct Free {
    slots: Vec<u32>,
    waiters: VecDeque<Waker>,
}

struct Inner {
    /// First slot.
    base: NonNull<u8>,
    /// What to give back.
    /// What `base` points to.
    _region: MmapMut,
    payload: usize,
    references: Box<[AtomicU32]>,
    free: Mutex<Free>,
}

// SAFETY: the region is plain memory; each slot is reached through exactly one `BlockMut` (unique) or
// through `Block`s that only read, as counted by `references`.
unsafe impl Send for Inner {}
// SAFETY: as above; shared state is behind the mutex or atomic.
unsafe impl Sync for Inner {}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, slot: u32) -> BlockMut {
        let before = self.references[slot as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free slot has no owner");
        BlockMut {
            pool: Arc::clone(self),
            slot,
            len: 0,
        }
    }

    fn payload_ptr(&self, slot: u32) -> *mut u8 {
        let offset = slot as usize * (self.payload + HEADROOM) + HEADROOM;
        // SAFETY: `slot` < slots, so the offset lies inside the region that `base` owns.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn retain(&self, slot: u32) {
        let before = self.references[slot as usize].fetch_add(1, Ordering::Relaxed);
        assert!(
            before > 0 && before < u32::MAX / 2,
            "only an owned block is cloned"
        );
    }

    fn release(&self, slot: u32) {
        if self.references[slot as usize].fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let waiter = {
            let mut free = self.lock();
            free.slots.push(slot);
            free.waiters.pop_front()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// Future of [`Pool::get`].
#[must_use = "futures do nothing unless awaited"]
pub struct GetBlock<'a> {
    pool: &'a Pool,
}

impl Future for GetBlock<'_> {
    type Output = BlockMut;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BlockMut> {
        let inner = &self.pool.inner;
        let mut free = inner.lock();
        match free.slots.pop() {
            Some(slot) => {
                // A wake-up may have gone to a future that was dropped since: pass on what is left.
                let next = if free.slots.is_empty() {
                    None
                } else {
                    free.waiters.pop_front()
                };
                drop(free);
                if let Some(next) = next {
                    next.wake();
                }
                Poll::Ready(inner.take(slot))
            }
            None => {
                if !free.waiters.iter().any(|waker| waker.will_wake(cx.waker())) {
                    free.waiters.push_back(cx.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

impl Drop for GetBlock<'_> {
    fn drop(&mut self) {
        // If this future swallowed a wake-up without taking a slot, hand it on.
        let waiter = {
            let mut free = self.pool.inner.lock();
            if free.slots.is_empty() {
                None
            } else {
                free.waiters.pop_front()
            }
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// A slot with one owner: fill it, then [`freeze`](Self::freeze) it.
pub struct BlockMut {
    pool: Arc<Inner>,
    slot: u32,
    len: usize,
}

impl BlockMut {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn payloads_are_aligned_apart_and_inside_the_region() {
        let pool = Pool::new(5000, 3);
        let (base, len) = pool.region();
        let mut blocks: Vec<_> = (0..3).map(|_| pool.try_get().unwrap()).collect();
        assert!(pool.try_get().is_none());
        for (i, block) in blocks.iter_mut().enumerate() {
            let address = block.as_mut_ptr() as usize;
            assert_eq!(address % ALIGNMENT, 0);
            assert!(address >= base as usize && address + block.capacity() <= base as usize + len);
            block.capacity_mut().fill(i as u8 + 1);
            block.headroom_mut().fill(0xff);
            block.set_len(8192);
        }
        for (i, block) in blocks.iter().enumerate() {
            assert!(block.iter().all(|byte| *byte == i as u8 + 1));
        }
    }

    #[test]
    fn a_slot_returns_when_its_last_view_goes() {
        let pool = Pool::new(10, 1);
        let mut block = pool.try_get().unwrap();
        block.set_len(10);
        let whole = block.freeze();
        let part = whole.slice(2..4);
        drop(whole);
        assert_eq!(pool.available(), 0);
        assert_eq!(part.len(), 2);
        drop(part);
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn head_and_payload_are_one_piece() {
        let pool = Pool::new(10, 2);
        let mut block = pool.try_get().unwrap();
        block.capacity_mut()[..3].copy_from_slice(b"abc");
        block.set_len(3);
        block.framed_mut(2).copy_from_slice(b"xyABC");
        assert_eq!(&block.headroom_mut()[HEADROOM - 2..], b"xy");
        assert_eq!(block.framed_mut(HEADROOM).len(), HEADROOM + 3);
        let block = block.freeze();
        assert_eq!(block.framed(2), b"xyABC");
        assert_eq!(block.slice(1..3).framed(0), b"BC");
        assert_eq!(block.slice(0..1).framed(1), b"yA");
    }

    #[test]
    #[should_panic(expected = "only a view from the start")]
    fn a_view_from_the_middle_has_no_head() {
        let pool = Pool::new(10, 1);
        let mut block = pool.try_get().unwrap();
        block.set_len(3);
        let _ = block.freeze().slice(1..2).framed(1);
    }

    #[test]
    fn only_the_last_handle_writes_again() {
        let pool = Pool::new(10, 1);
        let mut block = pool.try_get().unwrap();
        block.set_len(5);
        let block = block.freeze();
        let other = block.slice(1..3);
        let block = block.try_into_mut().unwrap_err();
        drop(block);
        let other = other.try_into_mut().unwrap_err();
        assert_eq!((other.len(), pool.available()), (2, 0));
        drop(other);
        let mut block = pool.try_get().unwrap();
        block.set_len(5);
        let part = {
            let whole = block.freeze();
            whole.slice(0..4)
        };
        let block = part.try_into_mut().unwrap();
        assert_eq!(block.len(), 4);
        drop(block);
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn a_dropped_waiter_passes_its_wake_up_on() {
        let pool = Pool::new(10, 1);
        let held = pool.try_get().unwrap();
        let (one, two) = (
            Arc::new(Count(AtomicUsize::new(0))),
            Arc::new(Count(AtomicUsize::new(0))),
        );
        let mut first = Box::pin(pool.get());
        let mut second = Box::pin(pool.get());
        let (waker_one, waker_two) = (Waker::from(one.clone()), Waker::from(two.clone()));
        assert!(
            first
                .as_mut()
                .poll(&mut Context::from_waker(&waker_one))
                .is_pending()
        );
        assert!(
            second
                .as_mut()
                .poll(&mut Context::from_waker(&waker_two))
                .is_pending()
        );
        drop(held);
        assert_eq!(one.0.load(Ordering::SeqCst), 1);
        drop(first);
        assert_eq!(two.0.load(Ordering::SeqCst), 1);
        assert!(
            second
                .as_mut()
                .poll(&mut Context::from_waker(&waker_two))
                .is_ready()
        );
    }
}
