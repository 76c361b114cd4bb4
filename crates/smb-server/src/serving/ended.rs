//! How serving a connection ends.

use ropeway_smb_proto::server::PeerMisbehaved;

/// Why serving ended.
pub(super) enum Ended {
    Lost(std::io::Error),
    Hangup(PeerMisbehaved),
    Panicked,
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<PeerMisbehaved> for Ended {
    fn from(fault: PeerMisbehaved) -> Self {
        Self::Hangup(fault)
    }
}
