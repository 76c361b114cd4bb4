//! Secrets: passwords, hashes and keys.
//!
//! Invariant: every type here overwrites its bytes when dropped and prints as `***`, so no log,
//! error or panic message can show a secret. Move secrets rather than clone them: each clone is a
//! second copy, wiped on its own.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

/// A password in clear text.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes ownership of the text.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Returns the text, for hashing.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self::new(text.to_owned())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The MD4 hash of a password. Anyone who has it can log in as if with the password ([MS-NLMP]
/// 3.3.1, NTOWFv1).
#[derive(Clone)]
pub struct NtHash([u8; 16]);

impl NtHash {
    /// Wraps the hash's bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Parses 32 hexadecimal digits, as in `smbpasswd` files. Returns `None` for any other text.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
        let mut hash = Self([0; 16]);
        for (byte, pair) in hash.0.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            *byte = u8::try_from(high? * 16 + low?).ok()?;
        }
        Some(hash)
    }

    /// Returns the bytes.
    pub fn expose(&self) -> &[u8; 16] {
        &self.0
    }
}

impl Drop for NtHash {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A key of any length: one that a mechanism agreed on, or one derived from it.
#[derive(Clone)]
pub struct Key(Zeroizing<Vec<u8>>);

impl Key {
    /// Takes ownership of the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the bytes.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes.to_vec())
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Self {
        Self::new(bytes.to_vec())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The key both ends share after authentication, in full length ([MS-SMB2] 3.2.1.3,
/// `Session.FullSessionKey`).
#[derive(Clone, Debug)]
pub struct SessionKey(Key);

impl SessionKey {
    /// Takes ownership of the mechanism's key.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Key::new(bytes))
    }

    /// Returns all bytes. Keys of 256-bit ciphers derive from these.
    pub fn full(&self) -> &[u8] {
        self.0.expose()
    }

    /// Returns `Session.SessionKey`: the first 16 bytes, a shorter key padded with zeros on the
    /// right ([MS-SMB2] 3.2.1.3).
    pub fn truncated(&self) -> Key {
        let mut bytes = Vec::with_capacity(16);
        bytes.extend(self.full().iter().copied().chain(std::iter::repeat(0)).take(16));
        Key::new(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_printed() {
        assert_eq!(format!("{:?}", Password::from("hunter2")), "***");
        assert_eq!(format!("{:?}", NtHash::from_bytes([7; 16])), "***");
        assert_eq!(format!("{:?}", SessionKey::new(vec![7; 16])), "SessionKey(***)");
    }

    #[test]
    fn hashes_are_read_from_hex() {
        let hash = NtHash::from_hex("8846F7EAEE8FB117ad06bdd830b7586c").unwrap();
        assert_eq!(hash.expose()[..4], [0x88, 0x46, 0xF7, 0xEA]);
        assert!(NtHash::from_hex("8846F7EAEE8FB117ad06bdd830b7586").is_none());
        assert!(NtHash::from_hex("8846F7EAEE8FB117ad06bdd830b7586g").is_none());
        assert!(NtHash::from_hex("8846F7EAEE8FB117ad06bdd830b758é").is_none());
    }

    #[test]
    fn session_keys_are_cut_or_padded_to_16_bytes() {
        assert_eq!(SessionKey::new(vec![7; 32]).truncated().expose(), [7; 16]);
        let padded = SessionKey::new(vec![7; 8]).truncated();
        assert_eq!(padded.expose(), [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
