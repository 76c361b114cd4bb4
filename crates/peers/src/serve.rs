//! `ropeway serve` as a private instance. The program is a path: nothing of the product is linked.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::PeerError;
use crate::port::PortLock;
use crate::procfs::{clean, peak_bytes};
use crate::session::{EndsWith, Session};
use crate::smbd::ready;

/// Time for a server to stop after SIGTERM. A guess; it takes milliseconds.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Settings of a private `ropeway serve`; see [`RopewayServe::builder`].
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
pub struct RopewayServeBuilder {
    program: PathBuf,
    address: IpAddr,
    namespace: Option<PathBuf>,
    parent: Option<PathBuf>,
    log: Option<PathBuf>,
    user: (String, String),
    shares: Vec<OsString>,
    flags: Vec<String>,
}

impl RopewayServeBuilder {
    /// Sets the only user and its password.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = (name.to_owned(), password.to_owned());
        self
    }

    /// Adds a share that clients may write.
    pub fn share(mut self, name: &str, path: &Path) -> Self {
        self.shares.push(share(name, path, ""));
        self
    }

    /// Adds a share that clients may only read.
    pub fn read_only_share(mut self, name: &str, path: &Path) -> Self {
        self.shares.push(share(name, path, ":ro"));
        self
    }

    /// Adds flags of `serve`.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
        self
    }

    /// Runs in another network namespace and listens at an address there (needs root).
    pub fn in_namespace(mut self, namespace: &Path, address: IpAddr) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.address = address;
        self
    }

    /// Sets the parent of the server's own folder; the system's folder for temporary files by
    /// default.
    pub fn below(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Appends all output to this file, which outlives the server.
    pub fn log_to(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// The server does not start; its last lines are in the message.
    pub fn start(self) -> Result<RopewayServe, PeerError> {
        let failed = |error| PeerError::failed("cannot make a folder for ropeway serve", error);
        let parent = self.parent.unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix("ropeway-serve-")
            .tempdir_in(parent)
            .map_err(failed)?;
        let password = folder.path().join("password");
        write_secret(&password, &format!("{}\n", self.user.1)).map_err(failed)?;
        let port = PortLock::take(self.namespace.is_some())?;
        let address = SocketAddr::new(self.address, port.port());
        let mut command = clean(&self.program, folder.path());
        command.env("RUST_BACKTRACE", "1").arg("serve").args(&self.flags);
        command.arg("--listen").arg(address.to_string());
        command
            .args(["--user", &self.user.0, "--password-file"])
            .arg(password);
        command.args(&self.shares);
        let mut server = RopewayServe {
            session: None,
            command,
            address,
            namespace: self.namespace,
            log: self.log.unwrap_or_else(|| folder.path().join("out")),
            _folder: folder,
            _port: port,
        };
        server.restart()?;
        Ok(server)
    }
}

fn share(name: &str, path: &Path, suffix: &str) -> OsString {
    let mut word = OsString::from(format!("{name}="));
    word.push(path);
    word.push(suffix);
    word
}

/// Writes a file that only its owner may read.
///
/// # Errors
/// The file cannot be written.
pub fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    _ = fs::remove_file(path);
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

/// A running `ropeway serve`; killed, and its folder removed, on drop.
#[derive(Debug)]
pub struct RopewayServe {
    // Ended before the folder goes and the port is free again.
    session: Option<Session>,
    command: Command,
    address: SocketAddr,
    namespace: Option<PathBuf>,
    log: PathBuf,
    _folder: tempfile::TempDir,
    _port: PortLock,
}

impl RopewayServe {
    /// Returns the settings of a server on 127.0.0.1 with a free port and no shares.
    ///
    /// `program` is `ropeway`, or a program that takes the same arguments.
    pub fn builder(program: &Path) -> RopewayServeBuilder {
        RopewayServeBuilder {
            program: program.to_owned(),
            address: Ipv4Addr::LOCALHOST.into(),
            namespace: None,
            parent: None,
            log: None,
            user: (String::new(), String::new()),
            shares: Vec::new(),
            flags: Vec::new(),
        }
    }

    /// Address and port at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the server again on the same port and folder, and waits until it answers. A running
    /// server is killed first.
    ///
    /// # Errors
    /// The server does not start; its last lines are in the message.
    pub fn restart(&mut self) -> Result<(), PeerError> {
        self.kill();
        let namespace = self.namespace.as_deref();
        let mut session = Session::start(
            &self.command,
            EndsWith::Guard,
            OsString::new(),
            namespace,
            &self.log,
        )?;
        session.wait_until(
            "the server",
            || ready::answers(self.address, namespace),
            || self.log(),
        )?;
        self.session = Some(session);
        Ok(())
    }

    /// Sends SIGKILL to the server, as if the machine crashed. The port then refuses connections.
    pub fn kill(&mut self) {
        self.session = None;
    }

    /// How the server ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.session.as_mut().and_then(Session::ended)
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Duration {
        self.session.as_ref().map(Session::cpu).unwrap_or_default()
    }

    /// Memory now, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::memory_bytes)
    }

    /// Peak resident memory so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.session
            .as_ref()
            .map_or(0, |session| peak_bytes(session.id()))
    }

    /// Everything it has printed so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Sends SIGTERM and waits for the server to end.
    ///
    /// # Errors
    /// The server does not stop in time, or stops with a failure.
    pub fn stop(mut self) -> Result<(), PeerError> {
        self.session
            .as_mut()
            .map_or(Ok(()), |session| session.stop(STOP_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_exit_status_of_a_server_that_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RopewayServe::builder(Path::new("/bin/false")).user("ann", "x");
        let error = builder.share("share", folder.path()).start().unwrap_err();
        assert!(error.to_string().contains("ended (exit status: 1)"), "{error}");
    }
}
