//! Bare systems: Debian's smallest root of two releases, where the package is installed, used and
//! removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::ahead::Ahead;
use crate::process::{capture, find_program, is_root, run as run_command};
use crate::tools::debootstrap;
use crate::workspace::Workspace;

/// Debian's releases: the oldest that packages are made for, and the newest.
const RELEASES: [&str; 2] = ["bookworm", "trixie"];

/// What is done in the bare system. Ends at the first failure.
const SCRIPT: &str = r#"
set -eux
export HOME=/root
dpkg --install /package.deb
ropeway --version
test -s /usr/share/man/man1/ropeway.1.gz
test -s /usr/share/man/man1/ropeway-copy.1.gz
bash -c 'source /usr/share/bash-completion/completions/ropeway; complete -p ropeway' > /dev/null
rm -rf /try; mkdir -p /try/photos /try/copy; cd /try
echo content > photos/a; ln photos/a photos/b
ropeway copy photos copy --verify
ropeway check photos copy/photos --checksum
# Names are looked up by the system's resolver: one that is there, and one that is not.
echo '127.0.0.1 near' > /etc/hosts
export ROPEWAY_PASSWORD=secret
ropeway serve data=/try/copy --listen 127.0.0.1:4450 --user ann & server=$!
tries=0
until ropeway ls smb://ann@near:4450/data > listed 2> failed; do
    tries=$((tries + 1)); test $tries -lt 100 || { cat failed; exit 1; }
    sleep 0.1
done
grep -q photos listed
ropeway copy smb://ann@near:4450/data/photos back --no-target-directory
kill $server; wait $server
cmp photos/a back/a
if ropeway ls smb://ann@nowhere.invalid/ 2> failed; then exit 1; fi
grep -q 'cannot find the server nowhere.invalid' failed
dpkg --purge ropeway
test ! -e /usr/bin/ropeway -a ! -e /usr/share/doc/ropeway -a ! -e /usr/share/man/man1/ropeway.1.gz
rm -rf /try /root/.local /root/.config
"#;

/// Returns why there can be no bare system; `None` if there can.
pub(crate) fn missing() -> Option<String> {
    if !is_root() {
        return Some("bare systems: only root can make them".to_owned());
    }
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !about.lines().any(|line| line == "ID=debian") {
        return Some("bare systems: they come from where a Debian system gets its packages".to_owned());
    }
    let program = ["debootstrap", "unshare"]
        .into_iter()
        .find(|name| find_program(name).is_none());
    program.map(|name| format!("bare systems: {name} (package debootstrap, util-linux)"))
}

/// Begins to make the bare systems in the background.
pub(crate) fn make_ahead(workspace: &Workspace, ahead: &Ahead) {
    if missing().is_none() {
        let made = RELEASES.map(|release| Some((release, make_command(workspace, release)?)));
        ahead.start(workspace, made.into_iter().flatten().collect());
    }
}

/// Installs, uses and removes the package on each bare system. Returns a line for each.
///
/// # Errors
/// There is no such system and it cannot be made, or the package fails there.
pub(crate) fn test_all(workspace: &Workspace, package: &Path) -> Result<Vec<String>> {
    RELEASES
        .iter()
        .map(|release| test(workspace, release, package))
        .collect()
}

fn folder(workspace: &Workspace, release: &str) -> PathBuf {
    workspace.target().join("bare").join(release)
}

/// Returns the command that makes a system; `None` if there is one.
fn make_command(workspace: &Workspace, release: &str) -> Option<Command> {
    let root = folder(workspace, release);
    if root.join("begin").exists() {
        return None;
    }
    Some(debootstrap(&root, release, &[], "touch begin"))
}

fn test(workspace: &Workspace, release: &str, package: &Path) -> Result<String> {
    let root = folder(workspace, release);
    if let Some(mut make) = make_command(workspace, release) {
        run_command(&mut make).with_context(|| format!("cannot make a bare {release}"))?;
    }
    fs::copy(package, root.join("package.deb"))?;
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--fork", "--kill-child"]);
    inside.arg(format!("--mount-proc={}", root.join("proc").display()));
    inside.arg("chroot").arg(&root).args(["/bin/sh", "-c", SCRIPT]);
    let said = capture(&mut inside).with_context(|| format!("the package fails on a bare {release}"))?;
    fs::remove_file(root.join("package.deb"))?;
    let version = said.lines().find_map(|line| line.strip_prefix("ropeway "));
    let version = version.with_context(|| format!("ropeway named no version on {release}"))?;
    ensure!(
        !root.join("usr/bin/ropeway").exists(),
        "ropeway is still on {release}"
    );
    Ok(format!("{version} installed, used and removed on {release}"))
}
