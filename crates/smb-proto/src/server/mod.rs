//! The server's end ([MS-SMB2] 3.3), without I/O.
//!
//! What belongs to one connection is a state machine of its own; what spans connections (opens, share modes, oplocks,
//! leases, byte-range locks, durable handles, change notification) is [`hub::Hub`].

pub mod hub;
