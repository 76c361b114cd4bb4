//! Share modes: what one open allows others ([MS-FSA] 2.1.5.1.2.2).

use ropeway_smb_wire::create::{AccessMask, ShareAccess};

/// What an open does and what it lets others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) access: AccessMask,
    pub(super) share: ShareAccess,
}

const READS: AccessMask =
    AccessMask::from_bits_retain(AccessMask::READ_DATA.bits() | AccessMask::EXECUTE.bits());
const WRITES: AccessMask =
    AccessMask::from_bits_retain(AccessMask::WRITE_DATA.bits() | AccessMask::APPEND_DATA.bits());

/// Rights that break no lease: those of [MS-FSA] 2.1.4.12, and on Windows READ_CONTROL (smb2.lease.statopen4).
const LEASE_STAT: AccessMask =
    AccessMask::from_bits_retain(OPLOCK_STAT.bits() | AccessMask::READ_CONTROL.bits());
/// Rights that break no oplock (smb2.oplock.statopen1).
const OPLOCK_STAT: AccessMask = AccessMask::from_bits_retain(
    AccessMask::READ_ATTRIBUTES.bits() | AccessMask::WRITE_ATTRIBUTES.bits() | AccessMask::SYNCHRONIZE.bits(),
);

impl Mode {
    /// Whether it reads, writes, deletes.
    pub(super) fn does(self) -> [bool; 3] {
        [READS, WRITES, AccessMask::DELETE].map(|what| self.access.intersects(what))
    }

    /// Whether the two may not be open together. Whoever neither reads, writes nor deletes is in nobody's way.
    pub(super) fn conflicts(self, other: Self) -> bool {
        let all = READS | WRITES | AccessMask::DELETE;
        self.access.intersects(all)
            && other.access.intersects(all)
            && (forbids(self.share, other.access) || forbids(other.share, self.access))
    }

    /// Whether the two may not be open together, one of a file's own content and one of a named stream: only deletion
    /// of the file concerns the stream (smb2.streams.delete).
    pub(super) fn conflicts_across(base: Self, stream: Self) -> bool {
        base.access.contains(AccessMask::DELETE)
            && stream.access.intersects(READS | WRITES | AccessMask::DELETE)
            && !stream.share.contains(ShareAccess::DELETE)
    }
}

fn forbids(share: ShareAccess, access: AccessMask) -> bool {
    access.intersects(READS) && !share.contains(ShareAccess::READ)
        || access.intersects(WRITES) && !share.contains(ShareAccess::WRITE)
        || access.contains(AccessMask::DELETE) && !share.contains(ShareAccess::DELETE)
}

/// An open that breaks no lease.
pub(super) fn is_lease_stat(access: AccessMask) -> bool {
    access.difference(LEASE_STAT).is_empty()
}

/// An open that breaks no oplock, and that keeps nobody from write caching.
pub(super) fn is_oplock_stat(access: AccessMask) -> bool {
    access.difference(OPLOCK_STAT).is_empty()
}
