//! Text of trace files: numbers and paths as JSON, written without detours.
//!
//! A line is formatted while its operation ends, so this is what a trace costs.

use std::fmt::Write as _;

/// Converts a path to text reversibly: UTF-8 as it is, a backslash doubled, other bytes as `\xNN`.
/// The root is `.`.
pub(super) fn escape(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '\\' {
                text.push('\\');
            }
            text.push(c);
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Appends a path as a JSON string.
pub(super) fn push_path(line: &mut Vec<u8>, path: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if !path.is_empty() && path.iter().all(is_plain) {
        line.push(b'"');
        line.extend_from_slice(path);
        line.push(b'"');
    } else {
        // A vector takes everything, and a string is always valid JSON.
        _ = serde_json::to_writer(line, &escape(path));
    }
}

/// Appends `,"name":`. The length of the name is known, so this needs no call.
macro_rules! push_name {
    ($line:expr, $name:literal) => {
        $line.extend_from_slice(concat!(",\"", $name, "\":").as_bytes())
    };
}
pub(super) use push_name;

/// Appends a number.
#[inline]
pub(super) fn push_number(line: &mut Vec<u8>, number: impl itoa::Integer) {
    line.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a word that needs no escapes.
#[inline]
pub(super) fn push_word(line: &mut Vec<u8>, word: &str) {
    line.push(b'"');
    line.extend_from_slice(word.as_bytes());
    line.push(b'"');
}
