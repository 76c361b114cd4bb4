//! `--announce`: lets file managers find the server by multicast DNS.
//!
//! ```text
//! dns         packets        (pure)
//! responder   what and when  (pure)
//! interfaces  where
//! here        a socket that hears the group, one for each interface that speaks, one thread
//! ```
//!
//! IPv4 only; IPv6 addresses are told where they are listened on. Windows asks by WS-Discovery, which is not answered: there
//! the address is typed.

mod dns;
mod interfaces;
mod responder;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use self::dns::PACKET_MAX;
use self::responder::{Output, PORT, Responder};

/// Multicast DNS's group (RFC 6762, 3).
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
/// How often the thread looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Announces until it is stopped.
pub(super) struct Announcer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Announcer {
    /// Announces a server that listens there.
    ///
    /// # Errors
    /// Why it cannot be announced.
    pub(super) fn start(name: &str, listened: &[SocketAddr]) -> Result<Self, String> {
        if listened.iter().all(|address| address.ip().is_loopback()) {
            return Err(
                "nobody else reaches a server that listens on the loopback only (--listen)".to_owned(),
            );
        }
        let (interfaces, further) = interfaces::listened_on(listened);
        if interfaces.is_empty() {
            return Err("there is no interface with an IPv4 address that it listens on".to_owned());
        }
        let speakers = Speakers::open(name, listened, &interfaces, &further)
            .map_err(|error| format!("port {PORT} of UDP: {error}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("announce".to_owned())
            .spawn(move || speakers.run(&asked))
            .map_err(|error| error.to_string())?;
        Ok(Self { stop, thread })
    }

    /// Says goodbye.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        _ = self.thread.join();
    }
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
        let hears = shared_socket(GROUP)?;
        hears.set_read_timeout(Some(LOOK_EVERY))?;
        let mut speaks = Vec::new();
        for &interface in interfaces {
            hears.join_multicast_v4(&GROUP, &interface)?;
            // Bound to the interface's address, which also sends multicasts there (ip(7)).
            let socket = shared_socket(interface)?;
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
        Some(Output::Unicast(to, message)) => (to, message),
    };
    if let Err(error) = socket.send_to(&message.encode(), to) {
        tracing::debug!(%error, %to, "cannot announce");
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
fn shared_socket(address: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(address, PORT))?;
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
