//! Flags of `mount`.

use std::path::PathBuf;

use clap::Args;

use super::{AFTER_HELP, BoostArgs, HttpArgs, ShareArgs};

/// `ropeway mount`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MountArgs {
    /// Folder or share (smb://user@host/share/path) to mount
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Empty folder to mount it on
    #[arg(value_name = "MNT")]
    pub(crate) mountpoint: PathBuf,
    /// Allow no changes through the mount
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users use the mount; modes and ACLs apply to them
    ///
    /// Without it only the user who mounts can use it, not even root. Ordinary users need the line
    /// user_allow_other in /etc/fuse.conf.
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Show this user id as the owner of everything
    #[arg(long, value_name = "N")]
    pub(crate) uid: Option<u32>,
    /// Show this group id as the group of everything
    #[arg(long, value_name = "N")]
    pub(crate) gid: Option<u32>,
    /// Hide these permission bits of everything (octal, e.g. 077)
    #[arg(long, value_name = "OCT", value_parser = umask)]
    pub(crate) umask: Option<u32>,
    /// Stay in the foreground, and say when the mount begins and ends
    ///
    /// For systemd use Type=notify (docs/mount.md).
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Options as in fstab, separated by commas (repeatable)
    ///
    /// ro, allow_other, uid=N, gid=N, umask=OCT as the flags; nonempty (mount on a folder that is
    /// not empty), credentials=FILE (as --credentials), boost=DIR (as --boost), offline_reads=TIME
    /// (as --offline-reads), prefetch=WHEN (as --prefetch), record=FILE (as --record), threads=N
    /// (requests answered at once), close=later (close does not wait until a share has the data),
    /// nopassthrough (the kernel does not read local files by itself); noatime, nodev, noexec,
    /// nosuid, sync, dirsync. Options that only mount(8) needs are ignored.
    #[arg(short = 'o', long = "option", value_name = "OPT,...")]
    pub(crate) options: Vec<String>,
    /// The web page.
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// Write down in FILE what programs open and read, for `boost learn` and `lab predict`
    ///
    /// For example: ropeway mount smb://ann@nas/photos /mnt/photos --record monday. FILE holds the names
    /// of files and programs, and only you can read it. A recording is continued; another file is
    /// refused. It ends at 1 GiB, or when it cannot be written; the mount goes on.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Record every operation that the kernel asks the mount for in FILE (see `ropeway trace`)
    ///
    /// Each record names the process that it was done for. What the kernel answers from its memory is
    /// not seen; local files are not passed through to the kernel, so that reads and writes are. FILE
    /// grows as long as the mount lasts.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) boost: BoostArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// Parses permission bits.
pub(crate) fn umask(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(bits) if bits <= 0o7777 => Ok(bits),
        _ => Err("expected permission bits in octal, e.g. 077".to_owned()),
    }
}
