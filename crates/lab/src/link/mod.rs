//! An emulated WAN link.
//!
//! ```text
//!   near namespace                  this process                     far namespace
//!   198.18.0.1  ── TUN ──▶ [queue | rate | loss | delay] ──▶ TUN ──  198.18.0.2
//!               ◀── TUN ── [delay | loss | rate | queue] ◀── TUN
//! ```
//!
//! Two network namespaces each have one TUN device, with a [`Line`] for each direction between them. The
//! packets are those of the kernel's TCP, so windows, congestion control and ECN are real. Segmentation
//! offload stays on: packets of up to 64 KiB pass whole, and are charged, lost and dropped as the
//! segments that they stand for.
//!
//! Invariants: namespaces have no name and no holder process, only descriptors of this process, so they
//! end with it. Dropping a [`Link`] ends every process that is left in them.

mod arena;
mod check;
mod describe;
mod driver;
mod error;
mod floor;
mod line;
mod namespace;
mod packet;
mod probe;
mod relay;
mod setup;
mod spec;
pub(crate) mod sys;
mod user;
mod window;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Instant;

pub use check::{Check, CheckPlan, Measured, check};
pub use describe::{describe, rates};
pub use error::LinkError;
pub use floor::{Flow, floor, line_time};
pub use line::{Counters, Line, LineConfig, Load, Run};
pub use probe::{loss, ping, tcp_rate, udp_rate};
pub use relay::Relay;
pub use spec::{
    Congestion, Cut, FRAMING_BYTES, LinkSpec, Rate, TcpSpec, parse_loss, parse_time, payload_on_wire,
    round_trip,
};
pub use user::{can_make_namespaces, enter_user_namespace};

use driver::Driver;
use namespace::Namespace;
use sys::Tun;

/// Address of the near end; [RFC 2544] reserves the network for such measurements.
///
/// [RFC 2544]: https://www.rfc-editor.org/rfc/rfc2544#appendix-C.2.2
pub const NEAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Address of the far end.
pub const FAR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side of the client.
    Near,
    /// The side of the server.
    Far,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stats {
    /// From near to far.
    pub up: Counters,
    /// From far to near.
    pub down: Counters,
}

/// A running link.
#[derive(Debug)]
pub struct Link {
    // Drop order: the driver with the devices, then the namespaces with their last descriptors.
    driver: Driver,
    near: Namespace,
    far: Namespace,
    spec: LinkSpec,
    congestion: String,
}

impl Link {
    /// Creates both namespaces and starts the line and the clock of [`LinkSpec::cuts`].
    ///
    /// # Errors
    /// The specification is invalid; namespaces or TUN are not permitted (see
    /// [`enter_user_namespace`]); a tool or a congestion control is missing.
    pub fn start(spec: LinkSpec) -> Result<Self, LinkError> {
        spec.check()?;
        let near = Namespace::create()?;
        let far = Namespace::create()?;
        let (near_tun, congestion) = setup::end(&near, NEAR, FAR, &spec, spec.up)?;
        let (far_tun, _) = setup::end(&far, FAR, NEAR, &spec, spec.down)?;
        let (near_tun, far_tun): (Arc<Tun>, Arc<Tun>) = (Arc::new(near_tun), Arc::new(far_tun));
        let driver = Driver::start(&spec, &near_tun, &far_tun)?;
        Ok(Self {
            driver,
            near,
            far,
            spec,
            congestion,
        })
    }

    /// Specification of the link.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Congestion control of both ends.
    pub fn congestion(&self) -> &str {
        &self.congestion
    }

    /// Address of the far end.
    pub fn far_addr(&self) -> IpAddr {
        FAR.into()
    }

    /// Path of the far namespace for `nsenter --net=PATH`, valid until drop.
    pub fn far_netns_path(&self) -> PathBuf {
        self.far.path()
    }

    /// Starts a process on one side, with `ROPEWAY_FAR`, `ROPEWAY_FAR_NETNS` and, if the link has a rate,
    /// `ROPEWAY_LINK_RATE` set. Dropping the link ends it.
    ///
    /// # Errors
    /// As `Command::spawn`.
    pub fn spawn(&self, side: Side, command: &mut Command) -> std::io::Result<Child> {
        command.env("ROPEWAY_FAR", self.far_addr().to_string());
        command.env("ROPEWAY_FAR_NETNS", self.far_netns_path());
        command.env("ROPEWAY_LINK", "packets");
        if let Some(rate) = self.spec().rate_most() {
            command.env("ROPEWAY_LINK_RATE", format!("{}bit", rate.0));
        }
        self.namespace(side).run(|| command.spawn())?
    }

    /// Runs a closure on a new thread on one side. Sockets that it creates stay on that side.
    ///
    /// # Errors
    /// The thread cannot be started or enter the namespace.
    pub fn run<R: Send>(&self, side: Side, work: impl FnOnce() -> R + Send) -> std::io::Result<R> {
        self.namespace(side).run(work)
    }

    /// Cuts or restores the link, in addition to [`LinkSpec::cuts`]. Packets in flight are lost.
    pub fn cut(&self, cut: bool) {
        self.driver.cut(cut);
    }

    /// Restarts the clock of [`LinkSpec::cuts`].
    pub fn begin_cuts(&self) {
        self.driver.count_cuts(Some(Instant::now()));
    }

    /// Suspends [`LinkSpec::cuts`] until [`Self::begin_cuts`], and restores the link.
    pub fn suspend_cuts(&self) {
        self.driver.count_cuts(None);
    }

    /// Counters so far; at most a few milliseconds old.
    pub fn stats(&self) -> Stats {
        self.driver.stats()
    }

    fn namespace(&self, side: Side) -> &Namespace {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // While packets still flow, so that processes can close their connections.
        namespace::end_members(&[&self.near, &self.far]);
    }
}
