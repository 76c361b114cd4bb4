//! Accounts of the server and their SIDs, for clients that ask for names.
//!
//! ```text
//! S-1-5-21-…-RID   users of the server (the domain is the server's name) and their group `None`
//! S-1-22-1-UID     Unix users, `Unix User\name`
//! S-1-22-2-GID     Unix groups, `Unix Group\name`
//! S-1-5-32-RID     BUILTIN groups
//! S-1-1-0, …       well-known SIDs
//! ```
//!
//! A user of the server has no number. Its relative id is a hash of its name, so it survives
//! restarts. If two names have the same hash, neither gets a SID: no user ever gets another user's
//! rights.

use std::collections::HashMap;
use std::sync::Arc;

use ropeway_smb_wire::Text;
use ropeway_smb_wire::rpc::account::{Account, Domain, SidKind};
use ropeway_smb_wire::security::Sid;
use ropeway_smb_wire::upcase;

use crate::sids::{self, ALIAS_USERS_RID, GUESTS_RID, sid};

/// Relative id of the group of all users, DOMAIN_GROUP_RID_USERS ([MS-DTYP] 2.4.2.4). Windows calls
/// it `None` outside of domains.
pub(crate) const USERS_RID: u32 = 513;
/// Smallest relative id that is not well known ([MS-SAMR] 3.1.1.9.2).
const RID_MIN: u32 = 1000;
/// Largest relative id that is used: samr tools read relative ids as signed numbers.
const RID_MAX: u32 = 0x7FFF_FFFF;
/// Samba's domain names for Unix users and groups.
const UNIX_USERS: &str = "Unix User";
const UNIX_GROUPS: &str = "Unix Group";
const BUILTIN: &str = "BUILTIN";
const AUTHORITY: &str = "NT AUTHORITY";

/// BUILTIN groups ([MS-DTYP] 2.4.2.4). The group of administrators has no members.
pub(crate) const BUILTIN_GROUPS: [(u32, &str); 3] = [
    (544, "Administrators"),
    (ALIAS_USERS_RID, "Users"),
    (GUESTS_RID, "Guests"),
];

/// Well-known accounts ([MS-DTYP] 2.4.2.4): domain, authority, relative id, name. All have one
/// subauthority.
const WELL_KNOWN: [(&str, u64, u32, &str); 13] = [
    ("", 0, 0, "NULL SID"),
    ("", 1, 0, "Everyone"),
    ("", 2, 0, "LOCAL"),
    ("", 3, 0, "CREATOR OWNER"),
    ("", 3, 1, "CREATOR GROUP"),
    ("", 3, 4, "OWNER RIGHTS"),
    (AUTHORITY, 5, 2, "NETWORK"),
    (AUTHORITY, 5, 4, "INTERACTIVE"),
    (AUTHORITY, 5, 7, "ANONYMOUS LOGON"),
    (AUTHORITY, 5, 11, "Authenticated Users"),
    (AUTHORITY, 5, 18, "SYSTEM"),
    (AUTHORITY, 5, 19, "LOCAL SERVICE"),
    (AUTHORITY, 5, 20, "NETWORK SERVICE"),
];

/// The users and groups that the server and its machine have.
pub trait Directory: Send + Sync {
    /// Returns the names of the users who may log in.
    fn users(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the name of a Unix user.
    fn unix_user(&self, _uid: u32) -> Option<String> {
        None
    }

    /// Returns the name of a Unix group.
    fn unix_group(&self, _gid: u32) -> Option<String> {
        None
    }

    /// Returns the number of a Unix user.
    fn uid_of(&self, _name: &str) -> Option<u32> {
        None
    }

    /// Returns the number of a Unix group.
    fn gid_of(&self, _name: &str) -> Option<u32> {
        None
    }
}

/// A directory without accounts.
pub(crate) struct NoAccounts;

impl Directory for NoAccounts {}

/// All accounts that a server knows, by name and by SID.
#[derive(Clone)]
pub(crate) struct AccountNames {
    machine: Domain,
    directory: Arc<dyn Directory>,
}

impl AccountNames {
    /// Creates the accounts of a server named `machine`. `numbers` distinguish its SIDs from those
    /// of other machines.
    pub(crate) fn new(machine: Text, numbers: [u32; 3], directory: Arc<dyn Directory>) -> Self {
        let [a, b, c] = numbers;
        let machine = Domain {
            name: machine,
            sid: sid(5, &[21, a, b, c]),
        };
        Self { machine, directory }
    }

    /// Returns the domain of the server's own users.
    pub(crate) fn machine(&self) -> &Domain {
        &self.machine
    }

    /// Returns the domain of [`BUILTIN_GROUPS`].
    pub(crate) fn builtin(&self) -> Domain {
        Domain {
            name: BUILTIN.into(),
            sid: sid(5, &[32]),
        }
    }

    /// Returns the SIDs that a user has in the server's domain: its own and that of the group of
    /// all users. Users who are not in the directory have none.
    pub(crate) fn sids_of_user(&self, user: &str) -> Vec<Sid> {
        let accounts = self.snapshot();
        let name = Text::from(user);
        let found = accounts.users().find(|(_, own)| upcase::equal(own, &name));
        let rids = found.map(|(rid, _)| [rid, USERS_RID]).into_iter().flatten();
        rids.map(|rid| self.of_machine(SidKind::User, "", rid).sid())
            .collect()
    }

    /// Takes a snapshot of the directory to answer several questions from.
    pub(crate) fn snapshot(&self) -> AccountSnapshot<'_> {
        let mut users: HashMap<u32, Option<String>> = HashMap::new();
        for user in self.directory.users() {
            let twins = users.get(&rid_of(&user));
            let only = twins.is_none().then_some(user.as_str()).map(str::to_owned);
            users.insert(rid_of(&user), only);
        }
        AccountSnapshot { names: self, users }
    }

    fn of_machine(&self, kind: SidKind, name: &str, rid: u32) -> Account {
        Account {
            kind,
            name: name.into(),
            domain: self.machine.clone(),
            rid: Some(rid),
        }
    }
}

/// Returns the relative id of a name, regardless of case: FNV-1a of its upper-case units.
fn rid_of(user: &str) -> u32 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in upcase::fold(&Text::from(user))
        .units()
        .iter()
        .flat_map(|unit| unit.to_le_bytes())
    {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    let room = u64::from(RID_MAX - RID_MIN) + 1;
    RID_MIN + u32::try_from(hash % room).expect("less than the room")
}

/// The accounts at one moment.
pub(crate) struct AccountSnapshot<'a> {
    names: &'a AccountNames,
    /// Names by relative id; `None` if two users have the same id.
    users: HashMap<u32, Option<String>>,
}

impl AccountSnapshot<'_> {
    /// Returns the server's own users in no particular order.
    pub(crate) fn users(&self) -> impl Iterator<Item = (u32, Text)> {
        let users = self.users.iter();
        users.filter_map(|(rid, name)| Some((*rid, Text::from(name.as_deref()?))))
    }

    /// Returns an account of the server's own domain.
    pub(crate) fn by_rid(&self, rid: u32) -> Option<Account> {
        if rid == USERS_RID {
            return Some(self.names.of_machine(SidKind::Group, "None", rid));
        }
        let user = self.users.get(&rid)?.as_deref()?;
        Some(self.names.of_machine(SidKind::User, user, rid))
    }

    /// Returns the account with a relative id in a domain.
    pub(crate) fn by_id(&self, domain: &Domain, rid: u32) -> Option<Account> {
        let numbers = [domain.sid.sub_authorities(), &[rid]].concat();
        self.by_sid(&Sid::new(domain.sid.authority(), &numbers)?)
    }

    /// Returns the account of a SID.
    pub(crate) fn by_sid(&self, sid: &Sid) -> Option<Account> {
        if let Some(domain) = self.domains().into_iter().find(|domain| domain.sid == *sid) {
            return Some(of_domain(domain));
        }
        let (rid, domain) = sid.sub_authorities().split_last()?;
        let domain_sid = Sid::new(sid.authority(), domain)?;
        let directory = &self.names.directory;
        let found = |kind, domain, name: &str| Account {
            kind,
            name: name.into(),
            domain: Domain {
                name: domain,
                sid: domain_sid.clone(),
            },
            rid: Some(*rid),
        };
        match (sid.authority(), domain) {
            _ if domain_sid == self.names.machine.sid => self.by_rid(*rid),
            (22, [1]) => Some(found(
                SidKind::User,
                UNIX_USERS.into(),
                &directory.unix_user(*rid)?,
            )),
            (22, [2]) => Some(found(
                SidKind::Group,
                UNIX_GROUPS.into(),
                &directory.unix_group(*rid)?,
            )),
            (5, [32]) => {
                let (_, name) = BUILTIN_GROUPS.iter().find(|(own, _)| own == rid)?;
                Some(found(SidKind::Alias, BUILTIN.into(), name))
            }
            (authority, []) => {
                let is_it =
                    |accounts: &&(&str, u64, u32, &str)| accounts.1 == authority && accounts.2 == *rid;
                let (domain, _, _, name) = WELL_KNOWN.iter().find(is_it)?;
                Some(found(SidKind::WellKnownGroup, (*domain).into(), name))
            }
            _ => None,
        }
    }

    /// Returns the account of a name, `DOMAIN\name` or `name`. Without a domain, the server's own
    /// users come first, then well-known names, then Unix accounts.
    pub(crate) fn by_name(&self, name: &Text) -> Option<Account> {
        let units = name.units();
        let at = units.iter().position(|unit| *unit == u16::from(b'\\'));
        let (domain, name) = match at {
            Some(at) => (
                Some(Text::from_units(units[..at].to_vec())),
                Text::from_units(units[at + 1..].to_vec()),
            ),
            None => (None, name.clone()),
        };
        let is_domain = |other: &Text| match &domain {
            Some(domain) => upcase::equal(domain, other),
            None => true,
        };
        // A domain's own name, with or without a trailing `\`.
        let whole = if name.is_empty() { domain.as_ref()? } else { &name };
        if domain.is_none() || name.is_empty() {
            let mut domains = self.domains().into_iter();
            if let Some(domain) = domains.find(|own| !own.name.is_empty() && upcase::equal(&own.name, whole))
            {
                return Some(of_domain(domain));
            }
        }
        let own = is_domain(&self.names.machine.name)
            .then(|| self.own(&name))
            .flatten();
        own.or_else(|| self.well_known(&name, is_domain))
            .or_else(|| self.unix_account(&name, is_domain))
    }

    fn own(&self, name: &Text) -> Option<Account> {
        if upcase::equal(name, &"None".into()) {
            return self.by_rid(USERS_RID);
        }
        let account = self.by_rid(rid_of(&name.to_string_lossy()))?;
        // Another name may have the same relative id.
        upcase::equal(&account.name, name).then_some(account)
    }

    fn well_known(&self, name: &Text, is_domain: impl Fn(&Text) -> bool) -> Option<Account> {
        let is_it = |own: &str, domain: &str| upcase::equal(name, &own.into()) && is_domain(&domain.into());
        let builtin = BUILTIN_GROUPS.iter().find(|(_, own)| is_it(own, BUILTIN));
        if let Some((rid, _)) = builtin {
            return self.by_sid(&sid(5, &[32, *rid]));
        }
        let (_, authority, rid, _) = WELL_KNOWN.iter().find(|(domain, _, _, own)| is_it(own, domain))?;
        self.by_sid(&sid(*authority, &[*rid]))
    }

    fn unix_account(&self, name: &Text, is_domain: impl Fn(&Text) -> bool) -> Option<Account> {
        let directory = &self.names.directory;
        // Clients may change the case of names; Unix names are lower case by convention.
        let exact = name.to_string_lossy();
        let lower = exact.to_lowercase();
        let either = |find: &dyn Fn(&str) -> Option<u32>| find(&exact).or_else(|| find(&lower));
        if is_domain(&UNIX_USERS.into())
            && let Some(uid) = either(&|name| directory.uid_of(name))
        {
            return self.by_sid(&sids::owner_sid(uid));
        }
        if !is_domain(&UNIX_GROUPS.into()) {
            return None;
        }
        let gid = either(&|name| directory.gid_of(name))?;
        self.by_sid(&sids::group_sid(gid))
    }

    fn domains(&self) -> [Domain; 4] {
        let domain = |name: &str, authority, number| Domain {
            name: name.into(),
            sid: sid(authority, &[number]),
        };
        [
            self.names.machine.clone(),
            self.names.builtin(),
            domain(UNIX_USERS, 22, 1),
            domain(UNIX_GROUPS, 22, 2),
        ]
    }
}

fn of_domain(domain: Domain) -> Account {
    Account {
        kind: SidKind::Domain,
        name: Text::default(),
        domain,
        rid: None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Two users of the server, one Unix user and one Unix group.
    pub(crate) struct TestDirectory;

    impl Directory for TestDirectory {
        fn users(&self) -> Vec<String> {
            vec!["ann".to_owned(), "Zoë Smith".to_owned()]
        }

        fn unix_user(&self, uid: u32) -> Option<String> {
            (uid == 1000).then(|| "ropeway".to_owned())
        }

        fn unix_group(&self, gid: u32) -> Option<String> {
            (gid == 100).then(|| "staff".to_owned())
        }

        fn uid_of(&self, name: &str) -> Option<u32> {
            (name == "ropeway").then_some(1000)
        }

        fn gid_of(&self, name: &str) -> Option<u32> {
            (name == "staff").then_some(100)
        }
    }

    pub(crate) fn names() -> AccountNames {
        AccountNames::new("NAS".into(), [1, 2, 3], Arc::new(TestDirectory))
    }

    #[test]
    fn names_and_sids_map_to_each_other() {
        let names = names();
        let accounts = names.snapshot();
        for (asked, told, kind) in [
            ("ann", r"NAS\ann", SidKind::User),
            (r"nas\ZOË smith", r"NAS\Zoë Smith", SidKind::User),
            ("None", r"NAS\None", SidKind::Group),
            ("everyone", r"\Everyone", SidKind::WellKnownGroup),
            ("SYSTEM", r"NT AUTHORITY\SYSTEM", SidKind::WellKnownGroup),
            (
                r"builtin\administrators",
                r"BUILTIN\Administrators",
                SidKind::Alias,
            ),
            ("users", r"BUILTIN\Users", SidKind::Alias),
            ("guests", r"BUILTIN\Guests", SidKind::Alias),
            ("ropeway", r"Unix User\ropeway", SidKind::User),
            (r"Unix User\ROPEWAY", r"Unix User\ropeway", SidKind::User),
            ("staff", r"Unix Group\staff", SidKind::Group),
            ("nas", r"NAS\", SidKind::Domain),
            (r"BUILTIN\", r"BUILTIN\", SidKind::Domain),
        ] {
            let account = accounts
                .by_name(&asked.into())
                .unwrap_or_else(|| panic!("{asked}"));
            assert_eq!(
                format!("{}\\{}", account.domain.name, account.name),
                told,
                "{asked}"
            );
            assert_eq!(account.kind, kind);
            assert_eq!(accounts.by_sid(&account.sid()), Some(account));
        }
        for asked in [
            "",
            r"\",
            "nobody",
            r"BUILTIN\ann",
            r"NAS\ropeway",
            r"Unix Group\ropeway",
            r"x\Everyone",
        ] {
            assert_eq!(accounts.by_name(&asked.into()), None, "{asked}");
        }
        for asked in [
            "S-1-22-1-1001",
            "S-1-22-2-1000",
            "S-1-5-21-1-2-3-1000",
            "S-1-5-21-1-2-4-513",
            "S-1-5",
            "S-1-16-0",
        ] {
            assert_eq!(accounts.by_sid(&asked.parse().unwrap()), None, "{asked}");
        }
    }

    #[test]
    fn users_hold_their_own_sid() {
        let names = names();
        let ann = names.snapshot().by_name(&"ann".into()).unwrap().sid();
        assert_eq!(
            names.sids_of_user("ANN"),
            [ann, "S-1-5-21-1-2-3-513".parse().unwrap()]
        );
        assert_eq!(names.sids_of_user("ann@EXAMPLE.ORG"), []);
    }

    /// Users of which two have the same relative id.
    struct CollidingUsers;

    impl Directory for CollidingUsers {
        fn users(&self) -> Vec<String> {
            vec!["ann".to_owned(), "ANN".to_owned(), "bob".to_owned()]
        }
    }

    #[test]
    fn users_with_the_same_relative_id_have_no_sid() {
        let names = AccountNames::new("NAS".into(), [1, 2, 3], Arc::new(CollidingUsers));
        assert_eq!(names.sids_of_user("ann"), []);
        assert_eq!(names.snapshot().by_name(&"ann".into()), None);
        assert_eq!(names.snapshot().users().count(), 1);
    }

    proptest! {
        #[test]
        fn relative_ids_are_in_their_range_whatever_the_case(name in ".{1,20}") {
            let rid = rid_of(&name);
            prop_assert!((RID_MIN..=RID_MAX).contains(&rid));
        }

        #[test]
        fn any_name_can_be_asked_for(units in prop::collection::vec(any::<u16>(), 0..20)) {
            _ = names().snapshot().by_name(&Text::from_units(units));
        }
    }
}
