//! Tests of [`DurabilityTracker`].

use super::*;
use proptest::prelude::*;
use ropeway_vfs::Timestamp;

const VERSION: Version = Version {
    size: 0,
    modified: Timestamp(0),
    changed: None,
    index: None,
};

fn open(tracker: &mut DurabilityTracker<()>, token: u64, written: u64) -> FileTry {
    tracker.open(token, (), written, (VERSION, None)).0
}

#[test]
fn what_a_closed_file_left_dirty_stays_counted_until_a_flush() {
    let mut tracker = DurabilityTracker::new(Some(100), false);
    let file = open(&mut tracker, 1, 0);
    tracker.wrote(file, 90);
    assert_eq!(tracker.clean(file, 30), 30, "a window is on the device");
    assert_eq!(tracker.clean(file, 20), 0, "an older one adds nothing");
    assert!(!tracker.wrote_small(39));
    assert!(tracker.has_room());
    tracker.wrote(file, 1);
    assert!(!tracker.has_room(), "open and small files share the bound");
    // Another try of the same file, then its end.
    let again = open(&mut tracker, 1, 0);
    assert!(!tracker.has_room());
    tracker.wrote(again, 5);
    assert!(tracker.close(1), "more than half the bound");
    assert!(!tracker.close(1), "nothing was left");
    assert_eq!((tracker.dirty_open, tracker.dirty_closed), (0, 61 + 39 + 5));
    // A flush that began before the close ends after it.
    assert_eq!(tracker.clean(again, 5), 0);
    assert!(tracker.has_work());
    let flush = tracker.begin_flush();
    assert!(
        flush.whole_tree && !tracker.has_room(),
        "what is flushed is dirty"
    );
    tracker.end_flush(&flush, Duration::ZERO);
    assert!(tracker.has_room() && !tracker.has_work());
}

#[test]
fn after_a_failure_of_the_device_only_durable_bytes_count() {
    let mut tracker = DurabilityTracker::new(None, false);
    let file = open(&mut tracker, 1, 10);
    tracker.written(file, 90);
    assert_eq!(tracker.reached(1).unwrap().written, 90);
    tracker.fail(1);
    assert_eq!(tracker.reached(1).unwrap().written, 10);
    let other = open(&mut tracker, 2, 0);
    tracker.written(other, 50);
    let flush = tracker.begin_flush();
    tracker.written(other, 70);
    tracker.confirm(&flush);
    let reached = tracker.reached(2).unwrap();
    assert_eq!((reached.written, reached.durable), (70, 50));
    assert_eq!(tracker.reached(3), None);
}

#[test]
fn a_flush_confirms_only_the_try_that_it_saw() {
    let mut tracker = DurabilityTracker::new(None, false);
    let first = open(&mut tracker, 1, 0);
    tracker.written(first, 40);
    let flush = tracker.begin_flush();
    assert_eq!(tracker.durable_files(&flush), [(1, 40)]);
    let second = open(&mut tracker, 1, 0);
    assert_eq!(tracker.durable_files(&flush), [], "it is overwritten");
    tracker.confirm(&flush);
    tracker.doubt(first);
    tracker.written(first, 90);
    let reached = tracker.reached(1).unwrap();
    assert_eq!((reached.written, reached.durable), (0, 0));
    assert!(!tracker.is_in_doubt(first) && !tracker.is_in_doubt(second));
    tracker.doubt(second);
    assert!(tracker.is_in_doubt(second) && tracker.begin_flush().in_doubt);
}

#[test]
fn a_try_that_goes_on_where_a_flushed_one_ended_leaves_that_durable() {
    let mut tracker = DurabilityTracker::new(None, false);
    let first = open(&mut tracker, 1, 0);
    tracker.written(first, 40);
    let flush = tracker.begin_flush();
    open(&mut tracker, 1, 39);
    assert_eq!(tracker.durable_files(&flush), [], "a byte of it is written again");
    open(&mut tracker, 1, 40);
    assert_eq!(tracker.durable_files(&flush), [(1, 40)]);
    let other = Version { size: 9, ..VERSION };
    let _ = tracker.open(1, (), 40, (other, None));
    assert_eq!(tracker.durable_files(&flush), [], "it is another version");
}

#[test]
fn a_file_that_ends_between_the_mark_and_the_flush_is_durable_up_to_the_mark() {
    let mut tracker = DurabilityTracker::new(None, false);
    for token in 1..=5 {
        let file = open(&mut tracker, token, 0);
        tracker.written(file, 40);
    }
    tracker.mark();
    let late = open(&mut tracker, 6, 0);
    tracker.written(late, 7);
    tracker.fail(2);
    tracker.give_up(3);
    for token in [1, 2, 3, 4, 6] {
        let _ = tracker.close(token);
    }
    open(&mut tracker, 4, 0);
    let flush = tracker.begin_flush();
    assert!(flush.whole_tree);
    assert_eq!(flush.ended, [(1, 40)]);
    assert_eq!(tracker.durable_files(&flush), [(4, 0), (5, 40), (1, 40)]);
    open(&mut tracker, 1, 0);
    assert_eq!(tracker.durable_files(&flush), [(4, 0), (5, 40)], "it begins anew");
    assert!(tracker.begin_flush().ended.is_empty());
}

#[test]
fn a_file_that_was_given_up_is_not_flushed_and_stays_in_doubt() {
    let mut tracker = DurabilityTracker::new(None, false);
    let first = open(&mut tracker, 1, 0);
    tracker.wrote(first, 9);
    tracker.written(first, 9);
    tracker.doubt(first);
    assert_eq!(tracker.give_up(1), Some(()));
    assert_eq!(tracker.give_up(1), None);
    let flush = tracker.begin_flush();
    assert!(flush.files.is_empty() && flush.in_doubt);
    tracker.end_flush(&flush, Duration::ZERO);
    tracker.confirm(&flush);
    assert_eq!(tracker.reached(1).unwrap().durable, 0);
    assert_eq!(tracker.dirty_open, 9, "it counts until the next try");
    open(&mut tracker, 1, 0);
    let flush = tracker.begin_flush();
    assert!(flush.files.len() == 1 && !flush.in_doubt);
    assert_eq!((tracker.dirty_open, tracker.flushing), (0, 9));
}

#[test]
fn settled_bytes_are_ahead_until_they_are_durable() {
    let mut tracker = DurabilityTracker::new(None, false);
    let file = open(&mut tracker, 1, 10);
    tracker.settled(file, 60);
    tracker.settled(file, 30);
    assert_eq!(tracker.settled_ahead(), 50);
    tracker.written(file, 40);
    let flush = tracker.begin_flush();
    tracker.confirm(&flush);
    assert_eq!(tracker.settled_ahead(), 20);
}

#[test]
fn the_bound_follows_the_device_unless_it_is_fixed() {
    let mut fixed = DurabilityTracker::<()>::new(Some(7), false);
    fixed.observe(1 << 30, Duration::from_secs(1));
    assert_eq!(fixed.bound(), 7);
    let mut tracker = DurabilityTracker::<()>::new(None, false);
    tracker.observe(1 << 20, Duration::from_millis(1));
    assert_eq!(tracker.bound(), BOUND_FIRST, "too little to tell");
    tracker.observe(400 << 20, Duration::from_secs(1));
    assert!(tracker.bound() > BOUND_MIN && tracker.bound() < BOUND_MAX);
    tracker.observe(40 << 30, Duration::from_secs(1));
    assert_eq!(tracker.bound(), BOUND_MAX);
}

#[test]
fn waiting_names_are_bounded() {
    let mut tracker = DurabilityTracker::<()>::new(None, false);
    let early = (0..NAMES_MAX).filter(|_| tracker.name_waits()).count();
    assert_eq!(early, NAMES_MAX / 2 + 1);
    assert!(!tracker.has_room());
    let _ = tracker.begin_flush();
    assert!(tracker.has_room());
}

proptest! {
    /// Whatever happens in whatever order, the count of dirty bytes is the sum of what is dirty, and
    /// a flush with nothing written since leaves none.
    #[test]
    fn dirty_bytes_are_never_lost_or_counted_twice(
        steps in prop::collection::vec((0..6_u8, 0..3_u64, 0..50_u64), 0..60),
    ) {
        let mut tracker = DurabilityTracker::new(None, false);
        let (mut tries, mut flush) = (Vec::new(), None);
        for (step, token, number) in steps {
            let attempt = tries.get(number as usize % tries.len().max(1)).copied();
            match (step, attempt) {
                (0, _) => tries.push(open(&mut tracker, token, 0)),
                (1, Some(attempt)) => tracker.wrote(attempt, number),
                (2, Some(attempt)) => {
                    // The device cannot take more than was written.
                    let sent = tracker.file(attempt).map_or(0, |file| file.sent.min(number));
                    tracker.clean(attempt, sent);
                }
                (3, _) => drop(tracker.close(token)),
                (4, _) => flush = Some(tracker.begin_flush()),
                (5, _) => {
                    if let Some(flush) = flush.take() {
                        tracker.end_flush(&flush, Duration::ZERO);
                    }
                }
                _ => {}
            }
            let dirty: u64 = tracker.files.values().map(|file| file.sent - file.clean).sum();
            prop_assert_eq!(tracker.dirty_open, dirty);
        }
        if let Some(flush) = flush {
            tracker.end_flush(&flush, Duration::ZERO);
        }
        let last = tracker.begin_flush();
        tracker.end_flush(&last, Duration::ZERO);
        prop_assert_eq!((tracker.dirty_open, tracker.dirty_closed, tracker.flushing), (0, 0, 0));
    }
}
