//! Other people's clients, called with a private home and without a password among their
//! arguments.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::procfs::{clean, unprivileged};
use crate::serve::write_secret;
use crate::session::feed;

/// What a client needs to know of its server.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// Address and port of the server.
    pub address: SocketAddr,
    /// User name.
    pub user: &'a str,
    /// Password of the user.
    pub password: &'a str,
    /// Folder for the client's home, settings and credentials.
    pub scratch: &'a Path,
}

impl Remote<'_> {
    /// Returns `smb://USER@ADDRESS:PORT/PLACE`.
    pub fn url(&self, place: &str) -> String {
        self.url_by("smb", place)
    }

    /// Returns `SCHEME://USER@ADDRESS:PORT/PLACE`.
    pub fn url_by(&self, scheme: &str, place: &str) -> String {
        format!("{scheme}://{}@{}/{place}", self.user, self.address)
    }

    /// Returns an smbclient on a share, to which options and `-c COMMANDS` may be added.
    ///
    /// # Errors
    /// The credentials cannot be written.
    pub fn smbclient(&self, program: &Path, share: &str) -> io::Result<Command> {
        let login = self.scratch.join("login");
        write_secret(&login, &credentials(self.user, self.password))?;
        let mut command = clean(program, self.scratch);
        call_smbclient(&mut command, self.address, share, Some(&login));
        Ok(command)
    }

    /// Returns an rclone whose backend `:smb:` is the server. All settings are in the environment:
    /// no configuration file, and the password is not in the process list.
    ///
    /// # Errors
    /// rclone cannot be run.
    pub fn rclone(&self, program: &Path) -> io::Result<Command> {
        self.rclone_for(program, program)
    }

    /// Returns a command whose rclone, the program `rclone`, has the settings of [`Self::rclone`].
    ///
    /// # Errors
    /// rclone cannot be run.
    pub fn rclone_for(&self, command: &Path, rclone: &Path) -> io::Result<Command> {
        let mut command = clean(command, self.scratch);
        command
            .env("RCLONE_CONFIG", "")
            .env("RCLONE_SMB_HOST", self.address.ip().to_string())
            .env("RCLONE_SMB_PORT", self.address.port().to_string())
            .env("RCLONE_SMB_USER", self.user)
            .env("RCLONE_SMB_PASS", self.obscured(rclone)?);
        Ok(command)
    }

    /// Returns an rsync.
    pub fn rsync(&self, program: &Path) -> Command {
        unprivileged(program, self.scratch)
    }

    /// Returns `rsync://ADDRESS:PORT/PLACE`.
    pub fn rsync_url(&self, place: &str) -> String {
        format!("rsync://{}/{place}", self.address)
    }

    /// Returns the password in the form that rclone's settings want.
    fn obscured(&self, program: &Path) -> io::Result<String> {
        let mut command = clean(program, self.scratch);
        command.args(["obscure", "-"]).env("RCLONE_CONFIG", "");
        let output = feed(&mut command, self.password)?;
        if !output.status.success() {
            let message = format!("rclone obscure failed: {}", output.status);
            return Err(io::Error::other(message));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Returns a credentials file in the format of smbclient and mount.cifs.
pub(crate) fn credentials(user: &str, password: &str) -> String {
    format!("username={user}\npassword={password}\n")
}

/// Adds the arguments of smbclient for a share: anonymous, or with a credentials file.
pub(crate) fn call_smbclient(command: &mut Command, address: SocketAddr, share: &str, login: Option<&Path>) {
    // The system's own smb.conf plays no part.
    command.args(["--configfile", "/dev/null", "--port"]);
    command.arg(address.port().to_string());
    command.arg(format!("//{}/{share}", address.ip()));
    match login {
        Some(login) => command.arg("--authentication-file").arg(login),
        None => command.arg("--no-pass"),
    };
}

/// Returns the commands with which smbclient copies everything of a share's folder (`.` for all)
/// to a local folder.
pub fn smbclient_get(remote: &str, local: &Path) -> String {
    format!(
        "cd {remote}; lcd \"{}\"; prompt OFF; recurse ON; mget *",
        local.display()
    )
}

/// Returns the commands with which smbclient copies everything of a local folder to a new folder
/// of a share.
pub fn smbclient_put(local: &Path, remote: &str) -> String {
    format!(
        "mkdir {remote}; cd {remote}; lcd \"{}\"; prompt OFF; recurse ON; mput *",
        local.display()
    )
}
