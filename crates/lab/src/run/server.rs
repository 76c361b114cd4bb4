//! Servers at the far end, and the way to them. The servers are private instances of [`ropeway_peers`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use ropeway_live::client;
use ropeway_live::protocol::Request;
use ropeway_peers::{
    Encryption, Instance, PeerError, Remote, RopewayServe, Rsyncd, Share, Signing, Smbd, SmbdBuilder,
};

use super::tools::Tools;
use crate::link::{Link, LinkError, LinkSpec, Relay, Side};
use crate::scenario::{Direction, Protection, Server};

/// The only user.
pub(crate) const USER: &str = "lab";
/// Password of the user; never an argument of a process.
pub(crate) const PASSWORD: &str = "lab secret";
/// Name of the share, or module, that holds the work.
pub(crate) const SOURCE: &str = "source";
/// Name of the share, or module, that takes copies.
pub(crate) const TARGET: &str = "target";

/// Longest time that a server may take to tell its figures.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The way between client and server.
#[derive(Debug)]
pub(crate) enum Route {
    /// Two network namespaces with emulated packets between them.
    Packets(Box<Link>),
    /// A relay on the loopback for each server.
    Relay(Box<LinkSpec>),
    /// This machine's loopback.
    Loopback,
}

impl Route {
    /// Sets up an emulated link, or relays for it. The link is cut only during runs; see
    /// [`Self::begin_run`].
    ///
    /// # Errors
    /// The link cannot be set up.
    pub(crate) fn start(spec: &LinkSpec, relay: bool) -> Result<Self, LinkError> {
        if relay {
            return Ok(Self::Relay(Box::new(spec.relayed())));
        }
        let link = Link::start(spec.clone())?;
        link.suspend_cuts();
        Ok(Self::Packets(Box::new(link)))
    }

    /// Starts the clock of the link's cuts.
    pub(super) fn begin_run(&self) {
        if let Self::Packets(link) = self {
            link.begin_cuts();
        }
    }

    /// Restores the link until the next run.
    pub(super) fn end_run(&self) {
        if let Self::Packets(link) = self {
            link.suspend_cuts();
        }
    }

    /// Starts a process on a side.
    pub(crate) fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        match self {
            Self::Packets(link) => link.spawn(side, command),
            Self::Relay(_) | Self::Loopback => command.spawn(),
        }
    }

    /// Returns the emulated link, if there is one.
    pub(super) fn link(&self) -> Option<&Link> {
        match self {
            Self::Packets(link) => Some(link),
            Self::Relay(_) | Self::Loopback => None,
        }
    }

    /// Bytes on the wire so far in a direction; `None` where no packets are counted.
    pub(super) fn wire_bytes(&self, direction: Direction) -> Option<u64> {
        let Self::Packets(link) = self else {
            return None;
        };
        let stats = link.stats();
        Some(match direction {
            Direction::Read => stats.down.wire_bytes,
            Direction::Write => stats.up.wire_bytes,
        })
    }

    /// Namespace and address for a server; `None` on the loopback.
    fn far(&self) -> Option<(PathBuf, IpAddr)> {
        match self {
            Self::Packets(link) => Some((link.far_netns_path(), link.far_addr())),
            Self::Relay(_) | Self::Loopback => None,
        }
    }
}

/// What a server offers, and where it keeps its own files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exports<'a> {
    /// Folder of the share [`SOURCE`], read-only.
    pub(crate) source: &'a Path,
    /// Folder of the share [`TARGET`].
    pub(crate) target: &'a Path,
    /// Folder in which the server makes its own.
    pub(crate) scratch: &'a Path,
    /// What the server demands; `None` for its defaults.
    pub(crate) protection: Option<Protection>,
    /// Further flags of `ropeway serve`.
    pub(crate) flags: &'a [&'a str],
}

/// A running server; killed on drop.
#[derive(Debug)]
pub(crate) struct Served {
    // Ended before its relay.
    instance: Instance,
    address: SocketAddr,
    _relay: Option<Relay>,
}

impl Served {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The server does not start; the text is the reason.
    pub(crate) fn start(
        server: Server,
        tools: &Tools,
        route: &Route,
        exports: Exports<'_>,
    ) -> Result<Self, String> {
        std::fs::create_dir_all(exports.scratch).map_err(|error| format!("does not start: {error}"))?;
        let started = match server {
            Server::Ropeway | Server::SmbServer => serve(tools.path(server.name()), route, exports),
            Server::Smbd => smbd(Smbd::builder(), route, exports),
            Server::SmbdSmb1 => smbd(Smbd::builder().smb1(), route, exports),
            Server::Rsyncd => rsyncd(route, exports),
        };
        let instance = started.map_err(|error| error.to_string())?;
        let own = instance.address();
        let relay = match route {
            Route::Relay(spec) => Some(Relay::start(0, own.port(), spec).map_err(|error| error.to_string())?),
            Route::Packets(_) | Route::Loopback => None,
        };
        Ok(Self {
            instance,
            address: relay.as_ref().map_or(own, Relay::address),
            _relay: relay,
        })
    }

    /// Address and port that clients connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Login data for a client with its own folder `scratch`.
    pub(crate) fn remote<'a>(&self, scratch: &'a Path) -> Remote<'a> {
        Remote {
            address: self.address,
            user: USER,
            password: PASSWORD,
            scratch,
        }
    }

    /// User and system time of all processes so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.instance.cpu()
    }

    /// Returns a counter of the requests that it got; `None` if it is no `ropeway serve`, or cannot be
    /// asked.
    pub(super) fn requests(&self) -> Option<Requests> {
        let pids = self.instance.pids();
        let found = client::scan().found;
        let address = found.into_iter().find(|address| pids.contains(&address.pid))?;
        let mut requests = Requests {
            connection: address.connect().ok()?,
        };
        requests.count().map(|_| requests)
    }

    /// Memory of all processes now, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.instance.memory_bytes()
    }
}

/// Asks a running `ropeway serve` for the number of requests so far.
pub(super) struct Requests {
    connection: client::Connection,
}

impl Requests {
    /// Returns the number; `None` if the server does not answer soon.
    pub(super) fn count(&mut self) -> Option<u64> {
        let question = Request::Status { history: false };
        self.connection.send(&question, ANSWER_MAX).ok()?;
        let snapshot = self.connection.receive(ANSWER_MAX).ok()??;
        Some(snapshot.servers.iter().map(|server| server.requests).sum())
    }
}

fn serve(program: PathBuf, route: &Route, exports: Exports<'_>) -> Result<Instance, PeerError> {
    let builder = RopewayServe::new(&program)
        .user(USER, PASSWORD)
        .read_only_share(SOURCE, exports.source)
        .share(TARGET, exports.target)
        .below(exports.scratch)
        .flags(exports.flags);
    let builder = match exports.protection {
        None => builder,
        Some(Protection::Signed) => builder.flags(&["--sign", "required", "--encrypt", "off"]),
        Some(Protection::Sealed) => builder.flags(&["--encrypt", "required"]),
    };
    builder.in_namespace(route.far()).start()
}

fn smbd(builder: SmbdBuilder, route: &Route, exports: Exports<'_>) -> Result<Instance, PeerError> {
    let builder = builder
        .durable_handles(false)
        .log_level(0)
        .user(USER, PASSWORD)
        .share(Share::new(SOURCE, exports.source).read_only())
        .share(Share::new(TARGET, exports.target))
        .below(exports.scratch);
    let builder = match exports.protection {
        None => builder,
        Some(Protection::Signed) => builder.signing(Signing::Mandatory).encryption(Encryption::Off),
        Some(Protection::Sealed) => builder.encryption(Encryption::Required),
    };
    Ok(builder.in_namespace(route.far()).start()?.into())
}

fn rsyncd(route: &Route, exports: Exports<'_>) -> Result<Instance, PeerError> {
    let builder = Rsyncd::new()
        .read_only_module(SOURCE, exports.source)
        .module(TARGET, exports.target)
        .below(exports.scratch);
    builder.in_namespace(route.far()).start()
}
