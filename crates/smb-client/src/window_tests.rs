//! Tests of the window governor with simulated lines and servers.

use super::*;

/// Simulates a line that carries `rate` bytes a second with a round trip of `delay`, and a
/// sender that always has more to send.
fn run(governor: &mut WindowGovernor, rate: f64, delay: Duration, block: u64, seconds: u64) -> Duration {
    let (mut now, mut free_at) = (Duration::ZERO, Duration::ZERO);
    let mut under_way: VecDeque<(Duration, Stamp)> = VecDeque::new();
    let mut longest = Duration::ZERO;
    while now < Duration::from_secs(seconds) {
        while governor.in_flight + block <= governor.window().max(block) {
            let stamp = governor.sent(now, block);
            free_at = free_at.max(now) + Duration::from_secs_f64(block as f64 / rate);
            under_way.push_back((free_at + delay, stamp));
        }
        let (at, stamp) = under_way.pop_front().unwrap();
        now = at;
        longest = longest.max(now - stamp.sent_at);
        governor.delivered(now, stamp, block);
    }
    longest
}

#[test]
fn a_long_line_is_filled() {
    for (rate, delay_ms) in [(77.75e6, 75), (19.4e6, 32), (125e6, 200), (1e9, 1)] {
        let mut governor = WindowGovernor::new(64 << 20, true);
        governor.answered(Duration::from_millis(delay_ms));
        run(&mut governor, rate, Duration::from_millis(delay_ms), 1 << 20, 20);
        let product = rate * delay_ms as f64 / 1000.0;
        assert!(governor.is_steady());
        assert!(
            governor.rate() as f64 > 0.95 * rate,
            "{} of {rate}",
            governor.rate()
        );
        assert!(
            governor.window() as f64 >= 1.5 * product,
            "{} for {product}",
            governor.window()
        );
        assert!(
            governor.window() as f64 <= 2.5 * product + 5e6,
            "{} for {product}",
            governor.window()
        );
    }
}

/// Each request carries a whole file.
#[test]
fn a_long_line_is_filled_with_large_requests() {
    let (rate, delay) = (19.4e6, Duration::from_millis(32));
    let mut governor = WindowGovernor::new(64 << 20, true);
    governor.answered(delay);
    run(&mut governor, rate, delay, 4 << 20, 60);
    assert!(governor.is_steady());
    let carried = governor.delivered as f64 / 60.0;
    assert!(carried > 0.97 * rate, "{carried} of {rate}");
    assert!(governor.window() < 12 << 20, "{}", governor.window());
}

#[test]
fn the_start_takes_few_rounds() {
    // 125 MB/s x 200 ms needs 25 MB: two doublings of 8 MiB.
    let mut governor = WindowGovernor::new(64 << 20, true);
    governor.answered(Duration::from_millis(200));
    run(&mut governor, 125e6, Duration::from_millis(200), 1 << 20, 1);
    assert!(governor.window() >= 25_000_000, "{}", governor.window());
}

#[test]
fn slow_start_does_not_grow_the_window() {
    // TCP's own start on 622 Mbit/s x 75 ms: the rate doubles each round trip until it is the
    // line's.
    let (mut governor, delay) = (WindowGovernor::new(64 << 20, true), Duration::from_millis(75));
    governor.answered(delay);
    let (mut now, mut rate) = (Duration::ZERO, 200e3);
    while rate < 73e6 {
        let sent: Vec<_> = (0..8).map(|_| governor.sent(now, 1 << 20)).collect();
        for stamp in sent {
            now += Duration::from_secs_f64((1 << 20) as f64 / rate);
            governor.delivered(now.max(stamp.sent_at + delay), stamp, 1 << 20);
        }
        rate = (rate * 2.0).min(73e6);
        assert_eq!(governor.window(), WINDOW_START_FAR);
    }
}

#[test]
fn connections_that_start_together_share_a_window() {
    let mut governor = WindowGovernor::new(64 << 20, true);
    governor.divide(4);
    assert_eq!(governor.window(), WINDOW_START_FAR / 4);
    governor.answered(Duration::from_millis(75));
    run(&mut governor, 73e6 / 4.0, Duration::from_millis(75), 1 << 18, 20);
    let total = 4 * governor.window();
    assert!((10_000_000..18_000_000).contains(&total), "{total}");
}

/// Simulates a line that loses segments: what is sent arrives in order, so it waits for segments before it
/// that are sent again. Returns the rate of the last half of the time, in bytes a second.
fn run_with_losses(governor: &mut WindowGovernor, rate: f64, delay: Duration, losses: f64) -> f64 {
    let (mut random, mut now) = (fastrand::Rng::with_seed(7), Duration::ZERO);
    let (mut free_at, mut arrived_at) = (Duration::ZERO, Duration::ZERO);
    let mut under_way: VecDeque<(Duration, Stamp)> = VecDeque::new();
    let (end, mut half) = (Duration::from_secs(40), 0);
    let segments = BLOCK as f64 / SEGMENT;
    governor.answered(delay);
    while now < end {
        while governor.in_flight + BLOCK <= governor.window() {
            free_at = free_at.max(now) + Duration::from_secs_f64(BLOCK as f64 / rate);
            let mut arrives_at = free_at + delay;
            let mut missing = segments * losses;
            while random.f64() < 1.0 - (-missing).exp() {
                arrives_at += delay;
                missing *= losses;
            }
            arrived_at = arrived_at.max(arrives_at);
            under_way.push_back((arrived_at, governor.sent(now, BLOCK)));
        }
        let (at, stamp) = under_way.pop_front().unwrap();
        now = at;
        governor.delivered(now, stamp, BLOCK);
        if now < end / 2 {
            half = governor.total();
        }
    }
    (governor.total() - half) as f64 / (end / 2).as_secs_f64()
}

#[test]
fn a_long_line_that_loses_segments_is_filled() {
    let (rate, delay) = (125e6, Duration::from_millis(100));
    for losses in [0.001, 0.01, 0.03] {
        let mut governor = WindowGovernor::new(64 << 20, true);
        let sent_again = Losses {
            sent_again: losses,
            ..Losses::default()
        };
        governor.set_losses(sent_again);
        let carried = run_with_losses(&mut governor, rate, delay, losses);
        assert!(carried > 0.95 * rate, "{carried} with {losses}");
        // A round trip for what is sent again, and more for what is lost again.
        let product = rate * delay.as_secs_f64();
        let least = if losses < 0.01 { 3.0 } else { 3.5 };
        assert!(
            governor.window() as f64 > least * product,
            "{} with {losses}",
            governor.window()
        );
        let mut unaware = WindowGovernor::new(64 << 20, true);
        let without = run_with_losses(&mut unaware, rate, delay, losses);
        // With fewer losses, twice the product and the headroom suffice in this simulation.
        let most = if losses < 0.03 { 1.01 } else { 0.95 };
        assert!(without < most * carried, "{without} of {carried} with {losses}");
    }
}

#[test]
fn a_line_that_loses_nearly_all_has_a_bounded_window() {
    for losses in [0.5, 0.99, 1.0] {
        let mut governor = WindowGovernor::new(1 << 30, true);
        governor.answered(Duration::from_millis(100));
        let fractions = [(losses, 0.0), (0.0, losses)];
        let (sent_again, out_of_order) = fractions[usize::from(losses > 0.6)];
        governor.set_losses(Losses {
            sent_again,
            out_of_order,
        });
        run(&mut governor, 125e6, Duration::from_millis(100), 1 << 20, 20);
        let product = 12.5e6;
        assert!(
            governor.window() as f64 <= 4.6 * product + 5e6,
            "{}",
            governor.window()
        );
    }
}

#[test]
fn a_slow_disk_does_not_grow_the_window() {
    let mut governor = WindowGovernor::new(64 << 20, true);
    governor.answered(Duration::from_millis(1));
    let longest = run(&mut governor, 10e6, Duration::from_millis(1), 1 << 20, 60);
    assert!(governor.window() <= 5 << 20, "{}", governor.window());
    assert!(longest < Duration::from_secs(7), "{longest:?}");
}

const BLOCK: u64 = 1 << 20;

/// A near server that works on several requests at once.
struct Server {
    now: Duration,
    free_at: Vec<Duration>,
}

impl Server {
    fn new(parallel: usize) -> (Self, WindowGovernor) {
        let mut governor = WindowGovernor::new(64 << 20, true);
        governor.answered(Duration::from_micros(200));
        let free_at = vec![Duration::ZERO; parallel];
        let now = Duration::ZERO;
        (Self { now, free_at }, governor)
    }

    /// Sends requests as the governor allows for some time, each of which takes `service`. Returns the
    /// number answered, and the longest wait of the last second before the work on a request begins.
    fn run(&mut self, governor: &mut WindowGovernor, service: Duration, seconds: u64) -> (u64, Duration) {
        let end = self.now + Duration::from_secs(seconds);
        let (mut count, mut longest) = (0, Duration::ZERO);
        let mut under_way: VecDeque<(Duration, Stamp)> = VecDeque::new();
        while self.now < end {
            // One request may always be in flight.
            while governor.in_flight + BLOCK <= governor.window().max(BLOCK) {
                let free_at = self.free_at.iter_mut().min().unwrap();
                let begins = self.now.max(*free_at);
                if self.now + Duration::from_secs(1) > end {
                    longest = longest.max(begins - self.now);
                }
                *free_at = begins + service;
                under_way.push_back((*free_at, governor.sent(self.now, BLOCK)));
            }
            let (at, stamp) = under_way.pop_front().unwrap();
            self.now = at;
            count += 1;
            governor.delivered(at, stamp, BLOCK);
        }
        for (at, stamp) in under_way {
            self.now = at;
            governor.delivered(at, stamp, BLOCK);
        }
        (count, longest)
    }
}

#[test]
fn few_requests_wait_at_a_slow_disk() {
    let (mut disk, mut governor) = Server::new(1);
    let service = Duration::from_millis(10);
    let (count, longest) = disk.run(&mut governor, service, 60);
    assert!(count > 99 * 60, "{count}");
    assert!(governor.window() < 4 * BLOCK, "{}", governor.window());
    assert!(longest <= 2 * service, "{longest:?}");
}

/// Others take two thirds of the disk's time: of three requests in a row one is ours.
#[test]
fn the_depth_gives_way_to_other_users_and_comes_back() {
    let (mut disk, mut governor) = Server::new(1);
    let service = Duration::from_millis(10);
    disk.run(&mut governor, service, 5);
    assert!(governor.window() >= 2 * BLOCK, "{}", governor.window());
    for seconds in [2, 5, 30] {
        disk.run(&mut governor, 3 * service, seconds);
        // One at a time.
        assert!(governor.window() < 2 * BLOCK, "{}", governor.window());
    }
    let (count, _) = disk.run(&mut governor, service, 30);
    assert!(count > 98 * 30, "{count}");
    assert!(governor.window() >= 2 * BLOCK, "{}", governor.window());
}

/// As one that fetches from an object store. What it has in memory it answers at once.
#[test]
fn a_server_that_is_slow_and_works_on_many_requests_at_once_gets_many() {
    let (mut server, mut governor) = Server::new(32);
    let service = Duration::from_millis(100);
    server.run(&mut governor, Duration::from_millis(2), 3);
    server.run(&mut governor, service, 30);
    let (count, _) = server.run(&mut governor, service, 10);
    assert!(count > 8 * 32 * 10, "{count}");
}

/// Whole files that the server flushes before it answers, many at once: a slow disk is no short line.
#[test]
fn a_flush_does_not_make_the_window_of_a_long_line_smaller() {
    let (delay, service) = (Duration::from_millis(15), Duration::from_millis(60));
    let run = |with_flush: bool| {
        let mut governor = WindowGovernor::new(64 << 20, true);
        governor.answered(delay);
        let (mut now, mut count) = (Duration::ZERO, 0_u64);
        let mut under_way: VecDeque<(Duration, Stamp)> = VecDeque::new();
        while now < Duration::from_secs(60) {
            while governor.in_flight + BLOCK <= governor.window() {
                let stamp = match with_flush {
                    true => governor.sent_with_flush(now, BLOCK),
                    false => governor.sent(now, BLOCK),
                };
                under_way.push_back((now + delay + service, stamp));
            }
            let (at, stamp) = under_way.pop_front().unwrap();
            now = now.max(at);
            governor.delivered(now, stamp, BLOCK);
            count += 1;
        }
        count * BLOCK / 60
    };
    let (flushed, plain) = (run(true), run(false));
    assert!(flushed > 200 << 20, "{flushed}");
    // Without a FLUSH the same time is a queue, which a smaller window makes shorter.
    assert!(plain < flushed / 2, "{plain}");
}

#[test]
fn an_idle_caller_does_not_change_the_window() {
    let mut governor = WindowGovernor::new(64 << 20, true);
    let before = governor.window();
    for step in 0..1000 {
        let now = Duration::from_millis(100 * step);
        let stamp = governor.sent(now, 4096);
        governor.delivered(now + Duration::from_millis(50), stamp, 4096);
    }
    assert_eq!(governor.window(), before);
    assert!(!governor.is_steady());
}

#[test]
fn the_window_respects_the_callers_limit() {
    let mut governor = WindowGovernor::new(16 << 20, true);
    governor.answered(Duration::from_millis(500));
    run(&mut governor, 1e9, Duration::from_millis(500), 1 << 20, 10);
    assert!(governor.window() <= 16 << 20);
}
