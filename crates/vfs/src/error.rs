//! The error type of every tree, with a verdict on what to do about it.

use std::fmt;
use std::io;

use crate::RelPath;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// Open an existing file.
    Open,
    /// Create a file.
    Create,
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Flush one file, a range of it, or the volume to the device.
    Sync,
    /// Read attributes.
    Stat,
    /// Set attributes.
    SetAttributes,
    /// List a folder.
    List,
    /// Make a folder.
    MakeDir,
    /// Remove a file or folder.
    Remove,
    /// Rename.
    Rename,
    /// Make a link, device or FIFO.
    Link,
    /// Copy inside one end (reflink, copy_file_range, server-side copy).
    CopyRange,
    /// Ask for data extents.
    Extents,
    /// Set the length or reserve space.
    SetLength,
    /// Watch for changes.
    Watch,
    /// Read or set extended attributes.
    Xattr,
    /// Lock a range of a file, or query locks.
    Lock,
}

/// What went wrong, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such node.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// Not allowed.
    PermissionDenied,
    /// The volume or quota is full.
    NoSpace,
    /// The file is larger than the volume can hold.
    FileTooLarge,
    /// The volume is read-only.
    ReadOnly,
    /// The volume cannot hold this name.
    NameRefused,
    /// A folder was needed.
    NotADirectory,
    /// A file was needed.
    IsADirectory,
    /// The folder is not empty.
    NotEmpty,
    /// The link count is exhausted.
    TooManyLinks,
    /// The two nodes are on different volumes.
    CrossDevice,
    /// A symbolic link is where none may be followed.
    SymbolicLink,
    /// The tree cannot do this at all.
    Unsupported,
    /// The device failed on this data.
    DeviceError,
    /// The volume, server or device has disappeared.
    Gone,
    /// The file changed while it was read.
    Changed,
    /// In use by another program.
    Busy,
    /// No reply within the time limit.
    TimedOut,
    /// Interrupted; try again.
    Interrupted,
    /// A limit of this process is reached (descriptors, memory).
    Exhausted,
    /// A limit of the server is reached (open files, memory).
    ServerExhausted,
    /// The caller cancelled the operation.
    Cancelled,
    /// The connection failed.
    Network,
    /// The server did not come back within the time allowed for it. The reporting tree has retried
    /// throughout.
    Unreachable,
    /// The peer broke the protocol.
    PeerMisbehaved,
    /// The peer's answer about this node makes no sense; answers about other nodes may.
    #[serde(rename = "senseless")]
    InvalidReply,
    /// The protection of the connection was broken: messages were altered on their way.
    Tampered,
    /// Credentials were refused.
    Authentication,
    /// The caller used the interface wrongly.
    Misuse,
    /// Anything else.
    Other,
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The error may be temporary: try again after a pause.
    Retry,
    /// This item failed: report it and go on with the others.
    Skip,
    /// Nothing more can succeed on this tree: stop.
    Abort,
}

/// An operation on a tree failed.
#[derive(Debug)]
pub struct Error {
    /// The operation.
    pub op: Op,
    /// The node, relative to the tree's root.
    pub path: RelPath,
    /// The kind of error.
    pub kind: ErrorKind,
    /// The operating system's error, if there is one.
    pub source: Option<io::Error>,
}

impl Error {
    /// Makes an error without one of the operating system.
    pub fn new(op: Op, path: &RelPath, kind: ErrorKind) -> Self {
        Self {
            op,
            path: path.clone(),
            kind,
            source: None,
        }
    }

    /// Makes an error from one of the operating system; its errno determines the kind.
    pub fn from_io(op: Op, path: &RelPath, source: io::Error) -> Self {
        Self {
            op,
            path: path.clone(),
            kind: ErrorKind::of(&source),
            source: Some(source),
        }
    }

    /// Returns what to do about this error.
    pub fn verdict(&self) -> Verdict {
        self.kind.verdict()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: ", self.op.verb(), self.path)?;
        match &self.source {
            Some(source) => write!(f, "{source}"),
            None => f.write_str(self.kind.describe()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl Op {
    /// Returns the verb for messages: "cannot VERB PATH".
    pub fn verb(self) -> &'static str {
        match self {
            Op::Open => "open",
            Op::Create => "create",
            Op::Read => "read",
            Op::Write => "write",
            Op::Sync => "flush",
            Op::Stat => "examine",
            Op::SetAttributes => "set attributes of",
            Op::List => "list",
            Op::MakeDir => "make folder",
            Op::Remove => "remove",
            Op::Rename => "rename",
            Op::Link => "make link",
            Op::CopyRange => "copy within",
            Op::Extents => "find data in",
            Op::SetLength => "set the length of",
            Op::Watch => "watch",
            Op::Xattr => "access extended attributes of",
            Op::Lock => "lock a range of",
        }
    }
}

impl ErrorKind {
    /// Returns the kind of an operating system error (errno(3)).
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind as K;
        // Linux errno values (asm-generic/errno.h) that std does not distinguish well enough.
        match error.raw_os_error() {
            Some(5) => return Self::DeviceError,                             // EIO
            Some(6 | 19 | 107 | 108 | 116 | 123 | 125) => return Self::Gone, // ENXIO ENODEV ENOTCONN ESHUTDOWN ESTALE ENOMEDIUM ECANCELED
            Some(12 | 23 | 24) => return Self::Exhausted,                    // ENOMEM ENFILE EMFILE
            Some(1) => return Self::PermissionDenied,                        // EPERM
            Some(27) => return Self::FileTooLarge,                           // EFBIG
            Some(31) => return Self::TooManyLinks,                           // EMLINK
            Some(36 | 84) => return Self::NameRefused,                       // ENAMETOOLONG EILSEQ
            Some(40) => return Self::SymbolicLink,                           // ELOOP
            Some(95 | 38 | 25) => return Self::Unsupported,                  // EOPNOTSUPP ENOSYS ENOTTY
            Some(122) => return Self::NoSpace,                               // EDQUOT
            _ => {}
        }
        match error.kind() {
            K::NotFound => Self::NotFound,
            K::AlreadyExists => Self::AlreadyExists,
            K::PermissionDenied => Self::PermissionDenied,
            K::StorageFull | K::QuotaExceeded => Self::NoSpace,
            K::ReadOnlyFilesystem => Self::ReadOnly,
            K::NotADirectory => Self::NotADirectory,
            K::IsADirectory => Self::IsADirectory,
            K::DirectoryNotEmpty => Self::NotEmpty,
            K::CrossesDevices => Self::CrossDevice,
            K::ResourceBusy | K::ExecutableFileBusy => Self::Busy,
            K::TimedOut => Self::TimedOut,
            K::Interrupted | K::WouldBlock => Self::Interrupted,
            K::Unsupported => Self::Unsupported,
            K::ConnectionReset
            | K::ConnectionAborted
            | K::ConnectionRefused
            | K::BrokenPipe
            | K::NotConnected
            | K::HostUnreachable
            | K::NetworkUnreachable
            | K::NetworkDown => Self::Network,
            _ => Self::Other,
        }
    }

    /// Returns the errno for programs that use a mounted file system (errno(3),
    /// asm-generic/errno.h).
    pub fn errno(self) -> i32 {
        match self {
            Self::NotFound => 2,                      // ENOENT
            Self::Interrupted | Self::Cancelled => 4, // EINTR
            Self::DeviceError
            | Self::Changed
            | Self::Network
            | Self::PeerMisbehaved
            | Self::InvalidReply
            | Self::Tampered
            | Self::Other => 5, // EIO
            Self::Exhausted | Self::ServerExhausted => 23, // ENFILE
            Self::PermissionDenied | Self::Authentication => 13, // EACCES
            Self::Busy => 16,                         // EBUSY
            Self::AlreadyExists => 17,                // EEXIST
            Self::CrossDevice => 18,                  // EXDEV
            Self::NotADirectory => 20,                // ENOTDIR
            Self::IsADirectory => 21,                 // EISDIR
            Self::Misuse | Self::NameRefused => 22,   // EINVAL
            Self::FileTooLarge => 27,                 // EFBIG
            Self::NoSpace => 28,                      // ENOSPC
            Self::ReadOnly => 30,                     // EROFS
            Self::TooManyLinks => 31,                 // EMLINK
            Self::NotEmpty => 39,                     // ENOTEMPTY
            Self::SymbolicLink => 40,                 // ELOOP
            Self::Unsupported => 95,                  // EOPNOTSUPP
            Self::TimedOut => 110,                    // ETIMEDOUT
            Self::Unreachable => 113,                 // EHOSTUNREACH
            Self::Gone => 116,                        // ESTALE
        }
    }

    /// Whether the node does not exist.
    pub fn is_absence(self) -> bool {
        matches!(self, Self::NotFound | Self::NotADirectory)
    }

    /// Returns what to do about an error of this kind.
    pub fn verdict(self) -> Verdict {
        match self {
            Self::TimedOut
            | Self::Interrupted
            | Self::Busy
            | Self::Exhausted
            | Self::ServerExhausted
            | Self::Network
            | Self::DeviceError => Verdict::Retry,
            Self::NoSpace
            | Self::ReadOnly
            | Self::Gone
            | Self::Unreachable
            | Self::Tampered
            | Self::Cancelled
            | Self::Authentication
            | Self::PeerMisbehaved => Verdict::Abort,
            _ => Verdict::Skip,
        }
    }

    /// Returns a phrase for messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NotFound => "no such file or folder",
            Self::AlreadyExists => "the name is taken",
            Self::PermissionDenied => "permission denied",
            Self::NoSpace => "no space left",
            Self::FileTooLarge => "the file is larger than the volume can hold",
            Self::ReadOnly => "the volume is read-only",
            Self::NameRefused => "the volume cannot hold this name",
            Self::NotADirectory => "not a folder",
            Self::IsADirectory => "is a folder",
            Self::NotEmpty => "the folder is not empty",
            Self::TooManyLinks => "too many links",
            Self::CrossDevice => "on another volume",
            Self::SymbolicLink => "a symbolic link is in the way",
            Self::Unsupported => "not supported there",
            Self::DeviceError => "the device failed",
            Self::Gone => "the volume or device is gone",
            Self::Changed => "it changed while it was copied; run again when it no longer changes",
            Self::Busy => "in use",
            Self::TimedOut => "no answer in time",
            Self::Interrupted => "interrupted",
            Self::Exhausted => "out of memory or file descriptors",
            Self::ServerExhausted => "the server has no resources left",
            Self::Cancelled => "cancelled",
            Self::Network => "connection failed",
            Self::Tampered => "messages from the server were altered on their way",
            Self::Unreachable => "the server did not come back in time",
            Self::PeerMisbehaved => "the peer broke the protocol",
            Self::InvalidReply => "the server's answer about it makes no sense",
            Self::Authentication => "login refused",
            Self::Misuse => "wrong use",
            Self::Other => "failed",
        }
    }
}

/// One of the two ends of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The end that is read.
    Source,
    /// The end that is written.
    Target,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// An error of a call that uses both ends, with the end that failed.
#[derive(Debug)]
pub struct EndError {
    /// The end that failed.
    pub end: End,
    /// What happened there.
    pub error: Error,
}

impl EndError {
    /// An error of the source.
    pub fn on_source(error: Error) -> Self {
        Self {
            end: End::Source,
            error,
        }
    }

    /// An error of the target.
    pub fn on_target(error: Error) -> Self {
        Self {
            end: End::Target,
            error,
        }
    }
}
