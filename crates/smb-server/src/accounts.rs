//! Names of SIDs and SIDs of names, as clients' dialogs ask for them.
//!
//! ```text
//! S-1-5-21-…-RID   the server's own users (the domain is the server's name), and the group `None` of them all
//! S-1-22-1-UID     users of the system, `Unix User\name`      S-1-22-2-GID   its groups, `Unix Group\name`
//! S-1-5-32-RID     BUILTIN                                    S-1-1-0, …     everybody's
//! ```
//! A user of the server has no number, so its relative id is made from its name and outlives restarts. Where two names
//! give the same one, neither has a SID: nobody gets another's rights.

use std::collections::HashMap;
use std::sync::Arc;

use ropeway_smb_wire::Text;
use ropeway_smb_wire::rpc::account::{Account, Domain, SidKind};
use ropeway_smb_wire::security::Sid;
use ropeway_smb_wire::upcase;

use crate::sids::{self, ALIAS_USERS_RID, GUESTS_RID, sid};

/// DOMAIN_GROUP_RID_USERS ([MS-DTYP] 2.4.2.4): the group of all users, which Windows calls `None` outside of domains.
pub(crate) const USERS_RID: u32 = 513;
/// The first relative id that is no well-known one ([MS-SAMR] 3.1.1.9.2).
const RID_MIN: u32 = 1000;
/// The last one that is given: samr's tools take them for signed numbers.
const RID_MAX: u32 = 0x7FFF_FFFF;
/// Samba's names of the domains of what has a number on Unix.
const UNIX_USERS: &str = "Unix User";
const UNIX_GROUPS: &str = "Unix Group";
const BUILTIN: &str = "BUILTIN";
const AUTHORITY: &str = "NT AUTHORITY";

/// Groups of BUILTIN ([MS-DTYP] 2.4.2.4). Nobody is an administrator.
pub(crate) const BUILTIN_GROUPS: [(u32, &str); 3] = [
    (544, "Administrators"),
    (ALIAS_USERS_RID, "Users"),
    (GUESTS_RID, "UnauthenticatedConnections"),
];

/// What everybody calls the same ([MS-DTYP] 2.4.2.4): domain, authority, the numbers before the last, the last, name.
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

/// Who there is, beside what every machine has.
pub trait Directory: Send + Sync {
    /// Users who may log in, by name.
    fn users(&self) -> Vec<String> {
        Vec::new()
    }

    /// The name of a user of the system.
    fn unix_user(&self, _uid: u32) -> Option<String> {
        None
    }

    /// The name of a group of the system.
    fn unix_group(&self, _gid: u32) -> Option<String> {
        None
    }

    /// The number of a user of the system.
    fn uid_of(&self, _name: &str) -> Option<u32> {
        None
    }

    /// The number of a group of the system.
    fn gid_of(&self, _name: &str) -> Option<u32> {
        None
    }
}

/// Nobody.
pub(crate) struct NoAccounts;

impl Directory for NoAccounts {}

/// All names of a server.
#[derive(Clone)]
pub(crate) struct AccountNames {
    machine: Domain,
    directory: Arc<dyn Directory>,
}

impl AccountNames {
    /// Of a server that calls itself `machine`; `numbers` make its own SIDs differ from other machines'.
    pub(crate) fn new(machine: Text, numbers: [u32; 3], directory: Arc<dyn Directory>) -> Self {
        let [a, b, c] = numbers;
        let machine = Domain {
            name: machine,
            sid: sid(5, &[21, a, b, c]),
        };
        Self { machine, directory }
    }

    /// The domain of the server's own users.
    pub(crate) fn machine(&self) -> &Domain {
        &self.machine
    }

    /// The domain of [`BUILTIN_GROUPS`].
    pub(crate) fn builtin(&self) -> Domain {
        Domain {
            name: BUILTIN.into(),
            sid: sid(5, &[32]),
        }
    }

    /// SIDs that a user holds beside those of the system: its own and that of the group of all. None for who is not in
    /// the directory.
    pub(crate) fn sids_of_user(&self, user: &str) -> Vec<Sid> {
        let accounts = self.snapshot();
        let name = Text::from(user);
        let found = accounts.users().find(|(_, own)| upcase::equal(own, &name));
        let rids = found.map(|(rid, _)| [rid, USERS_RID]).into_iter().flatten();
        rids.map(|rid| self.of_machine(SidKind::User, "", rid).sid())
            .collect()
    }

    /// Looks up who there is now, for some questions.
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

/// The relative id of a name, whatever its case: FNV-1a of its upper-case units.
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

/// Who there was when it was asked for.
pub(crate) struct AccountSnapshot<'a> {
    names: &'a AccountNames,
    /// By relative id; `None` where two have the same.
    users: HashMap<u32, Option<String>>,
}

impl AccountSnapshot<'_> {
    /// The server's own users, in no order.
    pub(crate) fn users(&self) -> impl Iterator<Item = (u32, Text)> {
        let users = self.users.iter();
        users.filter_map(|(rid, name)| Some((*rid, Text::from(name.as_deref()?))))
    }

    /// An account of the server itself.
    pub(crate) fn by_rid(&self, rid: u32) -> Option<Account> {
        if rid == USERS_RID {
            return Some(self.names.of_machine(SidKind::Group, "None", rid));
        }
        let user = self.users.get(&rid)?.as_deref()?;
        Some(self.names.of_machine(SidKind::User, user, rid))
    }

    /// The account of a relative id in a domain.
    pub(crate) fn by_id(&self, domain: &Domain, rid: u32) -> Option<Account> {
        let numbers = [domain.sid.sub_authorities(), &[rid]].concat();
        self.by_sid(&Sid::new(domain.sid.authority(), &numbers)?)
    }

    /// The account of a SID.
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

    /// The account of a name, `DOMAIN\name` or `name`. Without a domain the server's own come first, then everybody's,
    /// then the system's.
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
        // A domain by its name, with a `\` behind it or without.
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
        // Clients may write names in another case; the system's are lower-case by custom.
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

    /// Two users of the server, one of the system and one group.
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
    fn names_and_sids_lead_to_each_other() {
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

    /// Two users whose names give the same relative id, found by trying.
    struct CollidingUsers;

    impl Directory for CollidingUsers {
        fn users(&self) -> Vec<String> {
            vec!["ann".to_owned(), "ANN".to_owned(), "bob".to_owned()]
        }
    }

    #[test]
    fn nobody_gets_a_sid_that_two_would_have() {
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
