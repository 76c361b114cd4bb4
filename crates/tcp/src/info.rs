//! TCP_INFO: what the kernel has measured on a connection.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::{LONG_ROUND_TRIP, sys};

/// A line is lossy if at least this share of its segments was sent again. A guess: at 100 ms and
/// 0.05 % of loss cubic keeps 20 Mbit/s ([RFC 8312] 5.2), which is less than most lines.
pub const LOSSY: f64 = 0.0005;
/// Segments below which a share of losses says nothing: with fewer, [`LOSSY`] would be less than two
/// segments.
const SEGMENTS_MIN: u64 = 4000;

/// What the kernel has measured on one connection, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Smoothed round trip; zero if none has been measured. The longest of several connections.
    pub round_trip: Duration,
    /// Bytes that the other end acknowledged, and bytes received.
    pub moved_bytes: u64,
    /// Bytes that the other end acknowledged.
    pub acknowledged_bytes: u64,
    /// Time with data on the line, or on its way to it.
    pub sending: Duration,
    /// Of this, the time in which the other end's buffer was full.
    pub held_up: Duration,
    /// Segments with data sent, those that were sent again included.
    pub sent: u64,
    /// Segments sent again.
    pub sent_again: u64,
    /// Segments with data received.
    pub received: u64,
    /// Segments received out of order: behind one that was lost, or overtaken.
    pub out_of_order: u64,
}

impl Info {
    /// Asks the kernel.
    ///
    /// # Errors
    /// The descriptor is no TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        sys::tcp_info(socket.as_fd()).map(|raw| Self::parse(&raw))
    }

    /// Asks the kernel, for the shortest round trip in the last minutes as well. The smoothed one of an end
    /// that sends little includes the other end's delayed acknowledgments.
    ///
    /// # Errors
    /// The descriptor is no TCP socket.
    pub fn with_shortest_round_trip(socket: impl AsFd) -> io::Result<(Self, Duration)> {
        let raw = sys::tcp_info(socket.as_fd())?;
        let bytes = raw.get(148..152).and_then(|bytes| bytes.try_into().ok());
        // The kernel's own "none yet" is the largest number.
        let micros = bytes.map_or(u32::MAX, u32::from_ne_bytes);
        Ok((Self::parse(&raw), Duration::from_micros(micros.into())))
    }

    /// Parses `struct tcp_info` (linux/tcp.h); its beginning never changes, and what an older kernel
    /// does not fill in is zero.
    fn parse(raw: &sys::RawInfo) -> Self {
        let at = |offset: usize| {
            let bytes = raw
                .get(offset..offset + 4)
                .and_then(|bytes| bytes.try_into().ok());
            u64::from(bytes.map_or(0, u32::from_ne_bytes))
        };
        let long_at = |offset: usize| {
            let bytes = raw
                .get(offset..offset + 8)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Self {
            round_trip: Duration::from_micros(at(68)),
            sent_again: at(100),
            moved_bytes: long_at(120).saturating_add(long_at(128)),
            acknowledged_bytes: long_at(120),
            sending: Duration::from_micros(long_at(168)),
            held_up: Duration::from_micros(long_at(176)),
            received: at(152),
            sent: at(156),
            out_of_order: at(224),
        }
    }

    /// Returns the sum with another connection.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            round_trip: self.round_trip.max(other.round_trip),
            moved_bytes: self.moved_bytes + other.moved_bytes,
            acknowledged_bytes: self.acknowledged_bytes + other.acknowledged_bytes,
            sending: self.sending + other.sending,
            held_up: self.held_up + other.held_up,
            sent: self.sent + other.sent,
            sent_again: self.sent_again + other.sent_again,
            received: self.received + other.received,
            out_of_order: self.out_of_order + other.out_of_order,
        }
    }

    /// Returns half of all that is counted.
    #[must_use]
    pub fn halved(self) -> Self {
        Self {
            round_trip: self.round_trip,
            moved_bytes: self.moved_bytes / 2,
            acknowledged_bytes: self.acknowledged_bytes / 2,
            sending: self.sending / 2,
            held_up: self.held_up / 2,
            sent: self.sent / 2,
            sent_again: self.sent_again / 2,
            received: self.received / 2,
            out_of_order: self.out_of_order / 2,
        }
    }

    /// Returns what was added since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            round_trip: self.round_trip,
            moved_bytes: self.moved_bytes.saturating_sub(earlier.moved_bytes),
            acknowledged_bytes: self.acknowledged_bytes.saturating_sub(earlier.acknowledged_bytes),
            sending: self.sending.saturating_sub(earlier.sending),
            held_up: self.held_up.saturating_sub(earlier.held_up),
            sent: self.sent.saturating_sub(earlier.sent),
            sent_again: self.sent_again.saturating_sub(earlier.sent_again),
            received: self.received.saturating_sub(earlier.received),
            out_of_order: self.out_of_order.saturating_sub(earlier.out_of_order),
        }
    }

    /// Returns the time in which what was sent waited for the line. On a short line that is without
    /// the time in which the other end's buffer was full: it does not read fast enough. On a long
    /// one a full buffer only means that the buffer is small for the line.
    pub fn waited_for_line(&self) -> Duration {
        match self.round_trip >= LONG_ROUND_TRIP {
            true => self.sending,
            false => self.sending.saturating_sub(self.held_up),
        }
    }

    /// Returns the share of the segments that was sent again; `None` if too few were sent to tell.
    pub fn loss(&self) -> Option<f64> {
        (self.sent >= SEGMENTS_MIN).then(|| self.sent_again as f64 / self.sent as f64)
    }

    /// Returns the share of the received segments that came out of order; `None` if too few came.
    /// One loss puts a round trip's segments out of order, so this is no rate of loss.
    pub fn disorder(&self) -> Option<f64> {
        (self.received >= SEGMENTS_MIN).then(|| self.out_of_order as f64 / self.received as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_counts_segments() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let before = Info::of(&far).unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let sent = Info::of(&near).unwrap();
        assert!(sent.round_trip > Duration::ZERO && sent.round_trip < Duration::from_secs(1));
        assert_eq!((sent.sent, sent.sent_again), (1, 0));
        let received = Info::of(&far).unwrap().since(before);
        assert_eq!((received.received, received.out_of_order), (1, 0));
        assert_eq!(received.moved_bytes, 1000);
    }

    /// What is on a loopback line is acknowledged at once, and a reader that sleeps fills its buffer.
    #[test]
    fn the_kernel_knows_who_waits_for_whom() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        let mut written = 0_u64;
        while let Ok(count) = near.write(&[7; 1 << 16]) {
            written += count as u64;
        }
        std::thread::sleep(Duration::from_millis(300));
        let info = Info::of(&near).unwrap();
        assert!(info.acknowledged_bytes > 0 && info.acknowledged_bytes < written);
        assert!(info.sending >= Duration::from_millis(200), "{info:?}");
        assert!(info.waited_for_line() < Duration::from_millis(150), "{info:?}");
        let long = Info {
            round_trip: LONG_ROUND_TRIP,
            ..info
        };
        assert_eq!(long.waited_for_line(), info.sending);
        assert_eq!(info.plus(info).since(info).sending, info.sending);
        drop(far);
    }

    #[test]
    fn few_segments_say_nothing() {
        let some = Info {
            sent: 100_000,
            sent_again: 1000,
            received: 10,
            ..Info::default()
        };
        assert_eq!((some.loss(), some.disorder()), (Some(0.01), None));
        let few = Info {
            sent: 100,
            sent_again: 10,
            ..Info::default()
        };
        assert_eq!(few.loss(), None);
        assert_eq!(some.plus(few).sent_again, 1010);
        assert_eq!(some.plus(few).since(few).sent, 100_000);
    }
}
