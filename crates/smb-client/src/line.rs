//! What TCP reports of the line to a server, summed over all connections of a client: segments sent
//! and sent again, and the congestion control of this end.

use std::time::Duration;

use parking_lot::Mutex;
use ropeway_tcp::Info;
use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Interval at which a driver asks the kernel. A guess: a round trip of a long line.
const INTERVAL: Duration = Duration::from_millis(100);

/// The sums over all connections of a client, ended ones included.
#[derive(Debug, Default)]
pub(crate) struct LineTotals {
    info: Mutex<Info>,
    congestion: Mutex<Option<String>>,
}

/// What is known of the line to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineInfo {
    /// The sum over all connections.
    pub info: Info,
    /// Congestion control of this end; `None` if the system does not name it.
    pub congestion: Option<String>,
}

impl LineTotals {
    pub(crate) fn get(&self) -> LineInfo {
        LineInfo {
            info: *self.info.lock(),
            congestion: self.congestion.lock().clone(),
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
    next: Duration,
    is_named: bool,
}

impl LineWatch {
    /// Adds what is new on a connection, if it is time.
    pub(crate) fn look(&mut self, now: Duration, stream: &TcpStream, totals: &LineTotals) {
        if now >= self.next {
            self.next = now + INTERVAL;
            self.look_now(stream, totals);
        }
    }

    /// Adds what is new on a connection.
    pub(crate) fn look_now(&mut self, stream: &TcpStream, totals: &LineTotals) {
        if !std::mem::replace(&mut self.is_named, true)
            && let Ok(name) = sockopt::tcp_congestion(stream)
        {
            *totals.congestion.lock() = Some(name);
        }
        // A figure that is missing only hides a loss.
        if let Ok(info) = Info::of(stream) {
            totals.add(info.since(self.counted));
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
            watch.look_now(&near, &totals);
            // Nothing new.
            watch.look_now(&near, &totals);
        }
        let line = totals.get();
        assert_eq!((line.info.sent, line.info.sent_again), (3, 0));
        assert!(line.congestion.is_some());
    }
}
