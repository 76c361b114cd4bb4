//! Small files: one related compound, one round trip.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::close::{CloseFlags, CloseResponse};
use ropeway_smb_wire::create::{CreateDisposition, CreateResponse, OplockLevel};
use ropeway_smb_wire::info::{FileBasicInformation, FileDispositionInformation, FileRenameInformation};
use ropeway_smb_wire::write::WriteResponse;
use ropeway_smb_wire::{FileAttributes, FileId, NtStatus, Text, TreeId};

use crate::compound::{Refusal, Steps, refusal};
use crate::dfs::{Route, routed};
use crate::link::Outcome;
use crate::share::check_path;
use crate::tree::{ATTEMPTS, Ran, Replay, check, first, nth};
use crate::{Created, Error, LostReason, OpenFile, Operation, Reply, Result, Share, ops};

/// A small file to write.
#[derive(Clone, Debug)]
pub struct PutSmall {
    /// Its path.
    pub path: Text,
    /// Written under this path first, then renamed to `path`.
    pub temporary: Option<Text>,
    /// What to do if it exists, and if not; with `temporary`, for that path.
    pub disposition: CreateDisposition,
    /// Its content, at most [`Limits::write_max`](crate::Limits); `None`: an empty file.
    pub content: Option<Block>,
    /// Attributes with which it is made.
    pub attributes: FileAttributes,
    /// Times and attributes to set afterwards.
    pub basic: Option<FileBasicInformation>,
    /// Whether the server is to flush it.
    pub flush: bool,
    /// With `temporary`: whether a file that has the name already is replaced, which takes a second round trip.
    pub replace: bool,
}

/// What became of a [`PutSmall`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PutDone {
    /// What CREATE answered.
    pub created: Created,
    /// Why times and attributes could not be set, if so; the content is written all the same.
    pub basic: Result<()>,
}

/// What became of a `get_small`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GotSmall {
    /// What CREATE answered. `created.end_of_file` beyond the block's `len` says that there is more.
    pub created: Created,
    /// What CLOSE answered shows another length or other times: the file changed while it was read.
    pub changed: bool,
}

/// Requests beside the content, on the file that the compound opened; made anew where it is sent again.
pub(crate) type Beside<'a> = &'a (dyn Fn(TreeId, FileId) -> Vec<Operation> + Send + Sync);

/// Where each step's answer stands.
#[derive(Default)]
struct Places {
    write: Option<usize>,
    basic: Option<usize>,
    flush: Option<usize>,
    rename: Option<usize>,
}

/// A small file on its way: its content is with whoever sends it, so that it is protected where it lies.
struct Putting<'a> {
    put: &'a PutSmall,
    /// Of its content; `None`: it has none.
    length: Option<usize>,
    content: &'a mut Option<Block>,
}

impl Putting<'_> {
    fn places(&self) -> Places {
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
        Places {
            write,
            basic,
            flush: flush_before.or(flush_behind),
            rename: place(self.put.temporary.is_some()),
        }
    }

    /// Whether the attributes come after the FLUSH: where no rename follows, the time tells that a file is complete, and
    /// whoever finds it must find what was flushed.
    fn flushes_first(&self) -> bool {
        self.put.temporary.is_none()
    }

    /// The WRITE, which takes the content along.
    fn write(&mut self, tree: TreeId, file: FileId) -> Result<Option<Operation>> {
        if self.length.is_none() {
            return Ok(None);
        }
        // Sealed in its place, and the ciphertext is all there is.
        let content = self
            .content
            .take()
            .ok_or(Error::Lost(LostReason::OutcomeUnknown))?;
        Ok(Some(ops::write(tree, file, 0, content)))
    }

    /// What follows the WRITE.
    fn rest(&self, tree: TreeId, file: FileId) -> Vec<Operation> {
        let put = self.put;
        let basic = put.basic.iter().map(|basic| ops::set_file(tree, file, basic));
        let flush = put.flush.then(|| ops::flush(tree, file));
        let mut operations = Vec::with_capacity(6);
        operations.extend(basic.chain(flush));
        // They are at most two.
        if self.flushes_first() {
            operations.reverse();
        }
        if put.temporary.is_some() {
            operations.push(ops::set_file(tree, file, &put.rename(false)));
        }
        operations
    }

    /// Whether all of the content was taken.
    fn written(&self, reply: &Reply) -> Result<()> {
        check("write", reply)?;
        let count = WriteResponse::decode(&mut reply.body())?.count;
        let length = self.length.unwrap_or(0);
        match length == count as usize {
            true => Ok(()),
            false => Err(Error::kept(u64::from(count), length as u64)),
        }
    }
}

impl Steps for &mut Putting<'_> {
    fn all(&mut self, tree: TreeId, file: FileId) -> Result<Vec<Operation>> {
        let mut operations: Vec<_> = self.write(tree, file)?.into_iter().collect();
        operations.extend(self.rest(tree, file));
        Ok(operations)
    }

    fn one(&mut self, index: usize, tree: TreeId, file: FileId) -> Result<Option<Operation>> {
        let before = usize::from(self.length.is_some());
        match index.checked_sub(before) {
            None => self.write(tree, file),
            Some(index) => Ok(self.rest(tree, file).into_iter().nth(index)),
        }
    }

    fn asks_size(&self) -> bool {
        true
    }

    fn take_back(&mut self, payload: Block) {
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
    /// Writes a small file in one round trip, or two where it replaces another. A server that refuses the compound gets
    /// the plain sequence.
    ///
    /// # Errors
    /// The first step that failed. If it was not the first, a file may be left, at `temporary` where there is one.
    pub async fn put_small(&self, mut put: PutSmall) -> Result<PutDone> {
        let mut content = put.content.take();
        self.put_small_of(&put, &mut content).await
    }

    /// The same with the content aside; if it fails, the content is put back where that can be had still.
    pub(crate) async fn put_small_of(&self, put: &PutSmall, content: &mut Option<Block>) -> Result<PutDone> {
        let length = content.as_ref().map(|content| content.len());
        routed!(self, &put.path, |share, path| {
            // Where DFS leads one name, it leads the other.
            let there = PutSmall {
                path: path.clone(),
                temporary: put.temporary.as_ref().map(|name| Route::start(self, name).path),
                ..put.clone()
            };
            let putting = Putting {
                put: &there,
                length,
                content,
            };
            share.put_here(putting).await
        })
    }

    async fn put_here(&self, mut putting: Putting<'_>) -> Result<PutDone> {
        let put = putting.put;
        let length = putting.length.unwrap_or(0) as u64;
        if length > u64::from(self.limits().write_max) {
            return Err(Error::Misuse("a write is longer than the server allows"));
        }
        let open = OpenFile {
            attributes: put.attributes,
            durable: false,
            query_on_disk_id: false,
            ..OpenFile::write(put.disposition)
        };
        // Done twice, each of these ends the same; exclusive creation and renaming do not.
        let replay = match put.temporary.is_some() || put.disposition == CreateDisposition::Create {
            true => Replay::Once,
            false => Replay::Safe,
        };
        let _permit = self.client().link().budget.acquire(length.max(1)).await;
        let first = put.temporary.as_ref().unwrap_or(&put.path);
        let places = putting.places();
        let done = self.compound(first, &open, replay, &mut putting).await?;
        let step = |op: &'static str, index: Option<usize>| match index {
            Some(index) => check(op, nth(&done.replies, index)?),
            None => Ok(()),
        };
        let renamed = places.rename.and_then(|index| nth(&done.replies, index).ok());
        if let Some(index) = places.write
            && let Err(error) = putting.written(nth(&done.replies, index)?)
        {
            if renamed.is_some_and(|reply| reply.status().is_success()) {
                // Servers go on after a failed WRITE: what has the name now is a part of the file, and was not there before.
                self.remove_part(&put.path).await;
            }
            return Err(error);
        }
        if let Some(size) = done.size.filter(|size| *size != length) {
            if renamed.is_some_and(|reply| reply.status().is_success()) {
                self.remove_part(&put.path).await;
            }
            return Err(Error::kept(size, length));
        }
        step("flush", places.flush)?;
        match (&put.temporary, renamed.map(Reply::status)) {
            // What stands there makes way only now that the new file is known to be whole.
            (Some(temporary), Some(NtStatus::OBJECT_NAME_COLLISION)) if put.replace => {
                self.rename_here(temporary, &put.rename(true)).await?;
            }
            _ => step("rename", places.rename)?,
        }
        let basic = step("set times and attributes", places.basic);
        Ok(PutDone {
            created: done.created,
            basic,
        })
    }

    /// Removes a part of a file under a name that nothing had before. That it stays is the smaller fault.
    async fn remove_part(&self, path: &Text) {
        let information = FileDispositionInformation { delete_pending: true };
        let steps = |tree, file| vec![ops::set_file(tree, file, &information)];
        let _ = self.remove_here(path, steps).await;
    }

    /// Reads a small file in one round trip: its first `length` bytes, or as much of them as the block holds and
    /// [`Limits::read_max`](crate::Limits) allows. What is asked for is paid for in credits and in depth, so a length that
    /// is known serves better than a guess.
    pub async fn get_small(
        &self,
        path: &Text,
        length: usize,
        block: BlockMut,
    ) -> (BlockMut, Result<GotSmall>) {
        let (block, got) = self.get_small_with(path, length, block, &|_, _| Vec::new()).await;
        (block, got.map(|(got, _)| got))
    }

    /// The same, and the answers to what is asked beside; none if the server takes no compounds.
    pub(crate) async fn get_small_with(
        &self,
        path: &Text,
        length: usize,
        block: BlockMut,
        beside: Beside<'_>,
    ) -> (BlockMut, Result<(GotSmall, Vec<Reply>)>) {
        let asked = length.min(block.capacity());
        let mut slot = Some(block);
        let outcome = async {
            routed!(self, path, |share, path| share
                .get_here(path, asked, &mut slot, beside)
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
        beside: Beside<'_>,
    ) -> Result<(GotSmall, Vec<Reply>)> {
        check_path(path)?;
        // Of an empty file one byte is asked for: a READ of none is not one.
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
            if !link.compounds.may_be_sent() {
                let got = self.get_plainly(path, &open, slot, length).await?;
                return Ok((got, Vec::new()));
            }
            let Some(mut ran) = self.try_get(path, &open, slot, length, beside).await? else {
                continue;
            };
            if let Refusal::Compound = refusal(&ran.replies) {
                self.close_left_open(&ran);
                let got = self.get_plainly(path, &open, slot, length).await?;
                link.compounds.refuse();
                return Ok((got, Vec::new()));
            }
            check("open", first(&ran.replies)?)?;
            let created = CreateResponse::decode(&mut first(&ran.replies)?.body())?;
            let reply = nth(&ran.replies, 1)?;
            match reply.status() {
                NtStatus::END_OF_FILE => {
                    if let Some(block) = slot {
                        block.set_len(0);
                    }
                }
                _ => check("read", reply)?,
            }
            let got = GotSmall {
                created: Created::from_wire(&created),
                changed: ran
                    .replies
                    .last()
                    .is_some_and(|closed| has_changed(&created, closed)),
            };
            // CREATE and READ before the answers, CLOSE behind.
            ran.replies.pop();
            let answers = ran.replies.split_off(ran.replies.len().min(2));
            return Ok((got, answers));
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// The compound, once; `None` if there are no answers.
    async fn try_get(
        &self,
        path: &Text,
        open: &OpenFile,
        slot: &mut Option<BlockMut>,
        length: u32,
        beside: Beside<'_>,
    ) -> Result<Option<Ran>> {
        let (session, tree) = self.inner().tree().await?;
        let block = slot.take().expect("the block is put back after each attempt");
        let create = self
            .inner()
            .create(&tree, path, open, OplockLevel::None, Vec::new());
        // The READ stays second: its answer is received where it belongs.
        let mut operations = vec![create, ops::read(tree.id, FileId::RELATED, 0, length, block)];
        operations.extend(beside(tree.id, FileId::RELATED));
        operations.push(ops::close(tree.id, FileId::RELATED, true));
        let back = |operations: &mut Vec<Operation>| operations.get_mut(1)?.receive.take();
        let mut replies = match session.exchange(tree.chain(operations), u64::from(length)).await {
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
        Ok(Some(Ran {
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
        // The permit for these bytes is held already; a second one could wait for the first.
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

/// Whether a file was changed between the answers of CREATE and CLOSE, as far as the server tells
/// ([MS-SMB2] 2.2.16: without the flag the fields mean nothing).
fn has_changed(created: &CreateResponse<'_>, closed: &Reply) -> bool {
    let Ok(closed) = CloseResponse::decode(&mut closed.body()) else {
        return false;
    };
    closed.flags.contains(CloseFlags::POSTQUERY_ATTRIB)
        && (closed.end_of_file, closed.last_write_time, closed.change_time)
            != (created.end_of_file, created.last_write_time, created.change_time)
}
