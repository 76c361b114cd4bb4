//! What a shell's completion offers for arguments that clap knows nothing of: unfinished jobs, and
//! the servers whose passwords are kept.

use std::ffi::OsStr;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use ropeway_copy::{UnfinishedJob, unfinished_jobs};

use crate::boot;
use crate::secrets::Keyring;

/// Returns the ids of the unfinished jobs, each with its ends.
pub(crate) fn jobs() -> Vec<CompletionCandidate> {
    let found = boot::jobs_folder().and_then(|folder| unfinished_jobs(&folder).ok());
    let candidate = |job: UnfinishedJob| {
        let what = format!("{} -> {}", job.sources.join(" "), job.target);
        CompletionCandidate::new(job.id).help(Some(what.into()))
    };
    found.unwrap_or_default().into_iter().map(candidate).collect()
}

/// Returns the URLs of the users and servers whose passwords are kept.
pub(crate) fn logins() -> Vec<CompletionCandidate> {
    let kept = Keyring::Persistent.list();
    kept.into_iter()
        .map(|kept| CompletionCandidate::new(kept.url))
        .collect()
}

/// Returns local paths, and the servers whose passwords are kept, that begin with `current`.
pub(crate) fn places(current: &OsStr) -> Vec<CompletionCandidate> {
    let begins = |url: &CompletionCandidate| {
        url.get_value()
            .as_encoded_bytes()
            .starts_with(current.as_encoded_bytes())
    };
    let mut found: Vec<_> = logins().into_iter().filter(begins).collect();
    found.extend(PathCompleter::any().complete(current));
    found
}

/// Adds what is offered for jobs, logins and places to the arguments of a command and those below it.
pub(crate) fn with_completions(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    let command = command.mut_args(|arg| {
        let name = arg
            .get_value_names()
            .and_then(|names| names.first())
            .map(ToString::to_string);
        match name.as_deref().filter(|_| arg.is_positional()) {
            Some("ID") => arg.add(ArgValueCandidates::new(jobs)),
            Some("URL") => arg.add(ArgValueCandidates::new(logins)),
            Some("SRC" | "DST" | "PATH") => arg.add(ArgValueCompleter::new(places)),
            _ => arg,
        }
    });
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, with_completions)
    })
}
