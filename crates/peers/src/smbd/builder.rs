//! Settings of a private smbd, and its start.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Smbd;
use super::accounts::{self, Account, Login};
use super::conf::{self, Dialect, Encryption, Signing};
use super::share::Share;
use crate::error::write;
use crate::port::PortLock;
use crate::session::{is_root, require};
use crate::{Kdc, PeerError};

/// Settings of a private smbd; see [`Smbd::builder`].
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
pub struct SmbdBuilder {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: Option<u16>,
    pub(super) namespace: Option<PathBuf>,
    pub(super) parent: Option<PathBuf>,
    pub(super) dialects: RangeInclusive<Dialect>,
    pub(super) signing: Signing,
    pub(super) encryption: Encryption,
    pub(super) multichannel: bool,
    pub(super) durable_handles: bool,
    pub(super) case_sensitive: bool,
    pub(super) guest: bool,
    pub(super) log_level: u8,
    pub(super) logins: Vec<Login>,
    pub(super) shares: Vec<Share>,
    pub(super) options: Vec<(String, String)>,
    pub(super) environment: Vec<(&'static str, PathBuf)>,
}

impl SmbdBuilder {
    pub(super) fn new() -> Self {
        Self {
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
            environment: Vec::new(),
        }
    }

    /// Sets the lowest and highest dialect.
    pub fn dialects(mut self, dialects: RangeInclusive<Dialect>) -> Self {
        self.dialects = dialects;
        self
    }

    /// Sets `server signing`.
    pub fn signing(mut self, signing: Signing) -> Self {
        self.signing = signing;
        self
    }

    /// Sets `server smb encrypt`.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
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
    pub fn multichannel(mut self, offered: bool) -> Self {
        self.multichannel = offered;
        self
    }

    /// Sets whether durable handles are granted (on by default; samba's own settings keep them off).
    pub fn durable_handles(mut self, granted: bool) -> Self {
        self.durable_handles = granted;
        self
    }

    /// Sets whether names are case-sensitive (off by default).
    pub fn case_sensitive(mut self, sensitive: bool) -> Self {
        self.case_sensitive = sensitive;
        self
    }

    /// Sets the largest READ, WRITE and other payload, in bytes.
    pub fn sizes_max(self, read: u32, write: u32, transact: u32) -> Self {
        self.option("smb2 max read", &read.to_string())
            .option("smb2 max write", &write.to_string())
            .option("smb2 max trans", &transact.to_string())
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
    pub fn guest(mut self) -> Self {
        self.guest = true;
        self
    }

    /// Adds a share.
    pub fn share(mut self, share: Share) -> Self {
        self.shares.push(share);
        self
    }

    /// Also listens on ::1.
    pub fn ipv6(mut self) -> Self {
        self.addresses.push(Ipv6Addr::LOCALHOST.into());
        self
    }

    /// Sets the port instead of reserving a free one. The caller makes sure that it is free.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Runs in another network namespace and listens at an address there (needs root).
    pub fn in_namespace(mut self, namespace: &Path, address: IpAddr) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.addresses = vec![address];
        self
    }

    /// Sets the parent of the instance's own folder; the system's folder for temporary files by
    /// default. The path must be short, since sockets lie below it.
    pub fn below(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Sets `log level`, 1 by default.
    pub fn log_level(mut self, level: u8) -> Self {
        self.log_level = level;
        self
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

    /// Adds a line to the global section.
    pub fn option(mut self, key: &str, value: &str) -> Self {
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
        if self.namespace.is_some() && !is_root() {
            return Err(PeerError::needs_root(
                "smbd cannot be put into a network namespace",
            ));
        }
        let unix = accounts::unix_accounts(self.logins.len())?;
        let parent = self.parent.clone().unwrap_or_else(std::env::temp_dir);
        let folder = prepare(&parent)?;
        let reserved = match self.port {
            Some(_) => None,
            None => Some(PortLock::take(self.namespace.is_some())?),
        };
        let port = reserved
            .as_ref()
            .map_or(self.port.unwrap_or_default(), PortLock::port);
        let path = folder.path();
        let configuration = path.join("smb.conf");
        // An ordinary user's smbd cannot act as another user.
        let first = unix.first().map(String::as_str);
        let forced = first.filter(|_| accounts::may_switch_users());
        write(&configuration, &conf::text(&self, path, port, forced))?;
        write(&path.join("users.map"), &accounts::map(&self.logins, &unix))?;
        accounts::create(&configuration, &self.logins, &unix)?;
        let mut smbd = Smbd {
            session: None,
            server,
            address: SocketAddr::new(self.addresses[0], port),
            namespace: self.namespace,
            environment: self.environment,
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

/// Creates the folder with the subfolders that smbd expects.
fn prepare(parent: &Path) -> Result<tempfile::TempDir, PeerError> {
    let made = || -> std::io::Result<tempfile::TempDir> {
        let folder = tempfile::Builder::new()
            .prefix("ropeway-smbd-")
            .tempdir_in(parent)?;
        // Users that act as themselves must be able to enter.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        for name in conf::FOLDERS {
            fs::create_dir(folder.path().join(name))?;
            fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o755))?;
        }
        fs::set_permissions(folder.path().join("private"), fs::Permissions::from_mode(0o700))?;
        Ok(folder)
    };
    made().map_err(|error| PeerError::failed("cannot make a folder for smbd", error))
}
