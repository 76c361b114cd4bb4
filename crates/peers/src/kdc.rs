//! MIT's Kerberos server as a private instance: a realm of its own, its users, its services, and tickets.
//!
//! Its programs look for their files where `KRB5_CONFIG` and `KRB5_KDC_PROFILE` say, so nothing of the system's realm is
//! read or written.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::PeerError;
use crate::port::PortLock;
use crate::process::{Session, require};

/// How long krb5kdc may take to answer. It takes milliseconds; two cores may be shared with a build.
const START_MAX: Duration = Duration::from_secs(30);
/// The realm; `.test` belongs to nobody (RFC 6761 6.2).
const REALM: &str = "ROPEWAY.TEST";

/// What a private KDC should be; see [`Kdc::builder`].
#[derive(Clone, Debug)]
pub struct KdcBuilder {
    users: Vec<(String, String)>,
    services: Vec<String>,
    enctype: String,
    clock_skew: Duration,
}

/// A running KDC; ended, and its folder removed, when dropped.
#[derive(Debug)]
pub struct Kdc {
    _session: Session,
    folder: tempfile::TempDir,
    _port: PortLock,
}

impl KdcBuilder {
    /// A user with a password.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// A service, e.g. `cifs/localhost`, whose key goes to the keytab.
    #[must_use]
    pub fn service(mut self, name: &str) -> Self {
        self.services.push(name.to_owned());
        self
    }

    /// What all keys are made for (`aes256-cts-hmac-sha1-96` by default).
    #[must_use]
    pub fn enctype(mut self, name: &str) -> Self {
        self.enctype = name.to_owned();
        self
    }

    /// By how much clocks may differ (five minutes by default): a ticket is good for so much longer than it says.
    #[must_use]
    pub fn clock_skew(mut self, skew: Duration) -> Self {
        self.clock_skew = skew;
        self
    }

    /// Starts it; it answers when this returns.
    ///
    /// # Errors
    /// If MIT's Kerberos is missing, or it does not start.
    pub fn start(self) -> Result<Kdc, PeerError> {
        let server = require("krb5kdc", "krb5-kdc")?;
        require("kadmin.local", "krb5-admin-server")?;
        require("kinit", "krb5-user")?;
        let port = PortLock::take()?;
        let folder = tempfile::Builder::new().prefix("ropeway-kdc-").tempdir();
        let folder = folder.map_err(|error| PeerError::failed("cannot make a folder for the KDC", error))?;
        let path = folder.path();
        // smbd reads the keytab as whoever it runs as, and clients of other users the configuration.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .map_err(|error| PeerError::failed("cannot open the KDC's folder", error))?;
        write(&path.join("krb5.conf"), &self.client_configuration(port.port()))?;
        write(
            &path.join("kdc.conf"),
            &self.server_configuration(path, port.port()),
        )?;
        let environment = environment(path);
        let create = ["create", "-s", "-r", REALM];
        feed("kdb5_util", "krb5-kdc", &create, &environment, "master\nmaster\n")?;
        let mut commands = String::new();
        for (name, password) in &self.users {
            // As its shell quotes.
            let password = password.replace('"', "\"\"");
            commands.push_str(&format!("addprinc -pw \"{password}\" {name}\n"));
        }
        for name in &self.services {
            commands.push_str(&format!("addprinc -randkey {name}\nktadd -k keytab {name}\n"));
        }
        feed(
            "kadmin.local",
            "krb5-admin-server",
            &["-r", REALM],
            &environment,
            &commands,
        )?;
        let log = path.join("out");
        let mut session = Session::start(
            &server,
            &["-n", "-r", REALM],
            &path.join("kdc.conf"),
            &environment,
            None,
            &log,
        )?;
        wait(&mut session, port.port(), &log)?;
        Ok(Kdc {
            _session: session,
            folder,
            _port: port,
        })
    }

    /// `krb5.conf`: no DNS, and hosts are called what the user calls them.
    fn client_configuration(&self, port: u16) -> String {
        let skew = self.clock_skew.as_secs();
        format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n \
             dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n clockskew = {skew}\n \
             permitted_enctypes = {enctype}\n\
             [realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n",
            enctype = self.enctype,
        )
    }

    /// `kdc.conf`. Tickets have no authorization data (PAC), which samba could only check with a domain behind it.
    fn server_configuration(&self, folder: &Path, port: u16) -> String {
        let at = |name: &str| folder.join(name).display().to_string();
        format!(
            "[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n\
             [realms]\n {REALM} = {{\n  database_name = {}\n  key_stash_file = {}\n  acl_file = {}\n  \
             supported_enctypes = {}:normal\n  disable_pac = true\n }}\n\
             [logging]\n kdc = FILE:{}\n",
            at("principal"),
            at("stash"),
            at("acl"),
            self.enctype,
            at("log"),
        )
    }
}

impl Kdc {
    /// One on 127.0.0.1 with a free port, without users and services.
    #[must_use]
    pub fn builder() -> KdcBuilder {
        KdcBuilder {
            users: Vec::new(),
            services: Vec::new(),
            enctype: "aes256-cts-hmac-sha1-96".to_owned(),
            clock_skew: Duration::from_secs(300),
        }
    }

    /// Its realm.
    #[must_use]
    pub fn realm(&self) -> &'static str {
        REALM
    }

    /// The keys of its services.
    #[must_use]
    pub fn keytab(&self) -> PathBuf {
        self.folder.path().join("keytab")
    }

    /// What a program of the realm needs in its environment; a client also needs `KRB5CCNAME`.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        environment(self.folder.path())
    }

    /// Puts a user's ticket-granting ticket of that lifetime into a cache (`kinit`): a file that is made anew.
    ///
    /// # Errors
    /// If the KDC refuses.
    pub fn ticket(
        &self,
        user: &str,
        password: &str,
        lifetime: Duration,
        cache: &Path,
    ) -> Result<(), PeerError> {
        let cache = format!("FILE:{}", cache.display());
        let lifetime = format!("{}s", lifetime.as_secs());
        let arguments = ["-c", &cache, "-l", &lifetime, user];
        feed(
            "kinit",
            "krb5-user",
            &arguments,
            &self.environment(),
            &format!("{password}\n"),
        )
    }

    /// What it logged so far: each ticket that it gave, and to whom.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

fn environment(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("KRB5_CONFIG", folder.join("krb5.conf")),
        ("KRB5_KDC_PROFILE", folder.join("kdc.conf")),
        // Replays are remembered in memory of the private instance only.
        ("KRB5RCACHENAME", PathBuf::from("none:")),
    ]
}

fn wait(session: &mut Session, port: u16, log: &Path) -> Result<(), PeerError> {
    let said = || fs::read_to_string(log).unwrap_or_default();
    let end = Instant::now() + START_MAX;
    loop {
        if let Some(status) = session.ended() {
            return Err(PeerError::failed(
                format_args!("krb5kdc ended ({status})"),
                said(),
            ));
        }
        if TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(PeerError::failed("krb5kdc does not answer", said()));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Runs one of Kerberos's tools, in the KDC's folder, with words at its standard input: a password is no argument.
fn feed(
    tool: &str,
    package: &str,
    arguments: &[&str],
    environment: &[(&str, PathBuf)],
    input: &str,
) -> Result<(), PeerError> {
    let mut command = Command::new(require(tool, package)?);
    command
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (*name, value)));
    if let Some(folder) = environment.first().and_then(|(_, file)| file.parent()) {
        command.current_dir(folder);
    }
    command
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = || -> std::io::Result<_> {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A tool that fails early does not read it.
            let _ = stdin.write_all(input.as_bytes());
        }
        child.wait_with_output()
    };
    let output = run().map_err(|error| PeerError::failed(tool, error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // kadmin.local ends well whatever became of its commands, and says what failed.
    if output.status.success() && !said.contains("while ") && !said.contains("usage:") {
        return Ok(());
    }
    Err(PeerError::failed(tool, said.trim()))
}

fn write(path: &Path, text: &str) -> Result<(), PeerError> {
    fs::write(path, text)
        .map_err(|error| PeerError::failed(format_args!("cannot write {}", path.display()), error))
}
