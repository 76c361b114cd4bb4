//! TCP ports: reserved ones for servers, and ports at which nobody is.
//!
//! smbd listens with SO_REUSEPORT, so two of them could share a port without an error, and each would get half of the
//! connections. So a port is reserved by a lock on a file, among all processes that use this crate. Ports are below
//! the range of ephemeral ports: an outgoing connection cannot take one while its server is down between two starts.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::PeerError;

/// First port that is given away: above what services use.
const FIRST: u16 = 20_000;
/// How many there are: Linux's ephemeral ports begin at 32,768.
const COUNT: u16 = 12_000;

/// A port that nobody else gets while this lives.
#[derive(Debug)]
pub(crate) struct PortLock {
    port: u16,
    _lock: File,
}

impl PortLock {
    pub(crate) fn take() -> Result<Self, PeerError> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let user = rustix::process::getuid().as_raw();
        let folder = std::env::temp_dir().join(format!("ropeway-peers-ports-{user}"));
        fs::create_dir_all(&folder)
            .map_err(|error| PeerError::failed(format_args!("cannot make {}", folder.display()), error))?;
        // Processes begin at different places, so that they seldom meet.
        let start = std::process::id().wrapping_mul(61) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = FIRST + start.wrapping_add(step) % COUNT;
            let Ok(lock) = File::create(folder.join(port.to_string())) else {
                continue;
            };
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(Self { port, _lock: lock });
            }
        }
        Err(PeerError::Failed("no port is free".to_owned()))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// A port that refuses connections, and goes on doing so while this lives: bound, not listening.
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ClosedPort {
    /// One on 127.0.0.1.
    ///
    /// # Errors
    /// If there is no socket to be had.
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

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A port that takes connections and never says a word: the kernel answers, nobody accepts.
#[derive(Debug)]
pub struct SilentPort {
    listener: TcpListener,
    address: SocketAddr,
}

impl SilentPort {
    /// One on 127.0.0.1.
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn new() -> Result<Self, PeerError> {
        let failed = |error| PeerError::failed("cannot listen", error);
        let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The listener, for a test that wants to answer something after all.
    #[must_use]
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn ports_are_reserved_and_free() {
        let (one, two) = (PortLock::take().unwrap(), PortLock::take().unwrap());
        assert_ne!(one.port(), two.port());
        assert!((FIRST..FIRST + COUNT).contains(&one.port()));
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, one.port())).is_ok());
    }

    #[test]
    fn a_closed_port_refuses_and_a_silent_one_takes() {
        let closed = ClosedPort::new().unwrap();
        let error = TcpStream::connect(closed.address()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
        let silent = SilentPort::new().unwrap();
        TcpStream::connect(silent.address()).unwrap();
    }
}
