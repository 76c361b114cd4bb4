//! Flags of the small commands `ls`, `stat`, `mkdir`, `rm` and `mv`.

use std::path::PathBuf;

use clap::Args;

use super::{AFTER_HELP, ShareArgs};

/// `ropeway ls`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LsArgs {
    /// Folders, files, or smb://host/ to list its shares
    #[arg(value_name = "PATH", default_value = ".", hide_default_value = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Show kind, permissions, size and time
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// List folders recursively
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway stat`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct StatArgs {
    /// Files or folders
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway mkdir`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MkdirArgs {
    /// Folders to create
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Create missing parent folders too; no error if DIR exists
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway rm`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RmArgs {
    /// Files and folders to remove
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Remove folders and their contents
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// No error if PATH does not exist
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Do not ask before removing a folder that is not empty
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
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

/// `ropeway mv`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MvArgs {
    /// File or folder to move
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Its new name, or a folder to move it into
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Replace an existing file
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Treat DST as the new name, never move into it
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}
