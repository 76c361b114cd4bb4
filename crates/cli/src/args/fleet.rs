//! Flags of `fleet`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{AFTER_HELP, ShareArgs, values};

/// `ropeway fleet`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetArgs {
    /// The action.
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

/// Actions of `ropeway fleet`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Make a job: copy the content of SRC to DST, by all workers together
    ///
    /// Copies nothing itself. DST becomes the copy of SRC. The job lives in a folder
    /// `.ropeway-fleet-…` beside DST (inside, if DST is the top of a volume or share). A job that is
    /// not complete is refused (exit 8).
    #[command(after_long_help = AFTER_HELP)]
    Submit(FleetSubmitArgs),
    /// Work on the job of DST until it is complete
    ///
    /// Start it on as many machines as help, at any time. Each uses its own credentials. A worker
    /// that dies loses nothing: others go on with its task after --lease.
    #[command(after_long_help = AFTER_HELP)]
    Work(FleetWorkArgs),
    /// Show the job of DST: tasks, sums, workers, failures
    #[command(after_long_help = AFTER_HELP)]
    Status(FleetStatusArgs),
    /// Show the job of DST again and again, until it is complete
    #[command(after_long_help = AFTER_HELP)]
    Top(FleetTopArgs),
    /// Try again what failed, and work until the job is complete
    ///
    /// A job that is not complete goes on where its workers stopped; that needs no memory of any of
    /// them.
    #[command(after_long_help = AFTER_HELP)]
    Resume(FleetWorkArgs),
}

/// `ropeway fleet submit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetSubmitArgs {
    /// Folder whose content is copied, here or on a share
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Folder that becomes its copy; the folder above it must exist
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Remove from DST what SRC does not have, at the end and only if nothing failed
    #[arg(long)]
    pub(crate) delete: bool,
    /// Limit in bytes a second for all workers together, e.g. 50M, or a timetable
    ///
    /// As with `copy --bwlimit`. Each worker takes an equal share; when one starts or ends, the others follow within
    /// seconds; if one dies, after --lease.
    #[arg(long, value_name = "RATE", value_parser = values::bwlimit_text)]
    pub(crate) bwlimit: Option<String>,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway fleet work` and `resume`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetWorkArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Where SRC is for this machine (default: as `submit` was told)
    #[arg(long, value_name = "SRC")]
    pub(crate) source: Option<PathBuf>,
    /// Time without a sign of life after which others take over, 2s to 1h (default 30s)
    ///
    /// A shorter time costs nothing but work that is done again: a worker that was only slow cannot
    /// overwrite anything. All workers of a job should have the same.
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) lease: Option<Duration>,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway fleet status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetStatusArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// List what failed in the last round, with reasons
    #[arg(long)]
    pub(crate) failures: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway fleet top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FleetTopArgs {
    /// The DST of the job
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Time between two updates, 100ms to 1h (default 2s)
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) interval: Option<Duration>,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}
