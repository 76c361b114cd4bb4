//! Names of what a job makes on its target before it has its final name.
//!
//! ```text
//!   .ropeway-0123456789abcdef-fedcba9876543210    a file or folder that is being filled: nonce, token
//!   .ropeway-0123456789abcdef                     the claim of a running job: nonce
//! ```
//!
//! The nonce is random and belongs to one job; its journal keeps it. So two jobs never share a name, and nobody can make
//! a name before the job does. The token identifies the node within the job. Both have a fixed length, whatever the
//! node's own name, and anything else that merely begins with [`PREFIX`] belongs to a user and is data.

use ropeway_vfs::Name;

/// What every temporary name begins with.
pub const PREFIX: &str = ".ropeway-";

/// Digits of a nonce and of a token.
const DIGITS: usize = 16;

/// Token of the empty file by which a move sees whether two folders are one. Whoever finds one may remove it: its job
/// makes another.
const PROBE: u64 = u64::MAX;

/// Random identity of one job in its temporary names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nonce(pub u64);

impl Nonce {
    /// The temporary name of the node with this token.
    pub fn node(self, token: u64) -> Name {
        name(&format!("{PREFIX}{:016x}-{token:016x}", self.0))
    }

    /// The name of a move's probe.
    pub fn probe(self) -> Name {
        self.node(PROBE)
    }

    /// The name of the claim that a running job holds on its target.
    pub fn claim(self) -> Name {
        name(&format!("{PREFIX}{:016x}", self.0))
    }
}

/// What a temporary name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temporary {
    /// A node that is being filled.
    Node {
        /// The job's.
        nonce: Nonce,
        /// The node's.
        token: u64,
    },
    /// The claim of a running job.
    Claim {
        /// The job's.
        nonce: Nonce,
    },
}

impl Temporary {
    /// Reads a name; `None` for names that no job makes.
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

    /// Whether it names a move's probe, whichever job's.
    pub fn is_probe(&self) -> bool {
        matches!(self, Self::Node { token: PROBE, .. })
    }

    /// Whether it names a node of the job with this nonce.
    pub fn is_node_of(&self, job: Nonce) -> bool {
        matches!(self, Self::Node { nonce, .. } if *nonce == job)
    }

    /// The job's nonce.
    pub fn nonce(&self) -> Nonce {
        match self {
            Self::Node { nonce, .. } | Self::Claim { nonce } => *nonce,
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("digits and dashes are a name")
}

/// Exactly [`DIGITS`] lower-case hexadecimal digits.
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
        fn names_read_back(nonce: u64, token: u64) {
            let nonce = Nonce(nonce);
            prop_assert_eq!(Temporary::parse(&nonce.node(token)), Some(Temporary::Node { nonce, token }));
            prop_assert_eq!(Temporary::parse(&nonce.claim()), Some(Temporary::Claim { nonce }));
        }
    }

    #[test]
    fn probes_are_known_as_such() {
        let temporary = Temporary::parse(&Nonce(7).probe()).unwrap();
        assert!(temporary.is_probe() && temporary.nonce() == Nonce(7));
        assert!(!Temporary::parse(&Nonce(7).node(0)).unwrap().is_probe());
        assert!(!Temporary::parse(&Nonce(7).claim()).unwrap().is_probe());
    }

    #[test]
    fn what_users_call_their_own_is_data() {
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
