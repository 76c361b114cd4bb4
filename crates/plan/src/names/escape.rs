//! Maps names to Windows rules and back, without loss.
//!
//! [`ropeway_names`] splits a name into items, each a byte or a character that is *escaped* some
//! number of times. A character that would be taken for something else on the volume is escaped once
//! more there, and once less on the way back. The number of levels has no limit, so no two names
//! become one. A lone surrogate, which servers with UTF-8 names refuse, is escaped on the server; a
//! surrogate of a server is escaped here.

use ropeway_names::{PRIVATE_AT, Token, bytes_of, is_dots, items, private, unprivate};

use super::is_device;

/// Surrogates: halves of characters beyond U+FFFF. SMB's names may hold one alone.
const SURROGATE_FIRST: u32 = 0xD800;
const SURROGATE_LAST: u32 = 0xDFFF;

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
