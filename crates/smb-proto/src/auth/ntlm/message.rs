//! The three messages of NTLM ([MS-NLMP] 2.2.1), both sides.

use bitflags::bitflags;
use ropeway_smb_wire::{Fault, Reader, Result, Text, Writer};

bitflags! {
    /// What both ends can do ([MS-NLMP] 2.2.2.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct NegotiateFlags: u32 {
        /// Text is UTF-16.
        const UNICODE = 0x1;
        /// Text may be in the machine's code page.
        const OEM = 0x2;
        /// CHALLENGE must name the server.
        const REQUEST_TARGET = 0x4;
        /// Signatures.
        const SIGN = 0x10;
        /// Encryption.
        const SEAL = 0x20;
        /// NTLMv1's weaker key; not ours.
        const LM_KEY = 0x80;
        /// NTLM, of whatever version.
        const NTLM = 0x200;
        /// The client has no name.
        const ANONYMOUS = 0x800;
        /// NEGOTIATE names a domain.
        const OEM_DOMAIN_SUPPLIED = 0x1000;
        /// NEGOTIATE names a workstation.
        const OEM_WORKSTATION_SUPPLIED = 0x2000;
        /// Signatures even if the caller asked for none.
        const ALWAYS_SIGN = 0x8000;
        /// The server's name is that of a domain.
        const TARGET_TYPE_DOMAIN = 0x1_0000;
        /// The server's name is that of a server.
        const TARGET_TYPE_SERVER = 0x2_0000;
        /// Keys and signatures as NTLMv2 needs them.
        const EXTENDED_SESSION_SECURITY = 0x8_0000;
        /// CHALLENGE has AV pairs.
        const TARGET_INFO = 0x80_0000;
        /// Messages have a version.
        const VERSION = 0x200_0000;
        /// Keys of 128 bits.
        const KEY_128 = 0x2000_0000;
        /// The client chooses the session key.
        const KEY_EXCHANGE = 0x4000_0000;
        /// Keys of 56 bits, overruled by 128.
        const KEY_56 = 0x8000_0000;
        const _ = !0;
    }
}

const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";
/// Where AUTHENTICATE has its MIC, if it has one.
pub(super) const MIC_AT: std::ops::Range<usize> = 72..88;

/// The sender's version, for diagnosis only ([MS-NLMP] 2.2.2.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version(pub [u8; 8]);

impl Version {
    /// What we say: 10.0 with revision 15 of NTLM. No build number, since we are no build of Windows.
    pub const OURS: Self = Self([10, 0, 0, 0, 0, 0, 0, 15]);
}

/// NEGOTIATE_MESSAGE ([MS-NLMP] 2.2.1.1). The names it may carry are in the machine's code page and mean nothing: they
/// are neither read nor sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiate {
    /// What the client can do.
    pub flags: NegotiateFlags,
}

impl Negotiate {
    /// Reads the message.
    ///
    /// # Errors
    /// Any fault of its fixed part.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let mut reader = start(message, 1, "NEGOTIATE_MESSAGE")?;
        let flags = NegotiateFlags::from_bits_retain(reader.u32()?);
        Ok(Self { flags })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40);
        let mut writer = begin(&mut out, 1);
        writer.u32(self.flags.bits());
        writer.zeros(16);
        writer.bytes(&Version::OURS.0);
        out
    }
}

/// CHALLENGE_MESSAGE ([MS-NLMP] 2.2.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// The server's or its domain's name.
    pub target_name: Text,
    /// What the server makes of the client's.
    pub flags: NegotiateFlags,
    /// What the client must prove over.
    pub server_challenge: [u8; 8],
    /// AV pairs; empty if there are none.
    pub target_info: &'a [u8],
    /// The server's version; zeros if it says none.
    pub version: Version,
}

impl<'a> Challenge<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// Any fault; the AV pairs are not looked into.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let mut reader = start(message, 2, "CHALLENGE_MESSAGE")?;
        let target_name = Field::decode(&mut reader)?;
        let flags = NegotiateFlags::from_bits_retain(reader.u32()?);
        let server_challenge = reader.array()?;
        reader.skip(8)?;
        let target_info = Field::decode(&mut reader)?;
        let version = if flags.contains(NegotiateFlags::VERSION) {
            Version(reader.array()?)
        } else {
            Version::default()
        };
        Ok(Self {
            target_name: target_name.text(&reader)?,
            flags,
            server_challenge,
            target_info: target_info.bytes(&reader)?,
            version,
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(56 + self.target_name.wire_len() + self.target_info.len());
        let mut writer = begin(&mut out, 2);
        let mut payload_at = 56;
        Field::encode(&mut writer, &mut payload_at, self.target_name.wire_len());
        writer.u32(self.flags.bits());
        writer.bytes(&self.server_challenge);
        writer.zeros(8);
        Field::encode(&mut writer, &mut payload_at, self.target_info.len());
        writer.bytes(&self.version.0);
        self.target_name.write(&mut writer);
        writer.bytes(self.target_info);
        out
    }
}

/// AUTHENTICATE_MESSAGE ([MS-NLMP] 2.2.1.3).
#[derive(Clone, PartialEq, Eq)]
pub struct Authenticate<'a> {
    /// The LM response: zeros or LMv2, of no use to anyone.
    pub lm_response: &'a [u8],
    /// The NT response: 16 bytes of proof, then the client's part; empty if anonymous.
    pub nt_response: &'a [u8],
    /// Of the user.
    pub domain: Text,
    /// Empty if anonymous.
    pub user: Text,
    /// The client's machine.
    pub workstation: Text,
    /// The session key, encrypted; empty without [`NegotiateFlags::KEY_EXCHANGE`].
    pub encrypted_key: &'a [u8],
    /// What was agreed.
    pub flags: NegotiateFlags,
    /// The client's version.
    pub version: Version,
    /// What is in the MIC's place, if the message has one; whether it means something is said by
    /// [`AvPairs::FLAG_MIC`](super::AvPairs::FLAG_MIC).
    pub mic: Option<[u8; 16]>,
}

impl<'a> Authenticate<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// Any fault; the responses are not looked into.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let mut reader = start(message, 3, "AUTHENTICATE_MESSAGE")?;
        let mut fields = [Field::default(); 6];
        for field in &mut fields {
            *field = Field::decode(&mut reader)?;
        }
        let flags = NegotiateFlags::from_bits_retain(reader.u32()?);
        // Version and MIC came later than the message: they are there if the payload leaves room.
        let payload_at = fields
            .iter()
            .filter(|field| field.length > 0)
            .map(|field| field.offset)
            .min()
            .unwrap_or(message.len());
        let version = if payload_at >= MIC_AT.start {
            Version(reader.array()?)
        } else {
            Version::default()
        };
        let mic = if payload_at >= MIC_AT.end {
            Some(reader.array()?)
        } else {
            None
        };
        if !flags.contains(NegotiateFlags::UNICODE) {
            return Err(reader.fault(Fault::Value));
        }
        let [lm, nt, domain, user, workstation, key] = fields;
        Ok(Self {
            lm_response: lm.bytes(&reader)?,
            nt_response: nt.bytes(&reader)?,
            domain: domain.text(&reader)?,
            user: user.text(&reader)?,
            workstation: workstation.text(&reader)?,
            encrypted_key: key.bytes(&reader)?,
            flags,
            version,
            mic,
        })
    }

    /// Its bytes. Every part is shorter than 64 KiB.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.nt_response.len());
        let mut writer = begin(&mut out, 3);
        let mut payload_at = if self.mic.is_some() {
            MIC_AT.end
        } else {
            MIC_AT.start
        };
        // The fields' order is not that of the payload, which is Windows's.
        let lengths = [
            self.domain.wire_len(),
            self.user.wire_len(),
            self.workstation.wire_len(),
            self.lm_response.len(),
            self.nt_response.len(),
            self.encrypted_key.len(),
        ];
        let mut offsets = [0; 6];
        for (offset, length) in offsets.iter_mut().zip(lengths) {
            *offset = payload_at;
            payload_at += length;
        }
        for at in [3, 4, 0, 1, 2, 5] {
            let mut offset = offsets[at];
            Field::encode(&mut writer, &mut offset, lengths[at]);
        }
        writer.u32(self.flags.bits());
        writer.bytes(&self.version.0);
        if let Some(mic) = self.mic {
            writer.bytes(&mic);
        }
        self.domain.write(&mut writer);
        self.user.write(&mut writer);
        self.workstation.write(&mut writer);
        writer.bytes(self.lm_response);
        writer.bytes(self.nt_response);
        writer.bytes(self.encrypted_key);
        out
    }
}

/// Responses are as good as a password to guess against: only their lengths are shown.
impl std::fmt::Debug for Authenticate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticate")
            .field("domain", &self.domain)
            .field("user", &self.user)
            .field("workstation", &self.workstation)
            .field("flags", &self.flags)
            .field("nt_response_len", &self.nt_response.len())
            .field("mic", &self.mic.is_some())
            .finish_non_exhaustive()
    }
}

fn start<'a>(message: &'a [u8], kind: u32, structure: &'static str) -> Result<Reader<'a>> {
    let mut reader = Reader::new(message, structure);
    let fault = reader.fault(Fault::Signature);
    if reader.array()? != SIGNATURE || reader.u32()? != kind {
        return Err(fault);
    }
    Ok(reader)
}

fn begin(out: &mut Vec<u8>, kind: u32) -> Writer<'_> {
    let mut writer = Writer::new(out);
    writer.bytes(&SIGNATURE);
    writer.u32(kind);
    writer
}

/// Length and place of a part of the payload.
#[derive(Clone, Copy, Default)]
struct Field {
    length: usize,
    offset: usize,
}

impl Field {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let length = usize::from(reader.u16()?);
        // The room the sender had for it; ignored ([MS-NLMP] 2.2.1.3).
        reader.skip(2)?;
        let offset = reader.u32()? as usize;
        Ok(Self { length, offset })
    }

    fn encode(writer: &mut Writer<'_>, payload_at: &mut usize, length: usize) {
        let short = u16::try_from(length).expect("a part of ours is shorter than 64 KiB");
        writer.u16(short);
        writer.u16(short);
        writer.u32(u32::try_from(*payload_at).expect("six parts of 64 KiB"));
        *payload_at += length;
    }

    fn bytes<'a>(self, reader: &Reader<'a>) -> Result<&'a [u8]> {
        reader.slice(self.offset, self.length)
    }

    fn text(self, reader: &Reader<'_>) -> Result<Text> {
        Text::from_le_bytes(self.bytes(reader)?).ok_or(reader.fault(Fault::Value))
    }
}
