//! The command line: one struct for each command, texts of the help included.
//!
//! `-h` shows the first line of each flag, `--help` everything. Flags never name conflicts to clap: a flag may also
//! come from the environment or the configuration ([`crate::layers`]), and commands judge combinations themselves.

mod jobs;
mod lab;
mod lab_reports;
mod local;
mod login;
mod nodes;
mod serve;
mod share;
mod transfer;
pub(crate) mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub(crate) use jobs::{JobsArgs, JobsCommand, JobsListArgs, JobsResumeArgs, JobsRmArgs, JobsSweepArgs};
pub(crate) use lab::{
    LabArgs, LabCommand, LabFileArgs, LabListArgs, LabRunArgs, LinkAction, LinkArgs, LinkCheckArgs,
    LinkFloorArgs, LinkShape,
};
pub(crate) use lab_reports::{LabCompareArgs, LabReportArgs};
pub(crate) use local::{DirtyArgs, LocalCommand, NasArgs, NasWorkerArgs, VistaArgs};
pub(crate) use login::{LoginArgs, LogoutArgs};
pub(crate) use nodes::{LsArgs, MkdirArgs, MvArgs, RmArgs, StatArgs};
pub(crate) use serve::{
    KerberosUsers, ServeArgs, ServeCommand, ServeLinks, ServeLoginArgs, UserAddArgs, UserCommand,
};
pub(crate) use share::ShareArgs;
pub(crate) use transfer::{
    AttributeArgs, ExistingArgs, ModelArgs, OutputArgs, SelectArgs, SpeedArgs, TransferArgs,
};

/// Text below the help of every command.
const AFTER_HELP: &str = "\
Every flag --long-name can also be set as ROPEWAY_LONG_NAME in the environment or as long-name in \
$XDG_CONFIG_HOME/ropeway/config.toml; a flag wins over the environment, and that over the file. What deletes or moves \
is said on the command line only.";

/// Whether a flag deletes, moves or overwrites what nobody named, or answers the question before that. A forgotten
/// variable or line of the configuration must not turn a copy into a move.
pub(crate) fn is_command_line_only(command: &str, long: &str) -> bool {
    match (command, long) {
        (_, "move" | "yes" | "write-device") | ("rm", "recursive" | "force") | ("mv", "force") => true,
        // --delete-excluded and its like.
        _ => long.starts_with("delete"),
    }
}

/// Move and share files between disks, flash, NAS and sites at the speed of the link, and tell the truth about it.
#[derive(Debug, Parser)]
#[command(
    name = "ropeway",
    version,
    max_term_width = 120,
    after_help = "`ropeway COMMAND -h` shows a command's flags, one line each; `--help` explains them.",
    after_long_help = AFTER_HELP
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files and folders; goes on where an earlier run stopped
    ///
    /// Copies SRC into DST if DST is a folder, else to DST, like `cp -r`; except that an unfinished copy of the same
    /// SRC to DST is continued. Ends when the data is durable on the device.
    Copy(Box<CopyArgs>),
    /// Make a folder equal to another, deletions included
    ///
    /// What SRC does not have is deleted from DST. The whole source is walked first; a source without a file that takes
    /// part is refused; a folder that could not be listed whole deletes nothing; if anything failed, nothing is deleted
    /// at all (--delete-on-errors); excluded names survive, and volumes mounted below DST where SRC has no folder.
    Mirror(Box<MirrorArgs>),
    /// Compare two trees, or one with a manifest
    ///
    /// Compares DST with SRC: kinds, sizes, times (at the coarser end's granularity), attributes, and with --checksum
    /// the content. With --manifest compares files with the hashes that an earlier copy kept. Exit code 7 on
    /// differences.
    Check(Box<CheckArgs>),
    /// List a folder, or the shares of a server
    ///
    /// `ropeway ls smb://user@host/` lists the shares. Entries come sorted by name; -l adds kind, size and time, -R goes
    /// into folders. Links are not followed, except a link given as the argument.
    Ls(Box<LsArgs>),
    /// Show everything that is known of files and folders
    Stat(Box<StatArgs>),
    /// Make folders
    Mkdir(Box<MkdirArgs>),
    /// Remove files, and with -r folders
    ///
    /// Links are removed, not followed. A folder that is not empty is counted first and asked about (-y: not asked);
    /// without a terminal that is refused (exit 8). The top of a volume or share is never removed.
    Rm(Box<RmArgs>),
    /// Rename or move within one volume or share
    ///
    /// Nothing is copied: between volumes, shares or servers use `copy --move`, which removes each file once its copy is
    /// durable.
    Mv(Box<MvArgs>),
    /// Keep a password in the keyring
    ///
    /// Asks for the password (or takes that of ROPEWAY_PASSWORD or a credentials file), tries it at the server, and keeps it
    /// in a keyring of the kernel: in memory, for this user, gone after a restart. From then on URLs of that user and server
    /// need none. `--list` shows whose are kept, `logout` forgets them.
    Login(Box<LoginArgs>),
    /// Forget a password that login keeps
    Logout(Box<LogoutArgs>),
    /// Share folders over SMB 2 and 3
    ///
    /// Serves until it is stopped (SIGTERM or Ctrl-C); then everything that clients wrote is made durable. SIGHUP reads users
    /// and shares again. `serve user add` keeps users; without any it makes one with a random pass phrase, and says both.
    Serve(Box<ServeArgs>),
    /// Unfinished copies: list, resume or forget them, sweep what they left
    ///
    /// A copy that was killed, interrupted or cut off has a journal until it is finished. Without an action they are listed.
    Jobs(Box<JobsArgs>),
    /// Show what a run with --trace did, operation by operation
    ///
    /// As a table, or as JSON Lines or CSV for other tools, with sums by kind of operation. Filters combine.
    Trace(Box<TraceArgs>),
    /// Make a tree, copy it, kill the copy half way, resume, verify
    ///
    /// Makes a real mixed tree in a new temporary folder, copies it with a second ropeway process, kills that half way
    /// (SIGKILL), resumes, verifies from the device, compares independently, and says what was sent twice. Removes
    /// everything at the end. Exit code 0 only if all of it held.
    Demo(Box<DemoArgs>),
    /// Laboratory: emulated links between real TCP stacks
    ///
    /// `lab link` runs a command over a link with a round trip, rate, loss and queue of your choice, `lab link check`
    /// proves the emulator, `lab link floor` says what bare TCP needs.
    Lab(Box<LabArgs>),
}

/// `ropeway copy`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP, override_usage = "ropeway copy [OPTIONS] <SRC>... <DST>")]
pub(crate) struct CopyArgs {
    // One list, so that flags may stand anywhere between, as with cp.
    /// SRC... DST: files or folders to copy; last, where to: a folder to copy into, or the name of the copy
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<PathBuf>,
    /// Take DST as the copy itself, never go into it
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// Remove each source file once its copy is durable; what was kept, skipped by a filter or failed stays
    ///
    /// Folders that are empty by then, or were so before, are removed as well where their copies stand. Not with
    /// --watch.
    #[arg(long = "move")]
    pub(crate) move_source: bool,
    /// Write one image onto the block device DST itself
    ///
    /// SRC is a file (or a block device) of this machine that fits; DST a block device that nothing uses: not mounted, no
    /// swap, no part of another device. What is on it is overwritten from its beginning; what lies beyond SRC's size
    /// stays. It ends when the device has everything; --verify reads it back. Nothing is resumed: a run that is cut off
    /// leaves the device written in part.
    #[arg(long)]
    pub(crate) write_device: bool,
    /// Everything that copies share.
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

impl CopyArgs {
    /// What to copy, and where to; `None` if only one path was given.
    pub(crate) fn ends(&self) -> Option<(&[PathBuf], &PathBuf)> {
        let (target, sources) = self.paths.split_last()?;
        (!sources.is_empty()).then_some((sources, target))
    }
}

/// `ropeway mirror`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MirrorArgs {
    /// The folder to mirror
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// The folder that becomes equal to it
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Refuse to delete more than N nodes, or N% of DST
    ///
    /// Counted before the first deletion. The bound is for the whole run: with --watch, a round that would go beyond it
    /// deletes nothing, and ends the run (exit 8).
    #[arg(long, value_name = "N|N%", value_parser = values::max_delete)]
    pub(crate) max_delete: Option<ropeway_plan::guard::MaxDelete>,
    /// Delete what filters exclude, too
    #[arg(long)]
    pub(crate) delete_excluded: bool,
    /// Delete even if something could not be copied
    ///
    /// Otherwise nothing is deleted when anything failed, since a file that was renamed and cannot be read would be
    /// gone under both names. What is kept for that is told, and the exit code is 2.
    #[arg(long)]
    pub(crate) delete_on_errors: bool,
    /// Delete without asking
    ///
    /// Otherwise a terminal is asked when there is something to delete; without a terminal the mirror is refused
    /// (exit 8) and nothing is touched.
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    /// Everything that copies share.
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

/// `ropeway check`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CheckArgs {
    /// SRC DST; with --manifest the folder that the manifest speaks of (default: where the manifest lies)
    #[arg(value_name = "PATH", num_args = 0..=2)]
    pub(crate) paths: Vec<PathBuf>,
    /// Compare content, not only size and time
    #[arg(short = 'c', long)]
    pub(crate) checksum: bool,
    /// Times that differ by no more than this are equal, e.g. 2s
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) modify_window: Option<Duration>,
    /// Compare with the hashes in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest: Option<PathBuf>,
    /// Which attributes count.
    #[command(flatten)]
    pub(crate) attributes: AttributeArgs,
    /// What to look at.
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    /// How to speak.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `ropeway trace`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct TraceArgs {
    /// The trace file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only this kind of operation (repeat for more)
    #[arg(short = 'k', long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only `source` or `target`
    #[arg(long, value_name = "END", value_parser = values::end)]
    pub(crate) end: Option<ropeway_vfs::trace::End>,
    /// Only paths that hold this text
    #[arg(short = 'p', long, value_name = "TEXT")]
    pub(crate) path: Option<String>,
    /// Only operations that failed
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only operations that took longer, e.g. 10ms
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) longer_than: Option<Duration>,
    /// At most so many operations
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Only the table by kind: count, bytes, times
    #[arg(short = 's', long)]
    pub(crate) summary: bool,
    /// JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
    /// Comma-separated values (RFC 4180)
    #[arg(long)]
    pub(crate) csv: bool,
}

/// `ropeway demo`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct DemoArgs {
    /// Where to make the temporary folder [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Leave the folder at the end
    #[arg(long)]
    pub(crate) keep: bool,
    /// Seed of the made-up tree
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
            "jobs",
            "jobs list",
            "jobs rm",
            "jobs resume",
            "jobs sweep",
            "lab link",
            "lab link check",
            "lab link floor",
            "lab run",
            "lab tr3869",
            "lab quick",
            "lab list",
            "lab report",
            "lab compare",
        ] {
            let mut command = Cli::command();
            command.build();
            let sub = name.split(' ').fold(&mut command, |command, part| {
                command.find_subcommand_mut(part).unwrap()
            });
            let text = sub.clone().term_width(120).render_help().to_string();
            let flags = sub.get_arguments().filter(|arg| !arg.is_positional()).count();
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
