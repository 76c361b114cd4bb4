//! What a server tells of who did what.

use std::net::SocketAddr;

use ropeway_smb_wire::NtStatus;

/// Takes records as they happen; called on the connections' threads.
pub trait Audit: Send + Sync {
    /// One record.
    fn record(&self, record: &Record<'_>);
}

/// Something that a client did.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What: `login`, `connect`, `open`, `create`, `rename`, `link`, `reparse`, `security`, `delete`.
    pub action: &'static str,
    /// From where; of a deletion it is not known, as it comes with the last close, whoever's that is.
    pub peer: Option<SocketAddr>,
    /// Who; nobody before a login.
    pub user: Option<&'a str>,
    /// The share.
    pub share: Option<&'a str>,
    /// The file, as on disk beneath the share; of a stream that is deleted, with a colon and its name.
    pub path: Option<&'a str>,
    /// A second path: the new name, of `rename` and `link`.
    pub target: Option<&'a str>,
    /// How it went.
    pub status: NtStatus,
}
