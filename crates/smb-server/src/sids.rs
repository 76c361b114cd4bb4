//! Well-known security identifiers and the SIDs of Unix users and groups ([MS-DTYP] 2.4.2.4).
//!
//! Unix accounts have Samba's SIDs: `S-1-22-1-UID` for users, `S-1-22-2-GID` for groups.

use ropeway_smb_wire::security::Sid;

/// BUILTIN group of all users who log in by name ([MS-DTYP] 2.4.2.4).
pub(crate) const ALIAS_USERS_RID: u32 = 545;
/// BUILTIN group of guests ([MS-DTYP] 2.4.2.4).
pub(crate) const GUESTS_RID: u32 = 546;

/// Returns the SID of an identifier authority and a few subauthorities.
pub(crate) fn sid(authority: u64, sub_authorities: &[u32]) -> Sid {
    Sid::new(authority, sub_authorities).expect("well-known SIDs are short")
}

/// Returns the SID of a BUILTIN group, `S-1-5-32-RID`.
pub(crate) fn builtin_sid(rid: u32) -> Sid {
    sid(5, &[32, rid])
}

/// Returns the SID of a Unix user, `S-1-22-1-UID`.
pub(crate) fn owner_sid(uid: u32) -> Sid {
    sid(22, &[1, uid])
}

/// Returns the SID of a Unix group, `S-1-22-2-GID`.
pub(crate) fn group_sid(gid: u32) -> Sid {
    sid(22, &[2, gid])
}
