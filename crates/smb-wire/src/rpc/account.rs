//! Types that the account interfaces share: SIDs with names, and context handles.

use crate::Text;
use crate::security::Sid;

/// Type of an account: SID_NAME_USE ([MS-LSAT] 2.2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SidKind {
    /// A user.
    User = 1,
    /// A group of a domain.
    Group = 2,
    /// A domain.
    Domain = 3,
    /// A group local to one machine.
    Alias = 4,
    /// A well-known group, such as Everyone.
    WellKnownGroup = 5,
    /// The server does not know the SID.
    Unknown = 8,
}

/// Issuer of relative ids: a machine, or a well-known authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Name; can be empty.
    pub name: Text,
    /// SID of the domain. An account's SID has one more number, the relative id.
    pub sid: Sid,
}

/// An account that the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Type.
    pub kind: SidKind,
    /// Name in its domain; empty if the account is the domain itself.
    pub name: Text,
    /// Domain.
    pub domain: Domain,
    /// Relative id, the last number of its SID; `None` if the account is the domain itself.
    pub rid: Option<u32>,
}

impl Account {
    /// Returns the account's SID.
    pub fn sid(&self) -> Sid {
        let Some(rid) = self.rid else {
            return self.domain.sid.clone();
        };
        let mut numbers = self.domain.sid.sub_authorities().to_vec();
        numbers.push(rid);
        // A domain SID with the maximum number of sub-authorities cannot have accounts.
        Sid::new(self.domain.sid.authority(), &numbers).unwrap_or_else(|| self.domain.sid.clone())
    }
}

/// A context handle (C706 14.3.12): 4 bytes of attributes, 16 of a UUID. All zeros mean no handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContextHandle(pub [u8; 20]);

/// The objects a client has opened on one pipe, by handle.
#[derive(Clone, Debug)]
pub struct Handles<T> {
    open: Vec<(u64, T)>,
    last: u64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            last: 0,
        }
    }
}

impl<T> Handles<T> {
    /// Most open handles of one pipe. A guess: tools have a handful open.
    pub const OPEN_MAX: usize = 256;

    /// Stores an object and returns its handle, or `None` if too many are open.
    pub fn open(&mut self, what: T) -> Option<ContextHandle> {
        if self.open.len() >= Self::OPEN_MAX {
            return None;
        }
        self.last += 1;
        self.open.push((self.last, what));
        let mut bytes = [0; 20];
        bytes[4..12].copy_from_slice(&self.last.to_le_bytes());
        Some(ContextHandle(bytes))
    }

    /// Returns the object of a handle.
    pub fn get(&self, handle: ContextHandle) -> Option<&T> {
        self.position(handle).map(|at| &self.open[at].1)
    }

    /// Closes a handle. Returns whether it was open.
    pub fn close(&mut self, handle: ContextHandle) -> bool {
        let at = self.position(handle);
        if let Some(at) = at {
            self.open.remove(at);
        }
        at.is_some()
    }

    fn position(&self, handle: ContextHandle) -> Option<usize> {
        let bytes = handle.0;
        let number = u64::from_le_bytes(*bytes[4..].first_chunk()?);
        let rest_is_zero = bytes[..4].iter().chain(&bytes[12..]).all(|byte| *byte == 0);
        let at = self.open.iter().position(|(own, _)| *own == number)?;
        rest_is_zero.then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_bounded_and_not_given_twice() {
        let mut handles = Handles::default();
        let all: Vec<_> = (0..Handles::<usize>::OPEN_MAX)
            .map(|number| handles.open(number).unwrap())
            .collect();
        assert_eq!(handles.open(0), None);
        assert_eq!(handles.get(all[7]), Some(&7));
        assert!(handles.close(all[7]) && !handles.close(all[7]));
        assert_eq!(handles.get(all[7]), None);
        let new = handles.open(9).unwrap();
        assert!(!all.contains(&new));
        let mut other = new;
        other.0[19] = 1;
        assert_eq!(handles.get(other), None);
        assert_eq!(handles.get(ContextHandle::default()), None);
    }

    #[test]
    fn accounts_have_sids() {
        let domain = Domain {
            name: "BUILTIN".into(),
            sid: "S-1-5-32".parse().unwrap(),
        };
        let mut account = Account {
            kind: SidKind::Alias,
            name: "Users".into(),
            domain,
            rid: Some(545),
        };
        assert_eq!(account.sid().to_string(), "S-1-5-32-545");
        account.rid = None;
        assert_eq!(account.sid().to_string(), "S-1-5-32");
    }
}
