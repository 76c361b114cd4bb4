//! Command lines of the clients: for a copy, for a listing, and for an operation that moves nothing
//! and so shows what logging in takes.

use std::io;
use std::path::Path;
use std::process::Command;

use ropeway_peers::procfs::clean;
use ropeway_peers::{Remote, smbclient_get, smbclient_put};
use ropeway_plan::{Engine, Protocol};

use super::mounted::{self, Use};
use super::server::{PASSWORD, SOURCE, TARGET};
use super::tools::Tools;
use crate::scenario::{Client, Direction, Protection};

/// Folder that a run creates in its target.
pub(super) const COPY: &str = "copy";

/// Both ends of a copy, and how the client is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends<'a> {
    /// The server, and the client's own folder.
    pub(super) remote: Remote<'a>,
    /// The work on this side.
    pub(super) source: &'a Path,
    /// Target of reads.
    pub(super) near: &'a Path,
    /// Folder on a disk for the caches of mounts.
    pub(super) cache: &'a Path,
    /// Bytes of the work.
    pub(super) bytes: u64,
    /// File for ropeway's trace; `None` for no trace.
    pub(super) trace: Option<&'a Path>,
    /// Flags of `ropeway copy`.
    pub(super) flags: &'a [String],
    /// Protection that the server demands, for clients that need a flag for it.
    pub(super) protection: Option<Protection>,
}

/// Returns the command that copies the work from the server's source to `near/copy`, or from here
/// to `copy` in its target.
///
/// # Errors
/// The client cannot be prepared.
pub(super) fn copy(
    client: Client,
    tools: &Tools,
    ends: Ends<'_>,
    direction: Direction,
) -> io::Result<Command> {
    let near = ends.near.join(COPY);
    Ok(match client {
        Client::Ropeway => ropeway_copy(tools, ends, direction),
        Client::XpSmb1 | Client::Win7Smb1 | Client::Win7Smb2 => era_copy(client, tools, ends, direction),
        Client::Smbclient => {
            let (share, commands) = match direction {
                Direction::Read => {
                    std::fs::create_dir_all(&near)?;
                    (SOURCE, smbclient_get(".", &near))
                }
                Direction::Write => (TARGET, smbclient_put(ends.source, COPY)),
            };
            smbclient(tools, ends, share, &commands)?
        }
        Client::Rclone | Client::Rclone32 => {
            let transfers = if client == Client::Rclone { "4" } else { "32" };
            let mut command = ends.remote.rclone(&tools.path("rclone"))?;
            command.args(["copy", "--transfers", transfers, "--checkers", transfers]);
            match direction {
                Direction::Read => command.arg(format!(":smb:{SOURCE}")).arg(near),
                Direction::Write => command.arg(ends.source).arg(format!(":smb:{TARGET}/{COPY}")),
            };
            command
        }
        Client::Rsync => {
            let mut command = ends.remote.rsync(&tools.path("rsync"));
            command.arg("-a");
            match direction {
                Direction::Read => command
                    .arg(ends.remote.rsync_url(&format!("{SOURCE}/")))
                    .arg(near.join("")),
                Direction::Write => command
                    .arg(ends.source.join(""))
                    .arg(ends.remote.rsync_url(&format!("{TARGET}/{COPY}/"))),
            };
            command
        }
        Client::Cp => return Err(io::Error::other("no share is mounted")),
        _ => mounted::command(client, tools, ends, Use::Copy(direction))?,
    })
}

/// Returns the command that lists the server's source, an entry a line.
///
/// # Errors
/// The client cannot be prepared, or lists nothing in this laboratory.
pub(super) fn list(client: Client, tools: &Tools, ends: Ends<'_>) -> io::Result<Command> {
    match client {
        Client::Ropeway => {
            let mut command = ropeway(tools, ends);
            command.arg("ls").arg(ends.remote.url(SOURCE));
            Ok(command)
        }
        Client::Smbclient => smbclient(tools, ends, SOURCE, "ls"),
        _ if client.is_mount() => mounted::command(client, tools, ends, Use::List),
        _ => Err(io::Error::other(
            "only ropeway, smbclient and mounts are timed at listings",
        )),
    }
}

/// Returns a command that logs in, does next to nothing, and ends; `None` where the time of the
/// transfer is reported.
///
/// # Errors
/// The client cannot be prepared.
pub(super) fn empty(client: Client, tools: &Tools, ends: Ends<'_>) -> io::Result<Option<Command>> {
    Ok(match client {
        Client::Ropeway | Client::Cp => None,
        _ if client.is_mount() || client.era().is_some() => None,
        Client::Smbclient => Some(smbclient(tools, ends, TARGET, "exit")?),
        Client::Rclone | Client::Rclone32 => {
            let mut command = ends.remote.rclone(&tools.path("rclone"))?;
            command.arg("lsf").arg(format!(":smb:{TARGET}"));
            Some(command)
        }
        Client::Rsync => {
            let mut command = ends.remote.rsync(&tools.path("rsync"));
            command.arg(ends.remote.rsync_url(&format!("{TARGET}/")));
            Some(command)
        }
        _ => None,
    })
}

fn ropeway(tools: &Tools, ends: Ends<'_>) -> Command {
    let mut command = clean(tools.path("ropeway"), ends.remote.scratch);
    command.env("ROPEWAY_PASSWORD", PASSWORD);
    command
}

fn ropeway_copy(tools: &Tools, ends: Ends<'_>, direction: Direction) -> Command {
    let mut command = ropeway(tools, ends);
    command.args(["copy", "--json"]).args(ends.flags);
    if let Some(trace) = ends.trace {
        command.arg("--trace").arg(trace);
    }
    copied(command, ends, direction, |place| ends.remote.url(place))
}

/// As the client of a past system: unsigned, as these were by default.
fn era_copy(client: Client, tools: &Tools, ends: Ends<'_>, direction: Direction) -> Command {
    let mut command = ropeway(tools, ends);
    command.args(["copy", "--json", "--sign", "offered", "--engine", client.name()]);
    let is_smb1 = client.era().and_then(Engine::protocol) == Some(Protocol::Smb1);
    let scheme = if is_smb1 { "smb1" } else { "smb" };
    copied(command, ends, direction, |place| {
        ends.remote.url_by(scheme, place)
    })
}

/// Adds the ends of the copy to its command.
fn copied(
    mut command: Command,
    ends: Ends<'_>,
    direction: Direction,
    url: impl Fn(&str) -> String,
) -> Command {
    match direction {
        Direction::Read => command.arg(url(SOURCE)).arg("-T").arg(ends.near.join(COPY)),
        Direction::Write => command
            .arg("-T")
            .arg(ends.source)
            .arg(url(&format!("{TARGET}/{COPY}"))),
    };
    command
}

fn smbclient(tools: &Tools, ends: Ends<'_>, share: &str, commands: &str) -> io::Result<Command> {
    let mut command = ends.remote.smbclient(&tools.path("smbclient"), share)?;
    match ends.protection {
        None => {}
        Some(Protection::Signed) => _ = command.arg("--client-protection=sign"),
        Some(Protection::Sealed) => _ = command.arg("--client-protection=encrypt"),
    }
    command.args(["-c", commands]);
    Ok(command)
}
