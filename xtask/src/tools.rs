//! The `tools` step: programs that checks and benchmarks call, and their packages.
//!
//! As root on a system with apt it installs the missing ones; otherwise it names the command. A missing
//! program is no failure: its checks report that they were left out. Only a compiler, rustfmt and clippy
//! are required.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{capture, find_program, is_root, run as run_command};
use crate::step::Outcome;
use crate::workspace::Workspace;

struct Tool {
    program: &'static str,
    package: &'static str,
    used_for: &'static str,
}

const fn tool(program: &'static str, package: &'static str, used_for: &'static str) -> Tool {
    Tool {
        program,
        package,
        used_for,
    }
}

/// Package names are those of Debian 12 and Ubuntu 24.04.
const TOOLS: &[Tool] = &[
    tool("rsync", "rsync", "independent comparison, benchmark"),
    tool("diff", "diffutils", "independent comparison"),
    tool("getfattr", "attr", "comparison of extended attributes"),
    tool("setfacl", "acl", "tests of POSIX ACLs"),
    tool("mkfs.ext4", "e2fsprogs", "loop file systems"),
    tool("mkfs.xfs", "xfsprogs", "loop file systems, reflinks"),
    tool("mkfs.btrfs", "btrfs-progs", "loop file systems, reflinks"),
    tool("mkfs.vfat", "dosfstools", "FAT images"),
    tool("fusefat", "fusefat", "FAT semantics without a kernel driver"),
    tool(
        "mount.exfat-fuse",
        "exfat-fuse",
        "exFAT semantics without a kernel driver",
    ),
    tool("mkfs.exfat", "exfatprogs", "exFAT images"),
    tool("fusermount3", "fuse3", "FUSE mounts"),
    tool("losetup", "mount", "loop devices"),
    tool("unshare", "util-linux", "namespaces"),
    tool("ip", "iproute2", "the emulated link"),
    tool("smbd", "samba", "private SMB servers of the tests"),
    tool("pdbedit", "samba-common-bin", "their users"),
    tool(
        "smbclient",
        "smbclient",
        "independent SMB client: tests, benchmark",
    ),
    tool("smbtorture", "samba-testsuite", "conformance of the server"),
    // Debian's samba-testsuite does not install without it.
    tool("winbindd", "winbind", "conformance of the server"),
    tool("krb5kdc", "krb5-kdc", "private Kerberos servers of the tests"),
    tool("kadmin.local", "krb5-admin-server", "their users and services"),
    tool("kinit", "krb5-user", "tickets"),
    tool("keyctl", "keyutils", "whether there are keyrings to test with"),
    tool("rclone", "rclone", "benchmark over the emulated link"),
    tool("chromium", "chromium", "the page of a lab's report"),
    tool("strace", "strace", "kills and failures at a system call"),
    tool("faketime", "faketime", "runs with another clock"),
];

/// A VFS module that tests load, and Debian's folders for it.
const SAMBA_MODULE: &str = "shadow_copy2.so";
const SAMBA_MODULES: &str = "samba-vfs-modules";

/// Debian's package with the library of the feature `kerberos`.
const KERBEROS_PACKAGE: &str = "libkrb5-dev";

/// Whether a program can be linked with MIT's GSS-API, as the feature `kerberos` wants.
pub(crate) fn kerberos_links() -> bool {
    let Ok(folder) = tempfile::tempdir() else {
        return false;
    };
    let mut link = Command::new("cc");
    link.args(["-shared", "-lgssapi_krb5", "-o"])
        .arg(folder.path().join("probe"));
    capture(&mut link).is_ok()
}

/// What is said where it cannot.
pub(crate) fn missing_kerberos() -> Option<String> {
    (!kerberos_links()).then(|| {
        format!("libgssapi_krb5.so (package {KERBEROS_PACKAGE}): the feature `kerberos` and its tests")
    })
}

/// Looks for everything, installs what may be installed.
///
/// # Errors
/// If a C compiler, rustfmt or clippy is missing and cannot be had.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    require_compilers(workspace)?;
    let missing = missing();
    if !missing.is_empty() || samba_modules_there() == Some(false) || !kerberos_links() {
        install(&missing);
    }
    let left_out: Vec<String> = self::missing()
        .iter()
        .map(|tool| format!("{} (package {}): {}", tool.program, tool.package, tool.used_for))
        .collect();
    let there = TOOLS.len() - left_out.len();
    let mut left_out = left_out;
    left_out.extend(missing_samba_modules());
    left_out.extend(missing_kerberos());
    left_out.extend(crate::interop::install(workspace));
    left_out.extend(crate::suites::install(workspace));
    Ok(Outcome {
        note: format!("{there} of {} programs", TOOLS.len()),
        skipped: false,
        left_out,
    })
}

/// Where one of the tools is; as root on a system with apt it is installed first if it is missing.
///
/// # Errors
/// Names the package if it is not there.
pub(crate) fn require(program: &str) -> Result<PathBuf> {
    if let Some(path) = find_program(program) {
        return Ok(path);
    }
    let tool = TOOLS.iter().find(|tool| tool.program == program);
    let package = tool.map_or(program, |tool| tool.package);
    if let Some(tool) = tool {
        install(&[tool]);
    }
    find_program(program).with_context(|| format!("not installed: `apt-get install {package}`"))
}

fn missing() -> Vec<&'static Tool> {
    TOOLS
        .iter()
        .filter(|tool| find_program(tool.program).is_none())
        .collect()
}

/// Samba's VFS modules are no programs; Debian has most of them in a package of their own.
fn samba_modules_there() -> Option<bool> {
    let build = capture(Command::new(find_program("smbd")?).arg("-b")).ok()?;
    let folder = build
        .lines()
        .find_map(|line| line.trim().strip_prefix("MODULESDIR:"))?;
    Some(Path::new(folder.trim()).join("vfs").join(SAMBA_MODULE).is_file())
}

fn missing_samba_modules() -> Option<String> {
    (samba_modules_there() == Some(false)).then(|| {
        format!(
            "{SAMBA_MODULE} (package {SAMBA_MODULES}): streams, ACLs and snapshots of the private SMB servers"
        )
    })
}

fn install(missing: &[&Tool]) {
    let mut packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    if packages.contains(&"samba") || samba_modules_there() == Some(false) {
        packages.push(SAMBA_MODULES);
    }
    if !kerberos_links() {
        packages.push(KERBEROS_PACKAGE);
    }
    packages.sort_unstable();
    packages.dedup();
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if find_program("apt-get").is_none() {
        println!(
            "missing here, and there is no apt-get; packages as Debian names them: {}",
            packages.join(" ")
        );
        return;
    }
    if !is_root() {
        println!("missing; not root, so install them by hand:\n  sudo {by_hand}");
        return;
    }
    if let Err(error) = apt(&["update", "-q"]) {
        println!("the package lists are old: {error:#}");
    }
    if apt_install(&packages).is_ok() {
        return;
    }
    // One package that is not to be had must not keep the others away.
    for package in packages {
        if let Err(error) = apt_install(&[package]) {
            println!("{package} is not to be had: {error:#}");
        }
    }
}

fn apt_install(packages: &[&str]) -> Result<()> {
    let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    run_command(&mut command)
}

/// Cargo names its lack of these in words that do not help.
fn require_compilers(workspace: &Workspace) -> Result<()> {
    if ["cc", "gcc", "clang"]
        .iter()
        .all(|name| find_program(name).is_none())
    {
        bail!("no C compiler: `apt-get install gcc libc6-dev` (some crates compile C)");
    }
    for (component, arguments) in [
        ("rustfmt", ["fmt", "--version"]),
        ("clippy", ["clippy", "--version"]),
    ] {
        if capture(&mut workspace.cargo(arguments)).is_ok() {
            continue;
        }
        println!("{component} is missing");
        let mut add = Command::new("rustup");
        if run_command(add.args(["component", "add", component])).is_err() {
            bail!("{component} is missing: `rustup component add {component}`");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_there_is_found_and_another_named() {
        assert!(require("sh").is_ok_and(|path| path.ends_with("sh")));
        // Not in the list: nothing is installed.
        let error = require("no-such-program").unwrap_err();
        assert!(
            error.to_string().contains("apt-get install no-such-program"),
            "{error}"
        );
    }
}
