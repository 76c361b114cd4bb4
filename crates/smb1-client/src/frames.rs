//! The TCP stream: the length before every message, and the service messages of NetBIOS (RFC 1002,
//! 4.3).

use ropeway_smb1::client::MESSAGE_LEN_MAX;

/// Length in bytes of what precedes every message.
pub(crate) const FRAME_HEADER_LEN: usize = 4;

/// Port of SMB over NetBIOS, which begins with a session request.
pub(crate) const NETBIOS_PORT: u16 = 139;

/// Bytes of the buffer: two large messages.
const BUFFER_LEN: usize = 2 * (MESSAGE_LEN_MAX + FRAME_HEADER_LEN);

/// A frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message.
    Message(Vec<u8>),
    /// The session request was accepted.
    Accepted,
    /// It was refused.
    Refused,
    /// A sign of life.
    KeepAlive,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFrame(pub(crate) &'static str);

/// Received bytes.
pub(crate) struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_LEN],
            start: 0,
            end: 0,
        }
    }

    /// Returns room for more bytes; it is never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < BUFFER_LEN / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Notes that `count` bytes were received into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Returns the next frame.
    ///
    /// # Errors
    /// The bytes are no frame, or one that is too long.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, BadFrame> {
        let bytes = &self.buffer[self.start..self.end];
        let Some(header) = bytes.first_chunk::<FRAME_HEADER_LEN>() else {
            return Ok(None);
        };
        let [kind, high, middle, low] = *header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > MESSAGE_LEN_MAX {
            return Err(BadFrame("a message that is too long"));
        }
        let Some(message) = bytes.get(FRAME_HEADER_LEN..FRAME_HEADER_LEN + length) else {
            return Ok(None);
        };
        let frame = match kind {
            0x00 => Frame::Message(message.to_vec()),
            0x82 => Frame::Accepted,
            0x83 | 0x84 => Frame::Refused,
            0x85 => Frame::KeepAlive,
            _ => return Err(BadFrame("bytes that are no message")),
        };
        self.start += FRAME_HEADER_LEN + length;
        Ok(Some(frame))
    }
}

/// Returns the length field of a message.
pub(crate) fn frame_header(length: usize) -> [u8; FRAME_HEADER_LEN] {
    // Messages are far shorter than 24 bits allow.
    let [_, high, middle, low] = (length as u32).to_be_bytes();
    [0, high, middle, low]
}

/// Returns the session request for a server whose NetBIOS name is not known.
pub(crate) fn session_request() -> Vec<u8> {
    let mut frame = vec![0x81, 0, 0, 68];
    frame.extend(encoded_name(b"*SMBSERVER", 0x20));
    frame.extend(encoded_name(b"ROPEWAY", 0x00));
    frame
}

/// Returns a NetBIOS name in its first-level encoding: two letters for each of 16 bytes (RFC 1001,
/// 14.1).
fn encoded_name(name: &[u8], suffix: u8) -> Vec<u8> {
    let mut padded = [b' '; 16];
    for (to, from) in padded.iter_mut().zip(name) {
        *to = *from;
    }
    padded[15] = suffix;
    let mut out = vec![32];
    for byte in padded {
        out.push(b'A' + (byte >> 4));
        out.push(b'A' + (byte & 15));
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes in pieces and returns all frames.
    fn frames(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, BadFrame> {
        let (mut frames, mut found) = (Frames::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut rest = piece;
            while !rest.is_empty() {
                let room = frames.room();
                let count = rest.len().min(room.len());
                room[..count].copy_from_slice(&rest[..count]);
                frames.filled(count);
                rest = &rest[count..];
                while let Some(frame) = frames.next()? {
                    found.push(frame);
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn frames_of_any_length_arrive_wherever_the_stream_is_cut() {
        let mut bytes = vec![0x82, 0, 0, 0, 0x85, 0, 0, 0];
        let mut wanted = vec![Frame::Accepted, Frame::KeepAlive];
        for length in [0, 1, 35, 5_000, 65_535, MESSAGE_LEN_MAX, 7, MESSAGE_LEN_MAX] {
            let message = vec![length as u8; length];
            bytes.extend(frame_header(length));
            bytes.extend(&message);
            wanted.push(Frame::Message(message));
        }
        for piece in [1, 3, 1_460, 100_000, bytes.len()] {
            assert_eq!(frames(&bytes, piece).as_ref(), Ok(&wanted), "{piece}");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(frames(b"HTTP/1.1 200", 100).is_err());
        let long = (MESSAGE_LEN_MAX as u32 + 1).to_be_bytes();
        assert!(frames(&[0, long[1], long[2], long[3]], 4).is_err());
    }

    #[test]
    fn the_session_request_has_two_names() {
        let request = session_request();
        assert_eq!(request.len(), 72);
        assert_eq!(&request[4..8], b"\x20CKF", "the star is 0x2A, S is 0x53");
    }
}
