//! Windows metadata of files on a Linux disk: one format for the copy engine and the server.
//!
//! | metadata | where | module |
//! |---|---|---|
//! | DOS attributes, creation time | `user.DOSATTRIB` | [`dos`] |
//! | security descriptor | `security.NTACL`; `user.NTACL` where `security.` may not be written | [`security`] |
//! | alternate data stream | `user.DosStream.NAME:$DATA` | [`streams`] |
//! | extended attribute of a client | `user.NAME` | [`eas`] |
//! | names that differ in case | not stored: compared by [`fold`] | |
//! | short (8.3) names | not stored and not served | |
//!
//! These are Samba's formats, so that a folder can move between `smbd` and this program unchanged
//! (docs/adr/0014). [`LocalTree`](crate::LocalTree) shows them as metadata of the model,
//! [`LocalStore`](crate::LocalStore) as what a server asks for; neither knows a format.
//!
//! Earlier releases kept descriptors in attributes of their own ([`legacy`]). Those are still read; a change
//! of the descriptor replaces them.
//!
//! Symbolic links, devices, FIFOs and sockets have none of this: they cannot have attributes of users
//! (xattr(7)).

pub(crate) mod dos;
pub(crate) mod eas;
pub(crate) mod fold;
mod legacy;
mod ntacl;
pub(crate) mod raw;
pub(crate) mod security;
pub(crate) mod streams;
mod system_acl;
#[cfg(test)]
mod tests;

/// The name space of attributes that users may set.
pub(crate) const USER: &[u8] = b"user.";

/// Attributes that hold metadata in a form of their own. They are never shown as extended attributes, neither to
/// clients nor to the other end of a copy. `user.SAMBA_PAI` holds Samba's inheritance flags of POSIX ACLs.
const BOOKKEEPING: [&[u8]; 7] = [
    dos::NAME_BYTES,
    security::NAME,
    security::NAME_FALLBACK,
    b"user.SAMBA_PAI",
    legacy::BINARY,
    legacy::TEXT,
    legacy::MARKER,
];

/// Whether an attribute is bookkeeping, in any case: names of extended attributes have no case in SMB.
pub(crate) fn is_bookkeeping(name: &[u8]) -> bool {
    BOOKKEEPING.iter().any(|known| name.eq_ignore_ascii_case(known))
}
