//! Programs on a mounted share: mount, `cp -r` or `ls -lR`, unmount, wait until everything has arrived.
//! One shell script does it, so that all of it is one process group that can be ended. It prints what
//! the program alone took, as `ropeway copy --json` does.

use std::io;
use std::path::Path;
use std::process::Command;

use ropeway_peers::procfs::clean;

use super::client::{COPY, Ends};
use super::measure::REPORTED;
use super::server::{PASSWORD, SOURCE, TARGET};
use super::tools::Tools;
use crate::scenario::{Client, Direction};

/// Folder of rclone's cache, and of the cache of `--boost`, in that of the run.
const CACHES: [&str; 2] = ["rclone", "boost"];
/// Room in a cache in addition to twice the work, in bytes. Less than 128 MiB is not allowed.
const CACHE_MORE_BYTES: u64 = 256 << 20;

/// Arguments: the name of the figure, mount point, folder of rclone's cache, source and target of the
/// copy, what to do, then the command that mounts and stays, without its mount point.
///
/// A second reading begins with what a first one left in the cache and the kernel keeps nothing of.
/// Writes last until the share is unmounted, since some clients send the last bytes after `cp` has
/// ended. rclone uploads after `umount` only in its next life, so its cache is watched first.
const SCRIPT: &str = r#"
set -e
figure=$1; at=$2; cache=$3; from=$4; to=$5; what=$6; shift 6
mkdir -p "$at"
trap 'exit 143' TERM INT
trap 'umount -l "$at" 2>/dev/null || :' EXIT
enter() {
    "$@" "$at" &
    served=$!
    until mountpoint -q "$at"; do kill -0 $served; sleep 0.02; done
}
leave() {
    while grep -rqs '"Dirty": *true' "$cache/vfsMeta"; do sleep 0.05; done
    umount "$at"
    wait $served
}
copy() { mkdir -p "$to"; cp -r "$from/." "$to"; }
enter "$@"
case $what in again|restart)
    copy
    rm -r "$to"
    if [ $what = restart ]; then leave; enter "$@"; fi
    sync -f "${cache%/*}"
    echo 3 >/proc/sys/vm/drop_caches;;
esac
begun=$(date +%s%N)
case $what in
    list) LC_ALL=C ls -lR "$at";;
    write) copy; leave;;
    *) copy;;
esac
took=$(($(date +%s%N) - begun))
if [ $what != write ]; then leave; fi
printf '{"%s":%d.%09d}\n' "$figure" $((took / 1000000000)) $((took % 1000000000))
"#;

/// What is done on a mounted share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// `cp -r`.
    Copy(Direction),
    /// `ls -lR`.
    List,
}

/// Returns the command that uses a mounted share.
///
/// # Errors
/// The client cannot be prepared.
pub(super) fn command(client: Client, tools: &Tools, ends: Ends<'_>, how: Use) -> io::Result<Command> {
    let at = ends.remote.scratch.join("mounted");
    let caches = CACHES.map(|name| ends.cache.join(name));
    let (share, from, to) = match how {
        Use::Copy(Direction::Write) => (TARGET, ends.source.to_owned(), at.join(COPY)),
        _ => (SOURCE, at.clone(), ends.near.join(COPY)),
    };
    let what = match (how, client) {
        (Use::List, _) => "list",
        (Use::Copy(Direction::Write), _) => "write",
        (_, Client::MountBoostAgain | Client::RcloneMountAgain) => "again",
        (_, Client::MountBoostRestart) => "restart",
        _ => "read",
    };
    let shell = |mut command: Command| {
        command.args(["-c", SCRIPT, "mounted", REPORTED]);
        command.args([&at, &caches[0], &from, &to]).arg(what);
        command
    };
    Ok(match client {
        Client::RcloneMount | Client::RcloneMountAgain => {
            let program = tools.path("rclone");
            let mut command = shell(ends.remote.rclone_for(Path::new("sh"), &program)?);
            command.arg(program).args(["mount", "--vfs-cache-mode", "full"]);
            command.args(["--vfs-write-back", "0s", "--cache-dir"]);
            command.arg(&caches[0]).arg(format!(":smb:{share}"));
            command
        }
        _ => {
            let mut command = shell(clean("sh", ends.remote.scratch));
            command.env("ROPEWAY_PASSWORD", PASSWORD);
            command.arg(tools.path("ropeway")).args(["mount", "--foreground"]);
            match client {
                Client::MountLater => _ = command.args(["-o", "close=later"]),
                Client::Mount => {}
                _ => {
                    create_cache(&caches[1], tools, ends)?;
                    command.arg("--boost").arg(&caches[1]);
                }
            }
            command.arg(ends.remote.url(share));
            command
        }
    })
}

/// Creates an empty cache with room for all of the work.
fn create_cache(cache: &Path, tools: &Tools, ends: Ends<'_>) -> io::Result<()> {
    let mut create = clean(tools.path("ropeway"), ends.remote.scratch);
    let size = ends.bytes * 2 + CACHE_MORE_BYTES;
    create.args(["boost", "create"]).arg(cache);
    let created = create.args(["--size", &size.to_string()]).output()?;
    match created.status.success() {
        true => Ok(()),
        false => {
            let words = String::from_utf8_lossy(&created.stderr);
            Err(io::Error::other(format!("no cache: {}", words.trim())))
        }
    }
}
