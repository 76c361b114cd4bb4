//! The files of the package, and Debian's package of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Parts;
use crate::process::run as run_command;

/// Completions ask the binary, so that they always fit it, and know jobs and logins.
const COMPLETIONS: [(&str, &str); 3] = [
    (
        "bash-completion/completions/ropeway",
        "source <(COMPLETE=bash ropeway)\n",
    ),
    (
        "zsh/vendor-completions/_ropeway",
        "#compdef ropeway\nsource <(COMPLETE=zsh ropeway)\n",
    ),
    (
        "fish/vendor_completions.d/ropeway.fish",
        "COMPLETE=fish ropeway | source\n",
    ),
];

/// Files of the checkout, and their places below /usr.
const FILES: [(&str, &str); 6] = [
    (
        "packaging/ropeway-serve.service",
        "lib/systemd/system/ropeway-serve.service",
    ),
    (
        "packaging/ropeway-mount@.service",
        "lib/systemd/system/ropeway-mount@.service",
    ),
    ("packaging/ropeway.sysusers", "lib/sysusers.d/ropeway.conf"),
    ("README.md", "share/doc/ropeway/README.md"),
    ("CHANGELOG.md", "share/doc/ropeway/CHANGELOG.md"),
    ("LICENSE-MIT", "share/doc/ropeway/copyright"),
];

/// Runs after the files are unpacked: makes the user of `ropeway-serve.service`. No service is started.
const AFTER_INSTALL: &str = "#!/bin/sh
set -e
if [ \"$1\" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers ropeway.conf
    fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
    fi
fi
";

/// Puts all files where a system has them, below `tree`.
pub(super) fn lay_out(parts: &Parts<'_>, tree: &Path) -> Result<()> {
    let usr = tree.join("usr");
    put(&usr.join("bin/ropeway"), parts.binary, 0o755)?;
    let root = parts.workspace.root();
    for (from, to) in FILES {
        put(&usr.join(to), &root.join(from), 0o644)?;
    }
    let docs = fs::read_dir(root.join("docs")).context("cannot list docs")?;
    for page in docs {
        let page = page?.path();
        if let Some(name) = page
            .file_name()
            .filter(|_| page.extension().is_some_and(|kind| kind == "md"))
        {
            put(&usr.join("share/doc/ropeway").join(name), &page, 0o644)?;
        }
    }
    for (name, text) in COMPLETIONS {
        write(&usr.join("share").join(name), text)?;
    }
    let pages = usr.join("share/man/man1");
    fs::create_dir_all(&pages)?;
    run_command(Command::new(parts.binary).arg("man").arg(&pages))?;
    let mut gzip = Command::new("gzip");
    gzip.args(["--best", "--no-name", "--recursive"]);
    run_command(gzip.arg(&pages))
}

/// Makes Debian's package of the files below `tree`, in `folder`.
pub(super) fn build(parts: &Parts<'_>, tree: &Path, folder: &Path) -> Result<PathBuf> {
    let control = tree.join("DEBIAN");
    write(&control.join("control"), &fields(parts))?;
    write(&control.join("postinst"), AFTER_INSTALL)?;
    fs::set_permissions(control.join("postinst"), fs::Permissions::from_mode(0o755))?;
    let package = folder.join(format!("ropeway_{}_{}.deb", parts.version, parts.architecture));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "--build"]);
    run_command(build.arg(tree).arg(&package))?;
    Ok(package)
}

/// Returns the package's fields (deb-control(5)).
fn fields(parts: &Parts<'_>) -> String {
    format!(
        "Package: ropeway\nVersion: {}\nArchitecture: {}\nMaintainer: The Ropeway developers <ropeway@localhost>\n\
         Section: net\nPriority: optional\nDepends: libc6 (>= {}), libgcc-s1\nRecommends: fuse3\n\
         Description: copies and shares files at the speed of the link\n \
         Moves files between disks, flash, NAS and sites: copies that resume and are verified,\n \
         an SMB client and server, mounts with a cache on flash, and a laboratory.\n",
        parts.version, parts.architecture, parts.glibc
    )
}

fn put(to: &Path, from: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn write(to: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}
