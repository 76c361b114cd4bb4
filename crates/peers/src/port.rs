//! TCP ports: reserved ports for servers, and ports without a server.
//!
//! smbd listens with SO_REUSEPORT: two instances could share a port without an error, and each
//! would get half of the connections. So a lock on a file reserves a port among all processes that
//! use this crate. Ports lie below the range of ephemeral ports, so an outgoing connection cannot
//! take one while its server restarts.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::PeerError;

/// First port: above those of common services.
const FIRST: u16 = 20_000;
/// Number of ports: Linux's ephemeral ports begin at 32,768.
const COUNT: u16 = 12_000;

/// A port, reserved until drop.
#[derive(Debug)]
pub(crate) struct PortLock {
    port: u16,
    _lock: Option<File>,
}

impl PortLock {
    /// Reserves a free port of 127.0.0.1, or any port for a server in its own network namespace,
    /// where only this process starts servers.
    pub(crate) fn take(in_namespace: bool) -> Result<Self, PeerError> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        if in_namespace {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            return Ok(Self {
                port: FIRST + step % COUNT,
                _lock: None,
            });
        }
        let user = outer_user();
        let folder = std::env::temp_dir().join(format!("ropeway-peers-ports-{user}"));
        fs::create_dir_all(&folder)
            .map_err(|error| PeerError::failed(format_args!("cannot make {}", folder.display()), error))?;
        // Processes start at different ports, so that they seldom compete.
        let start = std::process::id().wrapping_mul(61) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = FIRST + start.wrapping_add(step) % COUNT;
            let Ok(lock) = File::create(folder.join(port.to_string())) else {
                continue;
            };
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Self {
                    port,
                    _lock: Some(lock),
                });
            }
        }
        Err(PeerError::Failed("no port is free".to_owned()))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Returns the user id outside any user namespace, where file owners are those of other processes
/// (user_namespaces(7)).
fn outer_user() -> u32 {
    let own = rustix::process::getuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let fields: Vec<u32> = map
        .split_whitespace()
        .take(2)
        .filter_map(|word| word.parse().ok())
        .collect();
    match fields[..] {
        [inside, outside] => own.saturating_sub(inside).saturating_add(outside),
        _ => own,
    }
}

/// A port that refuses connections until drop: bound, not listening.
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ClosedPort {
    /// Binds a port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free socket.
    pub fn new() -> Result<Self, PeerError> {
        let made = || -> rustix::io::Result<_> {
            let socket = socket_with(
                AddressFamily::INET,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            let address = SocketAddr::try_from(getsockname(&socket)?)?;
            Ok((socket, address))
        };
        let (socket, address) = made().map_err(|error| PeerError::failed("cannot bind a port", error))?;
        Ok(Self {
            address,
            _socket: socket,
        })
    }

    /// Address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A port that takes connections and never answers: the kernel completes them, and no process
/// accepts them.
#[derive(Debug)]
pub struct SilentPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl SilentPort {
    /// Listens on a port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no free socket.
    pub fn new() -> Result<Self, PeerError> {
        let failed = |error| PeerError::failed("cannot listen", error);
        let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Address and port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener, for a test that answers after all.
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn reserved_ports_differ_and_are_free() {
        let (one, two) = (PortLock::take(false).unwrap(), PortLock::take(false).unwrap());
        assert_ne!(one.port(), two.port());
        assert!((FIRST..FIRST + COUNT).contains(&one.port()));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, one.port())).is_ok());
    }

    #[test]
    fn a_closed_port_refuses_connections_and_a_silent_port_takes_them() {
        let closed = ClosedPort::new().unwrap();
        let error = TcpStream::connect(closed.address()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let silent = SilentPort::new().unwrap();
        TcpStream::connect(silent.address()).unwrap();
    }
}
