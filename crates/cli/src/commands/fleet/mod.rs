//! `ropeway fleet`: one copy by many machines.

mod budget;
mod figures;
mod page;
mod place;
mod queue;
mod scratch;
mod show;
mod submit;
mod work;

use ropeway_fleet::error::Error;
use ropeway_vfs::{End, EndError};

use crate::args::{FleetArgs, FleetCommand};
use crate::commands::ls::printable;
use crate::failure::{Failure, code};

/// Environment variable that allows the command, with the value `unfinished`: it can still lose data in
/// cases that `docs/fleet.md` lists.
pub(crate) const UNFINISHED: &str = "ROPEWAY_FLEET";

/// Runs the command and returns its exit code.
///
/// # Errors
/// It is not allowed, there is no such job, or an end cannot be used.
pub(crate) fn run(args: &FleetArgs) -> Result<u8, Failure> {
    if std::env::var_os(UNFINISHED).is_none_or(|value| value != "unfinished") {
        let message = "fleet is not finished: it can lose data in some cases";
        return Err(Failure::new(code::USAGE, message).hint(format!(
            "use `ropeway copy`; to try it with data that you do not need, set {UNFINISHED}=unfinished"
        )));
    }
    let done = match &args.command {
        FleetCommand::Submit(args) => submit::run(args),
        FleetCommand::Work(args) => work::run(args, false),
        FleetCommand::Resume(args) => work::run(args, true),
        FleetCommand::Status(args) => show::status(args),
        FleetCommand::Top(args) => show::top(args),
        FleetCommand::Page(args) => page::run(args),
    };
    done.map_err(shown)
}

/// Replaces control characters in a failure: it may name what other users wrote into the folder of the job.
fn shown(failure: Failure) -> Failure {
    Failure {
        message: printable(&failure.message),
        hint: failure.hint.as_deref().map(printable),
        ..failure
    }
}

/// Makes the failure of a command; `what` says what could not be done.
fn failure(what: &str, error: &Error) -> Failure {
    match error {
        Error::End(EndError { end, error }) => {
            let name = match end {
                End::Source => "source",
                End::Target => "target",
            };
            let what = format!("{what}: {name}: cannot {} {}", error.op.verb(), error.path);
            Failure::of_node(&what, error, *end)
        }
        Error::Damaged(_) => Failure::new(code::TARGET, format!("{what}: {error}")).hint(
            "what it recorded is lost: remove the folder .ropeway-fleet-… of this target and `submit` again; \
             files that are equal are not copied again",
        ),
        Error::OtherVersion { .. } => Failure::new(code::TARGET, format!("{what}: {error}")).hint(
            "use the program that made it, or remove the folder .ropeway-fleet-… of this target and `submit` again; \
             files that are equal are not copied again",
        ),
        Error::OtherSource(_) => Failure::new(code::SOURCE, format!("{what}: {error}")).hint(
            "mount the source, or name it with --source; if it is the right one and has changed so much, \
             remove the folder .ropeway-fleet-… of this target and `submit` again",
        ),
        Error::OtherRules => Failure::new(code::TARGET, format!("{what}: {error}"))
            .hint("reach both in the same way on all machines: mounted, or as smb:// URLs"),
        Error::Foreign(_) => Failure::new(code::TARGET, format!("{what}: {error}"))
            .hint("all workers run as the user who made the job; remove the folder if it is not yours"),
        Error::Nested => Failure::new(code::SOURCE, format!("{what}: {error}"))
            .hint("choose a DST outside of SRC that does not hold it"),
        Error::Over => Failure::new(code::TARGET, format!("{what}: {error}"))
            .hint("`ropeway fleet status DST` shows whether there is a later job"),
        Error::Resumed(_) => Failure::new(code::REFUSED, format!("{what}: {error}"))
            .hint("`ropeway fleet submit` makes a new job, which copies what is missing"),
        Error::Scratch(_) => Failure::new(code::TARGET, format!("{what}: {error}"))
            .hint("free space there, or set TMPDIR to another folder"),
        Error::Stopped => Failure::new(code::INTERRUPTED, format!("{what}: interrupted")),
        error => Failure::new(code::TARGET, format!("{what}: {error}")),
    }
}

fn no_job(target: &str) -> Failure {
    Failure::new(code::SOURCE, format!("{target} has no job"))
        .hint("`ropeway fleet submit SRC DST` makes one")
}
