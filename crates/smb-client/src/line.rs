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

/// Bounds of the interval at which a driver asks the kernel, which is the round trip.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
const INTERVAL_MAX: Duration = Duration::from_millis(100);
/// The line is full while its round trip is this many times the shortest one, and [`QUEUED_MIN`] longer:
/// data wait in its queue. Losses that come by chance leave the queue empty. A guess.
const QUEUED_TIMES: f64 = 1.25;
const QUEUED_MIN: Duration = Duration::from_millis(2);
/// Segments that are lost at least before a line counts as one that loses some by chance. A guess.
const LOST_MIN: u64 = 8;

/// The sums over all connections of a client, ended ones included.
#[derive(Debug, Default)]
pub(crate) struct LineTotals {
    info: Mutex<Info>,
    congestion: Mutex<Option<String>>,
    saved: Mutex<Saved>,
    queued_bytes: AtomicU64,
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

    /// Returns the fraction of segments that the line loses by chance, and not since it is full.
    pub(crate) fn chance_losses(&self) -> f64 {
        let info = *self.info.lock();
        let (lost, all) = losses(info);
        let is_full = 2 * self.queued_bytes.load(Ordering::Relaxed) >= info.moved_bytes;
        let fraction = lost as f64 / all.max(1) as f64;
        match lost >= LOST_MIN && fraction >= LOSSY && !is_full {
            true => fraction,
            false => 0.0,
        }
    }

    fn add(&self, more: Info) {
        let mut info = self.info.lock();
        *info = info.plus(more);
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
            if is_queued(info.round_trip, shortest) {
                totals.queued_bytes.fetch_add(more.moved_bytes, Ordering::Relaxed);
            }
            totals.add(more);
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
