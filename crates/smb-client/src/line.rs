//! What TCP reports of the line to a server, summed over all connections of a client: segments sent
//! and sent again, and the congestion control of this end. By it each connection also finds whether
//! its line is slower than compression.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ropeway_smb_proto::client::Connection;
use ropeway_smb_proto::compression::{CoreSpeed, LineSample, Saved, SlowLine};
use ropeway_tcp::{Info, LOSSY};
use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::window::Losses;

/// Bounds of the interval at which a driver asks the kernel, which is the round trip.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_millis(100);
/// The line is full while its round trip is this many times the shortest one, and [`QUEUED_MIN`] longer:
/// data wait in its queue. Losses that come by chance leave the queue empty. A guess.
const QUEUED_TIMES: f64 = 1.25;
const QUEUED_MIN: Duration = Duration::from_millis(2);
/// Segments that are lost at least before a line counts as one that loses some by chance. A guess.
const LOST_MIN: u64 = 8;
/// Segments from which on what was counted lately is halved. A guess: 58 MB.
const RECENT_SEGMENTS: u64 = 40_000;

/// The sums over all connections of a client, ended ones included.
#[derive(Debug, Default)]
pub(crate) struct LineTotals {
    info: Mutex<Info>,
    congestion: Mutex<Option<String>>,
    saved: Mutex<Saved>,
    queued_bytes: AtomicU64,
    recent: Mutex<Recent>,
}

/// What was counted lately: all of it is halved again and again.
#[derive(Debug, Default)]
struct Recent {
    info: Info,
    queued_bytes: u64,
}

/// What is known of the line to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineInfo {
    /// The sum over all connections.
    pub info: Info,
    /// Congestion control of this end; `None` if the system does not name it.
    pub congestion: Option<String>,
    /// What compression saved.
    pub saved: Saved,
    /// Bytes that were moved while others waited in a queue of the line, as on a line that is full.
    pub queued_bytes: u64,
}

/// Returns whether data wait in a queue of the line, by its round trip now and the shortest one.
fn is_queued(now: Duration, shortest: Duration) -> bool {
    now >= shortest.mul_f64(QUEUED_TIMES) && now >= shortest + QUEUED_MIN
}

/// Returns the segments that were lost and all, of the direction that carries more. For what this end sends,
/// the segments sent again tell; for what it receives, those out of order.
pub(crate) fn losses(line: Info) -> (u64, u64) {
    match line.sent >= line.received {
        true => (line.sent_again, line.sent),
        false => (line.out_of_order, line.received),
    }
}

/// Returns what the choice of compression needs of what TCP counted.
fn sample(info: &Info) -> LineSample {
    LineSample {
        acknowledged: info.acknowledged_bytes,
        sending: info.waited_for_line(),
    }
}

impl LineTotals {
    pub(crate) fn get(&self) -> LineInfo {
        LineInfo {
            info: *self.info.lock(),
            congestion: self.congestion.lock().clone(),
            saved: *self.saved.lock(),
            queued_bytes: self.queued_bytes.load(Ordering::Relaxed),
        }
    }

    /// Returns what the line loses by chance, and not since it is full.
    pub(crate) fn chance_losses(&self) -> Losses {
        self.recent.lock().losses()
    }

    /// Adds what is new on a connection. `is_queued`: whether data wait in a queue of the line.
    fn add(&self, more: Info, is_queued: bool) {
        let mut info = self.info.lock();
        *info = info.plus(more);
        drop(info);
        let queued = if is_queued { more.moved_bytes } else { 0 };
        self.queued_bytes.fetch_add(queued, Ordering::Relaxed);
        self.recent.lock().add(more, queued);
    }
}

impl Recent {
    fn add(&mut self, more: Info, queued_bytes: u64) {
        self.info = self.info.plus(more);
        self.queued_bytes += queued_bytes;
        if self.info.sent.max(self.info.received) > RECENT_SEGMENTS {
            self.info = self.info.halved();
            self.queued_bytes /= 2;
        }
    }

    fn losses(&self) -> Losses {
        let info = &self.info;
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        if 2 * self.queued_bytes >= info.moved_bytes {
            return Losses::default();
        }
        if info.sent < info.received {
            let out_of_order = share(info.out_of_order, info.received);
            return Losses {
                out_of_order,
                ..Losses::default()
            };
        }
        let sent_again = share(info.sent_again, info.sent);
        match info.sent_again >= LOST_MIN && sent_again >= LOSSY {
            true => Losses {
                sent_again,
                ..Losses::default()
            },
            false => Losses::default(),
        }
    }
}

/// One connection's part in the sums.
#[derive(Debug, Default)]
pub(crate) struct LineWatch {
    counted: Info,
    saved: Saved,
    slow_line: SlowLine,
    next: Duration,
    is_named: bool,
}

impl LineWatch {
    /// If it is time, adds what is new on a connection, and has it compress as the line is slow or
    /// fast. Returns whether it was time.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        stream: &TcpStream,
        connection: &mut Connection,
        totals: &LineTotals,
    ) -> bool {
        if now < self.next {
            return false;
        }
        let interval = self.counted.round_trip;
        self.next = now + interval.clamp(INTERVAL_MIN, INTERVAL_MAX);
        self.look_now(stream, connection, totals);
        // Only own ends have several levels.
        let has_levels = connection
            .negotiated()
            .is_some_and(|both| both.compression.algorithms.zstd);
        if !has_levels {
            return true;
        }
        let before = self.slow_line.level();
        let start = Instant::now();
        let speed = || CoreSpeed::of_this_process(|| start.elapsed());
        let level = self.slow_line.look(now, sample(&self.counted), speed);
        if level != before {
            tracing::debug!(?level, "compression of what is sent");
            connection.set_compression_level(level);
        }
        true
    }

    /// Adds what is new on a connection.
    pub(crate) fn look_now(&mut self, stream: &TcpStream, connection: &Connection, totals: &LineTotals) {
        self.count(stream, connection.saved(), totals);
    }

    fn count(&mut self, stream: &TcpStream, saved: Saved, totals: &LineTotals) {
        totals.saved.lock().add(saved.since(self.saved));
        self.saved = saved;
        if !std::mem::replace(&mut self.is_named, true)
            && let Ok(name) = sockopt::tcp_congestion(stream)
        {
            *totals.congestion.lock() = Some(name);
        }
        // A figure that is missing only hides a loss.
        if let Ok((info, shortest)) = Info::with_shortest_round_trip(stream) {
            let more = info.since(self.counted);
            totals.add(more, is_queued(info.round_trip, shortest));
            self.counted = info;
        }
    }
}

impl LineInfo {
    /// Whether this end sends with BBR, which does not take losses for a full line.
    pub(crate) fn is_bbr(&self) -> bool {
        self.congestion
            .as_deref()
            .is_some_and(|name| name.starts_with("bbr"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn a_longer_round_trip_than_the_shortest_is_a_queue() {
        let ms = Duration::from_millis;
        assert!(is_queued(ms(64), ms(32)) && is_queued(ms(4), ms(1)));
        assert!(!is_queued(ms(102), ms(100)) && !is_queued(ms(2), ms(1)));
        // Nothing was measured yet.
        assert!(!is_queued(Duration::ZERO, Duration::from_micros(u32::MAX.into())));
    }

    #[test]
    fn losses_are_those_of_late_and_not_of_a_full_line() {
        let some = |sent, sent_again, received, out_of_order| Info {
            moved_bytes: 1448 * (sent + received),
            sent,
            sent_again,
            received,
            out_of_order,
            ..Info::default()
        };
        let mut sending = Recent::default();
        sending.add(some(20_000, 200, 100, 0), 0);
        assert!((sending.losses().sent_again - 0.01).abs() < 1e-6);
        assert_eq!(sending.losses().out_of_order, 0.0);
        for _ in 0..20 {
            sending.add(some(20_000, 0, 100, 0), 0);
        }
        assert_eq!(sending.losses(), Losses::default(), "{sending:?}");
        let mut receiving = Recent::default();
        receiving.add(some(100, 0, 1_000, 500), 0);
        assert_eq!(
            (receiving.losses().out_of_order, receiving.losses().sent_again),
            (0.5, 0.0)
        );
        let mut full = Recent::default();
        full.add(some(20_000, 200, 100, 0), 1448 * 20_000);
        assert_eq!(full.losses(), Losses::default());
    }

    #[tokio::test]
    async fn each_segment_is_counted_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut near, (mut far, _)) = (near.unwrap(), far.unwrap());
        let (totals, mut watch) = (LineTotals::default(), LineWatch::default());
        for _ in 0..3 {
            near.write_all(b"some").await.unwrap();
            far.read_exact(&mut [0; 4]).await.unwrap();
            watch.count(&near, Saved { bytes: 7, by_zstd: 0 }, &totals);
            // Nothing new.
            watch.count(&near, Saved { bytes: 7, by_zstd: 0 }, &totals);
        }
        let line = totals.get();
        assert_eq!((line.info.sent, line.info.sent_again), (3, 0));
        assert_eq!(line.saved.bytes, 7);
        assert!(line.congestion.is_some());
    }
}
