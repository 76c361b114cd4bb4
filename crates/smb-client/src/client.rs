//! A server, logged in to.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ropeway_smb_proto::client::Encryption;
use ropeway_smb_proto::crypto::{Cipher, SigningAlgorithm};
use ropeway_smb_wire::negotiate::{Capabilities, Dialect};
use ropeway_smb_wire::rpc::srvsvc::ShareInfo;
use ropeway_smb_wire::session_setup::SessionFlags;
use ropeway_smb_wire::{Guid, NtStatus};

use crate::depth::FAR;
use crate::link::Link;
use crate::look::{Looks, Seen};
use crate::tree::ShareInner;
use crate::{ClientOptions, DfsHosts, Endpoint, Error, Login, Result, Share, dfs};

/// A server, logged in to. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    /// Servers that DFS led to, by host.
    elsewhere: Mutex<HashMap<String, Client>>,
}

/// What was agreed with the server, and how it goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Where the server is.
    pub address: SocketAddr,
    /// Dialect agreed.
    pub dialect: Dialect,
    /// How messages are signed; `None`: they are not (sealed messages need no signature).
    pub signing: Option<SigningAlgorithm>,
    /// How messages are sealed; `None`: they are not, or only on shares that demand it.
    pub cipher: Option<Cipher>,
    /// Whether compression was agreed.
    pub compression: bool,
    /// The server's name for itself.
    pub server_guid: Guid,
    /// Whether the server made us a guest or left us anonymous.
    pub guest: bool,
    /// Connections now.
    pub channels: usize,
    /// Shortest round trip seen.
    pub round_trip: Option<Duration>,
    /// Bytes of READ and WRITE that the governors allow in flight now.
    pub window: u64,
    /// Times a lost connection was re-established.
    pub reconnects: u64,
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server is not there ([`Error::Local`](crate::Error::Local)), refuses
    /// ([`Error::PeerRefused`](crate::Error::PeerRefused), [`Error::Login`](crate::Error::Login)) or breaks the protocol.
    pub async fn connect(endpoint: &Endpoint, login: Login, options: ClientOptions) -> Result<Self> {
        let link = Link::connect(endpoint, login, options).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                link,
                elsewhere: Mutex::new(HashMap::new()),
            }),
        })
    }

    /// Connects to a share (TREE_CONNECT). Where its DFS leads elsewhere, paths are followed.
    ///
    /// # Errors
    /// [`Error::PeerRefused`](crate::Error::PeerRefused) if there is no such share or the user may not.
    pub async fn share(&self, name: &str) -> Result<Share> {
        let mut left = dfs::TARGETS_MAX;
        self.share_within(name, 0, &mut left).await
    }

    /// A share, or the one that DFS has in its place: a namespace may lie on another server altogether ([MS-DFSC]
    /// 3.1.4.2, steps 5 and 6). `hops` such steps led here, `left` targets may still be tried.
    async fn share_within(&self, name: &str, hops: usize, left: &mut usize) -> Result<Share> {
        let mut refused = match ShareInner::connect(self, name).await {
            Ok(share) => return Ok(Share::new(share)),
            Err(error) => error,
        };
        let has_dfs = || {
            let negotiated = &self.inner.link.last().negotiated;
            negotiated.capabilities.contains(Capabilities::DFS)
        };
        let may_lead = refused.status() == Some(NtStatus::BAD_NETWORK_NAME)
            && hops < dfs::HOPS_MAX
            && !name.eq_ignore_ascii_case(dfs::IPC)
            && has_dfs();
        if !may_lead {
            return Err(refused);
        }
        let targets = dfs::root_targets(self, name).await.unwrap_or_default();
        for (host, share) in targets {
            let Some(fewer) = left.checked_sub(1) else { break };
            *left = fewer;
            let found = async { self.at(&host).await?.share_within(&share, hops + 1, left).await };
            match Box::pin(found).await {
                Ok(found) => return Ok(found),
                Err(error @ Error::LedAway { .. }) => refused = error,
                Err(_) => {}
            }
        }
        Err(refused)
    }

    /// The same, and what stands at some paths, in the same round trip.
    pub(crate) async fn share_seen(&self, name: &str, looks: &Looks) -> Result<(Share, Seen)> {
        match ShareInner::connect_looking(self, name, looks).await {
            Ok((share, seen)) => Ok((Share::new(share), seen)),
            // DFS may have one in its place.
            Err(error) if error.status() == Some(NtStatus::BAD_NETWORK_NAME) => {
                Ok((self.share(name).await?, Seen::default()))
            }
            Err(error) => Err(error),
        }
    }

    /// The server's shares, by NetrShareEnum over IPC$.
    ///
    /// # Errors
    /// The server refuses to tell.
    pub async fn shares(&self) -> Result<Vec<ShareInfo>> {
        crate::shares::list(self).await
    }

    /// Opens one more connection now, instead of when the measurements suggest it.
    ///
    /// # Errors
    /// The server has no multichannel, or takes no more.
    pub async fn open_channel(&self) -> Result<()> {
        let link = &self.inner.link;
        link.add_channel(&link.session().await?).await
    }

    /// Whether a round trip to the server takes so long that more is asked for at once.
    pub(crate) fn is_far(&self) -> bool {
        let round_trip = self.inner.link.last().round_trip();
        round_trip.is_some_and(|round_trip| round_trip >= FAR)
    }

    /// Where the server is, as given.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.link.endpoint
    }

    /// What was agreed, and how it goes.
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
            compression: negotiated.compression.is_some(),
            server_guid: negotiated.server_guid,
            guest,
            channels: session.channels(),
            round_trip: session.round_trip(),
            window: session.window(),
            reconnects: link.reconnects(),
        }
    }

    /// Logs off and closes the connections, those that DFS led to as well: one round trip, and 2 s at most where the server
    /// does not answer. What is under way fails with [`Error::Lost`](crate::Error::Lost).
    pub async fn close(self) {
        self.end(true).await;
    }

    /// The same for those in a hurry: takes leave without waiting for the answer.
    pub async fn leave(self) {
        self.end(false).await;
    }

    async fn end(self, waits: bool) {
        let elsewhere: Vec<_> = {
            let mut clients = self
                .inner
                .elsewhere
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            clients.drain().map(|(_, client)| client).collect()
        };
        let ends = elsewhere.iter().chain([&self]);
        join_all(ends.map(|client| client.inner.link.close(waits))).await;
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.inner.link
    }

    /// The same login at another server, where DFS leads.
    pub(crate) async fn at(&self, host: &str) -> Result<Self> {
        let own = &self.inner.link.endpoint;
        if host.eq_ignore_ascii_case(&own.host) || host.eq_ignore_ascii_case(&own.unc_host()) {
            return Ok(self.clone());
        }
        let key = host.to_ascii_lowercase();
        let known = |clients: &HashMap<String, Client>| clients.get(&key).cloned();
        if let Some(client) = known(
            &self
                .inner
                .elsewhere
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        ) {
            return Ok(client);
        }
        let link = &self.inner.link;
        let dfs = link.options.dfs;
        if !dfs.allows(&own.host, host) && !dfs.allows(&own.unc_host(), host) {
            return Err(Error::LedAway {
                host: host.to_owned(),
                is_kept: dfs == DfsHosts::Own,
            });
        }
        tracing::info!(from = %own, to = host, "DFS leads to another server; logging in there");
        // Referrals have no ports: one that is not the usual is used for all servers of the namespace.
        let endpoint = Endpoint::new(host, own.port);
        let client = Box::pin(Self::connect(&endpoint, link.login.clone(), link.options.clone())).await?;
        let mut clients = self
            .inner
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(clients.entry(key).or_insert(client).clone())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.inner.link.endpoint)
    }
}
