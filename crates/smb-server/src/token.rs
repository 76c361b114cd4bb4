//! The security context of a session, as access checks see it.

use ropeway_smb_wire::security::Sid;

use crate::sids::{ALIAS_USERS_RID, GUESTS_RID, builtin_sid, group_sid, owner_sid, sid};

/// Who is logged in, as access checks see it ([MS-DTYP] 2.5.3: the token).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Name, for logs.
    pub(crate) name: String,
    /// Nobody.
    pub(crate) is_anonymous: bool,
    /// The user, owner of what it makes.
    pub(crate) user: Sid,
    /// Its group, group of what it makes.
    pub(crate) group: Sid,
    /// Further groups: Everyone, Network, Authenticated Users, BUILTIN's Users or Guests.
    pub(crate) groups: Vec<Sid>,
}

impl Token {
    /// Of a guest, who may do what nobody may.
    pub(crate) fn guest() -> Self {
        let mut token = Self::of(None);
        token.name = "guest".to_owned();
        token.groups.push(builtin_sid(GUESTS_RID));
        token
    }

    /// Of a user; of nobody without a name. All act as the server's own user, who owns what they make.
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
