//! Maps names that one end can hold and the other cannot.
//!
//! Volumes under Windows rules (NTFS, FAT, exFAT, SMB shares) refuse characters, endings and whole
//! names that Linux allows, and hold Unicode instead of bytes. [`NameMap`] maps such names to ones
//! that fit. Mapping them back yields exactly the original name:
//!
//! * `" * : < > ? \ |` become U+F020 to U+F027, as in Services for Macintosh: macOS, Samba's
//!   `fruit`, cifs `mapposix` and our server.
//! * U+0001 to U+001F become U+F001 to U+F01F, as there.
//! * A space or a dot at the end becomes U+F028 or U+F029, as there.
//! * A device name (`CON`, `nul.txt`, `COM1`, …) gets its first letter replaced by U+F000 + letter.
//!   Only Ropeway does this.
//! * A byte that is not UTF-8 becomes U+EF00 + byte (U+EF80 to U+EFFF), as in MirBSD's OPTU-8 and
//!   in `ropeway_smb_wire::names`. It is unchanged where the volume keeps bytes.
//! * One of these private characters in the original name, where it would be taken for what it
//!   stands for, becomes U+EF00 + each of its UTF-8 bytes, as there.
//!
//! A share behind our client keeps bytes. What goes over the wire is then exactly what
//! `ropeway_smb_wire::names` makes of the name in its `Sfm` mapping, and our server stores the
//! original name on its disk (except device names). The two mappings are inverse to each other;
//! that module explains how, and `crates/smb-client` tests that the two agree. Neither produces `/`
//! or NUL.
//!
//! [`FolderNames`] finds names in one folder that a case-insensitive volume treats as the same.

mod collide;
mod escape;
#[cfg(test)]
mod tests;

use ropeway_names::is_plain;
use ropeway_vfs::{Capabilities, Name};

pub use collide::{Collision, FolderNames, case_key, normalized};
use escape::{decode, encode};

/// How to treat names that the target cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamePolicy {
    /// Map them, and map names from a volume under Windows rules back on one without.
    #[default]
    Auto,
    /// Report them as errors.
    Refuse,
    /// Map names to Windows rules whatever the target is (for a disk that will be carried to
    /// Windows), never back.
    Map,
}

/// Why a volume cannot hold a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Windows rules: `" * : < > ? \ |` and control characters.
    #[error("the character {0:?} is not allowed in names there")]
    Character(char),
    /// Windows rules: no dot or space at the end.
    #[error("names must not end with a dot or a space there")]
    Ending,
    /// Windows rules: `CON`, `NUL`, `COM1`, … with any ending.
    #[error("the name is that of a device there")]
    Device,
    /// The volume holds Unicode, and the name is not UTF-8.
    #[error("the name is not UTF-8")]
    NotUnicode,
    /// Longer than the volume's longest name.
    #[error(
        "the name (or what it must be mapped to) is {length} long and names there are at most {length_max}"
    )]
    TooLong {
        /// Bytes, or UTF-16 units under Windows rules.
        length: usize,
        /// Longest allowed.
        length_max: usize,
    },
}

/// A name on the target.
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
    /// Whether the volume under Windows rules keeps names of any bytes.
    raw: bool,
    name_max: usize,
}

impl NameMap {
    /// Makes the map for copies from `source` to `target`.
    pub fn new(source: &Capabilities, target: &Capabilities, policy: NamePolicy) -> Self {
        // Names from a volume under Windows rules fit every other volume.
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

    /// Whether this map leaves every name unchanged.
    pub fn is_identity(&self) -> bool {
        self.direction == Direction::Keep
    }

    /// Whether the target can hold this name unchanged.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check(&self, name: &Name) -> Result<(), NameError> {
        self.check_bytes(name.as_bytes())
    }

    /// The same for the bytes of a name, as a path has them.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_bytes(&self, name: &[u8]) -> Result<(), NameError> {
        if self.windows_rules {
            check_windows(name, self.raw)?;
        }
        self.check_length(name)
    }

    /// Returns the name to use on the target.
    ///
    /// # Errors
    /// The target cannot hold the name, and mapping it is not allowed or does not help.
    pub fn map(&self, name: &Name) -> Result<Mapped, NameError> {
        let bytes = name.as_bytes();
        let mapped = match self.direction {
            Direction::Keep => None,
            // Almost all names.
            _ if is_plain(bytes) && !is_device(bytes) => None,
            Direction::Encode => Some(encode(bytes, self.raw)),
            Direction::Decode => Some(decode(bytes, self.raw)),
        };
        // The result is never empty, `.` or `..`, and never contains a slash or NUL: encoding only
        // inserts private characters, and decoding leaves unchanged what would become dots.
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

    fn check_length(&self, bytes: &[u8]) -> Result<(), NameError> {
        let length = match self.windows_rules {
            true => utf16_length(bytes),
            false => bytes.len(),
        };
        let length_max = self.name_max;
        if length > length_max {
            return Err(NameError::TooLong { length, length_max });
        }
        Ok(())
    }
}

/// Returns the length in UTF-16 units; each byte that is not UTF-8 counts as one.
fn utf16_length(bytes: &[u8]) -> usize {
    bytes
        .utf8_chunks()
        .map(|chunk| chunk.valid().encode_utf16().count() + chunk.invalid().len())
        .sum()
}

/// Checks the rules of [MS-FSCC] 2.1.5.2 and of the Win32 layer (device names, endings).
fn check_windows(bytes: &[u8], raw: bool) -> Result<(), NameError> {
    if !raw && std::str::from_utf8(bytes).is_err() {
        return Err(NameError::NotUnicode);
    }
    if let Some(byte) = bytes.iter().find(|byte| is_illegal(**byte)) {
        return Err(NameError::Character(char::from(*byte)));
    }
    if matches!(bytes.last(), Some(b'.' | b' ')) {
        return Err(NameError::Ending);
    }
    if is_device(bytes) {
        return Err(NameError::Device);
    }
    Ok(())
}

fn is_illegal(byte: u8) -> bool {
    matches!(
        byte,
        0x01..=0x1F | b'"' | b'*' | b':' | b'<' | b'>' | b'?' | b'\\' | b'|'
    )
}

/// Whether this is a device name of the Win32 layer ("Naming Files, Paths, and Namespaces"). Such
/// names are reserved with any extension, in any case, and with spaces before the extension.
/// Superscript digits count as digits.
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
