//! Pass phrases that people can read out: groups of five letters, consonants and vowels in turn.
//!
//! The scheme of proquints (D. S. Wilkerson, "A Proposal for Proquints", 2009): 16 consonants and 4 vowels carry 4 and 2 bits, so
//! a group `CVCVC` carries 16.

use ropeway_smb_client::Password;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroizing;

use crate::failure::{Failure, code};

/// Groups; 96 bits, of which 80 would do.
const GROUPS: usize = 6;

/// A new pass phrase.
///
/// # Errors
/// The kernel has no random numbers.
pub(super) fn random() -> Result<Password, Failure> {
    let mut bytes = Zeroizing::new([0_u8; 2 * GROUPS]);
    // Requests of up to 256 bytes are answered whole (getrandom(2)).
    match getrandom(&mut *bytes, GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(Password::new(spell(&bytes))),
        _ => Err(
            Failure::new(code::PERMISSION, "the kernel gives no random numbers")
                .hint("name a user with --user and --password-file"),
        ),
    }
}

fn spell(bytes: &[u8; 2 * GROUPS]) -> String {
    // Never grows: no copy is left behind.
    let mut phrase = String::with_capacity(6 * GROUPS);
    for pair in bytes.as_chunks::<2>().0 {
        if !phrase.is_empty() {
            phrase.push('-');
        }
        phrase.push_str(&group(u16::from_be_bytes(*pair)));
    }
    phrase
}

fn group(bits: u16) -> String {
    const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
    const VOWELS: &[u8; 4] = b"aiou";
    let consonant = |shift: u32| char::from(CONSONANTS[usize::from(bits >> shift & 15)]);
    let vowel = |shift: u32| char::from(VOWELS[usize::from(bits >> shift & 3)]);
    [consonant(12), vowel(10), consonant(6), vowel(4), consonant(0)]
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn groups_as_published() {
        // 127.0.0.1 is lusab-babad there.
        assert_eq!(group(0x7F00), "lusab");
        assert_eq!(group(0x0001), "babad");
        let all: HashSet<String> = (0..=u16::MAX).map(group).collect();
        assert_eq!(all.len(), 1 << 16, "every group says all of its 16 bits");
    }

    #[test]
    fn phrases_differ() {
        let (one, two) = (random().unwrap(), random().unwrap());
        assert_eq!(one.expose().split('-').count(), GROUPS);
        assert_eq!(one.expose().len(), 6 * GROUPS - 1);
        assert_ne!(one.expose(), two.expose());
    }
}
