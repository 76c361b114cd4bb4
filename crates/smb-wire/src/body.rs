//! Parts that several bodies share: the place of a bulk payload, and the output buffer of a query's
//! response.
//!
//! An odd `StructureSize` counts one byte of the variable part. Some servers require that byte even
//! if the variable part is empty, so [`pad_empty`] writes it. Decoders require the fixed part only,
//! because Windows itself omits the byte in some messages.

use std::ops::Range;

use super::lengths::{len_u16, len_u32, named, place};
use super::{Fault, Malformed, Reader, Result, Writer};

/// Place of a bulk payload in its message. The payload itself may not have been received yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Offset of the first byte from the message's header; never inside the fixed part of the body.
    pub offset: usize,
    /// Length in bytes; 0 for an empty payload.
    pub length: u32,
}

impl Payload {
    /// Creates a payload from the offset and length in a fixed part. `reader` must stand at the end
    /// of the fixed part, before which no payload may begin. The offset of an empty payload is
    /// ignored.
    pub(super) fn announced(reader: &Reader<'_>, offset: usize, length: u32) -> Result<Self> {
        let fixed_end = reader.position();
        if length == 0 {
            return Ok(Self {
                offset: fixed_end,
                length,
            });
        }
        if offset < fixed_end {
            return Err(reader.fault(Fault::Bounds));
        }
        Ok(Self { offset, length })
    }

    /// Returns the payload's byte range in a message of `message_len` bytes.
    ///
    /// # Errors
    /// [`Fault::Bounds`] if the message ends before the payload does.
    pub fn range(&self, message_len: usize) -> Result<Range<usize>> {
        usize::try_from(self.length)
            .ok()
            .and_then(|length| self.offset.checked_add(length))
            .filter(|end| *end <= message_len)
            .map(|end| self.offset..end)
            .ok_or(Malformed {
                structure: "payload",
                fault: Fault::Bounds,
                at: self.offset,
            })
    }

    /// Checks the length against the requested one ([MS-SMB2] 3.2.5.11) or the negotiated one.
    ///
    /// # Errors
    /// [`Fault::Bounds`] if the peer announces more than `length_max` bytes.
    pub fn at_most(&self, length_max: u32) -> Result<()> {
        if self.length <= length_max {
            return Ok(());
        }
        Err(Malformed {
            structure: "payload",
            fault: Fault::Bounds,
            at: self.offset,
        })
    }

    /// Returns the payload's bytes in a message that is complete.
    pub(super) fn of<'a>(&self, reader: &Reader<'a>) -> Result<&'a [u8]> {
        let range = self.range(reader.message().len())?;
        reader.slice(range.start, range.len())
    }
}

/// Returns a reader of `length` bytes at `offset` of the message. Positions still count from the
/// message's start.
pub(super) fn window<'a>(
    reader: &Reader<'a>,
    offset: usize,
    length: usize,
    structure: &'static str,
) -> Result<Reader<'a>> {
    let bounds = reader.fault(Fault::Bounds);
    if offset < reader.position() {
        return Err(bounds);
    }
    let end = offset.checked_add(length).ok_or(bounds)?;
    let message = reader.message().get(..end).ok_or(bounds)?;
    Ok(Reader::at(message, offset, structure))
}

/// Writes the byte that an odd `StructureSize` counts if the variable part is empty.
pub(super) fn pad_empty(w: &mut Writer<'_>, variable_start: usize) {
    if w.position() == variable_start {
        w.u8(0);
    }
}

/// Length of the fixed part of [`decode_output`]'s structure.
const OUTPUT_FIXED_LEN: usize = 8;

/// Decodes the response to QUERY_DIRECTORY, QUERY_INFO and CHANGE_NOTIFY: `StructureSize` 9,
/// offset, length, buffer.
pub(super) fn decode_output<'a>(reader: &Reader<'a>, structure: &'static str) -> Result<&'a [u8]> {
    let mut reader = named(reader, structure);
    reader.structure_size(9)?;
    let offset = usize::from(reader.u16()?);
    let length = place(reader.u32()?);
    reader.slice(offset, length)
}

/// Encodes what [`decode_output`] decodes.
pub(super) fn encode_output(w: &mut Writer<'_>, output: &[u8]) {
    let offset = if output.is_empty() {
        0
    } else {
        w.position() + OUTPUT_FIXED_LEN
    };
    w.u16(9);
    w.u16(len_u16(offset));
    w.u32(len_u32(output.len()));
    w.bytes(output);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_LEN;

    #[test]
    fn a_payload_lies_after_the_fixed_part_and_inside_the_message() {
        let message = [7; 100];
        let reader = Reader::at(&message, 80, "test");
        assert_eq!(
            Payload::announced(&reader, 79, 1).unwrap_err().fault,
            Fault::Bounds
        );
        assert_eq!(Payload::announced(&reader, 0, 0).unwrap().range(80), Ok(80..80));
        let payload = Payload::announced(&reader, 80, 20).unwrap();
        assert_eq!(payload.range(100), Ok(80..100));
        assert_eq!(payload.range(99).unwrap_err().fault, Fault::Bounds);
        assert_eq!(payload.of(&reader).unwrap().len(), 20);
        assert!(payload.at_most(20).is_ok() && payload.at_most(19).is_err());
        let huge = Payload::announced(&reader, 255, u32::MAX).unwrap();
        assert!(huge.range(100).is_err());
    }

    #[test]
    fn outputs_round_trip() {
        for output in [&b""[..], b"x", b"some bytes"] {
            let mut out = vec![0; HEADER_LEN];
            encode_output(&mut Writer::within(&mut out, 0), output);
            assert_eq!(
                decode_output(&Reader::at(&out, HEADER_LEN, "test"), "test"),
                Ok(output)
            );
        }
    }
}
