//! Small files: writes or reads a whole file in one related compound, which takes one round trip.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::close::{CloseFlags, CloseResponse};
use ropeway_smb_wire::create::{CreateDisposition, CreateResponse, OplockLevel};
use ropeway_smb_wire::info::{FileBasicInformation, FileDispositionInformation, FileRenameInformation};
use ropeway_smb_wire::write::WriteResponse;
use ropeway_smb_wire::{FileAttributes, FileId, NtStatus, Text, TreeId};

use crate::compound::{CompoundSteps, RefusalCause, refusal_cause};
use crate::dfs::{Route, routed};
use crate::error::{Error, LostReason, Result};
use crate::open::{Created, OpenFile};
use crate::ops;
use crate::replies::{check, first, nth};
use crate::session::Outcome;
use crate::share::{Share, check_path};
use crate::tree::{ATTEMPTS, Completed, Replay};

/// A small file to write.
#[derive(Clone, Debug)]
pub struct PutSmall {
    /// The path.
    pub path: Text,
    /// If set, the file is written under this path first, then renamed to `path`.
    pub temporary: Option<Text>,
    /// What to do if the file exists, and if it does not. Applies to `temporary` if that is set.
    pub disposition: CreateDisposition,
    /// The content, at most [`Limits::write_max`](crate::Limits) bytes. `None`: an empty file.
    pub content: Option<Block>,
    /// Attributes at creation.
    pub attributes: FileAttributes,
    /// Times and attributes to set after writing.
    pub basic: Option<FileBasicInformation>,
    /// Whether the server flushes the file.
    pub flush: bool,
    /// With `temporary`: whether to replace an existing file at `path`, which takes a second round
    /// trip.
    pub replace: bool,
}

/// The result of a [`PutSmall`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PutDone {
    /// The result of CREATE.
    pub created: Created,
    /// The result of setting times and attributes. The content is written even if that failed.
    pub basic: Result<()>,
}

/// The result of a `get_small`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GotSmall {
    /// The result of CREATE. If `created.end_of_file` exceeds the `len` of the block, the file has
    /// more content.
    pub created: Created,
    /// The reply to CLOSE shows another length or other times: the file changed while it was read.
    pub changed: bool,
}

/// Builds additional requests on the file that the compound opened, anew for each attempt.
pub(crate) type ExtraRequests<'a> = &'a (dyn Fn(TreeId, FileId) -> Vec<Operation> + Send + Sync);

/// The index of each step's reply.
#[derive(Default)]
struct StepIndexes {
    write: Option<usize>,
    basic: Option<usize>,
    flush: Option<usize>,
    rename: Option<usize>,
}

/// The steps that write a small file. The caller keeps the content, so that it is sealed in place.
struct PutSteps<'a> {
    put: &'a PutSmall,
    /// Length of the content; `None`: no content.
    length: Option<usize>,
    content: &'a mut Option<Block>,
}

impl PutSteps<'_> {
    fn indexes(&self) -> StepIndexes {
        let mut count = 0;
        let mut place = |is_there: bool| {
            is_there.then(|| {
                count += 1;
                count - 1
            })
        };
        let write = place(self.length.is_some());
        let flush_before = place(self.flushes_first() && self.put.flush);
        let basic = place(self.put.basic.is_some());
        let flush_behind = place(!self.flushes_first() && self.put.flush);
        StepIndexes {
            write,
            basic,
            flush: flush_before.or(flush_behind),
            rename: place(self.put.temporary.is_some()),
        }
    }

    /// Returns whether the attributes come after the FLUSH. Without a rename, the modification time
    /// marks a file as complete, so it may appear only after the content is durable.
    fn flushes_first(&self) -> bool {
        self.put.temporary.is_none()
    }

    /// Returns the WRITE, which takes the content.
    fn write(&mut self, tree: TreeId, file: FileId) -> Result<Option<Operation>> {
        if self.length.is_none() {
            return Ok(None);
        }
        // The content was sealed in place, so only the ciphertext is left.
        let content = self
            .content
            .take()
            .ok_or(Error::Lost(LostReason::OutcomeUnknown))?;
        Ok(Some(ops::write(tree, file, 0, content)))
    }

    /// Returns the steps after the WRITE.
    fn rest(&self, tree: TreeId, file: FileId) -> Vec<Operation> {
        let put = self.put;
        let basic = put.basic.iter().map(|basic| ops::set_file(tree, file, basic));
        let flush = put.flush.then(|| ops::flush(tree, file));
        let mut operations = Vec::with_capacity(6);
        operations.extend(basic.chain(flush));
        // There are at most two.
        if self.flushes_first() {
            operations.reverse();
        }
        if put.temporary.is_some() {
            operations.push(ops::set_file(tree, file, &put.rename(false)));
        }
        operations
    }

    /// Checks that the server took all of the content.
    fn written(&self, reply: &Reply) -> Result<()> {
        check("write", reply)?;
        let count = WriteResponse::decode(&mut reply.body())?.count;
        let length = self.length.unwrap_or(0);
        match length == count as usize {
            true => Ok(()),
            false => Err(Error::size_mismatch(u64::from(count), length as u64)),
        }
    }
}

impl CompoundSteps for &mut PutSteps<'_> {
    fn all(&mut self, tree: TreeId, file: FileId) -> Result<Vec<Operation>> {
        let mut operations: Vec<_> = self.write(tree, file)?.into_iter().collect();
        operations.extend(self.rest(tree, file));
        Ok(operations)
    }

    fn single(&mut self, index: usize, tree: TreeId, file: FileId) -> Result<Option<Operation>> {
        let before = usize::from(self.length.is_some());
        match index.checked_sub(before) {
            None => self.write(tree, file),
            Some(index) => Ok(self.rest(tree, file).into_iter().nth(index)),
        }
    }

    fn payload(&self) -> u64 {
        self.length.unwrap_or(0) as u64
    }

    fn are_queries(&mut self) -> bool {
        false
    }

    fn wants_size(&self) -> bool {
        true
    }

    fn put_back(&mut self, payload: Block) {
        *self.content = Some(payload);
    }
}

impl PutSmall {
    fn rename(&self, replace_if_exists: bool) -> FileRenameInformation {
        FileRenameInformation {
            replace_if_exists,
            name: self.path.clone(),
        }
    }
}

impl Share {
    /// Writes a small file in one round trip, or in two if it replaces another. If the server
    /// refuses the compound, the client sends the requests one by one.
    ///
    /// # Errors
    /// The first step that failed. A file may be left behind, at `temporary` if that is set.
    pub async fn put_small(&self, mut put: PutSmall) -> Result<PutDone> {
        let mut content = put.content.take();
        self.put_small_of(&put, &mut content).await
    }

    /// Writes a small file whose content is passed separately. After a failure, puts the content
    /// back if it is still available.
    pub(crate) async fn put_small_of(&self, put: &PutSmall, content: &mut Option<Block>) -> Result<PutDone> {
        let length = content.as_ref().map(|content| content.len());
        routed!(self, &put.path, |share, path| {
            // DFS refers both names to the same place.
            let there = PutSmall {
                path: path.clone(),
                temporary: put.temporary.as_ref().map(|name| Route::start(self, name).path),
                ..put.clone()
            };
            let steps = PutSteps {
                put: &there,
                length,
                content,
            };
            share.put_here(steps).await
        })
    }

    async fn put_here(&self, mut steps: PutSteps<'_>) -> Result<PutDone> {
        let put = steps.put;
        let length = steps.length.unwrap_or(0) as u64;
        if length > u64::from(self.limits().write_max) {
            return Err(Error::Misuse("a write is longer than the server allows"));
        }
        let open = OpenFile {
            attributes: put.attributes,
            durable: false,
            query_on_disk_id: false,
            ..OpenFile::write(put.disposition)
        };
        // Each of these may run twice; exclusive creation and renaming may not.
        let replay = match put.temporary.is_some() || put.disposition == CreateDisposition::Create {
            true => Replay::Once,
            false => Replay::Safe,
        };
        let _permit = self.client().link().budget.acquire(length.max(1)).await;
        let first = put.temporary.as_ref().unwrap_or(&put.path);
        let indexes = steps.indexes();
        let done = self.compound(first, &open, replay, &mut steps).await?;
        let step = |op: &'static str, index: Option<usize>| match index {
            Some(index) => check(op, nth(&done.replies, index)?),
            None => Ok(()),
        };
        let renamed = indexes.rename.and_then(|index| nth(&done.replies, index).ok());
        if let Some(index) = indexes.write
            && let Err(error) = steps.written(nth(&done.replies, index)?)
        {
            if renamed.is_some_and(|reply| reply.status().is_success()) {
                // Servers go on after a failed WRITE, so an incomplete file now has the final name,
                // which did not exist before.
                Box::pin(self.remove_partial(&put.path)).await;
            }
            return Err(error);
        }
        if let Some(size) = done.size.filter(|size| *size != length) {
            if renamed.is_some_and(|reply| reply.status().is_success()) {
                Box::pin(self.remove_partial(&put.path)).await;
            }
            return Err(Error::size_mismatch(size, length));
        }
        step("flush", indexes.flush)?;
        match (&put.temporary, renamed.map(Reply::status)) {
            // The existing file is replaced only now that the new one is known to be complete.
            (Some(temporary), Some(NtStatus::OBJECT_NAME_COLLISION)) if put.replace => {
                Box::pin(self.rename_here(temporary, &put.rename(true))).await?;
            }
            _ => step("rename", indexes.rename)?,
        }
        let basic = step("set times and attributes", indexes.basic);
        Ok(PutDone {
            created: done.created,
            basic,
        })
    }

    /// Removes an incomplete file under a name that did not exist before. If that fails, the
    /// original error matters more.
    async fn remove_partial(&self, path: &Text) {
        let information = FileDispositionInformation { delete_pending: true };
        let steps = |tree, file| vec![ops::set_file(tree, file, &information)];
        let _ = self.remove_here(path, steps).await;
    }

    /// Reads the first `length` bytes of a small file in one round trip, or as many as the block
    /// holds and [`Limits::read_max`](crate::Limits) allows. The request costs credits and window
    /// for the length it asks for, so pass the known length rather than a guess.
    pub async fn get_small(
        &self,
        path: &Text,
        length: usize,
        block: BlockMut,
    ) -> (BlockMut, Result<GotSmall>) {
        let (block, got) = self.get_small_with(path, length, block, &|_, _| Vec::new()).await;
        (block, got.map(|(got, _)| got))
    }

    /// Reads a small file, and returns the replies to additional requests; no replies if the server
    /// takes no compounds.
    pub(crate) async fn get_small_with(
        &self,
        path: &Text,
        length: usize,
        block: BlockMut,
        extra: ExtraRequests<'_>,
    ) -> (BlockMut, Result<(GotSmall, Vec<Reply>)>) {
        let asked = length.min(block.capacity());
        let mut slot = Some(block);
        let outcome = async {
            routed!(self, path, |share, path| share
                .get_here(path, asked, &mut slot, extra)
                .await)
        }
        .await;
        (slot.expect("the block is put back"), outcome)
    }

    async fn get_here(
        &self,
        path: &Text,
        asked: usize,
        slot: &mut Option<BlockMut>,
        extra: ExtraRequests<'_>,
    ) -> Result<(GotSmall, Vec<Reply>)> {
        check_path(path)?;
        // A READ of no bytes is not allowed, so at least one is requested.
        let length = u32::try_from(asked.max(1))
            .unwrap_or(u32::MAX)
            .min(self.limits().read_max);
        let open = OpenFile {
            durable: false,
            query_on_disk_id: false,
            ..OpenFile::read()
        };
        let link = self.client().link();
        let _permit = link.budget.acquire(u64::from(length)).await;
        for _ in 0..ATTEMPTS {
            if !link.compounds.is_usable() {
                let got = Box::pin(self.get_plainly(path, &open, slot, length)).await?;
                return Ok((got, Vec::new()));
            }
            let Some(mut completed) = self.try_get(path, &open, slot, length, extra).await? else {
                continue;
            };
            if let RefusalCause::Compound = refusal_cause(&completed.replies) {
                self.close_left_open(&completed);
                let got = Box::pin(self.get_plainly(path, &open, slot, length)).await?;
                link.compounds.refuse();
                return Ok((got, Vec::new()));
            }
            check("open", first(&completed.replies)?)?;
            let created = CreateResponse::decode(&mut first(&completed.replies)?.body())?;
            let opened = Created::from_wire(&created);
            self.inner().private.learn(&completed.tree, opened.private);
            let reply = nth(&completed.replies, 1)?;
            match reply.status() {
                NtStatus::END_OF_FILE => {
                    if let Some(block) = slot {
                        block.set_len(0);
                    }
                }
                _ => check("read", reply)?,
            }
            let got = GotSmall {
                created: opened,
                changed: completed
                    .replies
                    .last()
                    .is_some_and(|closed| has_changed(&created, closed)),
            };
            // CREATE and READ come before the additional replies, CLOSE after them.
            completed.replies.pop();
            let answers = completed.replies.split_off(completed.replies.len().min(2));
            return Ok((got, answers));
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// Sends the compound once. Returns `None` if it was not answered.
    async fn try_get(
        &self,
        path: &Text,
        open: &OpenFile,
        slot: &mut Option<BlockMut>,
        length: u32,
        extra: ExtraRequests<'_>,
    ) -> Result<Option<Completed>> {
        let (session, tree) = self.inner().tree().await?;
        let block = slot.take().expect("the block is put back after each attempt");
        let contexts = self.inner().private.query(&tree).into_iter().collect();
        let create = self
            .inner()
            .create(&tree, path, open, OplockLevel::None, contexts);
        // The READ stays second: its data is received directly in the block.
        let mut operations = vec![create, ops::read(tree.id, FileId::RELATED, 0, length, block)];
        operations.extend(extra(tree.id, FileId::RELATED));
        operations.push(ops::close(tree.id, FileId::RELATED, true));
        let back = |operations: &mut Vec<Operation>| operations.get_mut(1)?.receive.take();
        let mut replies = match session
            .exchange(tree.compound(operations), u64::from(length))
            .await
        {
            Outcome::Replied(replies) => replies,
            Outcome::Lost { mut operations, .. } => {
                *slot = back(&mut operations);
                return Ok(None);
            }
            Outcome::Failed {
                mut operations,
                error,
            } => {
                *slot = back(&mut operations);
                return Err(error);
            }
        };
        *slot = replies.get_mut(1).and_then(|reply| reply.payload.take());
        match first(&replies)?.status() {
            NtStatus::NETWORK_SESSION_EXPIRED => return Ok(None),
            NtStatus::NETWORK_NAME_DELETED => {
                self.inner().forget(tree);
                return Ok(None);
            }
            _ => {}
        }
        Ok(Some(Completed {
            session,
            tree,
            replies,
        }))
    }

    async fn get_plainly(
        &self,
        path: &Text,
        open: &OpenFile,
        slot: &mut Option<BlockMut>,
        length: u32,
    ) -> Result<GotSmall> {
        let handle = self.open_here(path, open).await?;
        let block = slot.take().expect("the block is put back after each attempt");
        // The permit for these bytes is held already; waiting for a second one could deadlock.
        let (block, outcome) = handle.read_without_permit(0, block, length as usize).await;
        *slot = Some(block);
        outcome?;
        let created = handle.created().clone();
        handle.close().await?;
        Ok(GotSmall {
            created,
            changed: false,
        })
    }
}

/// Returns whether the file changed between CREATE and CLOSE, as far as the server reports it
/// ([MS-SMB2] 2.2.16: the fields are valid only with the flag).
fn has_changed(created: &CreateResponse<'_>, closed: &Reply) -> bool {
    let Ok(closed) = CloseResponse::decode(&mut closed.body()) else {
        return false;
    };
    closed.flags.contains(CloseFlags::POSTQUERY_ATTRIB)
        && (closed.end_of_file, closed.last_write_time, closed.change_time)
            != (created.end_of_file, created.last_write_time, created.change_time)
}
