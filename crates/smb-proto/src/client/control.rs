//! The connection's own requests, and the progress of a logoff.

use ropeway_smb_wire::TreeId;

/// A request of the connection itself.
#[derive(Debug)]
pub(super) enum Control {
    Negotiate,
    /// A round of the login, with its token.
    SessionSetup(Vec<u8>),
    /// Validates the negotiation in this tree.
    Validate(TreeId),
    /// Asks for credits.
    Echo,
    /// Probes the server.
    KeepAlive,
    TreeDisconnect(TreeId),
    LogOff,
}

/// The progress of the logoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logoff {
    None,
    /// The queue is being sent. `waits`: the owed replies are awaited as well.
    Draining {
        waits: bool,
    },
    /// LOGOFF was queued.
    Queued,
}
