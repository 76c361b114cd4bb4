//! Remote procedure calls over named pipes, as far as listing shares and naming accounts need them.
//!
//! DCE/RPC 5.0 (C706 12, [MS-RPCE]) over `IPC$`: a client binds to an interface of the pipe, then each call is a
//! request and a response, cut into fragments. Numbers are little-endian, parameters in NDR 2.0; the session protects
//! the pipe, so there is no authentication of RPC's own.
//!
//! ```text
//! client.rs    a call from bind to result, sans I/O
//! srvsvc.rs    [MS-SRVS]: shares, server        wkssvc.rs   [MS-WKST]: workstation
//! server.rs    a server's side of both: calls and answers in every level that is asked for
//! lsa.rs       [MS-LSAT]: names for SIDs        samr/       [MS-SAMR]: users and groups, a server's side only
//! account.rs   SIDs with names, handles         sessions.rs NetrSessionEnum of srvsvc, a server's side
//! ndr.rs       parameters                       pdu.rs      bind, bind_ack, request, response, fault
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
