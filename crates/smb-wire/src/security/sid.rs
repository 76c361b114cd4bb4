//! Security identifiers: names of users and groups.

use std::fmt;
use std::str::FromStr;

use crate::{Fault, Reader, Result, Writer};

/// [MS-DTYP] 2.4.2.2: at most 15 sub-authorities.
const SUB_AUTHORITIES_MAX: usize = 15;
/// The authority has 48 bits.
const AUTHORITY_MAX: u64 = (1 << 48) - 1;

/// A security identifier ([MS-DTYP] 2.4.2), `S-1-5-21-…` as text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid {
    authority: u64,
    sub_authorities: Vec<u32>,
}

/// Text that is no SID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a security identifier of the form S-1-<authority>-<number>…")]
pub struct SidTextError;

impl Sid {
    /// From its parts; `None` if the authority has more than 48 bits or there are more than 15 sub-authorities.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Option<Self> {
        (authority <= AUTHORITY_MAX && sub_authorities.len() <= SUB_AUTHORITIES_MAX).then(|| Self {
            authority,
            sub_authorities: sub_authorities.to_vec(),
        })
    }

    /// Who issued it: 5 is Windows (NT), 22 Samba's way to name Unix users and groups.
    pub fn authority(&self) -> u64 {
        self.authority
    }

    /// The numbers after the authority; the last one is the user's or group's in its domain (RID).
    pub fn sub_authorities(&self) -> &[u32] {
        &self.sub_authorities
    }

    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        8 + 4 * self.sub_authorities.len()
    }

    /// Reads it at the reader's position.
    ///
    /// # Errors
    /// The bytes are no SID of revision 1 with at most 15 sub-authorities.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let signature = reader.fault(Fault::Signature);
        if reader.u8()? != 1 {
            return Err(signature);
        }
        let value = reader.fault(Fault::Value);
        let count = usize::from(reader.u8()?);
        if count > SUB_AUTHORITIES_MAX {
            return Err(value);
        }
        // The authority alone is big-endian.
        let mut authority = [0; 8];
        authority[2..].copy_from_slice(reader.bytes(6)?);
        let sub_authorities = (0..count).map(|_| reader.u32()).collect::<Result<_>>()?;
        Ok(Self {
            authority: u64::from_be_bytes(authority),
            sub_authorities,
        })
    }

    /// Appends it.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        writer.u8(1);
        writer.u8(u8::try_from(self.sub_authorities.len()).expect("at most 15"));
        writer.bytes(&self.authority.to_be_bytes()[2..]);
        for sub_authority in &self.sub_authorities {
            writer.u32(*sub_authority);
        }
    }

    /// The SID at the start of `text` and the rest; text like `S-1-5-32-544D:` has both.
    pub(super) fn parse_prefix(text: &str) -> Option<(Self, &str)> {
        let mut rest = text.strip_prefix("S-1-")?;
        let authority = match rest.strip_prefix("0x") {
            // [MS-DTYP] 2.4.2.1: exactly 12 hexadecimal digits, so what follows cannot be taken for one.
            Some(hex) => {
                let (digits, after) = hex.split_at_checked(12)?;
                rest = after;
                // `from_str_radix` takes a sign.
                if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    return None;
                }
                u64::from_str_radix(digits, 16).ok()?
            }
            None => number(&mut rest)?,
        };
        let mut sub_authorities = Vec::new();
        while let Some(after) = rest.strip_prefix('-') {
            rest = after;
            sub_authorities.push(u32::try_from(number(&mut rest)?).ok()?);
            if sub_authorities.len() > SUB_AUTHORITIES_MAX {
                return None;
            }
        }
        Some((Self::new(authority, &sub_authorities)?, rest))
    }
}

/// Takes decimal digits off the front.
fn number(text: &mut &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    *text = rest;
    number.parse().ok()
}

impl fmt::Display for Sid {
    /// [MS-DTYP] 2.4.2.1: authorities of 2^32 and more are hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.authority > u64::from(u32::MAX) {
            write!(f, "S-1-0x{:012x}", self.authority)?;
        } else {
            write!(f, "S-1-{}", self.authority)?;
        }
        for sub_authority in &self.sub_authorities {
            write!(f, "-{sub_authority}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sid {
    type Err = SidTextError;

    fn from_str(text: &str) -> std::result::Result<Self, SidTextError> {
        match Self::parse_prefix(text) {
            Some((sid, "")) => Ok(sid),
            _ => Err(SidTextError),
        }
    }
}
