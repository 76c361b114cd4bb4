//! Content shared between files of one server (ReFS, btrfs, XFS): FSCTL_DUPLICATE_EXTENTS_TO_FILE ([MS-FSCC] 2.3.7).
//!
//! What servers ask for: the target has its length before; whole clusters, of which the last may reach beyond both files'
//! ends (Windows) or may not (Samba, which takes the end of the file instead); a target that is sparse if the source
//! is; the same state of checksums on both (ReFS).

use std::sync::atomic::Ordering;

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::ranges::Integrity;
use ropeway_vfs::{File, Op, Result};

use super::SmbFile;
use super::ranges::encoded;
use crate::Error as ClientError;
use crate::copying::is_unsupported;

/// Bytes of one request: below 4 GiB, ReFS' bound, and whole clusters of any size.
const CLONE_MAX: u64 = 1 << 30;

/// Lengths to try, in this order, for a range whose end is the file's or a whole cluster's.
fn lengths(length: u64, cluster: u64, by_clusters: bool) -> impl Iterator<Item = u64> {
    let whole = match cluster {
        0 => length,
        cluster => length.checked_next_multiple_of(cluster).unwrap_or(length),
    };
    let (first, second) = if by_clusters {
        (whole, length)
    } else {
        (length, whole)
    };
    std::iter::once(first).chain((second != first).then_some(second))
}

fn is_refused(error: &ClientError) -> bool {
    let unknown = [NtStatus::FILE_CLOSED, NtStatus::INVALID_HANDLE];
    is_unsupported(error) || error.status().is_some_and(|status| unknown.contains(&status))
}

impl SmbFile {
    /// Shares the whole content where the file system can. What of it the server then does not share after all is copied
    /// there; `false` if it shares nothing.
    pub(super) async fn clone_from_file(&self, source: &dyn File) -> Result<bool> {
        let Some(source) = self.same_server(source).filter(|_| self.tree.may_reflink) else {
            return Ok(false);
        };
        let size = source.size(Op::CopyRange).await?;
        if source.sparse.load(Ordering::Acquire) {
            self.make_sparse().await;
        }
        if self.tree.has_integrity {
            self.take_integrity(source).await;
        }
        self.cut(size).await?;
        let mut at = 0;
        while at < size {
            let length = CLONE_MAX.min(size - at);
            if self.share_range(source, at, length).await? {
                at += length;
                continue;
            }
            if at == 0 {
                tracing::debug!(path = %self.path(), "the server does not share this content");
                return Ok(false);
            }
            match self.copy_inside(source, at, length).await? {
                Some(copied) if copied > 0 => at += copied,
                // Carried whole, over what is shared.
                _ => return Ok(false),
            }
        }
        tracing::debug!(path = %self.path(), size, "content is shared");
        Ok(true)
    }

    /// One request, with the length as it is or in whole clusters; `false` if the server takes neither.
    async fn share_range(&self, source: &SmbFile, at: u64, length: u64) -> Result<bool> {
        let by_clusters = &self.tree.clones_by_clusters;
        let lengths = lengths(length, self.tree.cluster, by_clusters.load(Ordering::Relaxed));
        for count in lengths {
            let shared = self
                .handle()
                .duplicate_extents(source.handle(), at, at, count)
                .await;
            match shared {
                Ok(()) => {
                    if count != length {
                        by_clusters.store(true, Ordering::Relaxed);
                    }
                    return Ok(true);
                }
                Err(error) if is_refused(&error) => {}
                Err(error) => return Err(self.fault(Op::CopyRange, error)),
            }
        }
        Ok(false)
    }

    /// Gives this file the source's state of checksums; best effort, since a server that minds refuses to share.
    async fn take_integrity(&self, source: &SmbFile) {
        let (get, set) = (
            CtlCode::GET_INTEGRITY_INFORMATION,
            CtlCode::SET_INTEGRITY_INFORMATION,
        );
        let of = |bytes: crate::Result<Vec<u8>>| Integrity::decode(&bytes.ok()?).ok();
        let wanted = of(source.handle().ioctl(get, &[], 16).await);
        let own = of(self.handle().ioctl(get, &[], 16).await);
        if let Some(wanted) = wanted.filter(|wanted| own.as_ref() != Some(wanted)) {
            _ = self.handle().ioctl(set, &encoded(|w| wanted.encode(w)), 0).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cluster_is_tried_both_ways() {
        let of = |length, cluster, whole| lengths(length, cluster, whole).collect::<Vec<_>>();
        assert_eq!(of(5000, 4096, false), [5000, 8192]);
        assert_eq!(of(5000, 4096, true), [8192, 5000]);
        assert_eq!(of(8192, 4096, false), [8192]);
        assert_eq!(of(5000, 0, false), [5000], "a share that does not say");
        assert_eq!(of(CLONE_MAX, 1 << 21, true), [CLONE_MAX]);
    }
}
