//! OEM code pages, for peers without Unicode.
//!
//! The names of old machines are bytes in the code page of the machine, which no message tells.
//! Every name of bytes becomes text that maps back to the same bytes: bytes that mean nothing in the
//! code page become U+EF80 to U+EFFF, the characters that stand for raw bytes everywhere in this
//! program (`ropeway_smb_wire::names`).

use std::fmt;
use std::str::FromStr;

use encoding_rs::Encoding;
use oem_cp::code_table::{DECODING_TABLE_CP_MAP, ENCODING_TABLE_CP_MAP};
use oem_cp::code_table_type::TableType;
use ropeway_smb_wire::Text;

/// First character of the block that stands for raw bytes; the byte is added to it.
const RAW: u16 = 0xEF00;

/// A code page.
#[derive(Clone, Copy)]
pub struct CodePage {
    number: u16,
    tables: Tables,
}

#[derive(Clone, Copy)]
enum Tables {
    /// One byte for each character.
    Single {
        decode: &'static TableType,
        encode: &'static oem_cp::OEMCPHashMap<char, u8>,
    },
    /// Windows' own code pages, and those of East Asia with two bytes for some characters.
    Windows(&'static Encoding),
}

/// A character that the code page lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("code page {page} has no character {character:?}")]
pub struct UnmappableError {
    /// Number of the code page.
    pub page: u16,
    /// The character.
    pub character: char,
}

/// The text is not the number of a known code page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a known code page, such as 437, 850, 852, 866, 932 or 1252")]
pub struct UnknownPageError;

impl CodePage {
    /// Returns the code page with this number, such as 437, 850, 932 or 1252.
    pub fn new(number: u16) -> Option<Self> {
        if let (Some(decode), Some(encode)) = (
            DECODING_TABLE_CP_MAP.get(&number),
            ENCODING_TABLE_CP_MAP.get(&number),
        ) {
            let tables = Tables::Single { decode, encode };
            return Some(Self { number, tables });
        }
        // Those whose bytes below 0x80 are ASCII, as paths need it.
        const WINDOWS: [u16; 13] = [
            932, 936, 949, 950, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258,
        ];
        let encoding = codepage::to_encoding_no_replacement(number)?;
        WINDOWS.contains(&number).then_some(Self {
            number,
            tables: Tables::Windows(encoding),
        })
    }

    /// Returns the number.
    pub fn number(self) -> u16 {
        self.number
    }

    /// Converts bytes to text.
    pub fn decode(self, bytes: &[u8]) -> Text {
        if bytes.is_ascii() {
            return Text::from_units(bytes.iter().copied().map(u16::from).collect());
        }
        let raw = |byte: u8| match byte.is_ascii() {
            true => u16::from(byte),
            false => RAW + u16::from(byte),
        };
        match self.tables {
            Tables::Single { decode, encode } => {
                let unit = |byte: &u8| {
                    let character = decode.decode_char_checked(*byte);
                    // Some bytes mean one character; only one of them comes back.
                    let same = character.filter(|c| oem_cp::encode_char_checked(*c, encode) == Some(*byte));
                    same.and_then(|c| u16::try_from(u32::from(c)).ok())
                        .unwrap_or_else(|| raw(*byte))
                };
                Text::from_units(bytes.iter().map(unit).collect())
            }
            Tables::Windows(encoding) => {
                let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
                let same = text.filter(|text| {
                    let (back, _, unmappable) = encoding.encode(text);
                    !unmappable && *back == *bytes
                });
                match same {
                    Some(text) => Text::from(&*text),
                    None => Text::from_units(bytes.iter().map(|byte| raw(*byte)).collect()),
                }
            }
        }
    }

    /// Converts text to bytes.
    ///
    /// # Errors
    /// The first character that the code page lacks.
    pub fn encode(self, text: &Text) -> Result<Vec<u8>, UnmappableError> {
        let mut bytes = Vec::with_capacity(text.units().len());
        for unit in char::decode_utf16(text.units().iter().copied()) {
            let character = unit.unwrap_or(char::REPLACEMENT_CHARACTER);
            let fault = UnmappableError {
                page: self.number,
                character,
            };
            if character.is_ascii() {
                bytes.push(character as u8);
            } else if let 0xEF80..=0xEFFF = u32::from(character) {
                bytes.push(u32::from(character) as u8);
            } else {
                self.push(character, &mut bytes).ok_or(fault)?;
            }
        }
        Ok(bytes)
    }

    fn push(self, character: char, bytes: &mut Vec<u8>) -> Option<()> {
        match self.tables {
            Tables::Single { encode, .. } => bytes.push(oem_cp::encode_char_checked(character, encode)?),
            Tables::Windows(encoding) => {
                let mut buffer = [0; 4];
                let (encoded, _, unmappable) = encoding.encode(character.encode_utf8(&mut buffer));
                if unmappable {
                    return None;
                }
                bytes.extend_from_slice(&encoded);
            }
        }
        Some(())
    }
}

impl Default for CodePage {
    /// Code page 850, that of DOS and Windows in Western Europe.
    fn default() -> Self {
        Self::new(850).expect("code page 850 is among the tables")
    }
}

impl PartialEq for CodePage {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for CodePage {}

impl fmt::Debug for CodePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CodePage({})", self.number)
    }
}

impl FromStr for CodePage {
    type Err = UnknownPageError;

    /// Parses a number, also with `cp` in front.
    fn from_str(text: &str) -> Result<Self, UnknownPageError> {
        let digits = text.strip_prefix("cp").or_else(|| text.strip_prefix("CP"));
        let number = digits.unwrap_or(text).parse().map_err(|_| UnknownPageError)?;
        Self::new(number).ok_or(UnknownPageError)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_characters() {
        for (number, bytes, text) in [
            (437, &b"caf\x82"[..], "café"),
            (850, b"\x9Bre", "øre"),
            (1252, b"\x80 \xE9", "€ é"),
            (866, b"\x84\xA0", "Да"),
            (932, b"\x83e\x83X\x83g", "テスト"),
        ] {
            let page = CodePage::new(number).unwrap();
            assert_eq!(page.decode(bytes), Text::from(text), "{number}");
            assert_eq!(page.encode(&Text::from(text)).unwrap(), bytes, "{number}");
        }
        let fault = CodePage::default().encode(&Text::from("a→")).unwrap_err();
        assert_eq!((fault.page, fault.character), (850, '→'));
    }

    #[test]
    fn pages_are_named_by_number() {
        assert_eq!("cp437".parse::<CodePage>(), Ok(CodePage::new(437).unwrap()));
        assert_eq!("1252".parse::<CodePage>().unwrap().number(), 1252);
        for unknown in ["", "37", "utf8", "65001", "1200"] {
            assert_eq!(unknown.parse::<CodePage>(), Err(UnknownPageError), "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in prop::collection::vec(1_u8.., 0..40)) {
            for number in [437, 720, 737, 850, 852, 855, 857, 858, 862, 866, 874, 932, 936, 949, 950, 1250, 1252, 1255, 1258] {
                let page = CodePage::new(number).unwrap();
                let text = page.decode(&bytes);
                prop_assert_eq!(page.encode(&text), Ok(bytes.clone()), "{} {:?}", number, text);
            }
        }

        #[test]
        fn any_text_is_encoded_or_refused(units: Vec<u16>) {
            for number in [437, 932, 1252] {
                _ = CodePage::new(number).unwrap().encode(&Text::from_units(units.clone()));
            }
        }
    }
}
