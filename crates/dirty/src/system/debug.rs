//! The kernel's file systems for debugging: debugfs and tracefs.
//!
//! Where they are mounted they are used there. Otherwise root mounts them for this process alone: the
//! mount has no place in the tree, nobody else sees it, and it ends with the descriptor.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::text_in;
use crate::parse::bdi::{self, BdiStats, GroupStats};

/// Opens a folder of debugfs or tracefs. `usual`: where it is mounted usually.
pub(crate) fn open(kind: &str, usual: &[&str], inside: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for place in usual {
        match openat(CWD, Path::new(place).join(inside), flags, Mode::empty()) {
            Ok(folder) => return Ok(folder),
            Err(error) => why = error.into(),
        }
    }
    if why.kind() == io::ErrorKind::PermissionDenied {
        return Err(why);
    }
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(openat(&root, inside, flags, Mode::empty())?)
}

/// The folder `bdi` of debugfs.
#[derive(Debug)]
pub(crate) struct Bdis {
    folder: io::Result<OwnedFd>,
}

impl Bdis {
    pub(crate) fn open() -> Self {
        let folder = open("debugfs", &["/sys/kernel/debug"], "bdi");
        Self { folder }
    }

    /// Returns why there is none.
    pub(crate) fn missing(&self) -> Option<&io::Error> {
        self.folder.as_ref().err()
    }

    pub(crate) fn stats(&self, bdi: &str) -> Option<BdiStats> {
        BdiStats::parse(&self.file(bdi, "stats")?)
    }

    /// Returns the parts of cgroups; empty before Linux 6.10.
    pub(crate) fn groups(&self, bdi: &str) -> Vec<GroupStats> {
        self.file(bdi, "wb_stats")
            .map(|text| bdi::groups(&text))
            .unwrap_or_default()
    }

    /// Returns whether the kernel counts cgroups apart (Linux 6.10).
    pub(crate) fn has_groups(&self, bdi: &str) -> bool {
        self.file(bdi, "wb_stats").is_some()
    }

    fn file(&self, bdi: &str, name: &str) -> Option<String> {
        if bdi.contains('/') {
            return None;
        }
        text_in(self.folder.as_ref().ok()?, &format!("{bdi}/{name}")).ok()
    }
}
