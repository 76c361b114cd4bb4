//! The server of the security account manager on the pipe `samr` ([MS-SAMR]): lists and looks up
//! users and groups, and changes nothing.

mod answers;
#[cfg(test)]
mod tests;

pub use answers::{
    User, aliases, connect5, display_users, domain_sid, enumeration, groups_of_user, handle, lookup_ids,
    lookup_names, query_domain, query_user,
};

use super::SyntaxId;
use super::account::ContextHandle;
use super::ndr::NdrReader;
use crate::security::Sid;
use crate::{Fault, Result, Text};

/// Interface ([MS-SAMR] 1.9).
pub const INTERFACE: SyntaxId = SyntaxId::new(0x12345778_1234_abcd_ef00_0123456789ac, 1, 0);
/// Name of the pipe in `IPC$`.
pub const PIPE: &str = "samr";

/// Most names or ids in one lookup: the `range` of `Count` ([MS-SAMR] 3.1.5.11.2).
const COUNT_MAX: usize = 1000;

/// Type of the accounts to enumerate in a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Groups.
    Groups,
    /// Users.
    Users,
    /// Local groups.
    Aliases,
}

/// A decoded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// SamrConnect, SamrConnect2 and SamrConnect4 ([MS-SAMR] 3.1.5.1).
    Connect,
    /// SamrConnect5 ([MS-SAMR] 3.1.5.1.1).
    Connect5,
    /// SamrCloseHandle ([MS-SAMR] 3.1.5.13.1).
    Close(ContextHandle),
    /// SamrLookupDomainInSamServer ([MS-SAMR] 3.1.5.11.1).
    LookupDomain(ContextHandle, Text),
    /// SamrEnumerateDomainsInSamServer ([MS-SAMR] 3.1.5.2.1): server, first entry wanted.
    EnumerateDomains(ContextHandle, u32),
    /// SamrOpenDomain ([MS-SAMR] 3.1.5.1.5).
    OpenDomain(ContextHandle, Sid),
    /// SamrQueryInformationDomain and SamrQueryInformationDomain2 ([MS-SAMR] 3.1.5.5.1).
    QueryDomain(ContextHandle, u16),
    /// SamrEnumerateUsersInDomain and its siblings ([MS-SAMR] 3.1.5.2.2): domain, type, first entry
    /// wanted.
    Enumerate(ContextHandle, Kind, u32),
    /// SamrGetAliasMembership ([MS-SAMR] 3.1.5.9.2).
    AliasMembership(ContextHandle, Vec<Sid>),
    /// SamrLookupNamesInDomain ([MS-SAMR] 3.1.5.11.2).
    LookupNames(ContextHandle, Vec<Text>),
    /// SamrLookupIdsInDomain ([MS-SAMR] 3.1.5.11.3).
    LookupIds(ContextHandle, Vec<u32>),
    /// SamrOpenUser ([MS-SAMR] 3.1.5.1.9).
    OpenUser(ContextHandle, u32),
    /// SamrQueryInformationUser and SamrQueryInformationUser2 ([MS-SAMR] 3.1.5.5.5).
    QueryUser(ContextHandle, u16),
    /// SamrGetGroupsForUser ([MS-SAMR] 3.1.5.9.1).
    GroupsOfUser(ContextHandle),
    /// SamrQueryDisplayInformation, its 2 and 3 ([MS-SAMR] 3.1.5.3.1).
    Display {
        /// Handle of the domain.
        domain: ContextHandle,
        /// DOMAIN_DISPLAY_INFORMATION.
        class: u16,
        /// First entry wanted.
        index: u32,
        /// Most entries wanted.
        count_max: u32,
    },
}

impl Call {
    /// Decodes a request's stub. Returns `None` for procedures that are not implemented.
    ///
    /// # Errors
    /// The stub is malformed.
    pub fn decode(opnum: u16, stub: &[u8]) -> Result<Option<Self>> {
        let ndr = &mut NdrReader::new(stub, "samr request");
        // The requested access rights do not matter.
        Ok(Some(match opnum {
            0 | 57 | 62 => Self::Connect,
            64 => Self::Connect5,
            1 => Self::Close(ndr.handle()?),
            5 => Self::LookupDomain(ndr.handle()?, ndr.unicode()?),
            6 => Self::EnumerateDomains(ndr.handle()?, ndr.u32()?),
            7 => {
                let server = ndr.handle()?;
                ndr.u32()?;
                Self::OpenDomain(server, ndr.sid()?)
            }
            8 | 46 => Self::QueryDomain(ndr.handle()?, ndr.u16()?),
            11 => Self::Enumerate(ndr.handle()?, Kind::Groups, ndr.u32()?),
            13 => Self::Enumerate(ndr.handle()?, Kind::Users, ndr.u32()?),
            15 => Self::Enumerate(ndr.handle()?, Kind::Aliases, ndr.u32()?),
            16 => Self::AliasMembership(ndr.handle()?, read_sids(ndr)?),
            17 => Self::LookupNames(ndr.handle()?, read_names(ndr)?),
            18 => Self::LookupIds(ndr.handle()?, read_ids(ndr)?),
            34 => {
                let domain = ndr.handle()?;
                ndr.u32()?;
                Self::OpenUser(domain, ndr.u32()?)
            }
            36 | 47 => Self::QueryUser(ndr.handle()?, ndr.u16()?),
            39 => Self::GroupsOfUser(ndr.handle()?),
            40 | 48 | 51 => Self::Display {
                domain: ndr.handle()?,
                class: ndr.u16()?,
                index: ndr.u32()?,
                count_max: ndr.u32()?,
            },
            _ => return Ok(None),
        }))
    }
}

/// Reads a SAMPR_PSID_ARRAY ([MS-SAMR] 2.2.7.5).
fn read_sids(ndr: &mut NdrReader<'_>) -> Result<Vec<Sid>> {
    let fault = ndr.fault(Fault::Value);
    let count = ndr.u32()?;
    if !ndr.pointer()? {
        return if count == 0 { Ok(Vec::new()) } else { Err(fault) };
    }
    let length = ndr.count(4)?;
    if usize::try_from(count) != Ok(length) || length > COUNT_MAX {
        return Err(fault);
    }
    for _ in 0..length {
        if !ndr.pointer()? {
            return Err(fault);
        }
    }
    (0..length).map(|_| ndr.sid()).collect()
}

/// Reads the head of a `size_is(1000), length_is(Count)` array. Returns the number of its elements,
/// each of at least `element_len` bytes.
fn varying_count(ndr: &mut NdrReader<'_>, element_len: usize) -> Result<usize> {
    let fault = ndr.fault(Fault::Value);
    let count = ndr.u32()?;
    // The array's capacity at the client, and the index of its first element.
    ndr.u32()?;
    ndr.expect(0)?;
    let length = ndr.count(element_len)?;
    let is_fine = usize::try_from(count) == Ok(length) && length <= COUNT_MAX;
    is_fine.then_some(length).ok_or(fault)
}

fn read_names(ndr: &mut NdrReader<'_>) -> Result<Vec<Text>> {
    let length = varying_count(ndr, 8)?;
    let heads: Vec<_> = (0..length).map(|_| ndr.unicode_head()).collect::<Result<_>>()?;
    heads.into_iter().map(|points| ndr.deferred(points)).collect()
}

fn read_ids(ndr: &mut NdrReader<'_>) -> Result<Vec<u32>> {
    let length = varying_count(ndr, 4)?;
    (0..length).map(|_| ndr.u32()).collect()
}
