//! How serving a connection ends.

use ropeway_smb_proto::server::PeerMisbehaved;

/// Why serving ended.
pub(super) enum DriverError {
    Lost(std::io::Error),
    Peer(PeerMisbehaved),
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
