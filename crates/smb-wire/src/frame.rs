//! The TCP stream: the length before every message, and the protocol by its first four bytes.

use super::cursor::{DecodeError, DecodeErrorKind, Result};

/// Length in bytes of the header before every message on TCP ([MS-SMB2] 2.1).
pub const FRAME_HEADER_LEN: usize = 4;

/// Longest message in a frame, in bytes: 24 bits ([MS-SMB2] 2.1).
pub const FRAME_LEN_MAX: usize = 0x00FF_FFFF;

/// Returns the frame header of a message of `length` bytes ([MS-SMB2] 2.1: a zero byte and 24 bits,
/// big-endian).
///
/// # Panics
/// Panics if `length` is more than [`FRAME_LEN_MAX`]. Negotiated sizes keep messages below it.
pub fn frame_header(length: usize) -> [u8; FRAME_HEADER_LEN] {
    assert!(length <= FRAME_LEN_MAX, "a message fits its frame");
    // Lossless: checked to fit 24 bits.
    (length as u32).to_be_bytes()
}

/// Returns the length in bytes of the message after a frame header. The caller must check it
/// against its own limit before it allocates.
///
/// # Errors
/// [`DecodeErrorKind::Value`] if the first byte is not zero: the stream is not SMB over TCP.
pub fn frame_len(header: [u8; FRAME_HEADER_LEN]) -> Result<usize> {
    match header {
        [0, high, middle, low] => Ok(usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)),
        _ => Err(DecodeError {
            structure: "direct TCP frame",
            kind: DecodeErrorKind::Value,
            at: 0,
        }),
    }
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SMB 1. Only its NEGOTIATE is answered ([MS-SMB2] 3.3.5.3).
    Smb1,
    /// A plain SMB 2 message, possibly a compound ([MS-SMB2] 2.2.1).
    Smb2,
    /// An encrypted message ([MS-SMB2] 2.2.41).
    Transform,
    /// A compressed message ([MS-SMB2] 2.2.42).
    Compression,
}

impl Protocol {
    /// Determines the kind from a message's first four bytes, the `ProtocolId`.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`], [`DecodeErrorKind::Signature`].
    pub fn of(message: &[u8]) -> Result<Self> {
        let error = |kind| DecodeError {
            structure: "ProtocolId",
            kind,
            at: 0,
        };
        match message
            .first_chunk::<4>()
            .ok_or(error(DecodeErrorKind::Truncated))?
        {
            b"\xFFSMB" => Ok(Self::Smb1),
            b"\xFESMB" => Ok(Self::Smb2),
            b"\xFDSMB" => Ok(Self::Transform),
            b"\xFCSMB" => Ok(Self::Compression),
            _ => Err(error(DecodeErrorKind::Signature)),
        }
    }

    /// Returns the `ProtocolId`.
    pub const fn id(self) -> [u8; 4] {
        match self {
            Self::Smb1 => *b"\xFFSMB",
            Self::Smb2 => *b"\xFESMB",
            Self::Transform => *b"\xFDSMB",
            Self::Compression => *b"\xFCSMB",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_begins_with_zero() {
        assert_eq!(frame_header(0x01_0203), [0, 1, 2, 3]);
        // A NetBIOS keep-alive ([RFC1002] 4.3.7) is not valid on direct TCP.
        assert_eq!(
            frame_len([0x85, 0, 0, 0]).unwrap_err().kind,
            DecodeErrorKind::Value
        );
    }

    #[test]
    fn protocols_by_their_id() {
        for protocol in [
            Protocol::Smb1,
            Protocol::Smb2,
            Protocol::Transform,
            Protocol::Compression,
        ] {
            assert_eq!(Protocol::of(&protocol.id()), Ok(protocol));
        }
        assert_eq!(
            Protocol::of(b"\xFES").unwrap_err().kind,
            DecodeErrorKind::Truncated
        );
        assert_eq!(
            Protocol::of(b"HTTP/1.1").unwrap_err().kind,
            DecodeErrorKind::Signature
        );
    }

    proptest! {
        #[test]
        fn lengths_round_trip(length in 0..=FRAME_LEN_MAX) {
            prop_assert_eq!(frame_len(frame_header(length)), Ok(length));
        }
    }
}
