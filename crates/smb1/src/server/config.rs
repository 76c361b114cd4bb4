//! What a server offers.

use std::sync::Arc;

use ropeway_smb_proto::server::Config as Accounts;

use crate::auth::WeakAuth;
use crate::code_page::CodePage;
use crate::dos_time::Zone;
use crate::wire::negotiate::{Capabilities, SecurityMode};

/// Whether messages are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// Never.
    Off,
    /// If the client can.
    Offered,
    /// Always; users whose clients cannot sign are refused.
    #[default]
    Required,
}

/// Settings of all connections of a server.
#[derive(Clone)]
pub struct Config {
    /// Names, accounts, mechanisms and random numbers, which the server's SMB 2 has too. Its other
    /// settings do not matter here.
    pub accounts: Arc<Accounts>,
    /// Whether messages are signed.
    pub signing: Signing,
    /// Proofs of a password that are accepted besides NTLMv2. LM never is: servers keep no hash for
    /// it.
    pub weak_auth: WeakAuth,
    /// Whether extended security (SPNEGO) is offered.
    pub extended_security: bool,
    /// Whether UTF-16 is offered.
    pub unicode: bool,
    /// Whether reads beyond the client's buffer are offered.
    pub large_reads: bool,
    /// Whether writes beyond the server's buffer are offered.
    pub large_writes: bool,
    /// Requests in flight at most (`MaxMpxCount`).
    pub max_mpx_count: u16,
    /// Largest message besides large writes, in bytes (`MaxBufferSize`).
    pub buffer_size: u32,
    /// Code page of clients without UTF-16.
    pub code_page: CodePage,
    /// Distance of the server's local time from UTC.
    pub zone: Zone,
}

impl Config {
    /// `MaxMpxCount` of Windows and Samba.
    pub const MAX_MPX_COUNT: u16 = 50;
    /// `MaxBufferSize` of Windows and Samba.
    pub const BUFFER_SIZE: u32 = 16_644;

    /// Returns the defaults: signing required, NTLMv2 only.
    pub fn new(accounts: Arc<Accounts>) -> Self {
        Self {
            accounts,
            signing: Signing::Required,
            weak_auth: WeakAuth::default(),
            extended_security: true,
            unicode: true,
            large_reads: true,
            large_writes: true,
            max_mpx_count: Self::MAX_MPX_COUNT,
            buffer_size: Self::BUFFER_SIZE,
            code_page: CodePage::default(),
            zone: Zone::default(),
        }
    }

    pub(super) fn capabilities(&self, extended_security: bool) -> Capabilities {
        let mut all = Capabilities::LARGE_FILES
            | Capabilities::NT_SMBS
            | Capabilities::RPC_REMOTE_APIS
            | Capabilities::STATUS32
            | Capabilities::LEVEL_II_OPLOCKS
            | Capabilities::LOCK_AND_READ
            | Capabilities::NT_FIND
            | Capabilities::INFOLEVEL_PASSTHRU
            | Capabilities::LWIO;
        for (offered, capability) in [
            (self.unicode, Capabilities::UNICODE),
            (self.large_reads, Capabilities::LARGE_READX),
            (self.large_writes, Capabilities::LARGE_WRITEX),
            (extended_security, Capabilities::EXTENDED_SECURITY),
        ] {
            if offered {
                all |= capability;
            }
        }
        all
    }

    pub(super) fn security_mode(&self) -> SecurityMode {
        let mut mode = SecurityMode::USER_LEVEL;
        if !self.weak_auth.clear_text {
            mode |= SecurityMode::ENCRYPT_PASSWORDS;
        }
        match self.signing {
            Signing::Off => {}
            Signing::Offered => mode |= SecurityMode::SIGNATURES_ENABLED,
            Signing::Required => {
                mode |= SecurityMode::SIGNATURES_ENABLED | SecurityMode::SIGNATURES_REQUIRED;
            }
        }
        mode
    }
}
