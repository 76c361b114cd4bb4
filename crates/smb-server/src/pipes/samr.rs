//! The service `samr`: the server's own users and the BUILTIN groups. Guests and anonymous sessions
//! get no handle, so they see no names.

use ropeway_smb_wire::rpc::account::{Account, ContextHandle, Handles, SidKind};
use ropeway_smb_wire::rpc::samr::{self, Call, Kind, User};
use ropeway_smb_wire::rpc::server::FAULT_CONTEXT_MISMATCH;
use ropeway_smb_wire::security::Sid;
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{NtStatus, Text};

use super::PipeHost;
use crate::accounts::{AccountSnapshot, BUILTIN_GROUPS, USERS_RID};
use crate::sids::ALIAS_USERS_RID;

/// What a handle refers to.
enum SamObject {
    Server,
    Domain(SamDomain),
    User(User),
}

/// The domains of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SamDomain {
    /// The server's own users.
    Machine,
    /// The BUILTIN groups.
    Builtin,
}

/// State of one client.
#[derive(Default)]
pub(super) struct Samr {
    handles: Handles<SamObject>,
}

impl Samr {
    /// Executes a call.
    ///
    /// # Errors
    /// The status of a fault: the handle is not open, or refers to something else.
    pub(super) fn answer(&mut self, host: &PipeHost, call: &Call) -> Result<Vec<u8>, u32> {
        Ok(match call {
            Call::Connect => {
                let (handle, status) = self.connect(host);
                samr::handle(handle, status)
            }
            Call::Connect5 => {
                let (handle, status) = self.connect(host);
                samr::connect5(handle, status)
            }
            Call::Close(handle) => match self.handles.close(*handle) {
                true => samr::handle(ContextHandle::default(), NtStatus::SUCCESS),
                false => return Err(FAULT_CONTEXT_MISMATCH),
            },
            Call::LookupDomain(handle, name) => {
                self.server(*handle)?;
                let domains = [host.names.machine().clone(), host.names.builtin()];
                let found = domains.iter().find(|domain| upcase::equal(&domain.name, name));
                samr::domain_sid(found.map(|domain| &domain.sid), NtStatus::NO_SUCH_DOMAIN)
            }
            Call::EnumerateDomains(handle, from) => {
                self.server(*handle)?;
                let domains = [host.names.machine().name.clone(), host.names.builtin().name];
                samr::enumeration(&domains.map(|name| (0, name)), *from, NtStatus::SUCCESS)
            }
            Call::OpenDomain(handle, sid) => {
                self.server(*handle)?;
                let which = match sid {
                    sid if *sid == host.names.machine().sid => Some(SamDomain::Machine),
                    sid if *sid == host.names.builtin().sid => Some(SamDomain::Builtin),
                    _ => None,
                };
                self.open(which.map(SamObject::Domain), NtStatus::NO_SUCH_DOMAIN)
            }
            Call::OpenUser(handle, rid) => {
                let which = self.domain(*handle)?;
                let users = users(&host.names.snapshot(), which);
                let found = users.into_iter().find(|user| user.rid == *rid);
                self.open(found.map(SamObject::User), NtStatus::NO_SUCH_USER)
            }
            Call::QueryUser(handle, class) => samr::query_user(*class, self.user(*handle)?),
            Call::GroupsOfUser(handle) => samr::groups_of_user(&[self.user(*handle)?.group]),
            Call::QueryDomain(handle, _)
            | Call::Enumerate(handle, ..)
            | Call::AliasMembership(handle, _)
            | Call::LookupNames(handle, _)
            | Call::LookupIds(handle, _)
            | Call::Display { domain: handle, .. } => of_domain(host, self.domain(*handle)?, call),
        })
    }

    fn connect(&mut self, host: &PipeHost) -> (ContextHandle, NtStatus) {
        if host.user.is_none() {
            return (ContextHandle::default(), NtStatus::ACCESS_DENIED);
        }
        match self.handles.open(SamObject::Server) {
            Some(handle) => (handle, NtStatus::SUCCESS),
            None => (ContextHandle::default(), NtStatus::INSUFFICIENT_RESOURCES),
        }
    }

    /// Opens a handle for an object, or returns the status `missing`.
    fn open(&mut self, what: Option<SamObject>, missing: NtStatus) -> Vec<u8> {
        let Some(what) = what else {
            return samr::handle(ContextHandle::default(), missing);
        };
        match self.handles.open(what) {
            Some(handle) => samr::handle(handle, NtStatus::SUCCESS),
            None => samr::handle(ContextHandle::default(), NtStatus::INSUFFICIENT_RESOURCES),
        }
    }

    fn server(&self, handle: ContextHandle) -> Result<(), u32> {
        match self.handles.get(handle) {
            Some(SamObject::Server) => Ok(()),
            _ => Err(FAULT_CONTEXT_MISMATCH),
        }
    }

    fn domain(&self, handle: ContextHandle) -> Result<SamDomain, u32> {
        match self.handles.get(handle) {
            Some(SamObject::Domain(which)) => Ok(*which),
            _ => Err(FAULT_CONTEXT_MISMATCH),
        }
    }

    fn user(&self, handle: ContextHandle) -> Result<&User, u32> {
        match self.handles.get(handle) {
            Some(SamObject::User(user)) => Ok(user),
            _ => Err(FAULT_CONTEXT_MISMATCH),
        }
    }
}

/// Returns the users of a domain, sorted by name.
fn users(accounts: &AccountSnapshot<'_>, which: SamDomain) -> Vec<User> {
    if which == SamDomain::Builtin {
        return Vec::new();
    }
    let users = accounts.users().map(|(rid, name)| User {
        rid,
        name,
        group: USERS_RID,
    });
    let mut users: Vec<User> = users.collect();
    users.sort_by_cached_key(|user| upcase::fold(&user.name));
    users
}

/// Executes a call about a domain.
fn of_domain(host: &PipeHost, which: SamDomain, call: &Call) -> Vec<u8> {
    let accounts = host.names.snapshot();
    let domain = match which {
        SamDomain::Machine => host.names.machine().clone(),
        SamDomain::Builtin => host.names.builtin(),
    };
    let is_member = |account: &Account| account.domain.sid == domain.sid && account.rid.is_some();
    match call {
        Call::QueryDomain(_, class) => {
            let aliases = match which {
                SamDomain::Machine => 0,
                SamDomain::Builtin => BUILTIN_GROUPS.len(),
            };
            samr::query_domain(*class, &domain.name, users(&accounts, which).len(), aliases)
        }
        Call::Enumerate(_, kind, from) => {
            samr::enumeration(&entries(&accounts, which, *kind), *from, NtStatus::SUCCESS)
        }
        Call::LookupNames(_, names) => {
            let found = names.iter().map(|name| {
                let whole = [domain.name.units(), &[u16::from(b'\\')], name.units()].concat();
                let account = accounts.by_name(&Text::from_units(whole)).filter(is_member)?;
                Some((account.rid?, account.kind))
            });
            samr::lookup_names(&found.collect::<Vec<_>>())
        }
        Call::LookupIds(_, ids) => {
            let found = ids.iter().map(|id| {
                let account = accounts.by_id(&domain, *id)?;
                Some((account.name, account.kind))
            });
            samr::lookup_ids(&found.collect::<Vec<_>>())
        }
        Call::Display {
            class,
            index,
            count_max,
            ..
        } => samr::display_users(*class, &users(&accounts, which), *index, *count_max),
        // All users are in one BUILTIN group and in no other.
        Call::AliasMembership(_, sids) if which == SamDomain::Builtin => {
            let is_user = |sid: &Sid| {
                let account = accounts.by_sid(sid);
                account.is_some_and(|account| {
                    account.kind == SidKind::User && account.domain.sid == host.names.machine().sid
                })
            };
            let rids: &[u32] = match sids.iter().any(is_user) {
                true => &[ALIAS_USERS_RID],
                false => &[],
            };
            samr::aliases(rids, NtStatus::SUCCESS)
        }
        _ => samr::aliases(&[], NtStatus::SUCCESS),
    }
}

fn entries(accounts: &AccountSnapshot<'_>, which: SamDomain, kind: Kind) -> Vec<(u32, Text)> {
    match (which, kind) {
        (_, Kind::Users) => {
            let users = users(accounts, which).into_iter();
            users.map(|user| (user.rid, user.name)).collect()
        }
        (SamDomain::Machine, Kind::Groups) => {
            let group = accounts.by_rid(USERS_RID);
            group.map(|group| (USERS_RID, group.name)).into_iter().collect()
        }
        (SamDomain::Builtin, Kind::Aliases) => {
            let groups = BUILTIN_GROUPS.into_iter();
            groups.map(|(rid, name)| (rid, Text::from(name))).collect()
        }
        _ => Vec::new(),
    }
}
