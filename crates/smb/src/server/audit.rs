//! What a server tells of who did what.

use std::net::SocketAddr;

use ropeway_smb_proto::wire::NtStatus;

/// Takes records as they happen; called on the connections' threads.
pub trait Audit: Send + Sync {
    /// One record.
    fn record(&self, record: &Record<'_>);
}

/// Something that a client did.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What: `login`, `logoff`, `connect`, `open`, `create`, `delete`, `rename`, `close`, ….
    pub action: &'static str,
    /// From where.
    pub peer: Option<SocketAddr>,
    /// Who; nobody before a login.
    pub user: Option<&'a str>,
    /// The share.
    pub share: Option<&'a str>,
    /// The file, as on disk beneath the share.
    pub path: Option<&'a str>,
    /// A second path: where to, in a rename.
    pub target: Option<&'a str>,
    /// How it went.
    pub status: NtStatus,
}
