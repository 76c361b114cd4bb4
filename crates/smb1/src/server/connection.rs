//! The connection: what is admitted, sessions, signatures.

use std::sync::Arc;

use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::{DecodeError, FileTime, NtStatus, SessionId, Text, Writer};

use super::config::{Config, Signing};
use super::ids::Ids;
use super::login::{LoggedIn, Login};
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
pub(super) enum User {
    LoggingIn(Box<Login>),
    LoggedIn(SessionId),
}

/// The server end of one connection.
pub struct Connection {
    pub(super) config: Arc<Config>,
    has_negotiated: bool,
    /// Whether client and server agreed on extended security.
    pub(super) extended_security: bool,
    pub(super) challenge: [u8; 8],
    pub(super) client: Option<ClientLimits>,
    pub(super) users: Ids<User>,
    signer: Option<Signer>,
    /// Sequence number of the next request's signature.
    sequence: u32,
}

impl Connection {
    /// Creates a connection before its first message.
    pub fn new(config: Arc<Config>) -> Self {
        let challenge = config.accounts.random();
        let users_max = config.accounts.sessions_per_connection_max;
        Self {
            config,
            has_negotiated: false,
            extended_security: false,
            challenge,
            client: None,
            users: Ids::new(users_max),
            signer: None,
            sequence: 0,
        }
    }

    /// Returns the settings.
    pub fn config(&self) -> &Config {
        &self.config
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
        match self.sessions().next() {
            Some(_) => MESSAGE_LEN_MAX,
            None => 1 << 16,
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
            let step = if header.command == Command::NT_CANCEL { 1 } else { 2 };
            self.sequence = sequence.wrapping_add(step);
        }
        Ok(Admitted {
            header,
            sequence: sequence.wrapping_add(1),
        })
    }

    /// Returns whether a message is a NEGOTIATE that offers NT LM 0.12 and not SMB 2.
    pub fn is_wanted(message: &[u8]) -> bool {
        let smb2 = [
            Smb1NegotiateRequest::SMB_2_WILDCARD,
            Smb1NegotiateRequest::SMB_2_002,
        ];
        Smb1NegotiateRequest::decode(message).is_ok_and(|request| {
            request.offers(NT_LM_0_12) && !smb2.iter().any(|dialect| request.offers(dialect))
        })
    }

    /// Answers NEGOTIATE ([MS-CIFS] 3.3.5.42, [MS-SMB] 3.3.5.2). `out` holds the response's header.
    ///
    /// # Errors
    /// The message is malformed. The connection must end.
    pub fn negotiate(
        &mut self,
        admitted: &Admitted,
        message: &[u8],
        wall_time: FileTime,
        w: &mut Writer<'_>,
    ) -> Result<(), PeerMisbehaved> {
        let request = Smb1NegotiateRequest::decode(message)?;
        let index = request
            .dialects()
            .position(|dialect| dialect == NT_LM_0_12.as_bytes());
        let Some(index) = index.and_then(|index| u16::try_from(index).ok()) else {
            NegotiateResponse::NoDialect.encode(w);
            return Ok(());
        };
        self.has_negotiated = true;
        let header = &admitted.header;
        let config = &self.config;
        self.extended_security =
            config.extended_security && header.flags2.contains(Flags2::EXTENDED_SECURITY);
        let words = NegotiateWords {
            dialect_index: index,
            security_mode: config.security_mode(),
            max_mpx_count: config.max_mpx_count,
            max_number_vcs: 1,
            max_buffer_size: config.buffer_size,
            max_raw_size: 65_536,
            session_key: 0,
            capabilities: config.capabilities(self.extended_security),
            system_time: wall_time,
            server_time_zone: config.zone.0,
            challenge_length: 0,
        };
        let greeting = match self.extended_security {
            true => Greeting::Extended {
                guid: config.accounts.server_guid,
                blob: config
                    .accounts
                    .spnego(false, wall_time, Default::default())
                    .hint(),
            },
            false => {
                let names = &config.accounts.names;
                let name = |text: &Text| self.string(text, self.is_unicode(header));
                Greeting::Challenge {
                    challenge: self.challenge.to_vec(),
                    domain: name(&names.netbios_domain),
                    server: name(&names.netbios_computer),
                }
            }
        };
        NegotiateResponse::NtLm(words, greeting).encode(w);
        Ok(())
    }

    /// Returns whether strings of a message, and of its response, are UTF-16.
    pub fn is_unicode(&self, header: &Header) -> bool {
        header.is_unicode()
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
    /// STATUS_INVALID_SMB.
    pub fn decode_setup(
        &mut self,
        block: &Block<'_>,
        header: &Header,
    ) -> Result<SessionSetupRequest, NtStatus> {
        let request = SessionSetupRequest::decode(block, self.is_unicode(header))
            .map_err(|_| crate::dos_error::status::INVALID_SMB)?;
        self.client.get_or_insert(ClientLimits {
            buffer_size: request.words.max_buffer_size.max(CLIENT_BUFFER_MIN),
            capabilities: request.capabilities,
        });
        Ok(request)
    }

    /// Makes a login a session. From the first login with a key on, messages are signed if both ends
    /// want that; the request of that login counts as number 0.
    pub fn log_in(&mut self, admitted: &mut Admitted, logged_in: &LoggedIn, session: SessionId) {
        if let Some(user) = self.users.get_mut(logged_in.uid) {
            *user = User::LoggedIn(session);
        }
        let client_signs = admitted.header.flags2.contains(Flags2::SECURITY_SIGNATURE);
        let wants = self.config.signing != Signing::Off && client_signs;
        if let Some(key) = logged_in.key.as_ref().filter(|_| wants && self.signer.is_none()) {
            self.signer = Some(Signer::new(key.truncated().expose(), &logged_in.response));
            admitted.sequence = 1;
            self.sequence = 2;
        }
    }

    /// Returns the session of a UID.
    pub fn session(&self, uid: u16) -> Option<SessionId> {
        match self.users.get(uid)? {
            User::LoggedIn(session) => Some(*session),
            User::LoggingIn(_) => None,
        }
    }

    /// Returns all sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.users.iter().filter_map(|(_, user)| match user {
            User::LoggedIn(session) => Some(*session),
            User::LoggingIn(_) => None,
        })
    }

    /// Forgets a UID. Returns its session.
    pub fn log_off(&mut self, uid: u16) -> Option<SessionId> {
        self.session(uid)?;
        match self.users.remove(uid)? {
            User::LoggedIn(session) => Some(session),
            User::LoggingIn(_) => None,
        }
    }

    /// Forgets a session that ended elsewhere.
    pub fn forget(&mut self, session: SessionId) {
        self.users
            .take_if(|user| matches!(user, User::LoggedIn(one) if *one == session));
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
            if self.extended_security {
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
