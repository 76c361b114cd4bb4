//! Implements the pool and its slots.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::task::{Context, Poll, Waker};

use memmap2::{MmapMut, UncheckedAdvice};
use parking_lot::{Mutex, MutexGuard};

use crate::handles::BlockMut;
use crate::{ALIGNMENT, HEADROOM, PACKED_ALIGNMENT};

/// A bounded set of equal buffers in one contiguous region. Clones share the pool.
#[derive(Clone)]
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
}

impl Pool {
    /// Makes a pool of `count` slots of `payload` bytes each. `payload` is rounded up to
    /// [`ALIGNMENT`].
    ///
    /// The system allocates memory lazily: a slot that was never used costs address space only.
    ///
    /// # Panics
    /// If `count` is 0 or above `u32::MAX`, if `payload` is 0, or if the region exceeds
    /// `isize::MAX`.
    pub fn new(payload: usize, count: usize) -> Self {
        Self::laid_out(payload.next_multiple_of(ALIGNMENT), HEADROOM, count)
    }

    /// Makes a pool of small slots, several of which share a page: with [`new`](Self::new), a slot
    /// takes a page at least. `payload` and `headroom` are rounded up to [`PACKED_ALIGNMENT`], which
    /// is the alignment of the payloads. Such a pool [returns](Self::give_back) no memory.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn packed(payload: usize, headroom: usize, count: usize) -> Self {
        let rounded = |bytes: usize| bytes.next_multiple_of(PACKED_ALIGNMENT);
        Self::laid_out(rounded(payload), rounded(headroom), count)
    }

    fn laid_out(payload: usize, headroom: usize, count: usize) -> Self {
        assert!(
            payload > 0 && count > 0,
            "a pool has at least one slot of at least one byte"
        );
        let slots = u32::try_from(count).expect("at most u32::MAX slots");
        let stride = payload + headroom;
        let bytes = stride.checked_mul(count).expect("region fits the address space");
        // A fresh mapping is zero already. An allocator may reuse memory, and would write every
        // page to clear it.
        let mut region = match MmapMut::map_anon(bytes) {
            Ok(region) => region,
            Err(_) => handle_alloc_error(
                Layout::from_size_align(bytes, ALIGNMENT).expect("region fits the address space"),
            ),
        };
        let base = NonNull::from(&mut region[..]).cast::<u8>();
        let free = Free {
            slots: (0..slots).rev().collect(),
            waiters: VecDeque::new(),
            next_ticket: 0,
            is_resident: vec![false; count].into_boxed_slice(),
            resident: 0,
            // A page that holds parts of two slots cannot be returned for one of them.
            is_pinned: !stride.is_multiple_of(page_size::get()),
        };
        let references = (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            inner: Arc::new(Inner {
                base,
                region,
                payload,
                headroom,
                references,
                free: Mutex::new(free),
            }),
        }
    }

    /// Takes a free slot; `None` when every slot is in use or promised to a waiter.
    pub fn try_get(&self) -> Option<BlockMut> {
        let slot = {
            let mut free = self.inner.lock();
            // As many free slots as there are waiters are promised to them.
            (free.slots.len() > free.waiters.len()).then(|| free.pop())??
        };
        Some(self.inner.take(slot))
    }

    /// Waits for a free slot. Waiters are served first come, first served. Dropping the future
    /// leaves the queue.
    pub fn get(&self) -> GetBlock<'_> {
        GetBlock {
            pool: self,
            ticket: None,
        }
    }

    /// Returns the payload bytes of one slot.
    pub fn block_size(&self) -> usize {
        self.inner.payload
    }

    /// Returns the number of slots, free or not.
    pub fn slots(&self) -> usize {
        self.inner.references.len()
    }

    /// Returns the number of slots free at this moment.
    pub fn available(&self) -> usize {
        self.inner.lock().slots.len()
    }

    /// Returns the bytes of memory that slots have taken from the system and not
    /// [returned](Self::give_back). A slot that was used once counts whole, free or not.
    pub fn resident(&self) -> usize {
        self.inner.lock().resident * self.inner.stride()
    }

    /// Returns memory of free slots to the system, least recently used first, until at least
    /// `bytes` are returned or no free slot holds memory. Reports the number of bytes returned. The
    /// slots stay in the pool and take memory again when they are used.
    ///
    /// A [pinned](Self::pin) pool returns nothing. Neither does a pool whose slots are not whole
    /// pages, which happens where pages are larger than [`ALIGNMENT`].
    pub fn give_back(&self, bytes: usize) -> usize {
        let mut given = 0;
        while given < bytes {
            // Lock anew for each slot: others may want one meanwhile.
            let mut free = self.inner.lock();
            if free.is_pinned {
                break;
            }
            let Some(slot) = free.pop_oldest_resident() else {
                break;
            };
            self.inner.discard(slot);
            free.slots.insert(0, slot);
            given += self.inner.stride();
        }
        given
    }

    /// Keeps all memory in place from now on. Call this before registering the
    /// [`region`](Self::region) with the kernel, which would go on using pages that were returned.
    pub fn pin(&self) {
        self.inner.lock().is_pinned = true;
    }

    /// Returns address and length in bytes of the whole region, for registration with the kernel
    /// (io_uring fixed buffers). [`pin`](Self::pin) the pool first. Every payload of this pool lies
    /// inside. The address is valid while any handle on the pool lives.
    pub fn region(&self) -> (*const u8, usize) {
        (self.inner.base.as_ptr(), self.slots() * self.inner.stride())
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
    /// A stack: the most recently used slot is taken first, since it has memory and may be in the
    /// processor's cache.
    slots: Vec<u32>,
    /// In order of arrival.
    waiters: VecDeque<Waiter>,
    next_ticket: u64,
    /// Marks the slots, free or not, that hold memory.
    is_resident: Box<[bool]>,
    resident: usize,
    /// Set where no memory may be returned.
    is_pinned: bool,
}

/// A queued request for a slot.
struct Waiter {
    ticket: u64,
    waker: Waker,
}

impl Free {
    /// Returns the waker of the last waiter that a free slot is promised to. The first n waiters
    /// are served when n slots are free.
    fn last_served(&self) -> Option<Waker> {
        let place = self.slots.len().checked_sub(1)?;
        self.waiters.get(place).map(|waiter| waiter.waker.clone())
    }

    /// Takes the most recently used slot.
    fn pop(&mut self) -> Option<u32> {
        let slot = self.slots.pop()?;
        if !std::mem::replace(&mut self.is_resident[slot as usize], true) {
            self.resident += 1;
        }
        Some(slot)
    }

    /// Takes the least recently used free slot that holds memory, and marks it as holding none.
    fn pop_oldest_resident(&mut self) -> Option<u32> {
        let has_memory = |slot: &u32| self.is_resident[*slot as usize];
        let at = self.slots.iter().position(has_memory)?;
        let slot = self.slots.remove(at);
        self.is_resident[slot as usize] = false;
        self.resident -= 1;
        Some(slot)
    }
}

pub(crate) struct Inner {
    /// Address of the first slot.
    base: NonNull<u8>,
    /// The mapping that `base` points to.
    region: MmapMut,
    pub(crate) payload: usize,
    pub(crate) headroom: usize,
    pub(crate) references: Box<[AtomicU32]>,
    free: Mutex<Free>,
}

// SAFETY: the region is plain memory. Each slot is reached through exactly one `BlockMut` (unique),
// or through `Block`s that only read, as counted by `references`.
unsafe impl Send for Inner {}
// SAFETY: as above. Shared state is behind the mutex or atomic.
unsafe impl Sync for Inner {}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock()
    }

    fn take(self: &Arc<Self>, slot: u32) -> BlockMut {
        let before = self.references[slot as usize].swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free slot has no owner");
        BlockMut::new(Arc::clone(self), slot)
    }

    /// Returns the distance in bytes from one slot to the next.
    fn stride(&self) -> usize {
        self.payload + self.headroom
    }

    /// Returns the memory of a slot that was taken off the free list.
    fn discard(&self, slot: u32) {
        let references = self.references[slot as usize].load(Ordering::Acquire);
        assert_eq!(references, 0, "a slot that somebody owns keeps its memory");
        let (advice, offset) = (UncheckedAdvice::DontNeed, slot as usize * self.stride());
        // SAFETY: the range belongs to this slot alone and is whole pages: the region begins with a
        // page, and a pool whose slots are not whole pages is pinned. The slot is neither free nor
        // owned, so nothing reads it. An anonymous mapping reads as zeroes afterwards, so the slot
        // stays initialised.
        let advised = unsafe { self.region.unchecked_advise_range(advice, offset, self.stride()) };
        // On failure (locked memory) the slot keeps its memory.
        let _ = advised;
    }

    /// Returns the address of a slot's payload.
    pub(crate) fn payload_ptr(&self, slot: u32) -> *mut u8 {
        let offset = slot as usize * self.stride() + self.headroom;
        // SAFETY: `slot` < slots, so the offset lies inside the region that `base` owns.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// Counts one more handle.
    pub(crate) fn retain(&self, slot: u32) {
        let before = self.references[slot as usize].fetch_add(1, Ordering::Relaxed);
        assert!(
            before > 0 && before < u32::MAX / 2,
            "only an owned block is cloned"
        );
    }

    /// Counts one handle less; the last one frees the slot and wakes the next waiter.
    pub(crate) fn release(&self, slot: u32) {
        if self.references[slot as usize].fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let waiter = {
            let mut free = self.lock();
            free.slots.push(slot);
            free.last_served()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// The future returned by [`Pool::get`].
#[must_use = "futures do nothing unless awaited"]
pub struct GetBlock<'a> {
    pool: &'a Pool,
    /// Its place in the queue, once it waits.
    ticket: Option<u64>,
}

impl Future for GetBlock<'_> {
    type Output = BlockMut;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BlockMut> {
        let inner = &self.pool.inner;
        let mut free = inner.lock();
        let ticket = self.ticket;
        let place = ticket.and_then(|ticket| free.waiters.iter().position(|waiter| waiter.ticket == ticket));
        // With n free slots the first n waiters are served. A newcomer comes after all of them.
        if place.unwrap_or(free.waiters.len()) < free.slots.len() {
            if let Some(place) = place {
                free.waiters.remove(place);
            }
            let slot = free.pop().expect("a slot is free");
            drop(free);
            let block = inner.take(slot);
            self.ticket = None;
            return Poll::Ready(block);
        }
        match place {
            Some(place) => free.waiters[place].waker.clone_from(cx.waker()),
            None => {
                let ticket = free.next_ticket;
                free.next_ticket += 1;
                let waker = cx.waker().clone();
                free.waiters.push_back(Waiter { ticket, waker });
                drop(free);
                self.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }
}

impl Drop for GetBlock<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let next = {
            let mut free = self.pool.inner.lock();
            let place = free.waiters.iter().position(|waiter| waiter.ticket == ticket);
            // The promised slot goes to the next waiter.
            place.and_then(|place| {
                let was_served = place < free.slots.len();
                free.waiters.remove(place);
                free.last_served().filter(|_| was_served)
            })
        };
        if let Some(next) = next {
            next.wake();
        }
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
    fn packed_slots_share_pages_and_are_apart() {
        let pool = Pool::packed(500, 300, 9);
        let (base, len) = pool.region();
        assert_eq!((pool.block_size(), len), (512, 9 * 1024));
        let mut blocks: Vec<_> = (0..9).map(|_| pool.try_get().unwrap()).collect();
        for (i, block) in blocks.iter_mut().enumerate() {
            let address = block.as_mut_ptr() as usize;
            assert_eq!((address % PACKED_ALIGNMENT, block.headroom()), (0, 512));
            assert!(address >= base as usize + 512 && address + 512 <= base as usize + len);
            block.capacity_mut().fill(i as u8 + 1);
            block.headroom_mut().fill(0xff - i as u8);
            block.set_len(512);
        }
        for (i, block) in blocks.into_iter().enumerate() {
            let block = block.freeze();
            assert!(block.iter().all(|byte| *byte == i as u8 + 1));
            let (head, payload) = block.framed(512).split_at(512);
            assert!(head.iter().all(|byte| *byte == 0xff - i as u8));
            assert_eq!(payload, &block[..]);
        }
        // A page holds parts of several.
        assert_eq!(pool.give_back(usize::MAX), 0);
    }

    #[test]
    #[should_panic(expected = "exceeds the headroom")]
    fn a_packed_slot_has_less_headroom() {
        let pool = Pool::packed(500, 300, 1);
        let _ = pool.try_get().unwrap().framed_mut(513);
    }

    #[test]
    fn a_slot_is_freed_when_its_last_view_is_dropped() {
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
    fn header_and_payload_are_contiguous() {
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
    fn a_view_from_the_middle_cannot_be_framed() {
        let pool = Pool::new(10, 1);
        let mut block = pool.try_get().unwrap();
        block.set_len(3);
        let _ = block.freeze().slice(1..2).framed(1);
    }

    #[test]
    fn only_the_last_handle_becomes_writable_again() {
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
    fn memory_of_free_slots_is_returned_and_taken_again() {
        if page_size::get() != ALIGNMENT {
            return;
        }
        let pool = Pool::new(10, 4);
        let slot = ALIGNMENT + HEADROOM;
        assert_eq!((pool.resident(), pool.give_back(usize::MAX)), (0, 0));
        let mut blocks: Vec<_> = (0..3).map(|_| pool.try_get().unwrap()).collect();
        for block in &mut blocks {
            block.capacity_mut().fill(7);
        }
        let kept = blocks.remove(0);
        drop(blocks);
        assert_eq!(pool.resident(), 3 * slot);
        // Whole slots are returned, and only those without an owner.
        assert_eq!((pool.give_back(1), pool.resident()), (slot, 2 * slot));
        assert_eq!((pool.give_back(usize::MAX), pool.resident()), (slot, slot));
        assert_eq!(pool.available(), 3);
        let mut blocks: Vec<_> = (0..3).map(|_| pool.try_get().unwrap()).collect();
        assert_eq!(pool.resident(), 4 * slot);
        for block in &mut blocks {
            assert!(block.capacity_mut().iter().all(|byte| *byte == 0));
        }
        let mut kept = kept;
        assert!(kept.capacity_mut().iter().all(|byte| *byte == 7));
        drop(blocks);
        pool.pin();
        assert_eq!((pool.give_back(usize::MAX), pool.resident()), (0, 4 * slot));
    }

    #[test]
    fn the_most_recently_used_slots_keep_their_memory() {
        if page_size::get() != ALIGNMENT {
            return;
        }
        let pool = Pool::new(10, 2);
        let (one, two) = (pool.try_get().unwrap(), pool.try_get().unwrap());
        let mut two = two;
        let address = two.as_mut_ptr();
        drop(one);
        drop(two);
        pool.give_back(1);
        let resident = pool.resident();
        let mut next = pool.try_get().unwrap();
        assert_eq!((next.as_mut_ptr(), pool.resident()), (address, resident));
    }

    /// First come, first served, in whatever order the futures are polled. Otherwise streams in
    /// lock step, each keeping blocks until an earlier one arrives, would wait for ever.
    #[test]
    fn a_newcomer_queues_behind_earlier_waiters() {
        let pool = Pool::new(10, 2);
        let mut context = Context::from_waker(Waker::noop());
        let held = [pool.try_get().unwrap(), pool.try_get().unwrap()];
        let mut waiters: Vec<_> = (0..3).map(|_| Box::pin(pool.get())).collect();
        for waiter in &mut waiters {
            assert!(waiter.as_mut().poll(&mut context).is_pending());
        }
        let [one, other] = held;
        drop(one);
        assert!(pool.try_get().is_none(), "it is the first waiter's");
        let mut newcomer = Box::pin(pool.get());
        assert!(newcomer.as_mut().poll(&mut context).is_pending());
        for late in [2, 1] {
            assert!(waiters[late].as_mut().poll(&mut context).is_pending());
        }
        let mut blocks = Vec::new();
        let mut served = |waiter: &mut Pin<Box<GetBlock<'_>>>| match waiter.as_mut().poll(&mut context) {
            Poll::Ready(block) => {
                blocks.push(block);
                true
            }
            Poll::Pending => false,
        };
        assert!(served(&mut waiters[0]));
        // Two waiters may be served, in any order. One that leaves the queue makes room for the
        // next.
        drop(other);
        drop(waiters.remove(1));
        assert!(!served(&mut newcomer));
        assert!(served(&mut waiters[1]));
        blocks.pop();
        let mut context = Context::from_waker(Waker::noop());
        assert!(newcomer.as_mut().poll(&mut context).is_ready());
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn a_dropped_waiter_passes_its_wake_up_to_the_next() {
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
