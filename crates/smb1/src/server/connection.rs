//! The connection: what is admitted, sessions, signatures.

use ropeway_smb_proto::secret::Key;
use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::{DecodeError, FileTime, NtStatus, SessionId, Text, Writer};

use super::config::{Config, Signing};
use super::ids::Ids;
use crate::dos_error;
use crate::header::{Command, Flags, Flags2, Header};
use crate::message::Block;
use crate::signing::Signer;
use crate::strings::Str;
use crate::wire::negotiate::{Capabilities, Greeting, NT_LM_0_12, NegotiateResponse, NegotiateWords};
use crate::wire::session_setup::SessionSetupRequest;

/// Longest message in bytes: a large write of 128 KiB, with room for headers.
pub const MESSAGE_LEN_MAX: usize = (128 << 10) + 4096;

/// Smallest message that every client receives, in bytes ([MS-CIFS] 2.2.4.53.1).
const CLIENT_BUFFER_MIN: u16 = 1024;

/// The client violated the protocol. The connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client sent {0}")]
pub struct PeerMisbehaved(pub &'static str);

impl From<DecodeError> for PeerMisbehaved {
    fn from(_: DecodeError) -> Self {
        Self("a malformed message")
    }
}

/// What a NEGOTIATE offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Position of NT LM 0.12 among the dialects.
    pub index: u16,
    /// Whether the client knows extended security.
    pub extended_security: bool,
}

impl Offer {
    /// Reads a NEGOTIATE. `None` if the client can speak SMB 2, or cannot speak NT LM 0.12.
    pub fn of(message: &[u8]) -> Option<Self> {
        let header = Header::decode(message).ok()?;
        let request = Smb1NegotiateRequest::decode(message).ok()?;
        let smb2 = [
            Smb1NegotiateRequest::SMB_2_WILDCARD,
            Smb1NegotiateRequest::SMB_2_002,
        ];
        if smb2.iter().any(|dialect| request.offers(dialect)) {
            return None;
        }
        let index = request
            .dialects()
            .position(|dialect| dialect == NT_LM_0_12.as_bytes())?;
        Some(Self {
            index: u16::try_from(index).ok()?,
            extended_security: header.flags2.contains(Flags2::EXTENDED_SECURITY),
        })
    }
}

/// A request that may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its header.
    pub header: Header,
    /// Sequence number of its responses' signatures.
    pub sequence: u32,
}

/// What the client can do, from its first session setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Largest message that it receives besides large reads, in bytes.
    pub buffer_size: u16,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

/// What a UID stands for.
#[derive(Clone, Copy, Debug)]
struct User {
    session: SessionId,
    is_logged_in: bool,
}

/// The server end of one connection.
pub struct Connection {
    config: Config,
    offer: Offer,
    challenge: [u8; 8],
    has_negotiated: bool,
    client: Option<ClientLimits>,
    users: Ids<User>,
    signer: Option<Signer>,
    /// Sequence number of the next request's signature.
    sequence: u32,
}

impl Connection {
    /// Creates a connection whose first message is a NEGOTIATE with this offer. `challenge` must be
    /// random and new; it is for logins without extended security.
    pub fn new(config: Config, offer: Offer, challenge: [u8; 8]) -> Self {
        let users = Ids::new(config.sessions_max);
        Self {
            config,
            offer,
            challenge,
            has_negotiated: false,
            client: None,
            users,
            signer: None,
            sequence: 0,
        }
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns whether logins carry SPNEGO tokens.
    pub fn has_extended_security(&self) -> bool {
        self.offer.extended_security
    }

    /// Returns what the client can do; the least of all clients before its first session setup.
    pub fn client(&self) -> ClientLimits {
        self.client.unwrap_or(ClientLimits {
            buffer_size: CLIENT_BUFFER_MIN,
            capabilities: Capabilities::default(),
        })
    }

    /// Returns whether messages are signed.
    pub fn is_signing(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns the length of the longest message that is accepted now, in bytes.
    pub fn message_len_max(&self) -> usize {
        match self.users.iter().any(|(_, user)| user.is_logged_in) {
            true => MESSAGE_LEN_MAX,
            false => 1 << 16,
        }
    }

    /// Admits a message: checks its place in the protocol and its signature.
    ///
    /// # Errors
    /// The connection must end.
    pub fn receive(&mut self, message: &[u8]) -> Result<Admitted, PeerMisbehaved> {
        let header = Header::decode(message).map_err(|_| PeerMisbehaved("bytes that are not SMB 1"))?;
        if header.flags.contains(Flags::REPLY) {
            return Err(PeerMisbehaved("a response"));
        }
        if (header.command == Command::NEGOTIATE) == self.has_negotiated {
            return Err(PeerMisbehaved(match self.has_negotiated {
                true => "a second NEGOTIATE",
                false => "a request before NEGOTIATE",
            }));
        }
        let sequence = self.sequence;
        if let Some(signer) = &self.signer {
            // [MS-SMB] 3.3.5.1 answers with an error, which the client could not trust; Samba ends
            // the connection.
            signer
                .verify(message, sequence)
                .map_err(|_| PeerMisbehaved("a message with a wrong signature"))?;
            let step = if has_no_response(header.command) { 1 } else { 2 };
            self.sequence = sequence.wrapping_add(step);
        }
        Ok(Admitted {
            header,
            sequence: sequence.wrapping_add(1),
        })
    }

    /// Appends the response to NEGOTIATE ([MS-CIFS] 3.3.5.42, [MS-SMB] 3.3.5.2).
    pub fn negotiate(&mut self, header: &Header, wall_time: FileTime, w: &mut Writer<'_>) {
        self.has_negotiated = true;
        let config = &self.config;
        let words = NegotiateWords {
            dialect_index: self.offer.index,
            security_mode: config.security_mode(),
            max_mpx_count: Config::MAX_MPX_COUNT,
            max_number_vcs: 1,
            max_buffer_size: Config::BUFFER_SIZE,
            max_raw_size: 65_536,
            session_key: 0,
            capabilities: Config::capabilities(self.offer.extended_security),
            system_time: wall_time,
            server_time_zone: config.zone.0,
            challenge_length: 0,
        };
        let is_unicode = header.is_unicode();
        let greeting = match self.offer.extended_security {
            true => Greeting::Extended {
                guid: config.server_guid,
                blob: config.hint.clone(),
            },
            false => Greeting::Challenge {
                challenge: self.challenge.to_vec(),
                domain: self.string(&config.names.netbios_domain, is_unicode),
                server: self.string(&config.names.netbios_computer, is_unicode),
            },
        };
        NegotiateResponse::NtLm(words, greeting).encode(w);
    }

    /// Encodes a string for a response. Characters that the code page lacks become underscores.
    pub fn string(&self, text: &Text, is_unicode: bool) -> Str {
        let page = self.config.code_page;
        Str::encode(text, is_unicode, page).unwrap_or_else(|_| {
            let each = text.units().iter().map(|unit| {
                let alone = Text::from_units(vec![*unit]);
                page.encode(&alone).unwrap_or_else(|_| b"_".to_vec())
            });
            Str::oem(&each.collect::<Vec<_>>().concat())
        })
    }

    /// Returns the text of a string in a request.
    pub fn text(&self, string: &Str) -> Text {
        string.text(self.config.code_page)
    }

    /// Decodes a session setup and keeps what it says about the client.
    ///
    /// # Errors
    /// STATUS_INVALID_SMB: it is malformed, or of the form that was not negotiated.
    pub fn decode_setup(
        &mut self,
        block: &Block<'_>,
        header: &Header,
    ) -> Result<SessionSetupRequest, NtStatus> {
        let request = SessionSetupRequest::decode(block, header.is_unicode())
            .map_err(|_| dos_error::status::INVALID_SMB)?;
        self.client.get_or_insert(ClientLimits {
            buffer_size: request.words.max_buffer_size.max(CLIENT_BUFFER_MIN),
            capabilities: request.capabilities,
        });
        Ok(request)
    }

    /// Adds a login in progress and returns its UID.
    ///
    /// # Errors
    /// [`NtStatus::INSUFFICIENT_RESOURCES`]: there are too many sessions.
    pub fn begin_login(&mut self, session: SessionId) -> Result<u16, NtStatus> {
        let user = User {
            session,
            is_logged_in: false,
        };
        self.users.add(user).ok_or(NtStatus::INSUFFICIENT_RESOURCES)
    }

    /// Returns the session of a login in progress.
    pub fn login(&self, uid: u16) -> Option<SessionId> {
        let user = self.users.get(uid).filter(|user| !user.is_logged_in)?;
        Some(user.session)
    }

    /// Makes a login a session. From the first login with a key on, messages are signed if the server
    /// requires it or the client asks for it ([MS-CIFS] 3.3.5.43); the request of that login counts
    /// as number 0. A client that cannot sign is refused by its next message. `response` is the client's response
    /// to the challenge; empty with extended security.
    pub fn log_in(&mut self, admitted: &mut Admitted, uid: u16, key: Option<&Key>, response: &[u8]) {
        if let Some(user) = self.users.get_mut(uid) {
            user.is_logged_in = true;
        }
        let asked = Flags2::SECURITY_SIGNATURE | Flags2::SECURITY_SIGNATURE_REQUIRED;
        let is_wanted = self.config.signing == Signing::Required || admitted.header.flags2.intersects(asked);
        if let Some(key) = key.filter(|_| is_wanted && self.signer.is_none()) {
            self.signer = Some(Signer::new(key.expose(), response));
            admitted.sequence = 1;
            self.sequence = 2;
        }
    }

    /// Returns the session of a UID.
    pub fn session(&self, uid: u16) -> Option<SessionId> {
        let user = self.users.get(uid).filter(|user| user.is_logged_in)?;
        Some(user.session)
    }

    /// Forgets a UID, of a session or of a login in progress.
    pub fn forget(&mut self, uid: u16) {
        self.users.remove(uid);
    }

    /// Returns the header of a request's response.
    pub fn reply(&self, header: &Header, status: NtStatus) -> Header {
        let mut reply = header.reply(status);
        reply.flags2 -= Flags2::SECURITY_SIGNATURE_REQUIRED | Flags2::SECURITY_SIGNATURE;
        if self.is_signing() {
            reply.flags2 |= Flags2::SECURITY_SIGNATURE;
        }
        if header.command == Command::NEGOTIATE {
            reply.flags2 -= Flags2::EXTENDED_SECURITY;
            if self.offer.extended_security {
                reply.flags2 |= Flags2::EXTENDED_SECURITY;
            }
        }
        reply
    }

    /// Signs a response that was encoded with its header, without the length that frames it.
    pub fn finish(&self, message: &mut [u8], sequence: u32) {
        if let Some(signer) = &self.signer {
            signer.sign(message, &[], sequence);
        }
    }
}

/// Whether the command has no response, so that its signature takes one number only ([MS-CIFS]
/// 3.2.4.1.3): NT_CANCEL, and the secondary requests of transactions.
fn has_no_response(command: Command) -> bool {
    matches!(
        command,
        Command::NT_CANCEL
            | Command::TRANSACTION_SECONDARY
            | Command::TRANSACTION2_SECONDARY
            | Command::NT_TRANSACT_SECONDARY
    )
}
