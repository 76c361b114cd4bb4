//! `ropeway mirror`.

use ropeway_copy::Delete;

use super::transfer::{Request, transfer};
use crate::args::MirrorArgs;
use crate::ends::TargetMode;
use crate::failure::Failure;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The mirror could not be started.
pub(crate) fn run(args: &MirrorArgs) -> Result<u8, Failure> {
    transfer(&Request {
        sources: std::slice::from_ref(&args.source),
        target: &args.target,
        target_mode: TargetMode::Mirror,
        move_source: false,
        delete: Some(Delete {
            max: args.max_delete,
            agreed: None,
            excluded: args.delete_excluded,
            on_errors: args.delete_on_errors,
        }),
        confirmed: args.yes || args.transfer.dry_run,
        args: &args.transfer,
    })
}
