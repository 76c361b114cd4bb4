//! The line by seed, without a device.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

fn config() -> LineConfig {
    LineConfig {
        rate_bits: Some(155_000_000),
        delay: Duration::from_millis(16),
        jitter: Duration::ZERO,
        loss: 0.0,
        queue_bytes: 1 << 20,
        seed: 7,
    }
}

/// Takes out everything up to a time: (when, what).
fn drain<T>(line: &mut Line<T>, until: u64) -> Vec<(u64, T)> {
    let mut out = Vec::new();
    while let Some(due) = line.next_due().filter(|due| *due <= until) {
        out.push((due, line.pop(due).unwrap()));
    }
    out
}

#[test]
fn the_rate_is_exact_over_a_long_time() {
    let mut line = Line::new(config());
    let (mut now, mut last, mut sent) = (0, 0, 0_u64);
    for index in 0..100_000_u64 {
        line.offer(now, Load::one(1538), |run| run.due);
        sent += 1538;
        while line.backlog_bytes(now) > 500_000 {
            now += MS;
        }
        for (due, _) in drain(&mut line, now) {
            last = due;
        }
        assert_eq!(line.counters().dropped, 0, "{index}");
    }
    last = drain(&mut line, u64::MAX).last().map_or(last, |(due, _)| *due);
    let expected = sent as f64 * 8.0 / 155e6 + 0.016;
    let error = (last as f64 / 1e9 - expected) / expected;
    assert!(error.abs() < 1e-7, "{error}");
}

#[test]
fn a_big_packet_costs_what_its_segments_cost() {
    let due = |loads: &[Load]| {
        let mut line = Line::new(config());
        for load in loads {
            line.offer(0, *load, |run| run.due);
        }
        drain(&mut line, u64::MAX).last().unwrap().0
    };
    let big = Load {
        segments: 45,
        full: 1538,
        last: 300,
    };
    let mut small = vec![Load::one(1538); 44];
    small.push(Load::one(300));
    assert!(due(&[big]).abs_diff(due(&small)) <= 1);
}

#[test]
fn the_tail_is_dropped_by_segments() {
    let mut line = Line::new(LineConfig {
        queue_bytes: 10 * 1538 + 5,
        ..config()
    });
    let load = Load {
        segments: 8,
        full: 1538,
        last: 1538,
    };
    let mut kept = Vec::new();
    for _ in 0..3 {
        line.offer(0, load, |run| kept.push(run.segments.clone()));
    }
    assert_eq!(kept, [0..8, 0..2]);
    let counters = line.counters();
    assert_eq!((counters.dropped, counters.queue_max_bytes), (14, 10 * 1538));
    // When the line has moved on, there is room again.
    line.offer(MS, Load::one(1538), |_| ());
    assert_eq!(line.counters().dropped, 14);
}

#[test]
fn losses_follow_the_seed_and_split_packets() {
    let lost = |seed| {
        let mut line = Line::new(LineConfig {
            loss: 0.02,
            rate_bits: None,
            queue_bytes: 1 << 40,
            seed,
            ..config()
        });
        let load = Load {
            segments: 40,
            full: 1538,
            last: 77,
        };
        let mut runs = Vec::new();
        for now in 0..1000 {
            line.offer(now, load, |run| runs.push(run.clone()));
        }
        let kept: u64 = runs
            .iter()
            .map(|run| u64::from(run.segments.end - run.segments.start))
            .sum();
        assert_eq!(kept + line.counters().lost, 40_000);
        assert!(runs.len() > 1000);
        (line.counters().lost, runs)
    };
    let (number, runs) = lost(1);
    assert_eq!(lost(1), (number, runs));
    assert_ne!(lost(2).1, lost(1).1);
    // 800 expected, standard deviation 28.
    assert!((690..910).contains(&number), "{number}");
}

#[test]
fn lost_segments_have_used_the_line() {
    let mut line = Line::new(LineConfig {
        loss: 0.5,
        queue_bytes: 1 << 30,
        ..config()
    });
    for _ in 0..1000 {
        line.offer(0, Load::one(1538), |_| ());
    }
    assert_eq!(line.backlog_bytes(0) / 1538, 1000);
}

#[test]
fn jitter_spreads_evenly_and_keeps_the_order() {
    let mut line = Line::new(LineConfig {
        jitter: Duration::from_millis(4),
        ..config()
    });
    for now in (0..1000).map(|n| n * 20 * MS) {
        line.offer(now, Load::one(100), |_| now);
    }
    let delays: Vec<f64> = drain(&mut line, u64::MAX)
        .into_iter()
        .map(|(due, sent)| (due - sent) as f64 / 1e6)
        .collect();
    let mean = delays.iter().sum::<f64>() / 1000.0;
    let least = delays.iter().copied().fold(f64::MAX, f64::min);
    let most = delays.iter().copied().fold(0.0, f64::max);
    assert!(
        (mean - 16.0).abs() < 0.3 && least < 12.1 && most > 19.9 && most < 20.1,
        "{mean} {least} {most}"
    );
}

#[test]
fn a_cut_takes_what_is_on_the_way() {
    let mut line = Line::new(config());
    line.offer(0, Load::one(1538), |_| 1);
    let mut gone = Vec::new();
    line.set_cut(true, |item| gone.push(item));
    line.offer(MS, Load::one(1538), |_| 2);
    assert_eq!((gone, line.next_due(), line.counters().cut), (vec![1], None, 2));
    line.set_cut(false, |_| ());
    line.offer(2 * MS, Load::one(1538), |_| 3);
    assert_eq!(drain(&mut line, u64::MAX)[0].1, 3);
}

proptest! {
    #[test]
    fn nothing_appears_vanishes_or_overtakes(
        seed: u64,
        rate in prop::option::of(100_000_u64..2_000_000_000),
        jitter_us in 0_u64..16_000,
        loss in 0.0..0.5_f64,
        queue in 1538_u64..300_000,
        steps in prop::collection::vec((0_u64..3 * MS, 1_u32..46, 60_u32..1538, 0_u8..40), 1..200),
    ) {
        let mut line = Line::new(LineConfig {
            rate_bits: rate,
            delay: Duration::from_millis(16),
            jitter: Duration::from_micros(jitter_us),
            loss,
            queue_bytes: queue,
            seed,
        });
        let (mut now, mut kept, mut out, mut bytes) = (0, 0_u64, Vec::new(), 0_u64);
        for (index, (step, segments, last, action)) in steps.iter().enumerate() {
            now += step;
            if *action == 0 {
                let cut = !line.is_cut();
                let mut gone = 0;
                line.set_cut(cut, |(_, range): (usize, Range<u32>)| gone += u64::from(range.end - range.start));
                kept -= gone;
            }
            let load = Load { segments: *segments, full: 1538, last: *last };
            let earliest = now + 16 * MS - jitter_us * 1000;
            line.offer(now, load, |run| {
                assert!(run.due >= earliest);
                kept += u64::from(run.segments.end - run.segments.start);
                (index, run.segments.clone())
            });
            prop_assert!(line.backlog_bytes(now) <= queue);
            while let Some(item) = line.pop(now) {
                out.push(item);
            }
        }
        if let Some(rate) = rate {
            // What passed the line in this time is no more than its rate allows, plus what still waits.
            let passed = line.counters().wire_bytes;
            prop_assert!(passed as f64 * 8.0 <= now as f64 / 1e9 * rate as f64 + 16.0);
        }
        while let Some(due) = line.next_due() {
            out.push(line.pop(due).unwrap());
        }
        bytes += line.counters().wire_bytes;
        let counters = line.counters();
        prop_assert_eq!(counters.delivered, kept);
        prop_assert_eq!(counters.segments, counters.delivered + counters.dropped + counters.lost + counters.cut);
        prop_assert!(bytes <= counters.delivered * 1538);
        for pair in out.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            prop_assert!(a.0 < b.0 || (a.0 == b.0 && a.1.end <= b.1.start));
        }
    }
}
