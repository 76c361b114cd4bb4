//! Flags that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ropeway_copy::{Changing, DeltaMode, Durability};
use ropeway_plan::Engine;
use ropeway_plan::bandwidth::Schedule;
use ropeway_plan::names::NamePolicy;
use ropeway_vfs::decorate::slow::DeviceModel;
use ropeway_vfs::{CacheMode, HashAlgorithm, RelPath, Timestamp};

use super::{HttpArgs, ShareArgs, values};

/// Flags of `copy` and `mirror`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TransferArgs {
    /// When the command ends: none, end (default), file
    ///
    /// `end`: when everything is durable on the device. Write-back starts early.
    /// `file`: likewise, and each file is durable before it appears under its name.
    /// `none`: when the page cache has everything. The device may stay busy for a long time.
    #[arg(long, value_name = "WHEN", default_value = "end", value_parser = values::durability, hide_default_value = true)]
    pub(crate) durability: Durability,
    /// Read every file back from the device and compare hashes
    ///
    /// The page cache is dropped first, so the data comes from the device, not from memory. A file
    /// that looked equal but differs is copied again and read back once more. Exit code 7 if
    /// anything still differs.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Write the hashes of all files to this file
    ///
    /// `ropeway check --manifest` reads it, and so do `b3sum -c`, `sha256sum -c` and `xxh128sum -c`.
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Hash of contents: blake3 (default), sha256, xxh3
    ///
    /// For --verify and --manifest. `xxh3` is the fastest. It finds damage, but somebody can make two files with the same hash.
    #[arg(long, value_name = "NAME", value_parser = values::hash)]
    pub(crate) hash: Option<HashAlgorithm>,
    /// Change nothing; list what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Files that change while they are read: copy (default), skip, fail
    ///
    /// Such a file is read again a few times. If it still changes: `copy` keeps the last attempt if
    /// the target had no such file. That copy may be a mixture; it gets a modification time in
    /// 1980, so the next run copies it again, and counts as failed (exit 2). `skip` keeps nothing
    /// (exit 2). `fail` ends the run (exit 3).
    #[arg(long, value_name = "HOW", default_value = "copy", value_parser = values::changing, hide_default_value = true)]
    pub(crate) changing: Changing,
    /// Keep copying what changes until interrupted
    ///
    /// A mirror deletes in every round under the same rules as in its first pass: within
    /// --max-delete, with backups, and never names that filters exclude. If something fails in a
    /// round, its deletions wait for the next round.
    #[arg(long)]
    pub(crate) watch: bool,
    /// At the end, unmount the target's device and switch it off
    ///
    /// Only for devices that people unplug. If a program uses it, that program is named, and the exit
    /// code is 2. Needs the right to unmount, which root has.
    #[arg(long, conflicts_with_all = ["dry_run", "watch"])]
    pub(crate) eject: bool,
    /// What happens at the end.
    #[command(flatten)]
    pub(crate) end: EndArgs,
    /// Files that already exist.
    #[command(flatten)]
    pub(crate) existing: ExistingArgs,
    /// Attributes to keep.
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
    /// Links.
    #[command(flatten)]
    pub(crate) links: LinkArgs,
    /// Files to copy.
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Speed.
    #[command(flatten)]
    pub(crate) speed: SpeedArgs,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print a plain line of progress each TIME instead of the bar, e.g. 30s
    ///
    /// For output that goes to a file or to a log. The lines go to stderr.
    #[arg(long, value_name = "TIME", value_parser = values::duration, help_heading = "Output",
        conflicts_with_all = ["json", "quiet", "no_progress"])]
    pub(crate) progress: Option<Duration>,
    /// Testing aids.
    #[command(flatten)]
    pub(crate) models: ModelArgs,
}

/// Flags for files that already exist on the target.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Existing files")]
pub(crate) struct ExistingArgs {
    /// Copy only if the source is newer
    #[arg(short = 'u', long)]
    pub(crate) update: bool,
    /// Leave everything that exists on the target unchanged
    #[arg(long)]
    pub(crate) ignore_existing: bool,
    /// Compare contents instead of size and time
    #[arg(short = 'c', long)]
    pub(crate) checksum: bool,
    /// Copy files even if they are equal
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Treat times that differ by no more than this as equal, e.g. 2s
    ///
    /// The granularity of both ends is always taken into account; you need no flag for it. This
    /// flag is for a tree that was once on a volume with coarser times, such as FAT (2s) or ext3
    /// (1s), and is now compared with its original.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) modify_window: Option<Duration>,
    /// Keep replaced files under a suffix (default ~)
    ///
    /// A newer backup replaces an older one, file by file. If the older backup is of another kind
    /// (a file where a folder is to be kept, or the reverse), the new one gets a number instead:
    /// `name.~1~~`. With --inplace the old content is copied first.
    #[arg(
        long,
        value_name = "SUFFIX",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "~",
        value_parser = values::suffix
    )]
    pub(crate) backup: Option<String>,
    /// Keep replaced or deleted files in this folder of DST
    ///
    /// They keep their path below the folder. A newer backup replaces an older one, file by file. A
    /// mirror with the same flag deletes nothing in the folder.
    #[arg(long, value_name = "DIR", value_parser = values::folder_in_target())]
    pub(crate) backup_dir: Option<RelPath>,
    /// Write into existing files instead of temporary ones, to save space
    ///
    /// While a file is written it is neither the old file nor the new one. After a kill it stays so
    /// until the next run. A file with several names is still written as a temporary file.
    #[arg(long)]
    pub(crate) inplace: bool,
    /// Send only what changed inside a file: auto (default), on, off
    ///
    /// Between this machine and a `ropeway serve`, for changed files of more than 4 MiB. Both ends cut the old and the
    /// new file into chunks by their content; only new chunks cross the line, and the far end builds the new file
    /// from the old one. Each part is compared with the source by a BLAKE3 hash before the file gets its name.
    /// `auto` does so where the line is slower than that. Otherwise files are sent whole, except with --inplace:
    /// there hashes of what a run has written are kept on this machine, and the next run writes only the blocks of
    /// 64 KiB that differ, to any server with change times (with `on` also to Samba and to local folders).
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = values::delta, hide_default_value = true)]
    pub(crate) delta: DeltaMode,
}

/// Flags for the attributes to keep or to compare.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Attributes")]
pub(crate) struct AttributeArgs {
    /// Ignore owner and group
    #[arg(long)]
    pub(crate) no_owner: bool,
    /// Ignore permission bits
    #[arg(long)]
    pub(crate) no_mode: bool,
    /// Ignore times
    #[arg(long)]
    pub(crate) no_times: bool,
    /// Ignore extended attributes, ACLs and capabilities
    #[arg(long)]
    pub(crate) no_xattrs: bool,
}

/// Flags for hard links.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Attributes")]
pub(crate) struct LinkArgs {
    /// Copy each hard link as a separate file
    #[arg(long)]
    pub(crate) no_hard_links: bool,
}

/// Flags for the files to copy.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Selection")]
pub(crate) struct SelectArgs {
    /// Bring back what --exclude drops; alone: take only matching files
    ///
    /// Patterns are those of gitignore: `*.o` at any depth, `/build` only at the top, `cache/` only
    /// folders, `**` across folders. The flag is repeatable. All excludes are applied first; the
    /// last match wins. Files inside an excluded folder cannot be brought back.
    #[arg(long, value_name = "GLOB")]
    pub(crate) include: Vec<String>,
    /// Leave out files that match (gitignore pattern, repeatable)
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Read exclude patterns from a file, one per line
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Patterns match the letters a to z in either case: `*.jpg` takes IMG.JPG, too
    #[arg(long)]
    pub(crate) ignore_case: bool,
    /// Only files of at least this size, e.g. 64K
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) min_size: Option<u64>,
    /// Only files of at most this size
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) max_size: Option<u64>,
    /// Only files changed since then, e.g. 2d or 2026-01-31
    #[arg(long, value_name = "AGE", value_parser = values::age)]
    pub(crate) newer: Option<Timestamp>,
    /// Only files not changed since then
    #[arg(long, value_name = "AGE", value_parser = values::age)]
    pub(crate) older: Option<Timestamp>,
    /// Only the paths listed in this file (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<PathBuf>,
    /// Paths in --files-from end with NUL
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Stay on the source's file system
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Copy block and character devices too
    ///
    /// Otherwise devices are skipped, counted and listed, and `check` does not miss them. A share,
    /// or a folder that other users can write to, could hold a device that leads to any disk of
    /// this machine, and root would create it. Only root can create devices. FIFOs are always
    /// copied, sockets never.
    #[arg(short = 'D', long)]
    pub(crate) devices: bool,
}

/// Flags for the end of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct EndArgs {
    /// Run this command at the end, with sh
    ///
    /// However the run ended, also if it could not start. The command has JOB_COMMAND (copy or mirror),
    /// JOB_TARGET, JOB_EXIT (the exit code) and JOB_TEXT (a sentence) in its environment. What it prints goes to
    /// standard error, and it does not change the exit code.
    #[arg(long, value_name = "CMD")]
    pub(crate) on_end: Option<String>,
    /// Show a note on the desktop at the end, with notify-send
    #[arg(long)]
    pub(crate) notify: bool,
}

/// Flags for speed.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Moving")]
pub(crate) struct SpeedArgs {
    /// Copy engine: auto (default), or a historic one: xp, vista, vista-sp1, xp-smb1, win7-smb1, win7-smb2
    ///
    /// The historic engines read and write as those systems did, and speak to servers as they did: xp-smb1
    /// and win7-smb1 need smb1:// URLs, win7-smb2 needs smb:// URLs, and with xp, vista and vista-sp1 the URL
    /// decides. They are for comparisons; auto is faster.
    #[arg(long, value_name = "ENGINE", default_value = "auto", value_parser = values::engine, hide_default_value = true)]
    pub(crate) engine: Engine,
    /// Use of the page cache: auto (default), keep, leave, direct
    ///
    /// `keep` is ordinary cached I/O. `leave` uses the cache and leaves it as it was. `direct`
    /// bypasses it. `auto` is `leave` for big files and `keep` for others.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = values::cache, hide_default_value = true)]
    pub(crate) cache: CacheMode,
    /// Limit in bytes per second, e.g. 8M, or a timetable
    ///
    /// A timetable is a list of `[DAY-]HH:MM,RATE` in local time, e.g. "08:00,512K 18:00,10M
    /// Sat-00:00,off".
    #[arg(long, value_name = "RATE", value_parser = values::bwlimit)]
    pub(crate) bwlimit: Option<Schedule>,
    /// Maximum number of bytes written but not yet durable
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) dirty_max: Option<u64>,
    /// Number of retries after a transient error (default 4)
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// Count all files before the first write
    #[arg(long)]
    pub(crate) preflight: bool,
    /// Names that DST cannot hold: auto (default), refuse, map
    ///
    /// `auto` maps them reversibly if the target needs it, and maps them back. `refuse` reports
    /// them as errors. `map` always maps to names that Windows can hold.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = values::names, hide_default_value = true)]
    pub(crate) names: NamePolicy,
}

/// Flags for output.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only errors
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
    /// List every item
    #[arg(short = 'v', long)]
    pub(crate) verbose: bool,
    /// Show no progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// Append a log of the run to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Record every operation in this file (see `ropeway trace`)
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The web page.
    #[command(flatten)]
    pub(crate) http: HttpArgs,
}

/// Testing aids.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Models (testing aids)")]
pub(crate) struct ModelArgs {
    /// Read as if from a slow device, e.g. disk, usb-flash
    ///
    /// Also `seek=1ms,read=20MB,write=7MB,op=1ms,cache=64M` (bytes per second), alone or after a
    /// name.
    #[arg(long, value_name = "MODEL", value_parser = values::model)]
    pub(crate) slow_source: Option<DeviceModel>,
    /// Write as if to a slow device
    #[arg(long, value_name = "MODEL", value_parser = values::model)]
    pub(crate) slow_target: Option<DeviceModel>,
    /// Fail by rule, e.g. source:read:contains=big,errno=EIO
    ///
    /// The form is `[source:|target:]OPERATION:key=value,…`. OPERATION is read, write, create,
    /// rename, … or any. The keys are path, contains, offset, after_bytes, nth, times, probability,
    /// seed, errno, kind, delay and late. The flag is repeatable.
    #[arg(long, value_name = "RULE", value_parser = values::fault)]
    pub(crate) fault: Vec<values::FaultRules>,
}
