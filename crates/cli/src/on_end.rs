//! What happens when a run has ended: a command of the user (`--on-end`), and a note on the desktop
//! (`--notify`).
//!
//! Neither changes how the run ended. Both run however it ended, also when it could not start.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::EndArgs;
use crate::failure::{Failure, code};
use crate::ui::messages;

/// A run that has ended.
pub(crate) struct Ended<'a> {
    /// `copy` or `mirror`.
    pub(crate) command: &'a str,
    /// The target as given.
    pub(crate) target: &'a Path,
    /// The exit code, or why it could not start.
    pub(crate) result: &'a Result<u8, Failure>,
}

impl Ended<'_> {
    fn code(&self) -> u8 {
        match self.result {
            Ok(code) => *code,
            Err(failure) => failure.code,
        }
    }

    /// Returns how it ended, in a sentence for people.
    fn told(&self) -> String {
        let (command, target) = (self.command, self.target.display());
        match self.result {
            Ok(code::DONE) => format!("{command} to {target} is done"),
            Ok(code::SOME_FAILED) => format!("{command} to {target}: some files were not copied"),
            Ok(code::DIFFERS) => format!("{command} to {target}: something differs"),
            Ok(code::INTERRUPTED) => format!("{command} to {target} was interrupted"),
            Ok(code) => format!("{command} to {target} ended with exit code {code}"),
            Err(failure) => format!("{command} to {target} failed: {}", failure.message),
        }
    }
}

/// Does what the flags ask for. Warns on standard error if it fails.
pub(crate) fn run(args: &EndArgs, ended: &Ended<'_>) {
    if let Some(text) = &args.on_end {
        warn("--on-end", by_shell(text, ended).status());
    }
    if args.notify {
        let mut notify = Command::new("notify-send");
        let urgency = if ended.code() == code::DONE {
            "normal"
        } else {
            "critical"
        };
        notify.args(["--app-name", "ropeway", "--urgency", urgency, "--", "ropeway"]);
        warn("--notify: notify-send", quiet(notify.arg(ended.told())).status());
    }
}

/// Returns the user's command. It speaks on standard error, since standard output may be JSON.
fn by_shell(text: &str, ended: &Ended<'_>) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", text])
        .env("JOB_COMMAND", ended.command)
        .env("JOB_TARGET", ended.target)
        .env("JOB_EXIT", ended.code().to_string())
        .env("JOB_TEXT", ended.told())
        .stdin(Stdio::null())
        .stdout(io::stderr());
    shell
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null())
}

fn warn(what: &str, ran: io::Result<std::process::ExitStatus>) {
    match ran {
        Ok(status) if status.success() => {}
        Ok(status) => messages::print_stderr(&format!("warning: {what} ended with {status}")),
        Err(error) => messages::print_stderr(&format!("warning: {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_in_a_sentence() {
        let told = |result: &Result<u8, Failure>| {
            let target = Path::new("nas");
            let command = "copy";
            Ended {
                command,
                target,
                result,
            }
            .told()
        };
        assert_eq!(told(&Ok(0)), "copy to nas is done");
        assert_eq!(told(&Ok(4)), "copy to nas ended with exit code 4");
        let failure = Failure::usage("there is no source");
        assert_eq!(told(&Err(failure)), "copy to nas failed: there is no source");
    }
}
