//! `cargo xtask package`: the files that users install, in `target/package`.
//!
//! ```text
//! binary (profile dist) ─ glibc: the oldest one that it runs with
//!   ├ ropeway_VERSION_ARCH.deb            deb: manual pages, completions, units, system user
//!   ├ ropeway-VERSION-ARCH-linux.tar.gz   the same files, for other distributions
//!   ├ Containerfile                       an image of `ropeway serve`
//!   └ SHA256SUMS
//! ```
//!
//! The step `package` of `ci` makes them of the release binary, and installs, uses and removes the
//! package on bare systems ([`bare`]).

pub(crate) mod bare;
mod deb;
mod glibc;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{capture, run as run_command};
use crate::step::{self, Outcome};
use crate::workspace::Workspace;

/// Options of `package`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Package this binary (default: a new build with the profile `dist`)
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Also install, use and remove the package on bare systems (needs root and debootstrap)
    #[arg(long)]
    test: bool,
}

/// What a package is made of.
pub(crate) struct Parts<'a> {
    pub(crate) workspace: &'a Workspace,
    /// The stripped binary.
    pub(crate) binary: &'a Path,
    pub(crate) version: String,
    /// Debian's name of the processor.
    pub(crate) architecture: &'static str,
    /// Oldest version of glibc that the binary runs with.
    pub(crate) glibc: glibc::Version,
}

/// Makes the packages.
///
/// # Errors
/// The build or a part of the packaging fails, or a test on a bare system.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let built = step::shipped(workspace, arguments.binary.as_deref())?;
    let package = make(workspace, &built)?;
    if arguments.test {
        let tested = bare::test_all(workspace, &package)?;
        println!("{}", tested.join("\n"));
    }
    Ok(())
}

/// The step of `ci`: packages the release binary, whose code differs from the shipped one's by its
/// optimization only, and tests the package.
///
/// # Errors
/// As [`run`].
pub(crate) fn ci_step(workspace: &Workspace) -> Result<Outcome> {
    step::build(workspace)?;
    let package = make(workspace, &workspace.ropeway())?;
    if let Some(reason) = bare::missing() {
        let mut outcome = Outcome::passed("made, not installed");
        outcome.left_out.push(reason);
        return Ok(outcome);
    }
    Ok(Outcome::passed(bare::test_all(workspace, &package)?.join("; ")))
}

/// Makes all packages of a binary. Returns the path of Debian's.
fn make(workspace: &Workspace, built: &Path) -> Result<PathBuf> {
    let folder = workspace.target().join("package");
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot empty {}", folder.display()));
        }
        _ => fs::create_dir_all(&folder)?,
    }
    let binary = folder.join("ropeway");
    run_command(Command::new("strip").arg("-o").arg(&binary).arg(built))?;
    let parts = Parts {
        workspace,
        binary: &binary,
        version: version(&binary)?,
        architecture: architecture()?,
        glibc: glibc::check(&binary)?,
    };
    let tree = folder.join("tree");
    deb::lay_out(&parts, &tree)?;
    let package = deb::build(&parts, &tree, &folder)?;
    let archive = format!(
        "ropeway-{}-{}-linux.tar.gz",
        parts.version,
        std::env::consts::ARCH
    );
    fs::remove_dir_all(tree.join("DEBIAN"))?;
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--gzip",
        "--owner=0",
        "--group=0",
        "--sort=name",
        "--file",
    ]);
    run_command(
        tar.arg(folder.join(&archive))
            .arg("--directory")
            .arg(&tree)
            .arg("."),
    )?;
    fs::remove_dir_all(&tree)?;
    fs::copy(
        workspace.root().join("packaging/Containerfile"),
        folder.join("Containerfile"),
    )?;
    let file = package.file_name().context("a package has a name")?;
    let mut sums = Command::new("sha256sum");
    sums.current_dir(&folder)
        .arg("ropeway")
        .arg(file)
        .args([&archive, "Containerfile"]);
    fs::write(folder.join("SHA256SUMS"), capture(&mut sums)?)?;
    println!(
        "── {} in {}",
        file.to_string_lossy(),
        workspace.short(&folder).display()
    );
    Ok(package)
}

/// Returns the version that a binary says it has.
fn version(binary: &Path) -> Result<String> {
    let said = capture(Command::new(binary).arg("--version"))?;
    let version = said.trim().strip_prefix("ropeway ");
    let version = version.with_context(|| format!("`ropeway --version` said {said:?}"))?;
    let is_version = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte))
    };
    ensure!(is_version(version), "{version:?} is no version");
    Ok(version.to_owned())
}

/// Returns Debian's name of this processor.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("packages are made for x86_64 and aarch64, not for {other}"),
    }
}
