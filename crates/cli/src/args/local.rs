//! `ropeway lab dirty`: labs of this machine's own devices.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{AFTER_HELP, values};

/// Labs of this machine's own devices.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LocalCommand {
    /// Find when the page cache makes writers wait
    ///
    /// Writes a file without a name in DIR, 1 MiB at a time, until well past the threshold, then waits until all is durable.
    /// Finds the rate of memory, the threshold, and the device's real rate, and compares them with the kernel's settings and
    /// with the model of delayed writing. Meanwhile other writers of this machine have to wait too, as they would for any
    /// program that writes so much.
    Dirty(Box<DirtyArgs>),
}

/// `ropeway lab dirty`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct DirtyArgs {
    /// Where to write; the device below it is measured
    #[arg(value_name = "DIR", default_value = ".", hide_default_value = true)]
    pub(crate) dir: PathBuf,
    /// How much to write (default: 2.5 x the expected threshold, at most half of what is free)
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) bytes: Option<u64>,
    /// Longest time of writing, and again of what follows
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = values::duration)]
    pub(crate) limit: Duration,
    /// Small synced writes before, from which the kernel learns how fast the device is
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = values::duration)]
    pub(crate) warm_up: Duration,
    /// Folder for the report
    #[arg(long, value_name = "DIR", default_value = "lab-dirty")]
    pub(crate) out: PathBuf,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
