//! NEGOTIATE ([MS-CIFS] 2.2.4.52, [MS-SMB] 2.2.4.5).
//!
//! The request is `ropeway_smb_wire::smb1_negotiate`, which SMB 2 servers know too.

use bitflags::bitflags;
use ropeway_smb_wire::{FileTime, Guid, Reader, Result, Writer};

use crate::message::{Block, write_block};
use crate::strings::Str;
use crate::words::{flag_fields, words};

/// Dialect string of the only dialect that this crate speaks.
pub const NT_LM_0_12: &str = "NT LM 0.12";

/// `DialectIndex` if the server speaks none of the client's dialects.
pub const NO_DIALECT: u16 = 0xFFFF;

bitflags! {
    /// `SecurityMode`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SecurityMode: u8 {
        /// Users log in; without it, shares have passwords.
        const USER_LEVEL = 0x01;
        /// Passwords are proven by a challenge, not sent.
        const ENCRYPT_PASSWORDS = 0x02;
        /// The server can sign.
        const SIGNATURES_ENABLED = 0x04;
        /// The server requires signatures.
        const SIGNATURES_REQUIRED = 0x08;
        const _ = !0;
    }
}

bitflags! {
    /// `Capabilities` ([MS-CIFS] 2.2.4.52.2, [MS-SMB] 2.2.4.5.2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// READ_RAW and WRITE_RAW.
        const RAW_MODE = 0x0000_0001;
        /// READ_MPX and WRITE_MPX.
        const MPX_MODE = 0x0000_0002;
        /// UTF-16.
        const UNICODE = 0x0000_0004;
        /// 64-bit offsets.
        const LARGE_FILES = 0x0000_0008;
        /// The commands of NT.
        const NT_SMBS = 0x0000_0010;
        /// RPC over named pipes.
        const RPC_REMOTE_APIS = 0x0000_0020;
        /// NTSTATUS.
        const STATUS32 = 0x0000_0040;
        /// Level II oplocks.
        const LEVEL_II_OPLOCKS = 0x0000_0080;
        /// LOCK_AND_READ and WRITE_AND_UNLOCK.
        const LOCK_AND_READ = 0x0000_0100;
        /// The listing levels of NT.
        const NT_FIND = 0x0000_0200;
        /// DFS.
        const DFS = 0x0000_1000;
        /// The information levels of NT files.
        const INFOLEVEL_PASSTHRU = 0x0000_2000;
        /// READ_ANDX beyond the buffer size.
        const LARGE_READX = 0x0000_4000;
        /// WRITE_ANDX beyond the buffer size.
        const LARGE_WRITEX = 0x0000_8000;
        /// File system controls.
        const LWIO = 0x0001_0000;
        /// UNIX extensions.
        const UNIX = 0x0080_0000;
        /// Several sessions on one connection.
        const DYNAMIC_REAUTH = 0x2000_0000;
        /// Session setup with SPNEGO.
        const EXTENDED_SECURITY = 0x8000_0000;
        const _ = !0;
    }
}

flag_fields!(SecurityMode: u8, Capabilities: u32);

words! {
    /// Words of the response in dialect NT LM 0.12.
    pub struct NegotiateWords {
        /// Index of the chosen dialect in the request's list.
        dialect_index: u16,
        /// How users prove who they are.
        security_mode: SecurityMode,
        /// Maximum number of requests in flight.
        max_mpx_count: u16,
        /// Maximum number of connections of one client.
        max_number_vcs: u16,
        /// Largest message that the server receives, in bytes.
        max_buffer_size: u32,
        /// Largest raw transfer in bytes.
        max_raw_size: u32,
        /// Number that the session setup repeats.
        session_key: u32,
        /// What the server can do.
        capabilities: Capabilities,
        /// The server's time.
        system_time: FileTime,
        /// Minutes from the server's local time to UTC.
        server_time_zone: i16,
        /// Bytes of the challenge; 0 with extended security.
        challenge_length: u8,
    }
}

/// What follows the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// Without extended security.
    Challenge {
        /// The challenge, 8 bytes by all servers.
        challenge: Vec<u8>,
        /// The server's domain.
        domain: Str,
        /// The server's name.
        server: Str,
    },
    /// With extended security.
    Extended {
        /// The server's GUID.
        guid: Guid,
        /// A SPNEGO token that lists mechanisms; may be empty.
        blob: Vec<u8>,
    },
}

/// NEGOTIATE response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiateResponse {
    /// The server speaks none of the dialects.
    NoDialect,
    /// NT LM 0.12.
    NtLm(NegotiateWords, Greeting),
    /// An older dialect, which the client did not offer.
    Older(u16),
}

impl NegotiateResponse {
    /// Decodes the block. The strings' form comes from the header.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        if block.word_count() < 17 {
            return Ok(match block.words().u16()? {
                NO_DIALECT => Self::NoDialect,
                index => Self::Older(index),
            });
        }
        let mut words = NegotiateWords::read(&mut block.words())?;
        if words.dialect_index == NO_DIALECT {
            return Ok(Self::NoDialect);
        }
        let mut bytes = block.bytes();
        let greeting = match words.capabilities.contains(Capabilities::EXTENDED_SECURITY) {
            true => {
                words.challenge_length = 0;
                Greeting::Extended {
                    guid: Guid(bytes.array()?),
                    blob: bytes.rest().to_vec(),
                }
            }
            false => Greeting::Challenge {
                challenge: bytes.bytes(usize::from(words.challenge_length))?.to_vec(),
                domain: read_name(&mut bytes, is_unicode)?,
                server: read_name(&mut bytes, is_unicode)?,
            },
        };
        Ok(Self::NtLm(words, greeting))
    }

    /// Appends the block. `challenge_length` is set from the challenge.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::NoDialect => write_block(w, |w| w.u16(NO_DIALECT), |_| {}),
            Self::Older(index) => write_block(w, |w| w.u16(*index), |_| {}),
            Self::NtLm(words, greeting) => {
                let challenge_length = match greeting {
                    Greeting::Challenge { challenge, .. } => challenge.len() as u8,
                    Greeting::Extended { .. } => 0,
                };
                let words = NegotiateWords {
                    challenge_length,
                    ..*words
                };
                write_block(w, |w| words.write(w), |w| greeting.encode(w));
            }
        }
    }
}

impl Greeting {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Challenge {
                challenge,
                domain,
                server,
            } => {
                w.bytes(challenge);
                write_name(domain, w);
                write_name(server, w);
            }
            Self::Extended { guid, blob } => {
                w.bytes(&guid.0);
                w.bytes(blob);
            }
        }
    }
}

/// Reads a name after the challenge. Names here are not aligned ([MS-CIFS] 2.2.4.52.2).
fn read_name(reader: &mut Reader<'_>, is_unicode: bool) -> Result<Str> {
    let start = reader.position();
    let message = reader.message().get(start..).unwrap_or_default();
    let mut name = Reader::new(message, "SMB_Data");
    let string = Str::read_z(&mut name, is_unicode)?;
    reader.skip(name.position())?;
    Ok(string)
}

fn write_name(name: &Str, w: &mut Writer<'_>) {
    let mut bytes = Vec::new();
    name.write_z(&mut Writer::new(&mut bytes));
    w.bytes(&bytes);
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn responses_round_trip() {
        let words = NegotiateWords {
            dialect_index: 1,
            security_mode: SecurityMode::USER_LEVEL | SecurityMode::ENCRYPT_PASSWORDS,
            max_mpx_count: 50,
            max_number_vcs: 1,
            max_buffer_size: 16_644,
            max_raw_size: 65_536,
            session_key: 7,
            capabilities: Capabilities::UNICODE | Capabilities::LARGE_FILES,
            system_time: FileTime(132_000_000_000_000_000),
            server_time_zone: -60,
            challenge_length: 8,
        };
        let plain = Greeting::Challenge {
            challenge: b"12345678".to_vec(),
            domain: Str::unicode(&Text::from("WORKGROUP")),
            server: Str::unicode(&Text::from("OLD")),
        };
        let extended = Greeting::Extended {
            guid: Guid([3; 16]),
            blob: b"token".to_vec(),
        };
        let extended_words = NegotiateWords {
            capabilities: words.capabilities | Capabilities::EXTENDED_SECURITY,
            challenge_length: 0,
            ..words
        };
        hostile::check(
            &[
                NegotiateResponse::NtLm(words, plain),
                NegotiateResponse::NtLm(extended_words, extended),
                NegotiateResponse::NoDialect,
                NegotiateResponse::Older(2),
            ],
            |block| NegotiateResponse::decode(block, true).ok(),
            |response, w| response.encode(w),
        );
    }

    #[test]
    fn names_of_bytes_and_missing_names() {
        let bytes = hostile::message(|w| {
            write_block(
                w,
                |w| {
                    let words = NegotiateWords {
                        challenge_length: 8,
                        ..NegotiateWords::default()
                    };
                    words.write(w);
                },
                |w| w.bytes(b"12345678GROUP\0"),
            );
        });
        let block = Block::first(&bytes).unwrap();
        let response = NegotiateResponse::decode(&block, false).unwrap();
        let NegotiateResponse::NtLm(_, Greeting::Challenge { domain, server, .. }) = response else {
            panic!("{response:?}");
        };
        assert_eq!(domain, Str::oem(b"GROUP"));
        assert!(server.is_empty());
    }
}
