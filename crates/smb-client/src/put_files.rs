//! Many small files made with one request, where the server is this project's own (PUT_FILES,
//! docs/adr/0039).

use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateOperation, PrivateOperations};
use ropeway_smb_wire::fsctl::private_put::{
    PUT_FILES_MAX, PUT_INPUT_MAX, PUT_STATUS_LEN, PutFile, PutStatus, PutStep,
};
use tokio::sync::oneshot;

use crate::budget::Permit;
use crate::error::{Error, LostReason, Result};
use crate::share::Share;
use crate::together::{Added, Batch, Queue, Together};
use crate::tree::{Replay, ShareInner};

/// Makes small files whose names are new.
pub(crate) enum Puts {}

impl Together for Puts {
    type Answer = Result<PutStatus>;

    const OPERATION: PrivateOperation = PrivateOperation::PUT_FILES;
    const LISTED: PrivateOperations = PrivateOperations::PUT_FILES;
    const FILES_MAX: usize = PUT_FILES_MAX;
    const INPUT_MAX: usize = PUT_INPUT_MAX;
    // A status for each file.
    const OUTPUT_MAX: usize = PRIVATE_HEADER_LEN + PUT_FILES_MAX * PUT_STATUS_LEN;

    fn queue(share: &ShareInner) -> &Queue<Self> {
        &share.puts
    }

    async fn exchange(share: &ShareInner, batch: &Batch<Self>) -> Vec<Self::Answer> {
        exchange_once(share, batch).await
    }
}

/// Sends files that are made, whose names would not be new the second time.
pub(crate) async fn exchange_once<T>(share: &ShareInner, batch: &Batch<T>) -> Vec<Result<PutStatus>>
where
    T: Together<Answer = Result<PutStatus>>,
{
    let decode = |body: &[u8]| Ok(PutStatus::decode_list(body)?);
    match share.exchange_together(batch, Replay::Once, decode).await {
        Ok(statuses) => statuses.into_iter().map(Ok).collect(),
        Err(error) => (0..batch.len()).map(|_| Err(error.clone())).collect(),
    }
}

/// A file that is being made.
pub(crate) struct PutAnswer<'a> {
    answered: oneshot::Receiver<Result<PutStatus>>,
    _permit: Permit<'a>,
}

/// Returns whether times and attributes were set, or the error of an earlier step.
pub(crate) fn outcome_of(status: PutStatus) -> Result<Result<()>> {
    let failed = |op| Error::refused(op, status.status);
    match status.step {
        _ if status.status.is_success() => Ok(Ok(())),
        PutStep::CREATE => Err(failed("open")),
        PutStep::WRITE => Err(failed("write")),
        PutStep::FLUSH => Err(failed("flush")),
        PutStep::CLOSE => Err(failed("close")),
        _ => Ok(Err(failed("set times and attributes"))),
    }
}

impl PutAnswer<'_> {
    /// Waits until it is made. Returns whether times and attributes were set.
    ///
    /// # Errors
    /// The step that failed; what the steps before it made is left. After a lost connection nobody
    /// knows whether the file was made.
    pub(crate) async fn wait(self) -> Result<Result<()>> {
        // Without an answer the runtime that sends the batch has ended.
        let answer = self.answered.await;
        outcome_of(answer.map_err(|_| Error::Lost(LostReason::OutcomeUnknown))??)
    }
}

impl Share {
    /// Begins to make a file whose name is new. Its content is not needed any more.
    pub(crate) async fn put_together(&self, file: &PutFile<'_>) -> PutAnswer<'_> {
        let content = file.content.len() as u64;
        let budget = &self.client().link().budget;
        let permit = budget.acquire(content.max(1)).await;
        let added = Added {
            input: PutFile::len_of(&file.path, file.content.len()),
            output: PUT_STATUS_LEN,
            content,
            compared: 0,
        };
        PutAnswer {
            answered: self.gather::<Puts>(&added, |w| file.encode(w)),
            _permit: permit,
        }
    }
}
