//! What is known of a node, what to keep of it, and what could not be kept.

use crate::Name;

/// Nanoseconds since 1970-01-01 00:00 UTC; negative before.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i128);

impl Timestamp {
    /// No time: the tree does not know it. It is equal to no time, is set nowhere, and lies outside what a device keeps
    /// (1677, in nanoseconds, so that whatever stores 64 bits can store it).
    pub const UNKNOWN: Self = Self(i64::MIN as i128);

    /// Whether it is a time.
    pub fn is_known(self) -> bool {
        self != Self::UNKNOWN
    }

    /// The time, if it is one.
    pub fn known(self) -> Option<Self> {
        Some(self).filter(|time| time.is_known())
    }

    /// From seconds and nanoseconds as in `struct timespec`.
    pub fn from_unix(seconds: i64, nanoseconds: u32) -> Self {
        Self(i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds))
    }

    /// Seconds (rounded down) and nanoseconds in 0..1e9.
    pub fn to_unix(self) -> (i64, u32) {
        let seconds = self.0.div_euclid(1_000_000_000);
        let nanoseconds = self.0.rem_euclid(1_000_000_000);
        (
            seconds.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
            nanoseconds as u32,
        )
    }

    /// Whether two times are known and equal when each may have been rounded (up or down) to `granularity` nanoseconds.
    pub fn equal_within(self, other: Self, granularity: u64) -> bool {
        let is_near = (self.0 - other.0).unsigned_abs() < u128::from(granularity.max(1));
        is_near && self.is_known() && other.is_known()
    }
}

/// What a node is.
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
    /// Whether it leads to a driver of the kernel.
    pub fn is_device(self) -> bool {
        matches!(self, Self::CharDevice | Self::BlockDevice)
    }
}

/// Identity of a node, stable while it exists: volume (device number) and index (inode number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct FileId {
    /// The volume.
    pub volume: u64,
    /// The node on the volume.
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
    /// What it is.
    pub kind: Kind,
    /// Logical size in bytes (of a symlink: of its text).
    pub size: u64,
    /// Bytes allocated on the device.
    pub allocated: Option<u64>,
    /// Permission bits with set-id and sticky bits (0o7777).
    pub mode: Option<u32>,
    /// Owner and group.
    pub owner: Option<Owner>,
    /// Last change of the content; [`Timestamp::UNKNOWN`] where a server tells none.
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
    /// Whether it has extended attributes, where that is told without asking for them; `Some(false)` saves the question.
    pub has_xattrs: Option<bool>,
}

impl Metadata {
    /// Metadata of `kind` and `size` with nothing else known.
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
        }
    }

    /// Whether it is a folder.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether fewer bytes are allocated than the size asks: a file with holes (or compressed).
    pub fn is_sparse(&self) -> bool {
        self.kind == Kind::File && self.allocated.is_some_and(|allocated| allocated < self.size)
    }
}

/// One entry of a listing. The metadata may fail on its own.
#[derive(Debug)]
pub struct DirEntry {
    /// Its name.
    pub name: Name,
    /// Its attributes.
    pub metadata: crate::Result<Metadata>,
}

/// The extended attribute that holds a share's security descriptor (owner, group, DACL) as text ([MS-DTYP] 2.5.1). Read
/// with an empty value: there is one, and it may not be read.
pub const SDDL_XATTR: &[u8] = b"user.ropeway.sddl";

/// What the names of named streams begin with, as extended attributes.
pub const STREAM_XATTR_PREFIX: &[u8] = b"user.DosStream.";

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// Full name with name space, e.g. `user.comment`, `system.posix_acl_access`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// Attributes to set. Applied in this order: owner, mode, xattrs (ACLs and capabilities among them; chown
/// clears capabilities and set-id bits), times last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// New owner and group.
    pub owner: Option<Owner>,
    /// New permission bits.
    pub mode: Option<u32>,
    /// The whole new set of extended attributes; those not named are removed.
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
    /// The times of `metadata` that are known, for a folder in which something was made or removed.
    pub fn times_of(metadata: &Metadata) -> Self {
        Self {
            accessed: metadata.accessed,
            modified: metadata.modified.known(),
            ..Self::default()
        }
    }

    /// Everything of `metadata` that `preserve` names; xattrs are given by the caller, who has to read them.
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

/// Which attributes a copy keeps. Hard links, sparse ranges and special files are policy of the job.
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

/// One thing that the target could not keep. Losses are counted and named in the summary; they are not errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// The owner could not be set (not root).
    Owner,
    /// Permission bits are not kept there.
    Mode,
    /// Times are not kept, or coarser.
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
    /// What is lost with an extended attribute of this name.
    pub fn of_xattr(name: &[u8]) -> Self {
        match name {
            SDDL_XATTR | b"system.posix_acl_access" | b"system.posix_acl_default" => Self::Acl,
            b"security.capability" => Self::Capability,
            // What Samba keeps there: attributes and the time of creation.
            b"user.DOSATTRIB" => Self::DosAttributes,
            name if name.starts_with(STREAM_XATTR_PREFIX) => Self::Stream,
            _ => Self::Xattr,
        }
    }

    /// A phrase for the summary: "N PHRASE".
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
    /// Whether calls go over a network: each costs a round trip, so many must be in flight.
    pub fn is_remote(&self) -> bool {
        self.small_in_flight > 1
    }

    /// Whether any extended attribute is worth reading for this target.
    pub fn takes_xattrs(&self) -> bool {
        self.xattrs || self.short_xattrs || self.named_streams || self.security
    }
}

/// What a tree can hold and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Granularity of modification times in nanoseconds (1 on ext4, 100 on NTFS and SMB, 2e9 on FAT).
    pub time_granularity_ns: u64,
    /// Whether that is known; behind shares and FUSE there may be a volume that keeps times more coarsely.
    pub time_granularity_known: bool,
    /// Whether sizes are those of the contents (not of what the kernel makes up: /proc, /sys).
    pub sizes_known: bool,
    /// Whether names that differ only in case are different nodes.
    pub case_sensitive: bool,
    /// Longest name in bytes (of UTF-8; UTF-16 units times 1 where the volume counts those).
    pub name_max: usize,
    /// Whether the rules of Windows names hold (no `<>:"/\|?*`, no control characters, no trailing dot or space).
    pub windows_names: bool,
    /// Whether names of any bytes are kept, also those that are not UTF-8.
    pub raw_names: bool,
    /// Largest file in bytes.
    pub file_size_max: u64,
    /// Owners can be stored.
    pub owners: bool,
    /// Permission bits can be stored.
    pub modes: bool,
    /// Extended attributes can be stored.
    pub xattrs: bool,
    /// Extended attributes of the user's name space can be stored as SMB has them ([MS-FSCC] 2.4.16): names in ASCII
    /// whose case means nothing, values of 1 to 65,535 bytes. What does not fit is a [`Loss`].
    pub short_xattrs: bool,
    /// Security descriptors can be stored; they are seen as the extended attribute [`SDDL_XATTR`].
    pub security: bool,
    /// A filled folder can be renamed, and keeps its content (fusefat loses it).
    pub folder_renames: bool,
    /// A file that is open may be replaced or removed, and lives on until it is closed (SMB servers refuse).
    pub replaces_open: bool,
    /// Creation times can be set (Linux file systems cannot; SMB can).
    pub creation_times: bool,
    /// A symbolic link is always shown as one. Where not, a server may follow links, and show folders that lie elsewhere
    /// (see [`crate::descent`]).
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
    /// A journal or copy on write keeps the metadata: a write that fails loses data, and not the map of a file's blocks.
    /// Where this does not hold, what was durable of a file before such a failure may be out of reach afterwards.
    pub journals_metadata: bool,
    /// Data passes through this machine's page cache.
    pub page_cache: bool,
    /// Best small-file parallelism: batches in flight at once.
    pub batches_in_flight: usize,
    /// Best number of [`put_small`](crate::Tree::put_small) and [`get_small`](crate::Tree::get_small) in flight: 1 on
    /// this machine, hundreds where each call costs a round trip.
    pub small_in_flight: usize,
    /// Blocks of 1 MiB in flight that fill the way there; 0 where trying tells (see `ropeway_plan::Tuner`).
    pub blocks_in_flight: usize,
    /// A call takes 10 ms or more, for the length of the line.
    pub far: bool,
    /// Named streams of a file can be stored; they are seen as extended attributes `user.DosStream.NAME:$DATA`, as
    /// Samba names them. Other attributes may still be refused (see `xattrs`).
    pub named_streams: bool,
}
