//! Hashes of whole contents, for verification and manifests.
//!
//! | algorithm | bytes | for |
//! |---|---|---|
//! | `blake3` | 32 | the default: fast, and nobody can make two contents with one hash; `b3sum` |
//! | `sha256` | 32 | archives that ask for it; `sha256sum` |
//! | `xxh3` | 16 | finding damage, but not deceit; the fastest; `xxh128sum` |

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;
use twox_hash::xxhash3_128;

/// A hash. Shorter ones end with zeroes.
pub type ContentHash = [u8; 32];

/// How contents are hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// BLAKE3.
    #[default]
    Blake3,
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// XXH3, 128 bits, seed 0.
    Xxh3,
}

impl HashAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::Blake3, Self::Sha256, Self::Xxh3];

    /// Returns the name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Xxh3 => "xxh3",
        }
    }

    /// Returns the number of bytes of a hash.
    pub fn length(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 32,
            Self::Xxh3 => 16,
        }
    }

    /// Starts a hash of a content that comes in parts.
    pub fn hasher(self) -> ContentHasher {
        ContentHasher(match self {
            Self::Blake3 => State::Blake3(Box::default()),
            Self::Sha256 => State::Sha256(sha2::Sha256::new()),
            Self::Xxh3 => State::Xxh3(Box::new(xxhash3_128::Hasher::new())),
        })
    }

    /// Returns the hash of a content.
    pub fn hash(self, content: &[u8]) -> ContentHash {
        if self == Self::Blake3 {
            // Small contents are hashed without a hasher.
            return *blake3::hash(content).as_bytes();
        }
        let mut hasher = self.hasher();
        hasher.update(content);
        hasher.finish()
    }
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for HashAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == text);
        found.ok_or_else(|| format!("no hash is called {text:?}; there are blake3, sha256 and xxh3"))
    }
}

/// A hash in the making.
pub struct ContentHasher(State);

enum State {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
    Xxh3(Box<xxhash3_128::Hasher>),
}

impl ContentHasher {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Blake3(hasher) => _ = hasher.update(bytes),
            State::Sha256(hasher) => hasher.update(bytes),
            State::Xxh3(hasher) => hasher.write(bytes),
        }
    }

    /// Returns the hash of all bytes.
    pub fn finish(self) -> ContentHash {
        match self.0 {
            State::Blake3(hasher) => *hasher.finalize().as_bytes(),
            State::Sha256(hasher) => hasher.finalize().into(),
            State::Xxh3(hasher) => {
                let mut hash = [0; 32];
                // xxhsum writes the canonical form, which is big-endian.
                hash[..16].copy_from_slice(&hasher.finish_128().to_be_bytes());
                hash
            }
        }
    }
}

impl fmt::Debug for ContentHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentHasher")
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn hex(algorithm: HashAlgorithm, content: &[u8]) -> String {
        let hash = algorithm.hash(content);
        let (used, rest) = hash.split_at(algorithm.length());
        assert!(rest.iter().all(|byte| *byte == 0));
        used.iter().fold(String::new(), |mut text, byte| {
            _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// What b3sum, sha256sum and xxh128sum print.
    #[test]
    fn hashes_are_those_of_other_programs() {
        for (algorithm, empty, abc) in [
            (
                HashAlgorithm::Blake3,
                "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
                "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
            ),
            (
                HashAlgorithm::Sha256,
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                HashAlgorithm::Xxh3,
                "99aa06d3014798d86001c324468d497f",
                "06b05ab6733a618578af5f94892f3950",
            ),
        ] {
            assert_eq!(hex(algorithm, b""), empty);
            assert_eq!(hex(algorithm, b"abc"), abc);
        }
    }

    #[test]
    fn parts_give_the_hash_of_the_whole_and_names_are_read_back() {
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        for algorithm in HashAlgorithm::ALL {
            let mut hasher = algorithm.hasher();
            for part in content.chunks(7_777) {
                hasher.update(part);
            }
            assert_eq!(hasher.finish(), algorithm.hash(&content));
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert!("md5".parse::<HashAlgorithm>().unwrap_err().contains("sha256"));
    }
}
