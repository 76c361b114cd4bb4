//! An rsync daemon as a private instance.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::PeerError;
use crate::port::PortLock;
use crate::procfs::{in_user_namespace, unprivileged};
use crate::session::{EndsWith, Session, inside, is_root, require};

/// Time for one attempt to connect.
const TRY_MAX: Duration = Duration::from_secs(2);

/// Settings of a private rsync daemon; see [`Rsyncd::builder`].
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
pub struct RsyncdBuilder {
    address: IpAddr,
    namespace: Option<PathBuf>,
    parent: Option<PathBuf>,
    modules: Vec<(String, PathBuf, bool)>,
}

impl RsyncdBuilder {
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

    /// Runs in another network namespace and listens at an address there (needs root).
    pub fn in_namespace(mut self, namespace: &Path, address: IpAddr) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.address = address;
        self
    }

    /// Sets the parent of the daemon's own folder; the system's folder for temporary files by
    /// default.
    pub fn below(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Starts the daemon and waits until it answers.
    ///
    /// # Errors
    /// rsync is not installed, or the daemon does not start.
    pub fn start(self) -> Result<Rsyncd, PeerError> {
        let program = require("rsync", "rsync")?;
        if self.namespace.is_some() && !is_root() {
            return Err(PeerError::needs_root(
                "rsync cannot be put into a network namespace",
            ));
        }
        let failed = |error| PeerError::failed("cannot make a folder for rsync", error);
        let parent = self.parent.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix("ropeway-rsyncd-")
            .tempdir_in(parent)
            .map_err(failed)?;
        let port = PortLock::take(self.namespace.is_some())?;
        let configuration = folder.path().join("rsyncd.conf");
        fs::write(&configuration, self.text(port.port(), folder.path())).map_err(failed)?;
        let mut command = unprivileged(&program, folder.path());
        command.args(["--daemon", "--no-detach"]);
        command.arg(format!("--config={}", configuration.display()));
        let out = folder.path().join("out");
        // Unlike smbd, the daemon does not watch its standard input.
        let namespace = self.namespace.as_deref();
        let session = Session::start(&command, EndsWith::Guard, OsString::new(), namespace, &out)?;
        let address = SocketAddr::new(self.address, port.port());
        let mut rsyncd = Rsyncd {
            session,
            address,
            folder,
            _port: port,
        };
        let path = rsyncd.folder.path().to_owned();
        rsyncd
            .session
            .wait_until("rsync", || inside(namespace, || greet(address)), || log(&path))?;
        Ok(rsyncd)
    }

    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "port = {port}\naddress = {}\nuse chroot = no\nlog file = {}\npid file = {}\n",
            self.address,
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

/// A running rsync daemon; killed with all its processes, and its folder removed, on drop.
#[derive(Debug)]
pub struct Rsyncd {
    session: Session,
    address: SocketAddr,
    folder: tempfile::TempDir,
    _port: PortLock,
}

impl Rsyncd {
    /// Returns the settings of a daemon on 127.0.0.1 with a free port and no modules.
    pub fn builder() -> RsyncdBuilder {
        RsyncdBuilder {
            address: Ipv4Addr::LOCALHOST.into(),
            namespace: None,
            parent: None,
            modules: Vec::new(),
        }
    }

    /// Address and port at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `rsync://ADDRESS:PORT/PLACE`.
    pub fn url(&self, place: &str) -> String {
        format!("rsync://{}/{place}", self.address)
    }

    /// User and system time since its start, of all processes, also those that ended.
    pub fn cpu(&self) -> Duration {
        self.session.cpu()
    }

    /// Memory of all processes now, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.session.memory_bytes()
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        log(self.folder.path())
    }
}

/// Returns what a server has written to `out` and `log` in its folder.
pub(crate) fn log(folder: &Path) -> String {
    ["out", "log"]
        .map(|name| fs::read(folder.join(name)).unwrap_or_default())
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat()
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
