//! Watches the changes below the root by CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19).

use std::pin::Pin;
use std::sync::Arc;

use ropeway_smb_wire::Text;
use ropeway_smb_wire::change_notify::{CompletionFilter, FileNotifyInformation};
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{Op, Pending, RelPath, Result};

use super::errors::tree_error;
use super::inner::Inner;
use super::paths;
use crate::error::{Error as ClientError, LostReason, Result as ClientResult};
use crate::handle::{Handle, watch_once};
use crate::open::OpenFile;
use crate::reopen::Opened;
use crate::tree::ATTEMPTS;

/// The changes that matter to a copy.
const FILTER: CompletionFilter = CompletionFilter::FILE_NAME
    .union(CompletionFilter::DIR_NAME)
    .union(CompletionFilter::ATTRIBUTES)
    .union(CompletionFilter::SIZE)
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::CREATION)
    .union(CompletionFilter::SECURITY)
    .union(CompletionFilter::STREAM_NAME)
    .union(CompletionFilter::STREAM_WRITE);

/// A CHANGE_NOTIFY in flight; it keeps its reply until it is polled.
type NotifyRequest =
    Pin<Box<dyn Future<Output = ClientResult<Option<Vec<FileNotifyInformation>>>> + Send + Sync>>;

/// A watch of the changes below a tree's root. The server records changes between two requests. It
/// records nothing before the first one or after a lost connection; then the caller must scan
/// everything.
pub struct SmbWatch {
    handle: Handle,
    below: bool,
    at: Opened,
    request: NotifyRequest,
}

impl SmbWatch {
    pub(super) async fn start(tree: &Arc<Inner>) -> Result<Self> {
        let root = RelPath::root();
        let started = Self::start_at(tree, &root, true).await?;
        started.map_err(|error| tree_error(Op::Watch, &root, error))
    }

    /// Watches a folder, and all that is beneath it if `below` is set.
    pub(crate) async fn start_at(
        tree: &Arc<Inner>,
        dir: &RelPath,
        below: bool,
    ) -> Result<ClientResult<Self>> {
        let text = tree.base.text(Op::Watch, dir)?;
        Ok(async {
            let handle = tree.share.open(&text, &OpenFile::directory()).await?;
            let (at, request) = start_request(&handle, below).await?;
            Ok(Self {
                handle,
                below,
                at,
                request,
            })
        }
        .await)
    }

    /// Waits for the next changes; `None` if some were lost. The server has the next request before
    /// this returns, or gets it with the next call.
    pub(crate) async fn next_changes(&mut self) -> ClientResult<Option<Vec<FileNotifyInformation>>> {
        // Cancel safe: the request stays in `self`.
        let Some(changes) = (&mut self.request).await? else {
            (self.at, self.request) = start_request(&self.handle, self.below).await?;
            return Ok(None);
        };
        self.request = request(&self.handle, &self.at, self.below);
        Ok(Some(changes).filter(|changes| !changes.is_empty()))
    }

    async fn changes(&mut self) -> ClientResult<Vec<Change>> {
        Ok(match self.next_changes().await? {
            Some(changes) => changes.iter().map(change_of).collect(),
            None => vec![Change::Overflow],
        })
    }
}

fn request(handle: &Handle, at: &Opened, below: bool) -> NotifyRequest {
    Box::pin(watch_once(Arc::clone(&handle.inner), at.clone(), FILTER, below))
}

/// Sends the first request on the current handle. On return the server has received it, and records
/// changes from then on.
async fn start_request(handle: &Handle, below: bool) -> ClientResult<(Opened, NotifyRequest)> {
    for _ in 0..ATTEMPTS {
        let at = handle.inner.opened().await?;
        let mut request = request(handle, &at, below);
        let heard = handle.share().stat(handle.path());
        tokio::select! {
            // Polled first, so that it is sent first: servers take requests in order ([MS-SMB2]
            // 3.3.5.19 answers it later).
            biased;
            changes = &mut request => {
                if let Some(changes) = changes? {
                    return Ok((at, Box::pin(std::future::ready(Ok(Some(changes))))));
                }
            }
            heard = heard => {
                heard?;
                return Ok((at, request));
            }
        }
    }
    Err(ClientError::Lost(LostReason::Closed))
}

/// Returns the changed path below the watched folder; a stream is changed with its file.
pub(crate) fn change_of(changes: &FileNotifyInformation) -> Change {
    // The name of a stream follows that of its file.
    let units = changes.file_name.units();
    let end = units
        .iter()
        .position(|unit| *unit == u16::from(b':'))
        .unwrap_or(units.len());
    let name = Text::from_units(units[..end].to_vec());
    paths::path_of(&name).map_or(Change::Overflow, Change::Path)
}

impl Watch for SmbWatch {
    fn next(&mut self) -> Pending<'_, Result<Vec<Change>>> {
        Box::pin(async {
            let changes = self.changes().await;
            changes.map_err(|error| tree_error(Op::Watch, &RelPath::root(), error))
        })
    }
}

impl std::fmt::Debug for SmbWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SmbWatch")
    }
}
