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
        Self::with_spare(payload, count, 0)
    }

    /// Makes a pool as [`new`](Self::new) does, with `spare` more slots. They are in use only while
    /// [`set_usable`](Self::set_usable) allows it, and are not part of the [`region`](Self::region).
    ///
    /// # Panics
    /// As [`new`](Self::new), with the spare slots counted.
    pub fn with_spare(payload: usize, count: usize, spare: usize) -> Self {
        Self::laid_out(payload.next_multiple_of(ALIGNMENT), HEADROOM, (count, spare))
    }

    /// Makes a pool of small slots, several of which share a page: with [`new`](Self::new), a slot
    /// takes a page at least. `payload` and `headroom` are rounded up to [`PACKED_ALIGNMENT`], which
    /// is the alignment of the payloads. Such a pool [returns](Self::give_back) no memory.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn packed(payload: usize, headroom: usize, count: usize) -> Self {
        let rounded = |bytes: usize| bytes.next_multiple_of(PACKED_ALIGNMENT);
        Self::laid_out(rounded(payload), rounded(headroom), (count, 0))
    }

    fn laid_out(payload: usize, headroom: usize, (base_slots, spare): (usize, usize)) -> Self {
        let count = base_slots.saturating_add(spare);
        assert!(
            payload > 0 && base_slots > 0,
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
            withheld: spare,
            waiters: VecDeque::new(),
            next_ticket: 0,
            is_resident: vec![false; count].into_boxed_slice(),
            resident: 0,
            is_pinned: false,
            // A page that holds parts of two slots cannot be returned for one of them.
            keeps_all: !stride.is_multiple_of(page_size::get()),
        };
        let references = (0..count).map(|_| AtomicU32::new(0)).collect();
        Self {
            inner: Arc::new(Inner {
                base,
                region,
                payload,
                headroom,
                base_slots,
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
            (free.available() > free.waiters.len()).then(|| free.pop())??
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

    /// Returns the number of slots, free or not, spare ones included.
    pub fn slots(&self) -> usize {
        self.inner.references.len()
    }

    /// Sets how many slots may be in use at a time: at least those that are not
    /// [spare](Self::with_spare), and at most all. If more are in use already, nobody gets one until fewer
    /// are.
    pub fn set_usable(&self, count: usize) {
        let usable = count.clamp(self.inner.base_slots, self.slots());
        let woken: Vec<Waker> = {
            let mut free = self.inner.lock();
            let before = free.available();
            free.withheld = self.slots() - usable;
            let served = free.available().saturating_sub(before);
            free.waiters
                .iter()
                .skip(before)
                .take(served)
                .map(|waiter| waiter.waker.clone())
                .collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Returns how many slots may be in use at a time.
    pub fn usable(&self) -> usize {
        self.slots() - self.inner.lock().withheld
    }

    /// Returns the number of slots that are in use.
    pub fn in_use(&self) -> usize {
        self.slots() - self.inner.lock().slots.len()
    }

    /// Returns the number of slots that can be taken at this moment.
    pub fn available(&self) -> usize {
        self.inner.lock().available()
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
    /// A [pinned](Self::pin) pool returns memory of [spare](Self::with_spare) slots only. A pool whose slots
    /// are not whole pages, which happens where pages are larger than [`ALIGNMENT`], returns nothing.
    pub fn give_back(&self, bytes: usize) -> usize {
        let mut given = 0;
        while given < bytes {
            // Lock anew for each slot: others may want one meanwhile.
            let mut free = self.inner.lock();
            if free.keeps_all {
                break;
            }
            let first = if free.is_pinned { self.inner.base_slots } else { 0 };
            let Some(slot) = free.pop_oldest_resident(first) else {
                break;
            };
            self.inner.discard(slot);
            free.slots.insert(0, slot);
            given += self.inner.stride();
        }
        given
    }

    /// Keeps the memory of all slots but spare ones in place from now on. Call this before registering the
    /// [`region`](Self::region) with the kernel, which would go on using pages that were returned.
    pub fn pin(&self) {
        self.inner.lock().is_pinned = true;
    }

    /// Returns address and length in bytes of the region, for registration with the kernel
    /// (io_uring fixed buffers). [`pin`](Self::pin) the pool first. Every payload of this pool lies
    /// inside, but for those of [spare](Self::with_spare) slots, which lie behind it. The address is valid
    /// while any handle on the pool lives.
    pub fn region(&self) -> (*const u8, usize) {
        let length = self.inner.base_slots * self.inner.stride();
        (self.inner.base.as_ptr(), length)
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
    /// Number of slots that may not be in use.
    withheld: usize,
    /// In order of arrival.
    waiters: VecDeque<Waiter>,
    next_ticket: u64,
    /// Marks the slots, free or not, that hold memory.
    is_resident: Box<[bool]>,
    resident: usize,
    /// Whether only memory of spare slots may be returned.
    is_pinned: bool,
    /// Whether no memory can be returned.
    keeps_all: bool,
}

/// A queued request for a slot.
struct Waiter {
    ticket: u64,
    waker: Waker,
}

impl Free {
    /// Returns the number of slots that can be taken.
    fn available(&self) -> usize {
        self.slots.len().saturating_sub(self.withheld)
    }

    /// Returns the waker of the last waiter that a free slot is promised to. The first n waiters
    /// are served when n slots are free.
    fn last_served(&self) -> Option<Waker> {
        let place = self.available().checked_sub(1)?;
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

    /// Takes the least recently used free slot from number `first` on that holds memory, and marks it as
    /// holding none.
    fn pop_oldest_resident(&mut self, first: usize) -> Option<u32> {
        let has_memory = |slot: &u32| *slot as usize >= first && self.is_resident[*slot as usize];
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
    /// Number of slots that are not spare.
    base_slots: usize,
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
            match slot as usize >= self.base_slots && free.withheld > 0 {
                // Rather the others are used.
                true => free.slots.insert(0, slot),
                false => free.slots.push(slot),
            }
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
        if place.unwrap_or(free.waiters.len()) < free.available() {
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
                let was_served = place < free.available();
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
#[path = "pool_tests.rs"]
mod tests;
