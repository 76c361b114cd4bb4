//! Tests of the pool and its slots.

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

#[test]
fn spare_slots_are_in_use_only_while_allowed() {
    let pool = Pool::with_spare(4096, 2, 2);
    let (base, len) = pool.region();
    let inside = |block: &mut BlockMut| (block.as_mut_ptr() as usize) < base as usize + len;
    let mut held: Vec<_> = std::iter::from_fn(|| pool.try_get()).collect();
    assert_eq!((held.len(), pool.slots(), pool.usable()), (2, 4, 2));
    assert!(held.iter_mut().all(inside));
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(pool.get())).collect();
    for wait in &mut waits {
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
    pool.set_usable(9);
    assert_eq!(
        woken.0.load(Ordering::SeqCst),
        2,
        "two of three waiters are served"
    );
    for (index, wait) in waits.iter_mut().enumerate() {
        match wait.as_mut().poll(&mut context) {
            Poll::Ready(mut block) => {
                assert!(index < 2 && !inside(&mut block));
                held.push(block);
            }
            Poll::Pending => assert_eq!(index, 2),
        }
    }
    pool.set_usable(0);
    assert_eq!((pool.usable(), pool.available()), (2, 0));
    held.truncate(2);
    assert!(pool.try_get().is_none());
    drop(held);
    assert_eq!(woken.0.load(Ordering::SeqCst), 3);
}

#[test]
fn a_pinned_pool_returns_memory_of_spare_slots_and_prefers_the_others() {
    let pool = Pool::with_spare(4096, 2, 2);
    pool.pin();
    pool.set_usable(4);
    let held: Vec<_> = std::iter::from_fn(|| pool.try_get()).collect();
    assert_eq!((held.len(), pool.in_use()), (4, 4));
    pool.set_usable(2);
    drop(held);
    let whole = pool.resident();
    assert_eq!(pool.give_back(usize::MAX), whole / 2);
    let (base, len) = pool.region();
    let mut again: Vec<_> = std::iter::from_fn(|| pool.try_get()).collect();
    assert_eq!(again.len(), 2);
    for block in &mut again {
        assert!((block.as_mut_ptr() as usize) < base as usize + len);
    }
}
