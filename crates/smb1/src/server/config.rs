//! What a server offers.

use ropeway_smb_proto::auth::ntlm::ServerNames;
use ropeway_smb_wire::Guid;

use crate::code_page::CodePage;
use crate::dos_time::Zone;
use crate::wire::negotiate::{Capabilities, SecurityMode};

/// Whether messages are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// If the client can.
    Offered,
    /// Always; users whose clients do not sign are refused.
    #[default]
    Required,
}

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server's GUID.
    pub server_guid: Guid,
    /// The server's names.
    pub names: ServerNames,
    /// Token of the server that lists the mechanisms for extended security.
    pub hint: Vec<u8>,
    /// Whether messages are signed.
    pub signing: Signing,
    /// Code page of clients without UTF-16.
    pub code_page: CodePage,
    /// Distance of the server's local time from UTC.
    pub zone: Zone,
    /// Maximum number of sessions.
    pub sessions_max: usize,
}

impl Config {
    /// `MaxMpxCount` of Windows and Samba: requests in flight at most.
    pub const MAX_MPX_COUNT: u16 = 50;
    /// `MaxBufferSize` of Windows and Samba: largest message besides large writes, in bytes.
    pub const BUFFER_SIZE: u32 = 16_644;

    pub(super) fn capabilities(extended_security: bool) -> Capabilities {
        let all = Capabilities::UNICODE
            | Capabilities::LARGE_FILES
            | Capabilities::NT_SMBS
            | Capabilities::RPC_REMOTE_APIS
            | Capabilities::STATUS32
            | Capabilities::NT_FIND
            | Capabilities::INFOLEVEL_PASSTHRU
            | Capabilities::LARGE_READX
            | Capabilities::LARGE_WRITEX;
        match extended_security {
            true => all | Capabilities::EXTENDED_SECURITY,
            false => all,
        }
    }

    pub(super) fn security_mode(&self) -> SecurityMode {
        let mode =
            SecurityMode::USER_LEVEL | SecurityMode::ENCRYPT_PASSWORDS | SecurityMode::SIGNATURES_ENABLED;
        match self.signing {
            Signing::Offered => mode,
            Signing::Required => mode | SecurityMode::SIGNATURES_REQUIRED,
        }
    }
}
