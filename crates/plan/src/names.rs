//! Names that one end can hold and the other cannot.
//!
//! Volumes under Windows rules (NTFS, FAT, exFAT, SMB shares) refuse characters, endings and whole names that Linux
//! allows, and hold Unicode instead of bytes. [`NameMap`] maps such names to ones that fit, so that the way back gives
//! exactly the first name:
//!
//! | in the name | becomes | as in |
//! |---|---|---|
//! | `" * : < > ? \ \|`, U+0001 to U+001F | U+F000 + character | Services for Unix, Cygwin, WSL, cifs `mapchars` |
//! | a space at the end | U+F028 | Services for Macintosh, cifs `mapposix` |
//! | a dot at the end | U+F029 | Services for Macintosh, cifs `mapposix` |
//! | a device name (`CON`, `nul.txt`, `COM1`, …) | its first letter as U+F000 + letter | ours |
//! | a byte that is not UTF-8 | U+F000 + byte (U+F080 to U+F0FF) | ours |
//! | a character U+F001 to U+F0FF (not U+F02F) | U+F000 + each of its three UTF-8 bytes | ours: keeps the way back unambiguous |
//!
//! The way back decodes a name only if encoding the result gives the name again; what this module did not make is left
//! alone. Neither `/` (U+F02F) nor NUL (U+F000) can come out of it.
//!
//! [`FolderNames`] finds names of one folder that a case-insensitive volume takes for the same.

mod collide;
#[cfg(test)]
mod tests;

use ropeway_vfs::{Capabilities, Name};

pub use collide::{Collision, FolderNames};

/// First character of the block that bytes are mapped into: the private use area as Services for Unix uses it.
const PRIVATE: u32 = 0xF000;
/// A space at the end ([MS-FSCC] 2.1.5 forbids it to Windows programs), as cifs `mapposix` has it (`SFM_SPACE`).
const SPACE_AT_END: char = '\u{F028}';
/// A dot at the end, as cifs `mapposix` has it (`SFM_PERIOD`).
const DOT_AT_END: char = '\u{F029}';

/// What to do with names that the target cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamePolicy {
    /// Map them, and map back names from a volume under Windows rules to one without.
    #[default]
    Auto,
    /// Report them as errors.
    Refuse,
    /// Map names to Windows rules whatever the target is (for a disk that is to be carried to Windows), never back.
    Map,
}

/// Why a volume cannot hold a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameFault {
    /// Windows rules: `" * : < > ? \ |` and control characters.
    #[error("the character {0:?} is not allowed in names there")]
    Character(char),
    /// Windows rules.
    #[error("names must not end with a dot or a space there")]
    Ending,
    /// Windows rules: `CON`, `NUL`, `COM1`, … with any ending.
    #[error("the name is that of a device there")]
    Device,
    /// The volume holds Unicode and the name is not UTF-8.
    #[error("the name is not UTF-8")]
    NotUnicode,
    /// Longer than the volume's longest name.
    #[error(
        "the name (or what it must be mapped to) is {length} long and names there are at most {length_max}"
    )]
    TooLong {
        /// Bytes, or UTF-16 units under Windows rules.
        length: usize,
        /// The longest allowed.
        length_max: usize,
    },
}

/// A name for the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The name to use.
    pub name: Name,
    /// Whether it differs from the source's.
    pub changed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Keep,
    Encode,
    Decode,
}

/// Maps names from one tree to another.
#[derive(Clone, Copy, Debug)]
pub struct NameMap {
    direction: Direction,
    windows_rules: bool,
    name_max: usize,
}

impl NameMap {
    /// The map for copies from `source` to `target`.
    pub fn new(source: &Capabilities, target: &Capabilities, policy: NamePolicy) -> Self {
        // Names from a volume under Windows rules fit every other one.
        let direction = match (policy, source.windows_names, target.windows_names) {
            (NamePolicy::Auto, true, false) => Direction::Decode,
            (NamePolicy::Auto, false, true) | (NamePolicy::Map, false, _) => Direction::Encode,
            _ => Direction::Keep,
        };
        Self {
            direction,
            windows_rules: target.windows_names,
            name_max: target.name_max,
        }
    }

    /// Whether this map leaves every name as it is.
    pub fn is_identity(&self) -> bool {
        self.direction == Direction::Keep
    }

    /// Whether the target can hold this name as it is.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, name: &Name) -> Result<(), NameFault> {
        if self.windows_rules {
            check_windows(name.as_bytes())?;
        }
        self.check_length(name.as_bytes())
    }

    /// The name to use on the target.
    ///
    /// # Errors
    /// The target cannot hold the name, and mapping it is not allowed or does not help.
    pub fn map(&self, name: &Name) -> Result<Mapped, NameFault> {
        let bytes = name.as_bytes();
        let mapped = match self.direction {
            Direction::Keep => None,
            Direction::Encode => Some(encode(bytes)),
            Direction::Decode => decode(bytes),
        };
        // Neither way makes an empty name, `.`, `..`, a slash or NUL: encoding only puts in private characters, and
        // decoding checks.
        match mapped
            .filter(|mapped| mapped != bytes)
            .and_then(|mapped| Name::new(&mapped))
        {
            Some(name) => {
                self.check_length(name.as_bytes())?;
                Ok(Mapped { name, changed: true })
            }
            None => {
                self.check(name)?;
                Ok(Mapped {
                    name: name.clone(),
                    changed: false,
                })
            }
        }
    }

    fn check_length(&self, bytes: &[u8]) -> Result<(), NameFault> {
        let length = match self.windows_rules {
            true => utf16_length(bytes),
            false => bytes.len(),
        };
        let length_max = self.name_max;
        if length > length_max {
            return Err(NameFault::TooLong { length, length_max });
        }
        Ok(())
    }
}

/// UTF-16 units; each byte that is not UTF-8 counts as one.
fn utf16_length(bytes: &[u8]) -> usize {
    bytes
        .utf8_chunks()
        .map(|chunk| chunk.valid().encode_utf16().count() + chunk.invalid().len())
        .sum()
}

/// [MS-FSCC] 2.1.5.2 and the naming rules of the Win32 layer (device names, endings).
fn check_windows(bytes: &[u8]) -> Result<(), NameFault> {
    if !is_unicode(bytes) {
        return Err(NameFault::NotUnicode);
    }
    if let Some(byte) = bytes.iter().find(|byte| is_illegal(**byte)) {
        return Err(NameFault::Character(char::from(*byte)));
    }
    if matches!(bytes.last(), Some(b'.' | b' ')) {
        return Err(NameFault::Ending);
    }
    if is_device(bytes) {
        return Err(NameFault::Device);
    }
    Ok(())
}

/// UTF-8, or WTF-8 with lone surrogates, which is how names of SMB shares are carried here.
fn is_unicode(mut bytes: &[u8]) -> bool {
    loop {
        match std::str::from_utf8(bytes) {
            Ok(_) => return true,
            Err(error) => match &bytes[error.valid_up_to()..] {
                [0xED, 0xA0..=0xBF, 0x80..=0xBF, rest @ ..] => bytes = rest,
                _ => return false,
            },
        }
    }
}

fn is_illegal(byte: u8) -> bool {
    matches!(
        byte,
        0x01..=0x1F | b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|'
    )
}

/// Device names of the Win32 layer ("Naming Files, Paths, and Namespaces"): reserved with any extension, in any case,
/// and with spaces before the extension. Superscript digits count as digits.
fn is_device(bytes: &[u8]) -> bool {
    let stem = bytes.split(|byte| *byte == b'.').next().unwrap_or_default();
    let stem = stem.trim_ascii_end();
    if ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
        .iter()
        .any(|device| stem.eq_ignore_ascii_case(device.as_bytes()))
    {
        return true;
    }
    let Some((port, digit)) = stem.split_at_checked(3) else {
        return false;
    };
    (port.eq_ignore_ascii_case(b"COM") || port.eq_ignore_ascii_case(b"LPT"))
        && (matches!(digit, [b'1'..=b'9']) || ["¹", "²", "³"].iter().any(|sign| digit == sign.as_bytes()))
}

/// The character that stands for a byte.
fn private(byte: u8) -> char {
    // U+F000 to U+F0FF are characters.
    char::from_u32(PRIVATE + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for, by itself.
fn private_byte(c: char) -> Option<u8> {
    match c {
        SPACE_AT_END => Some(b' '),
        DOT_AT_END => Some(b'.'),
        // NUL and the slash never stand in a name.
        '\u{F000}' | '\u{F02F}' => None,
        _ => u8::try_from((c as u32).checked_sub(PRIVATE)?).ok(),
    }
}

/// Maps to Windows rules; gives the same bytes where nothing needs it.
fn encode(bytes: &[u8]) -> Vec<u8> {
    let is_device = is_device(bytes);
    let mut encoded = String::with_capacity(bytes.len());
    let mut offset = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let at_start = offset == 0;
            offset += c.len_utf8();
            let at_end = offset == bytes.len();
            match u8::try_from(c) {
                Ok(byte) if is_illegal(byte) || (at_start && is_device) => encoded.push(private(byte)),
                Ok(b' ') if at_end => encoded.push(SPACE_AT_END),
                Ok(b'.') if at_end => encoded.push(DOT_AT_END),
                _ if private_byte(c).is_some() => {
                    let mut utf8 = [0; 4];
                    encoded.extend(c.encode_utf8(&mut utf8).bytes().map(private));
                }
                _ => encoded.push(c),
            }
        }
        offset += chunk.invalid().len();
        encoded.extend(chunk.invalid().iter().copied().map(private));
    }
    encoded.into_bytes()
}

/// The name that was mapped to this one; `None` if this one was not made by mapping.
fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut decoded = Vec::with_capacity(bytes.len());
    for c in text.chars() {
        match private_byte(c) {
            Some(byte) => decoded.push(byte),
            None => decoded.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    (encode(&decoded) == bytes).then_some(decoded)
}
