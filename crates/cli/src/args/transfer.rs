//! Flags that commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ropeway_copy::{Changing, Durability};
use ropeway_plan::Engine;
use ropeway_plan::bandwidth::Schedule;
use ropeway_plan::names::NamePolicy;
use ropeway_vfs::decorate::slow::DeviceModel;
use ropeway_vfs::{CacheMode, Timestamp};

use super::{ShareArgs, values};

/// Flags of every command that copies.
#[derive(Args, Clone, Debug)]
pub(crate) struct TransferArgs {
    /// When it counts as done: none, end (default), file
    ///
    /// `end`: the command ends when everything is durable on the device, and write-back starts early.
    /// `file`: each file is durable before it appears under its name.
    /// `none`: it ends when the page cache has everything; the device may still be busy for long.
    #[arg(long, value_name = "WHEN", default_value = "end", value_parser = values::durability, hide_default_value = true)]
    pub(crate) durability: Durability,
    /// Read every file back from the device and compare BLAKE3
    ///
    /// The cache is dropped first, so what is compared comes from the device, not from memory. A file that differs,
    /// though it looked equal, is copied again and read back once more. Exit code 7 if anything differs then.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Keep the BLAKE3 hashes in this file (for check --manifest)
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Change nothing, list what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Files that change while read: copy (default), skip, fail
    ///
    /// Such a file is read again a few times. `copy`: if it still changes, the last try is kept where there was nothing
    /// before; it may be a mixture, gets a modification time of 1980 so that the next run copies it again, and counts as
    /// failed (exit 2). `skip`: nothing is kept (exit 2). `fail`: the run ends (exit 3).
    #[arg(long, value_name = "HOW", default_value = "copy", value_parser = values::changing, hide_default_value = true)]
    pub(crate) changing: Changing,
    /// Go on with what changes, until interrupted
    ///
    /// A mirror deletes while it watches as in its first pass: within --max-delete, with backups, and never what
    /// filters exclude. If something fails in a round, its deletions wait for the next.
    #[arg(long)]
    pub(crate) watch: bool,
    /// What to do with files that exist.
    #[command(flatten)]
    pub(crate) existing: ExistingArgs,
    /// Which attributes to keep.
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
    /// Links.
    #[command(flatten)]
    pub(crate) links: LinkArgs,
    /// What to take.
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// How to move it.
    #[command(flatten)]
    pub(crate) speed: SpeedArgs,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    /// How to speak.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Testing aids.
    #[command(flatten)]
    pub(crate) models: ModelArgs,
}

/// What to do with files that exist on the target.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Existing files")]
pub(crate) struct ExistingArgs {
    /// Copy only where the source is newer
    #[arg(short = 'u', long)]
    pub(crate) update: bool,
    /// Leave alone whatever exists on the target
    #[arg(long)]
    pub(crate) ignore_existing: bool,
    /// Compare content instead of size and time
    #[arg(short = 'c', long)]
    pub(crate) checksum: bool,
    /// Copy even what is equal
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Times that differ by no more than this are equal, e.g. 2s
    ///
    /// How finely both ends keep times is taken into account without it; this is for a tree that has been on a volume with
    /// coarser times, such as FAT (2s) or ext3 (1s), and is compared with what it was copied from.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) modify_window: Option<Duration>,
    /// Keep what is replaced, with a suffix (default ~)
    ///
    /// A newer backup replaces an older one, file by file; one of another kind (a file where a folder is to be kept, or
    /// the reverse) gets a number instead: `name.~1~~`. With --inplace the old content is copied first.
    #[arg(long, value_name = "SUFFIX", num_args = 0..=1, require_equals = true, default_missing_value = "~")]
    pub(crate) backup: Option<String>,
    /// Keep what is replaced or deleted in this folder of DST
    ///
    /// It keeps its path below the folder; a newer backup replaces an older one, file by file. A mirror with the same
    /// flag deletes nothing in there.
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_dir: Option<PathBuf>,
    /// Write into existing files: no room for a second copy
    ///
    /// A file is neither whole nor the old one while it is written, and stays so if the run is killed, until the next
    /// run. One that has several names is written beside them.
    #[arg(long)]
    pub(crate) inplace: bool,
}

/// Attributes that are kept (or compared).
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Attributes")]
pub(crate) struct AttributeArgs {
    /// Leave owner and group
    #[arg(long)]
    pub(crate) no_owner: bool,
    /// Leave permission bits
    #[arg(long)]
    pub(crate) no_mode: bool,
    /// Leave times
    #[arg(long)]
    pub(crate) no_times: bool,
    /// Leave extended attributes, ACLs and capabilities
    #[arg(long)]
    pub(crate) no_xattrs: bool,
}

/// Links among the copied files.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Attributes")]
pub(crate) struct LinkArgs {
    /// Copy each hard link as a file of its own
    #[arg(long)]
    pub(crate) no_hard_links: bool,
}

/// What to take.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectArgs {
    /// Bring back what --exclude drops; alone: take only this
    ///
    /// Patterns are those of gitignore: `*.o` at any depth, `/build` only at the top, `cache/` only folders, `**`
    /// across folders. May be given several times; all excludes come first, the last match wins. Nothing inside an
    /// excluded folder can be brought back.
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out what matches (gitignore pattern, repeatable)
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Read exclude patterns from a file, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Only files of at least this size, e.g. 64K
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) min_size: Option<u64>,
    /// Only files of at most this size
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) max_size: Option<u64>,
    /// Only files changed since, e.g. 2d or 2026-01-31
    #[arg(long, value_name = "AGE", value_parser = values::age)]
    pub(crate) newer: Option<Timestamp>,
    /// Only files not changed since
    #[arg(long, value_name = "AGE", value_parser = values::age)]
    pub(crate) older: Option<Timestamp>,
    /// Only the paths in this file (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Paths in --files-from are separated by NUL
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Stay on the source's file system
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Copy block and character devices, too
    ///
    /// Otherwise they are left out, counted as skipped and listed, and `check` does not miss them: a share, or a folder
    /// that others may write, could hold one that leads to any disk of this machine, and root would make it. To make
    /// devices takes root. FIFOs are copied in any case, sockets never.
    #[arg(short = 'D', long)]
    pub(crate) devices: bool,
}

/// How to move it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Moving")]
pub(crate) struct SpeedArgs {
    /// auto (default), or as it once was: xp, vista, vista-sp1
    #[arg(long, value_name = "ENGINE", default_value = "auto", value_parser = values::engine, hide_default_value = true)]
    pub(crate) engine: Engine,
    /// Page cache manners: auto (default), keep, leave, direct
    ///
    /// `keep` is ordinary cached I/O; `leave` uses the cache and leaves it as it was; `direct` bypasses it; `auto`
    /// leaves it as it was for big files.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = values::cache, hide_default_value = true)]
    pub(crate) cache: CacheMode,
    /// Bytes a second, e.g. 8M, or a timetable
    ///
    /// A timetable is a list of `[DAY-]HH:MM,RATE`, e.g. "08:00,512K 18:00,10M Sat-00:00,off", in local time.
    #[arg(long, value_name = "RATE", value_parser = values::bwlimit)]
    pub(crate) bwlimit: Option<Schedule>,
    /// Most bytes written but not yet durable
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) dirty_max: Option<u64>,
    /// Tries again after a passing error (default 4)
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// Finish the counting walk before the first write
    #[arg(long)]
    pub(crate) preflight: bool,
    /// Names DST cannot hold: auto (default), refuse, map
    ///
    /// `auto` maps them reversibly where the target needs it (and back); `refuse` lists them as errors; `map` always
    /// maps to names that Windows can hold.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = values::names, hide_default_value = true)]
    pub(crate) names: NamePolicy,
}

/// How to speak.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Say only what went wrong
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// List every item
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Append what happens to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Record every operation in this file (see `trace`)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}

/// Testing aids.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Models (testing aids)")]
pub(crate) struct ModelArgs {
    /// Read as from a slow device, e.g. disk, usb-flash
    ///
    /// Also `seek=1ms,read=20MB,write=7MB,op=1ms,cache=64M` (bytes a second), alone or after a name.
    #[arg(long, value_name = "MODEL", value_parser = values::model)]
    pub(crate) slow_source: Option<DeviceModel>,
    /// Write as to a slow device
    #[arg(long, value_name = "MODEL", value_parser = values::model)]
    pub(crate) slow_target: Option<DeviceModel>,
    /// Fail by rule, e.g. source:read:contains=big,errno=EIO
    ///
    /// `[source:|target:]OPERATION:key=value,…`: OPERATION is read, write, create, rename, … or any; keys are path,
    /// contains, offset, after_bytes, nth, times, probability, seed, errno, kind, delay, late. May be given several times.
    #[arg(long, value_name = "RULE", value_parser = values::fault)]
    pub(crate) fault: Vec<values::FaultRules>,
}
