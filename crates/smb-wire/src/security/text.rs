//! Security descriptors as text, as an extended attribute carries them between ends that keep them differently.
//!
//! The text is SDDL ([MS-DTYP] 2.5.1). Where SDDL cannot express an entry (conditional and object entries), it is `0x` and
//! the descriptor's bytes, so that nothing is lost. The SACL is left out of those bytes: reading or setting it needs a
//! privilege (SeSecurityPrivilege).

use super::{ControlFlags, SecurityDescriptor};

impl SecurityDescriptor {
    /// Returns the text of the descriptor: SDDL, or `0x` and its bytes without the SACL.
    pub fn to_text(&self) -> String {
        self.to_sddl().unwrap_or_else(|_| {
            let plain = Self {
                sacl: None,
                control: self.control.difference(ControlFlags::SACL_PRESENT),
                ..self.clone()
            };
            let hex = plain.to_bytes().into_iter().map(|byte| format!("{byte:02x}"));
            format!("0x{}", hex.collect::<String>())
        })
    }

    /// Parses the text of a descriptor; `None` if it is none.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        // Values set by other programs may end with a 0, as C strings do.
        let text = std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text))
            .ok()?
            .trim();
        let Some(hex) = text.strip_prefix("0x") else {
            return Self::from_sddl(text).ok();
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let (pairs, []) = hex.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok())
            .collect();
        Self::decode(&bytes?).ok()
    }
}
