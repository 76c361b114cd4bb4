//! What a job is asked to do: one plain struct, validated by the job.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::changing::Changing;
use ropeway_plan::{Backoff, Engine, Filter, MaxDelete, NamePolicy, Temporary};
use ropeway_vfs::{CacheMode, Name, Preserve, RelPath, Tree};

/// When a job counts data as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// When the target took it (page cache, server memory).
    None,
    /// The job ends when everything is durable; write-back starts early.
    #[default]
    End,
    /// Each file is durable before it appears under its name.
    File,
}

/// What happens to a target file that is replaced or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backup {
    /// Keep it beside the new one with this suffix, e.g. `~`.
    Suffix(Vec<u8>),
    /// Move it to the same place in a folder of the target tree.
    Directory {
        /// The folder.
        base: RelPath,
        /// What places are relative to: the folder that is copied into.
        top: RelPath,
    },
}

/// Deletions of a mirror.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// Most deletions; more are refused before anything is touched.
    pub max: Option<MaxDelete>,
    /// Deletions of the first pass that the user agreed to when asked; more are refused. A watch asks no more.
    pub agreed: Option<u64>,
    /// Whether excluded names are deleted on the target too.
    pub excluded: bool,
    /// Whether deletions are done although something failed.
    pub on_errors: bool,
}

/// Verification after the copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Read every copied file back from the device and compare BLAKE3.
    pub read_back: bool,
    /// Where to keep the hashes (`b3sum` format: hex, two spaces, path).
    pub manifest: Option<PathBuf>,
}

/// All options of a job. `Options::default()` is what `ropeway copy` does without flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which copy engine.
    pub engine: Engine,
    /// When data counts as done.
    pub durability: Durability,
    /// Page cache manners; `Auto` leaves the cache as it was for big files.
    pub cache: CacheMode,
    /// Verification.
    pub verify: Verification,
    /// Copy only where the source is newer.
    pub update: bool,
    /// Never touch what exists on the target.
    pub ignore_existing: bool,
    /// Compare content instead of size and time.
    pub checksum: bool,
    /// Copy even what is equal.
    pub force: bool,
    /// Modification times that differ by no more than this are equal.
    pub modify_window: Duration,
    /// Keep what is replaced or deleted.
    pub backup: Option<Backup>,
    /// Write into existing files instead of beside them.
    pub inplace: bool,
    /// Remove each source file once its copy is complete (and durable, unless durability is `None`).
    pub move_source: bool,
    /// What becomes of files that change whenever they are read.
    pub changing: Changing,
    /// Do not descend into other volumes.
    pub one_file_system: bool,
    /// Attributes to keep.
    pub preserve: Preserve,
    /// Keep hard links among the copied files.
    pub hard_links: bool,
    /// Make block and character devices.
    pub devices: bool,
    /// What to take.
    pub filter: Filter,
    /// Make the target equal to the source, deletions included.
    pub delete: Option<Delete>,
    /// Change nothing; report what would be done.
    pub dry_run: bool,
    /// Finish the counting walk (names, space) before the first write.
    pub preflight: bool,
    /// What to do with names that the target cannot hold.
    pub names: NamePolicy,
    /// Pauses between tries of an item that failed for a passing reason.
    pub retry: Backoff,
    /// After the first pass, go on with what changes.
    pub watch: bool,
    /// Run the counting walk ahead of the copy (for totals and the estimate).
    pub count: bool,
    /// Report each item.
    pub report_items: bool,
    /// Most bytes written but not yet durable on the target; `None` follows the measured speed of the device
    /// (64 MiB on a slow one).
    pub dirty_max: Option<u64>,
    /// How long one item may make no progress before it counts as failed.
    pub timeout: Option<Duration>,
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
            move_source: false,
            changing: Changing::default(),
            one_file_system: false,
            preserve: Preserve::default(),
            hard_links: true,
            devices: false,
            filter: Filter::default(),
            delete: None,
            dry_run: false,
            preflight: false,
            names: NamePolicy::default(),
            retry: Backoff::default(),
            watch: false,
            count: true,
            report_items: false,
            dirty_max: None,
            timeout: None,
        }
    }
}

/// One thing to copy: a node of a source tree and the path it gets on the target tree.
#[derive(Clone)]
pub struct Root {
    /// The tree to read.
    pub source: Arc<dyn Tree>,
    /// The node in it; the root path copies the whole tree.
    pub source_path: RelPath,
    /// Its path on the target tree. Its parent must exist. The root path copies a folder's content into the
    /// target tree's root.
    pub target_path: RelPath,
}

/// Prefix of every temporary name that a job makes on the target.
pub const TEMPORARY_PREFIX: &str = ropeway_plan::temporary::PREFIX;

/// Whether a name is a temporary one of any job: exactly, since what users call `.ropeway-…` is data.
pub fn is_temporary(name: &Name) -> bool {
    Temporary::parse(name).is_some()
}
