//! Attributes that earlier releases wrote. They are read, never written.

use ropeway_smb_wire::security::SecurityDescriptor;

/// The server's: a self-relative security descriptor.
pub(super) const BINARY: &[u8] = b"user.ropeway.ntsd";
/// The copy engine's: a security descriptor as text.
pub(super) const TEXT: &[u8] = b"user.ropeway.sddl";
/// The server's, on the root folder: some node beneath has a security descriptor.
pub(super) const MARKER: &[u8] = b"user.ropeway.guarded";

/// The self-relative form of a value of [`TEXT`].
pub(super) fn from_text(value: &[u8]) -> Option<Vec<u8>> {
    SecurityDescriptor::from_text(value).map(|descriptor: SecurityDescriptor| descriptor.to_bytes())
}
