//! A server of NATS with JetStream as a private instance.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::PeerError;
use crate::instance::{Instance, Launch, Place, place_methods};
use crate::procfs::program;

/// Time for one attempt to connect.
const TRY_MAX: Duration = Duration::from_secs(2);

/// Settings of a private server of NATS. It writes each message to disk before it acknowledges it
/// (`sync_interval: always`), and keeps its store when it is killed and restarted.
#[derive(Clone, Debug, Default)]
#[must_use = "it changes nothing by itself"]
pub struct Nats {
    place: Place,
    user: Option<(String, String)>,
}

impl Nats {
    /// Returns the settings of a server on 127.0.0.1 with a free port.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets only this user in.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.to_owned(), password.to_owned()));
        self
    }

    place_methods!();

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    /// nats-server is not installed, or does not start.
    pub fn start(self) -> Result<Instance, PeerError> {
        let program = program("nats-server").ok_or_else(|| PeerError::Missing {
            what: "nats-server is not installed".to_owned(),
            hint: "cargo xtask ci --only tools".to_owned(),
        })?;
        let folder = self.place.folder("nats")?;
        let port = self.place.port()?;
        let configuration = folder.path().join("nats.conf");
        fs::write(&configuration, self.text(port.port(), folder.path()))
            .map_err(|error| PeerError::failed("cannot configure nats-server", error))?;
        let mut command = Command::new(program);
        command.arg("-c").arg(configuration);
        let launch = Launch::guarded("nats-server", command, &folder, greet);
        Instance::start(launch, self.place, port.port(), Some(port), folder)
    }

    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "listen: \"{}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            self.place.at(port),
            folder.join("store").display()
        );
        if let Some((user, password)) = &self.user {
            let _ = writeln!(
                text,
                "authorization {{ user: \"{user}\", password: \"{password}\" }}"
            );
        }
        text
    }
}

/// A server sends `INFO` to each new connection.
fn greet(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, TRY_MAX)?;
    stream.set_read_timeout(Some(TRY_MAX))?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    match &head {
        b"INFO" => Ok(()),
        _ => Err(io::Error::other("it does not greet as nats-server")),
    }
}
