//! NTSTATUS, the outcome of a request ([MS-ERREF] 2.3), with a name for logs and plain words for users.
//!
//! All of it comes from one table, so a status that has a name has a sentence. A server may send any number: unknown
//! ones are kept and shown in hexadecimal.

mod table;

use std::fmt;

use table::Entry;

/// The outcome of a request as the server reports it ([MS-ERREF] 2.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NtStatus(pub u32);

/// How bad a status is: its two topmost bits ([MS-ERREF] 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Done.
    Success,
    /// Done, or on its way, with something to know.
    Informational,
    /// Done in part.
    Warning,
    /// Not done.
    Error,
}

impl NtStatus {
    /// How bad it is.
    pub const fn severity(self) -> Severity {
        match self.0 >> 30 {
            0 => Severity::Success,
            1 => Severity::Informational,
            2 => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Whether the request failed.
    pub const fn is_error(self) -> bool {
        matches!(self.severity(), Severity::Error)
    }

    /// Whether the request was carried out in part ([`Self::BUFFER_OVERFLOW`]) or reached an end
    /// ([`Self::NO_MORE_FILES`]).
    pub const fn is_warning(self) -> bool {
        matches!(self.severity(), Severity::Warning)
    }

    /// Whether the request was carried out, or ([`Self::PENDING`]) is on its way.
    pub const fn is_success(self) -> bool {
        matches!(self.severity(), Severity::Success | Severity::Informational)
    }

    /// The name in [MS-ERREF], such as `STATUS_ACCESS_DENIED`.
    pub fn name(self) -> Option<&'static str> {
        self.entry().map(|entry| entry.name)
    }

    /// What happened, as a clause for users: "the server denies access".
    pub fn sentence(self) -> &'static str {
        match self.entry() {
            Some(entry) => entry.sentence,
            None if self.is_error() => "the server refuses with a status this program does not know",
            None => "the server answers with a status this program does not know",
        }
    }

    /// What the user can do about it, if anything is known to help.
    pub fn hint(self) -> Option<&'static str> {
        self.entry().and_then(|entry| entry.hint)
    }

    /// Whether it says that this user, with this proof, from here and now, may not log in: another attempt at once ends
    /// the same, and counts towards a lock of the account.
    pub const fn refuses_login(self) -> bool {
        matches!(
            self,
            Self::LOGON_FAILURE
                | Self::NO_SUCH_USER
                | Self::WRONG_PASSWORD
                | Self::ILL_FORMED_PASSWORD
                | Self::ACCOUNT_RESTRICTION
                | Self::INVALID_LOGON_HOURS
                | Self::INVALID_WORKSTATION
                | Self::PASSWORD_EXPIRED
                | Self::PASSWORD_MUST_CHANGE
                | Self::ACCOUNT_DISABLED
                | Self::ACCOUNT_EXPIRED
                | Self::ACCOUNT_LOCKED_OUT
                | Self::LOGON_TYPE_NOT_GRANTED
                | Self::NOLOGON_WORKSTATION_TRUST_ACCOUNT
                | Self::AUTHENTICATION_FIREWALL_FAILED
                | Self::NTLM_BLOCKED
        )
    }

    fn entry(self) -> Option<Entry> {
        table::entry(self.0)
    }
}

impl fmt::Display for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "0x{:08X}", self.0),
        }
    }
}

impl fmt::Debug for NtStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_severities() {
        assert_eq!(NtStatus::ACCESS_DENIED, NtStatus(0xC000_0022));
        assert_eq!(NtStatus::ACCESS_DENIED.to_string(), "STATUS_ACCESS_DENIED");
        assert_eq!(NtStatus(0xC123_4567).to_string(), "0xC1234567");
        assert_eq!(NtStatus(0xC123_4567).name(), None);
        assert!(NtStatus::ACCESS_DENIED.is_error());
        assert!(NtStatus::BUFFER_OVERFLOW.is_warning() && !NtStatus::BUFFER_OVERFLOW.is_error());
        assert!(NtStatus::SUCCESS.is_success() && NtStatus::PENDING.is_success());
        assert_eq!(NtStatus(0x4000_0000).severity(), Severity::Informational);
    }

    /// Whoever is not let in learns why, and what to do about it.
    #[test]
    fn refused_logins_have_hints() {
        let refusals: Vec<_> = table::ALL
            .iter()
            .filter(|status| status.refuses_login())
            .collect();
        assert_eq!(refusals.len(), 16);
        for status in refusals {
            let is_about_computers = *status == NtStatus::NOLOGON_WORKSTATION_TRUST_ACCOUNT;
            assert!(status.hint().is_some() || is_about_computers, "{status}");
        }
        assert!(!NtStatus::ACCESS_DENIED.refuses_login(), "of a file, as a rule");
    }

    #[test]
    fn what_users_read_is_a_clause() {
        let texts = table::ALL
            .iter()
            .flat_map(|status| [Some(status.sentence()), status.hint()])
            .chain([
                Some(NtStatus(0xC123_4567).sentence()),
                Some(NtStatus(1).sentence()),
            ])
            .flatten();
        for text in texts {
            assert!(!text.is_empty() && !text.ends_with('.'), "{text}");
            assert!(!text.contains("STATUS_"), "{text}");
            // "SMB" and "DFS" may begin a clause, other words begin small.
            let first = text.split(' ').next().unwrap();
            assert!(
                first.starts_with(char::is_lowercase) || first.chars().all(char::is_uppercase),
                "{text}"
            );
        }
    }

    #[test]
    fn the_table_is_sorted_and_named() {
        assert!(table::ALL.is_sorted(), "by number, so that people find their way");
        assert!(table::ALL.len() > 130);
        for status in table::ALL {
            assert!(status.name().unwrap().starts_with("STATUS_"), "{status}");
        }
    }
}
