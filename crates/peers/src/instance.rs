//! A server as a private instance: its processes, address, folder and log.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::PeerError;
use crate::port::PortLock;
use crate::procfs::peak_bytes;
use crate::session::{EndsWith, Session, inside, is_root};

/// Time for a server to stop after SIGTERM. A guess; it takes milliseconds.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Where a server runs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Addresses at which it listens; the first is that of the instance.
    pub(crate) addresses: Vec<IpAddr>,
    /// Network namespace; `None` for that of this process.
    pub(crate) namespace: Option<PathBuf>,
    /// Parent of the server's own folder; `None` for the system's folder for temporary files.
    pub(crate) parent: Option<PathBuf>,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            namespace: None,
            parent: None,
        }
    }
}

impl Place {
    /// Creates the own folder of a server.
    ///
    /// # Errors
    /// It cannot be created, or the namespace needs root.
    pub(crate) fn folder(&self, name: &str) -> Result<TempDir, PeerError> {
        if self.namespace.is_some() && !is_root() {
            let what = format!("{name} cannot be put into a network namespace");
            return Err(PeerError::needs_root(&what));
        }
        let parent = self.parent.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix(&format!("ropeway-{name}-"))
            .tempdir_in(parent);
        folder.map_err(|error| PeerError::failed(format_args!("cannot make a folder for {name}"), error))
    }

    /// Reserves a port.
    ///
    /// # Errors
    /// None is free.
    pub(crate) fn port(&self) -> Result<PortLock, PeerError> {
        PortLock::take(self.namespace.is_some())
    }

    /// Returns the first address with a port.
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses[0], port)
    }
}

/// Defines the methods that set the [`Place`] of a builder with the field `place`.
macro_rules! place_methods {
    () => {
        /// Runs in another network namespace and listens at an address there (needs root); `None`
        /// changes nothing.
        pub fn in_namespace(mut self, far: Option<(PathBuf, std::net::IpAddr)>) -> Self {
            if let Some((namespace, address)) = far {
                self.place.namespace = Some(namespace);
                self.place.addresses = vec![address];
            }
            self
        }

        /// Sets the parent of the server's own folder; the system's folder for temporary files by
        /// default. The path must be short where sockets lie below it, as those of smbd.
        pub fn below(mut self, parent: &Path) -> Self {
            self.place.parent = Some(parent.to_owned());
            self
        }
    };
}

pub(crate) use place_methods;

/// How a server is started.
#[derive(Debug)]
pub(crate) struct Launch {
    /// Name in messages.
    pub(crate) name: &'static str,
    pub(crate) command: Command,
    pub(crate) ends_with: EndsWith,
    /// Argument by which helpers that leave the session are known; empty if there are none.
    pub(crate) marker: OsString,
    /// File for the output.
    pub(crate) out: PathBuf,
    /// Makes one attempt to talk to the server.
    pub(crate) answers: fn(SocketAddr) -> io::Result<()>,
}

impl Launch {
    /// Starts a server that does not watch its standard input and has no helpers; its output goes to its folder.
    pub(crate) fn guarded(
        name: &'static str,
        command: Command,
        folder: &TempDir,
        answers: fn(SocketAddr) -> io::Result<()>,
    ) -> Self {
        Self {
            name,
            command,
            ends_with: EndsWith::Guard,
            marker: OsString::new(),
            out: folder.path().join("out"),
            answers,
        }
    }
}

/// A server; killed with all its processes, and its folder removed, on drop.
#[derive(Debug)]
pub struct Instance {
    // Ended before the folder goes and the port is free again.
    session: Option<Session>,
    launch: Launch,
    address: SocketAddr,
    namespace: Option<PathBuf>,
    folder: TempDir,
    _port: Option<PortLock>,
}

impl Instance {
    /// Starts a server and waits until it answers.
    pub(crate) fn start(
        launch: Launch,
        place: Place,
        port: u16,
        reserved: Option<PortLock>,
        folder: TempDir,
    ) -> Result<Self, PeerError> {
        let mut instance = Self {
            session: None,
            launch,
            address: place.at(port),
            namespace: place.namespace,
            folder,
            _port: reserved,
        };
        instance.restart()?;
        Ok(instance)
    }

    /// Address and port at which it listens; the first address if there are several.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The instance's own folder. Shares lie elsewhere.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Everything it has logged so far.
    pub fn log(&self) -> String {
        [self.launch.out.clone(), self.folder().join("log")]
            .map(|path| fs::read(path).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat()
    }

    /// Starts it again on the same port and folder, and waits until it answers. A running server is
    /// killed first.
    ///
    /// # Errors
    /// It does not start; its last lines are in the message.
    pub fn restart(&mut self) -> Result<(), PeerError> {
        self.kill();
        let (launch, namespace, address) = (&self.launch, self.namespace.as_deref(), self.address);
        let mut session = Session::start(
            &launch.command,
            launch.ends_with,
            launch.marker.clone(),
            namespace,
            &launch.out,
        )?;
        let answers = || inside(namespace, || (launch.answers)(address));
        session.wait_until(launch.name, answers, || self.log())?;
        self.session = Some(session);
        Ok(())
    }

    /// Sends SIGKILL to all processes, as if the machine crashed. The port then refuses
    /// connections.
    pub fn kill(&mut self) {
        self.session = None;
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

    /// How the server ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.session.as_mut().and_then(Session::ended)
    }

    /// Ids of all processes that run.
    pub fn pids(&self) -> Vec<u32> {
        self.session.as_ref().map(Session::pids).unwrap_or_default()
    }

    /// User and system time since the last start, of all processes, also those that ended.
    pub fn cpu(&self) -> Duration {
        self.session.as_ref().map(Session::cpu).unwrap_or_default()
    }

    /// Memory of all processes now, in bytes; shared pages count once.
    pub fn memory_bytes(&self) -> u64 {
        self.session.as_ref().map_or(0, Session::memory_bytes)
    }

    /// Peak resident memory of the first process so far, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let leader = self.session().map(Session::id);
        leader.map_or(0, peak_bytes)
    }

    /// The processes; `None` after [`Self::kill`].
    pub(crate) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }
}
