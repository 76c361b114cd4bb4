//! The command line: one struct for each command, with the text of its help.
//!
//! `-h` shows the first line of each flag, `--help` the whole text. Flags declare no conflicts to
//! clap: a flag may also come from the environment or the configuration ([`crate::layers`]), so
//! `combinations` checks them after the layers are merged.

mod bench;
mod boost;
mod combinations;
mod dirty;
mod examples;
mod far;
mod fleet;
mod http;
mod jobs;
mod lab;
mod lab_documents;
mod lab_predict;
mod lab_reports;
mod local;
mod login;
mod mount;
mod nodes;
mod serve;
mod share;
mod share_spec;
#[cfg(feature = "smb1")]
mod smb1;
mod top;
mod trace;
mod transfer;
pub(crate) mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use ropeway_vfs::HashAlgorithm;

pub(crate) use bench::{BenchArgs, SizeList};
#[cfg(test)]
pub(crate) use boost::OfflineReads;
pub(crate) use boost::{
    BoostArgs, BoostClearArgs, BoostCommand, BoostCommandArgs, BoostCreateArgs, BoostLearnArgs,
    BoostStatusArgs, BoostTestArgs, Prefetch, offline_reads, prefetch,
};
pub(crate) use dirty::{DirtyArgs, DirtyBy, DirtyCommand, DirtyDrainArgs, DirtyShowArgs, FlushWorkerArgs};
pub(crate) use examples::command;
pub(crate) use far::FarArgs;
pub(crate) use fleet::{
    BudgetArgs, FleetArgs, FleetCommand, FleetPageArgs, FleetStatusArgs, FleetSubmitArgs, FleetTopArgs,
    FleetWorkArgs, NatsArgs,
};
pub(crate) use http::HttpArgs;
pub(crate) use jobs::{JobsArgs, JobsCommand, JobsListArgs, JobsResumeArgs, JobsRmArgs, JobsSweepArgs};
pub(crate) use lab::{
    LabArgs, LabCommand, LabFileArgs, LabListArgs, LabRunArgs, LinkAction, LinkArgs, LinkCheckArgs,
    LinkFloorArgs, LinkShape,
};
pub(crate) use lab_documents::LabDocumentsArgs;
pub(crate) use lab_predict::LabPredictArgs;
pub(crate) use lab_reports::{LabCompareArgs, LabReportArgs};
pub(crate) use local::{LabBoostArgs, LabDirtyArgs, LocalCommand, NasArgs, NasWorkerArgs, VistaArgs};
pub(crate) use login::{LoginArgs, LogoutArgs};
pub(crate) use mount::{MountArgs, umask};
pub(crate) use nodes::{LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub(crate) use serve::{
    KerberosUsers, ServeArgs, ServeCommand, ServeLinks, ServeLoginArgs, UserAddArgs, UserCommand,
};
pub(crate) use share::ShareArgs;
#[cfg(test)]
pub(crate) use share_spec::ShareOptions;
pub(crate) use share_spec::{BinSpec, ShareSpec, SnapshotSpec, check_share_name};
pub(crate) use top::TopArgs;
pub(crate) use trace::{FilterArgs, Plot, RecordArgs, StacksBy, TraceArgs, TraceSource, ViewArgs};
pub(crate) use transfer::{
    AttributeArgs, EndArgs, ExistingArgs, ModelArgs, OutputArgs, SelectArgs, SpeedArgs, TransferArgs,
};

/// Text below the help of every command.
const AFTER_HELP: &str = "\
You can also set every flag --long-name as ROPEWAY_LONG_NAME in the environment or as long-name in \
$XDG_CONFIG_HOME/ropeway/config.toml; a flag overrides the environment, and the environment overrides the file. Flags that delete, \
move or overwrite work on the command line only.";

/// Returns whether a flag deletes, moves or overwrites files that the command line did not name, or
/// confirms such an action. A forgotten variable or line of the configuration must not turn a copy
/// into a move.
pub(crate) fn is_command_line_only(command: &str, long: &str) -> bool {
    match (command, long) {
        (_, "move" | "yes" | "write-device") | ("rm", "recursive" | "force") | ("mv", "force") => true,
        // Runs a program.
        ("trace", "run") => true,
        // --delete-excluded and the like.
        _ => long.starts_with("delete"),
    }
}

/// Returns the long names of a command's flags.
pub(crate) fn own_long_flags(command: &clap::Command) -> Vec<String> {
    let longs = command.get_arguments().filter_map(|arg| arg.get_long());
    longs.map(str::to_owned).collect()
}

/// Returns the long names of the flags of all commands below one.
pub(crate) fn long_flags(command: &clap::Command) -> Vec<String> {
    let (mut all, mut below) = (Vec::new(), vec![command]);
    while let Some(command) = below.pop() {
        all.extend(own_long_flags(command));
        below.extend(command.get_subcommands());
    }
    all
}

/// Move and share files between disks, flash, NAS and sites at the speed of the link, and tell the
/// truth about it.
#[derive(Debug, Parser)]
#[command(
    name = "ropeway",
    version,
    max_term_width = 120,
    after_help = "`ropeway COMMAND -h` shows a command's flags, one line each; `--help` explains them.",
    after_long_help = AFTER_HELP
)]
pub(crate) struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands of `ropeway`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files and folders; resume an unfinished copy
    ///
    /// Copies SRC into DST if DST is a folder, else to DST, like `cp -r`. If an earlier copy of the
    /// same SRC to DST is unfinished, it resumes that copy. It ends when the data is durable on the
    /// device.
    Copy(Box<CopyArgs>),
    /// Make a folder equal to another one, deletions included
    ///
    /// Deletes from DST everything that SRC does not have. The whole source is walked first. A
    /// source without any file is refused. A folder that could not be listed completely deletes
    /// nothing. If anything failed, nothing is deleted (see --delete-on-errors). Names that a
    /// filter excludes stay, and so do volumes mounted below DST where SRC has no folder.
    Mirror(Box<MirrorArgs>),
    /// Compare two trees, or one tree with a manifest
    ///
    /// Compares DST with SRC: kinds, sizes, times (at the coarser granularity of the two ends),
    /// attributes, and with --checksum the contents. With --manifest it compares files with the
    /// hashes that an earlier copy kept. Exit code 7 if anything differs.
    Check(Box<CheckArgs>),
    /// List a folder, or the shares of a server
    ///
    /// `ropeway ls smb://user@host/` lists the shares. Entries are sorted by name. -l adds kind,
    /// size and time; -R lists folders recursively. Links are not followed, except a link that you
    /// give as the argument.
    Ls(Box<LsArgs>),
    /// Show all metadata of files and folders
    Stat(Box<StatArgs>),
    /// Create folders
    Mkdir(Box<MkdirArgs>),
    /// Remove files, and folders with -r
    ///
    /// Removes links, does not follow them. Before it removes a folder that is not empty, it counts
    /// the contents and asks (-y: does not ask); without a terminal it refuses (exit 8). It never
    /// removes the top folder of a volume or share.
    Rm(Box<RmArgs>),
    /// Rename or move within one volume or share
    ///
    /// Never copies data. Between volumes, shares or servers use `copy --move`, which removes each
    /// file once its copy is durable.
    Mv(Box<MvArgs>),
    /// Keep a password in the kernel's keyring
    ///
    /// Asks for the password (or takes it from ROPEWAY_PASSWORD or a credentials file), tries it at
    /// the server, and keeps it in a keyring of the kernel: in memory, for this user only, until a
    /// restart. URLs of that user and server then need no password. `--list` shows the kept
    /// entries, `logout` forgets them.
    Login(Box<LoginArgs>),
    /// Forget a password that `login` keeps
    Logout(Box<LogoutArgs>),
    /// Share folders over SMB 2 and 3
    ///
    /// Serves until you stop it (SIGTERM or Ctrl-C), then makes everything durable that clients
    /// wrote. SIGHUP reads users and shares again. `serve user add` adds users; if there are none,
    /// it creates a user with a random pass phrase and prints both.
    Serve(Box<ServeArgs>),
    /// Use a folder or share as a file system of this machine
    ///
    /// Mounts SRC on the empty folder MNT through FUSE and returns when files can be used. `umount
    /// MNT` (or `fusermount3 -u MNT`) ends the mount, and so does SIGTERM. What was written is
    /// made durable then.
    Mount(Box<MountArgs>),
    /// Caches on flash devices: test, make, show, empty
    ///
    /// A cache keeps blocks of files that `mount --boost DIR` reads from a slow source.
    Boost(BoostCommandArgs),
    /// Measure a folder, a mount or a share by file size and record size
    ///
    /// Writes, rewrites, reads and rereads files, in a row, at random and strided, cached, flushed
    /// and direct, with one and with many requests in flight, and creates, lists, renames and
    /// removes many files. Says which figures a cache, the line or a busy machine explains. Works
    /// in a new folder inside TARGET and removes it at the end.
    Bench(Box<BenchArgs>),
    /// Unfinished copies: list, resume or forget them, sweep leftovers
    ///
    /// A copy that was killed, interrupted or disconnected has a journal until it is finished.
    /// Without an action, the unfinished copies are listed.
    Jobs(Box<JobsArgs>),
    /// Live view of running ropeway processes
    ///
    /// Shows every running ropeway of the user (root: of all users): jobs with what is read, sent and
    /// durable, servers with sessions and open files, mounts, caches, what is not durable yet. Jobs can
    /// be paused, resumed, slowed down and cancelled. --once prints a table and ends.
    Top(TopArgs),
    /// Show file operations: of a run with --trace, or of any program
    ///
    /// Shows a trace FILE that another command wrote with --trace, or records a program (--run,
    /// --pid) or a whole volume (--volume) and shows that. Prints a table with totals for each kind
    /// of operation, JSON Lines or CSV, plots, sums by size, path or process, or a file for
    /// Perfetto. Filters combine.
    Trace(Box<TraceArgs>),
    /// Show what the page cache still has to write to each device
    ///
    /// Dirty and write-back bytes, the kernel's thresholds, whether writers have to wait, the rate of
    /// each device and the time until it has everything, and the processes and files behind it.
    /// `dirty drain PATH` waits until a device has everything.
    Dirty(Box<DirtyArgs>),
    /// One copy by many machines (not finished)
    ///
    /// For trees where one machine is not enough. `submit` makes a job, `work` runs on as many
    /// machines as help. The job lives in a folder beside the target, so it needs no service. Any
    /// process may die at any time. It is not finished: docs/fleet.md lists what can go wrong, and
    /// the command needs ROPEWAY_FLEET=unfinished.
    #[command(hide = true)]
    Fleet(Box<FleetArgs>),
    /// Create a tree, copy it, kill the copy halfway, resume, verify
    ///
    /// Creates a mixed tree in a new temporary folder, copies it with a second ropeway process,
    /// kills that process halfway (SIGKILL), resumes, verifies from the device, compares both trees
    /// independently, and reports how much was sent twice. Removes everything at the end. Exit code
    /// 0 only if every step succeeded.
    Demo(Box<DemoArgs>),
    /// Laboratory: emulated links between real TCP stacks
    ///
    /// `lab link` runs a command over a link with the round trip, rate, loss and queue that you
    /// choose. `lab link check` checks the emulator. `lab link floor` measures bare TCP.
    Lab(Box<LabArgs>),
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Man(ManArgs),
}

/// `ropeway man`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManArgs {
    /// Existing folder for the pages
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}

/// `ropeway copy`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP, override_usage = "ropeway copy [OPTIONS] <SRC>... <DST>")]
pub(crate) struct CopyArgs {
    // One list of paths, so that flags may stand anywhere between them, as for cp.
    /// SRC... DST: files or folders to copy; last, a folder to copy into or the name of the copy
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,
    /// Treat DST as the copy itself, never copy into it
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Remove each source file once its copy is durable; kept, filtered and failed files stay
    ///
    /// Also removes folders that are empty by then, or were empty before, if their copies exist.
    /// Not with --watch.
    #[arg(long = "move")]
    pub(crate) move_source: bool,
    /// Write one image onto the block device DST
    ///
    /// SRC is a file (or a block device) on this machine that fits. DST is a block device that is
    /// not in use: not mounted, not swap, not part of another device. The device is overwritten
    /// from its beginning; whatever lies beyond SRC's size stays. The command ends when the device
    /// has everything; --verify reads it back. Such a run cannot be resumed: an interrupted run
    /// leaves the device partly written.
    #[arg(long)]
    pub(crate) write_device: bool,
    /// Flags that `copy` and `mirror` share.
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

impl CopyArgs {
    /// Returns the sources and the target; `None` if only one path was given.
    pub(crate) fn ends(&self) -> Option<(&[PathBuf], &PathBuf)> {
        let (target, sources) = self.paths.split_last()?;
        (!sources.is_empty()).then_some((sources, target))
    }
}

/// `ropeway mirror`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MirrorArgs {
    /// Folder to mirror
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Folder to make equal to SRC
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Refuse to delete more than N files and folders, or N% of DST
    ///
    /// Counted before the first deletion. The limit applies to the whole run: with --watch, a round
    /// that would exceed it deletes nothing and ends the run (exit 8).
    #[arg(long, value_name = "N|N%", value_parser = values::max_delete)]
    pub(crate) max_delete: Option<ropeway_plan::guard::MaxDelete>,
    /// Also delete names that filters exclude
    #[arg(long)]
    pub(crate) delete_excluded: bool,
    /// Delete even if something could not be copied
    ///
    /// Otherwise a failure stops all deletions: a file that was renamed and cannot be read would be
    /// lost under both names. The run lists what it keeps for this reason and ends with exit code
    /// 2.
    #[arg(long)]
    pub(crate) delete_on_errors: bool,
    /// Delete without asking
    ///
    /// Otherwise the mirror asks on the terminal if there is something to delete. Without a
    /// terminal it is refused (exit 8) and changes nothing.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    /// Flags that `copy` and `mirror` share.
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

/// `ropeway check`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CheckArgs {
    /// SRC DST; with --manifest the folder it describes (default: the manifest's own folder)
    #[arg(value_name = "PATH", num_args = 0..=2)]
    pub(crate) paths: Vec<PathBuf>,
    /// Show the differences side by side, choose some and copy them
    ///
    /// Needs a terminal. Copies go from SRC to DST or back, like those of `ropeway copy`: nothing is
    /// deleted, and what is there is replaced once its copy is complete.
    #[arg(long)]
    pub(crate) tui: bool,
    /// Compare contents, not only sizes and times
    #[arg(short = 'c', long)]
    pub(crate) checksum: bool,
    /// Treat times that differ by no more than this as equal, e.g. 2s
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) modify_window: Option<Duration>,
    /// Compare with the hashes in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Hash of the manifest: blake3, sha256, xxh3
    ///
    /// By default sha256 if the file's name says so (`photos.sha256`), xxh3 if it has `xxh`, else blake3.
    #[arg(long, value_name = "NAME", value_parser = values::hash)]
    pub(crate) hash: Option<HashAlgorithm>,
    /// Attributes to compare.
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
    /// Files to compare.
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    /// Output.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `ropeway demo`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct DemoArgs {
    /// Where to create the temporary folder [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Keep the folder at the end
    #[arg(long)]
    pub(crate) keep: bool,
    /// Seed for the generated tree
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn short_help_has_one_line_for_each_flag() {
        for name in [
            "copy",
            "mirror",
            "check",
            "top",
            "trace",
            "demo",
            "ls",
            "stat",
            "mkdir",
            "rm",
            "mv",
            "login",
            "logout",
            "serve",
            "mount",
            "boost test",
            "boost create",
            "boost status",
            "boost clear",
            "jobs",
            "jobs list",
            "jobs rm",
            "jobs resume",
            "jobs sweep",
            "dirty",
            "dirty drain",
            "lab link",
            "lab link check",
            "lab link floor",
            "lab run",
            "lab tr3869",
            "lab far",
            "lab quick",
            "lab list",
            "lab predict",
            "lab documents",
            "lab report",
            "lab compare",
        ] {
            let mut command = Cli::command();
            command.build();
            let sub = name.split(' ').fold(&mut command, |command, part| {
                command.find_subcommand_mut(part).unwrap()
            });
            let text = sub.clone().term_width(120).render_help().to_string();
            let shown = |arg: &&clap::Arg| !arg.is_positional() && !arg.is_hide_set();
            let flags = sub.get_arguments().filter(shown).count();
            let lines = text
                .lines()
                .filter(|line| line.trim_start().starts_with('-'))
                .count();
            assert_eq!(lines, flags, "{name}:\n{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= 120, "{line}");
            }
        }
    }
}
