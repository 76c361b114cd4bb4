//! SPNEGO: which mechanism to use, and its tokens in their wrapping (RFC 4178, [MS-SPNG]).
//!
//! ```text
//! client                                    server
//!                <--- NegTokenInit2 (in NEGOTIATE's reply: what there is)
//! NegTokenInit (list, first token) --->
//!                <--- NegTokenResp (choice, token)
//! NegTokenResp (token, MIC of list) --->                   as often as the mechanism needs
//!                <--- NegTokenResp (completed, MIC of list)
//! ```
//!
//! The MIC over the client's list shows that nobody took its better entries out. It is made whenever the mechanism can, as
//! Windows does; it is demanded of the peer where RFC 4178 5 demands it: when the choice was not the client's first.

mod client;
mod der;
mod server;
mod token;

pub use client::SpnegoClient;
pub use server::SpnegoServer;

#[cfg(test)]
mod tests;
