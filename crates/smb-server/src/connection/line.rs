//! Finds whether a client's line is slower than compression: only this end knows of what it sends.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ropeway_smb_proto::compression::{CoreSpeed, LineSample, SlowLine};
use ropeway_smb_proto::server::Connection;
use ropeway_tcp::Info;

/// Interval between two looks. A guess: a round trip of a long line.
const INTERVAL: Duration = Duration::from_millis(100);

/// What is known of the line of one connection.
#[derive(Debug, Default)]
pub(super) struct LineWatch {
    slow_line: SlowLine,
    /// When the connection began to be watched, and when it was looked at last.
    times: Option<(Instant, Instant)>,
}

impl LineWatch {
    /// Has replies compressed as the line is slow or fast, if the client wants that and if it is time.
    pub(super) fn look(&mut self, socket: BorrowedFd<'_>, protocol: &mut Connection) {
        let has_levels = protocol
            .negotiated()
            .is_some_and(|both| both.compression().algorithms.zstd);
        if !has_levels {
            return;
        }
        let now = Instant::now();
        let (started, looked_at) = self.times.get_or_insert((now, now));
        if now.duration_since(*looked_at) < INTERVAL {
            return;
        }
        *looked_at = now;
        // A line to a translator is no TCP connection.
        let Ok(info) = Info::of(socket) else { return };
        let sample = LineSample {
            acknowledged: info.acknowledged_bytes,
            sending: info.waited_for_line(),
        };
        let before = self.slow_line.level();
        let speed = || CoreSpeed::of_this_process(|| now.elapsed());
        let level = self.slow_line.look(now.duration_since(*started), sample, speed);
        if level != before {
            tracing::debug!(?level, "compression of replies");
            protocol.set_compression_level(level);
        }
    }
}
