//! Encodes the results of the calls.

use crate::rpc::account::{ContextHandle, SidKind};
use crate::rpc::ndr::NdrWriter;
use crate::security::Sid;
use crate::{NtStatus, Text};

/// USER_NORMAL_ACCOUNT and USER_DONT_EXPIRE_PASSWORD ([MS-SAMR] 2.2.1.12).
const NORMAL_ACCOUNT: u32 = 0x10 | 0x200;
/// A time that never comes, as two halves ([MS-SAMR] 2.2.2.2).
const NEVER: [u32; 2] = [u32::MAX, 0x7FFF_FFFF];
/// Attributes of a group membership ([MS-SAMR] 2.2.1.10: SE_GROUP_MANDATORY, ENABLED_BY_DEFAULT,
/// ENABLED).
const MEMBER: u32 = 0x7;
/// Fields present in SAMPR_USER_ALL_INFORMATION: USER_ALL_* ([MS-SAMR] 2.2.1.8) for user name, full
/// name, both ids, comment and control bits.
const ALL_FIELDS: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x0010_0000;

/// A user of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Relative id in the machine's domain.
    pub rid: u32,
    /// Name.
    pub name: Text,
    /// Relative id of the primary group.
    pub group: u32,
}

/// Encodes results that are a handle and a status.
pub fn handle(handle: ContextHandle, status: NtStatus) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.handle(handle);
    ndr.u32(status.0);
    ndr.into_stub()
}

/// Encodes SamrConnect5's results: revision 3 without optional features ([MS-SAMR] 2.2.7.15).
pub fn connect5(handle: ContextHandle, status: NtStatus) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    for number in [1, 1, 3, 0] {
        ndr.u32(number);
    }
    ndr.handle(handle);
    ndr.u32(status.0);
    ndr.into_stub()
}

/// Encodes SamrLookupDomainInSamServer's results. Without a SID the status is `missing`.
pub fn domain_sid(sid: Option<&Sid>, missing: NtStatus) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.pointer(sid.is_some());
    if let Some(sid) = sid {
        ndr.sid(sid);
    }
    ndr.u32(sid.map_or(missing, |_| NtStatus::SUCCESS).0);
    ndr.into_stub()
}

/// Encodes an enumeration's results ([MS-SAMR] 2.2.7.10): all entries from index `from` on, or none
/// with an error.
pub fn enumeration(entries: &[(u32, Text)], from: u32, status: NtStatus) -> Vec<u8> {
    let rest = entries.get(from as usize..).unwrap_or_default();
    let mut ndr = NdrWriter::default();
    ndr.count(entries.len());
    ndr.pointer(true);
    ndr.count(rest.len());
    ndr.pointer(!rest.is_empty());
    if !rest.is_empty() {
        ndr.count(rest.len());
        for (rid, name) in rest {
            ndr.u32(*rid);
            ndr.unicode_head(name);
        }
        rest.iter().for_each(|(_, name)| ndr.unicode_body(name));
    }
    ndr.count(rest.len());
    ndr.u32(status.0);
    ndr.into_stub()
}

/// Writes a SAMPR_ULONG_ARRAY ([MS-SAMR] 2.2.7.4).
fn numbers(ndr: &mut NdrWriter, numbers: impl ExactSizeIterator<Item = u32>) {
    let count = numbers.len();
    ndr.count(count);
    ndr.pointer(count > 0);
    if count > 0 {
        ndr.count(count);
        numbers.for_each(|number| ndr.u32(number));
    }
}

/// Returns the status of a lookup that found `found` of `all` ([MS-SAMR] 3.1.5.11.2).
fn mapped(found: usize, all: usize) -> NtStatus {
    match found {
        _ if found == all => NtStatus::SUCCESS,
        0 => NtStatus::NONE_MAPPED,
        _ => NtStatus::SOME_NOT_MAPPED,
    }
}

/// Encodes SamrLookupNamesInDomain's results: relative id and type of each known name.
pub fn lookup_names(found: &[Option<(u32, SidKind)>]) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    numbers(&mut ndr, found.iter().map(|one| one.map_or(0, |(rid, _)| rid)));
    let kind = |one: &Option<(u32, SidKind)>| one.map_or(SidKind::Unknown, |(_, kind)| kind) as u32;
    numbers(&mut ndr, found.iter().map(kind));
    ndr.u32(mapped(found.iter().flatten().count(), found.len()).0);
    ndr.into_stub()
}

/// Encodes SamrLookupIdsInDomain's results: name and type of each known relative id.
pub fn lookup_ids(found: &[Option<(Text, SidKind)>]) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    let empty = Text::default();
    let name = |one: &Option<(Text, SidKind)>| one.as_ref().map_or(empty.clone(), |(name, _)| name.clone());
    let names: Vec<Text> = found.iter().map(name).collect();
    ndr.count(names.len());
    ndr.pointer(!names.is_empty());
    if !names.is_empty() {
        ndr.count(names.len());
        names.iter().for_each(|name| ndr.unicode_head(name));
        names.iter().for_each(|name| ndr.unicode_body(name));
    }
    let kind =
        |one: &Option<(Text, SidKind)>| one.as_ref().map_or(SidKind::Unknown, |(_, kind)| *kind) as u32;
    numbers(&mut ndr, found.iter().map(kind));
    ndr.u32(mapped(found.iter().flatten().count(), found.len()).0);
    ndr.into_stub()
}

/// Encodes SamrGetAliasMembership's results: relative ids of local groups, or none with an error.
pub fn aliases(rids: &[u32], status: NtStatus) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    numbers(&mut ndr, rids.iter().copied());
    ndr.u32(status.0);
    ndr.into_stub()
}

/// Encodes SamrGetGroupsForUser's results.
pub fn groups_of_user(groups: &[u32]) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.pointer(true);
    ndr.count(groups.len());
    ndr.pointer(true);
    ndr.count(groups.len());
    for group in groups {
        ndr.u32(*group);
        ndr.u32(MEMBER);
    }
    ndr.u32(NtStatus::SUCCESS.0);
    ndr.into_stub()
}

/// Encodes a null pointer and a status.
fn nothing(status: NtStatus) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.pointer(false);
    ndr.u32(status.0);
    ndr.into_stub()
}

/// Begins the information of a class: a pointer to a union and its discriminant.
fn information(class: u16) -> NdrWriter {
    let mut ndr = NdrWriter::default();
    ndr.pointer(true);
    ndr.u16(class);
    ndr.align4();
    ndr
}

fn time(ndr: &mut NdrWriter, time: [u32; 2]) {
    time.iter().for_each(|half| ndr.u32(*half));
}

/// Encodes SamrQueryInformationDomain's results: passwords (1), general (2), comment (4), name (5),
/// role (7). Other classes get STATUS_INVALID_INFO_CLASS. `users` and `aliases` are the domain's
/// numbers of both.
pub fn query_domain(class: u16, name: &Text, users: usize, aliases: usize) -> Vec<u8> {
    if !matches!(class, 1 | 2 | 4 | 5 | 7) {
        return nothing(NtStatus::INVALID_INFO_CLASS);
    }
    let empty = Text::default();
    let mut ndr = information(class);
    match class {
        1 => {
            // Minimum length, history length, properties: none. Maximum password age: unlimited,
            // minimum: 0.
            ndr.u16(0);
            ndr.u16(0);
            ndr.u32(0);
            time(&mut ndr, [0, 0x8000_0000]);
            time(&mut ndr, [0, 0]);
        }
        2 => {
            time(&mut ndr, [0, 0x8000_0000]);
            ndr.unicode_head(&empty);
            ndr.unicode_head(name);
            ndr.unicode_head(&empty);
            time(&mut ndr, [0, 0]);
            // Server state enabled, server role primary ([MS-SAMR] 2.2.3.5, 2.2.3.6).
            ndr.u32(1);
            ndr.u32(3);
            ndr.u8(1);
            for number in [users, 1, aliases] {
                ndr.count(number);
            }
            ndr.unicode_body(name);
        }
        4 => ndr.unicode_head(&empty),
        5 => ndr.unicode(name),
        _ => ndr.u32(3),
    }
    ndr.u32(NtStatus::SUCCESS.0);
    ndr.into_stub()
}

/// Encodes SamrQueryInformationUser's results: general (1), names (6, 7, 8), primary group (9),
/// control bits (16), all (21). Other classes get STATUS_INVALID_INFO_CLASS.
pub fn query_user(class: u16, user: &User) -> Vec<u8> {
    if !matches!(class, 1 | 6..=9 | 16 | 21) {
        return nothing(NtStatus::INVALID_INFO_CLASS);
    }
    let empty = Text::default();
    let mut ndr = information(class);
    match class {
        1 => {
            ndr.unicode_head(&user.name);
            ndr.unicode_head(&empty);
            ndr.u32(user.group);
            ndr.unicode_head(&empty);
            ndr.unicode_head(&empty);
            ndr.unicode_body(&user.name);
        }
        6 => {
            ndr.unicode_head(&user.name);
            ndr.unicode_head(&empty);
            ndr.unicode_body(&user.name);
        }
        7 => ndr.unicode(&user.name),
        8 => ndr.unicode(&empty),
        9 => ndr.u32(user.group),
        16 => ndr.u32(NORMAL_ACCOUNT),
        _ => all_of_user(&mut ndr, user),
    }
    ndr.u32(NtStatus::SUCCESS.0);
    ndr.into_stub()
}

/// Writes a SAMPR_USER_ALL_INFORMATION ([MS-SAMR] 2.2.6.6).
fn all_of_user(ndr: &mut NdrWriter, user: &User) {
    let empty = Text::default();
    // Last logon, last logoff, last password change, account expiry, password can change, password
    // must change.
    for moment in [[0, 0], NEVER, [0, 0], NEVER, [0, 0], NEVER] {
        time(ndr, moment);
    }
    ndr.unicode_head(&user.name);
    // Full name, home directory, its drive, script, profile, comment, workstations, user comment,
    // parameters. Then both password hashes (never disclosed) and the private data, which have the
    // same layout.
    (0..12).for_each(|_| ndr.unicode_head(&empty));
    // No security descriptor.
    ndr.u32(0);
    ndr.pointer(false);
    for number in [user.rid, user.group, NORMAL_ACCOUNT, ALL_FIELDS] {
        ndr.u32(number);
    }
    // Logon hours: any.
    ndr.u16(0);
    ndr.pointer(false);
    // Bad password count, logon count, country code, code page.
    (0..4).for_each(|_| ndr.u16(0));
    // LM hash present: no; NT hash present: yes; password expired: no; private data sensitive: no.
    [0, 1, 0, 0].iter().for_each(|byte| ndr.u8(*byte));
    ndr.unicode_body(&user.name);
}

/// Encodes SamrQueryDisplayInformation's results for users (class 1): at most `count_max` entries
/// from `index` on. Other classes get STATUS_INVALID_INFO_CLASS.
pub fn display_users(class: u16, users: &[User], index: u32, count_max: u32) -> Vec<u8> {
    let empty = Text::default();
    let rest = users.get(index as usize..).unwrap_or_default();
    let shown = match class {
        1 => &rest[..rest.len().min(count_max as usize)],
        _ => &[],
    };
    let mut ndr = NdrWriter::default();
    ndr.count(users.len());
    ndr.count(shown.len());
    ndr.u16(class);
    ndr.align4();
    ndr.count(shown.len());
    ndr.pointer(!shown.is_empty());
    if !shown.is_empty() {
        ndr.count(shown.len());
        for (number, user) in (index.saturating_add(1)..).zip(shown) {
            for number in [number, user.rid, NORMAL_ACCOUNT] {
                ndr.u32(number);
            }
            ndr.unicode_head(&user.name);
            ndr.unicode_head(&empty);
            ndr.unicode_head(&empty);
        }
        shown.iter().for_each(|user| ndr.unicode_body(&user.name));
    }
    let status = match class {
        1 if shown.len() < rest.len() => NtStatus::MORE_ENTRIES,
        1 => NtStatus::SUCCESS,
        _ => NtStatus::INVALID_INFO_CLASS,
    };
    ndr.u32(status.0);
    ndr.into_stub()
}
