//! `ropeway copy`.

use super::transfer::{Request, transfer};
use crate::args::CopyArgs;
use crate::ends::Manner;
use crate::failure::Failure;

/// Runs the command; gives its exit code.
///
/// # Errors
/// Nothing could be begun.
pub(crate) fn run(args: &CopyArgs) -> Result<u8, Failure> {
    if args.no_target_directory && args.sources.len() > 1 {
        return Err(
            Failure::usage("-T takes DST as the copy itself, and there are several sources")
                .hint("leave -T out, or give one source"),
        );
    }
    transfer(&Request {
        sources: &args.sources,
        target: &args.target,
        manner: if args.no_target_directory {
            Manner::Exact
        } else {
            Manner::Into
        },
        move_source: args.move_source,
        delete: None,
        confirmed: true,
        args: &args.transfer,
    })
}
