//! Test suites of file systems from crates.io: pjdfstest and fsx. They are installed below
//! `target/interop`, where `crates/cli/tests/mount_suites.rs` finds them.

use std::process::Command;

use anyhow::Result;

use crate::process::run as run_command;
use crate::workspace::Workspace;

/// Names and versions.
const SUITES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Installs missing suites. Returns those that are not available, with the reasons.
pub(crate) fn install(workspace: &Workspace) -> Vec<String> {
    let failures = SUITES.iter().filter_map(|(name, version)| {
        let error = install_one(workspace, name, version).err()?;
        Some(format!("{name} {version}: {error:#}: suites of the mount"))
    });
    failures.collect()
}

fn install_one(workspace: &Workspace, name: &str, version: &str) -> Result<()> {
    let folder = workspace.target().join("interop");
    if folder.join("bin").join(name).is_file() {
        return Ok(());
    }
    let mut install = Command::new("cargo");
    install
        .args(["install", "--quiet", "--locked", "--version", version, "--root"])
        .arg(&folder)
        .arg(name);
    run_command(&mut install)
}
