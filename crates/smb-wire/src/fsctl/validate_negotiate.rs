//! Was the negotiation tampered with? ([MS-SMB2] 2.2.31.4, 2.2.32.6). Only in 3.0 and 3.0.2; 3.1.1 hashes the whole
//! negotiation instead.
//!
//! Dialects stay numbers: what is compared is exactly what was sent.

use crate::lengths::len_u16;
use crate::negotiate::{Capabilities, SecurityMode};
use crate::{Fault, Guid, Reader, Result, Writer};

/// VALIDATE_NEGOTIATE_INFO Request ([MS-SMB2] 2.2.31.4): what the client sent in NEGOTIATE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidateNegotiateRequest {
    /// The client's capabilities.
    pub capabilities: Capabilities,
    /// The client.
    pub guid: Guid,
    /// The client's security mode.
    pub security_mode: SecurityMode,
    /// Numbers of the dialects offered.
    pub dialects: Vec<u16>,
}

impl ValidateNegotiateRequest {
    /// Reads the IOCTL's input.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(input, "VALIDATE_NEGOTIATE_INFO Request");
        let capabilities = Capabilities::from_bits_retain(reader.u32()?);
        let guid = Guid(reader.array()?);
        let security_mode = SecurityMode::from_bits_retain(reader.u16()?);
        let count = usize::from(reader.u16()?);
        if reader.remaining() / 2 < count {
            return Err(reader.fault(Fault::Truncated));
        }
        let dialects = (0..count).map(|_| reader.u16()).collect::<Result<_>>()?;
        Ok(Self {
            capabilities,
            guid,
            security_mode,
            dialects,
        })
    }

    /// Appends the IOCTL's input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.capabilities.bits());
        w.bytes(&self.guid.0);
        w.u16(self.security_mode.bits());
        w.u16(len_u16(self.dialects.len()));
        for dialect in &self.dialects {
            w.u16(*dialect);
        }
    }
}

/// VALIDATE_NEGOTIATE_INFO Response ([MS-SMB2] 2.2.32.6): what the server answered in NEGOTIATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidateNegotiateResponse {
    /// The server's capabilities.
    pub capabilities: Capabilities,
    /// The server.
    pub guid: Guid,
    /// The server's security mode.
    pub security_mode: SecurityMode,
    /// Number of the dialect chosen.
    pub dialect: u16,
}

impl ValidateNegotiateResponse {
    /// Reads the IOCTL's output.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(output: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(output, "VALIDATE_NEGOTIATE_INFO Response");
        Ok(Self {
            capabilities: Capabilities::from_bits_retain(reader.u32()?),
            guid: Guid(reader.array()?),
            security_mode: SecurityMode::from_bits_retain(reader.u16()?),
            dialect: reader.u16()?,
        })
    }

    /// Appends the IOCTL's output.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.capabilities.bits());
        w.bytes(&self.guid.0);
        w.u16(self.security_mode.bits());
        w.u16(self.dialect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(
            capabilities: u32, guid: [u8; 16], mode: u16, dialect: u16,
            dialects in proptest::collection::vec(any::<u16>(), 0..10),
        ) {
            let request = ValidateNegotiateRequest {
                capabilities: Capabilities::from_bits_retain(capabilities),
                guid: Guid(guid),
                security_mode: SecurityMode::from_bits_retain(mode),
                dialects,
            };
            let bytes = structure(|w| request.encode(w));
            prop_assert_eq!(ValidateNegotiateRequest::decode(&bytes), Ok(request));
            let response = ValidateNegotiateResponse {
                capabilities: Capabilities::from_bits_retain(capabilities),
                guid: Guid(guid),
                security_mode: SecurityMode::from_bits_retain(mode),
                dialect,
            };
            let bytes = structure(|w| response.encode(w));
            prop_assert_eq!(bytes.len(), 24);
            prop_assert_eq!(ValidateNegotiateResponse::decode(&bytes), Ok(response));
        }
    }

    #[test]
    fn hostile_bytes_never_panic() {
        let request = ValidateNegotiateRequest {
            capabilities: Capabilities::LARGE_MTU,
            guid: Guid([3; 16]),
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialects: vec![0x0210, 0x0300, 0x0302],
        };
        attack(&structure(|w| request.encode(w)), 0, |bytes| {
            (
                ValidateNegotiateRequest::decode(bytes).is_ok(),
                ValidateNegotiateResponse::decode(bytes).is_ok(),
            )
        });
    }
}
