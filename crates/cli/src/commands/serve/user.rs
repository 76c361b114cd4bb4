//! `ropeway serve user add|rm|list`.

use std::path::{Path, PathBuf};

use ropeway_smb_client::Password;
use ropeway_smb_proto::auth::ntlm::nt_hash;
use serde_json::json;

use super::users::{self, Users};
use crate::args::{UserAddArgs, UserCommand};
use crate::boot;
use crate::failure::{Failure, code};
use crate::secrets::{VARIABLE, private, prompt};
use crate::ui::messages;

/// Runs the command; gives its exit code.
///
/// # Errors
/// The file cannot be had, or there is no such user.
pub(super) fn run(command: &UserCommand, file: Option<&PathBuf>) -> Result<u8, Failure> {
    let path = file_of(file)?;
    match command {
        UserCommand::Add(args) => add(args, &path),
        UserCommand::Rm(args) => remove(&args.names, &path),
        UserCommand::List(args) => list(args.json, &path),
    }
}

/// The file of users.
///
/// # Errors
/// None is given, and there is no home.
pub(super) fn file_of(given: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    given.cloned().or_else(boot::users_file).ok_or_else(|| {
        Failure::usage("there is no home for the file of users")
            .hint("give --users FILE, or set XDG_CONFIG_HOME")
    })
}

fn add(args: &UserAddArgs, path: &Path) -> Result<u8, Failure> {
    users::check_name(&args.name).map_err(|why| {
        Failure::usage(format!("{:?} cannot be a user: {why}", args.name)).hint("choose another name")
    })?;
    // A file that is refused is told before anybody types.
    Users::load(path)?;
    let password = password(args)?;
    if password.expose().is_empty() {
        return Err(Failure::usage("the password is empty").hint("choose one that nobody guesses"));
    }
    let hash = nt_hash(&password);
    let is_new = users::change(path, |users| Ok(users.set(&args.name, hash)))?;
    let what = if is_new { "added" } else { "has a new password" };
    messages::print_line(&format!("{} {what} ({})", args.name, path.display()));
    Ok(code::DONE)
}

/// From the file, the variable, or the terminal, where it is typed twice.
fn password(args: &UserAddArgs) -> Result<Password, Failure> {
    if let Some(file) = &args.password_file {
        return private::password(file);
    }
    match std::env::var(VARIABLE) {
        Ok(text) => return Ok(Password::new(text)),
        Err(std::env::VarError::NotUnicode(_)) => {
            return Err(Failure::usage(format!("{VARIABLE} is not UTF-8")).hint("use --password-file"));
        }
        Err(std::env::VarError::NotPresent) => {}
    }
    let ask = |question: &str| {
        prompt::ask(question)?.ok_or_else(|| {
            Failure::new(
                code::PERMISSION,
                format!("there is no password for {}, and no terminal to ask", args.name),
            )
            .hint(format!("give --password-file FILE, or set {VARIABLE}"))
        })
    };
    let first = ask(&format!("Password of {}: ", args.name))?;
    let second = ask("Once more: ")?;
    if first.expose() != second.expose() {
        return Err(Failure::usage("the passwords differ; nothing was changed").hint("type the same twice"));
    }
    Ok(first)
}

fn remove(names: &[String], path: &Path) -> Result<u8, Failure> {
    users::change(path, |users| {
        let missing = names.iter().find(|name| users.find(name).is_none());
        if let Some(name) = missing {
            return Err(
                Failure::usage(format!("there is no user {name:?}; nothing was changed"))
                    .hint("`ropeway serve user list` names them"),
            );
        }
        for name in names {
            users.remove(name);
        }
        Ok(())
    })?;
    for name in names {
        messages::print_line(&format!("{name} removed; a running server forgets on SIGHUP"));
    }
    Ok(code::DONE)
}

fn list(json: bool, path: &Path) -> Result<u8, Failure> {
    for name in Users::load(path)?.names() {
        messages::print_line(&if json {
            json!({"type": "user", "name": name}).to_string()
        } else {
            name.to_owned()
        });
    }
    Ok(code::DONE)
}
