//! The nodes of a memory tree.

use std::collections::BTreeMap;

use super::content::Content;
use super::writeback::Failures;
use super::{EPOCH, Shared};
use crate::{FileId, Kind, Loss, Metadata, MetadataChange, Name, Owner, Timestamp, Xattr};

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) attributes: Attributes,
    /// Number of names that lead to it.
    pub(super) links: u64,
    /// Number of open files on it.
    pub(super) open: u32,
    /// Failures of its write-back.
    pub(super) failures: Failures,
    /// Attributes that surely survive a power cut; only with the crash model.
    pub(super) durable: Option<Attributes>,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Content),
    Directory(Entries),
    Symlink(Vec<u8>),
    Special { kind: Kind, device: Option<(u32, u32)> },
}

/// A folder's entries by key (see `names::key`): the name as given, and the node.
pub(super) type Entries = BTreeMap<Vec<u8>, (Name, u64)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) owner: Owner,
    pub(super) modified: Timestamp,
    pub(super) accessed: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) created: Timestamp,
    pub(super) dos: Option<u32>,
    pub(super) xattrs: Vec<Xattr>,
}

/// Name of the attribute that holds a file's capabilities (capabilities(7)).
const CAPABILITY: &[u8] = b"security.capability";

/// Prefix of the attributes that hold POSIX ACLs (acl(5)).
const ACL_PREFIX: &[u8] = b"system.posix_acl_";

impl Attributes {
    pub(super) fn new(mode: u32, now: Timestamp) -> Self {
        Self {
            mode,
            owner: Owner { user: 0, group: 0 },
            modified: now,
            accessed: now,
            changed: now,
            created: now,
            dos: None,
            xattrs: Vec::new(),
        }
    }

    /// Applies a change in the order that `MetadataChange` prescribes. Returns what could not be
    /// kept.
    pub(super) fn apply(
        &mut self,
        shared: &Shared,
        kind: Kind,
        change: &MetadataChange,
        now: Timestamp,
    ) -> Vec<Loss> {
        let can = &shared.capabilities;
        let mut losses = Vec::new();
        if let Some(owner) = change.owner {
            if can.owners {
                self.owner = owner;
                // chown(2) clears set-id bits and capabilities of a file.
                if kind == Kind::File {
                    self.mode &= !0o6000;
                    self.xattrs.retain(|xattr| xattr.name != CAPABILITY);
                }
            } else {
                losses.push(Loss::Owner);
            }
        }
        // As on Linux, the permission bits of a symbolic link mean nothing and cannot be set.
        if let Some(mode) = change.mode.filter(|_| kind != Kind::Symlink) {
            if can.modes {
                self.mode = mode & 0o7777;
            } else {
                losses.push(Loss::Mode);
            }
        }
        if let Some(xattrs) = &change.xattrs {
            if can.xattrs {
                self.xattrs = xattrs.clone();
                self.xattrs.sort();
            } else {
                losses.extend(xattrs.iter().map(|xattr| loss_of(&xattr.name)));
            }
        }
        if let Some(dos) = change.dos_attributes {
            self.dos = Some(dos);
        }
        if let Some(created) = change.created {
            self.created = shared.rounded(created);
        }
        if let Some(accessed) = change.accessed {
            self.accessed = shared.rounded(accessed);
        }
        if let Some(modified) = change.modified {
            self.modified = shared.rounded(modified);
        }
        self.changed = now;
        losses
    }
}

fn loss_of(xattr: &[u8]) -> Loss {
    if xattr == CAPABILITY {
        Loss::Capability
    } else if xattr.starts_with(ACL_PREFIX) {
        Loss::Acl
    } else {
        Loss::Xattr
    }
}

impl Node {
    pub(super) fn new(body: Body, attributes: Attributes, crash_model: bool) -> Self {
        Self {
            body,
            durable: crash_model.then(|| attributes.clone()),
            attributes,
            links: 0,
            open: 0,
            failures: Failures::default(),
        }
    }

    pub(super) fn root() -> Self {
        Self {
            links: 1,
            ..Self::new(
                Body::Directory(Entries::new()),
                Attributes::new(0o755, EPOCH),
                false,
            )
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special { kind, .. } => *kind,
        }
    }

    pub(super) fn metadata(&self, shared: &Shared, index: u64) -> Metadata {
        let can = &shared.capabilities;
        let (size, allocated, device) = match &self.body {
            Body::File(content) if !can.sparse => (content.size(), content.size(), None),
            Body::File(content) => (content.size(), content.allocated(), None),
            Body::Symlink(text) => (text.len() as u64, 0, None),
            Body::Directory(_) => (0, 0, None),
            Body::Special { device, .. } => (0, 0, *device),
        };
        Metadata {
            kind: self.kind(),
            size,
            allocated: Some(allocated),
            mode: can.modes.then_some(self.attributes.mode),
            owner: can.owners.then_some(self.attributes.owner),
            modified: self.attributes.modified,
            accessed: Some(self.attributes.accessed),
            changed: Some(self.attributes.changed),
            created: Some(self.attributes.created),
            id: can.stable_ids.then_some(FileId {
                volume: shared.volume,
                index,
            }),
            // A folder has links from its own and its subfolders' `.` and `..`. As on btrfs, none
            // of them counts.
            links: self.links.max(1),
            device,
            dos_attributes: self.attributes.dos,
            has_xattrs: None,
            is_mount_root: false,
        }
    }
}
