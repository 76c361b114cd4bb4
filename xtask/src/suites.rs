//! Test suites of file systems from crates.io: pjdfstest and fsx. They are installed below
//! `target/interop`, where `crates/cli/tests/mount/mount_suites.rs` finds them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::run as run_command;
use crate::workspace::Workspace;

/// Names and versions.
const SUITES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Installs missing suites. Returns those that are not available, with the reasons.
pub(crate) fn install(workspace: &Workspace) -> Vec<String> {
    let failures = SUITES.iter().filter_map(|(name, version)| {
        let root = workspace.target().join("interop");
        // They mostly wait for what they test, and to optimize them takes minutes.
        let error = install_crate(workspace, &root, name, Some(version), "dev").err()?;
        Some(format!("{name} {version}: {error:#}: suites of the mount"))
    });
    failures.collect()
}

/// Installs a crate from crates.io below `root`, built with this profile, unless it is there. Returns the
/// path of its program.
///
/// # Errors
/// It cannot be installed.
pub(crate) fn install_crate(
    workspace: &Workspace,
    root: &Path,
    name: &str,
    version: Option<&str>,
    profile: &str,
) -> Result<PathBuf> {
    let program = root.join("bin").join(name);
    if !program.is_file() {
        let version = version.map(|version| format!("--version={version}"));
        let mut install = workspace.cargo(["install", name, "--locked", "--profile", profile, "--root"]);
        install
            .arg(root)
            .args(version)
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        run_command(&mut install).with_context(|| format!("cannot install the crate {name}"))?;
    }
    Ok(program)
}
