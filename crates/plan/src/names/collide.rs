//! Finds names in one folder that a volume treats as the same.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use ropeway_vfs::{Capabilities, Name};
use unicode_normalization::UnicodeNormalization;

/// How a name collides with an earlier one in its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collision {
    /// They differ only in case, and the target ignores case: one would replace the other.
    Case,
    /// They differ only in Unicode normalisation (`é` as one character or as two). The target can
    /// hold both, but people and other systems treat them as one: a note, not an error.
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
/// It keeps hashes only: about 16 bytes a name (8 for the folded name where the target ignores
/// case, 8 for the normalised name if it is not ASCII). Two names with equal 64-bit hashes count as
/// equal. Among a million names in one folder that happens once in 3.7e7 folders (n^2 / 2^65).
///
/// Case is folded character by character with Unicode's simple lower case. NTFS folds to upper case
/// by its own table; the two differ in a handful of letters (`ı`, `ſ`, `ς`).
#[derive(Debug)]
pub struct FolderNames {
    ignores_case: bool,
    folded: HashSet<u64>,
    normalized: HashSet<u64>,
}

impl FolderNames {
    /// Makes the set of an empty folder of `target`.
    pub fn new(target: &Capabilities) -> Self {
        Self {
            ignores_case: !target.case_sensitive,
            folded: HashSet::new(),
            normalized: HashSet::new(),
        }
    }

    /// Adds a name (as mapped for the target, each once) and reports whether it collides with an
    /// earlier one.
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

/// Returns the key of a name (as mapped for the target): names with equal keys are one name there if
/// the target ignores case. The folding is that of [`FolderNames`].
pub fn case_key(name: &Name) -> Name {
    let mut key = Vec::with_capacity(name.as_bytes().len());
    for chunk in name.as_bytes().utf8_chunks() {
        let folded = chunk.valid().chars().flat_map(char::to_lowercase);
        key.extend_from_slice(folded.collect::<String>().as_bytes());
        key.extend_from_slice(chunk.invalid());
    }
    // No character has a lower case with a slash, a NUL, or nothing but dots.
    Name::new(&key).unwrap_or_else(|| name.clone())
}

/// Returns a name in Unicode's normalization form C: names that look the same are equal then. Some servers and
/// file systems (macOS, ZFS with `normalization`) list a name in another form than the one it was made with.
pub fn normalized(name: &Name) -> Name {
    if name.as_bytes().is_ascii() {
        return name.clone();
    }
    let mut bytes = Vec::with_capacity(name.as_bytes().len());
    for chunk in name.as_bytes().utf8_chunks() {
        bytes.extend_from_slice(chunk.valid().nfc().collect::<String>().as_bytes());
        bytes.extend_from_slice(chunk.invalid());
    }
    Name::new(&bytes).unwrap_or_else(|| name.clone())
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
