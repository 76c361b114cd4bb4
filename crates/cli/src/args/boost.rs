//! Flags of `boost`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AFTER_HELP, ShareArgs};

/// `ropeway boost`.
#[derive(Args, Clone, Debug)]
#[command(disable_help_subcommand = true, subcommand_value_name = "ACTION", after_long_help = AFTER_HELP)]
pub(crate) struct BoostArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: BoostCommand,
}

/// Actions of `ropeway boost`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum BoostCommand {
    /// Test whether a device is fast enough for a cache
    ///
    /// Reads 4 KB and writes 512 KB at random places of a temporary file in DIR, past the page
    /// cache, for about ten seconds. The device must reach 2.5 MB/s and 1.75 MB/s, and with
    /// --source must be faster than the source. Exit code 8 if it is refused. Nothing stays in DIR.
    #[command(after_long_help = AFTER_HELP)]
    Test(Box<BoostTestArgs>),
}

/// `ropeway boost test`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BoostTestArgs {
    /// Folder on the device
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Compare with random reads of this file, folder or share, which the cache should speed up
    ///
    /// Reads its largest files: those of the folder, and of folders in it until one has any.
    #[arg(long, value_name = "SRC")]
    pub(crate) source: Option<PathBuf>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}
