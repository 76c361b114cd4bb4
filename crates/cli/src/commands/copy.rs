//! `ropeway copy`.

use super::device;
use super::transfer::{Request, transfer};
use crate::args::CopyArgs;
use crate::ends::TargetMode;
use crate::failure::Failure;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The copy could not be started.
pub(crate) fn run(args: &CopyArgs) -> Result<u8, Failure> {
    let Some((sources, target)) = args.ends() else {
        return Err(
            Failure::usage("only one path is given, but a copy needs <SRC>... and <DST>")
                .hint("usage: ropeway copy [OPTIONS] <SRC>... <DST>; `--help` explains every flag"),
        );
    };
    if args.no_target_directory && sources.len() > 1 {
        return Err(
            Failure::usage("-T treats DST as the copy itself, but there are several sources")
                .hint("leave out -T, or give one source"),
        );
    }
    if args.write_device {
        return device::run(args, sources, target);
    }
    transfer(&Request {
        sources,
        target,
        target_mode: if args.no_target_directory {
            TargetMode::Exact
        } else {
            TargetMode::Into
        },
        move_source: args.move_source,
        delete: None,
        confirmed: true,
        args: &args.transfer,
    })
}
