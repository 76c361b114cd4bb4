//! Small files of many callers that go together in one request, where the server is this project's own
//! (docs/adr/0039): [`put_files`](crate::put_files), [`get_files`](crate::get_files) and
//! [`same_files`](crate::same_files).
//!
//! Files that are asked for at the same time gather for a part of a round trip, and go together. Each
//! caller learns what became of its own file. A lone file goes at once, in its own compound.
//!
//! ```text
//! caller ─┐                                             ┌─ answer
//! caller ─┼─> Batch ─ full, or after a few ms ─ IOCTL ──┼─ answer
//! caller ─┘                                             └─ answer
//! ```

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_smb_proto::client::Operation;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateOperation, PrivateOperations};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::{FileId, NtStatus, Writer};
use tokio::sync::oneshot;

use crate::channel::Load;
use crate::error::{Error, Result};
use crate::ops;
use crate::private::{begin_input, body_of};
use crate::replies::first;
use crate::share::Share;
use crate::tree::{Replay, ShareInner, Tree};

/// Longest file that goes with others, with its path: it is copied once more for that. Three fit into a
/// request. With 8 KiB 100,000 files of 1 to 16 KiB took half as long again on a line of 1 Gbit/s and 100 ms that
/// lost 1 %: each request alone is one more that may be lost, and then those behind it wait, too.
pub(crate) const LENGTH_MAX: usize = 18 << 10;
/// Fewer files at the same time than this go each in its own compound, which nothing delays. A guess.
const TOGETHER_MIN: u64 = 16;
/// Files gather for this part of a round trip, and for no longer than [`GATHER_MAX`].
const GATHER_PART: u32 = 32;
const GATHER_MAX: Duration = Duration::from_millis(4);

/// An operation on many small files.
pub(crate) trait Together: Send + Sync + Sized + 'static {
    /// What a caller learns.
    type Answer: Send + 'static;

    /// The private control.
    const OPERATION: PrivateOperation;
    /// The same, as servers list it.
    const LISTED: PrivateOperations;
    /// Most files of a request.
    const FILES_MAX: usize;
    /// Most bytes of a request's input.
    const INPUT_MAX: usize;
    /// Most bytes of a reply's output.
    const OUTPUT_MAX: usize;
    /// Most bytes that the server compares for a request.
    const COMPARED_MAX: u64 = 0;

    /// The files of a share that gather.
    fn queue(share: &ShareInner) -> &Queue<Self>;

    /// Sends a batch, and returns what each caller learns.
    fn exchange(share: &ShareInner, batch: &Batch<Self>) -> impl Future<Output = Vec<Self::Answer>> + Send;
}

/// A file that a caller adds to a batch.
pub(crate) struct Added {
    /// Its length in bytes in the request.
    pub(crate) input: usize,
    /// Its length in bytes in the reply.
    pub(crate) output: usize,
    /// Bytes of content.
    pub(crate) content: u64,
    /// Bytes that the server compares, at most [`Together::COMPARED_MAX`].
    pub(crate) compared: u64,
}

/// The files of a share that gather for a request.
pub(crate) struct Queue<T: Together> {
    /// Callers at work.
    callers: Arc<AtomicU64>,
    gathering: Mutex<Batch<T>>,
}

impl<T: Together> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            callers: Arc::default(),
            gathering: Mutex::new(Batch::empty(0)),
        }
    }

    /// Notes that a caller has a small file, until this is dropped.
    pub(crate) fn enter(&self) -> Load {
        Load::new(&self.callers, 1)
    }

    /// Takes the batch with this number, if it still gathers.
    fn take(&self, number: u64) -> Option<Batch<T>> {
        let mut gathering = self.gathering.lock();
        (gathering.number == number).then(|| gathering.take())
    }
}

/// Files of one request.
pub(crate) struct Batch<T: Together> {
    /// The input of the control.
    input: Vec<u8>,
    /// Length of the reply's body in bytes.
    output: usize,
    /// Who waits for the answers, in the order of the files.
    callers: Vec<oneshot::Sender<T::Answer>>,
    /// Bytes of content.
    content: u64,
    /// Bytes that the server compares.
    compared: u64,
    /// Which batch of the share this is.
    number: u64,
}

impl<T: Together> Batch<T> {
    fn empty(number: u64) -> Self {
        let mut input = Vec::new();
        begin_input(T::OPERATION, &mut input);
        Self {
            input,
            output: 0,
            callers: Vec::new(),
            content: 0,
            compared: 0,
            number,
        }
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.callers.len()
    }

    fn has_room(&self, file: &Added) -> bool {
        let input = self.input.len() + file.input;
        let output = PRIVATE_HEADER_LEN + self.output + file.output;
        self.callers.len() < T::FILES_MAX
            && input <= T::INPUT_MAX
            && output <= T::OUTPUT_MAX
            && self.compared + file.compared <= T::COMPARED_MAX
    }

    /// Takes the files, so that the next ones begin another batch.
    fn take(&mut self) -> Self {
        let next = Self::empty(self.number + 1);
        std::mem::replace(self, next)
    }
}

impl Share {
    /// Whether the server takes many small files in one request, as far as is known of the present tree
    /// connection.
    pub(crate) fn has_together<T: Together>(&self) -> bool {
        let inner = self.inner();
        let tree = inner.last();
        inner.private.has_in(&tree, T::LISTED) && !tree.is_dfs()
    }

    /// Whether a file of this length, with its path, goes together with those of other callers that are in
    /// the queue. Otherwise it is nearly alone or too large, or the server does not take it this way.
    pub(crate) fn goes_together<T: Together>(&self, length: usize) -> bool {
        let has_company = T::queue(self.inner()).callers.load(Ordering::Relaxed) >= TOGETHER_MIN;
        has_company && length <= LENGTH_MAX && self.has_together::<T>()
    }

    /// Adds a file to the batch that gathers. Whoever begins one sends it a little later; whoever finds
    /// it full, at once.
    pub(crate) fn gather<T: Together>(
        &self,
        file: &Added,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> oneshot::Receiver<T::Answer> {
        let (answer, answered) = oneshot::channel();
        let mut batch = T::queue(self.inner()).gathering.lock();
        if !batch.has_room(file) {
            let (share, full) = (self.clone(), batch.take());
            tokio::spawn(async move { share.send_together(full).await });
        }
        encode(&mut Writer::new(&mut batch.input));
        batch.output += file.output;
        batch.content += file.content;
        batch.compared += file.compared;
        batch.callers.push(answer);
        if batch.callers.len() == 1 {
            let (share, number) = (self.clone(), batch.number);
            let round_trip = self.client().link().last().round_trip().unwrap_or_default();
            tokio::spawn(async move {
                tokio::time::sleep((round_trip / GATHER_PART).min(GATHER_MAX)).await;
                // Otherwise it was full before.
                if let Some(batch) = T::queue(share.inner()).take(number) {
                    share.send_together(batch).await;
                }
            });
        }
        answered
    }

    /// Sends a batch, and tells each caller what became of its file.
    async fn send_together<T: Together>(&self, batch: Batch<T>) {
        // A job that was cancelled wants nothing any more.
        if batch.callers.iter().all(oneshot::Sender::is_closed) {
            return;
        }
        let answers = T::exchange(self.inner(), &batch).await;
        for (caller, answer) in batch.callers.into_iter().zip(answers) {
            // A caller that is gone needs no answer.
            let _ = caller.send(answer);
        }
    }
}

impl ShareInner {
    /// Sends the files of a batch, and returns what `decode` makes of the reply's body: an answer for each.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` if the server refused the request as a whole: nothing was done, and each file goes
    /// the long way, where it meets what is wrong, or nothing is. What decoding returns; another number of
    /// answers.
    pub(crate) async fn exchange_together<T: Together, A>(
        &self,
        batch: &Batch<T>,
        replay: Replay,
        decode: impl FnOnce(&[u8]) -> Result<Vec<A>>,
    ) -> Result<Vec<A>> {
        // Bounded by `OUTPUT_MAX`.
        let output_max = (PRIVATE_HEADER_LEN + batch.output) as u32;
        let build = |tree: &Tree| -> Vec<Operation> {
            let (id, input) = (FileId::RELATED, &batch.input);
            let mut operation = ops::ioctl(tree.id, id, CtlCode::PRIVATE, input, output_max);
            // Otherwise the files would be in memory twice until they are answered.
            operation.forget_body = true;
            vec![operation]
        };
        let completed = self.run(replay, batch.content, build).await?;
        let reply = first(&completed.replies)?;
        if !reply.status().is_success() {
            if is_unknown(reply.status()) {
                self.private.lacks(&completed.tree, T::LISTED);
            }
            return Err(Error::refused("small files", NtStatus::NOT_SUPPORTED));
        }
        let response = IoctlResponse::decode(&mut reply.body())?;
        let answers = decode(body_of(T::OPERATION, response.output)?)?;
        match answers.len() == batch.len() {
            true => Ok(answers),
            false => Err(Error::PeerMisbehaved(
                "the reply to a list of files is not one of as many".to_owned(),
            )),
        }
    }
}

/// Whether a server that does not know the operation answers so: an older one of this project, or another.
fn is_unknown(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::NOT_SUPPORTED
            | NtStatus::INVALID_DEVICE_REQUEST
            | NtStatus::INVALID_PARAMETER
            | NtStatus::FILE_CLOSED
    )
}
