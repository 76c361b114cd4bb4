//! See the declaration of this module.

/// A device that cannot take what the page cache took.
mod flush;
/// Nodes that change their kind between a killed run and the next.
mod kinds;
/// Temporary names that others know, or make.
mod names;
/// The same on a server.
mod shares;
/// Sources that change without a trace in size and modification time.
mod versions;
