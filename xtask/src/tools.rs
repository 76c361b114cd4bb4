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

/// A program, its package, and what it is used for.
type Tool = (&'static str, &'static str, &'static str);

/// Package names are those of Debian 12 and Ubuntu 24.04.
const TOOLS: &[Tool] = &[
    ("rsync", "rsync", "independent comparison, benchmark"),
    ("diff", "diffutils", "independent comparison"),
    ("getfattr", "attr", "comparison of extended attributes"),
    ("setfacl", "acl", "tests of POSIX ACLs"),
    ("mkfs.ext4", "e2fsprogs", "loop file systems"),
    ("mkfs.xfs", "xfsprogs", "loop file systems, reflinks"),
    ("mkfs.btrfs", "btrfs-progs", "loop file systems, reflinks"),
    ("mkfs.vfat", "dosfstools", "FAT images"),
    ("fusefat", "fusefat", "FAT semantics without a kernel driver"),
    (
        "mount.exfat-fuse",
        "exfat-fuse",
        "exFAT semantics without a kernel driver",
    ),
    ("mkfs.exfat", "exfatprogs", "exFAT images"),
    ("fusermount3", "fuse3", "FUSE mounts"),
    ("losetup", "mount", "loop devices"),
    ("unshare", "util-linux", "namespaces"),
    ("debootstrap", "debootstrap", "bare systems for the package"),
    ("ip", "iproute2", "the emulated link"),
    ("smbd", "samba", "private SMB servers of the tests"),
    ("pdbedit", "samba-common-bin", "their users"),
    (
        "smbclient",
        "smbclient",
        "independent SMB client: tests, benchmark",
    ),
    ("smbtorture", "samba-testsuite", "conformance of the server"),
    // Debian's samba-testsuite does not install without it.
    ("winbindd", "winbind", "conformance of the server"),
    ("krb5kdc", "krb5-kdc", "private Kerberos servers of the tests"),
    ("kadmin.local", "krb5-admin-server", "their users and services"),
    ("kinit", "krb5-user", "tickets"),
    ("keyctl", "keyutils", "whether there are keyrings to test with"),
    ("rclone", "rclone", "benchmark over the emulated link"),
    ("fio", "fio", "benchmark of storage"),
    ("chromium", "chromium", "the page of a lab's report"),
    ("sqlite3", "sqlite3", "a database on a mount"),
    // Debian keeps its other programs outside of PATH.
    ("pg_lsclusters", "postgresql", "a database on a mount"),
    (
        "strace",
        "strace",
        "kills and failures at a system call, comparison of recordings",
    ),
    ("git", "git", "comparison of recordings"),
    ("faketime", "faketime", "runs with another clock"),
    ("tmux", "tmux", "views that fill a terminal"),
    ("tshark", "tshark", "an independent reader of what is sent"),
];

/// A VFS module that tests load, and Debian's package for it.
const SAMBA_MODULE: &str = "shadow_copy2.so";
const SAMBA_MODULES: &str = "samba-vfs-modules";

/// Debian's package with the library of the feature `kerberos`.
const KERBEROS_PACKAGE: &str = "libkrb5-dev";

/// Whether a program can be linked with MIT's GSS-API, which the feature `kerberos` needs.
pub(crate) fn kerberos_links() -> bool {
    let Ok(folder) = tempfile::tempdir() else {
        return false;
    };
    let mut link = Command::new("cc");
    link.args(["-shared", "-lgssapi_krb5", "-o"])
        .arg(folder.path().join("probe"));
    capture(&mut link).is_ok()
}

/// Returns the note about the missing library, if it is missing.
pub(crate) fn missing_kerberos() -> Option<String> {
    (!kerberos_links()).then(|| {
        format!("libgssapi_krb5.so (package {KERBEROS_PACKAGE}): the feature `kerberos` and its tests")
    })
}

/// Looks for all programs, and installs missing ones where that is allowed.
///
/// # Errors
/// A C compiler, rustfmt or clippy is missing and cannot be installed.
pub(crate) fn run(workspace: &Workspace) -> Result<Outcome> {
    require_compilers(workspace)?;
    let missing = missing();
    if !missing.is_empty() || samba_modules_there() == Some(false) || !kerberos_links() {
        install(&missing);
    }
    let left_out: Vec<String> = self::missing()
        .iter()
        .map(|(program, package, used_for)| format!("{program} (package {package}): {used_for}"))
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

/// Returns the path of one of the programs; as root on a system with apt a missing one is
/// installed.
///
/// # Errors
/// The program is missing; the message names its package.
pub(crate) fn require(program: &str) -> Result<PathBuf> {
    if let Some(path) = find_program(program) {
        return Ok(path);
    }
    let tool = TOOLS.iter().find(|(known, ..)| *known == program);
    let package = tool.map_or(program, |(_, package, _)| package);
    if let Some(tool) = tool {
        install(&[tool]);
    }
    find_program(program).with_context(|| format!("not installed: `apt-get install {package}`"))
}

fn missing() -> Vec<&'static Tool> {
    TOOLS
        .iter()
        .filter(|(program, ..)| find_program(program).is_none())
        .collect()
}

/// Whether Samba's VFS modules are installed, which Debian has in a package of their own; `None`
/// without smbd.
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
    let mut packages: Vec<&str> = missing.iter().map(|(_, package, _)| *package).collect();
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
            "programs are missing, and there is no apt-get; their packages in Debian: {}",
            packages.join(" ")
        );
        return;
    }
    if !is_root() {
        println!("programs are missing, and this is not root; install them by hand:\n  sudo {by_hand}");
        return;
    }
    if let Err(error) = apt(&["update", "-q"]) {
        println!("cannot update the package lists: {error:#}");
    }
    if apt_install(&packages).is_ok() {
        return;
    }
    // The other packages are installed even if one cannot be.
    for package in packages {
        if let Err(error) = apt_install(&[package]) {
            println!("cannot install {package}: {error:#}");
        }
    }
}

/// Returns the command that makes a system of a release of Debian in `root`, with flags of debootstrap. `then`
/// are commands of a shell in that folder, after which it is complete.
pub(crate) fn debootstrap(root: &Path, release: &str, flags: &[&str], then: &str) -> Command {
    // From where this system gets its own packages.
    let script = format!(
        "set -e; root=$1 release=$2; shift 2; rm -rf \"$root.part\" \"$root\"; mkdir -p \"$root.part\"
        . /etc/os-release
        from=$(apt-get indextargets --format '$(REPO_URI)' \"Codename: $VERSION_CODENAME\" | head -n 1)
        debootstrap --variant=minbase \"$@\" \"$release\" \"$root.part\" $from
        (cd \"$root.part\"; {then})
        mv \"$root.part\" \"$root\""
    );
    let mut make = Command::new("sh");
    make.args(["-c", &script, "sh"])
        .arg(root)
        .arg(release)
        .args(flags);
    make
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

/// Checks the compilers, since cargo's own messages about missing ones do not help.
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
