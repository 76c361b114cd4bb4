//! Numbers that are the server's own, not the wire's.

/// One connection of a server; never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);
