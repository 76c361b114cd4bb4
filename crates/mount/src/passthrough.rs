//! Reads and writes that the kernel makes in a file of the disk by itself (FUSE_PASSTHROUGH, Linux 6.9).
//!
//! The kernel takes a descriptor and answers reads, writes and memory maps from it; everything else
//! still comes here. It accepts only one way for a file at a time: while a file is open, all its
//! handles pass through to one backing file, or none does. [`Ways`] keeps to that. The first
//! handle decides.
//!
//! The kernel writes with the rights of the thread that registered the descriptor. Root's right to
//! keep set-id bits of a changed file (CAP_FSETID) is left out of them, or a program could change
//! a set-id program of another user and it would stay one.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::fstat;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Set-user-id and set-group-id bits (inode(7)).
const SET_ID: u32 = 0o6000;

/// How the open files are read and written, by inode number. `B` is a registered descriptor.
pub(crate) struct Ways<B>(Mutex<HashMap<u64, Way<B>>>);

struct Way<B> {
    /// `None`: requests come here.
    backing: Option<Arc<B>>,
    handles: Vec<u64>,
}

impl<B> Default for Ways<B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<B> Ways<B> {
    /// Records a new handle of a file. Returns what it must pass through to, if it does; `register` is
    /// called for the first handle.
    pub(crate) fn opened(
        &self,
        ino: u64,
        handle: u64,
        register: impl FnOnce() -> Option<B>,
    ) -> Option<Arc<B>> {
        let mut ways = self.0.lock();
        let way = ways.entry(ino).or_insert_with(|| Way {
            backing: register().map(Arc::new),
            handles: Vec::new(),
        });
        way.handles.push(handle);
        way.backing.clone()
    }

    /// Records that a handle was closed.
    pub(crate) fn closed(&self, ino: u64, handle: u64) {
        let mut ways = self.0.lock();
        let Some(way) = ways.get_mut(&ino) else { return };
        way.handles.retain(|known| *known != handle);
        if way.handles.is_empty() {
            ways.remove(&ino);
        }
    }
}

/// Whether a file may be passed through. Programs' writes must take set-id bits away unless they have
/// the right to keep them, and the kernel cannot tell: such files stay here.
pub(crate) fn is_fit(descriptor: &OwnedFd) -> bool {
    fstat(descriptor).is_ok_and(|stat| stat.st_mode & SET_ID == 0)
}

/// Calls `register` without the right to keep set-id bits.
///
/// # Errors
/// Those of `register`; the thread's rights cannot be read or changed.
pub(crate) fn without_set_ids<T>(register: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let all = capabilities(None)?;
    if !all.effective.contains(CapabilitySet::FSETID) {
        return register();
    }
    let mut less = all;
    less.effective.remove(CapabilitySet::FSETID);
    set_capabilities(None, less)?;
    let registered = register();
    // The thread had them a moment ago and still may.
    set_capabilities(None, all)?;
    registered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_handles_of_a_file_go_one_way() {
        let ways = Ways::<u32>::default();
        assert_eq!(ways.opened(7, 1, || Some(50)).as_deref(), Some(&50));
        assert_eq!(ways.opened(7, 2, || unreachable!()).as_deref(), Some(&50));
        assert_eq!(ways.opened(8, 3, || None), None);
        assert_eq!(ways.opened(8, 4, || unreachable!()), None);
        ways.closed(7, 1);
        ways.closed(8, 3);
        assert_eq!(ways.opened(7, 5, || unreachable!()).as_deref(), Some(&50));
        assert_eq!(ways.opened(8, 6, || unreachable!()), None);
        for (ino, handle) in [(7, 2), (7, 5), (8, 4), (8, 6), (9, 7)] {
            ways.closed(ino, handle);
        }
        assert!(ways.0.lock().is_empty());
        assert_eq!(ways.opened(8, 8, || Some(60)).as_deref(), Some(&60));
    }

    #[test]
    fn rights_come_back() {
        let before = capabilities(None).unwrap();
        let inside = without_set_ids(|| Ok(capabilities(None).unwrap())).unwrap();
        assert!(!inside.effective.contains(CapabilitySet::FSETID));
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
