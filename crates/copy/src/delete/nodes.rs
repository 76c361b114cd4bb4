//! Volumes and mount points of single nodes.

use ropeway_vfs::Metadata;

/// Entries taken from a listing at once.
pub(super) const CHUNK: usize = 1024;

/// Returns the volume on which a node lies, where the tree knows it.
pub(super) fn volume_of(metadata: &Metadata) -> Option<u64> {
    metadata.id.map(|id| id.volume)
}

/// Whether something is mounted at a folder: another volume, or a folder of the same one (bind mount). The number
/// of the volume tells too, where there are no mounts. (Files do not show it: overlayfs gives them the numbers of
/// its layers.)
pub(super) fn is_mount_point(metadata: &Metadata, parent_volume: Option<u64>) -> bool {
    let (volume, is_dir) = (volume_of(metadata), metadata.is_dir());
    let is_other = parent_volume.is_some() && volume.is_some() && volume != parent_volume;
    is_dir && (metadata.is_mount_root || is_other)
}
