//! TCP sockets: connecting to a server, and the socket options.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use ropeway_tcp::Outcome;
use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::endpoint::Endpoint;
use crate::error::{Error, LOOK_UP, Result};
use crate::options::TcpOptions;

/// Idle time before the kernel sends keep-alive probes. A guess: shorter than the time for which
/// firewalls keep state.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Time limit for one of several addresses. A guess: three lost SYNs (1 + 2 + 4 s) and the fourth's
/// round trip.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(8);

/// A connected socket.
pub struct Connected {
    /// The socket.
    pub stream: TcpStream,
    /// The address that answered.
    pub address: SocketAddr,
    /// Duration of the TCP handshake.
    pub round_trip: Duration,
}

/// Connects to the first address of `endpoint` that answers within `limit`. `timeout`: how long the
/// connection may wait for acknowledgments later.
///
/// # Errors
/// [`Error::Local`], [`Error::Misuse`].
pub async fn connect(
    endpoint: &Endpoint,
    options: &TcpOptions,
    limit: Duration,
    timeout: Duration,
) -> Result<Connected> {
    check_ecn(options)?;
    let deadline = Instant::now() + limit;
    let host = (endpoint.host.as_str(), endpoint.port);
    let found = timeout_at(deadline, lookup_host(host)).await;
    let addresses: Vec<SocketAddr> = found
        .map_err(|_| Error::local(LOOK_UP, ErrorKind::TimedOut.into()))?
        .map_err(|source| Error::local(LOOK_UP, source))?
        .collect();
    let mut fault = io::Error::from(ErrorKind::NotFound);
    for (index, address) in addresses.iter().enumerate() {
        let is_last = index + 1 == addresses.len();
        let until = if is_last {
            deadline
        } else {
            deadline.min(Instant::now() + ADDRESS_TIMEOUT)
        };
        let begun = Instant::now();
        match timeout_at(until, connect_to(*address, options, timeout)).await {
            Ok(Ok(stream)) => {
                return Ok(Connected {
                    stream,
                    address: *address,
                    round_trip: begun.elapsed(),
                });
            }
            Ok(Err(source)) => fault = source,
            Err(_) => fault = ErrorKind::TimedOut.into(),
        }
        tracing::debug!(%address, %fault, "no connection");
    }
    Err(Error::local("connect to the server", fault))
}

/// Connects to one address.
pub(crate) async fn connect_to(
    address: SocketAddr,
    options: &TcpOptions,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // Set before the handshake: it fixes the window scale, and the congestion control measures its
    // round trip.
    if let Some(window) = options.window {
        socket.set_recv_buffer_size(window)?;
        socket.set_send_buffer_size(window)?;
    }
    options.congestion.prepare(&socket)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    let idle = options.keepalive.unwrap_or(KEEPALIVE);
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, idle)?;
    sockopt::set_tcp_keepintvl(&socket, (idle / 3).max(Duration::from_secs(1)))?;
    let unanswered = options.user_timeout.unwrap_or(timeout).as_millis();
    sockopt::set_tcp_user_timeout(&socket, u32::try_from(unanswered).unwrap_or(u32::MAX))?;
    let stream = socket.connect(address).await?;
    match options.congestion.suit(&stream) {
        Outcome::Unchanged => {}
        Outcome::Bbr => {
            tracing::debug!(%address, "a long line: BBR instead of the system's congestion control")
        }
        other => tracing::debug!(%address, ?other, "a long line without BBR"),
    }
    Ok(stream)
}

/// Checks the system's ECN setting. Linux has no socket option for ECN: the system either requests
/// it (`1`) or does not (`0`, `2`).
fn check_ecn(options: &TcpOptions) -> Result<()> {
    let Some(wanted) = options.ecn else { return Ok(()) };
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn");
    let is_on = setting.is_ok_and(|setting| setting.trim() == "1");
    if is_on == wanted {
        return Ok(());
    }
    Err(Error::Misuse(if wanted {
        "ECN is a setting of the system: set net.ipv4.tcp_ecn to 1"
    } else {
        "ECN is a setting of the system: set net.ipv4.tcp_ecn to 0"
    }))
}
