//! Specification of a link, and its text form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use super::error::LinkError;

/// Ethernet framing of each segment in bytes: preamble 8, header 14, check sequence 4, gap 12.
pub const FRAMING_BYTES: u32 = 38;
/// IPv4 and TCP headers with time stamps.
const TCP_HEADERS: u32 = 52;
/// Largest memory for the packets of one direction (a guess: 1 Gbit/s for four seconds is half of it).
const FLIGHT_MAX_BYTES: u64 = 1 << 30;
/// Bytes in flight of a direction without a rate (a guess).
const UNLIMITED_QUEUE_BYTES: u64 = 256 << 20;
/// Least default queue (a guess: one packet of segmentation offload).
const QUEUE_MIN_BYTES: u64 = 64 << 10;
/// Largest number of cuts of a link (a guess).
const CUTS_MAX: usize = 64;

/// Bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

impl Rate {
    /// Returns the time of bytes at this rate.
    pub fn time_of(self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 * 8.0 / self.0 as f64)
    }

    /// Returns the bytes that pass in a time.
    pub fn bytes_in(self, span: Duration) -> u64 {
        u64::try_from(u128::from(self.0) * span.as_nanos() / 8_000_000_000).unwrap_or(u64::MAX)
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Parses `622mbit`, `155.52Mbit/s`, `1gbit`: powers of 1000. The unit must name bits, since sizes
    /// elsewhere are bytes.
    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || format!("{text:?} is not a rate such as 64kbit, 155.52mbit or 1gbit");
        let lower = text.trim().to_ascii_lowercase();
        let plain = lower.strip_suffix("/s").unwrap_or(&lower);
        let units = [("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
        let bits = amount(plain, &units).ok_or_else(fault)?.round();
        // No machine reaches 1 Tbit/s.
        if (1000.0..=1e12).contains(&bits) {
            Ok(Self(bits as u64))
        } else {
            Err(format!("{text:?} is not between 1kbit and 1000gbit"))
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            bits if bits >= 1_000_000_000 => (bits as f64 / 1e9, "Gbit/s"),
            bits if bits >= 1_000_000 => (bits as f64 / 1e6, "Mbit/s"),
            bits => (bits as f64 / 1e3, "kbit/s"),
        };
        write!(f, "{value} {unit}")
    }
}

/// Parses a number with one of these units, which are factors.
fn amount(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(known, _)| *known == unit.trim_start())?;
    Some(number.parse::<f64>().ok()? * factor)
}

/// Parses a probability: `0.01` or `1%`.
///
/// # Errors
/// The text is no number, or not from 0 up to, but not including, 1.
pub fn parse_loss(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let (number, factor) = match trimmed.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (trimmed, 1.0),
    };
    let loss = number.trim_end().parse::<f64>().map(|number| number * factor);
    match loss {
        Ok(loss) if (0.0..1.0).contains(&loss) => Ok(loss),
        _ => Err(format!("{text:?} is not a loss such as 0.1% or 0.001, below 1")),
    }
}

/// Parses a time with a unit: `75ms`, `1.5m`, `3h`; without a unit it is in seconds.
///
/// # Errors
/// The text is no time, or the time is 0.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text:?} is not a time such as 10ms, 30s, 5m or 2h");
    let (small, big) = (
        [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)],
        [("m", 60.0), ("min", 60.0), ("h", 3600.0)],
    );
    let units = [&small[..], &[("", 1.0), ("s", 1.0)], &big].concat();
    let seconds = amount(text.trim(), &units).ok_or_else(fault)?;
    let span = Duration::try_from_secs_f64(seconds).map_err(|_| fault())?;
    if span.is_zero() { Err(fault()) } else { Ok(span) }
}

/// Returns the round trip and its part from near to far (`None` for half of it), from either the round
/// trip or both delays.
///
/// # Errors
/// Neither is given, or both, or only one of the delays.
pub fn round_trip(
    rtt: Option<Duration>,
    up: Option<Duration>,
    down: Option<Duration>,
) -> Result<(Duration, Option<Duration>), String> {
    match (rtt, up, down) {
        (Some(rtt), None, None) => Ok((rtt, None)),
        (None, Some(up), Some(down)) => Ok((up.saturating_add(down), Some(up))),
        _ => Err("the delay is given as rtt, or as up_delay and down_delay, whose sum is the rtt".to_owned()),
    }
}

/// A congestion control, by the kernel's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Congestion(String);

impl Congestion {
    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The kernel's TCP_CA_NAME_MAX is 16 with the final 0. The kernel checks whether it exists.
        let word =
            (1..16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if word {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "{text:?} is not a congestion control such as bbr, cubic or reno"
            ))
        }
    }
}

/// Settings of TCP in both namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpSpec {
    /// Congestion control, set on the route; `None` for the namespace's own, which
    /// [`super::Link::congestion`] names.
    pub congestion: Option<Congestion>,
    /// Whether programs may choose another one for their sockets; else the route is locked to it.
    pub congestion_open: bool,
    /// Largest receive and send buffer of a socket in bytes (`tcp_rmem`, `tcp_wmem`).
    pub buffer_max_bytes: Option<u64>,
    /// Largest window in bytes that either end announces, such as 17,520 or 65,535 of old systems.
    pub window_max_bytes: Option<u32>,
    /// Initial congestion window in segments.
    pub initial_window: Option<u32>,
    /// Whether both ends request ECN.
    pub ecn: bool,
}

impl TcpSpec {
    /// Returns the window if a segment can announce it without a scale. The line enforces it.
    pub(super) fn small_window(&self) -> Option<u16> {
        self.window_max_bytes.and_then(|bytes| u16::try_from(bytes).ok())
    }
}

/// A time without a link, counted from its start or from the last [`super::Link::begin_cuts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Start of the cut.
    pub at: Duration,
    /// Length of the cut.
    pub length: Duration,
}

impl Cut {
    /// Length of a cut that is never restored: a hundred years, so that no sum of times overflows.
    pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

    /// Whether the cut is never restored.
    pub fn is_for_ever(&self) -> bool {
        self.length >= Self::FOR_EVER
    }

    /// End of the cut.
    pub(super) fn end(&self) -> Duration {
        self.at.saturating_add(self.length)
    }
}

/// Specification of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkSpec {
    /// Round trip: half of it in each direction, unless [`Self::up_delay`] is set.
    pub rtt: Duration,
    /// Part of the round trip from near to far; the rest is the delay back. `None` for half of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_delay: Option<Duration>,
    /// Largest deviation of each packet's delay, evenly spread; the order is kept.
    pub jitter: Duration,
    /// Probability that a segment is lost, independent of others. Lost segments have used the line.
    pub loss: f64,
    /// Rate from near to far; `None` for the speed of this machine.
    pub up: Option<Rate>,
    /// Rate from far to near.
    pub down: Option<Rate>,
    /// Bytes that may wait for the line, with framing; segments beyond are dropped (tail drop). `None` for
    /// the default of [`LinkSpec::queue_bytes`].
    pub queue: Option<u64>,
    /// Largest size of an IP packet in bytes.
    pub mtu: u16,
    /// Seed of losses and jitter.
    pub seed: u64,
    /// Cuts, one after the other.
    pub cuts: Vec<Cut>,
    /// Settings of TCP.
    pub tcp: TcpSpec,
}

impl LinkSpec {
    /// Returns the higher rate of both directions; `None` if a direction has none.
    pub fn rate_most(&self) -> Option<Rate> {
        Some(Rate(self.up?.0.max(self.down?.0)))
    }

    /// Returns the part that a TCP relay can emulate: rates and delays, nothing that needs packets. Its TCP
    /// is that of the loopback.
    pub fn relayed(&self) -> Self {
        Self {
            loss: 0.0,
            jitter: Duration::ZERO,
            cuts: Vec::new(),
            tcp: TcpSpec::default(),
            ..self.clone()
        }
    }

    /// Returns the link without cuts.
    pub fn uncut(&self) -> Self {
        Self {
            cuts: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns a link with a round trip and a rate in both directions, and defaults for the rest.
    pub fn new(rtt: Duration, rate: Option<Rate>) -> Self {
        Self {
            rtt,
            up_delay: None,
            jitter: Duration::ZERO,
            loss: 0.0,
            up: rate,
            down: rate,
            queue: None,
            mtu: 1500,
            seed: 1,
            cuts: Vec::new(),
            tcp: TcpSpec::default(),
        }
    }

    /// Returns the delay of each direction: from near to far, and back.
    pub fn delays(&self) -> [Duration; 2] {
        match self.up_delay {
            Some(up) => [up, self.rtt.saturating_sub(up)],
            None => [self.rtt / 2; 2],
        }
    }

    /// Returns the queue of a direction in bytes: as specified, else the content of the line in a round trip,
    /// at least 64 KiB. Without a rate it bounds the bytes in flight: 256 MiB.
    pub fn queue_bytes(&self, rate: Option<Rate>) -> u64 {
        self.queue.unwrap_or_else(|| match rate {
            Some(rate) => rate.bytes_in(self.rtt).max(QUEUE_MIN_BYTES),
            None => UNLIMITED_QUEUE_BYTES,
        })
    }

    /// Returns the bytes of a full segment on the wire.
    pub fn wire_mtu(&self) -> u64 {
        u64::from(self.mtu) + u64::from(FRAMING_BYTES)
    }

    /// Checks the specification.
    ///
    /// # Errors
    /// The first fault, in one line.
    pub fn check(&self) -> Result<(), LinkError> {
        let fault = |text: String| Err(LinkError::Spec(text));
        if self.rtt > Duration::from_secs(60) {
            return fault("a round trip of more than a minute is surely a mistake".to_owned());
        }
        if self.up_delay.is_some_and(|up| up > self.rtt) {
            return fault("the delay from near to far is more than the round trip".to_owned());
        }
        let [up_delay, down_delay] = self.delays();
        let shorter = up_delay.min(down_delay);
        if self.jitter > shorter {
            return fault(format!(
                "a jitter of {:?} is more than the delay of one way, {shorter:?}",
                self.jitter
            ));
        }
        if !(0.0..1.0).contains(&self.loss) {
            return fault("loss must be from 0 up to, but not including, 1".to_owned());
        }
        // [RFC 791]: every host takes packets of 576 bytes; above 65,521 the TUN device refuses.
        if !(576..=65_521).contains(&self.mtu) {
            return fault("the MTU must be between 576 and 65,521".to_owned());
        }
        for (rate, delay) in [(self.up, up_delay), (self.down, down_delay)] {
            let queue = self.queue_bytes(rate);
            if queue < self.wire_mtu() {
                return fault(format!(
                    "a queue of {queue} bytes does not hold one segment: {} are needed",
                    self.wire_mtu()
                ));
            }
            let flight = rate.map_or(0, |rate| rate.bytes_in(delay + self.jitter));
            if queue.saturating_add(flight) > FLIGHT_MAX_BYTES {
                return fault("queue and line together would hold more than 1 GiB".to_owned());
            }
        }
        check_cuts(&self.cuts).map_err(LinkError::Spec)
    }
}

/// Checks that the cuts are not too many and do not overlap.
fn check_cuts(cuts: &[Cut]) -> Result<(), String> {
    if cuts.len() > CUTS_MAX {
        return Err(format!("{} cuts are more than {CUTS_MAX}", cuts.len()));
    }
    if cuts.iter().any(|cut| cut.at.max(cut.length) > Cut::FOR_EVER) {
        return Err("a cut that begins in a hundred years, or lasts longer, is surely a mistake".to_owned());
    }
    let overlapping = cuts.windows(2).find(|pair| pair[1].at < pair[0].end());
    match overlapping {
        Some(pair) => Err(format!(
            "the cut after {:?} begins before the one after {:?} is over",
            pair[1].at, pair[0].at
        )),
        None => Ok(()),
    }
}

/// Returns the bytes on the wire for a payload of TCP with time stamps: 1448 become 1538 at an MTU of 1500.
pub fn payload_on_wire(payload: u64, mtu: u16) -> u64 {
    let segment = u64::from(mtu) - u64::from(TCP_HEADERS);
    payload + payload.div_ceil(segment) * u64::from(TCP_HEADERS + FRAMING_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_bits_by_name() {
        assert_eq!("622mbit".parse(), Ok(Rate(622_000_000)));
        assert_eq!("155.52 Mbit/s".parse(), Ok(Rate(155_520_000)));
        assert_eq!("1gbit".parse(), Ok(Rate(1_000_000_000)));
        for bad in [
            "", "10", "10M", "10MB", "mbit", "-1mbit", "0mbit", "1e9gbit", "2000gbit",
        ] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
        assert_eq!(Rate(622_000_000).to_string(), "622 Mbit/s");
        assert_eq!(Rate(64_000).to_string(), "64 kbit/s");
    }

    #[test]
    fn losses_are_parts_or_percent() {
        assert_eq!(parse_loss("1%"), Ok(0.01));
        assert_eq!(parse_loss("0.25"), Ok(0.25));
        assert_eq!(parse_loss("0"), Ok(0.0));
        for bad in ["", "1", "100%", "-1%", "NaN", "five"] {
            assert!(parse_loss(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_default_queue_is_what_a_round_trip_carries() {
        let spec = LinkSpec::new(Duration::from_millis(75), Some(Rate(622_000_000)));
        assert_eq!(spec.queue_bytes(spec.up), 5_831_250);
        let short = LinkSpec::new(Duration::from_millis(1), Some(Rate(1_000_000)));
        assert_eq!(short.queue_bytes(short.up), 65_536);
    }

    #[test]
    fn invalid_links_are_refused() {
        let good = || LinkSpec::new(Duration::from_millis(75), Some(Rate(622_000_000)));
        good().check().unwrap();
        let spoil: [fn(&mut LinkSpec); 8] = [
            |spec| spec.rtt = Duration::from_secs(3600),
            |spec| spec.up_delay = Some(Duration::from_millis(76)),
            |spec| {
                spec.up_delay = Some(Duration::from_millis(70));
                spec.jitter = Duration::from_millis(6);
            },
            |spec| spec.jitter = Duration::from_millis(38),
            |spec| spec.loss = 1.0,
            |spec| spec.mtu = 68,
            |spec| spec.queue = Some(1000),
            |spec| spec.queue = Some(1 << 30),
        ];
        for spoil in spoil {
            let mut spec = good();
            spoil(&mut spec);
            assert!(matches!(spec.check(), Err(LinkError::Spec(_))), "{spec:?}");
        }
    }

    #[test]
    fn delays_are_halves_of_a_round_trip_or_their_sum_is_one() {
        let ms = Duration::from_millis;
        assert_eq!(round_trip(Some(ms(75)), None, None), Ok((ms(75), None)));
        assert_eq!(
            round_trip(None, Some(ms(20)), Some(ms(55))),
            Ok((ms(75), Some(ms(20))))
        );
        for (rtt, up, down) in [
            (None, None, None),
            (None, Some(ms(1)), None),
            (None, None, Some(ms(1))),
            (Some(ms(2)), Some(ms(1)), Some(ms(1))),
        ] {
            assert!(round_trip(rtt, up, down).is_err(), "{rtt:?} {up:?} {down:?}");
        }
        let mut spec = LinkSpec::new(ms(75), None);
        assert_eq!(spec.delays(), [ms(75) / 2; 2]);
        spec.up_delay = Some(ms(20));
        assert_eq!(spec.delays(), [ms(20), ms(55)]);
        assert_eq!(spec.relayed().delays(), spec.delays());
    }

    #[test]
    fn cuts_come_one_after_the_other() {
        let second = Duration::from_secs(1);
        let cut = |at: u32, length: Duration| Cut {
            at: second * at,
            length,
        };
        let checked = |cuts: Vec<Cut>| {
            let mut spec = LinkSpec::new(Duration::from_millis(75), None);
            spec.cuts = cuts;
            spec.check().map_err(|error| error.to_string())
        };
        assert_eq!(checked(vec![cut(1, second), cut(2, Cut::FOR_EVER)]), Ok(()));
        for (cuts, word) in [
            (vec![cut(1, second * 2), cut(2, second)], "begins before"),
            (vec![cut(5, second), cut(2, second)], "begins before"),
            (vec![cut(1, Cut::FOR_EVER), cut(9, second)], "begins before"),
            (vec![cut(1, Cut::FOR_EVER * 2)], "hundred years"),
            (vec![cut(1, Duration::ZERO); CUTS_MAX + 1], "65 cuts"),
        ] {
            let error = checked(cuts).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(cut(1, Cut::FOR_EVER).is_for_ever() && !cut(1, second).is_for_ever());
    }

    #[test]
    fn a_full_segment_is_1538_on_the_wire() {
        assert_eq!(payload_on_wire(1448, 1500), 1538);
        assert_eq!(payload_on_wire(1449, 1500), 1449 + 180);
    }
}
