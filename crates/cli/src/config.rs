//! The configuration file: TOML whose keys are the long names of flags.
//!
//! ```toml
//! verify = true                       # for every command that has the flag
//! exclude = ["*.tmp", ".cache/"]
//!
//! [mirror]                            # for one command; wins over the above
//! max-delete = "10%"
//!
//! [lab.link]                          # for a command of a command
//! rtt = "75ms"
//! ```
//!
//! An error is one line with file name and line number. A file with an error is not used at all.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::Command as Clap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::args;
use crate::failure::Failure;

/// A flag's value from the environment or the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Where the value comes from, for messages: a file and line, or a variable.
    pub(crate) place: String,
    /// The values as text.
    pub(crate) values: Vec<OsString>,
    /// Whether the value was a list.
    pub(crate) is_list: bool,
    /// Whether the value was true or false.
    pub(crate) is_bool: bool,
}

impl Setting {
    /// Returns whether the setting turns a switch off.
    pub(crate) fn is_off(&self) -> bool {
        let off = |value: &OsString| matches!(value.to_str(), Some("0" | "false" | "no" | "off" | "n" | "f"));
        self.values.iter().all(off)
    }
}

type Settings = BTreeMap<String, Setting>;

/// A parsed configuration file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    common: Settings,
    /// Settings of each command, by its name; a subcommand's name is dotted: `lab.link`.
    commands: BTreeMap<String, (String, Settings)>,
}

impl Config {
    /// Reads the file; a missing file counts as empty.
    ///
    /// # Errors
    /// The file cannot be read or is not TOML.
    pub(crate) fn load(path: &Option<PathBuf>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&path.display().to_string(), &text),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(Self::default())
            }
            Err(error) => Err(Failure::usage(format!(
                "cannot read the configuration {}: {error}",
                path.display()
            ))
            .hint("make it readable, or set XDG_CONFIG_HOME to another folder")),
        }
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text is not TOML, or has values that no flag can have.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, Failure> {
        let place = |offset: usize| {
            let before = text.get(..offset).unwrap_or(text);
            format!("{file}:{}", before.matches('\n').count() + 1)
        };
        // Editors on Windows put a byte-order mark at the start of a file.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let table = DeTable::parse(text).map_err(|error| {
            let at = place(error.span().map_or(0, |span| span.start));
            Failure::usage(format!("{at}: {}", error.message().replace('\n', " ")))
                .hint("the file is TOML: `flag-name = value`, with text in quotes")
        })?;
        let mut config = Self::default();
        for (key, value) in table.get_ref() {
            let at = place(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => config.read_command(key.get_ref(), at, inner, &place)?,
                other => {
                    config
                        .common
                        .insert(key.get_ref().to_string(), setting(other, at)?);
                }
            }
        }
        Ok(config)
    }

    /// Reads the table of a command and the tables of its subcommands.
    fn read_command(
        &mut self,
        name: &str,
        at: String,
        table: &DeTable<'_>,
        place: &dyn Fn(usize) -> String,
    ) -> Result<(), Failure> {
        let mut settings = Settings::new();
        for (key, value) in table {
            let at = place(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => {
                    self.read_command(&format!("{name}.{}", key.get_ref()), at, inner, place)?;
                }
                other => {
                    settings.insert(key.get_ref().to_string(), setting(other, at)?);
                }
            }
        }
        self.commands.insert(name.to_owned(), (at, settings));
        Ok(())
    }

    /// Returns the setting for a flag of a command (`copy`, `lab.link`).
    pub(crate) fn setting(&self, command: &str, long: &str) -> Option<&Setting> {
        let own = self
            .commands
            .get(command)
            .and_then(|(_, settings)| settings.get(long));
        own.or_else(|| self.common.get(long))
    }

    /// Refuses keys that are not flags and tables that are not commands.
    ///
    /// # Errors
    /// The first unknown name and its place.
    pub(crate) fn check_keys(&self, cli: &Clap) -> Result<(), Failure> {
        known(&self.common, &args::long_flags(cli), "")?;
        for (name, (place, settings)) in &self.commands {
            let mut command = cli;
            for part in name.split('.') {
                let Some(found) = command.find_subcommand(part) else {
                    let names: Vec<&str> = command.get_subcommands().map(Clap::get_name).collect();
                    let failure = Failure::usage(format!("{place}: [{name}] is not a command"));
                    return Err(if names.is_empty() {
                        failure.hint("the value of a flag cannot be a table")
                    } else {
                        failure.hint(format!("the commands are {}", names.join(", ")))
                    });
                };
                command = found;
            }
            known(settings, &args::own_long_flags(command), &format!(" of {name}"))?;
        }
        Ok(())
    }
}

fn known(settings: &Settings, flags: &[String], of: &str) -> Result<(), Failure> {
    for (key, setting) in settings {
        if !flags.iter().any(|flag| flag == key) {
            let failure = Failure::usage(format!("{}: {key:?} is not a flag{of}", setting.place));
            let alike = flags
                .iter()
                .find(|flag| flag.replace('-', "") == key.replace(['-', '_'], ""));
            return Err(match alike {
                Some(flag) => failure.hint(format!("it is spelled {flag:?}")),
                None => failure.hint("keys are the long names of flags without the leading dashes"),
            });
        }
    }
    Ok(())
}

fn setting(value: &DeValue<'_>, place: String) -> Result<Setting, Failure> {
    let one = |value: &DeValue<'_>| {
        scalar(value).map(OsString::from).ok_or_else(|| {
            Failure::usage(format!(
                "{place}: {} cannot be the value of a flag",
                value.type_str()
            ))
            .hint("values are texts, numbers, true or false, or lists of these")
        })
    };
    let values = match value {
        DeValue::Array(list) => list
            .iter()
            .map(Spanned::get_ref)
            .map(one)
            .collect::<Result<_, _>>()?,
        value => vec![one(value)?],
    };
    Ok(Setting {
        values,
        is_list: value.is_array(),
        is_bool: value.is_bool(),
        place,
    })
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .ok()?
            .to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;

    fn fault(text: &str) -> Failure {
        let config = Config::parse("c.toml", text);
        config
            .and_then(|config| config.check_keys(&Cli::command()))
            .unwrap_err()
    }

    #[test]
    fn errors_name_the_line() {
        assert!(
            fault("verify = true\ncolour = 1")
                .message
                .starts_with("c.toml:2: \"colour\" is not a flag")
        );
        assert!(
            fault("\n[paint]\nverify = true")
                .message
                .starts_with("c.toml:2: [paint] is not a command")
        );
        assert!(
            fault("[check]\nchecksum = true\nbwlimit = \"8M\"")
                .message
                .starts_with("c.toml:3: ")
        );
        assert!(
            fault("verify = true\nupdate = yes")
                .message
                .starts_with("c.toml:2: "),
            "not TOML"
        );
        assert!(fault("verify = { a = 1 }").message.contains("is not a command"));
        assert!(
            fault("[copy]\ninclude = [[1]]")
                .message
                .starts_with("c.toml:2: array cannot be")
        );
        let failure = fault("dry_run = true");
        assert_eq!(
            (failure.code, failure.hint.as_deref()),
            (1, Some("it is spelled \"dry-run\""))
        );
    }

    #[test]
    fn the_table_of_a_command_overrides_the_top_level() {
        let config = Config::parse("c", "retries = 1_0\n[copy]\nretries = 0x10\n").unwrap();
        assert_eq!(config.setting("copy", "retries").unwrap().values, ["16"]);
        assert_eq!(config.setting("mirror", "retries").unwrap().values, ["10"]);
        assert_eq!(config.setting("mirror", "verify"), None);
    }

    #[test]
    fn an_unreadable_file_is_an_error_and_a_missing_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let failure = Config::load(&Some(folder.path().to_path_buf())).unwrap_err();
        assert_eq!(failure.code, 1);
        assert!(failure.message.contains("cannot read the configuration"));
        assert!(Config::load(&Some(folder.path().join("none.toml"))).is_ok());
        assert!(Config::load(&None).is_ok());
    }
}
