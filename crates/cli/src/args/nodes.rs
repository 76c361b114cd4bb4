//! Flags of the small helpers: `ls`, `stat`, `mkdir`, `rm`, `mv`.

use std::path::PathBuf;

use clap::Args;

use super::{AFTER_HELP, ShareArgs};

/// `ropeway ls`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LsArgs {
    /// Folders, files, or smb://host/ for its shares
    #[arg(value_name = "PATH", default_value = ".", hide_default_value = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Kind, permissions, size and time too
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// Everything in the folders too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How to speak with servers.
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
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway mkdir`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MkdirArgs {
    /// Folders to make
    #[arg(value_name = "DIR", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// The folders above it too; no error if it is there
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway rm`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RmArgs {
    /// What to remove
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Folders and all that is in them
    #[arg(short = 'r', long)]
    pub(crate) recursive: bool,
    /// No error if it is not there
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Remove folders that are not empty without asking
    #[arg(short = 'y', long)]
    pub(crate) yes: bool,
    /// Remove nothing, list what would be
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway mv`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct MvArgs {
    /// What to move
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// Its new name, or a folder to move it into
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    /// Replace a file that has the name
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Take DST as the new name, never go into it
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// How to speak with servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}
