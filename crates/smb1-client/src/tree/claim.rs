//! Claims: files that are open while nobody else may open them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_block::Pool;
use ropeway_smb_client::NtStatus;
use ropeway_smb_client::common::tree_error;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use ropeway_vfs::claim::ClaimKind;
use ropeway_vfs::{Claim, ClaimAbove, Name, Op, Pending, RelPath, Result};

use super::Inner;
use crate::calls::OpenHow;
use crate::open_file::{OpenFile, close_detached};

/// Bytes of one read or write.
const PIECE: usize = 4096;

/// A claim that is held.
pub(super) struct Smb1Claim {
    tree: Arc<Inner>,
    path: RelPath,
    file: Arc<OpenFile>,
    length: AtomicU64,
}

fn exclusively(disposition: CreateDisposition) -> OpenHow {
    OpenHow {
        share: ShareAccess::empty(),
        disposition,
        options: CreateOptions::NON_DIRECTORY_FILE,
        ..OpenHow::existing(
            AccessMask::READ_DATA | AccessMask::WRITE_DATA | AccessMask::READ_ATTRIBUTES | AccessMask::DELETE,
        )
    }
}

impl Smb1Claim {
    pub(super) async fn take(tree: &Arc<Inner>, path: &RelPath, create: bool) -> Result<Self> {
        let text = tree.base.text(Op::Open, path)?;
        let disposition = match create {
            true => CreateDisposition::OpenIf,
            false => CreateDisposition::Open,
        };
        tree.wait_for_closes().await;
        let opened = OpenFile::open(&tree.share, &text, exclusively(disposition)).await;
        let file = tree.map_error(Op::Open, path, opened).await?;
        Ok(Self {
            tree: Arc::clone(tree),
            path: path.clone(),
            length: AtomicU64::new(file.created.end_of_file),
            file: Arc::new(file),
        })
    }
}

impl Drop for Smb1Claim {
    fn drop(&mut self) {
        let closing = Arc::clone(&self.tree.closes).try_read_owned().ok();
        close_detached(Arc::clone(&self.file), closing);
    }
}

impl Claim for Smb1Claim {
    fn kind(&self) -> ClaimKind {
        ClaimKind::Share
    }

    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>> {
        let length = usize::try_from(self.file.created.end_of_file).unwrap_or(usize::MAX);
        Box::pin(async move {
            let mut bytes = Vec::new();
            while bytes.len() < length.min(max) {
                let wanted = (length.min(max) - bytes.len()).min(PIECE);
                let read = self.file.read(bytes.len() as u64, wanted as u32).await;
                let read = read.and_then(|data| match &data {
                    Some(data) => data.bytes().map(<[u8]>::to_vec),
                    None => Ok(Vec::new()),
                });
                let piece = read.map_err(|error| tree_error(Op::Read, &self.path, error))?;
                if piece.is_empty() {
                    break;
                }
                bytes.extend(piece);
            }
            Ok(bytes)
        })
    }

    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            for piece in text.chunks(PIECE) {
                let mut block = Pool::new(PIECE, 1).get().await;
                block.capacity_mut()[..piece.len()].copy_from_slice(piece);
                block.set_len(piece.len());
                let at = self.length.fetch_add(piece.len() as u64, Ordering::AcqRel);
                let written = self.file.write(at, &block.freeze()).await;
                written.map_err(|error| tree_error(Op::Write, &self.path, error))?;
            }
            Ok(())
        })
    }

    fn remove(self: Box<Self>) -> Pending<'static, Result<()>> {
        Box::pin(async move {
            let marked = self.file.set_delete(true).await;
            self.file.close().await;
            marked.map_err(|error| tree_error(Op::Remove, &self.path, error))
        })
    }
}

impl Inner {
    /// Looks for a claim in the folders of the share above this tree.
    pub(super) async fn claim_above(&self, name: &Name) -> ClaimAbove {
        let mut found = ClaimAbove::Absent;
        for path in self.base.above(name) {
            match OpenFile::open(&self.share, &path, exclusively(CreateDisposition::Open)).await {
                Ok(file) => {
                    file.close().await;
                    found = ClaimAbove::Abandoned;
                }
                Err(error) => match error.status() {
                    Some(NtStatus::SHARING_VIOLATION) => return ClaimAbove::Held,
                    Some(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND) => {}
                    _ => found = ClaimAbove::Unknown,
                },
            }
        }
        found
    }
}
