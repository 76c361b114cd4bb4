//! Settings of a private smbd, and its start.

use std::fs;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Smbd;
use super::accounts::{self, Account, Login};
use super::conf::{self, Dialect, Encryption, Signing, yes};
use super::ready;
use super::share::Share;
use crate::error::write;
use crate::instance::{Instance, Launch, Place, place_methods};
use crate::port::PortLock;
use crate::procfs::unprivileged;
use crate::session::{EndsWith, require};
use crate::{Kdc, PeerError};

/// Settings of a private smbd; see [`Smbd::builder`].
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
pub struct SmbdBuilder {
    pub(super) place: Place,
    pub(super) port: Option<u16>,
    pub(super) durable_handles: bool,
    pub(super) logins: Vec<Login>,
    pub(super) shares: Vec<Share>,
    pub(super) options: Vec<(String, String)>,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
}

impl SmbdBuilder {
    pub(super) fn new() -> Self {
        let builder = Self {
            place: Place::default(),
            port: None,
            durable_handles: true,
            logins: Vec::new(),
            shares: Vec::new(),
            options: Vec::new(),
            environment: Vec::new(),
        };
        builder
            .dialects(Dialect::Smb202..=Dialect::Smb311)
            .signing(Signing::default())
            .encryption(Encryption::default())
            .multichannel(true)
            .case_sensitive(false)
            .log_level(1)
    }

    /// Sets the lowest and highest dialect.
    pub fn dialects(self, dialects: RangeInclusive<Dialect>) -> Self {
        self.option("server min protocol", dialects.start().name())
            .option("server max protocol", dialects.end().name())
    }

    /// Also speaks SMB 1 (`server min protocol = NT1`).
    pub fn smb1(self) -> Self {
        self.option("server min protocol", "NT1")
    }

    /// Sets `server signing`.
    pub fn signing(self, signing: Signing) -> Self {
        self.option("server signing", signing.name())
    }

    /// Sets `server smb encrypt`.
    pub fn encryption(self, encryption: Encryption) -> Self {
        self.option("server smb encrypt", encryption.name())
    }

    /// Sets the ciphers in the server's order, by samba's names (`AES-128-GCM`, …).
    pub fn ciphers(self, names: &[&str]) -> Self {
        self.option("server smb3 encryption algorithms", &names.join(" "))
    }

    /// Sets the signing algorithms in the server's order, by samba's names (`AES-128-GMAC`,
    /// `AES-128-CMAC`, `HMAC-SHA256`).
    pub fn signing_algorithms(self, names: &[&str]) -> Self {
        self.option("server smb3 signing algorithms", &names.join(" "))
    }

    /// Sets `server multi channel support` (on by default, as in samba).
    pub fn multichannel(self, offered: bool) -> Self {
        self.option("server multi channel support", yes(offered))
    }

    /// Sets whether durable handles are granted (on by default; samba's own settings keep them off).
    pub fn durable_handles(mut self, granted: bool) -> Self {
        self.durable_handles = granted;
        self
    }

    /// Sets whether names are case-sensitive (off by default).
    pub fn case_sensitive(self, sensitive: bool) -> Self {
        self.option("case sensitive", yes(sensitive))
    }

    /// Sets the credit limit of a connection.
    pub fn credits_max(self, credits: u16) -> Self {
        self.option("smb2 max credits", &credits.to_string())
    }

    /// Adds a user. The first acts as the account that smbd runs as; without root it is the only one.
    pub fn user(self, name: &str, password: &str) -> Self {
        self.user_with(name, password, Account::Good)
    }

    /// Adds a user whose account is in a given state.
    pub fn user_with(mut self, name: &str, password: &str, account: Account) -> Self {
        self.logins.push(Login::new(name, password, account));
        self
    }

    /// Maps unknown users to guests.
    pub fn guest(self) -> Self {
        self.option("map to guest", "Bad User")
            .option("guest account", "nobody")
    }

    /// Adds a share.
    pub fn share(mut self, share: Share) -> Self {
        self.shares.push(share);
        self
    }

    /// Also listens on ::1.
    pub fn ipv6(mut self) -> Self {
        self.place.addresses.push(Ipv6Addr::LOCALHOST.into());
        self
    }

    /// Sets the port instead of reserving a free one. The caller makes sure that it is free.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    place_methods!();

    /// Sets `log level`, 1 by default.
    pub fn log_level(self, level: u8) -> Self {
        self.option("log level", &level.to_string())
    }

    /// Accepts tickets of a realm, as logins of the users with the same names. Without an Active
    /// Directory, samba maps a ticket without authorization data to a local account.
    pub fn kerberos(mut self, kdc: &Kdc) -> Self {
        self.environment = kdc.environment();
        let keytab = format!("FILE:{}", kdc.keytab().display());
        self.option("realm", kdc.realm())
            .option("kerberos method", "dedicated keytab")
            .option("dedicated keytab file", &keytab)
            .option("create krb5 conf", "no")
    }

    /// Sets a line of the global section.
    pub fn option(mut self, key: &str, value: &str) -> Self {
        self.options.retain(|(known, _)| known != key);
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Starts smbd and waits until it answers.
    ///
    /// # Errors
    /// samba is not installed, or smbd does not start.
    pub fn start(self) -> Result<Smbd, PeerError> {
        let server = require("smbd", "samba")?;
        require("pdbedit", "samba-common-bin")?;
        let unix = accounts::unix_accounts(self.logins.len())?;
        let folder = self.place.folder("smbd")?;
        let path = folder.path();
        prepare(path).map_err(|error| PeerError::failed("cannot make a folder for smbd", error))?;
        let reserved = match self.port {
            Some(_) => None,
            None => Some(self.place.port()?),
        };
        let port = reserved
            .as_ref()
            .map_or(self.port.unwrap_or_default(), PortLock::port);
        let configuration = path.join("smb.conf");
        // An ordinary user's smbd cannot act as another user.
        let first = unix.first().map(String::as_str);
        let forced = first.filter(|_| accounts::may_switch_users());
        write(&configuration, &conf::text(&self, path, port, forced))?;
        write(&path.join("users.map"), &accounts::map(&self.logins, &unix))?;
        accounts::create(&configuration, &self.logins, &unix)?;
        let mut command = unprivileged(&server, path);
        command
            .args(["-F", "--no-process-group", "-s"])
            .arg(&configuration);
        // For log lines before it has read the configuration.
        command.arg("-l").arg(path);
        command.envs(self.environment);
        let launch = Launch {
            name: "smbd",
            command,
            ends_with: EndsWith::Input,
            marker: format!("--configfile={}", configuration.display()).into(),
            out: path.join("out"),
            answers: ready::answers,
        };
        Ok(Smbd {
            instance: Instance::start(launch, self.place, port, reserved, folder)?,
            logins: self.logins,
            unix,
            shares: self.shares,
        })
    }
}

/// Creates the subfolders that smbd expects.
fn prepare(folder: &Path) -> std::io::Result<()> {
    // Users that act as themselves must be able to enter.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for name in conf::FOLDERS {
        fs::create_dir(folder.join(name))?;
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(folder.join("private"), fs::Permissions::from_mode(0o700))
}
