//! The versions of Samba whose smbtorture tests the server, and whose own results stand beside.
//!
//! That of the system is installed as a package. The newer one comes from Debian's unstable suite:
//! its packages are unpacked in a folder of their own, where smbtorture runs by `chroot`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;

use super::results::Peers;
use crate::process::{capture, is_root, run as run_command};
use crate::tools;
use crate::workspace::Workspace;

/// A version of Samba.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Samba {
    /// That of Debian 12.
    #[default]
    #[value(name = "4.17")]
    V417,
    /// That of Debian's unstable suite.
    #[value(name = "4.25")]
    V425,
}

impl Samba {
    /// Returns major and minor number.
    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the suites, in the order in which they run.
    pub(super) fn suites(self) -> Vec<String> {
        let list = match self {
            Self::V417 => include_str!("../../conformance/suites.txt"),
            Self::V425 => include_str!("../../conformance/suites-4.25.txt"),
        };
        list.split_whitespace()
            .map(|name| format!("smb2.{name}"))
            .collect()
    }

    /// Returns the least number of tests that must pass in all suites together.
    pub(super) fn pass_min(self) -> usize {
        match self {
            Self::V417 => 440,
            Self::V425 => 555,
        }
    }

    /// Returns the results of other servers.
    pub(super) fn peers(self) -> Peers {
        match self {
            Self::V417 => Peers::parse(
                &["Samba 4.17.12 plain", "Samba 4.17.12 tuned", "smb-server 0.8"],
                include_str!("../../conformance/peers.tsv"),
            ),
            Self::V425 => Peers::parse(
                &["Samba 4.25.1 tuned"],
                include_str!("../../conformance/peers-4.25.tsv"),
            ),
        }
    }

    /// Returns the path of the results of the last run.
    pub(super) fn kept_path(self, workspace: &Workspace) -> PathBuf {
        workspace.root().join(match self {
            Self::V417 => "xtask/conformance/results.tsv",
            Self::V425 => "xtask/conformance/results-4.25.tsv",
        })
    }

    /// Returns the path of the document in the repository.
    pub(super) fn document(self) -> &'static str {
        match self {
            Self::V417 => "docs/conformance.md",
            Self::V425 => "docs/conformance-4.25.md",
        }
    }

    /// Returns smbtorture of this version; it is installed or unpacked if it is missing.
    ///
    /// # Errors
    /// It cannot be had, or the unstable suite has another version by now.
    pub(super) fn smbtorture(self, workspace: &Workspace) -> Result<Program> {
        match self {
            Self::V417 => Ok(Program {
                path: tools::require("smbtorture")?,
                root: None,
            }),
            Self::V425 => self.unpacked(workspace),
        }
    }

    fn unpacked(self, workspace: &Workspace) -> Result<Program> {
        ensure!(is_root(), "smbtorture {} needs root, for chroot", self.name());
        let root = workspace.target().join("samba").join(self.name());
        if !root.join("usr/bin/smbtorture").exists() {
            tools::require("debootstrap")?;
            run_command(&mut unpack(&root))
                .context("cannot unpack samba-testsuite from Debian's unstable suite")?;
        }
        let program = Program {
            path: PathBuf::from("/usr/bin/smbtorture"),
            root: Some(root.canonicalize()?),
        };
        let version = program.version()?;
        ensure!(
            version.starts_with(&format!("smbtorture {}.", self.name())),
            "Debian's unstable suite has another smbtorture by now: {version}"
        );
        Ok(program)
    }
}

/// Returns the command that unpacks smbtorture and all that it needs. Nothing is configured: that
/// runs scripts of packages which nobody needs here, and they may fail in the unstable suite.
fn unpack(root: &Path) -> Command {
    let flags = ["--foreign", "--include=samba-testsuite"];
    let then = "for package in var/cache/apt/archives/*.deb; do dpkg-deb -x \"$package\" .; done
        rm -rf var/cache/apt/archives; mkdir -p mnt";
    tools::debootstrap(root, "unstable", &flags, then)
}

/// An smbtorture.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Path of the program, within `root` if there is one.
    path: PathBuf,
    /// Folder of the system to which it belongs, if it is another one.
    root: Option<PathBuf>,
}

impl Program {
    /// Returns a command that runs it, and the path under which it sees `folder`.
    pub(super) fn command(&self, folder: &Path) -> (Command, PathBuf) {
        let Some(root) = &self.root else {
            return (Command::new(&self.path), folder.to_owned());
        };
        let mut command = Command::new("unshare");
        // The mounts are seen by this command alone and end with it.
        let script = "set -e; root=$1; mount --bind \"$2\" \"$root/mnt\"; mount --rbind /dev \"$root/dev\"
            mount --rbind /proc \"$root/proc\"; shift 2; exec chroot \"$root\" \"$@\"";
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(root).arg(folder).arg(&self.path);
        (command, PathBuf::from("/mnt"))
    }

    /// Returns what it says of its version: `smbtorture 4.17.12-Debian`.
    ///
    /// # Errors
    /// It cannot run.
    pub(super) fn version(&self) -> Result<String> {
        let (mut command, _) = self.command(Path::new("/tmp"));
        let said = capture(command.arg("--version"))?;
        Ok(said.lines().next().unwrap_or_default().trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_others_are_as_they_were_measured() {
        let peers = Samba::V417.peers();
        assert_eq!(peers.passes(None), [389, 436, 81]);
        assert_eq!(peers.of("smb2.connect", "smb2.connect"), ["pass", "pass", "fail"]);
        assert_eq!(peers.of("smb2.connect", "no such"), ["-"; 3]);
        assert_eq!(Samba::V425.peers().passes(None), [520]);
        assert_eq!((Samba::V417.suites().len(), Samba::V425.suites().len()), (59, 67));
    }
}
