//! Flags of `top`.

use std::time::Duration;

use clap::Args;

use super::values;
use crate::failure::Failure;

/// `ropeway top`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// Print a table once, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: a JSON array with one snapshot for each process
    #[arg(long)]
    pub(crate) json: bool,
    /// Time between two updates, 100ms to 1m (default 1s)
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    pub(crate) interval: Option<Duration>,
    /// Only processes of this user; others than yourself need root
    ///
    /// Without it, root sees the processes of all users.
    #[arg(long, value_name = "NAME|UID")]
    pub(crate) user: Option<String>,
}

impl TopArgs {
    /// Checks the flags.
    ///
    /// # Errors
    /// Two flags do not go together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.json && !self.once {
            true => Err(Failure::usage("--json needs --once").hint("ropeway top --once --json")),
            false => Ok(()),
        }
    }
}
