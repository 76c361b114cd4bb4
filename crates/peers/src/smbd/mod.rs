//! Samba's smbd as a private instance.

mod accounts;
mod builder;
mod conf;
mod ready;
mod share;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub use accounts::{Account, Login};
pub use builder::SmbdBuilder;
pub use conf::{Dialect, Encryption, Signing};
pub use share::Share;

use crate::PeerError;
use crate::port::PortLock;
use crate::process::{Session, require};

/// How long smbd may take to answer. It takes a quarter of a second; two cores may be shared with a build.
const START_MAX: Duration = Duration::from_secs(30);

/// A running smbd; ended with all its processes, and its folder removed, when dropped.
#[derive(Debug)]
pub struct Smbd {
    // Ended before the folder goes and the port is free again.
    session: Option<Session>,
    server: PathBuf,
    address: SocketAddr,
    namespace: Option<PathBuf>,
    environment: Vec<(&'static str, PathBuf)>,
    logins: Vec<Login>,
    unix: Vec<String>,
    shares: Vec<Share>,
    folder: tempfile::TempDir,
    _port: Option<PortLock>,
}

impl Smbd {
    /// One on 127.0.0.1 with a free port, all dialects, samba's defaults, no users and no shares.
    #[must_use]
    pub fn builder() -> SmbdBuilder {
        SmbdBuilder::new()
    }

    /// Where it listens; the first address if there are several.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `smb://USER@ADDRESS:PORT/PLACE` with the first user, who is left out if there is none.
    #[must_use]
    pub fn url(&self, place: &str) -> String {
        let user = self.logins.first().map(|login| login.user.as_str());
        self.url_as(user, place)
    }

    /// The same with a certain user, or none.
    #[must_use]
    pub fn url_as(&self, user: Option<&str>, place: &str) -> String {
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        format!("smb://{user}{}/{place}", self.address)
    }

    /// The users, in the order they were named.
    #[must_use]
    pub fn logins(&self) -> &[Login] {
        &self.logins
    }

    /// The folder of a share on this machine.
    ///
    /// # Panics
    /// If there is no such share.
    #[must_use]
    pub fn place(&self, share: &str) -> &Path {
        let found = self.shares.iter().find(|found| found.name == share);
        &found.unwrap_or_else(|| panic!("there is no share {share}")).path
    }

    /// The folder that everything of it lies in; shares lie elsewhere.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its configuration file.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("smb.conf")
    }

    /// What it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        ["out", "log"]
            .map(|name| fs::read(self.folder.path().join(name)).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat()
    }

    /// Ids of all its living processes.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.session.as_ref().map(Session::pids).unwrap_or_default()
    }

    /// How many connections are served: a process each; several channels of one client share one.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.pids().len().saturating_sub(self.keepers().len())
    }

    /// User and system time since its last start, all processes, ended ones too. A process that serves a connection
    /// counts from its end or while it lives.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.session.as_ref().map(Session::cpu).unwrap_or_default()
    }

    /// SIGKILL to all its processes, as a crash of the machine does; the port refuses connections then.
    pub fn kill(&mut self) {
        self.session = None;
    }

    /// SIGKILL to the processes that serve connections; the server itself stays and takes new ones at once.
    pub fn kill_connections(&self) {
        if let Some(session) = &self.session {
            session.kill_all_but(&self.keepers());
        }
    }

    /// The processes that an idle server has, by their command: the leader, and its two helpers, which name themselves.
    fn keepers(&self) -> Vec<u32> {
        let keeps = |id: &u32| {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            matches!(name.trim(), "smbd-notifyd" | "cleanupd")
        };
        let leader = self.session.as_ref().map(Session::id);
        self.pids()
            .into_iter()
            .filter(|id| Some(*id) == leader || keeps(id))
            .collect()
    }

    /// Starts it again on the same port with what it kept, killed or not; it answers when this returns.
    ///
    /// # Errors
    /// If it does not start.
    pub fn restart(&mut self) -> Result<(), PeerError> {
        self.kill();
        let configuration = self.configuration();
        let path = configuration
            .to_str()
            .ok_or_else(|| PeerError::Failed("the temporary folder's name is not UTF-8".to_owned()))?;
        let mut session = Session::start(
            &self.server,
            &["-F", "--no-process-group", "-s", path],
            &configuration,
            &self.environment,
            self.namespace.as_deref(),
            &self.folder.path().join("out"),
        )?;
        let end = Instant::now() + START_MAX;
        loop {
            if let Some(status) = session.ended() {
                return Err(PeerError::failed(
                    format_args!("smbd ended ({status})"),
                    tail(&self.log()),
                ));
            }
            match ready::answers(self.address, self.namespace.as_deref()) {
                Ok(()) => break,
                Err(error) if Instant::now() >= end => {
                    let said = format!("{error}\n{}", tail(&self.log()));
                    return Err(PeerError::failed("smbd does not answer", said));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        self.session = Some(session);
        Ok(())
    }

    /// Changes a share's or the global section by adding lines at the end of the configuration, and has it read again:
    /// new connections see it at once. `section` is `global` or a share.
    ///
    /// # Errors
    /// If the file cannot be written.
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

    /// Closes a share: open files on it are closed, and it is gone for everyone.
    ///
    /// # Errors
    /// If smbcontrol fails.
    pub fn close_share(&self, share: &str) -> Result<(), PeerError> {
        self.reconfigure(share, &[("available", "no")])?;
        self.control_with("close-share", &[share])
    }

    /// A message to all processes of this instance by `smbcontrol`.
    ///
    /// # Errors
    /// If smbcontrol is missing or fails.
    pub fn control(&self, message: &str) -> Result<(), PeerError> {
        self.control_with(message, &[])
    }

    fn control_with(&self, message: &str, arguments: &[&str]) -> Result<(), PeerError> {
        let mut command = Command::new(require("smbcontrol", "samba-common-bin")?);
        command
            .arg("-s")
            .arg(self.configuration())
            .args(["smbd", message]);
        let output = command
            .args(arguments)
            .output()
            .map_err(|error| PeerError::failed("smbcontrol", error))?;
        if output.status.success() {
            return Ok(());
        }
        Err(PeerError::failed(
            "smbcontrol",
            String::from_utf8_lossy(&output.stderr).trim(),
        ))
    }

    /// Gives a user another password, while it runs.
    ///
    /// # Errors
    /// If pdbedit fails.
    ///
    /// # Panics
    /// If there is no such user.
    pub fn set_password(&mut self, user: &str, password: &str) -> Result<(), PeerError> {
        let index = self.logins.iter().position(|login| login.user == user);
        let index = index.unwrap_or_else(|| panic!("there is no user {user}"));
        accounts::set_password(&self.configuration(), &self.unix[index], password)?;
        password.clone_into(&mut self.logins[index].password);
        Ok(())
    }

    /// Makes a link in a [`Share::dfs_root`] that leads to `server\share`.
    ///
    /// # Errors
    /// If the link cannot be made.
    pub fn dfs_link(&self, share: &str, name: &str, target: &str) -> std::io::Result<()> {
        std::os::unix::fs::symlink(format!("msdfs:{target}"), self.place(share).join(name))
    }

    /// A file with the first user's name and password in the format of mount.cifs and smbclient, mode 0600.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn credentials(&self) -> std::io::Result<PathBuf> {
        let path = self.folder.path().join("private/credentials");
        let login = self.logins.first();
        let text = login.map_or_else(String::new, |login| {
            format!("username={}\npassword={}\n", login.user, login.password)
        });
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    /// `smbclient //ADDRESS/SHARE` as the first user, to which `-c COMMANDS` may be added.
    ///
    /// # Errors
    /// If smbclient is missing.
    pub fn smbclient(&self, share: &str) -> Result<Command, PeerError> {
        let mut command = Command::new(require("smbclient", "smbclient")?);
        let credentials = self
            .credentials()
            .map_err(|error| PeerError::failed("cannot write the credentials", error))?;
        // Debian's own smb.conf, if there is one, plays no part.
        command.args(["--configfile", "/dev/null", "--port"]);
        command.arg(self.port().to_string());
        command.arg(format!("//{}/{share}", self.address.ip()));
        match self.logins.is_empty() {
            true => command.arg("--no-pass"),
            false => command.arg("--authentication-file").arg(credentials),
        };
        Ok(command)
    }
}

fn write(path: &Path, text: &str) -> Result<(), PeerError> {
    fs::write(path, text)
        .map_err(|error| PeerError::failed(format_args!("cannot write {}", path.display()), error))
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
