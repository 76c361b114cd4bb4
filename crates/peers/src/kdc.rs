//! MIT's Kerberos server as a private instance: its own realm, with users, services and tickets.
//!
//! Its programs find their files by `KRB5_CONFIG` and `KRB5_KDC_PROFILE`, so they neither read nor
//! write those of the system's realm.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::PeerError;
use crate::error::write;
use crate::instance::{Instance, Launch, Place};
use crate::procfs::clean;
use crate::session::{self, require};

/// The realm; `.test` is reserved (RFC 6761, 6.2).
const REALM: &str = "ROPEWAY.TEST";

/// Settings of a private KDC; see [`Kdc::builder`].
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
pub struct KdcBuilder {
    users: Vec<(String, String)>,
    services: Vec<String>,
    enctype: String,
    clock_skew: Duration,
}

/// A running KDC; killed, and its folder removed, on drop.
#[derive(Debug)]
pub struct Kdc {
    instance: Instance,
}

impl KdcBuilder {
    /// Adds a user.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// Adds a service, such as `cifs/localhost`, and puts its key into the keytab.
    pub fn service(mut self, name: &str) -> Self {
        self.services.push(name.to_owned());
        self
    }

    /// Sets the encryption type of all keys (`aes256-cts-hmac-sha1-96` by default).
    pub fn enctype(mut self, name: &str) -> Self {
        self.enctype = name.to_owned();
        self
    }

    /// Sets the accepted clock skew (five minutes by default). A ticket stays valid for that much
    /// longer than its lifetime.
    pub fn clock_skew(mut self, skew: Duration) -> Self {
        self.clock_skew = skew;
        self
    }

    /// Starts the KDC and waits until it answers.
    ///
    /// # Errors
    /// MIT's Kerberos is not installed, or the KDC does not start.
    pub fn start(self) -> Result<Kdc, PeerError> {
        let server = require("krb5kdc", "krb5-kdc")?;
        require("kadmin.local", "krb5-admin-server")?;
        require("kinit", "krb5-user")?;
        let place = Place::default();
        let (folder, port) = (place.folder("kdc")?, place.port()?);
        let path = folder.path();
        // smbd reads the keytab as the user it runs as; clients of other users read krb5.conf.
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
            // kadmin.local quotes so.
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
        let mut command = clean(server, path);
        command.args(["-n", "-r", REALM]).envs(environment);
        let answers = |address| TcpStream::connect(address).map(drop);
        let launch = Launch::guarded("krb5kdc", command, &folder, answers);
        let instance = Instance::start(launch, place, port.port(), Some(port), folder)?;
        Ok(Kdc { instance })
    }

    /// Returns `krb5.conf`: without DNS, and with the host names that the user gives.
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

    /// Returns `kdc.conf`. Tickets carry no authorization data (PAC): samba could check it only in
    /// a domain.
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
    /// Returns the settings of a KDC on 127.0.0.1 with a free port, without users and services.
    pub fn builder() -> KdcBuilder {
        KdcBuilder {
            users: Vec::new(),
            services: Vec::new(),
            enctype: "aes256-cts-hmac-sha1-96".to_owned(),
            clock_skew: Duration::from_secs(300),
        }
    }

    /// Name of the realm.
    pub fn realm(&self) -> &'static str {
        REALM
    }

    /// Path of the keytab with the keys of all services.
    pub fn keytab(&self) -> PathBuf {
        self.instance.folder().join("keytab")
    }

    /// Environment of programs in the realm. A client also needs `KRB5CCNAME`.
    pub fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        environment(self.instance.folder())
    }

    /// Writes a user's ticket-granting ticket of that lifetime to a new cache file (`kinit`).
    ///
    /// # Errors
    /// The KDC refuses.
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

    /// Everything it has logged so far: each ticket that it granted, and its user.
    pub fn log(&self) -> String {
        self.instance.log()
    }
}

fn environment(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("KRB5_CONFIG", folder.join("krb5.conf")),
        ("KRB5_KDC_PROFILE", folder.join("kdc.conf")),
        // No replay cache in the system's folder.
        ("KRB5RCACHENAME", PathBuf::from("none:")),
    ]
}

/// Runs one of Kerberos's tools in the KDC's folder. Passwords go to its standard input, not to its
/// arguments.
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
    command.env("LC_ALL", "C.UTF-8");
    let output = session::feed(&mut command, input).map_err(|error| PeerError::failed(tool, error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // kadmin.local exits with 0 even when a command failed, and prints the failure.
    if output.status.success() && !said.contains("while ") && !said.contains("usage:") {
        return Ok(());
    }
    Err(PeerError::failed(tool, said.trim()))
}
