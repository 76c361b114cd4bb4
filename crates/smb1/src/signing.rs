//! Signatures: MD5 over a key, a sequence number and the message ([MS-CIFS] 3.1.4.1, 3.1.5.1).
//!
//! MD5 is weak, and the sequence numbers start from zero with each connection. A signature still
//! keeps others from changing messages on their way, unless they know the key.

use md5::{Digest as _, Md5};
use ropeway_smb_proto::secret::Key;

use crate::header::{HEADER_LEN, SIGNATURE_OFFSET};

/// Length of a signature in bytes.
const SIGNATURE_LEN: usize = 8;

/// The key of a connection, from its first login.
#[derive(Clone, Debug)]
pub struct Signer {
    key: Key,
}

/// The signature is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signature is wrong")]
pub struct BadSignatureError;

impl Signer {
    /// Makes the key: the session key, and the response to the challenge where the login had one
    /// ([MS-CIFS] 3.2.5.3). With extended security there is none.
    pub fn new(session_key: &[u8], response: &[u8]) -> Self {
        Self {
            key: Key::new([session_key, response].concat()),
        }
    }

    /// Signs a message. It begins in `head`, with the whole header, and goes on in `rest`.
    ///
    /// # Panics
    /// If `head` is shorter than a header.
    pub fn sign(&self, head: &mut [u8], rest: &[&[u8]], sequence: u32) {
        assert!(head.len() >= HEADER_LEN, "a message begins with its header");
        let signature = self.signature(head, rest, sequence);
        head[SIGNATURE_OFFSET..][..SIGNATURE_LEN].copy_from_slice(&signature);
    }

    /// Verifies the signature of a whole message.
    ///
    /// # Errors
    /// The signature is wrong.
    pub fn verify(&self, message: &[u8], sequence: u32) -> Result<(), BadSignatureError> {
        let claimed = message
            .get(SIGNATURE_OFFSET..HEADER_LEN)
            .and_then(|bytes| bytes.first_chunk::<SIGNATURE_LEN>())
            .ok_or(BadSignatureError)?;
        let computed = self.signature(message, &[], sequence);
        // The same time for every wrong signature.
        let differences = computed.iter().zip(claimed).fold(0, |all, (a, b)| all | (a ^ b));
        match std::hint::black_box(differences) {
            0 => Ok(()),
            _ => Err(BadSignatureError),
        }
    }

    fn signature(&self, head: &[u8], rest: &[&[u8]], sequence: u32) -> [u8; SIGNATURE_LEN] {
        let mut number = [0; SIGNATURE_LEN];
        number[..4].copy_from_slice(&sequence.to_le_bytes());
        let mut md5 = Md5::new();
        md5.update(self.key.expose());
        md5.update(&head[..SIGNATURE_OFFSET]);
        md5.update(number);
        md5.update(&head[SIGNATURE_OFFSET + SIGNATURE_LEN..]);
        for part in rest {
            md5.update(part);
        }
        let digest: [u8; 16] = md5.finalize().into();
        let mut signature = [0; SIGNATURE_LEN];
        signature.copy_from_slice(&digest[..SIGNATURE_LEN]);
        signature
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_the_signed_message_passes(
            mut message in prop::collection::vec(any::<u8>(), HEADER_LEN..200), at: prop::sample::Index, sequence: u32,
        ) {
            let signer = Signer::new(&[7; 16], b"response");
            let cut = HEADER_LEN + at.index(message.len() - HEADER_LEN + 1);
            let (head, rest) = message.split_at_mut(cut);
            signer.sign(head, &[rest], sequence);
            prop_assert_eq!(signer.verify(&message, sequence), Ok(()));
            prop_assert!(signer.verify(&message, sequence.wrapping_add(1)).is_err());
            prop_assert!(Signer::new(&[7; 16], b"").verify(&message, sequence).is_err());
            let at = at.index(message.len());
            message[at] ^= 1;
            prop_assert!(signer.verify(&message, sequence).is_err());
        }
    }

    #[test]
    fn short_messages_do_not_pass() {
        let signer = Signer::new(&[7; 16], b"");
        for length in 0..HEADER_LEN {
            assert!(signer.verify(&vec![0; length], 0).is_err());
        }
    }
}
