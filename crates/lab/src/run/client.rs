//! How each client is called: for a copy, and for an operation that moves nothing, which tells what logging in takes.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::process::clean;
use super::server::{PASSWORD, SOURCE, TARGET, USER, secret, unprivileged};
use super::tools::Tools;
use crate::scenario::{Client, Direction};

/// The folder that a run makes in the target.
pub(super) const COPY: &str = "copy";

/// Both ends of a copy, as a client sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    /// The server.
    pub(super) server: SocketAddr,
    /// The work on this side.
    pub(super) source: &'a Path,
    /// Where reads go.
    pub(super) near: &'a Path,
    /// What the client keeps for itself.
    pub(super) scratch: &'a Path,
    /// Where ropeway writes its trace, if it is wanted.
    pub(super) trace: Option<&'a Path>,
}

/// The command that copies the work from the server's source to `near/copy`, or from here to `copy` in its target.
///
/// # Errors
/// The client cannot be prepared.
pub(super) fn copy(
    client: Client,
    tools: &Tools,
    ends: Ends<'_>,
    direction: Direction,
) -> io::Result<Command> {
    Ok(match client {
        Client::Ropeway => ropeway(tools, ends, direction),
        Client::Smbclient => smbclient(tools, ends, direction)?,
        Client::Rclone => rclone(tools, ends, direction)?,
        Client::Rsync => rsync(tools, ends, direction),
        Client::Cp => return Err(io::Error::other("no share is mounted")),
    })
}

/// A command that logs in, does as good as nothing, and ends; none for ropeway, which says what a transfer took.
///
/// # Errors
/// The client cannot be prepared.
pub(super) fn empty(client: Client, tools: &Tools, ends: Ends<'_>) -> io::Result<Option<Command>> {
    Ok(match client {
        Client::Ropeway | Client::Cp => None,
        Client::Smbclient => {
            let mut command = smbclient_on(tools, ends, TARGET)?;
            command.args(["-c", "exit"]);
            Some(command)
        }
        Client::Rclone => {
            let mut command = rclone_base(tools, ends)?;
            command.arg("lsf").arg(format!(":smb:{TARGET}"));
            Some(command)
        }
        Client::Rsync => {
            let mut command = unprivileged(tools.path("rsync"), ends.scratch);
            command.arg(rsync_url(ends, &format!("{TARGET}/")));
            Some(command)
        }
    })
}

fn ropeway(tools: &Tools, ends: Ends<'_>, direction: Direction) -> Command {
    let mut command = clean(tools.path("ropeway"), ends.scratch);
    command.args(["copy", "--json"]).env("ROPEWAY_PASSWORD", PASSWORD);
    if let Some(trace) = ends.trace {
        command.arg("--trace").arg(trace);
    }
    let url = |place: &str| format!("smb://{USER}@{}/{place}", ends.server);
    match direction {
        Direction::Read => command.arg(url(SOURCE)).arg("-T").arg(ends.near.join(COPY)),
        Direction::Write => command
            .arg("-T")
            .arg(ends.source)
            .arg(url(&format!("{TARGET}/{COPY}"))),
    };
    command
}

fn smbclient_on(tools: &Tools, ends: Ends<'_>, share: &str) -> io::Result<Command> {
    let login = ends.scratch.join("login");
    secret(&login, &format!("username={USER}\npassword={PASSWORD}\n"))?;
    let mut command = clean(tools.path("smbclient"), ends.scratch);
    // The system's own smb.conf plays no part.
    command.args(["--configfile", "/dev/null", "--port"]);
    command.arg(ends.server.port().to_string());
    command.arg(format!("//{}/{share}", ends.server.ip()));
    command.arg("--authentication-file").arg(login);
    Ok(command)
}

fn smbclient(tools: &Tools, ends: Ends<'_>, direction: Direction) -> io::Result<Command> {
    let (share, commands) = match direction {
        Direction::Read => {
            let copy = ends.near.join(COPY);
            std::fs::create_dir_all(&copy)?;
            let commands = format!("lcd \"{}\"; prompt OFF; recurse ON; mget *", copy.display());
            (SOURCE, commands)
        }
        Direction::Write => {
            let source = ends.source.display();
            let commands =
                format!("mkdir {COPY}; cd {COPY}; lcd \"{source}\"; prompt OFF; recurse ON; mput *");
            (TARGET, commands)
        }
    };
    let mut command = smbclient_on(tools, ends, share)?;
    command.arg("-c").arg(commands);
    Ok(command)
}

/// Everything by the environment: no configuration file, and the password is not in the process list.
fn rclone_base(tools: &Tools, ends: Ends<'_>) -> io::Result<Command> {
    let mut command = clean(tools.path("rclone"), ends.scratch);
    command
        .env("RCLONE_CONFIG", "")
        .env("RCLONE_SMB_HOST", ends.server.ip().to_string())
        .env("RCLONE_SMB_PORT", ends.server.port().to_string())
        .env("RCLONE_SMB_USER", USER)
        .env("RCLONE_SMB_PASS", obscured(tools, ends.scratch)?);
    Ok(command)
}

fn rclone(tools: &Tools, ends: Ends<'_>, direction: Direction) -> io::Result<Command> {
    let mut command = rclone_base(tools, ends)?;
    command.args(["copy", "--transfers", "4", "--checkers", "4"]);
    match direction {
        Direction::Read => command.arg(format!(":smb:{SOURCE}")).arg(ends.near.join(COPY)),
        Direction::Write => command.arg(ends.source).arg(format!(":smb:{TARGET}/{COPY}")),
    };
    Ok(command)
}

/// The password as rclone's settings want it.
fn obscured(tools: &Tools, scratch: &Path) -> io::Result<String> {
    let mut child = clean(tools.path("rclone"), scratch)
        .args(["obscure", "-"])
        .env("RCLONE_CONFIG", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(PASSWORD.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "rclone obscure failed: {}",
            output.status
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn rsync_url(ends: Ends<'_>, place: &str) -> String {
    format!("rsync://{}/{place}", ends.server)
}

fn rsync(tools: &Tools, ends: Ends<'_>, direction: Direction) -> Command {
    let mut command = unprivileged(tools.path("rsync"), ends.scratch);
    command.arg("-a");
    match direction {
        Direction::Read => command
            .arg(rsync_url(ends, &format!("{SOURCE}/")))
            .arg(ends.near.join(COPY).join("")),
        Direction::Write => command
            .arg(ends.source.join(""))
            .arg(rsync_url(ends, &format!("{TARGET}/{COPY}/"))),
    };
    command
}
