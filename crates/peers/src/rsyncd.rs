//! An rsync daemon as a private instance.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::PeerError;
use crate::port::PortLock;
use crate::process::{Session, is_root, require};

/// How long it may take to answer; it takes milliseconds.
const START_MAX: Duration = Duration::from_secs(20);

/// Runs its arguments until its standard input ends. Unlike smbd the daemon does not look there, and without this it
/// would outlive whoever started it and was killed, with all descriptors it was given.
const GUARD: &str = "exec 3<&0; (cat <&3 >/dev/null; kill $$) & exec \"$@\" </dev/null 3<&-";

/// What a private rsync daemon should be; see [`Rsyncd::builder`].
#[derive(Clone, Debug)]
pub struct RsyncdBuilder {
    address: IpAddr,
    namespace: Option<PathBuf>,
    modules: Vec<(String, PathBuf)>,
}

impl RsyncdBuilder {
    /// A writable folder under a name.
    #[must_use]
    pub fn module(mut self, name: &str, path: &Path) -> Self {
        self.modules.push((name.to_owned(), path.to_owned()));
        self
    }

    /// Runs in another network namespace and listens at an address there (as root).
    #[must_use]
    pub fn in_namespace(mut self, namespace: &Path, address: IpAddr) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.address = address;
        self
    }

    /// Starts it; it answers when this returns.
    ///
    /// # Errors
    /// If rsync is missing, or it does not start.
    pub fn start(self) -> Result<Rsyncd, PeerError> {
        let server = require("rsync", "rsync")?;
        if self.namespace.is_some() && !is_root() {
            return Err(PeerError::needs_root(
                "rsync cannot be put into a network namespace",
            ));
        }
        let failed = |error| PeerError::failed("cannot make a folder for rsync", error);
        let folder = tempfile::Builder::new()
            .prefix("ropeway-rsyncd-")
            .tempdir()
            .map_err(failed)?;
        let port = PortLock::take()?;
        let configuration = folder.path().join("rsyncd.conf");
        fs::write(&configuration, self.text(port.port(), folder.path())).map_err(failed)?;
        let option = format!("--config={}", configuration.display());
        let server = server
            .to_str()
            .ok_or_else(|| PeerError::Failed("the name of rsync's folder is not UTF-8".to_owned()))?;
        let session = Session::start(
            &require("sh", "dash")?,
            &["-c", GUARD, "sh", server, "--daemon", "--no-detach", &option],
            &configuration,
            &[],
            self.namespace.as_deref(),
            &folder.path().join("out"),
        )?;
        let mut rsyncd = Rsyncd {
            session,
            address: SocketAddr::new(self.address, port.port()),
            folder,
            _port: port,
        };
        rsyncd.wait(self.namespace.as_deref())?;
        Ok(rsyncd)
    }

    fn text(&self, port: u16, folder: &Path) -> String {
        let mut text = format!(
            "port = {port}\naddress = {}\nuse chroot = no\nlog file = {}\npid file = {}\n",
            self.address,
            folder.join("log").display(),
            folder.join("pid").display()
        );
        if is_root() {
            // The daemon would become nobody.
            text.push_str("uid = 0\ngid = 0\n");
        }
        for (name, path) in &self.modules {
            let _ = writeln!(text, "[{name}]\npath = {}\nread only = no", path.display());
        }
        text
    }
}

/// A running rsync daemon; ended with all its processes, and its folder removed, when dropped.
#[derive(Debug)]
pub struct Rsyncd {
    session: Session,
    address: SocketAddr,
    folder: tempfile::TempDir,
    _port: PortLock,
}

impl Rsyncd {
    /// One on 127.0.0.1 with a free port and no modules.
    #[must_use]
    pub fn builder() -> RsyncdBuilder {
        RsyncdBuilder {
            address: Ipv4Addr::LOCALHOST.into(),
            namespace: None,
            modules: Vec::new(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `rsync://ADDRESS:PORT/PLACE`.
    #[must_use]
    pub fn url(&self, place: &str) -> String {
        format!("rsync://{}/{place}", self.address)
    }

    /// User and system time since its start, all processes, ended ones too.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.session.cpu()
    }

    /// What it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        ["out", "log"]
            .map(|name| fs::read(self.folder.path().join(name)).unwrap_or_default())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat()
    }

    fn wait(&mut self, namespace: Option<&Path>) -> Result<(), PeerError> {
        let end = Instant::now() + START_MAX;
        loop {
            if let Some(status) = self.session.ended() {
                return Err(PeerError::failed(
                    format_args!("rsync ended ({status})"),
                    self.log().trim(),
                ));
            }
            match greeting(self.address, namespace) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= end => {
                    return Err(PeerError::failed("rsync does not answer", error));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

fn greeting(address: SocketAddr, namespace: Option<&Path>) -> std::io::Result<()> {
    let Some(namespace) = namespace else {
        return greeted(address);
    };
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let file = fs::File::open(namespace)?;
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))?;
            greeted(address)
        });
        inside
            .join()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")))
    })
}

fn greeted(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    match &head {
        b"@RSYNCD:" => Ok(()),
        _ => Err(std::io::Error::other("it does not greet as rsync")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_daemon_ends_with_whoever_started_it() {
        let mut child = Command::new("sh")
            .args(["-c", GUARD, "sh", "sleep", "20"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdin.take());
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(15), "{status}: it was not ended");
    }
}
