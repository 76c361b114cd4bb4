//! Reasons why a connection ends.

use ropeway_smb_proto::server::PeerMisbehaved;

use super::foreign::Handover;

/// Why a connection ended.
pub(super) enum DriverError {
    /// The socket failed.
    Lost(std::io::Error),
    /// The client violated the protocol.
    Peer(PeerMisbehaved),
    /// The client exceeded a limit of the server.
    Limit(&'static str),
    /// The client speaks another protocol, which this translator serves. Not an end: see
    /// [`super::foreign`].
    Foreign(Box<Handover>),
    /// The thread of the connection panicked.
    Panicked,
}

impl From<std::io::Error> for DriverError {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<PeerMisbehaved> for DriverError {
    fn from(fault: PeerMisbehaved) -> Self {
        Self::Peer(fault)
    }
}
