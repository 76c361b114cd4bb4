//! Changes below the root, by CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19).

use std::pin::Pin;
use std::sync::Arc;

use ropeway_smb_wire::Text;
use ropeway_smb_wire::change_notify::{CompletionFilter, FileNotifyInformation};
use ropeway_vfs::tree::{Change, Watch};
use ropeway_vfs::{Op, Pending, RelPath, Result};

use super::errors::fault;
use super::{Inner, paths};
use crate::handle::watch_at;
use crate::opened::Opened;
use crate::tree::ATTEMPTS;
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

/// A question under way at the server; its answer stays in it until somebody asks.
type Question =
    Pin<Box<dyn Future<Output = crate::Result<Option<Vec<FileNotifyInformation>>>> + Send + Sync>>;

/// The changes below a tree's root. The server keeps what happens between two questions; before the first one and after
/// a lost connection it keeps nothing, and then all has to be looked at.
pub struct SmbWatch {
    handle: Handle,
    at: Opened,
    question: Question,
}

impl SmbWatch {
    pub(super) async fn start(tree: &Arc<Inner>) -> Result<Self> {
        let root = RelPath::root();
        let text = tree.base.text(Op::Watch, &root)?;
        let started = async {
            let handle = tree.share.open(&text, &OpenFile::directory()).await?;
            let (at, question) = asked(&handle).await?;
            Ok(Self { handle, at, question })
        };
        started.await.map_err(|error| fault(Op::Watch, &root, error))
    }

    async fn changes(&mut self) -> crate::Result<Vec<Change>> {
        // Nobody loses an answer by waiting for it no longer: the question is kept.
        let Some(told) = (&mut self.question).await? else {
            (self.at, self.question) = asked(&self.handle).await?;
            return Ok(vec![Change::Overflow]);
        };
        self.question = question(&self.handle, &self.at);
        if told.is_empty() {
            return Ok(vec![Change::Overflow]);
        }
        Ok(told.iter().map(change_of).collect())
    }
}

fn question(handle: &Handle, at: &Opened) -> Question {
    Box::pin(watch_at(Arc::clone(&handle.inner), at.clone(), FILTER))
}

/// Asks for the first time at the open that there is now; when this returns, the server has heard the question, and keeps
/// what changes from then on.
async fn asked(handle: &Handle) -> crate::Result<(Opened, Question)> {
    for _ in 0..ATTEMPTS {
        let at = handle.inner.opened().await?;
        let mut question = question(handle, &at);
        let heard = handle.share().stat(handle.path());
        tokio::select! {
            // First, so that it is sent first: requests are taken in their order ([MS-SMB2] 3.3.5.19 answers it later).
            biased;
            told = &mut question => {
                if let Some(told) = told? {
                    return Ok((at, Box::pin(std::future::ready(Ok(Some(told))))));
                }
            }
            heard = heard => {
                heard?;
                return Ok((at, question));
            }
        }
    }
    Err(crate::Error::Lost(crate::LostReason::Closed))
}

fn change_of(told: &FileNotifyInformation) -> Change {
    // A stream is named behind its file.
    let units = told.file_name.units();
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
            changes.map_err(|error| fault(Op::Watch, &RelPath::root(), error))
        })
    }
}

impl std::fmt::Debug for SmbWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SmbWatch")
    }
}
