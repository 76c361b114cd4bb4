//! Escapes in file names: the parts that the SMB codec and the copy plan share.
//!
//! A name is a sequence of items. Each [`Item`] is a byte or a character that is *escaped* a number
//! of times, its level. A run of U+EF80 to U+EFFF escapes bytes. These bytes may be the UTF-8 of
//! such characters, which escape bytes in turn. [`items`] finds the items of a name, and
//! [`bytes_of`] is its inverse for every name.
//!
//! Both users map a name by changing items: one that would read as something else on the other side
//! gets one more level there, and one less on the way back. Levels have no limit, so no two names
//! become one. Items never merge with their neighbours: raw bytes that change their level stay next
//! to raw bytes of the same level, and characters are whole.

/// First character of the block that escapes bytes.
const ESCAPE_BASE: u32 = 0xEF00;
/// Replaces a trailing space (`SFM_SPACE`; [MS-FSCC] 2.1.5 forbids it to Windows programs).
const SPACE_AT_END: u32 = 0xF028;
/// Replaces a trailing dot (`SFM_PERIOD`).
const DOT_AT_END: u32 = 0xF029;
/// Characters that Windows forbids in names, in the order of their private characters
/// (`SFM_DOUBLEQUOTE` to `SFM_PIPE`). Control characters are forbidden, too.
pub const FORBIDDEN: [u8; 8] = *b"\"*:<>?\\|";
/// Private character of the first of [`FORBIDDEN`].
const FORBIDDEN_AT: u32 = 0xF020;
/// Base of the private characters of control characters.
pub const PRIVATE_AT: u32 = 0xF000;

/// A byte or character of a name, and how many times it is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Level: the number of times it is escaped.
    pub times: usize,
    /// The byte or character.
    pub token: Token,
}

/// A byte or character of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A byte that is not part of valid UTF-8.
    Byte(u8),
    /// A code point; it may be a lone surrogate.
    Char(u32),
}

impl Item {
    /// Exchanges levels 0 and 1, for a lone surrogate: it is escaped on one side and not on the
    /// other.
    pub fn swap(&mut self) {
        if self.times < 2 {
            self.times = 1 - self.times;
        }
    }

    /// Returns the byte, or the character's UTF-8, escaped `times` times.
    pub fn bytes(self) -> Vec<u8> {
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

/// Returns whether a name is ASCII that no mapping changes, but for names of devices. Almost all names
/// are.
pub fn is_plain(name: &[u8]) -> bool {
    let stands_for_itself = |byte: &u8| matches!(byte, 0x20..=0x7E) && !FORBIDDEN.contains(byte);
    name.iter().all(stands_for_itself) && !matches!(name.last(), Some(b' ' | b'.'))
}

/// Splits a name into its items.
pub fn items(bytes: &[u8]) -> Vec<Item> {
    let mut items = Vec::with_capacity(bytes.len());
    push_items(&mut items, bytes, 0);
    items
}

/// Joins items to a name.
pub fn bytes_of(items: &[Item]) -> Vec<u8> {
    items.iter().flat_map(|item| item.bytes()).collect()
}

/// Appends the items of bytes that are themselves escaped `times` times. Each level has a third of
/// the bytes of the one before, which bounds the recursion.
fn push_items(items: &mut Vec<Item>, bytes: &[u8], times: usize) {
    let mut escaped = Vec::new();
    for token in Tokens::new(bytes) {
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

/// Returns whether a name is `.` or `..`, or would become one of them when mapped back. Mappings
/// leave such names unchanged, so that no name turns into `.` or `..`.
pub fn is_dots(items: &[Item]) -> bool {
    const DOT: Token = Token::Char(b'.' as u32);
    let is_dot = |item: &Item| item.times == 0 && item.token == DOT;
    match items {
        [last] => is_dot(last) || last.token == Token::Char(DOT_AT_END),
        [first, last] => is_dot(first) && (is_dot(last) || last.token == Token::Char(DOT_AT_END)),
        _ => false,
    }
}

/// Returns the private character that replaces a forbidden one, as Services for Macintosh has it.
/// A space or dot is forbidden at the end only.
pub fn private(c: u32, at_end: bool) -> Option<u32> {
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

/// Returns the forbidden character that a private one replaces.
pub fn unprivate(c: u32, at_end: bool) -> Option<u32> {
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

/// Iterator over the characters of generalised UTF-8 (WTF-8) and the bytes that belong to none.
///
/// A surrogate pair in generalised UTF-8 is not well-formed, because UTF-8 has a four-byte form for
/// it: its six bytes are raw.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    bytes: &'a [u8],
    /// Number of bytes that count as raw, whatever they look like.
    raw: usize,
}

impl<'a> Tokens<'a> {
    /// Iterates over the tokens of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
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
pub fn push_char(out: &mut Vec<u8>, c: u32) {
    match char::from_u32(c) {
        Some(c) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        // The masks leave six bits each, so the casts lose nothing.
        None => out.extend_from_slice(&[0xED, 0x80 | (c >> 6 & 0x3F) as u8, 0x80 | (c & 0x3F) as u8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Surrogates, and the two bytes of `é`.
    const PARTS: &[&[u8]] = &[b"\xED\xA0\x80", b"\xED\xB0\x80", b"\xC3", b"\xA9"];

    /// Generates bytes that often look like an escape.
    fn names() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop_oneof![
            any::<u8>().prop_map(|byte| vec![byte]),
            prop::sample::select(PARTS).prop_map(<[u8]>::to_vec),
            (0xEF80..=0xEFFF_u32, 0..3_usize).prop_map(|(c, times)| Item {
                times,
                token: Token::Char(c)
            }
            .bytes()),
            any::<char>().prop_map(|c| c.to_string().into_bytes()),
        ];
        vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn items_have_the_levels_of_their_escapes() {
        let item = |times, token| Item { times, token };
        assert_eq!(items(b"\xFF"), [item(0, Token::Byte(0xFF))]);
        assert_eq!(items("\u{EFFF}".as_bytes()), [item(1, Token::Byte(0xFF))]);
        // The escaped UTF-8 of U+EF80, which itself escapes a byte.
        let escaped: String = "\u{EFEE}\u{EFBE}\u{EF80}".into();
        assert_eq!(items(escaped.as_bytes()), [item(2, Token::Byte(0x80))]);
        assert_eq!(items("\u{EFC3}\u{EFA9}".as_bytes()), [item(1, Token::Char(0xE9))]);
        assert_eq!(items(b"\xED\xA0\x80"), [item(0, Token::Char(0xD800))]);
        assert_eq!(items(b"\xED\xA0\x80\xED\xB0\x80").len(), 6, "a pair is raw bytes");
    }

    #[test]
    fn private_characters_replace_forbidden_ones() {
        for c in (1..0x20).chain(FORBIDDEN.map(u32::from)) {
            assert_eq!(private(c, false).and_then(|c| unprivate(c, false)), Some(c));
        }
        for c in [b' ', b'.'].map(u32::from) {
            assert_eq!(private(c, false), None);
            assert_eq!(private(c, true).and_then(|c| unprivate(c, true)), Some(c));
        }
        assert_eq!(private(u32::from(b'a'), true), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn joined_items_are_the_name(name in names()) {
            prop_assert_eq!(bytes_of(&items(&name)), name);
        }
    }
}
