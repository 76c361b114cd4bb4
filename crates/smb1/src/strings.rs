//! Strings in messages: UTF-16, or bytes in a code page ([MS-CIFS] 2.2.1.1).

use std::fmt;

use ropeway_smb_wire::{Reader, Result, Text, Writer};

use crate::code_page::{CodePage, UnmappableError};

/// A string as it is in a message, without its end.
#[derive(Clone, PartialEq, Eq)]
pub struct Str {
    is_unicode: bool,
    bytes: Vec<u8>,
}

impl Str {
    /// Returns text in UTF-16.
    pub fn unicode(text: &Text) -> Self {
        let mut bytes = Vec::with_capacity(text.wire_len());
        text.write(&mut Writer::new(&mut bytes));
        Self {
            is_unicode: true,
            bytes,
        }
    }

    /// Returns bytes of a code page.
    pub fn oem(bytes: &[u8]) -> Self {
        Self {
            is_unicode: false,
            bytes: bytes.to_vec(),
        }
    }

    /// Returns an empty string.
    pub fn empty(is_unicode: bool) -> Self {
        Self {
            is_unicode,
            bytes: Vec::new(),
        }
    }

    /// Encodes text.
    ///
    /// # Errors
    /// The code page lacks a character.
    pub fn encode(
        text: &Text,
        is_unicode: bool,
        page: CodePage,
    ) -> std::result::Result<Self, UnmappableError> {
        match is_unicode {
            true => Ok(Self::unicode(text)),
            false => page.encode(text).map(|bytes| Self::oem(&bytes)),
        }
    }

    /// Returns the text.
    pub fn text(&self, page: CodePage) -> Text {
        match self.is_unicode {
            true => Text::from_le_bytes(&self.bytes).unwrap_or_default(),
            false => page.decode(&self.bytes),
        }
    }

    /// Returns the bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads a string up to its zero, or to the end of the bytes: some peers leave out the last
    /// zero. A UTF-16 string begins at an even offset from the header.
    ///
    /// # Errors
    /// Truncation inside a unit of UTF-16.
    pub fn read_z(reader: &mut Reader<'_>, is_unicode: bool) -> Result<Self> {
        if is_unicode {
            align(reader)?;
            let rest = reader.message().get(reader.position()..).unwrap_or_default();
            let units = rest.as_chunks::<2>().0;
            return match units.iter().position(|unit| *unit == [0, 0]) {
                Some(end) => {
                    let string = Self::read(reader, is_unicode, 2 * end)?;
                    reader.skip(2)?;
                    Ok(string)
                }
                None => {
                    let string = Self::read(reader, is_unicode, 2 * units.len())?;
                    // One zero byte may remain.
                    reader.rest();
                    Ok(string)
                }
            };
        }
        let rest = reader.message().get(reader.position()..).unwrap_or_default();
        let (length, end) = match rest.iter().position(|byte| *byte == 0) {
            Some(length) => (length, 1),
            None => (rest.len(), 0),
        };
        let string = Self::oem(reader.bytes(length)?);
        reader.skip(end)?;
        Ok(string)
    }

    /// Reads a string of `length` bytes. A UTF-16 string is aligned as in [`Self::read_z`], and an
    /// odd last byte is dropped.
    ///
    /// # Errors
    /// Truncation.
    pub fn read(reader: &mut Reader<'_>, is_unicode: bool, length: usize) -> Result<Self> {
        if is_unicode && length > 0 {
            align(reader)?;
        }
        let mut bytes = reader.bytes(length)?.to_vec();
        if is_unicode {
            bytes.truncate(length & !1);
        }
        Ok(Self { is_unicode, bytes })
    }

    /// Reads a string of core commands: a format byte, then the string up to its zero ([MS-CIFS]
    /// 2.2.2.5).
    ///
    /// # Errors
    /// Truncation.
    pub fn read_formatted(reader: &mut Reader<'_>, is_unicode: bool) -> Result<Self> {
        // 4 in all commands that this program knows; clients and servers do not check it.
        reader.skip(1)?;
        Self::read_z(reader, is_unicode)
    }

    /// Appends the string, aligned, with its zero.
    pub fn write_z(&self, w: &mut Writer<'_>) {
        self.align(w);
        w.bytes(&self.bytes);
        w.zeros(if self.is_unicode { 2 } else { 1 });
    }

    /// Appends the string, aligned, without a zero.
    pub fn write(&self, w: &mut Writer<'_>) {
        if !self.bytes.is_empty() {
            self.align(w);
        }
        w.bytes(&self.bytes);
    }

    /// Appends format byte 4 and the string with its zero.
    pub fn write_formatted(&self, w: &mut Writer<'_>) {
        w.u8(4);
        self.write_z(w);
    }

    /// Returns the number of bytes with the zero, without alignment.
    pub fn len_z(&self) -> usize {
        self.bytes.len() + if self.is_unicode { 2 } else { 1 }
    }

    fn align(&self, w: &mut Writer<'_>) {
        if self.is_unicode {
            w.align(2);
        }
    }
}

fn align(reader: &mut Reader<'_>) -> Result<()> {
    match reader.position().is_multiple_of(2) || reader.remaining() == 0 {
        true => Ok(()),
        false => reader.skip(1),
    }
}

impl Default for Str {
    fn default() -> Self {
        Self::empty(true)
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text(CodePage::default()), f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile;

    proptest! {
        #[test]
        fn strings_round_trip_at_any_position(units in prop::collection::vec(1_u16.., 0..30), before in 0_usize..4) {
            // These stand for raw bytes, which may be those of a character of the code page.
            let has_raw = units.iter().any(|unit| (0xEF80..=0xEFFF).contains(unit));
            let text = Text::from_units(units);
            let page = CodePage::default();
            let mut strings = vec![Str::unicode(&text)];
            strings.extend(Str::encode(&text, false, page).ok().filter(|_| !has_raw));
            for string in strings {
                let bytes = hostile::structure(|w| {
                    w.zeros(before);
                    string.write_z(w);
                    w.u8(0xAA);
                });
                let mut reader = Reader::at(&bytes, before, "test");
                prop_assert_eq!(&Str::read_z(&mut reader, string.is_unicode), &Ok(string.clone()));
                prop_assert_eq!(reader.u8(), Ok(0xAA));
                prop_assert_eq!(string.text(page), text.clone());
                let length = string.as_bytes().len();
                let bytes = hostile::structure(|w| {
                    w.zeros(before);
                    string.write(w);
                });
                let mut reader = Reader::at(&bytes, before, "test");
                prop_assert_eq!(&Str::read(&mut reader, string.is_unicode, length), &Ok(string));
            }
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>, at in 0_usize..10, length in 0_usize..50, is_unicode: bool) {
            _ = Str::read_z(&mut Reader::at(&bytes, at, "test"), is_unicode);
            _ = Str::read(&mut Reader::at(&bytes, at, "test"), is_unicode, length);
            _ = Str::read_formatted(&mut Reader::at(&bytes, at, "test"), is_unicode);
        }
    }

    #[test]
    fn a_missing_zero_is_forgiven() {
        let mut reader = Reader::new(b"a\0b\0", "test");
        assert_eq!(
            Str::read_z(&mut reader, true),
            Ok(Str::unicode(&Text::from("ab")))
        );
        let mut reader = Reader::new(b"ab", "test");
        assert_eq!(Str::read_z(&mut reader, false), Ok(Str::oem(b"ab")));
    }
}
