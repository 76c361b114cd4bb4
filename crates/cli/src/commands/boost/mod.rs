//! `ropeway boost`: caches on flash devices.
//!
//! ```text
//! create, status, clear      the commands
//! learn                      what a recording teaches
//! test, source               whether a device is fit, also beside a source
//! open                       a cache folder for `mount` and `serve`
//! ```

mod learn;
pub(crate) mod open;
mod predict;
mod source;
mod status;
mod test;

use ropeway_boost::folder::{self, FolderError};

use crate::args::{BoostClearArgs, BoostCommand, BoostCommandArgs, BoostCreateArgs};
use crate::failure::{Failure, code};
use crate::ui::{format, messages};

/// Runs the command and returns its exit code.
///
/// # Errors
/// The folder cannot be used.
pub(crate) fn run(args: &BoostCommandArgs) -> Result<u8, Failure> {
    match &args.command {
        BoostCommand::Test(args) => test::run(args),
        BoostCommand::Create(args) => create(args),
        BoostCommand::Status(args) => status::run(args),
        BoostCommand::Learn(args) => learn::run(args),
        BoostCommand::Clear(args) => clear(args),
    }
}

fn create(args: &BoostCreateArgs) -> Result<u8, Failure> {
    let size = folder::create(&args.folder, args.size).map_err(|error| failure(&error))?;
    let size = format::bytes(size);
    messages::print_line(&format!("made a cache of {size} in {}", args.folder.display()));
    Ok(code::DONE)
}

fn clear(args: &BoostClearArgs) -> Result<u8, Failure> {
    if args.learned {
        folder::forget(&args.folder).map_err(|error| failure(&error))?;
        let folder = args.folder.display();
        messages::print_line(&format!("forgot what was learned in {folder}; the blocks stay"));
        return Ok(code::DONE);
    }
    let size = folder::clear(&args.folder).map_err(|error| failure(&error))?;
    let size = format::bytes(size);
    messages::print_line(&format!(
        "emptied the cache of {size} in {}",
        args.folder.display()
    ));
    Ok(code::DONE)
}

/// Turns an error about a cache folder into one line with a hint.
pub(crate) fn failure(error: &FolderError) -> Failure {
    let message = error.to_string();
    match error {
        FolderError::Missing(_) | FolderError::NoCache(_) => {
            Failure::new(code::TARGET, message).hint("make one with `ropeway boost create`")
        }
        FolderError::Exists(_) => Failure::new(code::REFUSED, message)
            .hint("empty it with `ropeway boost clear`, or remove the folder for another size"),
        FolderError::Foreign { .. } => {
            Failure::new(code::REFUSED, message).hint("choose an empty or new folder")
        }
        FolderError::Busy { .. } => {
            Failure::new(code::REFUSED, message).hint("each process needs a cache of its own")
        }
        FolderError::OpenKey(path) => Failure::new(code::PERMISSION, message).hint(format!(
            "make it private: chmod 600 {}; it must belong to the user who runs ropeway, or to root",
            path.display()
        )),
        FolderError::OpenFolder(path) => Failure::new(code::PERMISSION, message).hint(format!(
            "make it yours alone: chmod go-w {}; it must belong to the user who runs ropeway, or to root",
            path.display()
        )),
        FolderError::NoSpace { free, .. } => {
            let least = format::bytes(folder::SIZE_MIN);
            let advice = format::bytes(folder::default_size(*free));
            Failure::new(code::TARGET, no_space(error)).hint(match folder::default_size(*free) {
                size if size < folder::SIZE_MIN => {
                    format!("a cache takes {least} at least; choose another device")
                }
                _ => format!("choose a size from {least}; {advice} is half of the free space or the default"),
            })
        }
        FolderError::Io { error, .. } => Failure::of_end(message, error, code::TARGET),
        _ => Failure::new(code::TARGET, message)
            .hint("empty it with `ropeway boost clear`, or choose another folder"),
    }
}

fn no_space(error: &FolderError) -> String {
    match error {
        FolderError::NoSpace { path, free, wanted } => format!(
            "{} has {} free; the cache would take {}",
            path.display(),
            format::bytes(*free),
            format::bytes(*wanted)
        ),
        error => error.to_string(),
    }
}
