//! Maps names to Windows rules and back, without loss.
//!
//! A name is a sequence of items. Each item is a byte or a character that is *escaped* some number
//! of times. A run of U+EF80 to U+EFFF escapes bytes. These bytes may be the UTF-8 of such
//! characters, which escape bytes in turn. A character that would be taken for something else on
//! the volume is escaped once more there, and once less on the way back. The number of levels has
//! no limit, so no two names become one. A lone surrogate, which servers with UTF-8 names refuse,
//! is escaped on the server; a surrogate of a server is escaped here.

use super::is_device;

/// First character of the block that escapes bytes.
const ESCAPE_BASE: u32 = 0xEF00;
/// `SFM_SPACE`: a space at the end ([MS-FSCC] 2.1.5 forbids it to Windows programs).
const SPACE_AT_END: u32 = 0xF028;
/// `SFM_PERIOD`: a dot at the end.
const DOT_AT_END: u32 = 0xF029;
/// Characters in the order of their private characters, from U+F020 (`SFM_DOUBLEQUOTE` to
/// `SFM_PIPE`).
const FORBIDDEN: [u8; 8] = *b"\"*:<>?\\|";
/// The first of their private characters.
const FORBIDDEN_AT: u32 = 0xF020;
/// Base of the private characters of control characters and of first letters of device names.
const PRIVATE_AT: u32 = 0xF000;

/// Surrogates: halves of characters beyond U+FFFF. SMB's names may hold one alone.
const SURROGATE_FIRST: u32 = 0xD800;
const SURROGATE_LAST: u32 = 0xDFFF;

/// A byte or character, and how many times it is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    times: usize,
    token: Token,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// A byte that is not UTF-8.
    Byte(u8),
    /// A code point, perhaps a lone surrogate.
    Char(u32),
}

/// Maps a name to Windows rules; returns the same bytes where no mapping is needed. `raw`: the
/// volume keeps bytes.
pub(super) fn encode(name: &[u8], raw: bool) -> Vec<u8> {
    let mut items = items(name);
    let maps = !is_dots(&items);
    let last = items.len().saturating_sub(1);
    for (at, item) in items.iter_mut().enumerate() {
        match item.token {
            Token::Byte(_) | Token::Char(SURROGATE_FIRST..=SURROGATE_LAST) if !raw => item.times += 1,
            Token::Char(SURROGATE_FIRST..=SURROGATE_LAST) => item.swap(),
            Token::Char(c) if maps => {
                if let (0, Some(private)) = (item.times, private(c, at == last)) {
                    item.token = Token::Char(private);
                } else if unprivate(c, at == last).is_some() {
                    item.times += 1;
                }
            }
            _ => {}
        }
    }
    // Check the name as the volume sees it: a dot at the end is a different character there, and
    // makes no device name.
    if let Some((first, rest)) = items.split_first_mut()
        && let Token::Char(c) = first.token
    {
        let rest = bytes_of(rest);
        if let (0, Ok(byte)) = (first.times, u8::try_from(c))
            && names_device(byte, &rest)
        {
            first.token = Token::Char(PRIVATE_AT + c);
        } else if letter(c).is_some_and(|letter| names_device(letter, &rest)) {
            first.times += 1;
        }
    }
    bytes_of(&items)
}

/// Returns the name that was mapped to this one, or the same bytes if no name maps to it.
pub(super) fn decode(name: &[u8], raw: bool) -> Vec<u8> {
    let mut items = items(name);
    let device = items.split_first().and_then(|(first, rest)| match first.token {
        Token::Char(c) => letter(c).filter(|letter| names_device(*letter, &bytes_of(rest))),
        Token::Byte(_) => None,
    });
    let maps = !is_dots(&items);
    let last = items.len().saturating_sub(1);
    for (at, item) in items.iter_mut().enumerate() {
        match item.token {
            Token::Byte(_) | Token::Char(SURROGATE_FIRST..=SURROGATE_LAST) if !raw => {
                item.times = item.times.saturating_sub(1);
            }
            Token::Char(SURROGATE_FIRST..=SURROGATE_LAST) => item.swap(),
            Token::Char(c) if maps => match (unprivate(c, at == last), item.times.checked_sub(1)) {
                (Some(_), Some(times)) => item.times = times,
                (Some(plain), None) => item.token = Token::Char(plain),
                (None, _) => {}
            },
            _ => {}
        }
    }
    if let (Some(letter), Some(first)) = (device, items.first_mut()) {
        match first.times.checked_sub(1) {
            Some(times) => first.times = times,
            None => first.token = Token::Char(u32::from(letter)),
        }
    }
    bytes_of(&items)
}

/// Whether a letter and the rest form the name of a device.
fn names_device(letter: u8, rest: &[u8]) -> bool {
    letter.is_ascii_alphabetic() && is_device(&[&[letter], rest].concat())
}

/// Returns the letter that a private character stands for.
fn letter(c: u32) -> Option<u8> {
    let byte = u8::try_from(c.checked_sub(PRIVATE_AT)?).ok()?;
    byte.is_ascii_alphabetic().then_some(byte)
}

/// Returns the private character of a forbidden one.
fn private(c: u32, at_end: bool) -> Option<u32> {
    match (u8::try_from(c).ok()?, at_end) {
        (1..=0x1F, _) => Some(PRIVATE_AT + c),
        (b' ', true) => Some(SPACE_AT_END),
        (b'.', true) => Some(DOT_AT_END),
        (byte, _) => (FORBIDDEN_AT..)
            .zip(FORBIDDEN)
            .find(|(_, forbidden)| *forbidden == byte)
            .map(|(c, _)| c),
    }
}

/// Returns the forbidden character of a private one.
fn unprivate(c: u32, at_end: bool) -> Option<u32> {
    match (c, at_end) {
        (SPACE_AT_END, true) => Some(u32::from(b' ')),
        (DOT_AT_END, true) => Some(u32::from(b'.')),
        (0xF001..=0xF01F, _) => Some(c - PRIVATE_AT),
        _ => {
            let at = usize::try_from(c.checked_sub(FORBIDDEN_AT)?).ok()?;
            FORBIDDEN.get(at).map(|byte| u32::from(*byte))
        }
    }
}

/// Whether this is `.` or `..`, or what they would be mapped to. These stay unchanged, so that no
/// name becomes one of them.
fn is_dots(items: &[Item]) -> bool {
    const DOT: Token = Token::Char(b'.' as u32);
    let is_dot = |item: &Item| item.times == 0 && item.token == DOT;
    match items {
        [last] => is_dot(last) || last.token == Token::Char(DOT_AT_END),
        [first, last] => is_dot(first) && (is_dot(last) || last.token == Token::Char(DOT_AT_END)),
        _ => false,
    }
}

fn bytes_of(items: &[Item]) -> Vec<u8> {
    items.iter().flat_map(|item| item.bytes()).collect()
}

impl Item {
    /// Toggles between levels 0 and 1: a character that stands for itself is escaped on the other
    /// side, and the reverse.
    fn swap(&mut self) {
        if self.times < 2 {
            self.times = 1 - self.times;
        }
    }

    /// Returns the byte or the character's UTF-8, escaped `times` times.
    fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4);
        match self.token {
            Token::Byte(byte) => bytes.push(byte),
            Token::Char(c) => push_char(&mut bytes, c),
        }
        for _ in 0..self.times {
            let mut escaped = Vec::with_capacity(3 * bytes.len());
            for byte in bytes {
                push_char(&mut escaped, ESCAPE_BASE + u32::from(byte));
            }
            bytes = escaped;
        }
        bytes
    }
}

fn items(bytes: &[u8]) -> Vec<Item> {
    let mut items = Vec::with_capacity(bytes.len());
    push_items(&mut items, bytes, 0);
    items
}

/// Appends the items of bytes that are themselves escaped `times` times. Each level has a third of
/// the bytes of the one before, which bounds the recursion.
fn push_items(items: &mut Vec<Item>, bytes: &[u8], times: usize) {
    let mut escaped = Vec::new();
    for token in (Tokens { bytes, raw: 0 }) {
        if let Token::Char(c @ 0xEF80..=0xEFFF) = token {
            escaped.extend(u8::try_from(c - ESCAPE_BASE));
            continue;
        }
        if !escaped.is_empty() {
            push_items(items, &std::mem::take(&mut escaped), times + 1);
        }
        items.push(Item { times, token });
    }
    if !escaped.is_empty() {
        push_items(items, &escaped, times + 1);
    }
}

/// Iterates over characters of generalised UTF-8 (names of SMB shares may have lone surrogates) and
/// bytes that belong to none. A surrogate pair is not well-formed there: its six bytes are raw.
struct Tokens<'a> {
    bytes: &'a [u8],
    /// Number of bytes that count as raw, whatever they look like.
    raw: usize,
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

/// Returns the first character and the bytes after it.
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

/// Appends a code point (possibly a surrogate) as generalised UTF-8.
fn push_char(out: &mut Vec<u8>, c: u32) {
    match char::from_u32(c) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        // The masks leave six bits each, so nothing is cut off.
        None => out.extend_from_slice(&[0xED, 0x80 | (c >> 6 & 0x3F) as u8, 0x80 | (c & 0x3F) as u8]),
    }
}
