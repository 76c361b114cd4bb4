//! Small files whose content is at the other end already, where the server is this project's own
//! (COPY_FILES and SAME_FILES, docs/adr/0040).

use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateOperation, PrivateOperations};
use ropeway_smb_wire::fsctl::private_get::{GOT_FIXED_LEN, GotFlags};
use ropeway_smb_wire::fsctl::private_put::{PUT_INPUT_MAX, PUT_STATUS_LEN, PutStatus, PutStep};
use ropeway_smb_wire::fsctl::private_same::{CopyFile, SAME_CONTENT_MAX, SAME_FILES_MAX, SameFile};

use crate::error::{Error, LostReason, Result};
use crate::get_files::{Got, exchange_reads};
use crate::open::Created;
use crate::put_files::{exchange_once, outcome_of};
use crate::share::Share;
use crate::together::{Added, Batch, Queue, Together};
use crate::tree::ShareInner;

/// Makes small files whose names are new from others of the share.
pub(crate) enum Copies {}

impl Together for Copies {
    type Answer = Result<PutStatus>;

    const OPERATION: PrivateOperation = PrivateOperation::COPY_FILES;
    const LISTED: PrivateOperations = PrivateOperations::COPY_FILES;
    const FILES_MAX: usize = SAME_FILES_MAX;
    const INPUT_MAX: usize = PUT_INPUT_MAX;
    const OUTPUT_MAX: usize = PRIVATE_HEADER_LEN + SAME_FILES_MAX * PUT_STATUS_LEN;
    const COMPARED_MAX: u64 = SAME_CONTENT_MAX;

    fn queue(share: &ShareInner) -> &Queue<Self> {
        &share.copies
    }

    async fn exchange(share: &ShareInner, batch: &Batch<Self>) -> Vec<Self::Answer> {
        exchange_once(share, batch).await
    }
}

/// Tells whether small files have a content.
pub(crate) enum Sames {}

impl Together for Sames {
    /// `None` if the file was not compared.
    type Answer = Result<Option<Box<Got>>>;

    const OPERATION: PrivateOperation = PrivateOperation::SAME_FILES;
    const LISTED: PrivateOperations = PrivateOperations::SAME_FILES;
    const FILES_MAX: usize = SAME_FILES_MAX;
    const INPUT_MAX: usize = PUT_INPUT_MAX;
    const OUTPUT_MAX: usize = PRIVATE_HEADER_LEN + SAME_FILES_MAX * GOT_FIXED_LEN;
    const COMPARED_MAX: u64 = SAME_CONTENT_MAX;

    fn queue(share: &ShareInner) -> &Queue<Self> {
        &share.sames
    }

    async fn exchange(share: &ShareInner, batch: &Batch<Self>) -> Vec<Self::Answer> {
        exchange_reads(share, batch).await
    }
}

impl Share {
    /// Makes a file whose name is new from another one of the share, if that has the content. `None` if
    /// nothing was made: the content must be sent. Otherwise returns whether times and attributes were set.
    ///
    /// # Errors
    /// The step that failed; what the steps before it made is left. After a lost connection nobody
    /// knows whether the file was made.
    pub(crate) async fn copy_together(&self, file: &CopyFile) -> Result<Option<Result<()>>> {
        let _permit = self.client().link().budget.acquire(1).await;
        let added = Added {
            input: CopyFile::len_of(&file.path, &file.from),
            output: PUT_STATUS_LEN,
            content: 0,
            compared: u64::from(file.length),
        };
        let answered = self.gather::<Copies>(&added, |w| file.encode(w));
        // Without an answer the runtime that sends the batch has ended.
        let answer = answered.await;
        let status = match answer.map_err(|_| Error::Lost(LostReason::OutcomeUnknown))? {
            Ok(status) => status,
            // The request as a whole.
            Err(Error::PeerRefused { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_made =
            status.status.is_success() || !matches!(status.step, PutStep::COMPARE | PutStep::CREATE);
        match is_made {
            true => outcome_of(status).map(Some),
            false => Ok(None),
        }
    }

    /// Asks whether a file has a content. Returns what the file is like then; `None` if it does not, or if
    /// the server cannot tell.
    ///
    /// # Errors
    /// The connection is lost; the server misbehaves.
    pub(crate) async fn same_together(&self, file: &SameFile) -> Result<Option<Created>> {
        let _permit = self.client().link().budget.acquire(1).await;
        let added = Added {
            input: SameFile::len_of(&file.path),
            output: GOT_FIXED_LEN,
            content: 0,
            compared: u64::from(file.length),
        };
        let answered = self.gather::<Sames>(&added, |w| file.encode(w));
        let answer = answered.await.map_err(|_| Error::Lost(LostReason::Closed))?;
        let same = answer?.filter(|got| got.flags.contains(GotFlags::SAME));
        Ok(same
            .map(|got| got.created)
            .filter(|created| created.end_of_file == u64::from(file.length)))
    }
}
