//! NEGOTIATE of SMB 2 and of SMB 1 ([MS-SMB2] 3.3.5.3, 3.3.5.4).

use ropeway_smb_wire::header::{Command, HEADER_LEN, Header, HeaderFlags};
use ropeway_smb_wire::negotiate::{
    Capabilities, Dialect, DialectRevision, NegotiateRequest, NegotiateResponse, SecurityMode,
};
use ropeway_smb_wire::negotiate_context::{
    self as contexts, CompressionAlgorithm, CompressionFlags, Context, HashAlgorithm,
};
use ropeway_smb_wire::smb1_negotiate::Smb1NegotiateRequest;
use ropeway_smb_wire::{FileTime, Guid, MessageId, NtStatus, Reader};

use super::connection::{Connection, PeerMisbehaved, Phase};
use super::reply::ReplyFrame;
use crate::compression::{Algorithms, Compression, CompressionLevel};
use crate::crypto::{Cipher, SigningAlgorithm};

/// Maximum length of requests and payloads without multi-credit requests, in bytes ([MS-SMB2]
/// 3.3.5.4).
const SINGLE_CREDIT_MAX: u32 = 65_536;

/// Maximum number of dialects kept of a client's list. There are six; the rest is invalid.
pub const DIALECTS_MAX: usize = 64;

/// The result of a negotiation.
#[derive(Clone, Debug)]
pub struct Negotiated {
    /// The dialect.
    pub dialect: Dialect,
    /// The client's GUID.
    pub client_guid: Guid,
    /// The client's capabilities.
    pub client_capabilities: Capabilities,
    /// The client's signing mode.
    pub client_security_mode: SecurityMode,
    /// The dialects that the client offered, in its order, for FSCTL_VALIDATE_NEGOTIATE_INFO: the
    /// first [`DIALECTS_MAX`] of those that exist.
    pub client_dialects: Vec<Dialect>,
    /// The capabilities announced to the client.
    pub capabilities: Capabilities,
    /// The signing mode announced to the client.
    pub security_mode: SecurityMode,
    /// Maximum length of a READ, WRITE or query in bytes.
    pub io_max: u32,
    /// Whether requests may cost more than one credit.
    pub multi_credit: bool,
    pub(super) signing: SigningAlgorithm,
    pub(super) cipher: Option<Cipher>,
    pub(super) compression: Compression,
    /// How strongly replies are compressed.
    pub(super) level: CompressionLevel,
}

impl Connection {
    /// Answers an SMB 1 NEGOTIATE that offers SMB 2 ([MS-SMB2] 3.3.5.3) with an SMB 2 reply.
    pub(super) fn negotiate_smb1(
        &mut self,
        message: &[u8],
        wall_time: FileTime,
    ) -> Result<ReplyFrame, PeerMisbehaved> {
        if self.phase != Phase::New {
            return Err(PeerMisbehaved("a second SMB 1 NEGOTIATE"));
        }
        let request = Smb1NegotiateRequest::decode(message)
            .map_err(|_| PeerMisbehaved("a malformed SMB 1 NEGOTIATE"))?;
        let any = request.offers(Smb1NegotiateRequest::SMB_2_WILDCARD);
        let oldest = self.config.dialect_min;
        let revision = if any && self.config.dialect_max > Dialect::Smb202 {
            DialectRevision::Wildcard
        } else if request.offers(Smb1NegotiateRequest::SMB_2_002) && oldest == Dialect::Smb202 {
            DialectRevision::Dialect(Dialect::Smb202)
        } else {
            return Err(PeerMisbehaved("an SMB 1 NEGOTIATE that does not offer SMB 2"));
        };
        if let DialectRevision::Dialect(dialect) = revision {
            self.settle(Negotiated::plain(dialect));
        } else {
            self.phase = Phase::Smb1Seen;
        }
        // The SMB 1 NEGOTIATE used id 0 ([MS-SMB2] 3.3.5.2.3), and the next message uses 1. Some
        // clients use 0 again.
        let mut header = Header::request(Command::Negotiate, MessageId(0)).reply(NtStatus::SUCCESS);
        header.flags = HeaderFlags::SERVER_TO_REDIR;
        header.credits = 1;
        if revision != DialectRevision::Wildcard {
            _ = self.window.take(0, 1);
        }
        header.credits = self.window.grant(1);
        let mut frame = ReplyFrame::new(Vec::new(), false);
        let io_max = self.config.io_max.min(SINGLE_CREDIT_MAX);
        self.push_negotiate(
            &mut frame,
            &header,
            revision,
            Capabilities::default(),
            io_max,
            Vec::new(),
            wall_time,
        );
        Ok(frame)
    }

    /// Handles an SMB 2 NEGOTIATE. The inner error is the status of a refusal.
    pub(super) fn negotiate(
        &mut self,
        header: &Header,
        message: &[u8],
        wall_time: FileTime,
        frame: &mut ReplyFrame,
    ) -> Result<Result<(), NtStatus>, PeerMisbehaved> {
        // [MS-SMB2] 3.3.5.4: a second NEGOTIATE ends the connection.
        if !matches!(self.phase, Phase::New | Phase::Smb1Seen) {
            return Err(PeerMisbehaved("a second NEGOTIATE"));
        }
        if self.phase == Phase::Smb1Seen && header.message_id == MessageId(1) {
            // Id 0 was used by the SMB 1 NEGOTIATE.
            _ = self.window.take(0, 1);
        }
        // [MS-SMB2] 3.3.5.2.4: there is no key that it could be signed with.
        if header.flags.contains(HeaderFlags::SIGNED) {
            return Ok(Err(NtStatus::INVALID_PARAMETER));
        }
        let mut reader = Reader::at(message, HEADER_LEN, "SMB2 NEGOTIATE Request");
        let Ok(request) = NegotiateRequest::decode(&mut reader) else {
            return Ok(Err(NtStatus::INVALID_PARAMETER));
        };
        let Some(dialect) = self
            .config
            .dialects()
            .find(|dialect| request.dialects.contains(dialect))
        else {
            return Ok(Err(NtStatus::NOT_SUPPORTED));
        };
        self.preauth.update(&[message]);
        let salt = self.config.random::<32>();
        let (mut negotiated, replies) = match self.choose(dialect, &request, &salt) {
            Ok(chosen) => chosen,
            Err(status) => return Ok(Err(status)),
        };
        negotiated.client_dialects = request.dialects;
        negotiated.client_dialects.truncate(DIALECTS_MAX);
        negotiated.client_dialects.shrink_to_fit();
        let mut reply = header.reply(NtStatus::SUCCESS);
        reply.credits = self.window.grant(header.credits);
        let (capabilities, io_max) = (negotiated.capabilities, negotiated.io_max);
        self.settle(negotiated);
        let revision = DialectRevision::Dialect(dialect);
        self.push_negotiate(frame, &reply, revision, capabilities, io_max, replies, wall_time);
        let plain = frame.plain().to_vec();
        self.preauth.update(&[&plain]);
        Ok(Ok(()))
    }

    fn settle(&mut self, negotiated: Negotiated) {
        self.negotiated = Some(negotiated);
        self.phase = Phase::Negotiated;
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one message")]
    fn push_negotiate(
        &self,
        frame: &mut ReplyFrame,
        header: &Header,
        dialect: DialectRevision,
        capabilities: Capabilities,
        io_max: u32,
        contexts: Vec<Context<'_>>,
        wall_time: FileTime,
    ) {
        let hint = self.mechanisms_hint(wall_time);
        let response = NegotiateResponse {
            security_mode: self.security_mode(),
            dialect,
            server_guid: self.config.server_guid,
            capabilities,
            max_transact_size: io_max,
            max_read_size: io_max,
            max_write_size: io_max,
            system_time: wall_time,
            server_start_time: FileTime(0),
            security_buffer: &hint,
            contexts,
        };
        frame.push(header, None, |w| response.encode(w));
    }

    pub(super) fn security_mode(&self) -> SecurityMode {
        if self.config.signing_required {
            SecurityMode::SIGNING_ENABLED | SecurityMode::SIGNING_REQUIRED
        } else {
            SecurityMode::SIGNING_ENABLED
        }
    }

    /// Chooses what both ends support, and the contexts of the reply.
    fn choose<'a>(
        &self,
        dialect: Dialect,
        request: &NegotiateRequest<'_>,
        salt: &'a [u8],
    ) -> Result<(Negotiated, Vec<Context<'a>>), NtStatus> {
        let config = &self.config;
        let mut negotiated = Negotiated::plain(dialect);
        negotiated.client_guid = request.client_guid;
        negotiated.client_capabilities = request.capabilities;
        negotiated.client_security_mode = request.security_mode;
        negotiated.security_mode = self.security_mode();
        if dialect >= Dialect::Smb210 {
            negotiated.capabilities |= Capabilities::LARGE_MTU;
            negotiated.multi_credit = true;
            negotiated.io_max = config.io_max;
            if config.leasing {
                negotiated.capabilities |= Capabilities::LEASING;
            }
        } else {
            negotiated.io_max = config.io_max.min(SINGLE_CREDIT_MAX);
        }
        let both = |flag| dialect >= Dialect::Smb300 && request.capabilities.contains(flag);
        if config.multichannel && both(Capabilities::MULTI_CHANNEL) {
            negotiated.capabilities |= Capabilities::MULTI_CHANNEL;
        }
        if config.persistent_handles && both(Capabilities::PERSISTENT_HANDLES) {
            negotiated.capabilities |= Capabilities::PERSISTENT_HANDLES;
        }
        if config.leasing && both(Capabilities::DIRECTORY_LEASING) {
            negotiated.capabilities |= Capabilities::DIRECTORY_LEASING;
        }
        let sealing = config.sealing != super::Sealing::Off;
        if sealing && dialect < Dialect::Smb311 && both(Capabilities::ENCRYPTION) {
            negotiated.capabilities |= Capabilities::ENCRYPTION;
            negotiated.cipher = Some(Cipher::Aes128Ccm);
        }
        if dialect >= Dialect::Smb300 {
            negotiated.signing = SigningAlgorithm::AesCmac;
        }
        let mut replies = Vec::new();
        if dialect == Dialect::Smb311 {
            choose_contexts(
                &mut negotiated,
                &request.contexts,
                salt,
                sealing,
                config.compression,
                &mut replies,
            )?;
        }
        Ok((negotiated, replies))
    }
}

impl Connection {
    /// Returns what a message may be compressed with: what was negotiated. A library in C decodes
    /// Zstandard, so that is for clients that have logged in.
    pub(super) fn accepted_compression(&self) -> Compression {
        let negotiated = self.negotiated.as_ref();
        let mut both = negotiated.map(|both| both.compression).unwrap_or_default();
        both.algorithms.zstd &= !self.channels.is_empty();
        both
    }

    /// Sets how strongly replies are compressed from now on, where the client wants that.
    pub fn set_compression_level(&mut self, level: CompressionLevel) {
        if let Some(negotiated) = &mut self.negotiated {
            negotiated.level = level;
        }
    }
}

impl Negotiated {
    /// Returns the compression that both ends have.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the algorithms for replies that the client wants compressed.
    pub fn reply_compression(&self) -> Algorithms {
        self.compression.at(self.level).algorithms
    }

    fn plain(dialect: Dialect) -> Self {
        Self {
            dialect,
            client_guid: Guid::default(),
            client_capabilities: Capabilities::default(),
            client_security_mode: SecurityMode::default(),
            client_dialects: Vec::new(),
            capabilities: Capabilities::default(),
            security_mode: SecurityMode::SIGNING_ENABLED,
            io_max: SINGLE_CREDIT_MAX,
            multi_credit: false,
            signing: SigningAlgorithm::HmacSha256,
            cipher: None,
            compression: Compression::default(),
            level: CompressionLevel::default(),
        }
    }
}

/// Evaluates the contexts ([MS-SMB2] 3.3.5.4): each kind at most once, preauthentication integrity
/// exactly once.
fn choose_contexts<'a>(
    negotiated: &mut Negotiated,
    offered: &[Context<'_>],
    salt: &'a [u8],
    sealing: bool,
    ours: Algorithms,
    replies: &mut Vec<Context<'a>>,
) -> Result<(), NtStatus> {
    let of = |wanted: contexts::ContextType| {
        offered
            .iter()
            .filter(move |context| context.context_type() == wanted)
    };
    for kind in [
        contexts::ContextType::PREAUTH_INTEGRITY_CAPABILITIES,
        contexts::ContextType::ENCRYPTION_CAPABILITIES,
        contexts::ContextType::COMPRESSION_CAPABILITIES,
        contexts::ContextType::SIGNING_CAPABILITIES,
    ] {
        if of(kind).count() > 1 {
            return Err(NtStatus::INVALID_PARAMETER);
        }
    }
    let Some(Context::PreauthIntegrity { hash_algorithms, .. }) =
        of(contexts::ContextType::PREAUTH_INTEGRITY_CAPABILITIES).next()
    else {
        return Err(NtStatus::INVALID_PARAMETER);
    };
    if !hash_algorithms.contains(&HashAlgorithm::SHA_512) {
        return Err(NtStatus::SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP);
    }
    replies.push(Context::PreauthIntegrity {
        hash_algorithms: vec![HashAlgorithm::SHA_512],
        salt,
    });
    for context in offered {
        match context {
            Context::Encryption(list) => {
                let cipher = pick(list, &CIPHERS).filter(|_| sealing);
                negotiated.cipher = cipher.and_then(Cipher::from_wire);
                replies.push(Context::Encryption(vec![
                    cipher.unwrap_or(contexts::Cipher::NONE),
                ]));
            }
            Context::Signing(list) => {
                if let Some(chosen) = pick(list, &SIGNATURES) {
                    negotiated.signing =
                        SigningAlgorithm::from_wire(chosen).ok_or(NtStatus::INVALID_PARAMETER)?;
                    replies.push(Context::Signing(vec![chosen]));
                }
            }
            Context::Compression { flags, algorithms } if !ours.is_empty() => {
                if algorithms.is_empty() {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                let (reply, chosen) = choose_compression(ours, *flags, algorithms);
                negotiated.compression = chosen;
                replies.push(reply);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Fastest first.
const CIPHERS: [contexts::Cipher; 4] = [
    contexts::Cipher::AES_128_GCM,
    contexts::Cipher::AES_256_GCM,
    contexts::Cipher::AES_128_CCM,
    contexts::Cipher::AES_256_CCM,
];

/// Fastest first.
const SIGNATURES: [contexts::SigningAlgorithm; 3] = [
    contexts::SigningAlgorithm::AES_GMAC,
    contexts::SigningAlgorithm::AES_CMAC,
    contexts::SigningAlgorithm::HMAC_SHA256,
];

fn pick<T: Copy + PartialEq>(offered: &[T], ours: &[T]) -> Option<T> {
    ours.iter().find(|one| offered.contains(one)).copied()
}

/// Returns the context of the reply, and what messages may use ([MS-SMB2] 3.3.5.4): the algorithms
/// of both ends in the client's order. Without one, the reply names NONE.
fn choose_compression<'a>(
    ours: Algorithms,
    flags: CompressionFlags,
    offered: &[CompressionAlgorithm],
) -> (Context<'a>, Compression) {
    let mut common = Vec::new();
    for algorithm in offered {
        if ours.contains(*algorithm) && !common.contains(algorithm) {
            common.push(*algorithm);
        }
    }
    if common.is_empty() {
        let none = Context::Compression {
            flags: CompressionFlags::default(),
            algorithms: vec![CompressionAlgorithm::NONE],
        };
        return (none, Compression::default());
    }
    let flags = flags & CompressionFlags::CHAINED;
    let chosen = Compression::from_wire(flags, &common);
    let reply = Context::Compression {
        flags,
        algorithms: common,
    };
    (reply, chosen)
}
