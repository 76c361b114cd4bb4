//! The names that a tree accepts, and when two are equal.

use crate::{Capabilities, Error, ErrorKind, Name, Op, RelPath, Result};

/// Returns the key under which a folder keeps a name: the name itself, or its lower case where case
/// is ignored.
pub(super) fn key(capabilities: &Capabilities, name: &Name) -> Vec<u8> {
    match std::str::from_utf8(name.as_bytes()) {
        Ok(text) if !capabilities.case_sensitive => text.to_lowercase().into_bytes(),
        _ => name.as_bytes().to_vec(),
    }
}

/// Refuses names that the tree cannot hold.
pub(super) fn check(capabilities: &Capabilities, op: Op, path: &RelPath, name: &Name) -> Result<()> {
    let bytes = name.as_bytes();
    let fits =
        bytes.len() <= capabilities.name_max && (!capabilities.windows_names || is_windows_name(bytes));
    if fits {
        return Ok(());
    }
    Err(Error::new(op, path, ErrorKind::NameRefused))
}

/// Checks the rules of [`Capabilities::windows_names`]; such volumes keep names in UTF-16.
fn is_windows_name(bytes: &[u8]) -> bool {
    let bad = |byte: &u8| *byte < 0x20 || b"<>:\"/\\|?*".contains(byte);
    std::str::from_utf8(bytes).is_ok() && !bytes.iter().any(bad) && !matches!(bytes.last(), Some(b'.' | b' '))
}
