//! An rsync daemon as a private instance.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::PeerError;
use crate::instance::{Instance, Launch, Place, place_methods};
use crate::procfs::{in_user_namespace, unprivileged};
use crate::session::{is_root, require};

/// Time for one attempt to connect.
const TRY_MAX: Duration = Duration::from_secs(2);

/// Settings of a private rsync daemon.
#[derive(Clone, Debug, Default)]
#[must_use = "it changes nothing by itself"]
pub struct Rsyncd {
    place: Place,
    modules: Vec<(String, PathBuf, bool)>,
}

impl Rsyncd {
    /// Returns the settings of a daemon on 127.0.0.1 with a free port and no modules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module that clients may write.
    pub fn module(mut self, name: &str, path: &Path) -> Self {
        self.modules.push((name.to_owned(), path.to_owned(), false));
        self
    }

    /// Adds a module that clients may only read.
    pub fn read_only_module(mut self, name: &str, path: &Path) -> Self {
        self.modules.push((name.to_owned(), path.to_owned(), true));
        self
    }

    place_methods!();

    /// Starts the daemon and waits until it answers.
    ///
    /// # Errors
    /// rsync is not installed, or the daemon does not start.
    pub fn start(self) -> Result<Instance, PeerError> {
        let program = require("rsync", "rsync")?;
        let folder = self.place.folder("rsync")?;
        let port = self.place.port()?;
        let configuration = folder.path().join("rsyncd.conf");
        fs::write(&configuration, self.text(port.port(), folder.path()))
            .map_err(|error| PeerError::failed("cannot configure rsync", error))?;
        let mut command = unprivileged(&program, folder.path());
        command.args(["--daemon", "--no-detach"]);
        command.arg(format!("--config={}", configuration.display()));
        let launch = Launch::guarded("rsync", command, &folder, greet);
        Instance::start(launch, self.place, port.port(), Some(port), folder)
    }

    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "port = {port}\naddress = {}\nuse chroot = no\nlog file = {}\npid file = {}\n",
            self.place.addresses[0],
            folder.join("log").display(),
            folder.join("pid").display()
        );
        if is_root() && !in_user_namespace() {
            // Otherwise the daemon would become `nobody`.
            text.push_str("uid = 0\ngid = 0\n");
        }
        for (name, path, read_only) in &self.modules {
            let read_only = if *read_only { "yes" } else { "no" };
            let _ = writeln!(
                text,
                "[{name}]\npath = {}\nread only = {read_only}",
                path.display()
            );
        }
        text
    }
}

fn greet(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, TRY_MAX)?;
    stream.set_read_timeout(Some(TRY_MAX))?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    match &head {
        b"@RSYNCD:" => Ok(()),
        _ => Err(io::Error::other("it does not greet as rsync")),
    }
}
