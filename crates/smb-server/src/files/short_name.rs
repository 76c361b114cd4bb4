//! Short 8.3 names ([MS-FSCC] 2.1.5.2.1), for programs that ask for them.
//!
//! They are not stored. A long name gets a short one made of its first characters and a hash, so it
//! is the same at any time and on any server. To find the file of a short name, the folder is
//! scanned. Two names in a folder have the same short name with a probability of 1 in 60 million;
//! then the first one is found.
//!
//! ```text
//! readme.txt             README.TXT
//! A long name.html       AL~2J8FK.HTM
//! ```

use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::Name;
use ropeway_vfs::store::Node;

use crate::files::status;

/// Which names clients see besides the real ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameView {
    /// Whether names that begin with a dot are hidden unless their attributes were set.
    pub(crate) hide_dot_files: bool,
    /// Whether every name has a short one; otherwise only names that are short themselves.
    pub(crate) short_names: bool,
}

/// Digits of the hash.
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Number of digits.
const HASH_LEN: usize = 5;

impl NameView {
    /// Returns the short name of a name, if it has one.
    pub(crate) fn short_name(self, name: &[u8]) -> Option<Text> {
        if let Some(short) = already_short(name) {
            return Some(short);
        }
        self.short_names.then(|| hashed(name))
    }
}

/// Returns a name that is short itself, in capitals.
fn already_short(name: &[u8]) -> Option<Text> {
    let (base, extension) = match name.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&name[..dot], Some(&name[dot + 1..])),
        None => (name, None),
    };
    let is_short = matches!(base.len(), 1..=8)
        && base.iter().all(is_allowed)
        && extension.is_none_or(|part| matches!(part.len(), 1..=3) && part.iter().all(is_allowed));
    is_short.then(|| capitals(name.iter().copied()))
}

/// Returns up to two characters of the name, `~`, the hash, and up to three characters after the
/// last dot.
fn hashed(name: &[u8]) -> Text {
    let allowed = |part: &[u8], count| {
        part.iter()
            .copied()
            .filter(is_allowed)
            .take(count)
            .collect::<Vec<_>>()
    };
    let (base, extension) = match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 => (allowed(&name[..dot], 2), allowed(&name[dot + 1..], 3)),
        _ => (allowed(name, 2), Vec::new()),
    };
    let mut short = base;
    short.push(b'~');
    let mut hash = fnv(name);
    for _ in 0..HASH_LEN {
        short.push(DIGITS[usize::try_from(hash % 36).unwrap_or(0)]);
        hash /= 36;
    }
    if !extension.is_empty() {
        short.push(b'.');
        short.extend(extension);
    }
    capitals(short.into_iter())
}

/// Returns the 64-bit FNV-1a hash. It is distributed well enough over five digits.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

fn capitals(bytes: impl Iterator<Item = u8>) -> Text {
    Text::from_units(bytes.map(|byte| u16::from(byte.to_ascii_uppercase())).collect())
}

fn is_allowed(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'()-@^_`{}~".contains(byte)
}

/// Whether a name that does not exist may be a short name, so that the folder should be scanned.
pub(crate) fn may_be_short(name: &[u8]) -> bool {
    let base = name.split(|byte| *byte == b'.').next().unwrap_or_default();
    // The characters before it may be tildes too.
    let tilde = base.len().checked_sub(1 + HASH_LEN);
    tilde.is_some_and(|at| at <= 2 && base[at] == b'~') && name.len() <= 12
}

/// Returns the name in a folder that has this short name. It scans the whole folder, so it is only
/// for missing names that [`may_be_short`].
///
/// # Errors
/// Errors of the store.
pub(crate) fn find(folder: &dyn Node, short: &[u8]) -> Result<Option<Name>, NtStatus> {
    let wanted = capitals(short.iter().copied());
    let mut entries = folder.entries().map_err(|error| status::of(&error))?;
    while let Some((name, _)) = entries.next().map_err(|error| status::of(&error))? {
        if already_short(name.as_bytes()).is_none() && hashed(name.as_bytes()) == wanted {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use proptest::prelude::*;
    use ropeway_smb_wire::create::AccessMask;

    const ALL: NameView = NameView {
        hide_dot_files: false,
        short_names: true,
    };

    #[test]
    fn short_names_stay() {
        let short = |name: &str| {
            ALL.short_name(name.as_bytes())
                .map(|short| short.to_string_lossy())
        };
        assert_eq!(short("readme.txt").as_deref(), Some("README.TXT"));
        assert_eq!(short("a").as_deref(), Some("A"));
        for name in [
            "A long name.html",
            ".profile",
            "ä",
            "a.b.c",
            "x.",
            "torture_search.txt",
        ] {
            let short = short(name).unwrap();
            assert!(may_be_short(short.as_bytes()), "{short}");
            assert_eq!(NameView::default().short_name(name.as_bytes()), None);
        }
        assert!(!may_be_short(b"backup~"));
        assert!(!may_be_short(b"readme.txt"));
    }

    #[test]
    fn a_short_name_is_found_again() {
        let share = testing::share();
        let folder = testing::folder(&share, "d");
        for name in ["A long name.html", "Another long name.html", "short"] {
            testing::open(&share, &format!("d/{name}"), AccessMask::FILE_ALL);
        }
        let name = b"Another long name.html";
        let short = ALL.short_name(name).unwrap().to_string_lossy().to_lowercase();
        let found = find(&*folder.node, short.as_bytes()).unwrap();
        assert_eq!(found, Name::new(name));
        assert_eq!(find(&*folder.node, b"xx~00000"), Ok(None));
    }

    proptest! {
        #[test]
        fn all_are_8_3_and_found_again(name in prop_oneof![any::<Vec<u8>>(), "[~a.$]{0,14}".prop_map(String::into_bytes)]) {
            let short = ALL.short_name(&name).unwrap().to_string_lossy();
            prop_assert!(short.len() <= 12);
            prop_assert!(short.split('.').count() <= 2);
            prop_assert!(already_short(short.as_bytes()).is_some(), "{short}");
            prop_assert!(may_be_short(short.as_bytes()) || already_short(&name).is_some(), "{short}");
        }
    }
}
