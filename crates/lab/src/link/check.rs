//! Proves a link: rate, round trip and loss, measured by sockets at both ends.
//!
//! Datagrams measure the rate upwards, and TCP with segmentation offload the rate downwards. For TCP
//! the queue is deep and windows are bounded to what fits, with reno: TCP then neither loses nor waits,
//! and the line alone is measured. `floor` measures TCP on the link's own queue.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::error::LinkError;
use super::spec::{LinkSpec, Rate};
use super::{Link, Stats, probe};

/// Allowed relative error of a measured rate.
const RATE_BOUND: f64 = 0.01;
/// Allowed relative error of a measured round trip.
const ROUND_TRIP_BOUND: f64 = 0.02;
/// Allowed error of a measured loss in standard deviations: exceeded by chance once in 16,000 runs.
const LOSS_SIGMAS: f64 = 4.0;
/// Loss that is measured on links without loss.
const LOSS: f64 = 0.02;
/// Least content of the line in bytes for the choice of queue and windows (a guess).
const CONTENT_MIN_BYTES: u64 = 512 << 10;

/// Extent of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct CheckPlan {
    /// Number of round trips.
    pub pings: usize,
    /// Time of each rate measurement.
    pub span: Duration,
    /// Number of datagrams for the loss.
    pub datagrams: u64,
}

impl CheckPlan {
    /// Returns measurements of half the length and less certainty, for labs with little time.
    pub fn short() -> Self {
        Self {
            pings: 10,
            span: Duration::from_secs(1),
            datagrams: 10_000,
        }
    }
}

impl Default for CheckPlan {
    fn default() -> Self {
        Self {
            pings: 20,
            span: Duration::from_secs(3),
            datagrams: 40_000,
        }
    }
}

/// A measured number and its specification.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Specified value.
    pub wanted: f64,
    /// Measured value.
    pub found: f64,
    /// Largest allowed difference.
    pub bound: f64,
}

impl Measured {
    fn new(wanted: f64, found: f64, bound: f64) -> Self {
        Self { wanted, found, bound }
    }

    /// Whether the difference is within the bound.
    pub fn holds(&self) -> bool {
        (self.found - self.wanted).abs() <= self.bound
    }

    /// Difference relative to the specified value.
    pub fn error(&self) -> f64 {
        (self.found - self.wanted) / self.wanted
    }
}

/// Measurements of one link.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// Specification, without the deep queue and the windows of the measurement.
    pub link: LinkSpec,
    /// Median round trip of small datagrams on the idle link, seconds.
    pub round_trip: Measured,
    /// Rate upwards by datagrams, bits a second on the wire.
    pub rate_udp: Measured,
    /// Rate downwards by TCP, bits a second on the wire.
    pub rate_tcp: Measured,
    /// Share of datagrams that did not arrive, on a second link that differs only in its loss.
    pub loss: Measured,
    /// Counters of the first link.
    pub stats: Stats,
}

impl Check {
    /// Whether all measurements are within their bounds.
    pub fn holds(&self) -> bool {
        [self.round_trip, self.rate_udp, self.rate_tcp, self.loss]
            .iter()
            .all(Measured::holds)
    }
}

/// Starts the link without and with loss, and measures both. Stops between its measurements when
/// `stop` returns true.
///
/// # Errors
/// A link cannot be started or measured, or the check was stopped (`Interrupted`). A link out of its
/// bounds is a result.
pub fn check(spec: &LinkSpec, plan: CheckPlan, stop: &(dyn Fn() -> bool + Sync)) -> Result<Check, LinkError> {
    let goes_on = || match stop() {
        true => Err(LinkError::of("check the link", io::ErrorKind::Interrupted.into())),
        false => Ok(()),
    };
    let (Some(up), Some(down)) = (spec.up, spec.down) else {
        return Err(LinkError::Spec("a link to check needs a rate".to_owned()));
    };
    let rate_of = |rate: Rate, found| Measured::new(rate.0 as f64, found, rate.0 as f64 * RATE_BOUND);
    let link = Link::start(roomy(spec, up.max(down)))?;
    let mut trips = probe::ping(&link, plan.pings)?;
    trips.sort();
    let median = trips.get(trips.len() / 2).map_or(0.0, Duration::as_secs_f64);
    goes_on()?;
    let rate_udp = rate_of(up, probe::udp_rate(&link, plan.span)?);
    goes_on()?;
    let rate_tcp = rate_of(down, probe::tcp_rate(&link, plan.span)?);
    let stats = link.stats();
    drop(link);
    goes_on()?;
    let rtt = spec.rtt.as_secs_f64();
    Ok(Check {
        round_trip: Measured::new(rtt, median, rtt * ROUND_TRIP_BOUND),
        rate_udp,
        rate_tcp,
        loss: lossy(spec, plan.datagrams)?,
        stats,
        link: spec.clone(),
    })
}

fn lossy(spec: &LinkSpec, datagrams: u64) -> Result<Measured, LinkError> {
    let loss = if spec.loss > 0.0 { spec.loss } else { LOSS };
    let link = Link::start(LinkSpec { loss, ..spec.uncut() })?;
    let (sent, arrived) = probe::loss(&link, datagrams)?;
    let sent = sent.max(1) as f64;
    let deviation = (loss * (1.0 - loss) / sent).sqrt();
    Ok(Measured::new(
        loss,
        1.0 - arrived as f64 / sent,
        LOSS_SIGMAS * deviation,
    ))
}

/// Returns the link with a queue that holds all windows.
fn roomy(spec: &LinkSpec, rate: Rate) -> LinkSpec {
    let content = rate.bytes_in(spec.rtt).max(CONTENT_MIN_BYTES);
    let mut spec = LinkSpec {
        loss: 0.0,
        queue: Some(content * 10),
        ..spec.uncut()
    };
    // Half of a receive buffer is window, so four connections have four times the line's content, and
    // at most eight times if the kernel counts differently.
    spec.tcp.buffer_max_bytes = Some(content * 2);
    spec.tcp.window_max_bytes = None;
    spec.tcp.congestion = "reno".parse().ok();
    spec
}
