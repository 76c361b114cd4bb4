//! The folders that are kept open under leases.

use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_smb_wire::LeaseKey;
use ropeway_vfs::RelPath;

use super::node_cache::FolderLease;
use crate::reopen::HandleInner;

/// Folders kept open at the same time. A guess: a server spends some kilobytes for each.
const FOLDERS_MAX: usize = 256;

/// The folders kept open, the one listed last at the end.
#[derive(Default)]
pub(super) struct Folders(Mutex<Vec<(RelPath, Arc<HandleInner>)>>);

impl Folders {
    /// Keeps a folder open. Returns one that has to be closed for that.
    pub(super) fn keep(&self, dir: &RelPath, handle: Arc<HandleInner>) -> Vec<Arc<HandleInner>> {
        let mut kept = self.0.lock();
        let mut closed = take(&mut kept, |at| at == dir);
        if kept.len() == FOLDERS_MAX {
            closed.push(kept.remove(0).1);
        }
        kept.push((dir.clone(), handle));
        closed
    }

    /// Returns the lease on a folder.
    pub(super) fn lease(&self, dir: &RelPath) -> Option<FolderLease> {
        let kept = self.0.lock();
        let found = kept.iter().find(|(at, _)| at == dir);
        let lease = found.and_then(|(_, handle)| handle.lease());
        lease.filter(|lease| lease.may_cache_reads()).cloned()
    }

    /// Returns the key of the lease on a folder.
    pub(super) fn lease_key(&self, dir: &RelPath) -> Option<LeaseKey> {
        let kept = self.0.lock();
        let found = kept.iter().find(|(at, _)| at == dir);
        found.and_then(|(_, handle)| handle.lease_key())
    }

    /// Removes the folders that match, and returns their handles.
    pub(super) fn remove(&self, matches: impl Fn(&RelPath) -> bool) -> Vec<Arc<HandleInner>> {
        take(&mut self.0.lock(), matches)
    }
}

fn take(
    kept: &mut Vec<(RelPath, Arc<HandleInner>)>,
    matches: impl Fn(&RelPath) -> bool,
) -> Vec<Arc<HandleInner>> {
    let taken = kept.extract_if(.., |(at, _)| matches(at));
    taken.map(|(_, handle)| handle).collect()
}
