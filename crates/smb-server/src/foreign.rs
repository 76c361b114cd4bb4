//! Clients of another protocol, whose requests a translator turns into those of SMB 2.1.
//!
//! ```text
//! client ── its protocol ── Translator (a thread) ── line: SMB 2.1 ── the thread of the connection
//! ```
//! Everything behind the line is the same for all clients: logins and their limits, shares, opens,
//! share modes, leases of others, locks, audit records. A line is inside this process, so that its
//! messages are neither signed nor sealed; the translator protects those of the client.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::secret::Key;
use ropeway_smb_proto::server::Config;
use ropeway_smb_wire::SessionId;

use crate::state::SharedState;

/// A protocol that the server speaks besides SMB 2.
pub trait ForeignProtocol: Send + Sync {
    /// Looks at the first message of a client. Returns what serves it; `None` if the message does
    /// not belong to this protocol.
    fn accept(&self, first: &[u8], config: &Config) -> Option<Translation>;
}

/// What serves one client.
pub struct Translation {
    /// Name of the protocol, for reports.
    pub name: &'static str,
    /// Name of its signatures, for reports.
    pub signing: &'static str,
    /// Settings of the connection that the translator logs in on.
    pub config: Config,
    /// The translator.
    pub translator: Box<dyn Translator>,
}

/// Translates the requests of one client.
pub trait Translator: Send {
    /// Serves the client until it leaves or the line ends. Has a thread of its own.
    fn run(self: Box<Self>, client: ForeignClient);
}

/// A client, and the line to the server.
pub struct ForeignClient {
    /// The client's socket, which does not block.
    pub socket: TcpStream,
    /// The client's address.
    pub peer: SocketAddr,
    /// Its first message, without the length before it.
    pub first: Vec<u8>,
    /// What it sent after that.
    pub received: Vec<u8>,
    /// The line, which blocks. The server ends it when the client has to go.
    pub line: UnixStream,
    /// Time after which a client is given up that does not receive its responses.
    pub send_timeout: Duration,
    /// The server.
    pub info: ForeignInfo,
}

/// What a translator may know of the server.
pub struct ForeignInfo {
    pub(crate) shared: Arc<SharedState>,
}

/// A session on the line.
pub struct ForeignSession {
    /// The key for signatures: the first 16 bytes of the session key. `None` for anonymous and
    /// guest sessions.
    pub key: Option<Key>,
    /// Whether the session is a guest's.
    pub is_guest: bool,
}

impl ForeignInfo {
    /// Returns what is known of a session on the line.
    pub fn session(&self, id: SessionId) -> Option<ForeignSession> {
        let sessions = self.shared.sessions();
        let session = sessions.get(id)?;
        Some(ForeignSession {
            key: session.login_key().cloned(),
            is_guest: session.is_guest,
        })
    }

    /// Returns the names and descriptions of all shares.
    pub fn shares(&self) -> Vec<(String, String)> {
        let shares = self.shared.all_shares();
        let both = shares
            .iter()
            .map(|share| (share.name.clone(), share.comment.clone()));
        both.collect()
    }

    /// Returns the server's name.
    pub fn server_name(&self) -> &str {
        &self.shared.name
    }
}
