//! Proves a link: rate, round trip and loss, measured by sockets at both ends.
//!
//! The rate is measured upwards by datagrams and downwards by TCP with segmentation offload. For the latter the queue is
//! deep and windows are bounded to what fits, with reno: so that TCP never loses or waits, and what is measured is the
//! line. How well TCP does on a link with a common queue is what `floor` measures.

use std::io;
use std::time::Duration;

use serde::Serialize;

use super::error::LinkError;
use super::spec::{LinkSpec, Rate};
use super::{Link, Stats, probe};

/// Part by which a measured rate may differ.
const RATE_BOUND: f64 = 0.01;
/// Part by which a measured round trip may differ.
const ROUND_TRIP_BOUND: f64 = 0.02;
/// Standard deviations by which a measured loss may differ: beyond them once in 16,000 honest runs.
const LOSS_SIGMAS: f64 = 4.0;
/// Loss to measure where none is asked for.
const LOSS: f64 = 0.02;
/// Least bytes that count as a line's content when queue and windows are chosen (a guess).
const CONTENT_MIN_BYTES: u64 = 512 << 10;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct CheckPlan {
    /// Round trips.
    pub pings: usize,
    /// Each rate.
    pub span: Duration,
    /// Datagrams for the loss.
    pub datagrams: u64,
}

impl CheckPlan {
    /// Half as long, and less sure: where little time is given to a lab.
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

/// A number and what it should be.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// As asked for.
    pub wanted: f64,
    /// As found.
    pub found: f64,
    /// Most that they may differ.
    pub bound: f64,
}

impl Measured {
    /// Whether it is within its bound.
    pub fn holds(&self) -> bool {
        (self.found - self.wanted).abs() <= self.bound
    }

    /// Difference as a part of what is wanted.
    pub fn error(&self) -> f64 {
        (self.found - self.wanted) / self.wanted
    }
}

/// What was found of one link.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The link, without the deep queue and the windows that were used.
    pub link: LinkSpec,
    /// Median round trip of small datagrams on the idle link, seconds.
    pub round_trip: Measured,
    /// Rate upwards by datagrams, bits a second on the wire.
    pub rate_udp: Measured,
    /// Rate downwards by TCP, bits a second on the wire.
    pub rate_tcp: Measured,
    /// Part of datagrams that did not arrive, on a second link that differs only in its loss.
    pub loss: Measured,
    /// What the first link says of itself.
    pub stats: Stats,
}

impl Check {
    /// Whether everything is within its bound.
    pub fn holds(&self) -> bool {
        [self.round_trip, self.rate_udp, self.rate_tcp, self.loss]
            .iter()
            .all(Measured::holds)
    }
}

/// Starts the link twice, without loss and with, and measures.
///
/// # Errors
/// A link cannot be started or measured. That it is out of bounds is a result.
pub fn check(spec: &LinkSpec, plan: CheckPlan) -> Result<Check, LinkError> {
    check_until(spec, plan, &|| false)
}

/// [`check`], given up between its measurements when `stop` says so.
///
/// # Errors
/// A link cannot be started or measured, or it was given up (`Interrupted`).
pub fn check_until(
    spec: &LinkSpec,
    plan: CheckPlan,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Check, LinkError> {
    let goes_on = || match stop() {
        true => Err(LinkError::of("check the link", io::ErrorKind::Interrupted.into())),
        false => Ok(()),
    };
    let (Some(up), Some(down)) = (spec.up, spec.down) else {
        return Err(LinkError::Spec("a link to check needs a rate".to_owned()));
    };
    let rate_of = |rate: Rate, found: f64| Measured {
        wanted: rate.0 as f64,
        found,
        bound: rate.0 as f64 * RATE_BOUND,
    };
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
    Ok(Check {
        round_trip: Measured {
            wanted: spec.rtt.as_secs_f64(),
            found: median,
            bound: spec.rtt.as_secs_f64() * ROUND_TRIP_BOUND,
        },
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
    Ok(Measured {
        wanted: loss,
        found: 1.0 - arrived as f64 / sent,
        bound: LOSS_SIGMAS * (loss * (1.0 - loss) / sent).sqrt(),
    })
}

/// The link with a queue that holds all windows.
fn roomy(spec: &LinkSpec, rate: Rate) -> LinkSpec {
    let content = rate.bytes_in(spec.rtt).max(CONTENT_MIN_BYTES);
    let mut spec = LinkSpec {
        loss: 0.0,
        queue: Some(content * 10),
        ..spec.uncut()
    };
    // Half of a receive buffer is window, so four connections have four times the line's content, and never more than
    // eight if the kernel counts otherwise.
    spec.tcp.buffer_max_bytes = Some(content * 2);
    spec.tcp.window_max_bytes = None;
    spec.tcp.congestion = "reno".parse().ok();
    spec
}
