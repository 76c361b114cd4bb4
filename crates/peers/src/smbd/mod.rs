//! Samba's smbd as a private instance.

mod accounts;
mod conf;
mod ready;
mod share;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub use accounts::{Account, Login};
pub use conf::{Dialect, Encryption, Signing};
pub use share::Share;

use crate::PeerError;
use crate::port::PortLock;
use crate::process::{Session, is_root, require};

/// How long smbd may take to answer. It takes a quarter of a second; two cores may be shared with a build.
const START_MAX: Duration = Duration::from_secs(30);

/// What a private smbd should be; see [`Smbd::builder`].
#[derive(Clone, Debug)]
pub struct SmbdBuilder {
    addresses: Vec<IpAddr>,
    port: Option<u16>,
    namespace: Option<PathBuf>,
    parent: Option<PathBuf>,
    dialects: RangeInclusive<Dialect>,
    signing: Signing,
    encryption: Encryption,
    multichannel: bool,
    durable_handles: bool,
    case_sensitive: bool,
    guest: bool,
    log_level: u8,
    logins: Vec<Login>,
    shares: Vec<Share>,
    options: Vec<(String, String)>,
}

impl SmbdBuilder {
    /// Protocol versions, least and most.
    #[must_use]
    pub fn dialects(mut self, dialects: RangeInclusive<Dialect>) -> Self {
        self.dialects = dialects;
        self
    }

    /// `server signing`.
    #[must_use]
    pub fn signing(mut self, signing: Signing) -> Self {
        self.signing = signing;
        self
    }

    /// `server smb encrypt`.
    #[must_use]
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// Ciphers in the server's order, as samba names them (`AES-128-GCM`, …).
    #[must_use]
    pub fn ciphers(self, names: &[&str]) -> Self {
        self.option("server smb3 encryption algorithms", &names.join(" "))
    }

    /// Signing algorithms in the server's order, as samba names them (`AES-128-GMAC`, `AES-128-CMAC`, `HMAC-SHA256`).
    #[must_use]
    pub fn signing_algorithms(self, names: &[&str]) -> Self {
        self.option("server smb3 signing algorithms", &names.join(" "))
    }

    /// `server multi channel support` (on by default, as in samba).
    #[must_use]
    pub fn multichannel(mut self, offered: bool) -> Self {
        self.multichannel = offered;
        self
    }

    /// Whether durable handles are granted (on by default here; samba's own settings keep them off).
    #[must_use]
    pub fn durable_handles(mut self, granted: bool) -> Self {
        self.durable_handles = granted;
        self
    }

    /// Whether names that differ in case are different (off by default).
    #[must_use]
    pub fn case_sensitive(mut self, sensitive: bool) -> Self {
        self.case_sensitive = sensitive;
        self
    }

    /// Largest READ, WRITE and other payload, in bytes.
    #[must_use]
    pub fn sizes_max(self, read: u32, write: u32, transact: u32) -> Self {
        self.option("smb2 max read", &read.to_string())
            .option("smb2 max write", &write.to_string())
            .option("smb2 max trans", &transact.to_string())
    }

    /// Most credits of a connection.
    #[must_use]
    pub fn credits_max(self, credits: u16) -> Self {
        self.option("smb2 max credits", &credits.to_string())
    }

    /// A user; the first one acts as who runs smbd. Without root there can be only one.
    #[must_use]
    pub fn user(self, name: &str, password: &str) -> Self {
        self.user_with(name, password, Account::Good)
    }

    /// A user whose account is in some state.
    #[must_use]
    pub fn user_with(mut self, name: &str, password: &str, account: Account) -> Self {
        self.logins.push(Login::new(name, password, account));
        self
    }

    /// Unknown users become guests.
    #[must_use]
    pub fn guest(mut self) -> Self {
        self.guest = true;
        self
    }

    /// A share.
    #[must_use]
    pub fn share(mut self, share: Share) -> Self {
        self.shares.push(share);
        self
    }

    /// Listens on ::1 too.
    #[must_use]
    pub fn ipv6(mut self) -> Self {
        self.addresses.push(Ipv6Addr::LOCALHOST.into());
        self
    }

    /// A certain port instead of a free one; whoever asks for it sees to it that it is free.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Runs in another network namespace and listens at an address there (as root).
    #[must_use]
    pub fn in_namespace(mut self, namespace: &Path, address: IpAddr) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.addresses = vec![address];
        self
    }

    /// Where its own folder is made; the system's folder for temporary files by default. Sockets are made below, so the
    /// path must be short.
    #[must_use]
    pub fn below(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// `log level`, 1 by default.
    #[must_use]
    pub fn log_level(mut self, level: u8) -> Self {
        self.log_level = level;
        self
    }

    /// Any line of the global section.
    #[must_use]
    pub fn option(mut self, key: &str, value: &str) -> Self {
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Starts it; it answers when this returns.
    ///
    /// # Errors
    /// If samba is missing, or it does not start.
    pub fn start(self) -> Result<Smbd, PeerError> {
        let server = require("smbd", "samba")?;
        require("pdbedit", "samba-common-bin")?;
        if self.namespace.is_some() && !is_root() {
            return Err(PeerError::needs_root(
                "smbd cannot be put into a network namespace",
            ));
        }
        let unix = accounts::unix_accounts(self.logins.len())?;
        let parent = self.parent.clone().unwrap_or_else(std::env::temp_dir);
        let (folder, reserved) = prepare(&parent, self.port)?;
        let port = reserved
            .as_ref()
            .map_or(self.port.unwrap_or_default(), PortLock::port);
        let path = folder.path();
        let configuration = path.join("smb.conf");
        // An ordinary user's smbd can be nobody else anyway, and may not try.
        let forced = is_root().then(|| unix.first().map(String::as_str)).flatten();
        write(&configuration, &conf::text(&self, path, port, forced))?;
        write(&path.join("users.map"), &accounts::map(&self.logins, &unix))?;
        accounts::create(&configuration, &self.logins, &unix)?;
        let mut smbd = Smbd {
            session: None,
            server,
            address: SocketAddr::new(self.addresses[0], port),
            namespace: self.namespace,
            logins: self.logins,
            unix,
            shares: self.shares,
            folder,
            _port: reserved,
        };
        smbd.restart()?;
        Ok(smbd)
    }
}

/// The folder with what smbd wants in it, and a port if none was asked for.
fn prepare(parent: &Path, port: Option<u16>) -> Result<(tempfile::TempDir, Option<PortLock>), PeerError> {
    let made = || -> std::io::Result<tempfile::TempDir> {
        let folder = tempfile::Builder::new()
            .prefix("ropeway-smbd-")
            .tempdir_in(parent)?;
        // Users that act as themselves have to get in.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        for name in conf::FOLDERS {
            fs::create_dir(folder.path().join(name))?;
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755))?;
        }
        fs::set_permissions(folder.path().join("private"), fs::Permissions::from_mode(0o700))?;
        Ok(folder)
    };
    let folder = made().map_err(|error| PeerError::failed("cannot make a folder for smbd", error))?;
    let reserved = match port {
        Some(_) => None,
        None => Some(PortLock::take()?),
    };
    Ok((folder, reserved))
}

fn write(path: &Path, text: &str) -> Result<(), PeerError> {
    fs::write(path, text)
        .map_err(|error| PeerError::failed(format_args!("cannot write {}", path.display()), error))
}

/// A running smbd; ended with all its processes, and its folder removed, when dropped.
#[derive(Debug)]
pub struct Smbd {
    // Ended before the folder goes and the port is free again.
    session: Option<Session>,
    server: PathBuf,
    address: SocketAddr,
    namespace: Option<PathBuf>,
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
        SmbdBuilder {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            port: None,
            namespace: None,
            parent: None,
            dialects: Dialect::Smb202..=Dialect::Smb311,
            signing: Signing::default(),
            encryption: Encryption::default(),
            multichannel: true,
            durable_handles: true,
            case_sensitive: false,
            guest: false,
            log_level: 1,
            logins: Vec::new(),
            shares: Vec::new(),
            options: Vec::new(),
        }
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

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
