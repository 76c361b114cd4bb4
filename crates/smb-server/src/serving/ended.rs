//! How serving a connection ends.

use ropeway_smb_proto::server::Hangup;

/// Why serving ended.
pub(super) enum Ended {
    Lost(std::io::Error),
    Hangup(Hangup),
    Panicked,
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Hangup> for Ended {
    fn from(fault: Hangup) -> Self {
        Self::Hangup(fault)
    }
}
