//! `--announce`: lets file managers find the server, by multicast DNS (macOS, Linux) and WS-Discovery (Windows).
//!
//! ```text
//! dns, responder   multicast DNS: packets; what and when   (pure)
//! wsd              WS-Discovery: messages                  (pure)
//! interfaces       where
//! discovery        WS-Discovery's sockets, and its HTTP
//! here             multicast DNS's sockets
//! ```
//!
//! Each has a socket that hears its group, one for each interface that speaks, and one thread. IPv4 only; IPv6 addresses
//! are told where they are listened on.

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

/// Multicast DNS's group (RFC 6762, 3).
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// How often the thread looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Announces until it is stopped.
pub(super) struct Announcer {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Announcer {
    /// Announces a server that listens there; also gives what does not work of it.
    ///
    /// # Errors
    /// Why it cannot be announced at all.
    pub(super) fn start(name: &str, listened: &[SocketAddr]) -> Result<(Self, Vec<String>), String> {
        if listened.iter().all(|address| address.ip().is_loopback()) {
            return Err(
                "nobody else reaches a server that listens on the loopback only (--listen)".to_owned(),
            );
        }
        let (interfaces, further) = interfaces::listened_on(listened);
        if interfaces.is_empty() {
            return Err("there is no interface with an IPv4 address that it listens on".to_owned());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut threads, mut troubles) = (Vec::new(), Vec::new());
        match Speakers::open(name, listened, &interfaces, &further) {
            Ok(speakers) => {
                let asked = Arc::clone(&stop);
                threads.push(spawn("mdns", move || speakers.run(&asked))?);
            }
            Err(error) => troubles.push(format!("multicast DNS, port {PORT} of UDP: {error}")),
        }
        // Windows looks at port 445 only.
        if listened.iter().any(|address| address.port() == 445) {
            match Discovery::open(name, &interfaces) {
                Ok(discovery) => {
                    let asked = Arc::clone(&stop);
                    threads.push(spawn("wsd", move || discovery.run(&asked))?);
                }
                Err(why) => troubles.push(format!("WS-Discovery: {why}")),
            }
        }
        if threads.is_empty() {
            return Err(troubles.join("; "));
        }
        Ok((Self { stop, threads }, troubles))
    }

    /// Says goodbye.
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

struct Speakers {
    hears: UdpSocket,
    speaks: Vec<(UdpSocket, Responder)>,
    started: Instant,
}

impl Speakers {
    fn open(
        name: &str,
        listened: &[SocketAddr],
        interfaces: &[Ipv4Addr],
        further: &[std::net::Ipv6Addr],
    ) -> io::Result<Self> {
        // Bound to the group: what is sent to an address of this machine is not heard, so nothing from beyond the link.
        let hears = shared_socket(GROUP, PORT)?;
        hears.set_read_timeout(Some(LOOK_EVERY))?;
        let mut speaks = Vec::new();
        for &interface in interfaces {
            hears.join_multicast_v4(&GROUP, &interface)?;
            // Bound to the interface's address, which also sends multicasts there (ip(7)).
            let socket = shared_socket(interface, PORT)?;
            // RFC 6762, 11.
            socket.set_multicast_ttl_v4(255)?;
            let port = port_at(listened, interface);
            let mut addresses = vec![IpAddr::V4(interface)];
            addresses.extend(further.iter().copied().map(IpAddr::V6));
            speaks.push((socket, Responder::new(name, port, addresses, 0)));
        }
        Ok(Self {
            hears,
            speaks,
            started: Instant::now(),
        })
    }

    fn run(mut self, stop: &AtomicBool) {
        let mut packet = vec![0; PACKET_MAX];
        while !stop.load(Ordering::Relaxed) {
            self.wait();
            let heard = self.hears.recv_from(&mut packet);
            let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            for (socket, responder) in &mut self.speaks {
                if let Ok((length, from)) = &heard {
                    send(socket, responder.handle_input(now_ms, &packet[..*length], *from));
                }
                send(socket, responder.handle_timeout(now_ms));
            }
            if let Err(error) = heard
                && !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
            {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        for (socket, responder) in &self.speaks {
            send(socket, responder.goodbye());
        }
    }

    /// The next packet is awaited until something is due, or it may be time to stop.
    fn wait(&self) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = self
            .speaks
            .iter()
            .filter_map(|(_, responder)| responder.poll_timeout())
            .min();
        let wait = due.map_or(LOOK_EVERY, |due| {
            Duration::from_millis(due.saturating_sub(now_ms))
        });
        // A timeout of zero would be none.
        let wait = wait.clamp(Duration::from_millis(1), LOOK_EVERY);
        _ = self.hears.set_read_timeout(Some(wait));
    }
}

fn send(socket: &UdpSocket, output: Option<Output>) {
    let (to, message) = match output {
        None => return,
        Some(Output::Multicast(message)) => (SocketAddr::from((GROUP, PORT)), message),
        // Of several interfaces the one that leads there answers.
        Some(Output::Unicast(to, _)) if !is_towards(socket, to) => return,
        Some(Output::Unicast(to, message)) => (to, message),
    };
    if let Err(error) = socket.send_to(&message.encode(), to) {
        tracing::debug!(%error, %to, "cannot announce");
    }
}

/// Whether what goes there goes by the interface that the socket is bound to. Asks the routes; sends nothing.
fn is_towards(socket: &UdpSocket, to: SocketAddr) -> bool {
    let route = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|probe| probe.connect(to).and_then(|()| probe.local_addr()));
    match (route, socket.local_addr()) {
        (Ok(route), Ok(own)) => route.ip() == own.ip(),
        _ => false,
    }
}

/// The port that clients on an interface are told.
fn port_at(listened: &[SocketAddr], interface: Ipv4Addr) -> u16 {
    let here = listened
        .iter()
        .find(|address| address.ip() == IpAddr::V4(interface));
    let anywhere = listened.iter().find(|address| address.ip().is_unspecified());
    here.or(anywhere).map_or(445, SocketAddr::port)
}

/// A socket of the port, which other responders have too.
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
    fn a_loopback_is_not_announced() {
        let listened = ["127.0.0.1:4450".parse().unwrap(), "[::1]:4450".parse().unwrap()];
        let why = Announcer::start("nas", &listened).err().unwrap();
        assert!(why.contains("loopback"), "{why}");
    }

    #[test]
    fn the_port_is_that_of_the_interface() {
        let listened = ["0.0.0.0:445".parse().unwrap(), "192.0.2.7:4450".parse().unwrap()];
        assert_eq!(port_at(&listened, Ipv4Addr::new(192, 0, 2, 7)), 4450);
        assert_eq!(port_at(&listened, Ipv4Addr::new(192, 0, 2, 8)), 445);
    }
}
