//! Flags of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use ropeway_smb::{Encryption, Signing};

use super::{AFTER_HELP, values};

/// `ropeway serve`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// Folders to share, by their own names or by those given
    #[arg(value_name = "[NAME=]DIR", required = true)]
    pub(crate) shares: Vec<String>,
    /// Where to listen; beyond this machine only if told to
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4450")]
    pub(crate) listen: SocketAddr,
    /// The user who may log in; without one, a user with a random pass phrase is made
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// File whose first line is the user's password; nobody else may read it
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// Let nobody change anything
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Signatures: required (default), or offered
    #[arg(long, value_name = "HOW", default_value = "required", value_parser = values::sign, hide_default_value = true)]
    pub(crate) sign: Signing,
    /// Encryption: off, desired (where the client wants it; default), or required
    #[arg(long, value_name = "HOW", default_value = "desired", value_parser = values::encrypt, hide_default_value = true)]
    pub(crate) encrypt: Encryption,
}
