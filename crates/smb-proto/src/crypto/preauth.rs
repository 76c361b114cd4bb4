//! Preauthentication integrity: a hash over all messages before the session has a key.
//!
//! SMB 3.1.1 hashes NEGOTIATE and SESSION_SETUP in both directions and derives the session's keys
//! from the result. If an attacker changes one of these messages, the first signature does not
//! verify ([MS-SMB2] 3.2.5.2, 3.2.5.3).

use aws_lc_rs::digest;

/// `PreauthIntegrityHashValue`: SHA-512 over the previous value and the next message. A connection
/// has one for NEGOTIATE; each session setup continues from a copy of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preauth([u8; 64]);

impl Preauth {
    /// Returns the value before the first message.
    pub fn new() -> Self {
        Self([0; 64])
    }

    /// Adds a message as it is on the wire, header included, without the transport's length.
    /// `parts` are in order.
    pub fn update(&mut self, parts: &[&[u8]]) {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&self.0);
        for part in parts {
            context.update(part);
        }
        self.0.copy_from_slice(context.finish().as_ref());
    }

    /// Returns the current value.
    pub fn value(&self) -> &[u8; 64] {
        &self.0
    }
}

impl Default for Preauth {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{anatomy, hex};

    #[test]
    fn chain_of_the_published_example() {
        let mut preauth = Preauth::new();
        let mut add = |message: &str, expected_start: &str| {
            let message = hex(message);
            preauth.update(&[&message[..10], &message[10..]]);
            assert_eq!(preauth.value()[..8], hex(expected_start));
        };
        add(anatomy::NEGOTIATE_REQUEST, "DD94EFC5321BB618");
        add(anatomy::NEGOTIATE_RESPONSE, "324BFA92A4F3A190");
        add(anatomy::SETUP_REQUEST_1, "AC0B0F2B99862577");
        add(anatomy::SETUP_RESPONSE_1, "2729E3440DFDDD83");
        add(anatomy::SETUP_REQUEST_2, "0DD13628CC3ED218");
        assert_eq!(preauth.value()[..], hex(anatomy::PREAUTH));
    }
}
