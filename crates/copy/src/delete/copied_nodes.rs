//! The nodes that a move has copied, so that their sources may be removed.

use std::collections::HashSet;

use parking_lot::Mutex;
use ropeway_vfs::{Kind, Metadata, Timestamp};

use crate::journal::token::Token;

/// Number of parts of the set. Each grows by itself, so that little is copied when one does.
const PARTS: usize = 64;
/// Smallest number of nodes by which a part grows.
const PART_GROWS: usize = 64;

/// The nodes whose copies are on the target, for moves only. For each node and the version that was
/// copied it keeps a hash of 64 bits, 9 bytes a node: 1,000,000 nodes take 9 MB. A wrong answer is
/// as likely as a collision of two such hashes, 1 in 10^13 for each node.
#[derive(Debug, Default)]
pub(crate) struct CopiedNodes(Option<Box<Sets>>);

#[derive(Debug)]
struct Sets {
    versions: [Mutex<Versions>; PARTS],
    /// Nodes that failed after they were added.
    removed: Mutex<HashSet<Token>>,
}

impl CopiedNodes {
    pub(crate) fn remembered(of_a_move: bool) -> Self {
        let sets = || {
            Box::new(Sets {
                versions: std::array::from_fn(|_| Mutex::default()),
                removed: Mutex::default(),
            })
        };
        Self(of_a_move.then(sets))
    }

    /// Adds a node that was copied, or whose equal was there.
    pub(crate) fn add(&self, token: Token, source: &Metadata) {
        if let Some(sets) = &self.0 {
            let version = version(token, source);
            sets.part(version).lock().add(version);
            sets.removed.lock().remove(&token);
        }
    }

    /// Adds a folder whose copy has its attributes. The folder itself changes while it is emptied,
    /// so no version is kept.
    pub(crate) fn add_folder(&self, token: Token) {
        self.add(token, &any_folder());
    }

    /// Whether the copy of a folder has its attributes.
    pub(crate) fn contains_folder(&self, token: Token) -> bool {
        self.contains(token, &any_folder())
    }

    /// Removes a node that failed after all.
    pub(crate) fn remove(&self, token: Token) {
        if let Some(sets) = &self.0 {
            sets.removed.lock().insert(token);
        }
    }

    pub(crate) fn contains(&self, token: Token, source: &Metadata) -> bool {
        let version = version(token, source);
        self.0.as_ref().is_some_and(|sets| {
            sets.part(version).lock().contains(version) && !sets.removed.lock().contains(&token)
        })
    }
}

impl Sets {
    fn part(&self, version: u64) -> &Mutex<Versions> {
        &self.versions[(version >> 32) as usize % PARTS]
    }
}

/// Hashes that are added first and looked up later.
#[derive(Debug, Default)]
struct Versions {
    hashes: Vec<u64>,
    is_sorted: bool,
}

impl Versions {
    fn add(&mut self, version: u64) {
        if self.hashes.len() == self.hashes.capacity() {
            self.hashes.reserve_exact((self.hashes.len() / 8).max(PART_GROWS));
        }
        self.hashes.push(version);
        self.is_sorted = false;
    }

    fn contains(&mut self, version: u64) -> bool {
        if !self.is_sorted {
            self.hashes.sort_unstable();
            self.is_sorted = true;
        }
        self.hashes.binary_search(&version).is_ok()
    }
}

/// Returns what stands for the version of each folder.
fn any_folder() -> Metadata {
    Metadata::bare(Kind::Directory, 0, Timestamp(0))
}

/// Returns the hash of a node and of size and time of its last change.
fn version(token: Token, source: &Metadata) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&token.to_le_bytes());
    hasher.update(&source.size.to_le_bytes());
    hasher.update(&source.modified.0.to_le_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_copied_is_known_by_its_version_until_it_is_removed() {
        let file = |size, time| Metadata::bare(Kind::File, size, Timestamp(time));
        let nodes = CopiedNodes::remembered(true);
        nodes.add(1, &file(10, 5));
        assert!(nodes.contains(1, &file(10, 5)));
        assert!(!nodes.contains(1, &file(11, 5)) && !nodes.contains(1, &file(10, 6)));
        assert!(!nodes.contains(2, &file(10, 5)));
        nodes.remove(1);
        assert!(!nodes.contains(1, &file(10, 5)));
        nodes.add(1, &file(10, 5));
        assert!(nodes.contains(1, &file(10, 5)), "a later try was copied");
        let none = CopiedNodes::remembered(false);
        none.add(1, &file(10, 5));
        assert!(!none.contains(1, &file(10, 5)));
    }
}
