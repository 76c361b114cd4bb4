use futures_util::future::join_all;
use ropeway_block::Pool;

use super::*;
use crate::clock::simulate;
use crate::decorate::test_kit::{clock, read, reader, source};

/// Returns the bytes that `workers` read in each of several windows, each worker reading blocks one
/// after the other.
fn windows(
    rate: impl Fn(Duration) -> Option<u64> + Send + Sync + 'static,
    workers: u64,
    block: usize,
    window: Duration,
    count: u64,
) -> Vec<u64> {
    let (clock, time) = clock();
    let pool = Pool::new(block, workers as usize);
    let own = clock.clone();
    let limit = Limit::new(source(1 << 40), RateLimit::new(move || rate(own.now()), time));
    let mut sums = vec![0; count as usize];
    let ends = window * count as u32;
    simulate(&clock, async {
        let file = reader(&*limit).await;
        let (file, pool, clock) = (&*file, &pool, &clock);
        let reads = join_all((0..workers).map(|worker| async move {
            let mut done = Vec::new();
            loop {
                read(file, pool, worker << 30, block).await.unwrap();
                let now = clock.now();
                if now >= ends {
                    return done;
                }
                done.push((now.as_nanos() / window.as_nanos()) as usize);
            }
        }));
        for at in reads.await.into_iter().flatten() {
            sums[at] += block as u64;
        }
    });
    sums
}

#[test]
fn the_rate_is_exact_over_five_seconds() {
    for (rate, workers, block) in [
        (1_000_000, 1, 4096),
        (10_000_000, 8, 65_536),
        (100_000_000, 16, 1 << 20),
    ] {
        let sums = windows(move |_| Some(rate), workers, block, Duration::from_secs(5), 4);
        for sum in sums {
            let share = sum as f64 / (rate * 5) as f64;
            assert!(
                (0.98..1.02).contains(&share),
                "{share} of {rate} B/s with {workers} workers"
            );
        }
    }
}

#[test]
fn a_timetable_takes_effect() {
    let second = Duration::from_secs(1);
    let table = |now: Duration| match now.as_secs() {
        0..10 => Some(1_000_000),
        10..20 => Some(0),
        _ => Some(4_000_000),
    };
    let sums = windows(table, 4, 16_384, second * 10, 3);
    assert!((9_800_000..10_300_000).contains(&sums[0]), "{sums:?}");
    // Bytes claimed before the rate dropped to 0 are paid for afterwards.
    assert!(sums[1] <= 4 * 16_384, "{sums:?}");
    assert!(
        (35_000_000..40_500_000).contains(&sums[2]),
        "a second may pass before the change: {sums:?}"
    );
}

#[test]
fn short_reads_are_refunded() {
    let (clock, time) = clock();
    let pool = Pool::new(1 << 20, 1);
    let limit = Limit::new(source(1000), RateLimit::new(|| Some(10_000), time));
    simulate(&clock, async {
        let file = reader(&*limit).await;
        for _ in 0..100 {
            assert_eq!(read(&*file, &pool, 0, 1 << 20).await.unwrap(), 1000);
        }
    });
    let seconds = clock.now().as_secs_f64();
    assert!(
        (9.8..10.2).contains(&seconds),
        "100 kB at 10 kB/s took {seconds} s"
    );
}

#[test]
fn a_dropped_read_passes_its_turn_on() {
    let (clock, time) = clock();
    let pool = Pool::new(4096, 3);
    let limit = Limit::new(source(1 << 20), RateLimit::new(|| Some(4096), time));
    simulate(&clock, async {
        let file = reader(&*limit).await;
        read(&*file, &pool, 0, 4096).await.unwrap();
        let mut first = Box::pin(read(&*file, &pool, 0, 4096));
        let mut second = Box::pin(read(&*file, &pool, 0, 4096));
        let mut third = Box::pin(read(&*file, &pool, 0, 4096));
        poll_fn(|cx| {
            for waiting in [&mut first, &mut second, &mut third] {
                assert!(waiting.as_mut().poll(cx).is_pending());
            }
            Poll::Ready(())
        })
        .await;
        drop(second);
        first.await.unwrap();
        third.await.unwrap();
    });
    let seconds = clock.now().as_secs_f64();
    assert!((2.9..=3.1).contains(&seconds), "{seconds}");
}

#[test]
fn trees_share_a_limit_that_knows_how_long_it_held_them_back() {
    let (clock, time) = clock();
    let pool = Pool::new(1000, 2);
    let limit = RateLimit::new(|| Some(1000), time);
    let trees = [(), ()].map(|()| Limit::new(source(1 << 20), Arc::clone(&limit)));
    let found = Some(event::Limit::Source);
    simulate(&clock, async {
        let both = trees.iter().map(|tree| async {
            let file = reader(&**tree).await;
            for _ in 0..5 {
                read(&*file, &pool, 0, 1000).await.unwrap();
            }
        });
        join_all(both).await;
    });
    let elapsed = clock.now();
    assert!(
        (9.8..10.2).contains(&elapsed.as_secs_f64()),
        "10 kB took {elapsed:?}"
    );
    assert!(
        limit.held_back() >= elapsed.mul_f64(0.95),
        "{:?}",
        limit.held_back()
    );
    assert_eq!(limit.bottleneck(found, elapsed), Some(event::Limit::Bandwidth));
    assert_eq!(
        limit.bottleneck(found, elapsed * 3),
        found,
        "it waited for something else"
    );
    let target = Some(event::Limit::Destination);
    assert_eq!(limit.bottleneck(target, elapsed), target);
    assert_eq!(limit.bottleneck(None, elapsed), None);
}

#[test]
fn a_source_below_its_limit_is_not_held_back() {
    let (clock, time) = clock();
    let pool = Pool::new(1000, 1);
    let limit = RateLimit::new(|| Some(1_000_000), Arc::clone(&time));
    let tree = Limit::new(source(1 << 20), Arc::clone(&limit));
    simulate(&clock, async {
        let file = reader(&*tree).await;
        for _ in 0..10 {
            time.sleep_until(time.now() + Duration::from_secs(1)).await;
            read(&*file, &pool, 0, 1000).await.unwrap();
        }
    });
    assert!(
        limit.held_back() < Duration::from_millis(200),
        "{:?}",
        limit.held_back()
    );
}

#[test]
fn a_pause_holds_new_reads_and_costs_no_bytes() {
    let (clock, time) = clock();
    let pool = Pool::new(1000, 1);
    let limit = RateLimit::new(|| Some(1000), Arc::clone(&time));
    let tree = Limit::new(source(1 << 20), Arc::clone(&limit));
    simulate(&clock, async {
        let file = reader(&*tree).await;
        let reads = async {
            for _ in 0..10 {
                read(&*file, &pool, 0, 1000).await.unwrap();
            }
        };
        let pauses = async {
            time.sleep_until(Duration::from_millis(3_500)).await;
            assert!(limit.pause());
            assert!(limit.is_closed() && limit.free_for().is_none());
            time.sleep_until(Duration::from_millis(103_500)).await;
            assert!(limit.resume());
        };
        futures_util::future::join(reads, pauses).await;
    });
    let seconds = clock.now().as_secs_f64();
    assert!((109.0..111.0).contains(&seconds), "{seconds}");
    assert_eq!(limit.paused_for(), Duration::from_secs(100));
    let held = limit.held_back().as_secs_f64();
    assert!((8.9..11.1).contains(&held), "a pause is not held back: {held}");
    let found = Some(event::Limit::Source);
    assert_eq!(
        limit.bottleneck(found, clock.now()),
        Some(event::Limit::Bandwidth)
    );
}

#[test]
fn a_new_rate_takes_effect_for_reads_that_wait() {
    let (clock, time) = clock();
    let pool = Pool::new(1000, 1);
    let limit = RateLimit::new(|| Some(10), Arc::clone(&time));
    let tree = Limit::new(source(1 << 20), Arc::clone(&limit));
    simulate(&clock, async {
        let file = reader(&*tree).await;
        let reads = async {
            for _ in 0..100 {
                read(&*file, &pool, 0, 1000).await.unwrap();
            }
        };
        let change = async {
            time.sleep_until(Duration::from_secs(5)).await;
            limit.set_rate(Some(Box::new(|| Some(10_000))));
            time.sleep_until(Duration::from_secs(8)).await;
            limit.set_rate(None);
            assert_eq!(limit.rate(), None);
        };
        futures_util::future::join(reads, change).await;
    });
    let seconds = clock.now().as_secs_f64();
    assert!((7.9..9.5).contains(&seconds), "{seconds}");
}

#[test]
fn work_without_a_tree_is_admitted_at_the_rate_that_is_set() {
    let (clock, time) = clock();
    let limit = RateLimit::unlimited(Arc::clone(&time));
    assert_eq!(limit.piece_max(), u64::MAX);
    simulate(&clock, async {
        for _ in 0..1000 {
            limit.admit(1 << 20).await.pay(1 << 20).await;
        }
        assert_eq!(time.now(), Duration::ZERO, "nothing limits");
        limit.set_rate(Some(Box::new(|| Some(1_000_000))));
        assert_eq!(limit.piece_max(), 100_000);
        let begin = time.now();
        for _ in 0..50 {
            limit.admit(100_000).await.pay(100_000).await;
        }
        let seconds = (time.now() - begin).as_secs_f64();
        assert!((4.9..5.1).contains(&seconds), "{seconds}");
    });
    let tree = Limit::new(source(1), Arc::clone(&limit));
    assert_eq!(limit.piece_max(), u64::MAX, "the tree counts");
    drop(tree);
}
