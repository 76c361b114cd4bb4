//! `ropeway copy`.

use super::device;
use super::transfer::{Request, transfer};
use crate::args::CopyArgs;
use crate::ends::Manner;
use crate::failure::Failure;

/// Runs the command; gives its exit code.
///
/// # Errors
/// Nothing could be begun.
pub(crate) fn run(args: &CopyArgs) -> Result<u8, Failure> {
    let Some((sources, target)) = args.ends() else {
        return Err(
            Failure::usage("only one path is given: <SRC>... and <DST> are needed")
                .hint("usage: ropeway copy [OPTIONS] <SRC>... <DST>; `--help` explains every flag"),
        );
    };
    if args.no_target_directory && sources.len() > 1 {
        return Err(
            Failure::usage("-T takes DST as the copy itself, and there are several sources")
                .hint("leave -T out, or give one source"),
        );
    }
    if args.write_device {
        return device::run(args, sources, target);
    }
    transfer(&Request {
        sources,
        target,
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
