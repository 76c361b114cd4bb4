//! NTLM, version 2 of its response only ([MS-NLMP]).
//!
//! ```text
//! client                         server
//!   NEGOTIATE  --------------->          flags
//!              <--------------- CHALLENGE flags, server challenge, AV pairs (names, time)
//!   AUTHENTICATE ------------->          proof of the password over both challenges and the AV pairs,
//!                                        the session key encrypted with what only both can compute, a MIC over all
//! ```
//!
//! NTLMv1, LM and keys of less than 128 bits are refused in both roles; extended session security, Unicode and 128-bit
//! keys are required. MD4, MD5 and RC4 are the protocol's and as weak as they are known to be: what protects an SMB
//! session is derived anew from the exported session key.

mod av;
mod client;
mod keys;
mod message;
mod server;

pub use av::{AvId, AvPairs};
pub use client::{Credentials, NtlmClient, NtlmEntropy};
pub use keys::nt_hash;
pub use message::{Authenticate, Challenge, Negotiate, NegotiateFlags, Version};
pub use server::{NtHashLookup, NtlmServer, ServerNames};

use crate::auth::{AuthError, Oid, Result};

const OIDS: &[Oid] = &[Oid::NTLMSSP];

/// What both roles require of the other's flags: without them there is no NTLMv2 session security.
fn check_flags(flags: NegotiateFlags) -> Result<()> {
    for (flag, name) in [
        (NegotiateFlags::UNICODE, "Unicode"),
        (NegotiateFlags::NTLM, "NTLM"),
        (
            NegotiateFlags::EXTENDED_SESSION_SECURITY,
            "extended session security",
        ),
        (NegotiateFlags::KEY_128, "128-bit keys"),
    ] {
        if !flags.contains(flag) {
            return Err(AuthError::Unsupported(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
