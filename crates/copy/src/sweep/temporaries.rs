//! What a job knows of temporary names on its target. Part of the context.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_plan::Nonce;
use ropeway_plan::sweep::{KnownFates, Observer};
use ropeway_vfs::{RelPath, Tree};
use tokio::task::JoinHandle;

use crate::job::root::JobRoot;
use crate::journal::open::Journal;
use crate::journal::store::JournalStore;
use crate::sweep::own_claims::OwnClaims;
use crate::sweep::removal::{self, Swept};

/// What a job knows of temporary names.
pub(crate) struct Temporaries {
    pub(super) own: Arc<OwnClaims>,
    pub(super) nonce: Nonce,
    pub(super) observer: Observer,
    pub(super) journals: Option<Arc<dyn JournalStore>>,
    /// The path of the only root.
    pub(super) single: Option<RelPath>,
    /// The paths of all roots.
    pub(super) roots: Vec<RelPath>,
    /// Whether the target is far away and nothing of an earlier run is there, so that nobody waits
    /// for claims.
    pub(super) unwaited: bool,
    pub(super) looking: Mutex<Option<JoinHandle<()>>>,
    pub(super) others: tokio::sync::Mutex<KnownFates>,
    pub(super) swept: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) in_source: AtomicU64,
    /// Whether something of this job could not be removed, so that its journal is still needed.
    pub(super) stays: AtomicBool,
}

impl Temporaries {
    pub(crate) fn new(
        target: &Arc<dyn Tree>,
        (nonce, boot_id): (Nonce, &str),
        journal: Option<&Journal>,
        roots: &[Arc<JobRoot>],
    ) -> Self {
        let journals = journal.map(|journal| Arc::clone(journal.store()));
        let observer = Observer {
            job: journal.map(|journal| journal.id().to_owned()),
            state: journals.as_ref().map(|journals| journals.identity()),
        };
        let resumed = journal.is_some_and(|journal| journal.memory().resumed());
        let unwaited = target.capabilities().far && !resumed;
        let single = (roots.len() == 1).then(|| roots[0].root.target_path.clone());
        let of = (observer.job.clone(), observer.state.clone());
        let boot_id = boot_id.to_owned();
        Self {
            own: OwnClaims::new(Arc::clone(target), nonce, of, (boot_id, unwaited)),
            nonce,
            observer,
            journals,
            single,
            roots: roots.iter().map(|root| root.root.target_path.clone()).collect(),
            unwaited,
            looking: Mutex::default(),
            others: tokio::sync::Mutex::default(),
            swept: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            in_source: AtomicU64::new(0),
            stays: AtomicBool::new(false),
        }
    }

    /// Returns the topmost folders in which this job makes its claims. The journal names them only
    /// if there are other temporary names in them.
    pub(super) fn claim_folders(&self) -> Vec<RelPath> {
        let parents = self.roots.iter().filter_map(RelPath::parent);
        removal::each_once(parents.chain(self.single.clone()).collect())
    }

    pub(super) fn keep_if(&self, swept: &Swept) {
        self.stays.fetch_or(!swept.failed.is_empty(), Ordering::AcqRel);
    }

    /// Notes that a temporary name stays that only the next run of this job can remove.
    pub(crate) fn must_stay(&self) {
        self.stays.store(true, Ordering::Release);
    }

    /// Whether the journal is still needed for what could not be removed.
    pub(crate) fn keep_journal(&self) -> bool {
        self.stays.load(Ordering::Acquire)
    }
}
