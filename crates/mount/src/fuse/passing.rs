//! Answers to opens: the file passes through to one of the disk, or its requests come here.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{BackingId, FileAttr, FileHandle, FopenFlags, ReplyCreate, ReplyOpen};

use super::GENERATION;
use crate::fs::Fs;
use crate::passthrough::{self, Ways};

/// The files that pass through.
pub(super) struct Passing {
    fs: Arc<Fs>,
    ways: Ways<BackingId>,
    /// Whether files may pass through, and the kernel has not refused it.
    is_on: AtomicBool,
}

impl Passing {
    pub(super) fn new(fs: Arc<Fs>, is_on: bool) -> Self {
        Self {
            fs,
            ways: Ways::default(),
            is_on: AtomicBool::new(is_on),
        }
    }

    /// Whether the kernel should be asked for it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Records what the kernel said.
    pub(super) fn configured(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Answers an open. The kernel may keep what it has in memory of a file if `is_kept`.
    pub(super) fn opened(&self, ino: u64, handle: u64, is_kept: bool, reply: ReplyOpen) {
        let way = self.way(ino, handle, |descriptor| reply.open_backing(descriptor));
        let (handle, none) = (FileHandle(handle), FopenFlags::empty());
        match (way, is_kept) {
            (Some(backing), _) => reply.opened_passthrough(handle, none, &backing),
            (None, true) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
            (None, false) => reply.opened(handle, none),
        }
    }

    /// Answers a create.
    pub(super) fn created(&self, attributes: &FileAttr, handle: u64, reply: ReplyCreate) {
        let register = |descriptor: &OwnedFd| reply.open_backing(descriptor);
        let way = self.way(attributes.ino.0, handle, register);
        let (lifetime, handle, none) = (self.fs.lifetime(), FileHandle(handle), FopenFlags::empty());
        match way {
            Some(backing) => {
                reply.created_passthrough(&lifetime, attributes, GENERATION, handle, none, &backing);
            }
            None => reply.created(&lifetime, attributes, GENERATION, handle, none),
        }
    }

    /// Records that a handle was closed.
    pub(super) fn closed(&self, ino: u64, handle: u64) {
        self.ways.closed(ino, handle);
    }

    /// Returns what a new handle passes through to, if it does.
    fn way(
        &self,
        ino: u64,
        handle: u64,
        register: impl FnOnce(&OwnedFd) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let backing = self.ways.opened(ino, handle, || {
            let descriptor = self.is_wanted().then(|| self.fs.content_descriptor(handle))??;
            if !passthrough::is_fit(&descriptor) {
                return None;
            }
            match passthrough::without_set_ids(|| register(&descriptor)) {
                Ok(backing) => Some(backing),
                Err(error) => {
                    // Only root may. Other errors concern one file: it is on a stacked file system.
                    if error.kind() == io::ErrorKind::PermissionDenied {
                        self.configured(false);
                    }
                    None
                }
            }
        });
        if backing.is_some() {
            self.fs.passed(handle);
        }
        backing
    }
}
