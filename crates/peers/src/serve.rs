//! `ropeway serve` as a private instance. The program is a path: nothing of the product is linked.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::PeerError;
use crate::instance::{Instance, Launch, Place, place_methods};
use crate::procfs::clean;
use crate::session::EndsWith;
use crate::smbd::ready;

/// Settings of a private `ropeway serve`.
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
pub struct RopewayServe {
    program: PathBuf,
    place: Place,
    log: Option<PathBuf>,
    user: (String, String),
    shares: Vec<OsString>,
    flags: Vec<String>,
}

impl RopewayServe {
    /// Returns the settings of a server on 127.0.0.1 with a free port and no shares.
    ///
    /// `program` is `ropeway`, or a program that takes the same arguments.
    pub fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            place: Place::default(),
            log: None,
            user: (String::new(), String::new()),
            shares: Vec::new(),
            flags: Vec::new(),
        }
    }

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

    place_methods!();

    /// Appends all output to this file, which outlives the server.
    pub fn log_to(mut self, path: &Path) -> Self {
        self.log = Some(path.to_owned());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// The server does not start; its last lines are in the message.
    pub fn start(self) -> Result<Instance, PeerError> {
        let folder = self.place.folder("serve")?;
        let password = folder.path().join("password");
        write_secret(&password, &format!("{}\n", self.user.1))
            .map_err(|error| PeerError::failed("cannot write the password", error))?;
        let port = self.place.port()?;
        let address = self.place.at(port.port());
        let mut command = clean(&self.program, folder.path());
        command
            .env("RUST_BACKTRACE", "1")
            .args(["serve", "--no-announce"]);
        command.args(&self.flags);
        command.arg("--listen").arg(address.to_string());
        command
            .args(["--user", &self.user.0, "--password-file"])
            .arg(password);
        command.args(&self.shares);
        let launch = Launch {
            name: "the server",
            command,
            ends_with: EndsWith::Guard,
            marker: OsString::new(),
            out: self.log.unwrap_or_else(|| folder.path().join("out")),
            answers: ready::answers,
        };
        Instance::start(launch, self.place, port.port(), Some(port), folder)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_exit_status_of_a_server_that_does_not_start() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RopewayServe::new(Path::new("/bin/false")).user("ann", "x");
        let error = builder.share("share", folder.path()).start().unwrap_err();
        assert!(error.to_string().contains("ended (exit status: 1)"), "{error}");
    }
}
