//! Changes below the root, by CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19).

use std::sync::Arc;

use ropeway_smb_proto::wire::change_notify::CompletionFilter;
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{Op, Pending, RelPath, Result};

use super::errors::fault;
use super::{Inner, paths};
use crate::{Handle, OpenFile};

/// What a copy has to know of.
const FILTER: CompletionFilter = CompletionFilter::FILE_NAME
    .union(CompletionFilter::DIR_NAME)
    .union(CompletionFilter::ATTRIBUTES)
    .union(CompletionFilter::SIZE)
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::CREATION)
    .union(CompletionFilter::SECURITY)
    .union(CompletionFilter::STREAM_NAME)
    .union(CompletionFilter::STREAM_WRITE);

/// The changes below a tree's root. The server keeps what happens between two questions.
pub struct SmbWatch {
    handle: Handle,
    /// A watch begins at the server with its first question, so the first answer cannot be known to be all.
    first: bool,
}

impl SmbWatch {
    pub(super) async fn start(tree: &Arc<Inner>) -> Result<Self> {
        let root = RelPath::root();
        let text = tree.base.text(Op::Watch, &root)?;
        let handle = tree.share.open(&text, &OpenFile::directory()).await;
        Ok(Self {
            handle: handle.map_err(|error| fault(Op::Watch, &root, error))?,
            first: true,
        })
    }

    async fn changes(&mut self) -> Result<Vec<Change>> {
        if std::mem::take(&mut self.first) {
            // What changed between the call that made this watch and the first question is not told; so all is looked
            // at once.
            return Ok(vec![Change::Overflow]);
        }
        let told = self.handle.watch(FILTER, true).await;
        let told = told.map_err(|error| fault(Op::Watch, &RelPath::root(), error))?;
        let mut changes = Vec::with_capacity(told.len());
        for change in told {
            // A stream is named behind its file.
            let units = change.file_name.units();
            let end = units
                .iter()
                .position(|unit| *unit == u16::from(b':'))
                .unwrap_or(units.len());
            let name = ropeway_smb_proto::wire::Text::from_units(units[..end].to_vec());
            match paths::path_of(&name) {
                Some(path) => changes.push(Change::Path(path)),
                None => changes.push(Change::Overflow),
            }
        }
        if changes.is_empty() {
            changes.push(Change::Overflow);
        }
        Ok(changes)
    }
}

impl Watch for SmbWatch {
    fn next(&mut self) -> Pending<'_, Result<Vec<Change>>> {
        Box::pin(self.changes())
    }
}

impl std::fmt::Debug for SmbWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SmbWatch")
    }
}
