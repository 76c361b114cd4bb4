//! Reading and writing little-endian structures inside one message.

use std::fmt;

/// What is wrong with bytes from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The message ends before the structure does.
    Truncated,
    /// `StructureSize` or a magic number is not what the specification fixes.
    Signature,
    /// An offset or length points outside the message, or into its fixed part.
    Bounds,
    /// A field holds a value that the specification does not allow.
    Value,
    /// A chain (`Next`, `NextEntryOffset`) does not move forward, is misaligned, or has more links than allowed.
    Chain,
}

/// Bytes from a peer that are not the structure they should be.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {structure}: {fault:?} at byte {at}")]
pub struct Malformed {
    /// The structure, by its name in the specification.
    pub structure: &'static str,
    /// What is wrong.
    pub fault: Fault,
    /// Where in the message, in bytes from its start.
    pub at: usize,
}

impl fmt::Debug for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Outcome of decoding.
pub type Result<T> = std::result::Result<T, Malformed>;

/// A position in one message; reads little-endian numbers and never past the end.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    message: &'a [u8],
    at: usize,
    structure: &'static str,
}

impl<'a> Reader<'a> {
    /// At the start of `message`; faults will name `structure`.
    pub fn new(message: &'a [u8], structure: &'static str) -> Self {
        Self {
            message,
            at: 0,
            structure,
        }
    }

    /// The same message at byte `at`, for faults in `structure`; reading fails if `at` is past the end.
    pub fn at(message: &'a [u8], at: usize, structure: &'static str) -> Self {
        Self {
            message,
            at,
            structure,
        }
    }

    /// Bytes from the message's start.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.message.len().saturating_sub(self.at)
    }

    /// The whole message.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// A fault of the current structure at the current position.
    pub fn fault(&self, fault: Fault) -> Malformed {
        Malformed {
            structure: self.structure,
            fault,
            at: self.at,
        }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).ok_or(self.fault(Fault::Truncated))?;
        let bytes = self
            .message
            .get(self.at..end)
            .ok_or(self.fault(Fault::Truncated))?;
        self.at = end;
        Ok(bytes)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    /// All bytes not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.message.get(self.at..).unwrap_or_default();
        self.at = self.message.len().max(self.at);
        rest
    }

    /// Skips reserved bytes, whatever they hold.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn skip(&mut self, count: usize) -> Result<()> {
        self.bytes(count).map(|_| ())
    }

    /// Moves to byte `at` of the message, which must not lie past its end.
    ///
    /// # Errors
    /// [`Fault::Bounds`].
    pub fn seek(&mut self, at: usize) -> Result<()> {
        if at > self.message.len() {
            return Err(self.fault(Fault::Bounds));
        }
        self.at = at;
        Ok(())
    }

    /// A byte.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// [`Fault::Truncated`].
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a `StructureSize` that must be `size`.
    ///
    /// # Errors
    /// [`Fault::Signature`], [`Fault::Truncated`].
    pub fn structure_size(&mut self, size: u16) -> Result<()> {
        let fault = self.fault(Fault::Signature);
        if self.u16()? == size { Ok(()) } else { Err(fault) }
    }

    /// `length` bytes at `offset` from the message's start; an empty slice whatever the offset if `length` is 0. The
    /// position does not move.
    ///
    /// # Errors
    /// [`Fault::Bounds`] if they are not all inside the message or begin before the current position, that is, inside
    /// the fixed part (call it after the fixed part has been read).
    pub fn slice(&self, offset: usize, length: usize) -> Result<&'a [u8]> {
        if length == 0 {
            return Ok(&[]);
        }
        let bounds = self.fault(Fault::Bounds);
        if offset < self.at {
            return Err(bounds);
        }
        let end = offset.checked_add(length).ok_or(bounds)?;
        self.message.get(offset..end).ok_or(bounds)
    }
}

/// Appends one message to a buffer; patches offsets once they are known.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    base: usize,
}

impl<'a> Writer<'a> {
    /// A message that begins at the present end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let base = out.len();
        Self { out, base }
    }

    /// A message whose first byte, the header's, is byte `base` of `out`; writing goes on at the end of `out`.
    pub fn within(out: &'a mut Vec<u8>, base: usize) -> Self {
        assert!(base <= out.len(), "a message begins inside its buffer");
        Self { out, base }
    }

    /// Bytes from the message's start.
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

    /// Appends two bytes each, little-endian.
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

    /// Overwrites bytes at `at` from the message's start; they must have been written before.
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
            reader.slice(0, 1).unwrap_err().fault,
            Fault::Bounds,
            "inside what was read"
        );
        assert_eq!(reader.slice(2, 1), Ok(&[3][..]));
        assert_eq!(reader.slice(2, 2).unwrap_err().fault, Fault::Bounds);
        assert_eq!(reader.slice(usize::MAX, 1).unwrap_err().fault, Fault::Bounds);
        assert_eq!(reader.slice(99, 0), Ok(&[][..]));
        assert_eq!(reader.rest(), &[3]);
        assert!(reader.bytes(usize::MAX).is_err());
    }
}
