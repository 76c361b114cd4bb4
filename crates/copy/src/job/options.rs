//! What a job is asked to do.
//!
//! [`Options`] is a plain struct whose default is `ropeway copy` without flags.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ropeway_plan::{Backoff, Durability, Engine, Filter, MaxDelete, NamePolicy, Temporary};
use ropeway_vfs::{CacheMode, HashAlgorithm, Name, Preserve, RelPath, Tree};

use crate::block_list::kept::KeptBlocks;

/// What happens to a target file that is replaced or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backup {
    /// Keep it in the same folder, with this suffix, e.g. `~`.
    Suffix(Vec<u8>),
    /// Move it to the same place in a folder of the target tree.
    Directory {
        /// The folder.
        base: RelPath,
        /// The folder that is copied into. Places below `base` are relative to it.
        top: RelPath,
    },
}

/// Deletions of a mirror.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// Largest number of deletions. If there are more, none is done.
    pub max: Option<MaxDelete>,
    /// Deletions in the first pass that the user agreed to when asked. More are refused. A watch
    /// does not ask again.
    pub agreed: Option<u64>,
    /// Whether excluded names are deleted on the target as well.
    pub excluded: bool,
    /// Whether a mirror deletes although something failed.
    pub on_errors: bool,
}

/// Verification after the copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Read every copied file back from the device and compare hashes.
    pub read_back: bool,
    /// How contents are hashed.
    pub algorithm: HashAlgorithm,
    /// Where to keep the hashes (the format of `b3sum` and `sha256sum`: hex, two spaces, path).
    pub manifest: Option<PathBuf>,
}

/// What to do with a file that changes whenever it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changing {
    /// Keep the last try as a torn copy, unless something good stands there. The file counts as
    /// failed.
    #[default]
    Copy,
    /// Keep nothing. The file counts as failed.
    Skip,
    /// End the job.
    Fail,
}

/// Whether changed files are compared inside, so that only what changed crosses the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeltaMode {
    /// Where the line is slower than the comparison.
    #[default]
    Auto,
    /// Wherever both ends can.
    On,
    /// Never.
    Off,
}

/// The options of a job. The default is `ropeway copy` without flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// Copy engine.
    pub engine: Engine,
    /// When data counts as done.
    pub durability: Durability,
    /// How to treat the page cache. `Auto` leaves it as it was for large files.
    pub cache: CacheMode,
    /// Verification.
    pub verify: Verification,
    /// Copy only where the source is newer.
    pub update: bool,
    /// Do not change what exists on the target.
    pub ignore_existing: bool,
    /// Compare content instead of size and time.
    pub checksum: bool,
    /// Copy even if source and target are equal.
    pub force: bool,
    /// Modification times that differ by no more than this count as equal.
    pub modify_window: Duration,
    /// Keep what is replaced or deleted, as a backup.
    pub backup: Option<Backup>,
    /// Overwrite existing files in place.
    pub inplace: bool,
    /// Whether changed files are compared inside.
    pub delta: DeltaMode,
    /// Remove each source file once its copy is complete (and durable, unless durability is
    /// `None`).
    pub move_source: bool,
    /// What to do with files that change whenever they are read.
    pub changing: Changing,
    /// Do not descend into other volumes.
    pub one_file_system: bool,
    /// Attributes to keep.
    pub preserve: Preserve,
    /// Keep hard links among the copied files.
    pub hard_links: bool,
    /// Make block and character devices.
    pub devices: bool,
    /// Which nodes take part.
    pub filter: Filter,
    /// Make the target equal to the source, deletions included.
    pub delete: Option<Delete>,
    /// Change nothing; report what would be done.
    pub dry_run: bool,
    /// With `dry_run`: only deletions are of interest, so the job ends where there would be none.
    pub only_deletions: bool,
    /// Finish the counting walk (names, space) before the first write.
    pub preflight: bool,
    /// What to do with names that the target cannot hold.
    pub names: NamePolicy,
    /// Pauses between tries of an item after an error that may pass.
    pub retry: Backoff,
    /// Copy what changes after the first pass, until cancelled.
    pub watch: bool,
    /// Run the counting walk ahead of the copy (for totals and the estimate).
    pub count: bool,
    /// Report each item.
    pub report_items: bool,
    /// Largest number of dirty bytes on the target. `None` follows the measured speed of the device
    /// (64 MiB on a slow one).
    pub dirty_max: Option<u64>,
    /// Time without progress after which an item counts as failed.
    pub timeout: Option<Duration>,
    /// Spare devices that others use, and servers: small blocks, one file and one block at a time, and little
    /// dirty data. The pauses are those of the trees ([`ropeway_vfs::decorate::gentle`]).
    pub gentle: bool,
    /// Where hashes of the blocks of large files are kept between runs, so that of a file that is overwritten in
    /// place only what changed is written. Give it to every job with `inplace`, whatever its `delta`: it also
    /// forgets what is overwritten.
    pub kept_blocks: Option<KeptBlocks>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: Engine::Auto,
            durability: Durability::End,
            cache: CacheMode::Auto,
            verify: Verification::default(),
            update: false,
            ignore_existing: false,
            checksum: false,
            force: false,
            modify_window: Duration::ZERO,
            backup: None,
            inplace: false,
            delta: DeltaMode::default(),
            move_source: false,
            changing: Changing::default(),
            one_file_system: false,
            preserve: Preserve::default(),
            hard_links: true,
            devices: false,
            filter: Filter::default(),
            delete: None,
            dry_run: false,
            only_deletions: false,
            preflight: false,
            names: NamePolicy::default(),
            retry: Backoff::default(),
            watch: false,
            count: true,
            report_items: false,
            dirty_max: None,
            timeout: None,
            gentle: false,
            kept_blocks: None,
        }
    }
}

/// One thing to copy: a node of a source tree and the path it gets on the target tree.
#[derive(Clone)]
pub struct Root {
    /// The tree to read.
    pub source: Arc<dyn Tree>,
    /// How the user calls the top of that tree: messages begin with it. May be empty.
    pub source_name: RelPath,
    /// The node in it; the root path copies the whole tree.
    pub source_path: RelPath,
    /// Its path on the target tree. Its parent must exist. The root path copies a folder's content
    /// into the target tree's root.
    pub target_path: RelPath,
}

/// The prefix of every temporary name.
pub const TEMPORARY_PREFIX: &str = ropeway_plan::temporary::PREFIX;

/// Whether a name is a temporary one of any job. Only the exact form counts: other names that begin
/// with `.ropeway-` belong to users and are data.
pub fn is_temporary(name: &Name) -> bool {
    Temporary::parse(name).is_some()
}
