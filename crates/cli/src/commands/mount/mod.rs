//! `ropeway mount`.
//!
//! ```text
//! ropeway mount ──── runs itself again, returns when that has mounted, with its exit code
//!   └ the process that serves (all with --foreground)
//!        options   flags and -o → MountOptions
//!        source    SRC → a store
//!        record    --record: what programs open and read, to a file
//!        serving   mounts, answers requests; signals; flushes at the end and says how much
//!        └ guard   outlives it if it is killed, and takes the dead mount away
//! ```

mod background;
mod guard;
mod options;
mod record;
mod report;
mod serving;
mod source;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use self::guard::guard;
use crate::args::MountArgs;
use crate::failure::Failure;

/// Names under which mount(8) calls the program: `/sbin/mount.fuse.ropeway`.
const HELPER: &str = "mount.fuse";

/// Runs the command and returns its exit code.
///
/// # Errors
/// SRC cannot be opened, MNT cannot be mounted on, or written data cannot be made durable.
pub(crate) fn run(args: &MountArgs) -> Result<u8, Failure> {
    let options = options::of(args)?;
    if !args.foreground && !background::is_child() {
        return background::start();
    }
    serving::run(args, options)
}

/// Turns the call of mount(8), `mount.fuse.ropeway SRC MNT [-sfnv] [-o OPTIONS] [-t TYPE]`, into
/// the command. Other command lines stay as they are.
pub(crate) fn as_command(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_helper = arguments.first().is_some_and(|program| {
        let name = Path::new(program).file_name();
        name.is_some_and(|name| name.as_bytes().starts_with(HELPER.as_bytes()))
    });
    if !is_helper {
        return arguments;
    }
    let mut command = vec![OsString::from("ropeway"), OsString::from("mount")];
    let mut rest = arguments.into_iter().skip(1);
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            // mount(8) has done what they ask for.
            b"-s" | b"-n" | b"-v" => {}
            b"-t" => drop(rest.next()),
            _ => command.push(argument),
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_mount_become_the_command() {
        let command = |text: &str| {
            let arguments = text.split(' ').map(OsString::from).collect();
            let command: Vec<_> = as_command(arguments);
            command.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(
            command("/sbin/mount.fuse.ropeway /srv /mnt -n -o rw,noatime -t fuse.ropeway"),
            "ropeway mount /srv /mnt -o rw,noatime"
        );
        assert_eq!(
            command("/usr/bin/ropeway copy -n a b"),
            "/usr/bin/ropeway copy -n a b"
        );
    }
}
