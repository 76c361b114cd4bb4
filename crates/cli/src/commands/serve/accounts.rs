//! The users who may log in: a table that the server consults at each login and that a reload
//! replaces.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::RwLock;
use ropeway_smb_client::Password;
use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::NtHash;
use ropeway_smb_proto::server;
use ropeway_smb_wire::Text;

use super::directory::Names;
use super::phrase;
use super::user::file_of;
use super::users::Users;
use crate::args::{KerberosUsers, ServeLoginArgs};
use crate::failure::Failure;
use crate::secrets::{VARIABLE, private};

/// Name of the user that is created if none is given.
const DEFAULT_USER: &str = "ropeway";

/// The users who may log in.
pub(super) struct Accounts {
    table: Arc<RwLock<Users>>,
    /// The file of users, if there can be one.
    file: Option<PathBuf>,
    /// The user of the flags, or the user that was created.
    one: Option<(String, NtHash)>,
}

/// Facts about the accounts to print at the start.
pub(super) struct AccountSummary {
    /// Names of the users.
    pub(super) users: Vec<String>,
    /// The pass phrase that was created.
    pub(super) new: Option<Password>,
    /// Whether the password is that of the environment variable.
    pub(super) is_variable: bool,
}

impl Accounts {
    /// Reads the flags, the file and the environment. If the server has far shares (`has_far`), the
    /// variable is the password of a user here only if `--user` names one: otherwise it is for the
    /// far servers alone.
    ///
    /// # Errors
    /// A file is not private or is malformed, or a user's name is invalid.
    pub(super) fn load(args: &ServeLoginArgs, has_far: bool) -> Result<(Self, AccountSummary), Failure> {
        let file = match &args.users {
            Some(file) => Some(file.clone()),
            // A missing home folder must not stop the server.
            None => file_of(None).ok(),
        };
        let users = match &file {
            Some(file) => Users::load(file)?,
            None => Users::default(),
        };
        let is_named = args.user.is_some() || args.password_file.is_some();
        let (mut new, mut is_variable) = (None, false);
        let others = args.anonymous || args.guest || args.kerberos_users == KerberosUsers::Any;
        let one = if is_named || (users.len() == 0 && !others) {
            let name = args.user.as_deref().unwrap_or(DEFAULT_USER);
            let password = match &args.password_file {
                Some(file) => private::password(file)?,
                None => match std::env::var(VARIABLE) {
                    Ok(text) if !text.is_empty() && (args.user.is_some() || !has_far) => {
                        is_variable = true;
                        Password::new(text)
                    }
                    _ => {
                        let made = phrase::random()?;
                        new = Some(made.clone());
                        made
                    }
                },
            };
            Some((name.to_owned(), nt_hash(&password)))
        } else {
            None
        };
        let accounts = Self {
            table: Arc::default(),
            file,
            one,
        };
        let users = accounts.put(users);
        let summary = AccountSummary {
            users,
            new,
            is_variable,
        };
        Ok((accounts, summary))
    }

    /// Reads the file again and returns the changes. On failure everything stays as it was.
    ///
    /// # Errors
    /// The file is not private, or cannot be read.
    pub(super) fn reload(&self) -> Result<Vec<String>, Failure> {
        let users = match &self.file {
            Some(file) => Users::load(file)?,
            None => Users::default(),
        };
        let before = self.table.read().clone();
        self.put(users);
        let after = self.table.read();
        let mut changes = Vec::new();
        for name in after.names() {
            match (before.find(name), after.find(name)) {
                (None, _) => changes.push(format!("user {name} added")),
                (Some(old), Some(new)) if old.expose() != new.expose() => {
                    changes.push(format!("user {name} has a new password"));
                }
                _ => {}
            }
        }
        let gone = before.names().filter(|name| after.find(name).is_none());
        changes.extend(gone.map(|name| format!("user {name} removed")));
        Ok(changes)
    }

    fn put(&self, mut users: Users) -> Vec<String> {
        if let Some((name, hash)) = &self.one {
            users.set(name, hash.clone());
        }
        let names = users.names().map(str::to_owned).collect();
        *self.table.write() = users;
        names
    }

    /// Returns the names of the users.
    pub(super) fn names(&self) -> Vec<String> {
        let table = self.table.read();
        table.names().map(str::to_owned).collect()
    }

    /// Returns the names for the directory; it follows reloads.
    pub(super) fn directory(&self) -> Names {
        Names(Arc::clone(&self.table))
    }

    /// Returns the function that the server calls at a login. The client chooses the domain, so it
    /// is ignored.
    pub(super) fn lookup(&self) -> server::Accounts {
        let table = Arc::clone(&self.table);
        Arc::new(move |name: &Text, _domain: &Text| {
            let table = table.read();
            table.find(&name.to_string_lossy()).cloned()
        })
    }
}
