//! Remote procedure calls over named pipes: the parts that listing shares and naming accounts need.
//!
//! DCE/RPC 5.0 (C706 12, [MS-RPCE]) over `IPC$`. A client binds to an interface of the pipe; then
//! each call is a request and a response, split into fragments. Numbers are little-endian,
//! parameters are in NDR 2.0. The SMB session protects the pipe, so RPC's own authentication is not
//! used.
//!
//! ```text
//! client.rs    a client's call from bind to result, without I/O
//! srvsvc.rs    [MS-SRVS]: shares, server        wkssvc.rs   [MS-WKST]: workstation
//! server.rs    the server of both: calls, and answers in every level
//! lsa.rs       [MS-LSAT]: names for SIDs        samr/       [MS-SAMR]: users, groups (server only)
//! account.rs   SIDs with names, handles         sessions.rs NetrSessionEnum of srvsvc (server
//! only)
//! ndr.rs       parameters                       pdu.rs      bind, bind_ack, request, response,
//! fault
//! ```

pub mod account;
pub mod client;
pub mod lsa;
mod ndr;
mod pdu;
pub mod samr;
pub mod server;
pub mod sessions;
pub mod srvsvc;
#[cfg(test)]
mod tests;
pub mod wkssvc;

pub use pdu::{
    BindAckResult, Body, FRAGMENT_LEN_MAX, Fragments, PacketFlags, Pdu, Reassembly, STUB_LEN_MAX, SyntaxId,
    request_fragments, response_fragments,
};
