//! Numbers and byte strings in the records of the catalog.
//!
//! Numbers are LEB128: seven bits a byte, the lowest first. A [`Reader`] never panics and never
//! allocates from a length that it has not checked against the bytes that are left: a catalog lies
//! on a share that others may write to.

/// Appends a number.
pub(crate) fn put_number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, zigzag-coded.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_number(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends `1` and the bytes, or `0`.
pub(crate) fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            out.push(1);
            put_bytes(out, bytes);
        }
        None => out.push(0),
    }
}

/// Reads what the functions above wrote; `None` where the bytes do not fit.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte holds one bit only.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some(((value >> 1) as i64) ^ -((value & 1) as i64))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    pub(crate) fn optional(&mut self) -> Option<Option<&'a [u8]>> {
        match self.byte()? {
            0 => Some(None),
            1 => self.bytes().map(Some),
            _ => None,
        }
    }

    /// Returns a count of items of at least one byte each, which the rest can hold.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.left()).then_some(count)
    }

    /// Returns `()` at the end of the bytes only.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(value: u64, signed: i64, bytes: Vec<u8>, optional: Option<Vec<u8>>) {
            let mut out = Vec::new();
            put_number(&mut out, value);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes);
            put_optional(&mut out, optional.as_deref());
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.number(), Some(value));
            prop_assert_eq!(reader.signed(), Some(signed));
            prop_assert_eq!(reader.bytes(), Some(&bytes[..]));
            prop_assert_eq!(reader.optional(), Some(optional.as_deref()));
            prop_assert_eq!(reader.end(), Some(()));
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            while reader.number().is_some() || reader.byte().is_some() {}
            let mut reader = Reader::new(&bytes);
            while reader.optional().flatten().is_some() {}
        }
    }
}
