//! Many small files read with one request, where the server is this project's own (GET_FILES,
//! docs/adr/0039).

use ropeway_block::BlockMut;
use ropeway_smb_wire::create::CreateAction;
use ropeway_smb_wire::fsctl::private::{PrivateOperation, PrivateOperations};
use ropeway_smb_wire::fsctl::private_get::{
    GET_FILES_MAX, GET_OUTPUT_MAX, GOT_FIXED_LEN, GetFile, GotFile, GotFlags,
};
use ropeway_smb_wire::fsctl::private_put::PUT_INPUT_MAX;
use ropeway_smb_wire::info::FileBasicInformation;

use crate::error::{Error, LostReason, Result};
use crate::open::Created;
use crate::share::Share;
use crate::small::GotSmall;
use crate::together::{Added, Batch, Queue, Together};
use crate::tree::{Replay, ShareInner};

/// Reads small files.
pub(crate) enum Gets {}

impl Together for Gets {
    /// `None` if the file was not read: the long way tells why, or reads it.
    type Answer = Result<Option<Box<Got>>>;

    const OPERATION: PrivateOperation = PrivateOperation::GET_FILES;
    const LISTED: PrivateOperations = PrivateOperations::GET_FILES;
    const FILES_MAX: usize = GET_FILES_MAX;
    const INPUT_MAX: usize = PUT_INPUT_MAX;
    const OUTPUT_MAX: usize = GET_OUTPUT_MAX;

    fn queue(share: &ShareInner) -> &Queue<Self> {
        &share.gets
    }

    async fn exchange(share: &ShareInner, batch: &Batch<Self>) -> Vec<Self::Answer> {
        exchange_reads(share, batch).await
    }
}

/// Sends files that are read.
pub(crate) async fn exchange_reads<T>(share: &ShareInner, batch: &Batch<T>) -> Vec<Result<Option<Box<Got>>>>
where
    T: Together<Answer = Result<Option<Box<Got>>>>,
{
    let decode = |body: &[u8]| -> Result<Vec<Option<Box<Got>>>> {
        let files = GotFile::decode_list(body)?;
        Ok(files.into_iter().map(Got::of).collect())
    };
    match share.exchange_together(batch, Replay::Safe, decode).await {
        Ok(files) => files.into_iter().map(Ok).collect(),
        Err(error) => (0..batch.len()).map(|_| answer_of(&error)).collect(),
    }
}

/// Returns what a caller learns after an error of the whole request. One file may have been at fault: a
/// request that was refused or not answered in time says nothing of the others.
fn answer_of(error: &Error) -> Result<Option<Box<Got>>> {
    match error {
        Error::PeerRefused { .. } | Error::Lost(LostReason::TimedOut) => Ok(None),
        error => Err(error.clone()),
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) created: Created,
    pub(crate) flags: GotFlags,
    content: Box<[u8]>,
}

impl Got {
    fn of(file: GotFile<'_>) -> Option<Box<Self>> {
        let info = file.info;
        file.status.is_success().then(|| {
            Box::new(Self {
                created: Created {
                    action: CreateAction::OPENED,
                    basic: FileBasicInformation {
                        creation_time: info.creation_time,
                        last_access_time: info.last_access_time,
                        last_write_time: info.last_write_time,
                        change_time: info.change_time,
                        attributes: info.attributes,
                    },
                    allocation_size: info.allocation_size,
                    end_of_file: info.end_of_file,
                    on_disk_id: None,
                    maximal_access: None,
                    durable: false,
                    private: None,
                },
                flags: file.flags,
                content: file.content.into(),
            })
        })
    }
}

impl Share {
    /// Reads a small file together with those of other callers. `None` if it was not read: the long way
    /// tells why, or reads it. The block holds what was asked for.
    ///
    /// # Errors
    /// The connection is lost; the server misbehaves.
    pub(crate) async fn get_together(
        &self,
        file: &GetFile,
        block: &mut BlockMut,
    ) -> Result<Option<GotSmall>> {
        let length = file.length as usize;
        let budget = &self.client().link().budget;
        let _permit = budget.acquire(u64::from(file.length).max(1)).await;
        let added = Added {
            input: GetFile::len_of(&file.path),
            output: GOT_FIXED_LEN + length,
            content: u64::from(file.length),
            compared: 0,
        };
        let answered = self.gather::<Gets>(&added, |w| file.encode(w));
        // Without an answer the runtime that sends the batch has ended.
        let answer = answered.await.map_err(|_| Error::Lost(LostReason::Closed))?;
        let Some(got) = answer? else { return Ok(None) };
        let count = got.content.len();
        if count > length {
            let text = "it returned more of a file than was asked for";
            return Err(Error::PeerMisbehaved(text.to_owned()));
        }
        block.capacity_mut()[..count].copy_from_slice(&got.content);
        block.set_len(count);
        Ok(Some(GotSmall {
            created: got.created,
            changed: got.flags.contains(GotFlags::CHANGED),
        }))
    }
}
