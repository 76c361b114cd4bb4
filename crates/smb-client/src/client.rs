//! The entry point: a client that is logged in to one server.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use ropeway_smb_proto::client::Encryption;
use ropeway_smb_proto::compression::Compression;
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::Guid;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_vfs::Timestamp;

use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::line::LineInfo;
use crate::link::Link;
use crate::login::Login;
use crate::options::{ClientOptions, DfsHosts};
use crate::window::FAR_ROUND_TRIP;

/// A client that is logged in to one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    /// Clients of the servers that DFS referred to, by host.
    referred: Mutex<HashMap<String, Client>>,
}

/// The parameters negotiated with the server, and the current state of the connections.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The server's address.
    pub address: SocketAddr,
    /// The negotiated dialect.
    pub dialect: Dialect,
    /// The signing algorithm. `None`: messages are not signed (sealed messages need no signature).
    pub signing: Option<SigningAlgorithm>,
    /// The cipher. `None`: messages are not sealed, or only on shares that demand it.
    pub cipher: Option<Cipher>,
    /// The compression that was negotiated.
    pub compression: Compression,
    /// The server's GUID.
    pub server_guid: Guid,
    /// Whether the session is a guest's or anonymous.
    pub guest: bool,
    /// Number of open connections.
    pub channels: usize,
    /// Shortest round trip measured.
    pub round_trip: Option<Duration>,
    /// Bytes of READ and WRITE that the window governors allow in flight now.
    pub window: u64,
    /// What TCP reports of the line, over all connections so far.
    pub line: LineInfo,
    /// Number of times that a lost connection was re-established.
    pub reconnects: u64,
}

/// A server that does not answer.
#[derive(Clone, Debug)]
pub struct LostServer {
    /// Its name or address.
    pub host: String,
    /// Time since its last sign, once that is long; `None` if the connection ended before.
    pub silent: Option<Duration>,
    /// Time until it is given up; `None` while the old connection is not given up yet.
    pub left: Option<Duration>,
}

impl Client {
    /// Connects to a server and logs in.
    ///
    /// # Errors
    /// [`Error::Local`](crate::Error::Local) if the server cannot be reached,
    /// [`Error::PeerRefused`](crate::Error::PeerRefused) or [`Error::Login`](crate::Error::Login)
    /// if it refuses, [`Error::PeerMisbehaved`](crate::Error::PeerMisbehaved) if it breaks the
    /// protocol.
    pub async fn connect(endpoint: &Endpoint, login: Login, options: ClientOptions) -> Result<Self> {
        let link = Link::connect(endpoint, login, options).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                link,
                referred: Mutex::new(HashMap::new()),
            }),
        })
    }

    /// Opens one more connection now, without waiting for the measurements to suggest it.
    ///
    /// # Errors
    /// The server has no multichannel, or refuses another connection.
    pub async fn open_channel(&self) -> Result<()> {
        let link = &self.inner.link;
        link.add_channel(&link.session().await?).await
    }

    /// Closes the newest connection if there are others, as soon as its requests are answered, without
    /// waiting for the measurements to suggest it.
    ///
    /// # Errors
    /// There is no session, and none can be made.
    pub async fn close_channel(&self) -> Result<()> {
        let link = &self.inner.link;
        Link::retire_newest(&*link.session().await?, 1);
        Ok(())
    }

    /// Whether the round trip to the server is so long that callers should keep more in flight.
    pub(crate) fn is_far(&self) -> bool {
        let round_trip = self.inner.link.last().round_trip();
        round_trip.is_some_and(|round_trip| round_trip >= FAR_ROUND_TRIP)
    }

    /// Returns the number of bytes that all connections together may have in flight.
    pub(crate) fn window(&self) -> u64 {
        let link = &self.inner.link;
        link.last().window().min(link.options.bytes_in_flight_max)
    }

    /// Whether the options allow no two requests for data at a time.
    pub(crate) fn asks_one_at_a_time(&self) -> bool {
        let options = &self.inner.link.options;
        options.bytes_in_flight_max <= u64::from(options.io_max)
    }

    /// Returns the server's present time, or an earlier one; `None` if the server does not tell it.
    pub(crate) fn server_time(&self) -> Option<Timestamp> {
        self.inner.link.last().server_time()
    }

    /// Returns the endpoint as the caller gave it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.link.endpoint
    }

    /// Returns the server if it does not answer, or one that DFS referred to.
    pub fn lost(&self) -> Option<LostServer> {
        self.inner.link.lost().or_else(|| {
            // Referred clients have no further ones of their own to wait for.
            let referred = self.inner.referred.lock();
            referred.values().find_map(|client| client.inner.link.lost())
        })
    }

    /// Returns the negotiated parameters and the current state of the connections.
    pub fn info(&self) -> ConnectionInfo {
        let link = &self.inner.link;
        let session = link.last();
        let negotiated = &session.negotiated;
        let unprotected = SessionFlags::IS_GUEST | SessionFlags::IS_NULL;
        let guest = session.flags.intersects(unprotected);
        let is_sealed = !guest
            && (link.options.encryption != Encryption::Off
                || session.flags.intersects(SessionFlags::ENCRYPT_DATA));
        let cipher = negotiated.cipher.filter(|_| is_sealed);
        ConnectionInfo {
            address: session.address,
            dialect: negotiated.dialect,
            signing: (!guest && cipher.is_none()).then_some(negotiated.signing),
            cipher,
            compression: negotiated.compression,
            server_guid: negotiated.server_guid,
            guest,
            channels: session.channels(),
            round_trip: session.round_trip(),
            window: session.window(),
            line: link.line.get(),
            reconnects: link.reconnects(),
        }
    }

    /// Logs off and closes all connections, including those to servers that DFS referred to. Takes
    /// one round trip, and at most 2 s if a server does not answer. Requests in flight fail with
    /// [`Error::Lost`](crate::Error::Lost).
    pub async fn close(self) {
        self.end(true).await;
    }

    /// Logs off from every server without waiting for the replies.
    pub async fn close_now(self) {
        self.end(false).await;
    }

    async fn end(self, waits: bool) {
        let referred: Vec<_> = {
            let mut clients = self.inner.referred.lock();
            clients.drain().map(|(_, client)| client).collect()
        };
        let ends = referred.iter().chain([&self]);
        join_all(ends.map(|client| client.inner.link.close(waits))).await;
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.inner.link
    }

    /// Returns the client of a server that DFS refers to. Logs in there with the same login if no
    /// client exists yet.
    pub(crate) async fn at(&self, host: &str) -> Result<Self> {
        let own = &self.inner.link.endpoint;
        if host.eq_ignore_ascii_case(&own.host) || host.eq_ignore_ascii_case(&own.unc_host()) {
            return Ok(self.clone());
        }
        let key = host.to_ascii_lowercase();
        let known = |clients: &HashMap<String, Client>| clients.get(&key).cloned();
        if let Some(client) = known(&self.inner.referred.lock()) {
            return Ok(client);
        }
        let link = &self.inner.link;
        let dfs = link.options.dfs;
        if !dfs.allows(&own.host, host) && !dfs.allows(&own.unc_host(), host) {
            return Err(Error::ReferralRefused {
                host: host.to_owned(),
                is_own_only: dfs == DfsHosts::Own,
            });
        }
        tracing::info!(from = %own, to = host, "DFS refers to another server; logging in there");
        // Referrals carry no ports. A port other than 445 is assumed for all servers of the
        // namespace.
        let endpoint = Endpoint::new(host, own.port);
        let client = Box::pin(Self::connect(&endpoint, link.login.clone(), link.options.clone())).await?;
        let mut clients = self.inner.referred.lock();
        Ok(clients.entry(key).or_insert(client).clone())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.inner.link.endpoint)
    }
}
