//! The one contract for trees of files.
//!
//! Whatever can be an end of a copy is a [`Tree`]: a local folder, an SMB share, memory, a cache, an
//! emulated device. A tree hands out [`File`]s, which read and write [`ropeway_block`] buffers at
//! offsets. Every operation is asynchronous (a boxed future) and names paths relative to the tree's
//! root as raw bytes ([`RelPath`]); nothing leads out of the root and links are never followed.
//!
//! * [`tree`]: the contract itself; [`metadata`]: what is known of a node; [`path`]: names and paths;
//! * [`small`]: small files in one go; [`claim`]: how a job shows that it is alive;
//! * [`store`]: a file server's back end; [`outside`]: what others do there;
//! * [`descent`]: whether a folder is a child of the one that lists it; [`backlog`]: folders that wait to be entered;
//! * [`error`]: one error with a verdict (retry, skip, abort); [`event`]: what a job reports;
//! * [`trace`]: one record for each operation; [`clock`]: time as an argument;
//! * [`memory`]: a tree in memory; [`decorate`]: trees around trees (faults, slow device, limit, meter, retry, dry run);
//! * [`contract`]: the one test suite that every tree must pass.
//!
//! This crate does no I/O, starts no thread and knows no runtime.

pub mod backlog;
pub mod claim;
pub mod clock;
pub mod contract;
pub mod decorate;
pub mod descent;
pub mod error;
pub mod event;
pub mod memory;
pub mod metadata;
pub mod outside;
pub mod path;
pub mod small;
pub mod store;
pub mod trace;
pub mod tree;

pub use backlog::{Backlog, Held};
pub use claim::{Claim, ClaimAbove, ClaimKind};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use descent::{Ancestry, Origin, Twins, holder_of, prove_child};
pub use error::{Error, ErrorKind, Op, Result, Verdict};
pub use memory::MemoryTree;
pub use metadata::{
    Capabilities, DirEntry, FileId, Kind, Loss, Metadata, MetadataChange, Owner, Preserve, SDDL_XATTR,
    STREAM_XATTR_PREFIX, Timestamp, Xattr,
};
pub use path::{Name, RelPath};
pub use small::{GetSmall, GotSmall, PutSmall};
pub use tree::{
    Batch, BatchDone, BatchItem, BatchResult, CacheMode, CompareBatch, CompareResult, Create, Extent, File,
    Listing, OpenOptions, Pending, Space, Tree,
};
