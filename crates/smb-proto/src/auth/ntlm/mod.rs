//! NTLM with version 2 of its response only ([MS-NLMP]).
//!
//! ```text
//! client                         server
//!   NEGOTIATE  --------------->          flags
//!              <--------------- CHALLENGE flags, server challenge, AV pairs (names, time)
//!   AUTHENTICATE ------------->   proof of the password over both challenges and AV pairs,
//!                                 the encrypted session key, a MIC over all three messages
//! ```
//!
//! Both roles refuse NTLMv1, LM and keys shorter than 128 bits, and require extended session
//! security, Unicode and 128-bit keys. MD4, MD5 and RC4 are part of the protocol and known to be
//! weak. An SMB session is protected by keys newly derived from the exported session key.

mod av;
mod client;
mod keys;
mod message;
mod server;

pub use av::{AvId, AvPairs};
pub use client::{Credentials, NtlmClient, NtlmEntropy};
pub use keys::{Key16, client_part, lm_v2, nt_hash, ntowf_v2, prove, same};
pub use message::{Authenticate, Challenge, Negotiate, NegotiateFlags, Version};
pub use server::{NtHashLookup, NtlmServer, ServerNames};

use crate::auth::{AuthError, Oid, Result};

const OIDS: &[Oid] = &[Oid::NTLMSSP];

/// Checks the flags that both roles require of the peer. Without them there is no NTLMv2 session
/// security.
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
