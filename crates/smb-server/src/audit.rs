//! Audit records: what clients did, and with which outcome.

use std::net::SocketAddr;

use ropeway_smb_wire::NtStatus;

/// Receives audit records. The threads of the connections call it.
pub trait Audit: Send + Sync {
    /// Receives one record.
    fn record(&self, record: &Record<'_>);
}

/// One action of a client.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The action: `login`, `connect`, `open`, `create`, `rename`, `link`, `reparse`, `security` or
    /// `delete`.
    pub action: &'static str,
    /// Address of the client; `None` for deletions, because the last close deletes, whoever sends
    /// it.
    pub peer: Option<SocketAddr>,
    /// Name of the user; `None` before a login.
    pub user: Option<&'a str>,
    /// Name of the share.
    pub share: Option<&'a str>,
    /// Path of the file on disk below the share. For a deleted stream, a colon and its name follow.
    pub path: Option<&'a str>,
    /// The new path, for `rename` and `link`.
    pub target: Option<&'a str>,
    /// Outcome of the action.
    pub status: NtStatus,
}
