//! `--announce`: file managers find the server by multicast DNS (macOS, Linux) and WS-Discovery
//! (Windows).
//!
//! ```text
//! dns, responder   multicast DNS: packets, states   (pure)
//! wsd              WS-Discovery: messages           (pure)
//! interfaces       addresses to announce
//! discovery        WS-Discovery's sockets and its HTTP server
//! this module      multicast DNS's sockets
//! ```
//!
//! Each protocol has one thread, a socket that receives from its multicast group, and one socket
//! per interface for sending. Both use IPv4 only; IPv6 addresses on which the server listens are
//! announced too.
//!
//! The crate mdns-sd (0.21) is not used: it binds 0.0.0.0:5353 and replies to unicast queries from
//! beyond the link, against RFC 6762, 5.5. A socket bound to the group never receives these.

mod discovery;
mod dns;
mod interfaces;
mod responder;
mod wsd;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use self::discovery::Discovery;
use self::dns::PACKET_MAX;
use self::responder::{Output, PORT, Responder};

/// Multicast group of multicast DNS (RFC 6762, 3).
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// Maximum time between checks of the stop flag.
const STOP_CHECK_EVERY: Duration = Duration::from_millis(200);

/// Announces the server until it is stopped.
pub(super) struct Announcer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Announcer {
    /// Announces a server that listens on `listened`, and its shares for backups of Macs; also returns what does
    /// not work.
    ///
    /// # Errors
    /// The reason why nothing can be announced.
    pub(super) fn start(
        name: &str,
        listened: &[SocketAddr],
        backups: &[String],
    ) -> Result<(Self, Vec<String>), String> {
        if listened.iter().all(|address| address.ip().is_loopback()) {
            return Err(
                "the server listens on the loopback only, where no other machine reaches it (see --listen)"
                    .to_owned(),
            );
        }
        let (interfaces, v6) = interfaces::listened_on(listened);
        if interfaces.is_empty() {
            return Err("the server listens on no interface with an IPv4 address".to_owned());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut threads, mut failures) = (Vec::new(), Vec::new());
        match MulticastDns::open((name, backups), listened, &interfaces, &v6) {
            Ok(mdns) => {
                let asked = Arc::clone(&stop);
                threads.push(spawn("mdns", move || mdns.run(&asked))?);
            }
            Err(error) => failures.push(format!("multicast DNS, port {PORT} of UDP: {error}")),
        }
        // Windows uses port 445 only.
        if listened.iter().any(|address| address.port() == 445) {
            match Discovery::open(name, &interfaces) {
                Ok(discovery) => {
                    let asked = Arc::clone(&stop);
                    threads.push(spawn("wsd", move || discovery.run(&asked))?);
                }
                Err(why) => failures.push(format!("WS-Discovery: {why}")),
            }
        }
        if threads.is_empty() {
            return Err(failures.join("; "));
        }
        Ok((Self { stop, threads }, failures))
    }

    /// Sends goodbyes and waits for the threads.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            _ = thread.join();
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(|error| error.to_string())
}

struct MulticastDns {
    receiver: UdpSocket,
    senders: Vec<(UdpSocket, Responder)>,
    started: Instant,
}

impl MulticastDns {
    fn open(
        (name, backups): (&str, &[String]),
        listened: &[SocketAddr],
        interfaces: &[Ipv4Addr],
        v6: &[std::net::Ipv6Addr],
    ) -> io::Result<Self> {
        // Bound to the group, so the socket does not receive datagrams to an address of this
        // machine, and none from beyond the link.
        let receiver = shared_socket(GROUP, PORT)?;
        receiver.set_read_timeout(Some(STOP_CHECK_EVERY))?;
        let mut senders = Vec::new();
        for &interface in interfaces {
            receiver.join_multicast_v4(&GROUP, &interface)?;
            // Bound to the interface's address, which also selects the interface for multicast
            // (ip(7)).
            let socket = shared_socket(interface, PORT)?;
            // Required by RFC 6762, 11.
            socket.set_multicast_ttl_v4(255)?;
            let port = port_at(listened, interface);
            let mut addresses = vec![IpAddr::V4(interface)];
            addresses.extend(v6.iter().copied().map(IpAddr::V6));
            let responder = Responder::new(name, port, addresses, 0).with_backups(backups.to_vec());
            senders.push((socket, responder));
        }
        Ok(Self {
            receiver,
            senders,
            started: Instant::now(),
        })
    }

    fn run(mut self, stop: &AtomicBool) {
        let mut packet = vec![0; PACKET_MAX];
        while !stop.load(Ordering::Relaxed) {
            self.wait();
            let heard = self.receiver.recv_from(&mut packet);
            let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            for (socket, responder) in &mut self.senders {
                if let Ok((length, from)) = &heard {
                    send(socket, responder.handle_input(now_ms, &packet[..*length], *from));
                }
                send(socket, responder.handle_timeout(now_ms));
            }
            if let Err(error) = heard
                && !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            {
                std::thread::sleep(STOP_CHECK_EVERY);
            }
        }
        for (socket, responder) in &self.senders {
            send(socket, responder.goodbye());
        }
    }

    /// Limits the wait for the next packet to the next deadline and the next check of the stop
    /// flag.
    fn wait(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = self
            .senders
            .iter()
            .filter_map(|(_, responder)| responder.poll_timeout())
            .min();
        let wait = due.map_or(STOP_CHECK_EVERY, |due| {
            Duration::from_millis(due.saturating_sub(now_ms))
        });
        // A timeout of zero would mean no timeout.
        let wait = wait.clamp(Duration::from_millis(1), STOP_CHECK_EVERY);
        _ = self.receiver.set_read_timeout(Some(wait));
    }
}

fn send(socket: &UdpSocket, output: Option<Output>) {
    let (to, message) = match output {
        None => return,
        Some(Output::Multicast(message)) => (SocketAddr::from((GROUP, PORT)), message),
        // Of several interfaces, the one on the route to the peer replies.
        Some(Output::Unicast(to, _)) if !is_towards(socket, to) => return,
        Some(Output::Unicast(to, message)) => (to, message),
    };
    if let Err(error) = socket.send_to(&message.encode(), to) {
        tracing::debug!(%error, %to, "cannot announce");
    }
}

/// Returns whether the route to a peer uses the socket's interface. Consults the routing table;
/// sends nothing.
fn is_towards(socket: &UdpSocket, to: SocketAddr) -> bool {
    let route = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|probe| probe.connect(to).and_then(|()| probe.local_addr()));
    match (route, socket.local_addr()) {
        (Ok(route), Ok(own)) => route.ip() == own.ip(),
        _ => false,
    }
}

/// Returns the port that clients on an interface should use.
fn port_at(listened: &[SocketAddr], interface: Ipv4Addr) -> u16 {
    let here = listened
        .iter()
        .find(|address| address.ip() == IpAddr::V4(interface));
    let anywhere = listened.iter().find(|address| address.ip().is_unspecified());
    here.or(anywhere).map_or(445, SocketAddr::port)
}

/// Opens a socket on a port that other responders use too.
fn shared_socket(address: Ipv4Addr, port: u16) -> io::Result<UdpSocket> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(address, port))?;
    Ok(UdpSocket::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_the_loopback_is_not_announced() {
        let listened = ["127.0.0.1:4450".parse().unwrap(), "[::1]:4450".parse().unwrap()];
        let why = Announcer::start("nas", &listened, &[]).err().unwrap();
        assert!(why.contains("loopback"), "{why}");
    }

    #[test]
    fn the_announced_port_is_that_of_the_interface() {
        let listened = ["0.0.0.0:445".parse().unwrap(), "192.0.2.7:4450".parse().unwrap()];
        assert_eq!(port_at(&listened, Ipv4Addr::new(192, 0, 2, 7)), 4450);
        assert_eq!(port_at(&listened, Ipv4Addr::new(192, 0, 2, 8)), 445);
    }
}
