//! SPNEGO: negotiates a mechanism and wraps its tokens (RFC 4178, [MS-SPNG]).
//!
//! ```text
//! client                                    server
//!                <--- NegTokenInit2 (in the NEGOTIATE reply: the server's list)
//! NegTokenInit (list, first token) --->
//!                <--- NegTokenResp (choice, token)
//! NegTokenResp (token, MIC of list) --->                   as often as the mechanism needs
//!                <--- NegTokenResp (completed, MIC of list)
//! ```
//!
//! The MIC over the client's list proves that no third party removed its better entries. Both ends
//! send it whenever the mechanism can produce one, as Windows does. They demand it from the peer
//! where RFC 4178 5 does: if the choice was not the client's first.

mod client;
mod der;
mod server;
mod token;

pub use client::SpnegoClient;
pub use server::SpnegoServer;

#[cfg(test)]
mod tests;
