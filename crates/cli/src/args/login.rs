//! Flags of `login` and `logout`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{AFTER_HELP, ShareArgs, values};
use crate::secrets::Keyring;

/// `ropeway login`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LoginArgs {
    /// User and server: smb://user@host, as in any URL
    #[arg(value_name = "URL", required_unless_present = "list")]
    pub(crate) url: Option<PathBuf>,
    /// List the users whose passwords are kept; keep none
    #[arg(long)]
    pub(crate) list: bool,
    /// Forget the password after this time, e.g. 8h
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) keep_for: Option<Duration>,
    /// Keep the password without trying it at the server
    #[arg(long)]
    pub(crate) no_check: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Connections to servers.
    #[command(flatten)]
    pub(crate) share: ShareArgs,
}

/// `ropeway logout`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LogoutArgs {
    /// Users and servers: smb://user@host
    #[arg(value_name = "URL", required_unless_present = "all")]
    pub(crate) urls: Vec<PathBuf>,
    /// Forget all passwords that ropeway keeps
    #[arg(long)]
    pub(crate) all: bool,
    /// JSON Lines on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Keyring: persistent (default), user, session
    #[arg(long, value_name = "RING", default_value = "persistent", value_parser = values::keyring, hide_default_value = true)]
    pub(crate) keyring: Keyring,
}
