//! Tokens: the identity of a node in temporary names and in the journal.

use ropeway_vfs::RelPath;

/// Identity of a node within a job: a hash of root and path.
pub(crate) type Token = u64;

/// Returns the token of a node. `root` is the index of its root, `path` its path in the source.
pub(crate) fn token_of(root: u64, path: &RelPath) -> Token {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&root.to_le_bytes());
    hasher.update(path.as_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    Token::from_le_bytes(bytes)
}
