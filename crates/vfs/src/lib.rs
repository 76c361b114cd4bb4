//! The contracts that every end of a copy and every served folder keeps.
//!
//! An end of a copy is a [`Tree`]: a local folder, an SMB share, memory, a cache or an emulated
//! device. A tree opens [`File`]s, which read and write [`ropeway_block`] buffers at offsets. Every
//! operation is asynchronous (a boxed future) and takes paths relative to the tree's root as raw
//! bytes ([`RelPath`]). No path leads out of the root, and links are never followed.
//!
//! * [`tree`]: the contract for copying; [`store`]: the contract for a file server's back end;
//! * [`metadata`]: attributes of a node; [`path`]: names and paths; [`error`]: one error type with
//!   a verdict (retry, skip, abort);
//! * [`small`]: small files in one call; [`claim`]: files that show that a job is alive;
//! * [`posix`]: what a mounted file system asks of a store besides;
//! * [`external`]: changes that other programs make beneath a store's root; [`patience`]: how long a
//!   store waits for a source that does not answer; [`pages`]: what the kernel has in memory of a mount;
//! * [`descent`]: proof that a folder is a child of the folder that lists it; [`backlog`]: a bound
//!   for the folders a walk has still to enter;
//! * [`content_hash`]: hashes of contents; [`chunks`]: contents cut where they say so; [`event`]: what a job reports; [`trace`]: one record for each operation; [`clock`]: time as an
//!   argument; [`gate`]: pauses;
//! * [`memory`]: a tree in memory; [`decorate`]: decorators of trees (faults, slow device, rate
//!   limit, trace);
//! * [`contract`]: the test suite that every tree must pass.
//!
//! This crate does no I/O, starts no thread and knows no runtime.

pub mod backlog;
pub mod caller;
pub mod chunks;
pub mod claim;
pub mod clock;
pub mod content_hash;
pub mod contract;
pub mod decorate;
pub mod descent;
pub mod error;
pub mod event;
pub mod external;
pub mod folder_digest;
pub mod gate;
pub mod memory;
pub mod metadata;
pub mod pages;
pub mod path;
pub mod patience;
pub mod posix;
pub mod small;
pub mod store;
pub mod trace;
pub mod tree;

pub use backlog::{Backlog, Held};
pub use claim::{Claim, ClaimAbove, ClaimKind};
pub use clock::{Clock, VirtualClock};
pub use content_hash::{ContentHash, ContentHasher, HashAlgorithm};
pub use descent::{Ancestry, DuplicateFolders, Origin, holder_of, prove_child};
pub use error::{End, EndError, Error, ErrorKind, Op, Result, Verdict};
pub use folder_digest::FolderDigest;
pub use memory::MemoryTree;
pub use metadata::{
    Capabilities, DirEntry, FileId, Kind, Loss, Metadata, MetadataChange, Owner, Preserve, SDDL_XATTR,
    STREAM_XATTR_PREFIX, Timestamp, Xattr,
};
pub use path::{Name, RelPath};
pub use small::{GetSmall, GotSmall, PutDone, PutSmall};
pub use tree::{
    Batch, BatchDone, BatchItem, BatchResult, CacheMode, CompareBatch, CompareResult, CopyPiece, Create,
    Extent, FarContent, File, Listing, OpenOptions, Pending, Space, Tree,
};
