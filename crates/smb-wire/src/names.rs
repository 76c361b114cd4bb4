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
//! A character U+EF80 to U+EFFF encodes one byte, so a run of them encodes a byte string. That
//! string may itself be the UTF-8 of such characters, which encode bytes again. Every name is thus
//! a sequence of items; each item is a byte or a character together with its *depth*, the number of
//! times it is encoded this way. An item that is the same on both sides keeps its depth. A raw byte
//! (depth 0 on Linux) and a character that would read as the replacement of another one get one
//! more level on the wire. Since depth has no limit, the mapping covers every name. Items never
//! merge with their neighbours: raw bytes that change depth stay next to raw bytes of the same
//! depth, and characters are whole.
//!
//! These functions map names only. They do not reject strings that are not names (empty, `.`, with
//! a slash or backslash): [`check`] does, and so must the code that receives a name from a peer. If
//! a server sends a forbidden character anyway, it stays unchanged, and the name does not map back
//! under [`NameMapping::Sfm`].

#[cfg(test)]
mod tests;

use crate::Text;

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

/// First character of the block that encodes bytes.
const SPELLED: u32 = 0xEF00;
/// Replaces a trailing space (`SFM_SPACE`).
const SPACE_AT_END: u32 = 0xF028;
/// Replaces a trailing dot (`SFM_PERIOD`).
const DOT_AT_END: u32 = 0xF029;
/// Forbidden characters, in the order of their replacements from U+F020 (`SFM_DOUBLEQUOTE` to
/// `SFM_PIPE`).
const FORBIDDEN: [u8; 8] = *b"\"*:<>?\\|";
/// Replacement of the first entry of [`FORBIDDEN`].
const FORBIDDEN_AT: u32 = 0xF020;
/// Offset that replaces the control characters U+0001 to U+001F.
const CONTROL_AT: u32 = 0xF000;

/// One byte or character of a name and its encoding depth (see the module's documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    times: usize,
    token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// A byte that is not part of valid UTF-8.
    Byte(u8),
    /// A code point; it may be a lone surrogate.
    Char(u32),
}

/// Converts a Linux name to the form that goes to the server.
pub fn to_wire(name: &[u8], mapping: NameMapping) -> Text {
    if is_plain(name) {
        return Text::from_units(name.iter().copied().map(u16::from).collect());
    }
    let mut items = items(name);
    if mapping == NameMapping::Sfm {
        items.iter_mut().for_each(Item::swap_surrogate);
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
                // A byte has depth 1 or more here, and encoded bytes are valid UTF-8.
                Token::Byte(_) => {}
            }
        }
    }
    Text::from_units(units)
}

/// Returns whether the name is ASCII that no mapping changes. Almost all names are.
fn is_plain(name: &[u8]) -> bool {
    let stands_for_itself = |byte: &u8| matches!(byte, 0x20..=0x7E) && !FORBIDDEN.contains(byte);
    name.iter().all(stands_for_itself) && !matches!(name.last(), Some(b' ' | b'.'))
}

/// Converts a server's name to Linux bytes.
///
/// The result can hold anything the server sent: a slash, a NUL, or `.` and `..`. Callers that
/// build a path from it must check it.
pub fn from_wire(name: &Text, mapping: NameMapping) -> Vec<u8> {
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
    let mut bytes = Vec::with_capacity(utf8.len());
    for (at, item) in items.iter_mut().enumerate() {
        if mapping == NameMapping::Sfm {
            item.swap_surrogate();
        }
        match item.token {
            // On the wire every raw byte has depth 1 or more.
            Token::Byte(_) => item.times = item.times.saturating_sub(1),
            Token::Char(c) if maps => match (unprivate(c, at == last), item.times.checked_sub(1)) {
                (Some(_), Some(times)) => item.times = times,
                (Some(plain), None) => item.token = Token::Char(plain),
                (None, _) => {}
            },
            Token::Char(_) => {}
        }
        bytes.extend_from_slice(&item.bytes());
    }
    bytes
}

/// Reason for which Windows rejects a file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameFault {
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
    #[error("the name is that of a device")]
    Device,
}

/// Checks one component, in the form that goes to the server, against [MS-FSCC] 2.1.5.2 and the
/// rules of Win32.
///
/// # Errors
/// The first rule that the name breaks. Device names and endings are legal for some servers, so the
/// caller decides whether they matter.
pub fn check(name: &Text) -> Result<(), NameFault> {
    let units = name.units();
    let is_dot = |unit: &u16| *unit == u16::from(b'.');
    if units.len() <= 2 && units.iter().all(is_dot) {
        return Err(NameFault::NotAName);
    }
    for unit in units {
        if let Ok(byte) = u8::try_from(*unit)
            && (byte < 0x20 || byte == b'/' || FORBIDDEN.contains(&byte))
        {
            return Err(NameFault::Character(char::from(byte)));
        }
    }
    if units
        .last()
        .is_some_and(|unit| is_dot(unit) || *unit == u16::from(b' '))
    {
        return Err(NameFault::Ending);
    }
    if is_device(name) {
        return Err(NameFault::Device);
    }
    Ok(())
}

/// Returns whether Win32 reserves the name for a device ("Naming Files, Paths, and Namespaces").
/// Such names are reserved with any extension, in any case, and with spaces before the extension.
/// Superscript digits count as digits.
pub fn is_device(name: &Text) -> bool {
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

impl Item {
    /// Exchanges the depths 0 and 1 of a lone surrogate, so that on the wire it is encoded and an
    /// encoded one is not.
    fn swap_surrogate(&mut self) {
        if matches!(self.token, Token::Char(0xD800..=0xDFFF)) && self.times < 2 {
            self.times = 1 - self.times;
        }
    }

    /// Returns the byte, or the character's UTF-8, encoded as often as the depth says.
    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4);
        match self.token {
            Token::Byte(byte) => bytes.push(byte),
            Token::Char(c) => push_char(&mut bytes, c),
        }
        for _ in 0..self.times {
            let mut spelled = Vec::with_capacity(3 * bytes.len());
            for byte in bytes {
                push_char(&mut spelled, SPELLED + u32::from(byte));
            }
            bytes = spelled;
        }
        bytes
    }
}

/// Splits a name into its items.
fn items(bytes: &[u8]) -> Vec<Item> {
    let mut items = Vec::with_capacity(bytes.len());
    push_items(&mut items, bytes, 0);
    items
}

/// Appends the items of `bytes`, which are at depth `times` themselves. Each deeper level has a
/// third of the bytes, which bounds the recursion.
fn push_items(items: &mut Vec<Item>, bytes: &[u8], times: usize) {
    let mut spelled = Vec::new();
    for token in Tokens::new(bytes) {
        if let Token::Char(c @ 0xEF80..=0xEFFF) = token {
            spelled.extend(u8::try_from(c - SPELLED));
            continue;
        }
        if !spelled.is_empty() {
            push_items(items, &std::mem::take(&mut spelled), times + 1);
        }
        items.push(Item { times, token });
    }
    if !spelled.is_empty() {
        push_items(items, &spelled, times + 1);
    }
}

/// Iterates over the characters of generalised UTF-8 and the bytes that belong to none.
///
/// A surrogate pair in generalised UTF-8 is not well-formed, because UTF-8 has a four-byte form for
/// it: its six bytes are raw.
struct Tokens<'a> {
    bytes: &'a [u8],
    /// Number of bytes to return as raw, whatever they look like.
    raw: usize,
}

impl<'a> Tokens<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, raw: 0 }
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.bytes.split_first()?;
        if self.raw == 0
            && let Some((c, after)) = first_char(self.bytes)
        {
            let is_pair =
                matches!(c, 0xD800..=0xDBFF) && matches!(first_char(after), Some((0xDC00..=0xDFFF, _)));
            if !is_pair {
                self.bytes = after;
                return Some(Token::Char(c));
            }
            self.raw = 6;
        }
        self.raw = self.raw.saturating_sub(1);
        self.bytes = rest;
        Some(Token::Byte(*first))
    }
}

/// Decodes the first character of `bytes`. Also returns the bytes after it.
fn first_char(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let length = match bytes.first()? {
        ..=0x7F => 1,
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return None,
    };
    let (head, rest) = bytes.split_at_checked(length)?;
    let c = match (head, std::str::from_utf8(head)) {
        (_, Ok(text)) => u32::from(text.chars().next()?),
        ([0xED, middle @ 0xA0..=0xBF, last @ 0x80..=0xBF], _) => {
            0xD000 | (u32::from(middle & 0x3F) << 6) | u32::from(last & 0x3F)
        }
        _ => return None,
    };
    Some((c, rest))
}

/// Appends a code point as generalised UTF-8. It may be a surrogate.
fn push_char(out: &mut Vec<u8>, c: u32) {
    match char::from_u32(c) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        // The masks leave six bits each, so the casts lose nothing.
        None => out.extend_from_slice(&[0xED, 0x80 | (c >> 6 & 0x3F) as u8, 0x80 | (c & 0x3F) as u8]),
    }
}

fn push_units(out: &mut Vec<u16>, c: u32) {
    match char::from_u32(c) {
        Some(c) => out.extend_from_slice(c.encode_utf16(&mut [0; 2])),
        // A lone surrogate.
        None => out.extend(u16::try_from(c)),
    }
}

/// Returns the private character that replaces a forbidden one.
fn private(c: u32, at_end: bool) -> Option<u32> {
    match (u8::try_from(c).ok()?, at_end) {
        (1..=0x1F, _) => Some(CONTROL_AT + c),
        (b' ', true) => Some(SPACE_AT_END),
        (b'.', true) => Some(DOT_AT_END),
        (byte, _) => (FORBIDDEN_AT..)
            .zip(FORBIDDEN)
            .find(|(_, forbidden)| *forbidden == byte)
            .map(|(c, _)| c),
    }
}

/// Returns the forbidden character that a private one replaces.
fn unprivate(c: u32, at_end: bool) -> Option<u32> {
    match (c, at_end) {
        (SPACE_AT_END, true) => Some(u32::from(b' ')),
        (DOT_AT_END, true) => Some(u32::from(b'.')),
        (0xF001..=0xF01F, _) => Some(c - CONTROL_AT),
        _ => {
            let at = usize::try_from(c.checked_sub(FORBIDDEN_AT)?).ok()?;
            FORBIDDEN.get(at).map(|byte| u32::from(*byte))
        }
    }
}

/// Returns whether the name is `.` or `..`, or would become one of them when mapped back. Such
/// names stay unchanged, so that no name from a server turns into `.` or `..`.
fn is_dots(items: &[Item]) -> bool {
    const DOT: Token = Token::Char(b'.' as u32);
    let is_dot = |item: &Item| item.times == 0 && item.token == DOT;
    match items {
        [last] => is_dot(last) || last.token == Token::Char(DOT_AT_END),
        [first, last] => is_dot(first) && (is_dot(last) || last.token == Token::Char(DOT_AT_END)),
        _ => false,
    }
}
