//! Temporary names: what a job calls a node on its target until it is complete.
//!
//! ```text
//!   .ropeway-0123456789abcdef-fedcba9876543210    an incomplete file or folder: nonce, token
//!   .ropeway-0123456789abcdef                     the claim of a running job: nonce
//! ```
//!
//! The nonce is random and belongs to one job; its journal keeps it. So two jobs never share a
//! name, and nobody can make a name before the job does. The token identifies the node within the
//! job. Both have a fixed length, whatever the node's own name. Any other name that begins with
//! [`PREFIX`] belongs to a user and is data.

use ropeway_vfs::Name;

/// Prefix of every temporary name.
pub const PREFIX: &str = ".ropeway-";

/// Number of digits of a nonce and of a token.
const DIGITS: usize = 16;

/// Token of the probe: an empty file by which a move detects that two folders are one. Any job that
/// finds one may remove it, since the job that made it makes another.
const PROBE: u64 = u64::MAX;

/// The random identity of one job in its temporary names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nonce(pub u64);

impl Nonce {
    /// Returns the temporary name of the node with this token.
    pub fn node(self, token: u64) -> Name {
        name(&format!("{PREFIX}{:016x}-{token:016x}", self.0))
    }

    /// Returns the name of a move's probe.
    pub fn probe(self) -> Name {
        self.node(PROBE)
    }

    /// Returns the name of the claim that a running job holds on its target.
    pub fn claim(self) -> Name {
        name(&format!("{PREFIX}{:016x}", self.0))
    }
}

/// The meaning of a temporary name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// A node that is being filled.
    Node {
        /// Nonce of the job.
        nonce: Nonce,
        /// Token of the node.
        token: u64,
    },
    /// The claim of a running job.
    Claim {
        /// Nonce of the job.
        nonce: Nonce,
    },
}

impl Temporary {
    /// Parses a name; `None` for names that no job makes.
    pub fn parse(name: &Name) -> Option<Self> {
        let rest = name.as_bytes().strip_prefix(PREFIX.as_bytes())?;
        let (nonce, rest) = rest.split_at_checked(DIGITS)?;
        let nonce = Nonce(number(nonce)?);
        match rest.split_first() {
            None => Some(Self::Claim { nonce }),
            Some((b'-', token)) => Some(Self::Node {
                nonce,
                token: number(token)?,
            }),
            Some(_) => None,
        }
    }

    /// Whether it names a move's probe, of any job.
    pub fn is_probe(&self) -> bool {
        matches!(self, Self::Node { token: PROBE, .. })
    }

    /// Whether it names a node of the job with this nonce.
    pub fn is_node_of(&self, job: Nonce) -> bool {
        matches!(self, Self::Node { nonce, .. } if *nonce == job)
    }

    /// Returns the job's nonce.
    pub fn nonce(&self) -> Nonce {
        match self {
            Self::Node { nonce, .. } | Self::Claim { nonce } => *nonce,
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("digits and dashes are a name")
}

/// Parses exactly [`DIGITS`] lower-case hexadecimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != DIGITS || !digits.iter().all(is_digit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_parse_to_what_they_were_made_of(nonce: u64, token: u64) {
            let nonce = Nonce(nonce);
            prop_assert_eq!(Temporary::parse(&nonce.node(token)), Some(Temporary::Node { nonce, token }));
            prop_assert_eq!(Temporary::parse(&nonce.claim()), Some(Temporary::Claim { nonce }));
        }
    }

    #[test]
    fn probes_are_recognised() {
        let temporary = Temporary::parse(&Nonce(7).probe()).unwrap();
        assert!(temporary.is_probe() && temporary.nonce() == Nonce(7));
        assert!(!Temporary::parse(&Nonce(7).node(0)).unwrap().is_probe());
        assert!(!Temporary::parse(&Nonce(7).claim()).unwrap().is_probe());
    }

    #[test]
    fn other_names_with_the_prefix_are_data() {
        for text in [
            ".ropeway-",
            ".ropeway-notes",
            ".ropeway-0123456789abcdeF",
            ".ropeway-0123456789abcdef-",
            ".ropeway-0123456789abcdef-0123456789abcde",
            ".ropeway-0123456789abcdef-+123456789abcdef",
            ".ropeway-0123456789abcdef-0123456789abcdef0",
            "ropeway-0123456789abcdef",
        ] {
            assert_eq!(Temporary::parse(&name(text)), None, "{text}");
        }
    }
}
