//! The server of the local security authority on the pipe `lsarpc`: names for SIDs and SIDs for
//! names ([MS-LSAT]), and the names of the machine and its domain ([MS-LSAD]).
//!
//! The access that a client requests for a policy handle does not matter, so the parameters of
//! opening one are not read.

use super::SyntaxId;
use super::account::{Account, ContextHandle, Domain, SidKind};
use super::ndr::{NdrReader, NdrWriter};
use crate::security::Sid;
use crate::{Fault, NtStatus, Result, Text};

/// Interface ([MS-LSAD] 1.9).
pub const INTERFACE: SyntaxId = SyntaxId::new(0x12345778_1234_abcd_ef00_0123456789ab, 0, 0);
/// Name of the pipe in `IPC$`.
pub const PIPE: &str = "lsarpc";

/// Most names in one lookup: the `range` of `Count` ([MS-LSAT] 3.1.4.5).
const NAMES_MAX: usize = 1000;
/// Most SIDs in one lookup: the `range` of `Entries` ([MS-LSAT] 2.2.17).
const SIDS_MAX: usize = 20_480;
/// `DomainIndex` of an account without a domain.
const NO_DOMAIN: u32 = u32::MAX;

/// Variant of a lookup procedure. Later variants return more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// LsarLookupSids, LsarLookupNames.
    First,
    /// LsarLookupSids2, LsarLookupNames2: with flags.
    Second,
    /// LsarLookupNames3: whole SIDs in place of relative ids.
    Third,
}

/// A decoded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// LsarClose ([MS-LSAD] 3.1.4.9.4).
    Close {
        /// Handle to close.
        handle: ContextHandle,
    },
    /// LsarOpenPolicy and LsarOpenPolicy2 ([MS-LSAD] 3.1.4.4.1).
    OpenPolicy,
    /// LsarQueryInformationPolicy and LsarQueryInformationPolicy2 ([MS-LSAD] 3.1.4.4.3).
    QueryPolicy {
        /// Handle of the policy.
        handle: ContextHandle,
        /// POLICY_INFORMATION_CLASS.
        class: u16,
    },
    /// LsarLookupNames, 2 and 3 ([MS-LSAT] 3.1.4.5 to 3.1.4.7).
    LookupNames {
        /// Handle of the policy.
        handle: ContextHandle,
        /// Names, with or without a domain.
        names: Vec<Text>,
        /// Variant, which decides the answer's layout.
        form: Form,
    },
    /// LsarLookupSids and LsarLookupSids2 ([MS-LSAT] 3.1.4.9, 3.1.4.10).
    LookupSids {
        /// Handle of the policy.
        handle: ContextHandle,
        /// SIDs to look up.
        sids: Vec<Sid>,
        /// Variant, which decides the answer's layout; never [`Form::Third`].
        form: Form,
    },
    /// LsarGetUserName ([MS-LSAT] 3.1.4.1).
    GetUserName {
        /// Whether the client asks for the domain, too.
        with_domain: bool,
    },
}

impl Call {
    /// Decodes a request's stub. Returns `None` for procedures that are not implemented.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(opnum: u16, stub: &[u8]) -> Result<Option<Self>> {
        let mut ndr = NdrReader::new(stub, "lsarpc request");
        let names = |ndr: &mut NdrReader<'_>, form| {
            Ok(Self::LookupNames {
                handle: ndr.handle()?,
                names: read_names(ndr)?,
                form,
            })
        };
        let sids = |ndr: &mut NdrReader<'_>, form| {
            Ok(Self::LookupSids {
                handle: ndr.handle()?,
                sids: read_sids(ndr)?,
                form,
            })
        };
        Ok(Some(match opnum {
            0 => Self::Close {
                handle: ndr.handle()?,
            },
            6 | 44 => Self::OpenPolicy,
            7 | 46 => Self::QueryPolicy {
                handle: ndr.handle()?,
                class: ndr.u16()?,
            },
            14 => names(&mut ndr, Form::First)?,
            58 => names(&mut ndr, Form::Second)?,
            68 => names(&mut ndr, Form::Third)?,
            15 => sids(&mut ndr, Form::First)?,
            57 => sids(&mut ndr, Form::Second)?,
            45 => {
                ndr.unique_string()?;
                if ndr.pointer()? {
                    ndr.unicode()?;
                }
                Self::GetUserName {
                    with_domain: ndr.pointer()?,
                }
            }
            _ => return Ok(None),
        }))
    }
}

fn read_names(ndr: &mut NdrReader<'_>) -> Result<Vec<Text>> {
    let fault = ndr.fault(Fault::Value);
    let count = ndr.u32()?;
    let length = ndr.count(8)?;
    if usize::try_from(count) != Ok(length) || length > NAMES_MAX {
        return Err(fault);
    }
    let heads: Vec<_> = (0..length).map(|_| ndr.unicode_head()).collect::<Result<_>>()?;
    heads.into_iter().map(|points| ndr.deferred(points)).collect()
}

fn read_sids(ndr: &mut NdrReader<'_>) -> Result<Vec<Sid>> {
    let fault = ndr.fault(Fault::Value);
    let entries = ndr.u32()?;
    if !ndr.pointer()? {
        return if entries == 0 { Ok(Vec::new()) } else { Err(fault) };
    }
    let length = ndr.count(4)?;
    if usize::try_from(entries) != Ok(length) || length > SIDS_MAX {
        return Err(fault);
    }
    for _ in 0..length {
        if !ndr.pointer()? {
            return Err(fault);
        }
    }
    (0..length).map(|_| ndr.sid()).collect()
}

/// Encodes the results of LsarOpenPolicy and LsarClose: a handle (zeros for none) and a status.
pub fn handle(handle: ContextHandle, status: NtStatus) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.handle(handle);
    ndr.u32(status.0);
    ndr.into_stub()
}

/// Identity of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Domain of the machine's own accounts.
    pub account_domain: Domain,
    /// Workgroup. The machine is not a member of a domain.
    pub workgroup: Text,
}

/// Encodes LsarQueryInformationPolicy's results: the primary domain (3), the account domain (5), or
/// the DNS domain (12). Other classes get STATUS_INVALID_PARAMETER.
pub fn query_policy(class: u16, policy: &Policy) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    let status = match class {
        3 | 5 | 12 => NtStatus::SUCCESS,
        _ => NtStatus::INVALID_PARAMETER,
    };
    ndr.pointer(status == NtStatus::SUCCESS);
    if status != NtStatus::SUCCESS {
        ndr.u32(status.0);
        return ndr.into_stub();
    }
    ndr.u16(class);
    match class {
        // PolicyPrimaryDomainInformation: no SID means that the machine is in a workgroup
        // ([MS-LSAD] 2.2.4.5).
        3 => {
            ndr.unicode_head(&policy.workgroup);
            ndr.pointer(false);
            ndr.unicode_body(&policy.workgroup);
        }
        5 => {
            ndr.unicode_head(&policy.account_domain.name);
            ndr.pointer(true);
            ndr.unicode_body(&policy.account_domain.name);
            ndr.sid(&policy.account_domain.sid);
        }
        _ => {
            ndr.unicode_head(&policy.workgroup);
            ndr.unicode_head(&Text::default());
            ndr.unicode_head(&Text::default());
            // DomainGuid.
            (0..4).for_each(|_| ndr.u32(0));
            ndr.pointer(false);
            ndr.unicode_body(&policy.workgroup);
        }
    }
    ndr.u32(NtStatus::SUCCESS.0);
    ndr.into_stub()
}

/// Returns the distinct domains of the accounts, and for each account the index of its domain.
fn domains(accounts: &[Option<Account>]) -> (Vec<&Domain>, Vec<u32>) {
    let mut domains: Vec<&Domain> = Vec::new();
    let indices = accounts.iter().map(|account| {
        let Some(account) = account else {
            return NO_DOMAIN;
        };
        let known = domains.iter().position(|domain| domain.sid == account.domain.sid);
        let at = known.unwrap_or_else(|| {
            domains.push(&account.domain);
            domains.len() - 1
        });
        u32::try_from(at).unwrap_or(NO_DOMAIN)
    });
    let indices = indices.collect();
    (domains, indices)
}

/// Writes a pointer to an LSAPR_REFERENCED_DOMAIN_LIST ([MS-LSAT] 2.2.12).
fn write_domains(ndr: &mut NdrWriter, domains: &[&Domain]) {
    ndr.pointer(true);
    ndr.count(domains.len());
    ndr.pointer(!domains.is_empty());
    // MaxEntries.
    ndr.count(domains.len());
    if domains.is_empty() {
        return;
    }
    ndr.count(domains.len());
    for domain in domains {
        ndr.unicode_head(&domain.name);
        ndr.pointer(true);
    }
    for domain in domains {
        ndr.unicode_body(&domain.name);
        ndr.sid(&domain.sid);
    }
}

/// Writes the number of accounts found and the status that follows from it ([MS-LSAT] 3.1.4.5).
fn write_outcome(ndr: &mut NdrWriter, accounts: &[Option<Account>]) {
    let mapped = accounts.iter().flatten().count();
    ndr.count(mapped);
    let status = match mapped {
        _ if mapped == accounts.len() => NtStatus::SUCCESS,
        0 => NtStatus::NONE_MAPPED,
        _ => NtStatus::SOME_NOT_MAPPED,
    };
    ndr.u32(status.0);
}

fn kind_of(account: Option<&Account>) -> u16 {
    account.map_or(SidKind::Unknown, |account| account.kind) as u16
}

/// Encodes the results of a lookup of SIDs. `accounts` holds the account of each SID, or `None`.
///
/// # Panics
/// Panics if `sids` and `accounts` differ in length.
pub fn lookup_sids(form: Form, sids: &[Sid], accounts: &[Option<Account>]) -> Vec<u8> {
    assert_eq!(sids.len(), accounts.len(), "each SID has an outcome");
    let (domains, indices) = domains(accounts);
    // The name of an unknown account is its SID ([MS-LSAT] 3.1.4.9).
    let names: Vec<Text> = sids
        .iter()
        .zip(accounts)
        .map(|(sid, account)| match account {
            Some(account) => account.name.clone(),
            None => Text::from(sid.to_string().as_str()),
        })
        .collect();
    let mut ndr = NdrWriter::default();
    write_domains(&mut ndr, &domains);
    ndr.count(names.len());
    ndr.pointer(!names.is_empty());
    if !names.is_empty() {
        ndr.count(names.len());
        for ((name, account), index) in names.iter().zip(accounts).zip(indices) {
            // A structure is aligned like its widest member.
            ndr.align4();
            ndr.u16(kind_of(account.as_ref()));
            ndr.unicode_head(name);
            ndr.u32(index);
            if form != Form::First {
                ndr.u32(0);
            }
        }
        for name in &names {
            ndr.unicode_body(name);
        }
    }
    write_outcome(&mut ndr, accounts);
    ndr.into_stub()
}

/// Encodes the results of a lookup of names. `accounts` holds the account of each name, or `None`.
pub fn lookup_names(form: Form, accounts: &[Option<Account>]) -> Vec<u8> {
    let (domains, indices) = domains(accounts);
    let mut ndr = NdrWriter::default();
    write_domains(&mut ndr, &domains);
    ndr.count(accounts.len());
    ndr.pointer(!accounts.is_empty());
    if !accounts.is_empty() {
        ndr.count(accounts.len());
        for (account, index) in accounts.iter().zip(indices) {
            ndr.align4();
            ndr.u16(kind_of(account.as_ref()));
            match form {
                Form::Third => ndr.pointer(account.is_some()),
                // A domain has no relative id ([MS-LSAT] 3.1.4.7).
                _ => ndr.u32(
                    account
                        .as_ref()
                        .map_or(0, |account| account.rid.unwrap_or(u32::MAX)),
                ),
            }
            ndr.u32(index);
            if form != Form::First {
                ndr.u32(0);
            }
        }
        if form == Form::Third {
            for account in accounts.iter().flatten() {
                ndr.sid(&account.sid());
            }
        }
    }
    write_outcome(&mut ndr, accounts);
    ndr.into_stub()
}

/// Encodes LsarGetUserName's results.
pub fn get_user_name(name: &Text, domain: Option<&Text>) -> Vec<u8> {
    let mut ndr = NdrWriter::default();
    ndr.pointer(true);
    ndr.unicode(name);
    ndr.pointer(domain.is_some());
    if let Some(domain) = domain {
        ndr.pointer(true);
        ndr.unicode(domain);
    }
    ndr.u32(NtStatus::SUCCESS.0);
    ndr.into_stub()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn sids() -> impl Strategy<Value = Sid> {
        (0..1_u64 << 48, vec(any::<u32>(), 0..15))
            .prop_map(|(authority, numbers)| Sid::new(authority, &numbers).expect("both are in bounds"))
    }

    fn write_sids(handle: ContextHandle, sids: &[Sid]) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.handle(handle);
        ndr.count(sids.len());
        ndr.pointer(true);
        ndr.count(sids.len());
        sids.iter().for_each(|_| ndr.pointer(true));
        sids.iter().for_each(|sid| ndr.sid(sid));
        ndr.into_stub()
    }

    fn write_names(handle: ContextHandle, names: &[Text]) -> Vec<u8> {
        let mut ndr = NdrWriter::default();
        ndr.handle(handle);
        ndr.count(names.len());
        ndr.count(names.len());
        names.iter().for_each(|name| ndr.unicode_head(name));
        names.iter().for_each(|name| ndr.unicode_body(name));
        ndr.into_stub()
    }

    /// Kind, domain and name.
    type Found = (u16, Option<Text>, Text);

    /// Reads an answer to LsarLookupSids as a client does. Returns the accounts, their number and
    /// the status.
    fn read_answer(stub: &[u8], form: Form) -> Result<(Vec<Found>, u32, u32)> {
        let mut ndr = NdrReader::new(stub, "answer");
        assert!(ndr.pointer()?);
        ndr.u32()?;
        let has_domains = ndr.pointer()?;
        ndr.u32()?;
        let mut domains = Vec::new();
        if has_domains {
            let heads: Vec<_> = (0..ndr.count(12)?)
                .map(|_| Ok((ndr.unicode_head()?, ndr.pointer()?)))
                .collect::<Result<_>>()?;
            for (name, sid) in heads {
                domains.push(ndr.deferred(name)?);
                assert!(sid);
                ndr.sid()?;
            }
        }
        ndr.u32()?;
        let mut found = Vec::new();
        if ndr.pointer()? {
            let mut heads = Vec::new();
            for _ in 0..ndr.count(16)? {
                let head = (ndr.u16()?, ndr.unicode_head()?, ndr.u32()?);
                if form != Form::First {
                    ndr.expect(0)?;
                }
                heads.push(head);
            }
            for (kind, name, domain) in heads {
                let domain = domains.get(domain as usize).cloned();
                found.push((kind, domain, ndr.deferred(name)?));
            }
        }
        Ok((found, ndr.u32()?, ndr.u32()?))
    }

    fn everyone() -> Account {
        Account {
            kind: SidKind::WellKnownGroup,
            name: "Everyone".into(),
            domain: Domain {
                name: "".into(),
                sid: "S-1-1".parse().unwrap(),
            },
            rid: Some(0),
        }
    }

    #[test]
    fn what_has_no_name_is_told_as_unknown() {
        let sids: Vec<Sid> = ["S-1-1-0", "S-1-22-1-77"]
            .map(|sid| sid.parse().unwrap())
            .to_vec();
        for form in [Form::First, Form::Second] {
            let some = lookup_sids(form, &sids, &[Some(everyone()), None]);
            let (found, mapped, status) = read_answer(&some, form).unwrap();
            assert_eq!(found[0], (5, Some("".into()), "Everyone".into()));
            assert_eq!(found[1], (8, None, "S-1-22-1-77".into()));
            assert_eq!((mapped, status), (1, NtStatus::SOME_NOT_MAPPED.0));
            let none = lookup_sids(form, &sids[1..], &[None]);
            let (_, mapped, status) = read_answer(&none, form).unwrap();
            assert_eq!((mapped, status), (0, NtStatus::NONE_MAPPED.0));
        }
    }

    #[test]
    fn counts_are_bounded_by_what_has_come() {
        let sid: Sid = "S-1-1-0".parse().unwrap();
        let mut stub = write_sids(ContextHandle::default(), &[sid]);
        for count in [2_u32, 20_481, u32::MAX] {
            stub[20..24].copy_from_slice(&count.to_le_bytes());
            stub[28..32].copy_from_slice(&count.to_le_bytes());
            assert!(Call::decode(15, &stub).is_err());
        }
        let names: Vec<Text> = vec!["x".into(); NAMES_MAX + 1];
        let handle = ContextHandle::default();
        assert!(Call::decode(14, &write_names(handle, &names)).is_err());
        assert!(Call::decode(14, &write_names(handle, &names[1..])).is_ok());
    }

    proptest! {
        #[test]
        fn lookups_are_read_as_they_were_written(
            sids in vec(sids(), 0..20), names in vec("[^\0]{0,30}", 0..20), bytes: [u8; 20],
        ) {
            let handle = ContextHandle(bytes);
            for (opnum, form) in [(15, Form::First), (57, Form::Second)] {
                let call = Call::LookupSids { handle, sids: sids.clone(), form };
                prop_assert_eq!(Call::decode(opnum, &write_sids(handle, &sids)), Ok(Some(call)));
            }
            let names: Vec<Text> = names.iter().map(|name| name.as_str().into()).collect();
            for (opnum, form) in [(14, Form::First), (58, Form::Second), (68, Form::Third)] {
                let call = Call::LookupNames { handle, names: names.clone(), form };
                prop_assert_eq!(Call::decode(opnum, &write_names(handle, &names)), Ok(Some(call)));
            }
        }

        #[test]
        fn hostile_bytes_never_panic(
            opnum in 0..80_u16, bytes in vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..200),
        ) {
            _ = Call::decode(opnum, &bytes);
        }
    }
}
