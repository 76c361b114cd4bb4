//! Samba's smbd as a private instance.

mod accounts;
mod builder;
mod conf;
pub(crate) mod ready;
mod share;

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

pub use accounts::{Account, Login};
pub use builder::SmbdBuilder;
pub use conf::{Dialect, Encryption, Signing};
pub use share::Share;

use crate::PeerError;
use crate::client::{call_smbclient, credentials};
use crate::error::write;
use crate::instance::Instance;
use crate::serve::write_secret;
use crate::session::{Session, require};

/// A private smbd.
#[derive(Debug)]
pub struct Smbd {
    instance: Instance,
    logins: Vec<Login>,
    unix: Vec<String>,
    shares: Vec<Share>,
}

impl Deref for Smbd {
    type Target = Instance;

    fn deref(&self) -> &Instance {
        &self.instance
    }
}

impl DerefMut for Smbd {
    fn deref_mut(&mut self) -> &mut Instance {
        &mut self.instance
    }
}

impl From<Smbd> for Instance {
    fn from(smbd: Smbd) -> Self {
        smbd.instance
    }
}

impl Smbd {
    /// Returns the settings of an smbd on 127.0.0.1 with a free port, all dialects, samba's
    /// defaults, no users and no shares.
    pub fn builder() -> SmbdBuilder {
        SmbdBuilder::new()
    }

    /// Port at which it listens.
    pub fn port(&self) -> u16 {
        self.address().port()
    }

    /// Returns `smb://USER@ADDRESS:PORT/PLACE` with the first user, or without one if there is none.
    pub fn url(&self, place: &str) -> String {
        let user = self.logins.first().map(|login| login.user.as_str());
        self.url_as(user, place)
    }

    /// Returns [`Self::url`] with a given user, or without one.
    pub fn url_as(&self, user: Option<&str>, place: &str) -> String {
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        format!("smb://{user}{}/{place}", self.address())
    }

    /// The users, in the order in which they were added.
    pub fn logins(&self) -> &[Login] {
        &self.logins
    }

    /// Local folder of a share.
    ///
    /// # Panics
    /// There is no such share.
    pub fn place(&self, share: &str) -> &Path {
        let found = self.shares.iter().find(|found| found.name == share);
        &found.unwrap_or_else(|| panic!("there is no share {share}")).path
    }

    /// Path of `smb.conf`.
    pub fn configuration(&self) -> PathBuf {
        self.folder().join("smb.conf")
    }

    /// Number of connected clients: a process each. Channels of one session share a process.
    pub fn connections(&self) -> usize {
        self.pids().len().saturating_sub(self.keepers().len())
    }

    /// Sends SIGKILL to the processes that serve connections. The server keeps running and takes
    /// new connections at once.
    pub fn kill_connections(&self) {
        if let Some(session) = self.session() {
            session.kill_all_but(&self.keepers());
        }
    }

    /// Ids of the processes of an idle server: the leader, and two helpers with known names.
    fn keepers(&self) -> Vec<u32> {
        let keeps = |id: &u32| {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            matches!(name.trim(), "smbd-notifyd" | "cleanupd")
        };
        let leader = self.session().map(Session::id);
        self.pids()
            .into_iter()
            .filter(|id| Some(*id) == leader || keeps(id))
            .collect()
    }

    /// Adds lines to a section of `smb.conf` (`global` or a share) and has smbd read it again. New
    /// connections use the change at once.
    ///
    /// # Errors
    /// The file cannot be written, or smbcontrol fails.
    pub fn reconfigure(&self, section: &str, lines: &[(&str, &str)]) -> Result<(), PeerError> {
        let path = self.configuration();
        let mut text =
            fs::read_to_string(&path).map_err(|error| PeerError::failed("cannot read smb.conf", error))?;
        text.push_str(&format!("\n[{section}]\n"));
        for (key, value) in lines {
            text.push_str(&format!("{key} = {value}\n"));
        }
        write(&path, &text)?;
        self.control("reload-config")
    }

    /// Closes a share: all its open files are closed, and no client can connect to it.
    ///
    /// # Errors
    /// smbcontrol fails.
    pub fn close_share(&self, share: &str) -> Result<(), PeerError> {
        self.reconfigure(share, &[("available", "no")])?;
        self.control_with("close-share", &[share])
    }

    /// Sends a message to all processes of this instance by `smbcontrol`.
    ///
    /// # Errors
    /// smbcontrol is not installed, or fails.
    pub fn control(&self, message: &str) -> Result<(), PeerError> {
        self.control_with(message, &[])
    }

    fn control_with(&self, message: &str, arguments: &[&str]) -> Result<(), PeerError> {
        let words = [&["smbd", message], arguments].concat();
        accounts::feed("smbcontrol", &self.configuration(), &words, "")
    }

    /// Changes a user's password while the server runs.
    ///
    /// # Errors
    /// pdbedit fails.
    ///
    /// # Panics
    /// There is no such user.
    pub fn set_password(&mut self, user: &str, password: &str) -> Result<(), PeerError> {
        let index = self.logins.iter().position(|login| login.user == user);
        let index = index.unwrap_or_else(|| panic!("there is no user {user}"));
        accounts::set_password(&self.configuration(), &self.unix[index], password)?;
        password.clone_into(&mut self.logins[index].password);
        Ok(())
    }

    /// Creates a DFS link in a [`Share::dfs_root`] that leads to `server\share`.
    ///
    /// # Errors
    /// The link cannot be created.
    pub fn dfs_link(&self, share: &str, name: &str, target: &str) -> std::io::Result<()> {
        std::os::unix::fs::symlink(format!("msdfs:{target}"), self.place(share).join(name))
    }

    /// Writes the first user's name and password to a file of mode 0600, in the format of
    /// mount.cifs and smbclient.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn credentials(&self) -> std::io::Result<PathBuf> {
        let path = self.folder().join("private/credentials");
        let login = self.logins.first();
        let text = login.map(|login| credentials(&login.user, &login.password));
        write_secret(&path, &text.unwrap_or_default())?;
        Ok(path)
    }

    /// Returns `smbclient //ADDRESS/SHARE` as the first user. Options and `-c COMMANDS` may be
    /// added.
    ///
    /// # Errors
    /// smbclient is not installed.
    pub fn smbclient(&self, share: &str) -> Result<Command, PeerError> {
        let mut command = Command::new(require("smbclient", "smbclient")?);
        let failed = |error| PeerError::failed("cannot write the credentials", error);
        let login = match self.logins.is_empty() {
            true => None,
            false => Some(self.credentials().map_err(failed)?),
        };
        call_smbclient(&mut command, self.address(), share, login.as_deref());
        Ok(command)
    }
}
