//! Who may log in: a table that the server asks at each login, and that a reload replaces.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use ropeway_smb_client::Password;
use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::NtHash;
use ropeway_smb_proto::server;
use ropeway_smb_wire::Text;

use super::directory::Names;
use super::phrase;
use super::user::file_of;
use super::users::{Users, check_name};
use crate::args::{KerberosUsers, ServeLoginArgs};
use crate::failure::Failure;
use crate::secrets::{VARIABLE, private};

/// The user there is when nobody is named.
const DEFAULT_USER: &str = "ropeway";

/// Who may log in.
pub(super) struct Accounts {
    table: Arc<RwLock<Users>>,
    /// The file, where there may be one.
    file: Option<PathBuf>,
    /// The user of the flags, or that was made.
    one: Option<(String, NtHash)>,
}

/// What is told at the start.
pub(super) struct Told {
    /// The names.
    pub(super) users: Vec<String>,
    /// The pass phrase that was made.
    pub(super) new: Option<Password>,
    /// The password is that of the variable.
    pub(super) is_variable: bool,
}

impl Accounts {
    /// As the flags, the file and the environment say.
    ///
    /// # Errors
    /// A file is not private, or what it says cannot be.
    pub(super) fn load(args: &ServeLoginArgs) -> Result<(Self, Told), Failure> {
        let file = match &args.users {
            Some(file) => Some(file.clone()),
            // No home is no reason not to serve.
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
            check_name(name).map_err(|why| {
                Failure::usage(format!("{name:?} cannot be a user: {why}")).hint("choose another name")
            })?;
            let password = match &args.password_file {
                Some(file) => private::password(file)?,
                None => match std::env::var(VARIABLE) {
                    Ok(text) if !text.is_empty() => {
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
        let told = Told {
            users,
            new,
            is_variable,
        };
        Ok((accounts, told))
    }

    /// Reads the file again; says what changed. On failure everything stays as it is.
    ///
    /// # Errors
    /// The file is not private, or cannot be read.
    pub(super) fn reload(&self) -> Result<Vec<String>, Failure> {
        let users = match &self.file {
            Some(file) => Users::load(file)?,
            None => Users::default(),
        };
        let before = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.put(users);
        let after = self.table.read().unwrap_or_else(PoisonError::into_inner);
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
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = users;
        names
    }

    /// The names there are.
    pub(super) fn names(&self) -> Vec<String> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.names().map(str::to_owned).collect()
    }

    /// The names of who there is, now and after a reload.
    pub(super) fn directory(&self) -> Names {
        Names(Arc::clone(&self.table))
    }

    /// What the server asks. The domain is what the client thinks, so it does not count.
    pub(super) fn lookup(&self) -> server::Accounts {
        let table = Arc::clone(&self.table);
        Arc::new(move |name: &Text, _domain: &Text| {
            let table = table.read().unwrap_or_else(PoisonError::into_inner);
            table.find(&name.to_string_lossy()).cloned()
        })
    }
}
