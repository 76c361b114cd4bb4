//! The stream: a length before every message, and what a message is by its first four bytes.

use super::cursor::{Fault, Malformed, Result};

/// Bytes before every message on TCP ([MS-SMB2] 2.1).
pub const FRAME_HEADER_LEN: usize = 4;

/// The longest message that a frame can announce, in bytes: 24 bits ([MS-SMB2] 2.1).
pub const FRAME_LEN_MAX: usize = 0x00FF_FFFF;

/// The frame header of a message of `length` bytes ([MS-SMB2] 2.1: a zero byte and 24 bits, big-endian).
///
/// # Panics
/// If `length` is more than [`FRAME_LEN_MAX`]: negotiated sizes keep messages below.
pub fn frame_header(length: usize) -> [u8; FRAME_HEADER_LEN] {
    assert!(length <= FRAME_LEN_MAX, "a message fits its frame");
    // Exact: 24 bits were checked.
    (length as u32).to_be_bytes()
}

/// The length in bytes of the message that follows a frame header. The caller decides what it takes before it
/// allocates.
///
/// # Errors
/// [`Fault::Value`] if the first byte is not zero: not SMB over TCP.
pub fn frame_len(header: [u8; FRAME_HEADER_LEN]) -> Result<usize> {
    match header {
        [0, high, middle, low] => Ok(usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)),
        _ => Err(Malformed {
            structure: "direct TCP frame",
            fault: Fault::Value,
            at: 0,
        }),
    }
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SMB 1, of which only NEGOTIATE is answered ([MS-SMB2] 3.3.5.3).
    Smb1,
    /// A plain SMB 2 message, perhaps compounded ([MS-SMB2] 2.2.1).
    Smb2,
    /// Encrypted ([MS-SMB2] 2.2.41).
    Transform,
    /// Compressed ([MS-SMB2] 2.2.42).
    Compression,
}

impl Protocol {
    /// By a message's first four bytes, the `ProtocolId`.
    ///
    /// # Errors
    /// [`Fault::Truncated`], [`Fault::Signature`].
    pub fn of(message: &[u8]) -> Result<Self> {
        let fault = |fault| Malformed {
            structure: "ProtocolId",
            fault,
            at: 0,
        };
        match message.first_chunk::<4>().ok_or(fault(Fault::Truncated))? {
            b"\xFFSMB" => Ok(Self::Smb1),
            b"\xFESMB" => Ok(Self::Smb2),
            b"\xFDSMB" => Ok(Self::Transform),
            b"\xFCSMB" => Ok(Self::Compression),
            _ => Err(fault(Fault::Signature)),
        }
    }

    /// The `ProtocolId`.
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
        // A NetBIOS keep-alive ([RFC1002] 4.3.7) has no place on direct TCP.
        assert_eq!(frame_len([0x85, 0, 0, 0]).unwrap_err().fault, Fault::Value);
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
        assert_eq!(Protocol::of(b"\xFES").unwrap_err().fault, Fault::Truncated);
        assert_eq!(Protocol::of(b"HTTP/1.1").unwrap_err().fault, Fault::Signature);
    }

    proptest! {
        #[test]
        fn lengths_round_trip(length in 0..=FRAME_LEN_MAX) {
            prop_assert_eq!(frame_len(frame_header(length)), Ok(length));
        }
    }
}
