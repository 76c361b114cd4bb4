//! UTF-16 text as SMB carries it: names may hold unpaired surrogates, so it is not a `String`.

use std::fmt;

/// UTF-16 text, possibly with unpaired surrogates ([MS-FSCC] 2.1.5: names are sequences of 16-bit units).
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(Vec<u16>);

impl Text {
    /// From code units.
    pub fn from_units(units: Vec<u16>) -> Self {
        Self(units)
    }

    /// From little-endian bytes; `None` if their number is odd.
    pub fn from_le_bytes(bytes: &[u8]) -> Option<Self> {
        let (pairs, rest) = bytes.as_chunks::<2>();
        rest.is_empty()
            .then(|| Self(pairs.iter().map(|pair| u16::from_le_bytes(*pair)).collect()))
    }

    /// The code units.
    pub fn units(&self) -> &[u16] {
        &self.0
    }

    /// Length on the wire, in bytes.
    pub fn wire_len(&self) -> usize {
        self.0.len() * 2
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the little-endian bytes.
    pub fn write(&self, out: &mut super::Writer<'_>) {
        out.units(&self.0);
    }

    /// As a `String`, unpaired surrogates replaced.
    pub fn to_string_lossy(&self) -> String {
        String::from_utf16_lossy(&self.0)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.encode_utf16().collect())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpaired_surrogates_survive() {
        let text = Text::from_units(vec![0x61, 0xD800, 0x62]);
        let mut out = Vec::new();
        text.write(&mut crate::Writer::new(&mut out));
        assert_eq!(Text::from_le_bytes(&out), Some(text));
        assert_eq!(Text::from_le_bytes(&out[1..]), None);
    }
}
