//! The oldest glibc that a binary runs with, by the versions of the symbols that it needs.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::capture;

/// Newest version that a package may need: that of Debian 12. A binary that is built on a newer system
/// may need a newer one.
const NEWEST: Version = Version(2, 36);

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Returns the version that a binary needs.
///
/// # Errors
/// It is newer than what packages promise, or the binary cannot be read.
pub(crate) fn check(binary: &Path) -> Result<Version> {
    let text = capture(
        Command::new("readelf")
            .args(["--version-info", "--wide"])
            .arg(binary),
    )?;
    let needed = needed(&text).context("the binary names no version of glibc: it is not linked with it")?;
    ensure!(
        needed <= NEWEST,
        "the binary needs glibc {needed}, packages promise {NEWEST}: build it on Debian 12 or an older system"
    );
    Ok(needed)
}

/// Returns the newest version in readelf's list of needed symbol versions.
fn needed(text: &str) -> Option<Version> {
    let names = text.split(|c: char| c.is_whitespace() || c == '(' || c == ')');
    names.filter_map(|name| parse(name.strip_prefix("GLIBC_")?)).max()
}

fn parse(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(str::parse);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Version(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_counts() {
        let text = "  0x0010: Name: GLIBC_2.9  Flags: none  Version: 12\n  0x0020:   Name: GLIBC_2.35  Flags: none\n \
                    0x0030: Name: GLIBC_2.2.5 (GLIBC_PRIVATE) GCC_4.2.0";
        assert_eq!(needed(text), Some(Version(2, 35)));
        assert_eq!(needed("Name: GCC_3.0"), None);
        assert!(Version(2, 9) < Version(2, 35));
    }
}
