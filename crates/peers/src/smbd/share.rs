//! Shares of a private smbd.

use std::path::{Path, PathBuf};

use super::Encryption;
use super::conf::yes;

/// A share; writable and listed unless told otherwise. Files belong to the user that smbd runs as.
#[derive(Clone, Debug)]
pub struct Share {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
    pub(super) hidden: bool,
    pub(super) force_user: bool,
    pub(super) modules: Vec<&'static str>,
    pub(super) options: Vec<(String, String)>,
}

impl Share {
    /// A folder under a name.
    #[must_use]
    pub fn new(name: &str, path: &Path) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            read_only: false,
            hidden: false,
            force_user: true,
            modules: Vec::new(),
            options: Vec::new(),
        }
    }

    /// Nobody may write.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Not among the listed shares.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Users act as the unix accounts that they are mapped to (`daemon`, `bin`, …), not as smbd's own.
    #[must_use]
    pub fn as_themselves(mut self) -> Self {
        self.force_user = false;
        self
    }

    /// Users without an account may come in; needs [`SmbdBuilder::guest`](super::SmbdBuilder::guest) too.
    #[must_use]
    pub fn guest(self) -> Self {
        self.option("guest ok", "yes")
    }

    /// Encryption of this share alone.
    #[must_use]
    pub fn encryption(self, encryption: Encryption) -> Self {
        self.option("server smb encrypt", encryption.name())
    }

    /// Whether hidden, system and the other DOS attributes, and the time of creation, are kept in xattrs (samba's
    /// default is that they are).
    #[must_use]
    pub fn dos_attributes(self, kept: bool) -> Self {
        self.option("store dos attributes", yes(kept))
    }

    /// Whether there are extended attributes (samba's default is that there are).
    #[must_use]
    pub fn ea_support(self, there: bool) -> Self {
        self.option("ea support", yes(there))
    }

    /// Alternate data streams, in xattrs.
    #[must_use]
    pub fn streams(self) -> Self {
        self.module("streams_xattr")
    }

    /// Security descriptors as they were set, in xattrs (`security.NTACL`: needs root).
    #[must_use]
    pub fn acls(self) -> Self {
        self.module("acl_xattr")
    }

    /// Snapshots: folders `.snapshots/@GMT-YYYY.MM.DD-HH.MM.SS` in the share appear as previous versions.
    #[must_use]
    pub fn snapshots(self) -> Self {
        // The folder of snapshots is looked for at the mount point, unless told that it is here.
        let here = self.path.display().to_string();
        self.module("shadow_copy2")
            .option("shadow:mountpoint", &here)
            .option("shadow:snapdir", ".snapshots")
            .option("shadow:format", "@GMT-%Y.%m.%d-%H.%M.%S")
            .option("shadow:sort", "desc")
    }

    /// Links made by [`Smbd::dfs_link`](super::Smbd::dfs_link) lead to other shares.
    #[must_use]
    pub fn dfs_root(self) -> Self {
        self.option("msdfs root", "yes")
    }

    /// The whole share leads to another one, as `\\server\share`.
    #[must_use]
    pub fn dfs_proxy(self, target: &str) -> Self {
        self.option("msdfs root", "yes").option("msdfs proxy", target)
    }

    /// Whether names that differ in case are different.
    #[must_use]
    pub fn case_sensitive(self, sensitive: bool) -> Self {
        self.option("case sensitive", yes(sensitive))
    }

    /// A further VFS module.
    #[must_use]
    pub fn module(mut self, name: &'static str) -> Self {
        self.modules.push(name);
        self
    }

    /// Any line of the share's section.
    #[must_use]
    pub fn option(mut self, key: &str, value: &str) -> Self {
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }
}
