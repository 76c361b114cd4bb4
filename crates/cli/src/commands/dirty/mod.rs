//! `ropeway dirty`: what the page cache still has to write to each device.
//!
//! ```text
//!   show     looks once or again and again
//!   view     a reading as text: the table, and one line for a device       pure
//!   screen   redraws in place on a terminal
//!   drain    `dirty drain`: flushes, waits, says whether it is safe
//!   worker   the process that waits in the kernel for it
//! ```

mod drain;
mod screen;
mod show;
mod view;
mod worker;

use std::path::Path;

use ropeway_dirty::Target;
use ropeway_dirty::parse::vmstat::Vmstat;

use crate::args::{DirtyArgs, DirtyCommand};
use crate::ends::cause;
use crate::failure::{Failure, code};

/// Runs the command and returns its exit code.
///
/// # Errors
/// The path cannot be looked at, or something did not reach the device.
pub(crate) fn run(args: &DirtyArgs) -> Result<u8, Failure> {
    // Without it everything would be 0, and a device seem clean.
    if let Err(error) = Vmstat::read() {
        let message = format!("cannot read what is dirty: /proc/vmstat: {}", cause(&error));
        return Err(Failure::new(code::SOURCE, message).hint("mount /proc: mount -t proc proc /proc"));
    }
    match &args.command {
        None => show::run(&args.show),
        Some(DirtyCommand::Drain(args)) => drain::run(args),
        Some(DirtyCommand::FlushWorker(args)) => Ok(worker::run(args)),
    }
}

fn target(path: &Path) -> Result<Target, Failure> {
    Target::of(path).map_err(|error| {
        let message = format!("cannot look at {}: {}", path.display(), cause(&error));
        Failure::of_end(message, &error, code::SOURCE)
            .hint("give a file or folder that exists, or a block device")
    })
}
