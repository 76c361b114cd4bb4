//! What a client asks for, and what the negotiation settled.

use ropeway_smb_proto::client::Signing;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_wire::FileTime;
use zeroize::Zeroizing;

use crate::auth::WeakAuth;
use crate::code_page::CodePage;
use crate::dos_time::Zone;
use crate::wire::negotiate::{Capabilities, SecurityMode};

/// Who logs in.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Nobody: a null session.
    Anonymous,
    /// A user.
    User {
        /// Domain or workgroup; may be empty.
        domain: String,
        /// User.
        user: String,
        /// Hash of the password.
        hash: NtHash,
        /// The password itself, which only LM and clear text need.
        password: Option<Password>,
    },
}

/// Settings of one connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who logs in.
    pub identity: Identity,
    /// Whether signing is required, or left to the server.
    pub signing: Signing,
    /// Proofs of the password that are allowed besides NTLMv2.
    pub weak_auth: WeakAuth,
    /// Whether a session as a guest is accepted. Nothing on it is signed.
    pub guest_allowed: bool,
    /// Whether extended security (SPNEGO) is offered.
    pub extended_security: bool,
    /// Whether UTF-16 is offered.
    pub unicode: bool,
    /// Whether reads and writes beyond the buffer size are used where the server knows them.
    pub large_io: bool,
    /// Requests in flight at most; the server's `MaxMpxCount` limits them, too.
    pub in_flight_max: u16,
    /// Largest message that the server may send, except responses to large reads, in bytes.
    pub buffer_size: u16,
    /// Code page of a server without UTF-16.
    pub code_page: CodePage,
    /// Number of this process.
    pub pid: u32,
}

impl Config {
    /// Returns the defaults for a login: signing required, NTLMv2 only.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            signing: Signing::Required,
            weak_auth: WeakAuth::default(),
            guest_allowed: false,
            extended_security: true,
            unicode: true,
            large_io: true,
            in_flight_max: 50,
            // All bits of the field: listings come in the largest pieces.
            buffer_size: u16::MAX,
            code_page: CodePage::default(),
            pid: 0xFEFF,
        }
    }
}

/// Time and random numbers of one connection.
#[derive(Clone)]
pub struct Entropy {
    /// The present time.
    pub wall_time: FileTime,
    /// Random bytes.
    pub client_challenge: [u8; 8],
    /// Random, secret bytes that become the session key.
    pub session_key: Zeroizing<[u8; 16]>,
}

/// What the negotiation settled.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// How the server authenticates and signs.
    pub security_mode: SecurityMode,
    /// What the server can do.
    pub capabilities: Capabilities,
    /// Requests that may be in flight.
    pub in_flight_max: u16,
    /// `MaxMpxCount` of the server.
    pub max_mpx_count: u16,
    /// Largest message that the server receives, in bytes.
    pub max_buffer_size: u32,
    /// Distance of the server's clock from UTC.
    pub zone: Zone,
    /// The server's time.
    pub system_time: FileTime,
    /// `SessionKey`, which session setups repeat.
    pub session_key: u32,
    /// Whether strings are UTF-16.
    pub unicode: bool,
    /// Challenge of the server, without extended security.
    pub challenge: Option<[u8; 8]>,
    /// Whether messages are signed from the login on.
    pub signs: bool,
}

impl Negotiated {
    /// Returns whether the server knows the commands of NT.
    pub fn has_nt_commands(&self) -> bool {
        self.capabilities.contains(Capabilities::NT_SMBS)
    }

    /// Returns whether offsets have 64 bits.
    pub fn has_large_files(&self) -> bool {
        self.capabilities.contains(Capabilities::LARGE_FILES)
    }
}
