//! SESSION_SETUP_ANDX ([MS-CIFS] 2.2.4.53, [MS-SMB] 2.2.4.6) and LOGOFF_ANDX (2.2.4.54).

use bitflags::bitflags;
use ropeway_smb_wire::{DecodeErrorKind, Result, Writer};

use super::negotiate::Capabilities;
use crate::message::{AndX, Block, write_block};
use crate::strings::Str;
use crate::words::{Reserved, flag_fields, words};

bitflags! {
    /// `Action` of the response.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Action: u16 {
        /// The user became a guest.
        const GUEST = 0x0001;
        const _ = !0;
    }
}

flag_fields!(Action: u16);

words! {
    /// What both forms of the request begin with.
    pub struct SetupWords {
        /// The command that follows.
        andx: AndX,
        /// Largest message that the client receives, in bytes.
        max_buffer_size: u16,
        /// Number of requests that the client has in flight at most.
        max_mpx_count: u16,
        /// 0 for the first connection of a client: servers end all others of it.
        vc_number: u16,
        /// `SessionKey` of the negotiation.
        session_key: u32,
    }
}

words! {
    /// The rest of the words without extended security.
    struct PlainWords {
        oem_length: u16,
        unicode_length: u16,
        reserved: Reserved<4>,
        capabilities: Capabilities,
    }
}

words! {
    /// The rest of the words with extended security.
    struct ExtendedWords {
        blob_length: u16,
        reserved: Reserved<4>,
        capabilities: Capabilities,
    }
}

/// How the client proves who it is.
#[derive(Clone, PartialEq, Eq)]
pub enum Proof {
    /// Responses to the challenge, or the password itself where the server asks for that.
    Responses {
        /// The response in the LM form (`OEMPassword`).
        lm: Vec<u8>,
        /// The response in the NT form (`UnicodePassword`).
        nt: Vec<u8>,
        /// The user.
        user: Str,
        /// The user's domain.
        domain: Str,
    },
    /// A SPNEGO token.
    Token(Vec<u8>),
}

impl std::fmt::Debug for Proof {
    /// Hides what could serve to find a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Responses { user, domain, .. } => write!(f, "Responses({domain:?}\\{user:?})"),
            Self::Token(token) => write!(f, "Token({} bytes)", token.len()),
        }
    }
}

/// SESSION_SETUP_ANDX request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSetupRequest {
    /// The common words.
    pub words: SetupWords,
    /// What the client can do.
    pub capabilities: Capabilities,
    /// Its proof.
    pub proof: Proof,
    /// The client's system.
    pub native_os: Str,
    /// The client's program.
    pub native_lan_man: Str,
}

impl SessionSetupRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, a number of words that no known form has.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let mut words = block.words();
        let common = SetupWords::read(&mut words)?;
        let mut bytes = block.bytes();
        let (proof, capabilities) = match block.word_count() {
            12 => {
                let rest = ExtendedWords::read(&mut words)?;
                let token = bytes.bytes(usize::from(rest.blob_length))?.to_vec();
                (Proof::Token(token), rest.capabilities)
            }
            13 => {
                let rest = PlainWords::read(&mut words)?;
                let lm = bytes.bytes(usize::from(rest.oem_length))?.to_vec();
                let nt = bytes.bytes(usize::from(rest.unicode_length))?.to_vec();
                let responses = Proof::Responses {
                    lm,
                    nt,
                    user: Str::read_z(&mut bytes, is_unicode)?,
                    domain: Str::read_z(&mut bytes, is_unicode)?,
                };
                (responses, rest.capabilities)
            }
            _ => return Err(words.error(DecodeErrorKind::Signature)),
        };
        Ok(Self {
            words: common,
            capabilities,
            proof,
            native_os: Str::read_z(&mut bytes, is_unicode)?,
            native_lan_man: Str::read_z(&mut bytes, is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| {
                self.words.write(w);
                match &self.proof {
                    Proof::Responses { lm, nt, .. } => PlainWords {
                        oem_length: lm.len() as u16,
                        unicode_length: nt.len() as u16,
                        reserved: Reserved,
                        capabilities: self.capabilities,
                    }
                    .write(w),
                    Proof::Token(token) => ExtendedWords {
                        blob_length: token.len() as u16,
                        reserved: Reserved,
                        capabilities: self.capabilities,
                    }
                    .write(w),
                }
            },
            |w| {
                match &self.proof {
                    Proof::Responses { lm, nt, user, domain } => {
                        w.bytes(lm);
                        w.bytes(nt);
                        user.write_z(w);
                        domain.write_z(w);
                    }
                    Proof::Token(token) => w.bytes(token),
                }
                self.native_os.write_z(w);
                self.native_lan_man.write_z(w);
            },
        );
    }
}

/// SESSION_SETUP_ANDX response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSetupResponse {
    /// The command that follows.
    pub andx: AndX,
    /// How the user was admitted.
    pub action: Action,
    /// The SPNEGO token; `None` without extended security.
    pub blob: Option<Vec<u8>>,
    /// The server's system.
    pub native_os: Str,
    /// The server's program.
    pub native_lan_man: Str,
    /// The server's domain.
    pub domain: Str,
}

impl SessionSetupResponse {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let mut words = block.words();
        let andx = AndX::read(&mut words)?;
        let action = Action::from_bits_retain(words.u16()?);
        let mut bytes = block.bytes();
        let blob = match block.word_count() {
            0..4 => None,
            _ => {
                let length = usize::from(words.u16()?);
                Some(bytes.bytes(length)?.to_vec())
            }
        };
        Ok(Self {
            andx,
            action,
            blob,
            native_os: Str::read_z(&mut bytes, is_unicode)?,
            native_lan_man: Str::read_z(&mut bytes, is_unicode)?,
            domain: Str::read_z(&mut bytes, is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| {
                self.andx.write(w);
                w.u16(self.action.bits());
                if let Some(blob) = &self.blob {
                    w.u16(blob.len() as u16);
                }
            },
            |w| {
                w.bytes(self.blob.as_deref().unwrap_or_default());
                self.native_os.write_z(w);
                self.native_lan_man.write_z(w);
                self.domain.write_z(w);
            },
        );
    }
}

/// Appends a block with an [`AndX`] alone: LOGOFF_ANDX in both directions, and the response of
/// LOCKING_ANDX.
pub fn encode_andx(w: &mut Writer<'_>) {
    write_block(w, |w| AndX::NONE.write(w), |_| {});
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    fn text(text: &str) -> Str {
        Str::unicode(&Text::from(text))
    }

    #[test]
    fn requests_round_trip() {
        let plain = SessionSetupRequest {
            words: SetupWords {
                andx: AndX::NONE,
                max_buffer_size: 65_535,
                max_mpx_count: 50,
                vc_number: 1,
                session_key: 9,
            },
            capabilities: Capabilities::UNICODE | Capabilities::STATUS32,
            proof: Proof::Responses {
                lm: vec![1; 24],
                nt: vec![2; 61],
                user: text("ann"),
                domain: text("WORK"),
            },
            native_os: text("Unix"),
            native_lan_man: text("ropeway"),
        };
        let extended = SessionSetupRequest {
            proof: Proof::Token(vec![5; 33]),
            ..plain.clone()
        };
        hostile::check(
            &[plain, extended],
            |block| SessionSetupRequest::decode(block, true).ok(),
            |request, w| request.encode(w),
        );
    }

    #[test]
    fn responses_round_trip() {
        let plain = SessionSetupResponse {
            action: Action::GUEST,
            native_os: text("Windows 5.1"),
            native_lan_man: text("Windows 2000 LAN Manager"),
            domain: text("WORK"),
            ..SessionSetupResponse::default()
        };
        let extended = SessionSetupResponse {
            blob: Some(vec![7; 12]),
            ..plain.clone()
        };
        hostile::check(
            &[plain, extended],
            |block| SessionSetupResponse::decode(block, true).ok(),
            |response, w| response.encode(w),
        );
    }

    #[test]
    fn proofs_are_not_printed() {
        let proof = Proof::Responses {
            lm: b"secret".to_vec(),
            nt: b"secret".to_vec(),
            user: text("ann"),
            domain: text("d"),
        };
        assert_eq!(format!("{proof:?}"), "Responses(\"d\"\\\"ann\")");
    }
}
