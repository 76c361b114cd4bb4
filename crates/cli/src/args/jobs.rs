//! Flags of `jobs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AFTER_HELP, ShareArgs};

/// `ropeway jobs`.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "ACTION",
    after_long_help = AFTER_HELP
)]
pub(crate) struct JobsArgs {
    /// What to do. Without an action, the jobs are listed.
    #[command(subcommand)]
    pub(crate) command: Option<JobsCommand>,
    /// Flags of the list.
    #[command(flatten)]
    pub(crate) list: JobsListArgs,
}

/// Actions of `ropeway jobs`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List unfinished copies and mirrors
    ///
    /// Shows each job's id, when it last ran, whether it is running now, and the space that its
    /// temporary files take on the target (`-` if the target is a share or is not available).
    #[command(after_long_help = AFTER_HELP)]
    List(JobsListArgs),
    /// Forget a job and remove its leftovers from the target
    ///
    /// The next run of the same copy starts from the beginning. A running job is refused (exit 8).
    #[command(after_long_help = AFTER_HELP)]
    Rm(JobsRmArgs),
    /// Run a job's command again; it resumes where it stopped
    #[command(after_long_help = AFTER_HELP)]
    Resume(JobsResumeArgs),
    /// Remove leftovers of dead jobs in a folder and below it
    ///
    /// Temporary files of running jobs stay, on whatever machine the job runs. Temporary files of
    /// jobs whose state is unknown stay too, unless you give --all: a job's claim may lie in a
    /// folder further up, or may have been made from the other side of a share. Other volumes are
    /// not entered.
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
    /// Ids of the jobs, or unique prefixes of them
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub(crate) ids: Vec<String>,
    /// All jobs that are not running
    #[arg(long)]
    pub(crate) all: bool,
    /// Leave the leftovers on the target, e.g. if the target no longer exists
    #[arg(long)]
    pub(crate) keep_leftovers: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway jobs resume`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsResumeArgs {
    /// Id of the job, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// `ropeway jobs sweep`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsSweepArgs {
    /// Folders, here or on shares
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Also remove leftovers of jobs whose state is unknown
    #[arg(long)]
    pub(crate) all: bool,
    /// Remove nothing; list what would be removed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}
