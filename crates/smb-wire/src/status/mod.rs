//! NTSTATUS, the outcome of a request ([MS-ERREF] 2.3), with its name for logs and an explanation
//! for users.
//!
//! Both come from one table, so every status with a name has an explanation. A server may send any
//! number; unknown ones are kept and shown in hexadecimal.

mod table;

use std::fmt;

use table::Entry;

/// Outcome of a request as the server reports it ([MS-ERREF] 2.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NtStatus(pub u32);

/// Severity of a status: its two highest bits ([MS-ERREF] 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The request succeeded.
    Success,
    /// The request succeeded or is in progress, with additional information.
    Informational,
    /// The request succeeded in part.
    Warning,
    /// The request failed.
    Error,
}

impl NtStatus {
    /// Returns the severity.
    pub const fn severity(self) -> Severity {
        match self.0 >> 30 {
            0 => Severity::Success,
            1 => Severity::Informational,
            2 => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// Returns whether the request failed.
    pub const fn is_error(self) -> bool {
        matches!(self.severity(), Severity::Error)
    }

    /// Returns whether the request succeeded in part ([`Self::BUFFER_OVERFLOW`]) or reached an end
    /// ([`Self::NO_MORE_FILES`]).
    pub const fn is_warning(self) -> bool {
        matches!(self.severity(), Severity::Warning)
    }

    /// Returns whether the request succeeded or is in progress ([`Self::PENDING`]).
    pub const fn is_success(self) -> bool {
        matches!(self.severity(), Severity::Success | Severity::Informational)
    }

    /// Returns the name in [MS-ERREF], such as `STATUS_ACCESS_DENIED`.
    pub fn name(self) -> Option<&'static str> {
        self.entry().map(|entry| entry.name)
    }

    /// Returns the explanation for users, as a clause: "the server denies access".
    pub fn sentence(self) -> &'static str {
        match self.entry() {
            Some(entry) => entry.sentence,
            None if self.is_error() => "the server refuses with a status this program does not know",
            None => "the server answers with a status this program does not know",
        }
    }

    /// Returns advice for the user, if any is known.
    pub fn hint(self) -> Option<&'static str> {
        self.entry().and_then(|entry| entry.hint)
    }

    /// Returns whether the status rejects this user with these credentials from here at this time.
    /// An immediate retry has the same result, and counts towards an account lockout.
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

    /// Every rejected user gets the reason and advice.
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
    fn explanations_and_advice_are_clauses() {
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
            // A clause may begin with "SMB" or "DFS", otherwise with a lower-case letter.
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
