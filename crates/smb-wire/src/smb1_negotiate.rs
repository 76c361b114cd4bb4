//! The one message of SMB 1 that an SMB 2 server answers: NEGOTIATE ([MS-CIFS] 2.2.4.52, [MS-SMB2] 3.3.5.3).
//!
//! Old clients, and new ones that do not yet know the server, begin with it. A server that finds "SMB 2.???" or
//! "SMB 2.002" among the dialects answers with an SMB 2 NEGOTIATE response.

use super::cursor::{Fault, Reader, Result, Writer};
use super::frame::Protocol;
use super::lengths::len_u16;

/// SMB_COM_NEGOTIATE ([MS-CIFS] 2.2.2.1).
const NEGOTIATE: u8 = 0x72;
/// Canonicalised, case-insensitive paths, as in [MS-SMB2] 4.1.
const FLAGS: u8 = 0x18;
/// Unicode, NT status codes, extended security, long names, as in [MS-SMB2] 4.1.
const FLAGS2: u16 = 0xC853;
/// Before each dialect ([MS-CIFS] 2.2.4.52.1).
const BUFFER_FORMAT: u8 = 0x02;

/// An SMB 1 NEGOTIATE request, of which only the dialects matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Smb1NegotiateRequest<'a> {
    /// `Data` of the message: checked to be a list of dialects.
    data: &'a [u8],
}

impl<'a> Smb1NegotiateRequest<'a> {
    /// The dialect string of SMB 2.0.2.
    pub const SMB_2_002: &'static str = "SMB 2.002";
    /// The dialect string of SMB 2.1 and later: which one is to be negotiated with SMB 2.
    pub const SMB_2_WILDCARD: &'static str = "SMB 2.???";

    /// Reads a whole message, its SMB 1 header included.
    ///
    /// # Errors
    /// [`Fault`]; [`Fault::Signature`] if it is another message of SMB 1.
    pub fn decode(message: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(message, "SMB_COM_NEGOTIATE");
        if reader.array::<4>()? != Protocol::Smb1.id() || reader.u8()? != NEGOTIATE {
            return Err(reader.fault(Fault::Signature));
        }
        reader.skip(27)?;
        let words = usize::from(reader.u8()?);
        reader.skip(words * 2)?;
        let byte_count = usize::from(reader.u16()?);
        let start = reader.position();
        let data = reader.bytes(byte_count)?;
        let mut rest = data;
        while let Some((_, after)) = split_dialect(rest) {
            rest = after;
        }
        if !rest.is_empty() {
            return Err(
                Reader::at(message, start + data.len() - rest.len(), "SMB_COM_NEGOTIATE").fault(Fault::Value),
            );
        }
        Ok(Self { data })
    }

    /// The dialects, in the client's order, without their final zeros.
    pub fn dialects(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.data;
        std::iter::from_fn(move || {
            let (dialect, after) = split_dialect(rest)?;
            rest = after;
            Some(dialect)
        })
    }

    /// Whether the client offers `dialect`.
    pub fn offers(&self, dialect: &str) -> bool {
        self.dialects().any(|offered| offered == dialect.as_bytes())
    }

    /// Appends a message, its SMB 1 header included.
    ///
    /// # Panics
    /// If a dialect contains a zero or all are longer than 65,535 bytes.
    pub fn encode(dialects: &[&str], w: &mut Writer<'_>) {
        w.bytes(&Protocol::Smb1.id());
        w.u8(NEGOTIATE);
        w.u32(0);
        w.u8(FLAGS);
        w.u16(FLAGS2);
        // PIDHigh, SecurityFeatures, Reserved.
        w.zeros(12);
        // TID, PIDLow, UID, MID as in [MS-SMB2] 4.1.
        w.u16(0xFFFF);
        w.u16(0xFEFF);
        w.u16(0);
        w.u16(0);
        w.u8(0);
        let count_at = w.position();
        w.u16(0);
        for dialect in dialects {
            assert!(!dialect.contains('\0'), "a zero ends the dialect");
            w.u8(BUFFER_FORMAT);
            w.bytes(dialect.as_bytes());
            w.u8(0);
        }
        w.patch_u16(count_at, len_u16(w.position() - count_at - 2));
    }
}

/// The first dialect of a list and what follows it.
fn split_dialect(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (format, rest) = data.split_first()?;
    if *format != BUFFER_FORMAT {
        return None;
    }
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (dialect, rest) = rest.split_at_checked(end)?;
    Some((dialect, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;
    use proptest::prelude::*;

    fn encoded(dialects: &[&str]) -> Vec<u8> {
        hostile::structure(|w| Smb1NegotiateRequest::encode(dialects, w))
    }

    /// The request of [MS-SMB2] 4.2, shortened to three dialects.
    #[test]
    fn a_known_request() {
        let bytes = b"\xFFSMB\x72\0\0\0\0\x18\x53\xC8\0\0\0\0\0\0\0\0\0\0\0\0\xFF\xFF\xFF\xFE\0\0\0\0\
            \0\x22\0\x02NT LM 0.12\0\x02SMB 2.002\0\x02SMB 2.???\0";
        let request = Smb1NegotiateRequest::decode(bytes).unwrap();
        assert!(request.offers(Smb1NegotiateRequest::SMB_2_002));
        assert!(request.offers(Smb1NegotiateRequest::SMB_2_WILDCARD));
        assert!(!request.offers("SMB 2"));
        assert_eq!(encoded(&["NT LM 0.12", "SMB 2.002", "SMB 2.???"]), bytes);
    }

    #[test]
    fn other_messages_are_refused() {
        let mut bytes = encoded(&["NT LM 0.12"]);
        bytes[4] = 0x73;
        assert_eq!(
            Smb1NegotiateRequest::decode(&bytes).unwrap_err().fault,
            Fault::Signature
        );
        let mut bytes = encoded(&["NT LM 0.12"]);
        *bytes.last_mut().unwrap() = b'!';
        assert_eq!(
            Smb1NegotiateRequest::decode(&bytes).unwrap_err().fault,
            Fault::Value
        );
    }

    #[test]
    fn hostile_requests() {
        hostile::attack(&encoded(&["NT LM 0.12", "SMB 2.002"]), 0, |bytes| {
            if let Ok(request) = Smb1NegotiateRequest::decode(bytes) {
                assert!(request.dialects().count() <= bytes.len());
            }
        });
    }

    proptest! {
        #[test]
        fn dialects_round_trip(dialects in prop::collection::vec("[A-Z0-9. ?]{0,20}", 0..20)) {
            let dialects: Vec<&str> = dialects.iter().map(String::as_str).collect();
            let bytes = encoded(&dialects);
            let request = Smb1NegotiateRequest::decode(&bytes).unwrap();
            prop_assert!(request.dialects().eq(dialects.iter().map(|dialect| dialect.as_bytes())));
        }
    }
}
