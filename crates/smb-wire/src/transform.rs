//! The header of an encrypted message ([MS-SMB2] 2.2.41).
//!
//! What follows it is one message, a compound or a compressed message, sealed as a whole. The authentication covers the
//! header from the nonce on ([`TransformHeader::AUTHENTICATED_OFFSET`]), so neither size nor session can be changed.

use super::cursor::{Fault, Reader, Result, Writer};
use super::frame::Protocol;
use super::ids::SessionId;

/// The header of an encrypted message ([MS-SMB2] 2.2.41).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformHeader {
    /// The authentication tag.
    pub signature: [u8; 16],
    /// 11 bytes for CCM or 12 for GCM, then zeros.
    pub nonce: [u8; 16],
    /// Length of what is sealed, in bytes; it follows the header.
    pub original_message_size: u32,
    /// The session whose keys seal it.
    pub session_id: SessionId,
}

impl TransformHeader {
    /// Length in bytes.
    pub const LEN: usize = 52;
    /// Where the tag begins.
    pub const SIGNATURE_OFFSET: usize = 4;
    /// Where the authenticated part of the header begins; it goes to the header's end ([MS-SMB2] 3.1.4.3).
    pub const AUTHENTICATED_OFFSET: usize = 20;
    /// `Flags` in 3.1.1, `EncryptionAlgorithm` (AES-128-CCM) in 3.0 and 3.0.2: the same number means encrypted.
    const ENCRYPTED: u16 = 0x0001;

    /// Reads 52 bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`]; [`Fault::Signature`] for another kind of message; [`Fault::Value`] if it is not encrypted.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let fault = reader.fault(Fault::Signature);
        if reader.array::<4>()? != Protocol::Transform.id() {
            return Err(fault);
        }
        let signature = reader.array()?;
        let nonce = reader.array()?;
        let original_message_size = reader.u32()?;
        reader.skip(2)?;
        let fault = reader.fault(Fault::Value);
        if reader.u16()? != Self::ENCRYPTED {
            return Err(fault);
        }
        Ok(Self {
            signature,
            nonce,
            original_message_size,
            session_id: SessionId(reader.u64()?),
        })
    }

    /// Appends 52 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&Protocol::Transform.id());
        w.bytes(&self.signature);
        w.bytes(&self.nonce);
        w.u32(self.original_message_size);
        w.u16(0);
        w.u16(Self::ENCRYPTED);
        w.u64(self.session_id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;
    use crate::negotiate::tests::unhex;
    use proptest::prelude::*;

    /// A header of the published example of encryption (Microsoft, "SMB 3.1.1 Encryption in Windows 10", 2015).
    #[test]
    fn a_published_header() {
        let bytes = unhex(
            "FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A744DA3EE
             87000000000001001100001400E40800",
        );
        let header = TransformHeader::decode(&mut Reader::new(&bytes, "test")).unwrap();
        assert_eq!(header.original_message_size, 0x87);
        assert_eq!(header.session_id, SessionId(0x8_E400_1400_0011));
        assert_eq!(
            (header.signature[0], header.nonce[0], header.nonce[15]),
            (0x81, 0x66, 0xEE)
        );
        assert_eq!(hostile::structure(|w| header.encode(w)), bytes);
        assert_eq!(bytes[TransformHeader::AUTHENTICATED_OFFSET], header.nonce[0]);
    }

    #[test]
    fn other_messages_are_refused() {
        let header = TransformHeader {
            signature: [1; 16],
            nonce: [2; 16],
            original_message_size: 100,
            session_id: SessionId(3),
        };
        let mut bytes = hostile::structure(|w| header.encode(w));
        hostile::attack(&bytes, 0, |bytes| {
            let _ = TransformHeader::decode(&mut Reader::new(bytes, "test"));
        });
        bytes[42] = 2;
        let outcome = TransformHeader::decode(&mut Reader::new(&bytes, "test"));
        assert_eq!(outcome.unwrap_err().fault, Fault::Value);
    }

    proptest! {
        #[test]
        fn headers_round_trip(signature: [u8; 16], nonce: [u8; 16], original_message_size: u32, session: u64) {
            let session_id = SessionId(session);
            let header = TransformHeader { signature, nonce, original_message_size, session_id };
            let bytes = hostile::structure(|w| header.encode(w));
            prop_assert_eq!(bytes.len(), TransformHeader::LEN);
            prop_assert_eq!(TransformHeader::decode(&mut Reader::new(&bytes, "test")), Ok(header));
        }
    }
}
