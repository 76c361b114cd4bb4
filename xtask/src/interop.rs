//! Installs SMB clients in versions that the system does not package: rclone, and two Python
//! packages. `crates/cli/tests/serve_interop.rs` finds them below `target/interop`.
//!
//! Debian's rclone 1.60 does not sign, so a newer rclone is built from source once, which takes
//! minutes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{capture, find_program, run as run_command};
use crate::workspace::Workspace;

/// Argument of `go install`.
const RCLONE: &str = "github.com/rclone/rclone@v1.75.0";
/// Packages for pip: pure Python above pyca/cryptography.
const PYTHON: [&str; 2] = ["impacket==0.13.1", "smbprotocol==1.17.0"];

/// Installs missing clients. Returns those that are not available, with the reasons.
pub(crate) fn install(workspace: &Workspace) -> Vec<String> {
    let folder = workspace.target().join("interop");
    let mut left_out = Vec::new();
    if let Err(error) = python(&folder) {
        left_out.push(format!("{}: {error:#}: interop of the server", PYTHON.join(", ")));
    }
    if let Err(error) = rclone(&folder) {
        left_out.push(format!("rclone 1.75: {error:#}: interop of the server"));
    }
    left_out
}

fn python(folder: &Path) -> Result<()> {
    let venv = folder.join("venv");
    let program = venv.join("bin/python3");
    let imports = |program: &Path| {
        let words = ["-c", "import impacket, smbprotocol, smbclient"];
        capture(Command::new(program).args(words)).is_ok()
    };
    if imports(&program) {
        return Ok(());
    }
    let python = find_program("python3").context("there is no python3")?;
    // Removes leftovers of an interrupted call.
    let _ = fs::remove_dir_all(&venv);
    fs::create_dir_all(folder)?;
    let made = run_command(Command::new(python).args(["-m", "venv"]).arg(&venv));
    let installed = made.and_then(|()| {
        let mut pip = Command::new(&program);
        run_command(
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(PYTHON),
        )
    });
    if installed.is_err() {
        let _ = fs::remove_dir_all(&venv);
    }
    installed
}

fn rclone(folder: &Path) -> Result<()> {
    let program = folder.join("bin/rclone");
    if program.is_file() {
        return Ok(());
    }
    let go = find_program("go").context("there is no Go to build it with")?;
    let folder = fs::create_dir_all(folder).and_then(|()| folder.canonicalize())?;
    // The sources and intermediate files are large and not needed afterwards.
    let build = folder.join("go");
    let mut install = Command::new(go);
    install
        .args(["install", "-trimpath", "-ldflags=-s -w", RCLONE])
        .env("GOBIN", folder.join("bin"))
        .env("GOPATH", build.join("path"))
        .env("GOCACHE", build.join("cache"))
        .env("GOFLAGS", "-modcacherw")
        .env("CGO_ENABLED", "0");
    let installed = run_command(&mut install);
    let _ = fs::remove_dir_all(&build);
    installed
}
