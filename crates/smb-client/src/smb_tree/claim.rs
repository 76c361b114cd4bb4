//! Claims on a share: an open that denies all sharing. It is not durable, so it ends with the
//! holder's last connection. After a lost connection the next use opens it again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::{CreateDisposition, CreateOptions, ShareAccess};
use ropeway_smb_wire::info::FileDispositionInformation;
use ropeway_vfs::{Claim, ClaimAbove, ClaimKind, Name, Op, Pending, RelPath, Result};

use super::errors::tree_error;
use super::inner::Inner;
use super::paths;
use crate::handle::Handle;
use crate::open::OpenFile;

pub(super) struct SmbClaim {
    tree: Arc<Inner>,
    handle: Handle,
    path: RelPath,
    length: AtomicU64,
}

/// Returns the parameters of an open that denies all sharing and ends with its connection.
fn exclusively(disposition: CreateDisposition) -> OpenFile {
    let mut open = OpenFile::write(disposition);
    open.share = ShareAccess::default();
    open.durable = false;
    open.options |= CreateOptions::OPEN_REPARSE_POINT;
    open
}

impl SmbClaim {
    pub(super) async fn take(tree: &Arc<Inner>, path: &RelPath, create: bool) -> Result<Self> {
        let text = tree.base.text(Op::Open, path)?;
        let disposition = match create {
            true => CreateDisposition::OpenIf,
            false => CreateDisposition::Open,
        };
        let opened = tree.share.open(&text, &exclusively(disposition)).await;
        let handle = tree.map_error(Op::Open, path, opened).await?;
        Ok(Self {
            tree: Arc::clone(tree),
            length: AtomicU64::new(handle.created().end_of_file),
            handle,
            path: path.clone(),
        })
    }
}

impl Claim for SmbClaim {
    fn kind(&self) -> ClaimKind {
        ClaimKind::Share
    }

    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>> {
        Box::pin(async move {
            let length = usize::try_from(self.length.load(Ordering::Acquire)).unwrap_or(max);
            let mut bytes = Vec::new();
            while bytes.len() < length.min(max) {
                let block = self.tree.scratch.get().await;
                let wanted = (length.min(max) - bytes.len()).min(block.capacity());
                let wanted = wanted.min(self.tree.share.limits().read_max as usize);
                let (block, result) = self.handle.read_at(bytes.len() as u64, block, wanted).await;
                result.map_err(|error| tree_error(Op::Read, &self.path, error))?;
                if block.is_empty() {
                    break;
                }
                bytes.extend_from_slice(&block);
            }
            Ok(bytes)
        })
    }

    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let mut rest = text;
            while !rest.is_empty() {
                let mut block = self.tree.scratch.get().await;
                let most = block.capacity().min(self.tree.share.limits().write_max as usize);
                let (part, after) = rest.split_at(rest.len().min(most));
                block.capacity_mut()[..part.len()].copy_from_slice(part);
                block.set_len(part.len());
                let at = self.length.fetch_add(part.len() as u64, Ordering::AcqRel);
                let written = self.handle.write_at(at, block.freeze()).await;
                written.map_err(|error| tree_error(Op::Write, &self.path, error))?;
                rest = after;
            }
            Ok(())
        })
    }

    fn remove(self: Box<Self>) -> Pending<'static, Result<()>> {
        Box::pin(async move {
            let Self {
                handle, path, tree, ..
            } = *self;
            tree.note_change(&path);
            let marked = handle
                .set(&FileDispositionInformation { delete_pending: true })
                .await;
            let closed = handle.close().await;
            let removed = marked.and(closed);
            removed.map_err(|error| tree_error(Op::Remove, &path, error))
        })
    }
}

impl Inner {
    /// Looks for a claim in the folders of the share above this tree.
    pub(super) async fn claim_above(&self, name: &Name) -> ClaimAbove {
        let mut found = ClaimAbove::Absent;
        for path in self.base.above(name) {
            let opened = self
                .share
                .open(&path, &exclusively(CreateDisposition::Open))
                .await;
            match opened {
                Ok(_) => found = ClaimAbove::Abandoned,
                Err(error) => match error.status() {
                    Some(NtStatus::SHARING_VIOLATION) => return ClaimAbove::Held,
                    Some(NtStatus::OBJECT_NAME_NOT_FOUND | NtStatus::OBJECT_PATH_NOT_FOUND) => {}
                    _ => found = ClaimAbove::Unknown,
                },
            }
        }
        found
    }

    /// Returns the names in a folder that start with `prefix`. The server filters them.
    pub(super) async fn names_with_prefix(&self, dir: &RelPath, prefix: &[u8]) -> Result<Vec<Name>> {
        let text = self.base.text(Op::List, dir)?;
        let pattern = paths::pattern_of(prefix);
        let listed = self.share.list_matching(&text, &pattern).await;
        let mut directory = self.map_error(Op::List, dir, listed).await?;
        let mut found = Vec::new();
        while let Some(records) = directory
            .next()
            .await
            .map_err(|error| tree_error(Op::List, dir, error))?
        {
            let names = records.iter().filter_map(|record| paths::name_of(&record.name));
            found.extend(names.filter(|name| name.as_bytes().starts_with(prefix)));
        }
        Ok(found)
    }
}
