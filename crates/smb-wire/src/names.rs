//! Lossless conversion of file names between Linux bytes and SMB's UTF-16.
//!
//! A Linux name is any bytes without NUL and slash. An SMB name is any 16-bit units, by custom
//! UTF-16. Both directions are one-to-one and each other's inverse. So no two files of a server
//! share a Linux name, and a name read from the server always finds the same file again:
//!
//! | bytes | units |
//! |---|---|
//! | UTF-8 | UTF-16 |
//! | a lone surrogate in generalised UTF-8 (WTF-8) | the surrogate |
//! | a byte that belongs to neither | U+EF00 + byte (U+EF80 to U+EFFF) |
//! | a character U+EF80 to U+EFFF that would read as such a byte | U+EF00 + each UTF-8 byte |
//! | [`NameMapping::Sfm`] also: `" * : < > ? \ \|` | U+F020 to U+F027 |
//! | … U+0001 to U+001F | U+F001 to U+F01F |
//! | … a space, a dot at the end (not of `.` and `..`) | U+F028, U+F029 |
//! | … such a private character that would read as what it replaces | U+EF00 + each UTF-8 byte |
//! | … a lone surrogate, which other programs reject | U+EF00 + each of 3 bytes, and the reverse |
//!
//! MirBSD's OPTU-8 and the UCSUR also use U+EF80 to U+EFFF for raw bytes. U+F001 to U+F029 is the
//! mapping of Services for Macintosh, which macOS and cifs (`mapposix`, its default) use.
//!
//! # Why it is reversible
//! A character U+EF80 to U+EFFF escapes one byte, and escapes can be escaped again
//! ([`ropeway_names`]). An item of a name that is the same on both sides keeps its level. A raw
//! byte (level 0 on Linux) and a character that would read as the replacement of another one get
//! one more level on the wire. Since levels have no limit, the mapping covers every name.
//!
//! These functions map names only. They do not reject strings that are not names (empty, `.`, with
//! a slash or backslash): [`check`] does, and so must the code that receives a name from a peer. If
//! a server sends a forbidden character anyway, it stays unchanged, and the name does not map back
//! under [`NameMapping::Sfm`].

#[cfg(test)]
mod tests;

use ropeway_names::{
    FORBIDDEN, Item, Token, Tokens, bytes_of, is_dots, is_plain, items, private, push_char, unprivate,
};

use crate::Text;

/// The unit between the names of a path.
pub const BACKSLASH: u16 = b'\\' as u16;
const SLASH: u16 = b'/' as u16;

/// Whether a unit separates the names of a path. Windows sends only backslashes. A slash cannot be part of a
/// name, and Samba reads it as a separator too (smb2.timestamps.test_close_not_attrib).
pub fn is_separator(unit: &u16) -> bool {
    matches!(*unit, BACKSLASH | SLASH)
}

/// Returns a path with single backslashes between its names, and none before and behind them.
pub fn without_extra_separators(path: &Text) -> Text {
    let names = path.units().split(is_separator);
    let names: Vec<&[u16]> = names.filter(|name| !name.is_empty()).collect();
    Text::from_units(names.join(&BACKSLASH))
}

/// How to treat the characters that Windows forbids in names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NameMapping {
    /// Leaves them unchanged. For servers that keep POSIX names, and for names that are already
    /// mapped (a copy's plan maps them).
    #[default]
    None,
    /// Maps them to private characters as Services for Macintosh does.
    Sfm,
}

/// Converts a Linux name to the form that goes to the server.
pub fn to_wire(name: &[u8], mapping: NameMapping) -> Text {
    if is_plain(name) {
        return Text::from_units(name.iter().copied().map(u16::from).collect());
    }
    let mut items = items(name);
    if mapping == NameMapping::Sfm {
        items.iter_mut().for_each(swap_surrogate);
    }
    if mapping == NameMapping::Sfm && !is_dots(&items) {
        let last = items.len().saturating_sub(1);
        for (at, item) in items.iter_mut().enumerate() {
            if let Token::Char(c) = item.token {
                if item.times == 0
                    && let Some(private) = private(c, at == last)
                {
                    item.token = Token::Char(private);
                } else if unprivate(c, at == last).is_some() {
                    item.times += 1;
                }
            }
        }
    }
    let mut units = Vec::with_capacity(name.len());
    for mut item in items {
        if let Token::Byte(_) = item.token {
            item.times += 1;
        }
        for token in Tokens::new(&item.bytes()) {
            match token {
                Token::Char(c) => push_units(&mut units, c),
                // A byte has level 1 or more here, and escapes are valid UTF-8.
                Token::Byte(_) => {}
            }
        }
    }
    Text::from_units(units)
}

/// Converts a server's name to Linux bytes.
///
/// The result can hold anything the server sent: a slash, a NUL, or `.` and `..`. Callers that
/// build a path from it must check it.
pub fn from_wire(name: &Text, mapping: NameMapping) -> Vec<u8> {
    plain_bytes(name.units()).unwrap_or_else(|| from_items(name, mapping))
}

/// Returns the bytes of a name that is ASCII which no mapping changes. Almost all names are.
fn plain_bytes(units: &[u16]) -> Option<Vec<u8>> {
    let bytes: Result<Vec<u8>, _> = units.iter().map(|unit| u8::try_from(*unit)).collect();
    bytes.ok().filter(|bytes| is_plain(bytes))
}

/// Converts a server's name, whatever it holds.
fn from_items(name: &Text, mapping: NameMapping) -> Vec<u8> {
    let mut utf8 = Vec::with_capacity(name.units().len());
    for unit in char::decode_utf16(name.units().iter().copied()) {
        push_char(
            &mut utf8,
            unit.map_or_else(|lone| u32::from(lone.unpaired_surrogate()), u32::from),
        );
    }
    let mut items = items(&utf8);
    let last = items.len().saturating_sub(1);
    let maps = mapping == NameMapping::Sfm && !is_dots(&items);
    for (at, item) in items.iter_mut().enumerate() {
        if mapping == NameMapping::Sfm {
            swap_surrogate(item);
        }
        match item.token {
            // On the wire every raw byte has level 1 or more.
            Token::Byte(_) => item.times = item.times.saturating_sub(1),
            Token::Char(c) if maps => match (unprivate(c, at == last), item.times.checked_sub(1)) {
                (Some(_), Some(times)) => item.times = times,
                (Some(plain), None) => item.token = Token::Char(plain),
                (None, _) => {}
            },
            Token::Char(_) => {}
        }
    }
    bytes_of(&items)
}

/// Reason for which Windows rejects a file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty, `.` or `..`.
    #[error("not a name")]
    NotAName,
    /// The name contains NUL, a control character or one of `" * / : < > ? \ |`.
    #[error("the character {0:?} is not allowed in names")]
    Character(char),
    /// The name ends with a dot or a space. Windows programs cannot open it.
    #[error("names must not end with a dot or a space")]
    Ending,
    /// The name is `CON`, `NUL`, `COM1`, …, with any extension. Windows programs open a device
    /// instead.
    #[error("the name is reserved for a device")]
    Device,
}

/// Checks one component, in the form that goes to the server, against [MS-FSCC] 2.1.5.2 and the
/// rules of Win32.
///
/// # Errors
/// The first rule that the name breaks. Device names and endings are legal for some servers, so the
/// caller decides whether they matter.
pub fn check(name: &Text) -> Result<(), NameError> {
    let units = name.units();
    let is_dot = |unit: &u16| *unit == u16::from(b'.');
    if units.len() <= 2 && units.iter().all(is_dot) {
        return Err(NameError::NotAName);
    }
    for unit in units {
        if let Ok(byte) = u8::try_from(*unit)
            && (byte < 0x20 || byte == b'/' || FORBIDDEN.contains(&byte))
        {
            return Err(NameError::Character(char::from(byte)));
        }
    }
    if units
        .last()
        .is_some_and(|unit| is_dot(unit) || *unit == u16::from(b' '))
    {
        return Err(NameError::Ending);
    }
    if is_device(name) {
        return Err(NameError::Device);
    }
    Ok(())
}

/// Returns whether Win32 reserves the name for a device ("Naming Files, Paths, and Namespaces").
/// Such names are reserved with any extension, in any case, and with spaces before the extension.
/// Superscript digits count as digits.
pub fn is_device(name: &Text) -> bool {
    // Almost no name begins with the letter of a device, and this is asked for each name.
    let first = name.units().first().and_then(|unit| u8::try_from(*unit).ok());
    if !first.is_some_and(|byte| b"CPANL".contains(&byte.to_ascii_uppercase())) {
        return false;
    }
    let text = name.to_string_lossy();
    let stem = text
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end_matches(' ')
        .to_ascii_uppercase();
    if matches!(
        stem.as_str(),
        "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$"
    ) {
        return true;
    }
    let port = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    port.is_some_and(|digit| {
        matches!(
            digit,
            "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³"
        )
    })
}

/// Exchanges levels 0 and 1 of a lone surrogate: on the wire it is escaped, and an escaped one is
/// not.
fn swap_surrogate(item: &mut Item) {
    if matches!(item.token, Token::Char(0xD800..=0xDFFF)) {
        item.swap();
    }
}

fn push_units(out: &mut Vec<u16>, c: u32) {
    match char::from_u32(c) {
        Some(c) => out.extend_from_slice(c.encode_utf16(&mut [0; 2])),
        // A lone surrogate.
        None => out.extend(u16::try_from(c)),
    }
}
