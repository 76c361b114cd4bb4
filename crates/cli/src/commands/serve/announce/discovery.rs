//! WS-Discovery's sockets: the multicast group, one socket per interface, and HTTP on port 5357.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use hyper::http::request::Parts;
use ropeway_page::server::{self, Reply, Site};

use super::wsd::{Device, MESSAGE_MAX, Stamp};
use super::{STOP_CHECK_EVERY, is_towards, shared_socket};

/// Multicast group and port (WS-Discovery, 2.4).
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 255, 250);
const PORT: u16 = 3702;
/// Port on which Windows' devices serve their metadata (WSDAPI); firewalls know it.
const HTTP_PORT: u16 = 5357;

/// Runs WS-Discovery.
pub(super) struct Discovery {
    device: Device,
    receiver: UdpSocket,
    senders: Vec<(UdpSocket, Ipv4Addr)>,
    number: AtomicU32,
}

/// Serves the device's metadata by HTTP.
struct MetadataSite(Device);

impl Site for MetadataSite {
    const METHODS: &'static [&'static str] = &["POST"];

    fn reply(&self, head: &Parts, body: &[u8]) -> Reply {
        let is_own = head.uri.path().strip_prefix('/') == Some(self.0.uuid.as_str());
        let metadata = is_own.then(|| self.0.metadata(body, &stamp(1))).flatten();
        match metadata {
            Some(metadata) => server::reply(StatusCode::OK, "application/soap+xml", metadata),
            None => server::reply(StatusCode::BAD_REQUEST, "text/plain", ""),
        }
    }
}

impl Discovery {
    /// Opens the sockets for a server on these interfaces.
    ///
    /// # Errors
    /// The reason as text.
    pub(super) fn open(name: &str, interfaces: &[Ipv4Addr]) -> Result<Self, String> {
        let label = name.split('.').next().unwrap_or(name);
        let instance = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let device = Device {
            uuid: own_uuid(name),
            // The host name that multicast DNS announces.
            computer: format!("{label}-ropeway"),
            instance: instance.as_secs(),
            port: HTTP_PORT,
        };
        let udp = |error: std::io::Error| format!("port {PORT} of UDP: {error}");
        let receiver = shared_socket(GROUP, PORT).map_err(udp)?;
        receiver.set_read_timeout(Some(STOP_CHECK_EVERY)).map_err(udp)?;
        let mut senders = Vec::new();
        for &interface in interfaces {
            receiver.join_multicast_v4(&GROUP, &interface).map_err(udp)?;
            let socket = shared_socket(interface, PORT).map_err(udp)?;
            socket.set_multicast_ttl_v4(1).map_err(udp)?;
            senders.push((socket, interface));
            server::start(
                SocketAddr::from((interface, HTTP_PORT)),
                MetadataSite(device.clone()),
            )
            .map_err(|error| format!("port {HTTP_PORT} of TCP: {error}"))?;
        }
        Ok(Self {
            device,
            receiver,
            senders,
            number: AtomicU32::new(1),
        })
    }

    /// Announces and answers until `stop` is set.
    pub(super) fn run(self, stop: &AtomicBool) {
        self.multicast(|device, at, stamp| device.hello(at, stamp));
        let mut packet = vec![0; MESSAGE_MAX + 1];
        while !stop.load(Ordering::Relaxed) {
            match self.receiver.recv_from(&mut packet) {
                Ok((length, from)) => self.answer(&packet[..length], from),
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => std::thread::sleep(STOP_CHECK_EVERY),
            }
        }
        self.multicast(|device, _, stamp| device.bye(stamp));
    }

    fn multicast(&self, message: impl Fn(&Device, Ipv4Addr, &Stamp) -> String) {
        for (socket, at) in &self.senders {
            let text = message(&self.device, *at, &self.stamp());
            // Sends twice, because datagrams get lost (SOAP-over-UDP, 2.1: MULTICAST_UDP_REPEAT).
            // The message id marks the second one as a repetition.
            for _ in 0..2 {
                send(socket, &text, SocketAddr::from((GROUP, PORT)));
            }
        }
    }

    fn answer(&self, packet: &[u8], from: SocketAddr) {
        let towards = self.senders.iter().find(|(socket, _)| is_towards(socket, from));
        if let Some((socket, at)) = towards
            && let Some(text) = self.device.answer(packet, *at, &self.stamp())
        {
            send(socket, &text, from);
        }
    }

    fn stamp(&self) -> Stamp {
        stamp(self.number.fetch_add(1, Ordering::Relaxed))
    }
}

fn send(socket: &UdpSocket, text: &str, to: SocketAddr) {
    if let Err(error) = socket.send_to(text.as_bytes(), to) {
        tracing::debug!(%error, %to, "cannot announce");
    }
}

fn stamp(number: u32) -> Stamp {
    let mut bytes = [0; 16];
    // Without random numbers all messages have one id and look like repetitions. That makes
    // discovery worse, but not the service.
    _ = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    Stamp {
        uuid: uuid(bytes),
        number,
    }
}

/// Returns the server's UUID, the same at each start of a server of that name on this machine. It
/// does not reveal the machine's id, as machine-id(5) demands.
fn own_uuid(name: &str) -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, "ropeway serve", machine.trim(), name).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half(1));
    bytes[8..].copy_from_slice(&half(2));
    uuid(bytes)
}

/// Formats a UUID of version 4 (RFC 9562).
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| &digits[from..to];
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_the_form_of_version_4() {
        assert_eq!(uuid([0xFF; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(own_uuid("nas"), own_uuid("nas"));
        assert_ne!(own_uuid("nas"), own_uuid("other"));
        assert_ne!(stamp(1).uuid, stamp(1).uuid);
    }
}
