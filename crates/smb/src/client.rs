//! A server, logged in to.

use std::net::SocketAddr;
use std::time::Duration;

use ropeway_smb_proto::rpc::srvsvc::ShareInfo;
use ropeway_smb_proto::wire::Guid;
use ropeway_smb_proto::wire::negotiate::Dialect;
use ropeway_smb_proto::wire::negotiate_context::{Cipher, SigningAlgorithm};

use crate::{ClientOptions, Endpoint, Error, Login, Result, Share};

/// A server, logged in to. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {}

/// What was agreed with the server, and how it goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// Where the server is.
    pub address: SocketAddr,
    /// Dialect agreed.
    pub dialect: Dialect,
    /// How messages are signed; `None`: they are not.
    pub signing: Option<SigningAlgorithm>,
    /// How messages are sealed; `None`: they are not, or only on shares that ask for it.
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
    /// Bytes of READ and WRITE that the governor allows in flight now.
    pub window: u64,
    /// Times a lost connection was re-established.
    pub reconnects: u64,
}

impl Client {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server is not there ([`Error::Local`]), refuses ([`Error::PeerRefused`], [`Error::Login`]) or breaks the
    /// protocol.
    pub async fn connect(endpoint: &Endpoint, login: Login, options: ClientOptions) -> Result<Self> {
        options.validate()?;
        let _ = (endpoint, login);
        Err(Error::Misuse("not yet"))
    }

    /// Connects to a share (TREE_CONNECT); DFS namespaces are followed when paths lead out of the share.
    ///
    /// # Errors
    /// [`Error::PeerRefused`] if there is no such share or the user may not.
    pub async fn share(&self, name: &str) -> Result<Share> {
        let _ = name;
        Err(Error::Misuse("not yet"))
    }

    /// The server's shares, by NetrShareEnum over IPC$.
    ///
    /// # Errors
    /// The server refuses to tell.
    pub async fn shares(&self) -> Result<Vec<ShareInfo>> {
        Err(Error::Misuse("not yet"))
    }

    /// What was agreed, and how it goes.
    pub fn info(&self) -> ConnectionInfo {
        unreachable!("no client is made yet")
    }

    /// Logs off and closes the connections. What is under way fails with [`Error::Lost`].
    pub async fn close(self) {}
}
