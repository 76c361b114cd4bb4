//! The tools that copy to and from servers, and how each is called.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ropeway_peers::{Rsyncd, Smbd};
use serde::{Deserialize, Serialize};

use super::record::Program;
use crate::process::capture;
use crate::tools;
use crate::workspace::Workspace;

/// The share with the work, and the one that is written to.
pub(super) const SOURCE: &str = "source";
/// See [`SOURCE`].
pub(super) const TARGET: &str = "target";
/// The folder in a target that a run makes.
pub(super) const COPY: &str = "copy";
/// The user's password: not an argument of any process.
pub(super) const PASSWORD: &str = "bench secret";

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Client {
    /// This project's release binary
    Ropeway,
    /// Samba's smbclient, `mget` and `mput` with recursion
    Smbclient,
    /// rclone with its usual 4 transfers
    Rclone4,
    /// rclone with 32 transfers
    Rclone32,
    /// `rsync -a` with a daemon
    Rsync,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Direction {
    /// From the server.
    Read,
    /// To the server.
    Write,
}

impl Direction {
    /// Both.
    pub(super) const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The servers of one row, and the folders on this side.
#[derive(Debug)]
pub(super) struct Ends<'a> {
    /// The SMB server with the shares [`SOURCE`] and [`TARGET`].
    pub(super) smbd: &'a Smbd,
    /// The rsync daemon with modules of the same names.
    pub(super) rsyncd: Option<&'a Rsyncd>,
    /// The work on this side (the same folder that the server offers).
    pub(super) source: &'a Path,
    /// Where reads go.
    pub(super) near: &'a Path,
    /// What the tool keeps for itself, and its log.
    pub(super) scratch: &'a Path,
}

/// A tool that is there.
#[derive(Clone, Debug)]
pub(super) struct Installed {
    /// Which.
    pub(super) client: Client,
    path: PathBuf,
    /// Which build of it.
    pub(super) program: Program,
    /// Further flags for ropeway.
    flags: Vec<String>,
}

impl Client {
    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ropeway => "ropeway",
            Self::Smbclient => "smbclient",
            Self::Rclone4 => "rclone -4",
            Self::Rclone32 => "rclone -32",
            Self::Rsync => "rsync daemon",
        }
    }

    /// Finds it; builds ropeway, installs the package of another where that is allowed.
    ///
    /// # Errors
    /// If it is not to be had; the reason is for people.
    pub(super) fn install(self, workspace: &Workspace, flags: &[String]) -> Result<Installed> {
        let path = match self {
            Self::Ropeway => {
                crate::ci::build(workspace)?;
                workspace.ropeway()
            }
            Self::Smbclient => tools::require("smbclient")?,
            Self::Rclone4 | Self::Rclone32 => tools::require("rclone")?,
            Self::Rsync => tools::require("rsync")?,
        };
        let text = capture(Command::new(&path).arg("--version"))?;
        let mut version = text.lines().next().unwrap_or_default().trim().to_owned();
        if self == Self::Smbclient {
            // It only says "Version 4.17".
            version.insert_str(0, "smbclient ");
        }
        Ok(Installed {
            client: self,
            program: Program::of(&path, version)?,
            path,
            flags: match self {
                Self::Ropeway => flags.to_vec(),
                _ => Vec::new(),
            },
        })
    }
}

/// Those of the wanted tools that are there, and why others are not.
///
/// # Errors
/// If ropeway is wanted and does not build: a table without it would be none.
pub(super) fn installed(
    workspace: &Workspace,
    wanted: &[Client],
    flags: &[String],
) -> Result<(Vec<Installed>, Vec<String>)> {
    let (mut there, mut notes) = (Vec::new(), Vec::new());
    for client in wanted {
        match client.install(workspace, flags) {
            Ok(installed) => there.push(installed),
            Err(error) if *client == Client::Ropeway => return Err(error.context("ropeway is not to be had")),
            Err(error) => {
                println!("left out: {}: {error:#}", client.name());
                notes.push(format!("{} was left out: {error:#}", client.name()));
            }
        }
    }
    Ok((there, notes))
}

impl Installed {
    /// The command that copies the work from the server to `near/copy`, or from here to `target/copy`; it makes that
    /// folder or fills an empty one.
    ///
    /// # Errors
    /// If the tool needs something that is not there.
    pub(super) fn command(&self, ends: &Ends<'_>, direction: Direction) -> Result<Command> {
        let mut command = match self.client {
            Client::Ropeway => self.ropeway(ends, direction),
            Client::Smbclient => smbclient(ends, direction)?,
            Client::Rclone4 => self.rclone(ends, direction, 4)?,
            Client::Rclone32 => self.rclone(ends, direction, 32)?,
            Client::Rsync => self.rsync(ends, direction)?,
        };
        // A private state: no run finds another's, and the user's settings do not count.
        for (variable, name) in [
            ("HOME", "home"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_CACHE_HOME", "cache"),
        ] {
            command.env(variable, ends.scratch.join(name));
        }
        Ok(command)
    }

    fn ropeway(&self, ends: &Ends<'_>, direction: Direction) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg("copy")
            .args(&self.flags)
            .env("ROPEWAY_PASSWORD", PASSWORD);
        match direction {
            Direction::Read => command
                .arg(ends.smbd.url(SOURCE))
                .arg("-T")
                .arg(ends.near.join(COPY)),
            Direction::Write => command
                .arg("-T")
                .arg(ends.source)
                .arg(ends.smbd.url(&format!("{TARGET}/{COPY}"))),
        };
        command
    }

    /// Everything by the environment: no configuration file, and the password is not in the process list.
    fn rclone(&self, ends: &Ends<'_>, direction: Direction, transfers: u32) -> Result<Command> {
        let mut command = Command::new(&self.path);
        let address = ends.smbd.address();
        command
            .env("RCLONE_CONFIG", "")
            .env("RCLONE_SMB_HOST", address.ip().to_string())
            .env("RCLONE_SMB_PORT", address.port().to_string())
            .env("RCLONE_SMB_USER", &ends.smbd.logins()[0].user)
            .env("RCLONE_SMB_PASS", obscured(&self.path)?);
        let count = transfers.to_string();
        command.args(["copy", "--transfers", &count, "--checkers", &count]);
        match direction {
            Direction::Read => command.arg(format!(":smb:{SOURCE}")).arg(ends.near.join(COPY)),
            Direction::Write => command.arg(ends.source).arg(format!(":smb:{TARGET}/{COPY}")),
        };
        Ok(command)
    }

    fn rsync(&self, ends: &Ends<'_>, direction: Direction) -> Result<Command> {
        let rsyncd = ends.rsyncd.context("there is no rsync daemon")?;
        let mut command = Command::new(&self.path);
        command.arg("-a");
        match direction {
            Direction::Read => command
                .arg(rsyncd.url(&format!("{SOURCE}/")))
                .arg(ends.near.join(COPY).join("")),
            Direction::Write => command
                .arg(ends.source.join(""))
                .arg(rsyncd.url(&format!("{TARGET}/{COPY}/"))),
        };
        Ok(command)
    }
}

fn smbclient(ends: &Ends<'_>, direction: Direction) -> Result<Command> {
    let (share, commands) = match direction {
        Direction::Read => {
            let copy = ends.near.join(COPY);
            std::fs::create_dir_all(&copy)?;
            (
                SOURCE,
                format!("lcd \"{}\"; prompt OFF; recurse ON; mget *", copy.display()),
            )
        }
        Direction::Write => (
            TARGET,
            format!(
                "mkdir {COPY}; cd {COPY}; lcd \"{}\"; prompt OFF; recurse ON; mput *",
                ends.source.display()
            ),
        ),
    };
    let mut command = ends.smbd.smbclient(share)?;
    command.arg("-c").arg(commands);
    Ok(command)
}

/// The password as rclone's settings want it.
fn obscured(rclone: &Path) -> Result<String> {
    let mut child = Command::new(rclone)
        .args(["obscure", "-"])
        .env("RCLONE_CONFIG", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start rclone")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(PASSWORD.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "`rclone obscure` failed: {}",
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
