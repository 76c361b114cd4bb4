//! Names that one end can hold and the other cannot.
//!
//! Volumes under Windows rules (NTFS, FAT, exFAT, SMB shares) refuse characters, endings and whole names that Linux
//! allows, and hold Unicode instead of bytes. [`NameMap`] maps such names to ones that fit, so that the way back gives
//! exactly the first name:
//!
//! | in the name | becomes | as in |
//! |---|---|---|
//! | `" * : < > ? \ \|` | U+F020 to U+F027 | Services for Macintosh: macOS, Samba's `fruit`, cifs `mapposix`, our server |
//! | U+0001 to U+001F | U+F001 to U+F01F | the same |
//! | a space, a dot at the end | U+F028, U+F029 | the same |
//! | a device name (`CON`, `nul.txt`, `COM1`, …) | its first letter as U+F000 + letter | ours |
//! | a byte that is not UTF-8 | U+EF00 + byte (U+EF80 to U+EFFF); stays where the volume keeps bytes | MirBSD's OPTU-8; `ropeway_smb_wire::names` |
//! | a character of these, where it would be taken for what it stands for | U+EF00 + each of its UTF-8 bytes | the same |
//!
//! A share behind our client keeps bytes: what goes over the wire is then exactly what `ropeway_smb_wire::names` makes of the
//! name under its `Sfm`, and our server puts the first name on its disk (but for device names). Both ways are each other's
//! inverse; how that works is told there, and `crates/smb` tests that the two agree. Neither `/` nor NUL can come out of it.
//!
//! [`FolderNames`] finds names of one folder that a case-insensitive volume takes for the same.

mod collide;
mod spelled;
#[cfg(test)]
mod tests;

use ropeway_vfs::{Capabilities, Name};

pub use collide::{Collision, FolderNames};
use spelled::{decode, encode};

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
    /// The volume under Windows rules keeps names of any bytes.
    raw: bool,
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
        let raw = match direction {
            Direction::Decode => source.raw_names,
            _ => target.windows_names && target.raw_names,
        };
        Self {
            direction,
            windows_rules: target.windows_names,
            raw,
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
            check_windows(name.as_bytes(), self.raw)?;
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
            Direction::Encode => Some(encode(bytes, self.raw)),
            Direction::Decode => Some(decode(bytes, self.raw)),
        };
        // Neither way makes an empty name, `.`, `..`, a slash or NUL: encoding only puts in private characters, and
        // decoding leaves alone what would become dots.
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
fn check_windows(bytes: &[u8], raw: bool) -> Result<(), NameFault> {
    if !raw && std::str::from_utf8(bytes).is_err() {
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
