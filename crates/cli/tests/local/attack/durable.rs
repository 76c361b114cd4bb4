//! What "durable" depends on: flushes, kinds of nodes, temporary names, versions of a source.

/// A device that cannot store what the page cache has accepted.
mod flush;
/// Nodes that change their kind between a killed run and the next one.
mod kinds;
/// Temporary names that other users know or create.
mod names;
/// The same cases on a server.
mod shares;
/// Sources that change without a change of size and modification time.
mod versions;
