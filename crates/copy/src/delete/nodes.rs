//! Volumes and mount points of single nodes.

use ropeway_vfs::Metadata;

/// Entries taken from a listing at once.
pub(super) const CHUNK: usize = 1024;

/// Returns the volume on which a node lies, where the tree knows it.
pub(super) fn volume_of(metadata: &Metadata) -> Option<u64> {
    metadata.id.map(|id| id.volume)
}

/// Whether a folder is the root of another volume than that of its parent. (Files do not show it:
/// overlayfs gives them the numbers of its layers.)
pub(super) fn is_mount_point(metadata: &Metadata, parent_volume: Option<u64>) -> bool {
    let (volume, is_dir) = (volume_of(metadata), metadata.is_dir());
    is_dir && parent_volume.is_some() && volume.is_some() && volume != parent_volume
}
