//! Which session a process had at a server, for the process that comes after it.

use std::{fmt, io};

/// Keeps the number of the last session at each server, so that a process that follows one that was killed
/// can end its session before it logs in itself (`PreviousSessionId`, \[MS-SMB2\] 2.2.5 and 3.3.5.5.3).
/// Otherwise what the killed one had sent may arrive after what this one writes.
///
/// The server ends a session only for the same user. A server that has forgotten it ignores the number.
pub trait SessionRecord: fmt::Debug + Send + Sync {
    /// Returns the number that an earlier process noted for a login: the server and the user. `None` if
    /// there is none. The sessions of this process are not among them.
    fn last(&self, login: &str) -> Option<u64>;

    /// Notes the number of a session that begins. Nothing is written in it before this returns.
    ///
    /// # Errors
    /// It cannot be noted; then the session goes on, and could not be ended by a later process.
    fn begins(&self, login: &str, session: u64) -> io::Result<()>;
}
