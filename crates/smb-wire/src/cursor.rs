//! A reader and a writer of little-endian structures inside one message.

use std::fmt;

/// Kinds of decoding errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// The message ends before the structure does.
    Truncated,
    /// `StructureSize` or a magic number is not what the specification fixes.
    Signature,
    /// An offset or length points outside the message or into its fixed part.
    Bounds,
    /// A field holds a value that the specification does not allow.
    Value,
    /// The next entry of a list (`NextCommand`, `NextEntryOffset`) does not lie forward or is
    /// misaligned, or the list has too many entries.
    NextEntry,
}

/// Error: a peer's bytes are not the structure they should be.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {structure}: {kind:?} at byte {at}")]
pub struct DecodeError {
    /// Name of the structure in the specification.
    pub structure: &'static str,
    /// Kind of the error.
    pub kind: DecodeErrorKind,
    /// Position in the message, in bytes from its start.
    pub at: usize,
}

impl fmt::Debug for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Result of decoding.
pub type Result<T> = std::result::Result<T, DecodeError>;

/// Position in one message. Reads little-endian numbers and never past the message's end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    message: &'a [u8],
    at: usize,
    structure: &'static str,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `message`. Errors will name `structure`.
    pub fn new(message: &'a [u8], structure: &'static str) -> Self {
        Self {
            message,
            at: 0,
            structure,
        }
    }

    /// Creates a reader at byte `at` of `message`. Errors will name `structure`. Reading fails if
    /// `at` is past the end.
    pub fn at(message: &'a [u8], at: usize, structure: &'static str) -> Self {
        Self {
            message,
            at,
            structure,
        }
    }

    /// Returns the position in bytes from the message's start.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.message.len().saturating_sub(self.at)
    }

    /// Returns the whole message.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Creates an error for the current structure and position.
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError {
            structure: self.structure,
            kind,
            at: self.at,
        }
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self
            .at
            .checked_add(count)
            .ok_or(self.error(DecodeErrorKind::Truncated))?;
        let bytes = self
            .message
            .get(self.at..end)
            .ok_or(self.error(DecodeErrorKind::Truncated))?;
        self.at = end;
        Ok(bytes)
    }

    /// Reads `N` bytes as an array.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// Reads all unread bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.message.get(self.at..).unwrap_or_default();
        self.at = self.message.len().max(self.at);
        rest
    }

    /// Skips reserved bytes without looking at them.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn skip(&mut self, count: usize) -> Result<()> {
        self.bytes(count).map(|_| ())
    }

    /// Moves to byte `at` of the message, at most to its end.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Bounds`].
    pub fn seek(&mut self, at: usize) -> Result<()> {
        if at > self.message.len() {
            return Err(self.error(DecodeErrorKind::Bounds));
        }
        self.at = at;
        Ok(())
    }

    /// Reads a byte.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads two bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Reads four bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Reads eight bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a `StructureSize`, which must be `size`.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Signature`], [`DecodeErrorKind::Truncated`].
    pub fn structure_size(&mut self, size: u16) -> Result<()> {
        let error = self.error(DecodeErrorKind::Signature);
        if self.u16()? == size { Ok(()) } else { Err(error) }
    }

    /// Returns `length` bytes at `offset` from the message's start without moving the position. If
    /// `length` is 0, the slice is empty for any offset. Call it after the fixed part has been
    /// read.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Bounds`] if the bytes do not all lie inside the message, or begin before
    /// the current position, that is, inside the fixed part.
    pub fn slice(&self, offset: usize, length: usize) -> Result<&'a [u8]> {
        if length == 0 {
            return Ok(&[]);
        }
        let bounds = self.error(DecodeErrorKind::Bounds);
        if offset < self.at {
            return Err(bounds);
        }
        let end = offset.checked_add(length).ok_or(bounds)?;
        self.message.get(offset..end).ok_or(bounds)
    }
}

/// Appends one message to a buffer, and patches offsets when they are known.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    base: usize,
}

impl<'a> Writer<'a> {
    /// Begins a message at the current end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let base = out.len();
        Self { out, base }
    }

    /// Continues a message whose header begins at byte `base` of `out`. Writes go to the end of
    /// `out`.
    pub fn within(out: &'a mut Vec<u8>, base: usize) -> Self {
        assert!(base <= out.len(), "a message begins inside its buffer");
        Self { out, base }
    }

    /// Returns the position in bytes from the message's start.
    pub fn position(&self) -> usize {
        self.out.len() - self.base
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends zeros.
    pub fn zeros(&mut self, count: usize) {
        self.out.resize(self.out.len() + count, 0);
    }

    /// Appends zeros until the position is a multiple of `alignment`.
    pub fn align(&mut self, alignment: usize) {
        let position = self.position();
        self.zeros(position.next_multiple_of(alignment) - position);
    }

    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    /// Appends two bytes, little-endian.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends 16-bit units, little-endian.
    pub fn units(&mut self, units: &[u16]) {
        self.out.reserve(2 * units.len());
        self.out.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
    }

    /// Appends four bytes, little-endian.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends eight bytes, little-endian.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Overwrites two bytes at `at` from the message's start.
    pub fn patch_u16(&mut self, at: usize, value: u16) {
        self.patch(at, &value.to_le_bytes());
    }

    /// Overwrites four bytes at `at` from the message's start.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.patch(at, &value.to_le_bytes());
    }

    /// Overwrites bytes at `at` from the message's start. They must have been written before.
    pub fn patch(&mut self, at: usize, bytes: &[u8]) {
        let start = self.base + at;
        self.out[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        let mut out = vec![0xAA];
        let mut writer = Writer::new(&mut out);
        writer.u8(1);
        writer.u16(0x0203);
        writer.u32(0x0405_0607);
        writer.u64(u64::MAX - 1);
        writer.align(8);
        assert_eq!(writer.position(), 16);
        writer.patch_u16(1, 0x0908);
        let mut reader = Reader::new(&out[1..], "test");
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(0x0908));
        assert_eq!(reader.u32(), Ok(0x0405_0607));
        assert_eq!(reader.u64(), Ok(u64::MAX - 1));
        assert_eq!(reader.remaining(), 1);
    }

    #[test]
    fn reads_stay_inside_the_message() {
        let mut reader = Reader::new(&[1, 2, 3], "test");
        assert!(reader.u32().is_err());
        assert_eq!(reader.u16(), Ok(0x0201));
        assert_eq!(
            reader.slice(0, 1).unwrap_err().kind,
            DecodeErrorKind::Bounds,
            "inside what was read"
        );
        assert_eq!(reader.slice(2, 1), Ok(&[3][..]));
        assert_eq!(reader.slice(2, 2).unwrap_err().kind, DecodeErrorKind::Bounds);
        assert_eq!(
            reader.slice(usize::MAX, 1).unwrap_err().kind,
            DecodeErrorKind::Bounds
        );
        assert_eq!(reader.slice(99, 0), Ok(&[][..]));
        assert_eq!(reader.rest(), &[3]);
        assert!(reader.bytes(usize::MAX).is_err());
    }
}
