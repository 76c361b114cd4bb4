//! The shared state of a running job, for its steps.
//!
//! [`Context`] joins parts that do not know each other: the immutable [`JobConfig`], the [`Report`]
//! to the outside, the bounded [`Resources`], durability, temporary names, and what some options
//! remember. A part never uses the context. A step (`walk`, `transfer`, `name`, `durable`,
//! `verify`, `sweep`, `delete`) takes the context only if it needs most of it. Its helpers take the
//! parts that they use, so that their signatures say what they can do.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use ropeway_plan::DeleteGuard;
use ropeway_vfs::{End, Error, HashAlgorithm, RelPath};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::block_list::kept::StagedList;
use crate::delete::copied_nodes::CopiedNodes;
use crate::delete::extra_files::ExtraFiles;
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::outcome::Fatal;
use crate::job::report::Report;
use crate::job::resources::Resources;
use crate::journal::open::Journal;
use crate::name::kept_versions::KeptVersions;
use crate::sweep::temporaries::Temporaries;
use crate::transfer::link_table::LinkTable;
use crate::verify::hashes::Hashes;
use crate::walk::listed::ListedPaths;
use crate::walk::listing_cache::ListingCache;

/// The shared state of a job.
pub(crate) struct Context {
    pub(crate) config: JobConfig,
    pub(crate) report: Report,
    pub(crate) resources: Resources,
    /// Cancelled by the user, or by a fatal failure.
    pub(crate) cancel: CancellationToken,
    pub(crate) journal: Option<Journal>,
    /// What is known of temporary names on the target, this job's and others'.
    pub(crate) temporaries: Temporaries,
    pub(crate) durability: DurabilityControl,
    /// Files with several names.
    pub(crate) link_table: LinkTable,
    pub(crate) hashes: Option<Hashes>,
    /// Bounds the deletions of a mirror.
    pub(crate) delete_guard: Mutex<Option<DeleteGuard>>,
    /// Files that are overwritten in place and whose old content is kept.
    pub(crate) kept_versions: KeptVersions,
    /// Files that the mirror will delete.
    pub(crate) extra_files: ExtraFiles,
    /// Lists of block hashes of files that are not durable yet.
    pub(crate) staged_lists: Mutex<Vec<StagedList>>,
    /// Bounds the files whose blocks are compared.
    pub(crate) list_room: Semaphore,
    /// The nodes that a move has copied.
    pub(crate) copied_nodes: CopiedNodes,
    /// Folders that the counting walk listed for the copying walk.
    pub(crate) listing_cache: ListingCache,
    /// Paths of a list that the source has.
    pub(crate) listed_paths: ListedPaths,
}

impl Context {
    /// Whether the job should stop ([`Report::stopped`]).
    pub(crate) fn stopped(&self) -> bool {
        self.report.stopped()
    }

    /// Returns how contents are hashed; `None` if they are not.
    pub(crate) fn hash_algorithm(&self) -> Option<HashAlgorithm> {
        self.hashes.as_ref().map(Hashes::algorithm)
    }

    /// Waits while the job is paused ([`Report::pass`]).
    pub(crate) async fn pass(&self) {
        self.report.pass().await;
    }

    /// Whether a watch was interrupted after its first pass, which is its normal end.
    pub(crate) fn watch_ended(&self) -> bool {
        self.config.options.watch && self.report.live.walk_final.load(Ordering::Acquire)
    }

    /// Stops the whole job ([`Report::fatal`]).
    pub(crate) fn fatal(&self, fatal: Fatal) {
        self.report.fatal(fatal);
    }

    /// Reports the failure of one item ([`Report::fail`]).
    pub(crate) async fn fail(&self, path: &RelPath, error: Error, end: End) {
        self.report.fail(path, error, end).await;
    }

    /// Whether the journal of an earlier run of this job was found.
    pub(crate) fn resumed(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.memory().resumed())
    }
}
