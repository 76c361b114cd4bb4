//! Programs on a mounted share: mount, `cp -r`, unmount, wait until everything has arrived. One shell
//! script does it, so that all of it is one process group that can be ended.

use std::io;
use std::path::Path;
use std::process::Command;

use ropeway_peers::procfs::clean;

use super::client::{COPY, Ends};
use super::server::{PASSWORD, SOURCE, TARGET};
use super::tools::Tools;
use crate::scenario::{Client, Direction};

/// Arguments: mount point, folder of rclone's cache, source and target of the copy (empty for none),
/// then the command that mounts and stays, without its mount point.
///
/// rclone uploads after `umount` only in its next life, so its cache is watched first.
const SCRIPT: &str = r#"
set -e
at=$1; cache=$2; from=$3; to=$4; shift 4
mkdir -p "$at"
trap 'exit 143' TERM INT
trap 'umount -l "$at" 2>/dev/null || :' EXIT
"$@" "$at" &
served=$!
until mountpoint -q "$at"; do kill -0 $served; sleep 0.02; done
if [ -n "$to" ]; then mkdir -p "$to"; cp -r "$from/." "$to"; fi
while grep -rqs '"Dirty": *true' "$cache/vfsMeta"; do sleep 0.05; done
umount "$at"
wait $served
"#;

/// Returns the command that copies through a mount; without a direction, one that only mounts and
/// unmounts.
///
/// # Errors
/// The client cannot be prepared.
pub(super) fn command(
    client: Client,
    tools: &Tools,
    ends: Ends<'_>,
    direction: Option<Direction>,
) -> io::Result<Command> {
    let scratch = ends.remote.scratch;
    let (at, cache) = (scratch.join("mounted"), scratch.join("cache"));
    let share = match direction {
        Some(Direction::Read) => SOURCE,
        Some(Direction::Write) | None => TARGET,
    };
    let (from, to) = match direction {
        Some(Direction::Read) => (at.clone(), ends.near.join(COPY)),
        Some(Direction::Write) => (ends.source.to_owned(), at.join(COPY)),
        None => Default::default(),
    };
    let shell = |mut command: Command| {
        command
            .args(["-c", SCRIPT, "mounted"])
            .args([&at, &cache, &from, &to]);
        command
    };
    Ok(match client {
        Client::RcloneMount => {
            let program = tools.path("rclone");
            let mut command = shell(ends.remote.rclone_for(Path::new("sh"), &program)?);
            command.arg(program).arg("mount");
            command.args([
                "--vfs-cache-mode",
                "full",
                "--vfs-write-back",
                "0s",
                "--cache-dir",
            ]);
            command.arg(cache).arg(format!(":smb:{share}"));
            command
        }
        _ => {
            let mut command = shell(clean("sh", scratch));
            command.env("ROPEWAY_PASSWORD", PASSWORD);
            command.arg(tools.path("ropeway")).args(["mount", "--foreground"]);
            if client == Client::MountLater {
                command.args(["-o", "close=later"]);
            }
            command.arg(ends.remote.url(share));
            command
        }
    })
}
