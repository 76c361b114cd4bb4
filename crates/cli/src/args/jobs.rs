//! Flags of `jobs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AFTER_HELP, ShareArgs};

const EXAMPLES: &str = "\
Examples:
  ropeway jobs                            what is unfinished
  ropeway jobs resume 3f2a                run that copy again, with the flags that it had
  ropeway jobs rm 3f2a                    forget it, and remove what it left on its target
  ropeway jobs sweep -n /mnt/stick        what killed copies left there, whoever ran them
  ropeway jobs sweep smb://ann@nas/data   remove it";

/// `ropeway jobs`.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "ACTION",
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{AFTER_HELP}")
)]
pub(crate) struct JobsArgs {
    /// What to do; without it they are listed.
    #[command(subcommand)]
    pub(crate) command: Option<JobsCommand>,
    /// How to list.
    #[command(flatten)]
    pub(crate) list: JobsListArgs,
}

/// What to do with them.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List unfinished copies and mirrors
    ///
    /// Each with its id, when it last ran, whether it runs now, and the room that its temporary names take on its target
    /// (`-` where the target is a share or not there).
    #[command(after_long_help = AFTER_HELP)]
    List(JobsListArgs),
    /// Forget a job, and remove what it left on its target
    ///
    /// The same copy begins anew the next time. A job that runs is refused (exit 8).
    #[command(after_long_help = AFTER_HELP)]
    Rm(JobsRmArgs),
    /// Run a job's command again: it goes on where it stopped
    #[command(after_long_help = AFTER_HELP)]
    Resume(JobsResumeArgs),
    /// Remove what dead jobs left in a folder and below it
    ///
    /// Temporary names of jobs that run stay, on whatever machine they run. So do those of jobs of which nobody here can
    /// tell (their claim lies further up, or was made from the other side of a share) unless --all is given. Other volumes
    /// are not entered.
    #[command(after_long_help = AFTER_HELP)]
    Sweep(JobsSweepArgs),
}

/// `ropeway jobs list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsListArgs {
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway jobs rm`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsRmArgs {
    /// The jobs' ids, or their beginnings
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All that do not run
    #[arg(long)]
    pub(crate) all: bool,
    /// Leave what is on the target; for one that is gone for good
    #[arg(long)]
    pub(crate) keep_leftovers: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway jobs resume`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsResumeArgs {
    /// The job's id, or its beginning
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// `ropeway jobs sweep`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsSweepArgs {
    /// Folders, here or on shares
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Also those of jobs of which nobody here can tell whether they run
    #[arg(long)]
    pub(crate) all: bool,
    /// Remove nothing, say what would be
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}
