//! `smb.conf` of a private instance. All of smbd's state lies in the instance's own folder.

use std::fmt::Write as _;
use std::path::Path;

use super::SmbdBuilder;
use super::share::Share;

/// A protocol version, as `server min protocol` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// SMB 2.0.2.
    Smb202,
    /// SMB 2.1.
    Smb210,
    /// SMB 3.0.
    Smb300,
    /// SMB 3.0.2.
    Smb302,
    /// SMB 3.1.1.
    Smb311,
}

impl Dialect {
    /// All dialects, oldest first.
    pub const ALL: [Self; 5] = [
        Self::Smb202,
        Self::Smb210,
        Self::Smb300,
        Self::Smb302,
        Self::Smb311,
    ];

    /// Name in `smb.conf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smb202 => "SMB2_02",
            Self::Smb210 => "SMB2_10",
            Self::Smb300 => "SMB3_00",
            Self::Smb302 => "SMB3_02",
            Self::Smb311 => "SMB3_11",
        }
    }
}

/// `server signing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signing {
    /// Not offered. SMB 2 clients may sign nevertheless.
    Disabled,
    /// On the client's demand: samba's default for SMB 2.
    #[default]
    Auto,
    /// Required.
    Mandatory,
}

/// `server smb encrypt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// Not offered.
    Off,
    /// On the client's demand: samba's default.
    #[default]
    IfAsked,
    /// For every client that supports it.
    Desired,
    /// Required: other clients are refused.
    Required,
}

impl Signing {
    /// Name in `smb.conf`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Auto => "auto",
            Self::Mandatory => "mandatory",
        }
    }
}

impl Encryption {
    /// Name in `smb.conf`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::IfAsked => "default",
            Self::Desired => "desired",
            Self::Required => "required",
        }
    }
}

/// Workgroup. To samba it is also the short name of the Kerberos realm.
pub(super) const WORKGROUP: &str = "ROPEWAY";

/// Subfolders that smbd expects.
pub(super) const FOLDERS: [&str; 7] = ["lock", "state", "cache", "pid", "private", "ncalrpc", "dns"];

/// Returns the whole file. `user` is the `force user` of shares that do not say otherwise.
pub(super) fn text(builder: &SmbdBuilder, folder: &Path, port: u16, user: Option<&str>) -> String {
    let mut text = String::from("[global]\n");
    let at = |name: &str| folder.join(name).display().to_string();
    let mut set = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} = {value}");
    };
    set("server role", "standalone server");
    set("workgroup", WORKGROUP);
    set("netbios name", "PEER");
    set("disable netbios", "yes");
    set("smb ports", &port.to_string());
    if builder.place.namespace.is_none() {
        let listen: Vec<String> = builder.place.addresses.iter().map(ToString::to_string).collect();
        set("interfaces", &listen.join(" "));
        set("bind interfaces only", "yes");
    }
    // In its own namespace it listens everywhere: samba does not count a TUN device as an interface.
    for (key, name) in [
        ("lock directory", "lock"),
        ("state directory", "state"),
        ("cache directory", "cache"),
        ("pid directory", "pid"),
        ("private dir", "private"),
        ("ncalrpc dir", "ncalrpc"),
        ("binddns dir", "dns"),
        ("log file", "log"),
        ("username map", "users.map"),
    ] {
        set(key, &at(name));
    }
    set("passdb backend", &format!("tdbsam:{}", at("private/passdb.tdb")));
    set("logging", "file");
    set("max log size", "0");
    set("usershare max shares", "0");
    set("load printers", "no");
    set("printing", "bsd");
    set("printcap name", "/dev/null");
    set("disable spoolss", "yes");
    set("host msdfs", "yes");
    if builder.durable_handles {
        // Each of the three shows locks to other programs, and switches durable handles off.
        set("kernel oplocks", "no");
        set("kernel share modes", "no");
        set("posix locking", "no");
    }
    for (key, value) in &builder.options {
        set(key, value);
    }
    for share in &builder.shares {
        section(&mut text, share, user);
    }
    text
}

fn section(text: &mut String, share: &Share, user: Option<&str>) {
    let _ = writeln!(text, "\n[{}]\npath = {}", share.name, share.path.display());
    let mut set = |key: &str, value: &str| {
        let _ = writeln!(text, "{key} = {value}");
    };
    set("read only", yes(share.read_only));
    set("browseable", yes(!share.hidden));
    if let Some(user) = user.filter(|_| share.force_user) {
        set("force user", user);
    }
    if !share.modules.is_empty() {
        set("vfs objects", &share.modules.join(" "));
    }
    for (key, value) in &share.options {
        set(key, value);
    }
}

pub(super) fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Smbd;

    #[test]
    fn the_file_holds_every_setting_of_the_builder() {
        let builder = Smbd::builder()
            .dialects(Dialect::Smb300..=Dialect::Smb302)
            .signing(Signing::Mandatory)
            .encryption(Encryption::Required)
            .option("smb2 max read", "65536")
            .share(
                Share::new("a b", Path::new("/x y"))
                    .read_only()
                    .hidden()
                    .snapshots(),
            )
            .share(Share::new("plain", Path::new("/p")).as_themselves());
        let text = text(&builder, Path::new("/f"), 20_445, Some("root"));
        for line in [
            "smb ports = 20445",
            "interfaces = 127.0.0.1",
            "server min protocol = SMB3_00",
            "server max protocol = SMB3_02",
            "server signing = mandatory",
            "server smb encrypt = required",
            "passdb backend = tdbsam:/f/private/passdb.tdb",
            "smb2 max read = 65536",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        let (_, shares) = text.split_once("\n[a b]\n").unwrap();
        let (first, second) = shares.split_once("\n[plain]\n").unwrap();
        for line in [
            "path = /x y",
            "read only = yes",
            "browseable = no",
            "force user = root",
            "vfs objects = shadow_copy2",
        ] {
            assert!(first.lines().any(|found| found == line), "{line} in\n{first}");
        }
        assert!(!second.contains("force user") && second.contains("read only = no"));
    }
}
