//! Metadata of a node: its attributes, which of them to preserve, and which were lost.

use crate::Name;

/// Nanoseconds since 1970-01-01 00:00 UTC; negative before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i128);

impl Timestamp {
    /// No time: the tree does not know it. It compares equal to no time and is never set. In
    /// nanoseconds it is a moment of 1677, outside what devices keep, so any 64-bit field can store
    /// it.
    pub const UNKNOWN: Self = Self(i64::MIN as i128);

    /// Whether this is a time.
    pub fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }

    /// Returns the time, unless it is unknown.
    pub fn known(self) -> Option<Self> {
        Some(self).filter(|time| time.is_known())
    }

    /// Converts from seconds and nanoseconds as in `struct timespec`.
    pub fn from_unix(seconds: i64, nanoseconds: u32) -> Self {
        Self(i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds))
    }

    /// Converts to seconds (rounded down) and nanoseconds in 0..1e9.
    pub fn to_unix(self) -> (i64, u32) {
        let seconds = self.0.div_euclid(1_000_000_000);
        let nanoseconds = self.0.rem_euclid(1_000_000_000);
        (
            seconds.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
            nanoseconds as u32,
        )
    }

    /// Whether both times are known and equal if each may have been rounded, up or down, to
    /// `granularity` nanoseconds.
    pub fn equal_within(self, other: Self, granularity: u64) -> bool {
        let is_near = (self.0 - other.0).unsigned_abs() < u128::from(granularity.max(1));
        is_near && self.is_known() && other.is_known()
    }
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket (cannot be copied).
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// Whether it is an interface to a driver of the kernel.
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// Identity of a node while it exists: volume (device number) and index (inode number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    /// Number of the volume.
    pub volume: u64,
    /// Number of the node on its volume.
    pub index: u64,
}

/// Numeric owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// Attributes of one node. Fields that a tree does not know are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Kind of the node.
    pub kind: Kind,
    /// Logical size in bytes; for a symlink, that of its target text.
    pub size: u64,
    /// Bytes allocated on the device.
    pub allocated: Option<u64>,
    /// Permission bits with set-id and sticky bits (0o7777).
    pub mode: Option<u32>,
    /// Owner and group.
    pub owner: Option<Owner>,
    /// Last change of the content; [`Timestamp::UNKNOWN`] where a server reports none.
    pub modified: Timestamp,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of content or attributes.
    pub changed: Option<Timestamp>,
    /// Creation ("birth").
    pub created: Option<Timestamp>,
    /// Identity, where stable.
    pub id: Option<FileId>,
    /// Number of hard links, 1 where unknown.
    pub links: u64,
    /// Device number (major, minor) of a device node.
    pub device: Option<(u32, u32)>,
    /// DOS attributes ([MS-FSCC] 2.6), where kept.
    pub dos_attributes: Option<u32>,
    /// Whether it has extended attributes, where a listing reports that; `Some(false)` saves
    /// reading them.
    pub has_xattrs: Option<bool>,
    /// Whether something is mounted here (statx(2), `STATX_ATTR_MOUNT_ROOT`): another volume, or a folder or file of
    /// the same one. `false` where unknown.
    pub is_mount_root: bool,
}

impl Metadata {
    /// Makes metadata of `kind` and `size` with nothing else known.
    pub fn bare(kind: Kind, size: u64, modified: Timestamp) -> Self {
        Self {
            kind,
            size,
            allocated: None,
            mode: None,
            owner: None,
            modified,
            accessed: None,
            changed: None,
            created: None,
            id: None,
            links: 1,
            device: None,
            dos_attributes: None,
            has_xattrs: None,
            is_mount_root: false,
        }
    }

    /// Whether it is a folder.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether fewer bytes are allocated than the size needs: the file has holes or is compressed.
    pub fn is_sparse(&self) -> bool {
        self.kind == Kind::File && self.allocated.is_some_and(|allocated| allocated < self.size)
    }
}

/// One entry of a listing. Reading its metadata may fail for itself.
#[derive(Debug)]
pub struct DirEntry {
    /// Its name.
    pub name: Name,
    /// Its attributes.
    pub metadata: crate::Result<Metadata>,
}

/// Extended attribute that holds a share's security descriptor (owner, group, DACL) as text
/// ([MS-DTYP] 2.5.1). An empty value means that there is one which may not be read.
pub const SDDL_XATTR: &[u8] = b"user.ropeway.sddl";

/// Prefix of the extended attributes that hold named streams.
pub const STREAM_XATTR_PREFIX: &[u8] = b"user.DosStream.";

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Full name with name space, e.g. `user.comment`, `system.posix_acl_access`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Attributes to set. They are applied in this order: owner, mode, xattrs (ACLs and capabilities
/// among them, since chown clears capabilities and set-id bits), times last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// New owner and group.
    pub owner: Option<Owner>,
    /// New permission bits.
    pub mode: Option<u32>,
    /// The complete new set of extended attributes; others are removed.
    pub xattrs: Option<Vec<Xattr>>,
    /// New access time.
    pub accessed: Option<Timestamp>,
    /// New modification time.
    pub modified: Option<Timestamp>,
    /// New creation time.
    pub created: Option<Timestamp>,
    /// New DOS attributes.
    pub dos_attributes: Option<u32>,
}

impl MetadataChange {
    /// Selects the known times of `metadata`, to restore them on a folder in which something was
    /// made or removed.
    pub fn times_of(metadata: &Metadata) -> Self {
        Self {
            accessed: metadata.accessed,
            modified: metadata.modified.known(),
            ..Self::default()
        }
    }

    /// Selects what `preserve` names of `metadata`. The caller reads `xattrs` and passes them in.
    pub fn of(metadata: &Metadata, preserve: &Preserve, xattrs: Option<Vec<Xattr>>) -> Self {
        Self {
            owner: metadata.owner.filter(|_| preserve.owner),
            mode: metadata
                .mode
                .filter(|_| preserve.mode && metadata.kind != Kind::Symlink),
            xattrs: xattrs.filter(|_| preserve.xattrs),
            accessed: metadata.accessed.filter(|_| preserve.times),
            modified: metadata.modified.known().filter(|_| preserve.times),
            created: metadata.created.filter(|_| preserve.times),
            dos_attributes: metadata.dos_attributes,
        }
    }
}

/// The attributes that a copy preserves. Hard links, holes and special files are policy of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Owner and group.
    pub owner: bool,
    /// Permission bits.
    pub mode: bool,
    /// Times.
    pub times: bool,
    /// Extended attributes, POSIX ACLs and capabilities.
    pub xattrs: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self {
            owner: true,
            mode: true,
            times: true,
            xattrs: true,
        }
    }
}

/// One attribute that the target could not keep. Losses are counted and named in the summary; they
/// are not errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// The owner could not be set (not root).
    Owner,
    /// Permission bits are not kept by the target.
    Mode,
    /// Times are not kept, or with less precision.
    Times,
    /// An extended attribute.
    Xattr,
    /// A POSIX ACL.
    Acl,
    /// A file capability.
    Capability,
    /// A hard link became a separate copy.
    HardLink,
    /// Holes were filled.
    Sparse,
    /// The creation time.
    CreatedTime,
    /// DOS attributes.
    DosAttributes,
    /// The name was mapped to one that the target can hold.
    Name,
    /// A named (alternate data) stream.
    Stream,
}

impl Loss {
    /// Returns the loss that this extended attribute stands for.
    pub fn of_xattr(name: &[u8]) -> Self {
        match name {
            SDDL_XATTR | b"system.posix_acl_access" | b"system.posix_acl_default" => Self::Acl,
            b"security.capability" => Self::Capability,
            // Samba keeps DOS attributes and the creation time there.
            b"user.DOSATTRIB" => Self::DosAttributes,
            name if name.starts_with(STREAM_XATTR_PREFIX) => Self::Stream,
            _ => Self::Xattr,
        }
    }

    /// Returns a phrase for the summary: "N PHRASE".
    pub fn describe(self) -> &'static str {
        match self {
            Self::Owner => "owners not set (needs root, or a privilege on the server)",
            Self::Mode => "permissions not kept by the target",
            Self::Times => "times not kept by the target, or not known to the source",
            Self::Xattr => "extended attributes not kept",
            Self::Acl => "ACLs not kept",
            Self::Capability => "file capabilities not kept",
            Self::HardLink => "hard links copied as separate files",
            Self::Sparse => "sparse files filled",
            Self::CreatedTime => "creation times not kept",
            Self::DosAttributes => "DOS attributes not kept",
            Self::Name => "names mapped",
            Self::Stream => "alternate data streams not kept",
        }
    }
}

impl Capabilities {
    /// Whether this target can store any extended attribute, so that reading them is worthwhile.
    pub fn takes_xattrs(&self) -> bool {
        self.xattrs || self.short_xattrs || self.named_streams || self.security
    }
}

/// What a tree can hold and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether another machine keeps the nodes and this program talks to it: each call costs a
    /// round trip, what comes back may be hostile, and the clock is not ours. `false` for a network
    /// file system that the kernel has mounted.
    pub remote: bool,
    /// Whether another machine keeps the data: `remote`, or a network file system that the kernel has
    /// mounted.
    pub on_network: bool,
    /// Whether the tree is remote and a round trip takes 10 ms or more.
    pub far: bool,
    /// Whether data passes through this machine's page cache: it is lost with this boot unless it
    /// is flushed, and the kernel writes it back, or fails to, on its own.
    pub page_cache: bool,
    /// Granularity of modification times in nanoseconds (1 on ext4, 100 on NTFS and SMB, 2e9 on
    /// FAT).
    pub time_granularity_ns: u64,
    /// Whether that granularity is known. Behind shares and FUSE there may be a volume with coarser
    /// times.
    pub time_granularity_known: bool,
    /// Whether reported sizes are those of the content. They are not where the kernel generates the
    /// content (/proc, /sys).
    pub sizes_known: bool,
    /// Whether names that differ only in case are different nodes.
    pub case_sensitive: bool,
    /// Longest name: bytes of UTF-8, or UTF-16 units where the volume counts those.
    pub name_max: usize,
    /// Whether Windows naming rules apply (no `<>:"/\|?*`, no control characters, no trailing dot
    /// or space).
    pub windows_names: bool,
    /// Whether names of any bytes are kept, even those that are not UTF-8.
    pub raw_names: bool,
    /// Largest file in bytes.
    pub file_size_max: u64,
    /// Owners can be stored.
    pub owners: bool,
    /// Permission bits can be stored.
    pub modes: bool,
    /// Extended attributes can be stored.
    pub xattrs: bool,
    /// Extended attributes of the user name space can be stored as in SMB ([MS-FSCC] 2.4.16): ASCII
    /// names in which case is ignored, values of 1 to 65,535 bytes. Others are a [`Loss`].
    pub short_xattrs: bool,
    /// Security descriptors can be stored; they appear as the extended attribute [`SDDL_XATTR`].
    pub security: bool,
    /// A folder with content can be renamed and keeps its content (fusefat loses it).
    pub folder_renames: bool,
    /// An open file may be replaced or removed, and lives on until it is closed (SMB servers refuse
    /// this).
    pub replaces_open: bool,
    /// Creation times can be set (SMB can; Linux file systems cannot).
    pub creation_times: bool,
    /// Whether symbolic links are always listed as links. A server for which this is false may
    /// follow links and list folders that are elsewhere (see [`crate::descent`]).
    pub links_shown: bool,
    /// Symbolic links can be made.
    pub symlinks: bool,
    /// Hard links can be made.
    pub hard_links: bool,
    /// FIFOs and (with privilege) devices can be made.
    pub special_files: bool,
    /// Holes are kept.
    pub sparse: bool,
    /// Node identities ([`FileId`]) are stable.
    pub stable_ids: bool,
    /// Whether a journal or copy-on-write protects the metadata, so that a failed write loses data
    /// but not the map of a file's blocks. Without it, durable content of a file may be unreachable
    /// after such a failure.
    pub journals_metadata: bool,
    /// Best number of small-file batches in flight.
    pub batches_in_flight: usize,
    /// Best number of [`put_small`](crate::Tree::put_small) and
    /// [`get_small`](crate::Tree::get_small) in flight: 1 on this machine, hundreds where each call
    /// costs a round trip.
    pub small_in_flight: usize,
    /// Best number of [`put_small`](crate::Tree::put_small) in flight where the tree makes many files with
    /// one request; 0 elsewhere: then as many as `small_in_flight`.
    pub small_puts_in_flight: usize,
    /// The same of [`get_small`](crate::Tree::get_small).
    pub small_gets_in_flight: usize,
    /// Number of 1 MiB blocks in flight that fill the path to the tree; 0 where only trying can
    /// find it (see `ropeway_plan::Tuner`).
    pub blocks_in_flight: usize,
    /// Named streams of a file can be stored. They appear as extended attributes
    /// `user.DosStream.NAME:$DATA`, as Samba names them. Other attributes may still be refused (see
    /// `xattrs`).
    pub named_streams: bool,
}
