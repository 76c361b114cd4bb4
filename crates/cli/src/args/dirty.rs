//! Flags of `dirty`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{AFTER_HELP, values};
use crate::failure::Failure;

/// Interval of `--watch` without a value.
const WATCH_DEFAULT: Duration = Duration::from_secs(1);
/// Shortest interval of `--watch`.
const WATCH_MIN: Duration = Duration::from_millis(10);

/// `ropeway dirty`.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    override_usage = "ropeway dirty [OPTIONS] [PATH]\n       ropeway dirty drain [OPTIONS] <PATH>",
    after_long_help = AFTER_HELP
)]
pub(crate) struct DirtyArgs {
    /// `dirty drain …`. For a path of that name, write ./drain.
    #[command(subcommand)]
    pub(crate) command: Option<DirtyCommand>,
    /// Flags of the view.
    #[command(flatten)]
    pub(crate) show: DirtyShowArgs,
}

/// Actions of `ropeway dirty`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DirtyCommand {
    /// Write everything back and wait until it is safe to unplug
    ///
    /// Makes the device of PATH have everything that is dirty on that file system, flushes the
    /// device's own cache, and shows the progress. A removable device is safe to unplug once nothing
    /// is dirty and no file is open for writing: it waits for that too, and names who writes.
    #[command(after_long_help = AFTER_HELP)]
    Drain(DirtyDrainArgs),
    /// Flushes for `dirty drain`, which starts it.
    #[command(hide = true)]
    FlushWorker(FlushWorkerArgs),
}

/// The view of `ropeway dirty`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DirtyShowArgs {
    /// Only the device of this file or folder, or this block device
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
    /// Look again and again, every second or at this interval, until Ctrl-C
    ///
    /// On a terminal the view is redrawn in place. Otherwise one line is printed for each device that
    /// is not clean.
    #[arg(short = 'w', long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "true", value_parser = watch)]
    pub(crate) watch: Option<Watch>,
    /// End after N looks of --watch
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// List only processes or only files, and more of them
    ///
    /// With PATH, `file` also finds dirty files below PATH that no process has open.
    #[arg(long, value_name = "process|file", value_enum)]
    pub(crate) by: Option<DirtyBy>,
    /// How many processes or files to list (default: 3; 10 with --by)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=1000))]
    pub(crate) top: Option<u16>,
    /// Count the time that the kernel makes writers wait (tracefs; root)
    #[arg(long)]
    pub(crate) held: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists of `dirty --by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirtyBy {
    /// Processes that make pages dirty.
    Process,
    /// Files with dirty pages.
    File,
}

/// `ropeway dirty drain`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DirtyDrainArgs {
    /// File or folder on the device, or the block device itself
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Drain every mounted file system of the disk, not only that of PATH
    #[arg(long)]
    pub(crate) whole: bool,
    /// Flush once; do not wait for files that are open for writing
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Give up after this time (exit 2); write-back goes on
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) timeout: Option<Duration>,
    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway dirty flush-worker`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FlushWorkerArgs {
    /// As of `drain`
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// As of `drain`
    #[arg(long)]
    pub(crate) whole: bool,
}

/// The value of `--watch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Look at this interval.
    Every(Duration),
    /// `--watch=false`, as switches have it.
    Off,
    /// Not a time: `--watch PATH` reads as an interval.
    Path(PathBuf),
}

/// Parses an interval. What is no time may be the path that follows `--watch`.
fn watch(given: &str) -> Result<Watch, String> {
    match given {
        "true" => return Ok(Watch::Every(WATCH_DEFAULT)),
        "false" => return Ok(Watch::Off),
        _ => {}
    }
    match values::duration(given) {
        Ok(interval) => Ok(Watch::Every(interval.max(WATCH_MIN))),
        Err(error) if given.starts_with(|first: char| first.is_ascii_digit()) => Err(error),
        Err(_) => Ok(Watch::Path(PathBuf::from(given))),
    }
}

impl DirtyShowArgs {
    /// Returns the interval of `--watch`, if it is given.
    pub(crate) fn interval(&self) -> Option<Duration> {
        match self.watch.as_ref()? {
            Watch::Every(interval) => Some(*interval),
            Watch::Off => None,
            Watch::Path(_) => Some(WATCH_DEFAULT),
        }
    }

    /// Returns the path, which may stand behind `--watch`.
    ///
    /// # Errors
    /// There is a path, and what stands behind `--watch` is no interval.
    pub(crate) fn path(&self) -> Result<Option<&PathBuf>, Failure> {
        match (&self.watch, &self.path) {
            (Some(Watch::Path(word)), Some(_)) => {
                Err(Failure::usage(format!("{} is not an interval", word.display()))
                    .hint("for example: --watch 500ms"))
            }
            (Some(Watch::Path(path)), None) => Ok(Some(path)),
            (_, path) => Ok(path.as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_behind_watch_is_no_interval() {
        assert_eq!(watch("true"), Ok(Watch::Every(WATCH_DEFAULT)));
        assert_eq!(watch("250ms"), Ok(Watch::Every(Duration::from_millis(250))));
        assert_eq!(watch("1us"), Ok(Watch::Every(WATCH_MIN)));
        assert_eq!(watch("/mnt"), Ok(Watch::Path("/mnt".into())));
        assert_eq!(watch("false"), Ok(Watch::Off));
        assert!(watch("5parsecs").is_err());
    }
}
