//! Servers at the far end: private instances with their own ports, folders and users, never the system's.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::measure;
use super::process::{Ends, Session, clean};
use super::tools::Tools;
use crate::link::{Link, LinkError, LinkSpec, Relay, Side};
use crate::scenario::{Direction, Server};

/// How long a server may take to answer. smbd takes a quarter of a second; two cores may be shared with a build.
const START_MAX: Duration = Duration::from_secs(30);
/// How often is looked (a guess).
const LOOK: Duration = Duration::from_millis(10);
/// The only user.
pub(crate) const USER: &str = "lab";
/// Its password: not an argument of any process.
pub(crate) const PASSWORD: &str = "lab secret";
/// The share, or module, with the work, and the one that is written to.
pub(crate) const SOURCE: &str = "source";
/// See [`SOURCE`].
pub(crate) const TARGET: &str = "target";

/// The way between client and server.
#[derive(Debug)]
pub(crate) enum Way {
    /// Namespaces and packets.
    Packets(Box<Link>),
    /// A relay for each server on the loopback.
    Relay(Box<LinkSpec>),
}

impl Way {
    /// Makes it. It is cut only during runs, see [`Self::begin_run`].
    ///
    /// # Errors
    /// The link cannot be made.
    pub(crate) fn start(spec: &LinkSpec, relay: bool) -> Result<Self, LinkError> {
        if relay {
            return Ok(Self::Relay(Box::new(spec.relayed())));
        }
        let link = Link::start(spec.clone())?;
        link.suspend_cuts();
        Ok(Self::Packets(Box::new(link)))
    }

    /// A run begins: the link's cuts are counted from now.
    pub(super) fn begin_run(&self) {
        if let Self::Packets(link) = self {
            link.begin_cuts();
        }
    }

    /// It is over: the link is whole until the next one.
    pub(super) fn end_run(&self) {
        if let Self::Packets(link) = self {
            link.suspend_cuts();
        }
    }

    /// Starts a process on a side.
    pub(crate) fn spawn(&self, side: Side, command: &mut Command) -> io::Result<Child> {
        match self {
            Self::Packets(link) => link.spawn(side, command),
            Self::Relay(_) => command.spawn(),
        }
    }

    /// Bytes on the wire so far, in the direction of the work.
    pub(super) fn wire_bytes(&self, direction: Direction) -> Option<u64> {
        let Self::Packets(link) = self else {
            return None;
        };
        let stats = link.stats();
        Some(match direction {
            Direction::Read => stats.down.wire_bytes,
            Direction::Write => stats.up.wire_bytes,
        })
    }

    /// Where a server is to listen.
    fn listen(&self, server: Server) -> io::Result<SocketAddr> {
        match self {
            // Nobody else is in the namespace.
            Self::Packets(link) => Ok(SocketAddr::new(link.far_addr(), 4450 + server as u16)),
            Self::Relay(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr(),
        }
    }

    fn answers(&self, address: SocketAddr) -> io::Result<()> {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(2)).map(|_| ());
        match self {
            Self::Packets(link) => link.run(Side::Far, connect)?,
            Self::Relay(_) => connect(),
        }
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    // Ended before its relay goes.
    session: Session,
    address: SocketAddr,
    _relay: Option<Relay>,
}

/// What to serve, and where a server may keep what it needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// Offered as [`SOURCE`], to be read.
    pub(crate) source: &'a Path,
    /// Offered as [`TARGET`], to be written.
    pub(crate) target: &'a Path,
    /// An empty folder of its own.
    pub(crate) scratch: &'a Path,
}

impl Served {
    /// Starts one; it answers when this returns.
    ///
    /// # Errors
    /// It does not start; the reason is for people.
    pub(crate) fn start(server: Server, tools: &Tools, way: &Way, place: Place<'_>) -> Result<Self, String> {
        let failed = |error: io::Error| format!("does not start: {error}");
        fs::create_dir_all(place.scratch).map_err(failed)?;
        let own = way.listen(server).map_err(failed)?;
        let out = place.scratch.join("out");
        let (command, ends, mark) = match server {
            Server::Ropeway => (
                ropeway(tools, own, place).map_err(failed)?,
                Ends::Guarded,
                OsString::new(),
            ),
            Server::Rsyncd => (
                rsyncd(tools, own, place).map_err(failed)?,
                Ends::Guarded,
                OsString::new(),
            ),
            Server::Smbd => {
                let (command, configuration) = smbd(tools, own, place)?;
                let mark = format!("--configfile={}", configuration.display());
                (command, Ends::WithInput, mark.into())
            }
        };
        let session = Session::start(&command, ends, mark, &out, |command| {
            way.spawn(Side::Far, command)
        });
        let mut session = session.map_err(failed)?;
        let end = Instant::now() + START_MAX;
        loop {
            if let Some(status) = session.ended() {
                return Err(format!("ended ({status}): {}", said(&out)));
            }
            match way.answers(own) {
                Ok(()) => break,
                Err(error) if Instant::now() >= end => {
                    return Err(format!("does not answer: {error}; {}", said(&out)));
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
        let relay = match way {
            Way::Packets(_) => None,
            Way::Relay(spec) => Some(Relay::start(0, own.port(), spec).map_err(|error| error.to_string())?),
        };
        Ok(Self {
            session,
            address: relay.as_ref().map_or(own, Relay::address),
            _relay: relay,
        })
    }

    /// Where clients find it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// User and system time so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.session.cpu()
    }

    /// Memory now.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.session.memory_bytes()
    }
}

fn said(out: &Path) -> String {
    measure::last_words(out)
}

/// Writes a file that nobody else may read.
pub(super) fn secret(path: &Path, text: &str) -> io::Result<()> {
    _ = fs::remove_file(path);
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

fn ropeway(tools: &Tools, own: SocketAddr, place: Place<'_>) -> io::Result<Command> {
    let password = place.scratch.join("password");
    secret(&password, PASSWORD)?;
    let mut command = clean(tools.path("ropeway"), place.scratch);
    command.arg("serve").arg("--listen").arg(own.to_string());
    command.args(["--user", USER, "--password-file"]).arg(password);
    for (name, folder, how) in [(SOURCE, place.source, ":ro"), (TARGET, place.target, "")] {
        let mut word = OsString::from(format!("{name}="));
        word.push(folder);
        word.push(how);
        command.arg(word);
    }
    Ok(command)
}

fn rsyncd(tools: &Tools, own: SocketAddr, place: Place<'_>) -> io::Result<Command> {
    let configuration = place.scratch.join("rsyncd.conf");
    let mut text = format!(
        "port = {}\naddress = {}\nuse chroot = no\nlog file = {}\npid file = {}\n",
        own.port(),
        own.ip(),
        place.scratch.join("log").display(),
        place.scratch.join("pid").display()
    );
    if rustix::process::geteuid().is_root() && !in_user_namespace() {
        // The daemon would become nobody.
        text.push_str("uid = 0\ngid = 0\n");
    }
    for (name, folder, read_only) in [(SOURCE, place.source, "yes"), (TARGET, place.target, "no")] {
        text.push_str(&format!(
            "[{name}]\npath = {}\nread only = {read_only}\n",
            folder.display()
        ));
    }
    fs::write(&configuration, text)?;
    let mut command = unprivileged(tools.path("rsync"), place.scratch);
    command.args(["--daemon", "--no-detach"]);
    command.arg(format!("--config={}", configuration.display()));
    Ok(command)
}

/// Folders that smbd wants to exist, and the settings that name them.
const SMBD_FOLDERS: [(&str, &str); 7] = [
    ("lock directory", "lock"),
    ("state directory", "state"),
    ("cache directory", "cache"),
    ("pid directory", "pid"),
    ("private dir", "private"),
    ("ncalrpc dir", "ncalrpc"),
    ("binddns dir", "dns"),
];

fn smbd(tools: &Tools, own: SocketAddr, place: Place<'_>) -> Result<(Command, PathBuf), String> {
    let unix = unix_account().ok_or("this user has no name in /etc/passwd, and samba wants one")?;
    let configuration = place.scratch.join("smb.conf");
    let prepare = || -> io::Result<()> {
        for (_, name) in SMBD_FOLDERS {
            fs::create_dir_all(place.scratch.join(name))?;
            fs::set_permissions(place.scratch.join(name), fs::Permissions::from_mode(0o755))?;
        }
        fs::set_permissions(place.scratch.join("private"), fs::Permissions::from_mode(0o700))?;
        // Samba takes only users that the system knows: ours is whoever runs this.
        fs::write(place.scratch.join("users.map"), format!("!{unix} = \"{USER}\"\n"))?;
        fs::write(&configuration, smb_conf(own, &unix, place))
    };
    prepare().map_err(|error| format!("cannot be prepared: {error}"))?;
    add_user(tools, &configuration, &unix, place.scratch)?;
    let mut command = unprivileged(tools.path("smbd"), place.scratch);
    command
        .args(["-F", "--no-process-group", "-s"])
        .arg(&configuration);
    // What it says before it has read that.
    command.arg("-l").arg(place.scratch);
    Ok((command, configuration))
}

/// Whether this process is root only in a user namespace, where nobody else is known.
fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    // user_namespaces(7): outside all of them every id is itself.
    !map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A command as an ordinary user where we are root only in a user namespace: servers that see themselves as root become
/// others, which is forbidden there, and rsync gives files away. In a namespace below without any map they are nobody, with our rights over files.
pub(super) fn unprivileged(program: PathBuf, scratch: &Path) -> Command {
    if !(rustix::process::geteuid().is_root() && in_user_namespace()) {
        return clean(program, scratch);
    }
    let unshare = super::process::program("unshare").unwrap_or_else(|| PathBuf::from("unshare"));
    let mut command = clean(unshare, scratch);
    command.args(["--user", "--"]).arg(program);
    command
}

/// The name of the user as whom servers run here.
fn unix_account() -> Option<String> {
    let id = match rustix::process::geteuid() {
        // The kernel's overflow id, which is who has no map.
        id if id.is_root() && in_user_namespace() => "65534".to_owned(),
        id => id.as_raw().to_string(),
    };
    let known = fs::read_to_string("/etc/passwd").ok()?;
    let line = known.lines().find(|line| line.split(':').nth(2) == Some(&id))?;
    line.split(':').next().map(str::to_owned)
}

fn smb_conf(own: SocketAddr, unix: &str, place: Place<'_>) -> String {
    let at = |name: &str| place.scratch.join(name).display().to_string();
    let mut text = format!(
        "[global]\nserver role = standalone server\nworkgroup = ROPEWAY\nnetbios name = LAB\ndisable netbios = yes\n\
         smb ports = {}\nserver min protocol = SMB2_02\nlog file = {}\nlogging = file\nlog level = 0\nmax log size = 0\n\
         username map = {}\npassdb backend = tdbsam:{}\nusershare max shares = 0\nload printers = no\nprinting = bsd\n\
         printcap name = /dev/null\ndisable spoolss = yes\n",
        own.port(),
        at("log"),
        at("users.map"),
        at("private/passdb.tdb"),
    );
    if matches!(own.ip(), IpAddr::V4(address) if address.is_loopback()) {
        // In a namespace of its own it listens everywhere: samba does not take a TUN device for an interface.
        text.push_str("interfaces = 127.0.0.1\nbind interfaces only = yes\n");
    }
    for (key, name) in SMBD_FOLDERS {
        text.push_str(&format!("{key} = {}\n", at(name)));
    }
    for (name, folder, read_only) in [(SOURCE, place.source, "yes"), (TARGET, place.target, "no")] {
        text.push_str(&format!(
            "[{name}]\npath = {}\nread only = {read_only}\nforce user = {unix}\n",
            folder.display()
        ));
    }
    text
}

fn add_user(tools: &Tools, configuration: &Path, unix: &str, scratch: &Path) -> Result<(), String> {
    let run = || -> io::Result<std::process::Output> {
        let mut child = clean(tools.path("pdbedit"), scratch)
            .arg("-s")
            .arg(configuration)
            .args(["-a", "-t", "-u", unix])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // If it ends early, its own message says why.
            _ = input.write_all(format!("{PASSWORD}\n{PASSWORD}\n").as_bytes());
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| format!("pdbedit cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "pdbedit failed: {}",
        said.lines().last().unwrap_or("it says not why")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smbd_keeps_everything_in_its_own_folder() {
        let scratch = Path::new("/s");
        let place = Place {
            source: Path::new("/a b"),
            target: Path::new("/t"),
            scratch,
        };
        let text = smb_conf(SocketAddr::from(([198, 18, 0, 2], 4451)), "root", place);
        for line in [
            "smb ports = 4451",
            "path = /a b",
            "force user = root",
            "private dir = /s/private",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("interfaces"));
        let text = smb_conf(SocketAddr::from(([127, 0, 0, 1], 4451)), "root", place);
        assert!(text.contains("bind interfaces only = yes"));
    }
}
