//! NEGOTIATE: the offer, and the checks of the reply against it.

use ropeway_smb_wire::negotiate::{
    Capabilities, Dialect, DialectRevision, NegotiateRequest, NegotiateResponse, SecurityMode,
};
use ropeway_smb_wire::negotiate_context::{
    self as context, CompressionAlgorithm, CompressionFlags, Context, HashAlgorithm,
};
use ropeway_smb_wire::{Reader, Writer, header::HEADER_LEN};

use super::connection::Connection;
use super::{CompressionOffer, Config, Event, Negotiated, PeerMisbehaved};
use crate::compression::Compression;
use crate::crypto::{Cipher, SigningAlgorithm};

/// Smallest limit that a server may set ([MS-SMB2] 3.2.5.2), in bytes.
const LIMIT_MIN: u32 = 4096;
/// Number of bytes that one credit covers.
const SINGLE_MAX: u32 = 65_536;
/// Length of the longest DNS name. A longer name is left out, since its context may be too long.
const HOST_UNITS_MAX: usize = 255;
/// The implemented algorithms. Pattern runs occur in chained payloads only. [MS-SMB2] 3.3.5.4: a
/// server chooses of a list what it knows, so the first is ignored by others.
const COMPRESSION: [CompressionAlgorithm; 4] = [
    CompressionAlgorithm::OWN_ZSTD,
    CompressionAlgorithm::PATTERN_V1,
    CompressionAlgorithm::LZ4,
    CompressionAlgorithm::LZNT1,
];
/// What only own ends have.
const COMPRESSION_OF_OWN_ENDS: [CompressionAlgorithm; 2] =
    [CompressionAlgorithm::OWN_ZSTD, CompressionAlgorithm::OWN_BY_LINE];

fn compression_offered(offer: CompressionOffer) -> &'static [CompressionAlgorithm] {
    match offer {
        CompressionOffer::Off => &[],
        CompressionOffer::OwnEnds => &COMPRESSION_OF_OWN_ENDS,
        CompressionOffer::On => &COMPRESSION,
    }
}

/// The fixed part of the offer. VALIDATE_NEGOTIATE_INFO repeats it.
pub(super) struct Offer {
    pub(super) capabilities: Capabilities,
    pub(super) security_mode: SecurityMode,
    pub(super) dialects: Vec<Dialect>,
}

impl Offer {
    fn new(config: &Config) -> Self {
        let dialects: Vec<_> = Dialect::ALL
            .into_iter()
            .filter(|dialect| config.dialects.contains(dialect))
            .collect();
        // [MS-SMB2] 3.2.4.2.2.2: no capabilities if only 2.x is offered.
        let capabilities = if dialects.last().is_some_and(|newest| *newest >= Dialect::Smb300) {
            let encryption = if config.ciphers.is_empty() {
                Capabilities::default()
            } else {
                Capabilities::ENCRYPTION
            };
            Capabilities::DFS
                | Capabilities::LEASING
                | Capabilities::LARGE_MTU
                | Capabilities::MULTI_CHANNEL
                | Capabilities::PERSISTENT_HANDLES
                | Capabilities::DIRECTORY_LEASING
                | encryption
        } else {
            Capabilities::default()
        };
        Self {
            capabilities,
            security_mode: config.security_mode(),
            dialects,
        }
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>, config: &Config, salt: &[u8]) {
        let mut contexts = Vec::new();
        if self.dialects.contains(&Dialect::Smb311) {
            contexts.push(Context::PreauthIntegrity {
                hash_algorithms: vec![HashAlgorithm::SHA_512],
                salt,
            });
            if !config.ciphers.is_empty() {
                contexts.push(Context::Encryption(
                    config.ciphers.iter().map(|cipher| cipher_code(*cipher)).collect(),
                ));
            }
            let algorithms = compression_offered(config.compression).to_vec();
            if !algorithms.is_empty() {
                contexts.push(Context::Compression {
                    flags: CompressionFlags::CHAINED,
                    algorithms,
                });
            }
            if (1..=HOST_UNITS_MAX).contains(&config.host.units().len()) {
                contexts.push(Context::Netname(config.host.clone()));
            }
            if !config.signing_algorithms.is_empty() {
                let codes = config
                    .signing_algorithms
                    .iter()
                    .map(|algorithm| signing_code(*algorithm));
                contexts.push(Context::Signing(codes.collect()));
            }
        }
        let request = NegotiateRequest {
            security_mode: self.security_mode,
            capabilities: self.capabilities,
            client_guid: config.client_guid,
            dialects: self.dialects.clone(),
            contexts,
        };
        request.encode(w);
    }
}

impl Connection {
    pub(super) fn offer(&self) -> Offer {
        Offer::new(&self.config)
    }

    /// Handles the NEGOTIATE reply ([MS-SMB2] 3.2.5.2).
    pub(super) fn handle_negotiate(&mut self, message: &[u8]) -> Result<(), PeerMisbehaved> {
        self.preauth.update(&[message]);
        let mut reader = Reader::at(message, HEADER_LEN, "SMB2 NEGOTIATE Response");
        let response = NegotiateResponse::decode(&mut reader)?;
        let DialectRevision::Dialect(dialect) = response.dialect else {
            return Err(PeerMisbehaved::NotOffered("a dialect"));
        };
        if !self.config.dialects.contains(&dialect) {
            return Err(PeerMisbehaved::NotOffered("a dialect"));
        }
        let limits = [
            response.max_read_size,
            response.max_write_size,
            response.max_transact_size,
        ];
        if limits.iter().any(|limit| *limit < LIMIT_MIN) {
            return Err(PeerMisbehaved::NotOffered("limits"));
        }
        let multi_credit =
            dialect >= Dialect::Smb210 && response.capabilities.contains(Capabilities::LARGE_MTU);
        let io_max = if multi_credit {
            self.config.io_max
        } else {
            self.config.io_max.min(SINGLE_MAX)
        };
        let chosen = Chosen::of(&self.config, dialect, &response)?;
        self.compressor.compression = chosen.compression;
        self.negotiated = Some(Negotiated {
            dialect,
            security_mode: response.security_mode,
            capabilities: response.capabilities,
            server_guid: response.server_guid,
            max_read: limits[0].min(io_max),
            max_write: limits[1].min(io_max),
            max_transact: limits[2].min(io_max),
            multi_credit,
            system_time: response.system_time,
            cipher: chosen.cipher,
            signing: chosen.signing,
            compression: chosen.compression,
            hint: response.security_buffer.to_vec(),
        });
        let longest = limits[0].min(io_max).max(limits[2].min(io_max));
        self.input.negotiated(longest as usize);
        self.recount_wanted();
        self.notify(Event::Negotiated)?;
        self.begin_login();
        Ok(())
    }

    /// Counts the queue again: its charges were unknown until now.
    fn recount_wanted(&mut self) {
        self.credits.forget_wanted();
        let charges: u32 = self
            .queue
            .iter()
            .map(|(_, compound)| self.compound_charge(compound))
            .sum();
        self.credits.want(charges);
    }
}

/// What the negotiate contexts, or the dialect, determine.
struct Chosen {
    cipher: Option<Cipher>,
    signing: SigningAlgorithm,
    compression: Compression,
}

impl Chosen {
    fn of(
        config: &Config,
        dialect: Dialect,
        response: &NegotiateResponse<'_>,
    ) -> Result<Self, PeerMisbehaved> {
        let encrypts = !config.ciphers.is_empty() && response.capabilities.contains(Capabilities::ENCRYPTION);
        let mut chosen = Self {
            cipher: None,
            signing: match dialect {
                Dialect::Smb202 | Dialect::Smb210 => SigningAlgorithm::HmacSha256,
                _ => SigningAlgorithm::AesCmac,
            },
            compression: Compression::default(),
        };
        match dialect {
            Dialect::Smb202 | Dialect::Smb210 => {}
            Dialect::Smb300 | Dialect::Smb302 => chosen.cipher = encrypts.then_some(Cipher::Aes128Ccm),
            Dialect::Smb311 => chosen.take_contexts(config, &response.contexts)?,
        }
        Ok(chosen)
    }

    /// Evaluates the contexts ([MS-SMB2] 3.2.5.2). Each may occur once and contain only what was
    /// offered.
    fn take_contexts(&mut self, config: &Config, contexts: &[Context<'_>]) -> Result<(), PeerMisbehaved> {
        for (index, context) in contexts.iter().enumerate() {
            let kind = context.context_type();
            let known = !matches!(context, Context::Other { .. });
            if known && contexts[..index].iter().any(|other| other.context_type() == kind) {
                return Err(PeerMisbehaved::NotOffered("a context twice"));
            }
        }
        let mut hashed = false;
        for context in contexts {
            match context {
                Context::PreauthIntegrity { hash_algorithms, .. } => {
                    hashed = hash_algorithms[..] == [HashAlgorithm::SHA_512];
                }
                Context::Encryption(ciphers) => match ciphers[..] {
                    [context::Cipher::NONE] => {}
                    [code] => {
                        let cipher = Cipher::from_wire(code).filter(|cipher| config.ciphers.contains(cipher));
                        self.cipher = Some(cipher.ok_or(PeerMisbehaved::NotOffered("a cipher"))?);
                    }
                    _ => return Err(PeerMisbehaved::NotOffered("ciphers")),
                },
                Context::Signing(algorithms) => {
                    let [code] = algorithms[..] else {
                        return Err(PeerMisbehaved::NotOffered("signing algorithms"));
                    };
                    self.signing = SigningAlgorithm::from_wire(code)
                        .filter(|algorithm| config.signing_algorithms.contains(algorithm))
                        .ok_or(PeerMisbehaved::NotOffered("a signing algorithm"))?;
                }
                Context::Compression { flags, algorithms } => {
                    let ours = compression_offered(config.compression);
                    let offered = |code: &CompressionAlgorithm| {
                        *code == CompressionAlgorithm::NONE || ours.contains(code)
                    };
                    if ours.is_empty() || !algorithms.iter().all(offered) {
                        return Err(PeerMisbehaved::NotOffered("compression"));
                    }
                    self.compression = Compression::from_wire(*flags, algorithms);
                }
                _ => {}
            }
        }
        if hashed {
            Ok(())
        } else {
            Err(PeerMisbehaved::NotOffered("a hash"))
        }
    }
}

fn cipher_code(cipher: Cipher) -> context::Cipher {
    match cipher {
        Cipher::Aes128Ccm => context::Cipher::AES_128_CCM,
        Cipher::Aes128Gcm => context::Cipher::AES_128_GCM,
        Cipher::Aes256Ccm => context::Cipher::AES_256_CCM,
        Cipher::Aes256Gcm => context::Cipher::AES_256_GCM,
    }
}

fn signing_code(algorithm: SigningAlgorithm) -> context::SigningAlgorithm {
    match algorithm {
        SigningAlgorithm::HmacSha256 => context::SigningAlgorithm::HMAC_SHA256,
        SigningAlgorithm::AesCmac => context::SigningAlgorithm::AES_CMAC,
        SigningAlgorithm::AesGmac => context::SigningAlgorithm::AES_GMAC,
    }
}
