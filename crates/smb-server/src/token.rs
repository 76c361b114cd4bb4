//! The security context of a session, as access checks see it.

use ropeway_smb_wire::security::Sid;

use crate::sids::{ALIAS_USERS_RID, GUESTS_RID, builtin_sid, group_sid, owner_sid, sid};

/// User and groups of a session ([MS-DTYP] 2.5.3: the token).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Name for logs.
    pub(crate) name: String,
    /// Whether the session is anonymous.
    pub(crate) is_anonymous: bool,
    /// The user, who owns the files that it creates.
    pub(crate) user: Sid,
    /// The primary group, which becomes the group of new files.
    pub(crate) group: Sid,
    /// Further groups: Everyone, Network, Authenticated Users, BUILTIN's Users or Guests.
    pub(crate) groups: Vec<Sid>,
}

impl Token {
    /// Returns the token of a guest, which has the rights of an anonymous session.
    pub(crate) fn guest() -> Self {
        let mut token = Self::of(None);
        token.name = "guest".to_owned();
        token.groups.push(builtin_sid(GUESTS_RID));
        token
    }

    /// Returns the token of a user, or of an anonymous session without a name. All users act as the
    /// Unix user of the server, who owns the files that they create.
    pub(crate) fn of(name: Option<String>) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        let (everyone, network, users) = (sid(1, &[0]), sid(5, &[2]), sid(5, &[11]));
        match name {
            None => Self {
                name: "anonymous".to_owned(),
                is_anonymous: true,
                user: sid(5, &[7]),
                group: everyone.clone(),
                groups: vec![everyone, network],
            },
            Some(name) => Self {
                name,
                is_anonymous: false,
                user: owner_sid(user),
                group: group_sid(group),
                groups: vec![everyone, network, users, builtin_sid(ALIAS_USERS_RID)],
            },
        }
    }
}
