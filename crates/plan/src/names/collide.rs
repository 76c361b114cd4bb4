//! Names of one folder that a volume takes for the same.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use ropeway_vfs::{Capabilities, Name};
use unicode_normalization::UnicodeNormalization;

/// How a name collides with an earlier one of its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collision {
    /// They differ only in case, and the target does not tell case apart: one would replace the other.
    Case,
    /// They differ only in Unicode normalisation (`é` as one character or as two). The target holds both, but people
    /// and other systems take them for one: a note, not an error.
    Normalization,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Case => "another name here differs only in case, and the target does not tell them apart",
            Self::Normalization => "another name here looks the same (Unicode normalisation)",
        })
    }
}

/// The names of one folder so far.
///
/// Holds hashes only: about 16 bytes a name (8 for the folded name on targets that do not tell case apart, 8 for the
/// normalised one of names beyond ASCII). Two names with equal 64-bit hashes are taken for equal; among a million names
/// of one folder that happens once in 3.7e7 folders (n^2 / 2^65).
///
/// Case is folded character by character with Unicode's simple lower case. NTFS folds by a table of its own to upper
/// case; the two differ in a handful of letters (`ı`, `ſ`, `ς`).
#[derive(Debug)]
pub struct FolderNames {
    ignores_case: bool,
    folded: HashSet<u64>,
    normalized: HashSet<u64>,
}

impl FolderNames {
    /// An empty folder of `target`.
    pub fn new(target: &Capabilities) -> Self {
        Self {
            ignores_case: !target.case_sensitive,
            folded: HashSet::new(),
            normalized: HashSet::new(),
        }
    }

    /// Adds a name (as mapped for the target, each once) and tells how it collides with an earlier one.
    pub fn insert(&mut self, name: &Name) -> Option<Collision> {
        let bytes = name.as_bytes();
        if self.ignores_case && !self.folded.insert(hash_of(bytes, |c| c.to_lowercase())) {
            return Some(Collision::Case);
        }
        if !bytes.is_ascii() && !self.normalized.insert(hash_of_nfc(bytes)) {
            return Some(Collision::Normalization);
        }
        None
    }
}

fn hash_of<I: Iterator<Item = char>>(bytes: &[u8], fold: impl Fn(char) -> I) -> u64 {
    let mut hasher = DefaultHasher::new();
    for chunk in bytes.utf8_chunks() {
        chunk
            .valid()
            .chars()
            .flat_map(&fold)
            .for_each(|c| c.hash(&mut hasher));
        chunk.invalid().hash(&mut hasher);
    }
    hasher.finish()
}

fn hash_of_nfc(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for chunk in bytes.utf8_chunks() {
        chunk.valid().nfc().for_each(|c| c.hash(&mut hasher));
        chunk.invalid().hash(&mut hasher);
    }
    hasher.finish()
}
