//! What a job is and never changes: its options, its machine, its target, and what follows from
//! them.
//!
//! Every value here is fixed before the first write. So any part of the job may read it without a
//! lock, and two calls always agree.

use std::sync::Arc;

use ropeway_plan::{DurabilityPolicy, Engine, EngineCache, Locality, Nonce, Temporary};
use ropeway_vfs::{CacheMode, Loss, Metadata, MetadataChange, Name, SDDL_XATTR, Timestamp, Tree, Xattr};

use crate::job::environment::Environment;
use crate::job::options::Options;
use crate::job::report::Report;
use crate::journal::token::Token;

/// From this size on, `--cache auto` leaves the page cache as it was. Smaller copies fit any cache
/// and are often read again at once. A guess.
const CACHE_LEAVE_MIN: u64 = 32 << 20;

/// Token of the folder that tests whether the target still accepts anything. Tokens are hashes, so
/// that a node hardly ever has this one.
const PROBE: Token = 0;

/// The immutable part of a job.
pub(crate) struct JobConfig {
    pub(crate) target: Arc<dyn Tree>,
    pub(crate) options: Options,
    /// What the job takes from the machine.
    pub(crate) environment: Environment,
    /// What the job does for durability.
    pub(crate) durability: DurabilityPolicy,
    /// The random part of this job's temporary names.
    pub(crate) nonce: Nonce,
}

impl JobConfig {
    /// Returns the temporary name of the node with this token.
    pub(crate) fn temporary_of(&self, token: Token) -> Name {
        self.nonce.node(token)
    }

    /// Returns the name of the folder that tests whether the target still accepts anything.
    pub(crate) fn probe_name(&self) -> Name {
        self.temporary_of(PROBE)
    }

    /// Whether a name is a temporary one of this job.
    pub(crate) fn is_own_temporary(&self, name: &Name) -> bool {
        Temporary::parse(name).is_some_and(|temporary| temporary.nonce() == self.nonce)
    }

    /// Returns when a node of the target last changed, if its clock is ours and fine enough to tell
    /// runs apart.
    pub(crate) fn change_time(&self, found: &Metadata) -> Option<Timestamp> {
        let can = self.target.capabilities();
        let is_fine = can.time_granularity_ns < 1_000_000_000 && !can.remote;
        found.changed.filter(|_| is_fine)
    }

    /// Returns the user that new nodes belong to, where the target says whom a node belongs to.
    pub(crate) fn own_user(&self) -> Option<u32> {
        let can = self.target.capabilities();
        (can.owners && !can.remote).then_some(self.environment.user)
    }

    /// Whether extended attributes of a node are worth reading: the source may have some, and the
    /// target takes some or their loss must be reported. (Batches report what a local target loses
    /// of local files.)
    pub(crate) fn wants_xattrs(&self, source: &dyn Tree, metadata: &Metadata) -> bool {
        let can = source.capabilities();
        let may_have = can.takes_xattrs() || !can.remote;
        let of_use = self.target.capabilities().takes_xattrs() || can.remote;
        self.options.preserve.xattrs && may_have && of_use && metadata.has_xattrs != Some(false)
    }

    /// Returns the attributes that a node gets on the target. They include a creation time only if
    /// the target can set one: otherwise each file of every local copy would be a loss.
    pub(crate) fn change_of(
        &self,
        report: &Report,
        metadata: &Metadata,
        mut xattrs: Option<Vec<Xattr>>,
    ) -> MetadataChange {
        if let Some(xattrs) = &mut xattrs {
            let before = xattrs.len();
            xattrs.retain(|xattr| xattr.name != SDDL_XATTR || !xattr.value.is_empty());
            if xattrs.len() < before {
                // The source has a descriptor and does not let us read it.
                report.lose(&[Loss::Acl]);
            }
        }
        let mut change = MetadataChange::of(metadata, &self.options.preserve, xattrs);
        if !self.target.capabilities().creation_times {
            change.created = None;
        }
        change
    }

    /// Returns the attributes that a complete file gets. The modification time is always among
    /// them, because later runs compare it and resuming depends on it.
    pub(crate) fn change_of_file(
        &self,
        report: &Report,
        metadata: &Metadata,
        xattrs: Option<Vec<Xattr>>,
    ) -> MetadataChange {
        let mut change = self.change_of(report, metadata, xattrs);
        if change.mode.is_none() && self.target.capabilities().modes {
            change.mode = Some(0o644);
        }
        change.modified = metadata.modified.known();
        change
    }

    /// Whether small files may be copied whole by one call.
    pub(crate) fn may_batch(&self) -> bool {
        self.options.engine == Engine::Auto && !self.options.inplace
    }

    /// Returns how both ends treat the page cache for a file of this size.
    pub(crate) fn cache_of(&self, locality: Locality, size: u64) -> EngineCache {
        let mut cache = self.options.engine.cache(size, locality, self.options.cache);
        for end in [&mut cache.source, &mut cache.target] {
            if *end == CacheMode::Auto {
                *end = if size >= CACHE_LEAVE_MIN {
                    CacheMode::Leave
                } else {
                    CacheMode::Keep
                };
            }
        }
        cache
    }
}
