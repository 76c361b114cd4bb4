//! `ropeway man`: the manual pages, from the same table as `--help`.

use crate::args::{self, ManArgs};
use crate::failure::{Failure, code};

/// Writes a page for each command into the folder, and returns the exit code.
///
/// # Errors
/// The folder cannot be written to.
pub(crate) fn run(args: &ManArgs) -> Result<u8, Failure> {
    // A page explains every flag.
    let all = args::command().mut_subcommands(|sub| sub.mut_args(|arg| arg.hide_short_help(false)));
    clap_mangen::generate_to(all, &args.folder).map_err(|error| {
        let message = format!("cannot write the pages into {}: {error}", args.folder.display());
        Failure::new(code::TARGET, message)
    })?;
    Ok(code::DONE)
}
