//! Layers of settings for every flag: command line > `ROPEWAY_*` environment > configuration file.
//!
//! This module knows no flag by name; it walks clap's tree of commands. For each flag that the
//! command line does not give, it looks into the environment (`ROPEWAY_` and the long name in
//! capitals, `-` as `_`), then into the configuration (the long name). A value that it finds
//! becomes the flag's default. The value is first checked alone, so that an error message can name
//! the variable or the line. On the command line, switches accept `--flag=false` to override the
//! lower layers. Flags that delete or move ([`crate::args::is_command_line_only`]) are refused in
//! the lower layers. The environment variable of a repeatable flag has one value per line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command as Clap, CommandFactory, FromArgMatches, ValueHint};

use crate::args::{self, Cli, Command};
use crate::config::{Config, Setting};
use crate::failure::{Failure, code};
use crate::habits;

/// Looks up an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A parsed command line.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// The command to run.
    Command(Box<Command>),
    /// Help or version, for standard output.
    Text {
        /// The text.
        text: String,
        /// Exit code.
        code: u8,
    },
}

/// Parses the command line (program name first), with the environment and the configuration below
/// it.
///
/// # Errors
/// Wrong usage in a flag, the environment or the configuration; exit code 1.
pub(crate) fn parse(
    arguments: Vec<OsString>,
    environment: Environment<'_>,
    config: &Config,
) -> Result<Parsed, Failure> {
    let plain = Cli::command();
    config.check_keys(&plain)?;
    let lenient = with_lenient_switches(only_named(plain, arguments.get(1)));
    let given = match lenient.clone().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        // Help is rendered from the plain command, without this module's additions.
        Err(error) if is_text(error.kind()) => return text(args::command(), &arguments),
        Err(error) => return Err(usage(&error, &arguments)),
    };
    let layered = with_layers(lenient, "", &given, environment, config)?;
    let matches = layered
        .try_get_matches_from(&arguments)
        .map_err(|error| usage(&error, &arguments))?;
    let cli = Cli::from_arg_matches(&matches).map_err(|error| usage(&error, &arguments))?;
    Ok(Parsed::Command(Box::new(cli.command)))
}

/// Empties all commands but the one that is called, which most runs do with their first argument:
/// the table of all flags takes megabytes, and is copied several times.
fn only_named(mut tree: Clap, first: Option<&OsString>) -> Clap {
    let names: Vec<String> = tree
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    let called = first.and_then(|first| first.to_str());
    if !names.iter().any(|name| Some(name.as_str()) == called) {
        return tree;
    }
    for name in names.into_iter().filter(|name| Some(name.as_str()) != called) {
        let empty = Clap::new(name.clone());
        tree = tree.mut_subcommand(name, |_| empty);
    }
    tree
}

/// Begin of every environment variable of this program.
const VARIABLES: &str = "ROPEWAY_";

/// Variables that belong to no flag. The last one is that of the project's tests.
const OTHER_VARIABLES: [&str; 8] = [
    "ROPEWAY_PASSWORD",
    "ROPEWAY_DEBUG",
    "ROPEWAY_IO",
    "ROPEWAY_LINK",
    "ROPEWAY_FAR",
    "ROPEWAY_FAR_NETNS",
    crate::commands::fleet::UNFINISHED,
    "ROPEWAY_SEEDS",
];

/// Returns the environment variable of a flag.
pub(crate) fn variable(long: &str) -> String {
    format!("{VARIABLES}{}", long.to_ascii_uppercase().replace('-', "_"))
}

/// Refuses a variable of the environment that is nearly the name of a flag's: it would be without
/// effect. Others that begin with `ROPEWAY_` belong to somebody else.
///
/// # Errors
/// There is such a variable; exit code 1.
pub(crate) fn check_environment(names: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let given = names.filter_map(|name| name.into_string().ok());
    let given: Vec<String> = given
        .filter(|name| name.starts_with(VARIABLES) && !OTHER_VARIABLES.contains(&name.as_str()))
        .collect();
    if given.is_empty() {
        // The table of all flags takes megabytes.
        return Ok(());
    }
    let flags: Vec<String> = args::long_flags(&Cli::command())
        .iter()
        .map(|long| variable(long))
        .collect();
    for name in given {
        let alike = |flag: &&String| habits::is_slip(&name[VARIABLES.len()..], &flag[VARIABLES.len()..]);
        if flags.contains(&name) {
            continue;
        }
        if let Some(flag) = flags.iter().find(alike) {
            return Err(
                Failure::usage(format!("the environment variable {name} belongs to no flag"))
                    .hint(format!("write {flag}, or unset {name}")),
            );
        }
    }
    Ok(())
}

fn is_text(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

fn text(plain: Clap, arguments: &[OsString]) -> Result<Parsed, Failure> {
    match plain.try_get_matches_from(arguments) {
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::usage("no command given")
                .hint("`ropeway --help` lists the commands; `ropeway demo` shows ropeway at work"))
        }
        Err(error) if is_text(error.kind()) => Ok(Parsed::Text {
            text: error.render().to_string(),
            code: code::DONE,
        }),
        Err(error) => Err(usage(&error, arguments)),
        // Reached only by --switch=value before --help.
        Ok(_) => Err(Failure::usage("no command given")),
    }
}

/// Turns clap's message into one line and a hint.
fn usage(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let text = error.render().to_string();
    let mut message = String::new();
    let mut hints: Vec<String> = habit(error, arguments).into_iter().collect();
    // clap's line of usage may name a flag that only looks alike.
    let is_answered = !hints.is_empty();
    let mut in_usage = false;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            if hints.is_empty() && is_worth_it(error) {
                hints.push(tip.to_owned());
            }
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            if !is_answered {
                hints.push(format!("usage: {usage}"));
            }
            in_usage = true;
        } else if !in_usage && !line.starts_with("For more information") {
            if !message.is_empty() {
                message.push(' ');
            }
            message.push_str(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    hints.push("`--help` explains every flag".to_owned());
    Failure::usage(message).hint(hints.join("; "))
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    }
}

/// Returns what does the same as a command or flag of another program.
fn habit(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let command = arguments
        .get(1)
        .and_then(|first| first.to_str())
        .unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => habits::flag(command, context(error, ContextKind::InvalidArg)?),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            habits::value(context(error, ContextKind::InvalidArg)?).map(str::to_owned)
        }
        ErrorKind::InvalidSubcommand => {
            habits::command(context(error, ContextKind::InvalidSubcommand)?).map(str::to_owned)
        }
        _ => None,
    }
}

/// Whether clap's guess is near to what was given.
fn is_worth_it(error: &clap::Error) -> bool {
    let given = context(error, ContextKind::InvalidArg);
    match (given, context(error, ContextKind::SuggestedArg)) {
        (Some(given), Some(guess)) => habits::is_slip(given, guess),
        _ => true,
    }
}

fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// Lets every switch accept `=true` or `=false`.
fn with_lenient_switches(command: Clap) -> Clap {
    command.mut_subcommands(|sub| {
        with_lenient_switches(sub).mut_args(|arg| {
            if !is_switch(&arg) {
                return arg;
            }
            arg.action(ArgAction::Set)
                .value_parser(clap::builder::BoolishValueParser::new())
                .value_name("BOOL")
                .num_args(0..=1)
                .require_equals(true)
                .default_value("false")
                .default_missing_value("true")
                // The hint that `is_lenient` looks for.
                .value_hint(ValueHint::Other)
        })
    })
}

fn is_lenient(arg: &Arg) -> bool {
    arg.get_value_hint() == ValueHint::Other
}

/// Sets defaults for the flags of the given command and of its subcommands. `above` is the dotted
/// name of the command that `matches` belongs to, with a dot at its end; it is empty at the top.
fn with_layers(
    command: Clap,
    above: &str,
    matches: &ArgMatches,
    environment: Environment<'_>,
    config: &Config,
) -> Result<Clap, Failure> {
    let Some((name, matches)) = matches.subcommand() else {
        return Ok(command);
    };
    let Some(sub) = command.find_subcommand(name) else {
        return Ok(command);
    };
    let path = format!("{above}{name}");
    let mut defaults = Vec::new();
    for arg in sub.get_arguments() {
        let Some(long) = arg.get_long() else { continue };
        if matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        let found = from_environment(arg, long, environment).or_else(|| config.setting(&path, long).cloned());
        let Some(setting) = found else { continue };
        if args::is_command_line_only(&path, long) {
            if setting.is_off() {
                continue;
            }
            return Err(Failure::usage(format!(
                "{}: --{long} of {path} works on the command line only",
                setting.place
            ))
            .hint(format!(
                "remove it there and give --{long} on the command line when you need it: it deletes, moves, overwrites or runs a program"
            )));
        }
        let values = values_of(arg, &setting)?;
        if values.is_empty() {
            continue;
        }
        check_alone(arg, long, &setting, &values)?;
        defaults.push((arg.get_id().clone(), values));
    }
    let below = with_layers(sub.clone(), &format!("{path}."), matches, environment, config)?;
    Ok(command.mut_subcommand(name, |_| {
        defaults.into_iter().fold(below, |sub, (id, values)| {
            sub.mut_arg(id, |arg| {
                // Lets a repeatable flag take several default values at once.
                let arg = if values.len() > 1 { arg.num_args(1..) } else { arg };
                arg.default_values(values)
            })
        })
    }))
}

fn from_environment(arg: &Arg, long: &str, environment: Environment<'_>) -> Option<Setting> {
    let name = variable(long);
    let value = environment(&name).filter(|value| !value.is_empty())?;
    let values = if matches!(arg.get_action(), ArgAction::Append) {
        let lines = value
            .as_bytes()
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        lines.map(|line| OsStr::from_bytes(line).to_owned()).collect()
    } else {
        vec![value]
    };
    Some(Setting {
        place: name,
        values,
        is_list: false,
        is_bool: false,
    })
}

/// Returns the values of a setting for clap; empty if the setting equals an absent flag.
fn values_of(arg: &Arg, setting: &Setting) -> Result<Vec<OsString>, Failure> {
    if setting.is_list && !matches!(arg.get_action(), ArgAction::Append) {
        return Err(Failure::usage(format!(
            "{}: the value is a list, but the flag takes one",
            setting.place
        )));
    }
    // A flag with an optional value, e.g. --backup: `true` is the flag without a value.
    let optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0);
    if setting.is_bool && optional && !is_lenient(arg) {
        let given = setting.values.iter().any(|value| value == "true");
        return Ok(match given {
            true => values_without_one(arg),
            // Without the flag something else is on, e.g. --compress=auto.
            false if !arg.get_default_values().is_empty() => vec!["off".into()],
            false => Vec::new(),
        });
    }
    Ok(setting.values.clone())
}

/// Returns the values that clap stores for a flag without a value.
fn values_without_one(arg: &Arg) -> Vec<OsString> {
    let flag = format!("--{}", arg.get_long().unwrap_or_default());
    let alone = Clap::new("ropeway").no_binary_name(true).arg(arg.clone());
    let matches = alone.try_get_matches_from([flag]).ok();
    let raw = matches
        .as_ref()
        .and_then(|matches| matches.get_raw(arg.get_id().as_str()));
    raw.into_iter().flatten().map(OsStr::to_owned).collect()
}

/// Checks one setting alone, so that the message can name its place.
fn check_alone(arg: &Arg, long: &str, setting: &Setting, values: &[OsString]) -> Result<(), Failure> {
    for value in values {
        let mut flag = OsString::from(format!("--{long}="));
        flag.push(value);
        let alone = Clap::new("ropeway")
            .no_binary_name(true)
            .arg(arg.clone().required(false));
        if let Err(error) = alone.try_get_matches_from([flag]) {
            let failure = usage(&error, &[]);
            return Err(Failure::usage(format!("{}: {}", setting.place, failure.message))
                .hint(format!("correct it there, or override it with --{long}")));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
