//! `ropeway boost`: caches on flash devices.

mod source;
mod test;

use crate::args::{BoostArgs, BoostCommand};
use crate::failure::Failure;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The action could not be done.
pub(crate) fn run(args: &BoostArgs) -> Result<u8, Failure> {
    match &args.command {
        BoostCommand::Test(args) => test::run(args),
    }
}
