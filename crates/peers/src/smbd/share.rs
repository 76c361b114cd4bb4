//! Shares of a private smbd.

use std::path::{Path, PathBuf};

use super::Encryption;
use super::conf::yes;

/// A share; writable and listed by default. Its files belong to the user that smbd runs as.
#[derive(Clone, Debug)]
#[must_use = "it changes nothing by itself"]
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
    /// Returns a share of a local folder.
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

    /// Refuses writes.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Leaves the share out of listings.
    pub fn hidden(mut self) -> Self {
        self.hidden = true;
        self
    }

    /// Lets users act as their own unix accounts (`daemon`, `bin`, …), not as smbd's.
    pub fn as_themselves(mut self) -> Self {
        self.force_user = false;
        self
    }

    /// Admits guests; needs [`SmbdBuilder::guest`](super::SmbdBuilder::guest) too.
    pub fn guest(self) -> Self {
        self.option("guest ok", "yes")
    }

    /// Sets the encryption of this share alone.
    pub fn encryption(self, encryption: Encryption) -> Self {
        self.option("server smb encrypt", encryption.name())
    }

    /// Sets whether DOS attributes (hidden, system, …) and creation times are kept in extended
    /// attributes (on by default, as in samba).
    pub fn dos_attributes(self, kept: bool) -> Self {
        self.option("store dos attributes", yes(kept))
    }

    /// Sets whether extended attributes are offered (on by default, as in samba).
    pub fn ea_support(self, there: bool) -> Self {
        self.option("ea support", yes(there))
    }

    /// Keeps alternate data streams in extended attributes.
    pub fn streams(self) -> Self {
        self.module("streams_xattr")
    }

    /// Keeps security descriptors as set, in extended attributes (`security.NTACL`: needs root).
    pub fn acls(self) -> Self {
        self.module("acl_xattr")
    }

    /// Offers folders `.snapshots/@GMT-YYYY.MM.DD-HH.MM.SS` of the share as previous versions.
    pub fn snapshots(self) -> Self {
        // By default samba looks for the snapshots at the mount point.
        let here = self.path.display().to_string();
        self.module("shadow_copy2")
            .option("shadow:mountpoint", &here)
            .option("shadow:snapdir", ".snapshots")
            .option("shadow:format", "@GMT-%Y.%m.%d-%H.%M.%S")
            .option("shadow:sort", "desc")
    }

    /// Follows links of [`Smbd::dfs_link`](super::Smbd::dfs_link) to other shares.
    pub fn dfs_root(self) -> Self {
        self.option("msdfs root", "yes")
    }

    /// Leads the whole share to another one, `\\server\share`.
    pub fn dfs_proxy(self, target: &str) -> Self {
        self.option("msdfs root", "yes").option("msdfs proxy", target)
    }

    /// Sets whether names are case-sensitive.
    pub fn case_sensitive(self, sensitive: bool) -> Self {
        self.option("case sensitive", yes(sensitive))
    }

    /// Adds a VFS module.
    pub fn module(mut self, name: &'static str) -> Self {
        self.modules.push(name);
        self
    }

    /// Adds a line to the share's section.
    pub fn option(mut self, key: &str, value: &str) -> Self {
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }
}
