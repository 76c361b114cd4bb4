//! An open file, directory or pipe.

use std::fmt;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::change_notify::{
    ChangeNotifyResponse, CompletionFilter, FileNotifyInformation, decode_changes,
};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::ranges::DuplicateExtents;
use ropeway_smb_wire::info::{FileInfoClass, FileInformation, FileStandardInformation, Information as _};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::query_info::{QueryInfoResponse, SecurityInformation};
use ropeway_smb_wire::write::WriteResponse;
use ropeway_smb_wire::{FileId, NtStatus, Writer};

use crate::compound::{Refusal, refusal};
use crate::link::Outcome;
use crate::opened::{HandleInner, Opened, is_stale, mark_replay};
use crate::tree::{ATTEMPTS, Replay, check, first, nth};
use crate::{Created, Error, LostReason, Reply, Result, Share, ops};

/// Bytes for an answer of variable length that is small in all likelihood.
const QUERY_MAX: u32 = 64 << 10;

/// An open file, directory or pipe. Its requests may be under way at the same time, from several tasks. Dropping it
/// closes it in the background; [`close`](Self::close) waits and tells.
pub struct Handle {
    pub(crate) inner: Arc<HandleInner>,
}

impl Handle {
    /// Reads up to `length` bytes at `offset` into the block, whose `len` is then what was read: less at the end of
    /// the file, 0 behind it. `length` may not exceed [`Limits::read_max`](crate::Limits) nor the block. The block
    /// that comes back may be another one than the one that went in, no smaller than `length`.
    pub async fn read_at(&self, offset: u64, mut block: BlockMut, length: usize) -> (BlockMut, Result<()>) {
        let handle = &self.inner;
        let fits = length <= block.capacity() && length <= handle.share.limits().read_max as usize;
        let Some(length) = u32::try_from(length).ok().filter(|_| fits) else {
            return (
                block,
                Err(Error::Misuse(
                    "a read is longer than its block or the server allows",
                )),
            );
        };
        if length == 0 {
            block.set_len(0);
            return (block, Ok(()));
        }
        let _permit = handle
            .share
            .client()
            .link()
            .budget
            .acquire(u64::from(length))
            .await;
        self.read_without_permit(offset, block, length as usize).await
    }

    /// As [`read_at`](Self::read_at), and whether the server said that the file ends at `offset` or before.
    pub(crate) async fn read_or_end(
        &self,
        offset: u64,
        block: BlockMut,
        length: usize,
    ) -> (BlockMut, Result<bool>) {
        let budget = &self.inner.share.client().link().budget;
        let _permit = budget.acquire(length as u64).await;
        self.ask_to_read(offset, block, length).await
    }

    /// As [`read_at`](Self::read_at), for a caller that has the budget's permit.
    pub(crate) async fn read_without_permit(
        &self,
        offset: u64,
        block: BlockMut,
        length: usize,
    ) -> (BlockMut, Result<()>) {
        let (block, read) = self.ask_to_read(offset, block, length).await;
        (block, read.map(drop))
    }

    async fn ask_to_read(&self, offset: u64, mut block: BlockMut, length: usize) -> (BlockMut, Result<bool>) {
        let handle = &self.inner;
        let link = handle.share.client().link();
        // The callers keep to `Limits::read_max`.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut is_reopened = false;
        for _ in 0..ATTEMPTS {
            let at = match handle.opened().await {
                Ok(at) => at,
                Err(error) => return (block, Err(error)),
            };
            let operation = ops::read(at.tree.id, at.file_id, offset, length, block);
            let chain = at.tree.chain(vec![operation]);
            block = match at.session.exchange(chain, u64::from(length)).await {
                Outcome::Replied(replies) => {
                    link.consider_channels(&at.session);
                    let reply = replies
                        .into_iter()
                        .next()
                        .expect("a chain has an answer to each operation");
                    let status = reply.status();
                    let mut block = reply.payload.expect("a READ's answer has its block");
                    match status {
                        // A pipe's message that is longer than what was asked for.
                        status if status.is_success() || status == NtStatus::BUFFER_OVERFLOW => {
                            return (block, Ok(false));
                        }
                        NtStatus::END_OF_FILE => {
                            block.set_len(0);
                            return (block, Ok(true));
                        }
                        NtStatus::NETWORK_SESSION_EXPIRED => {}
                        status if is_stale(status) && !is_reopened => {
                            is_reopened = true;
                            handle.make_stale(&at, status);
                        }
                        status => return (block, Err(Error::refused("read", status))),
                    }
                    block
                }
                Outcome::Lost { operations, .. } => taken_back(operations),
                Outcome::Failed { operations, error } => return (taken_back(operations), Err(error)),
            };
        }
        (block, Err(Error::Lost(LostReason::Closed)))
    }

    /// Writes the whole block at `offset`, at most [`Limits::write_max`](crate::Limits). When the block is the only handle
    /// on its slot and no slice of it, header and data leave in one piece.
    ///
    /// # Errors
    /// [`Error::PeerRefused`] and what any request may meet; a short write is one.
    pub async fn write_at(&self, offset: u64, mut block: Block) -> Result<()> {
        let handle = &self.inner;
        let length = block.len();
        if length > handle.share.limits().write_max as usize {
            return Err(Error::Misuse("a write is longer than the server allows"));
        }
        if length == 0 {
            return Ok(());
        }
        let link = handle.share.client().link();
        let _permit = link.budget.acquire(length as u64).await;
        handle.writes();
        let (mut unanswered, mut is_reopened) = (0, false);
        for _ in 0..ATTEMPTS {
            let at = handle.opened().await?;
            let mut operation = ops::write(at.tree.id, at.file_id, offset, block);
            mark_replay(&mut operation, unanswered);
            match at
                .session
                .exchange(at.tree.chain(vec![operation]), length as u64)
                .await
            {
                Outcome::Replied(replies) => {
                    link.consider_channels(&at.session);
                    let mut reply = replies
                        .into_iter()
                        .next()
                        .expect("a chain has an answer to each operation");
                    let status = reply.status();
                    let may_pass = status == NtStatus::NETWORK_SESSION_EXPIRED
                        || is_stale(status) && !std::mem::replace(&mut is_reopened, true);
                    if is_stale(status) {
                        handle.make_stale(&at, status);
                    }
                    if may_pass && let Some(payload) = reply.returned.take() {
                        block = payload;
                        continue;
                    }
                    check("write", &reply)?;
                    let count = WriteResponse::decode(&mut reply.body())?.count;
                    if count as usize != length {
                        return Err(Error::kept(u64::from(count), length as u64));
                    }
                    return Ok(());
                }
                Outcome::Lost { mut operations, .. } => {
                    let payload = operations.pop().and_then(|operation| operation.payload);
                    // Sealed in place, and the ciphertext is all there is.
                    block = payload.ok_or(Error::Lost(LostReason::OutcomeUnknown))?;
                    unanswered += 1;
                }
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// Waits until the server has the file on its disk.
    ///
    /// # Errors
    /// What any request may meet; [`LostReason::WritesInDoubt`] if the server came back meanwhile without this open, so
    /// that what was written before is perhaps not what it flushed.
    pub async fn flush(&self) -> Result<()> {
        let handle = &self.inner;
        let written = handle.written();
        let replies = handle.run(Replay::Safe, ops::flush).await?;
        check("flush", first(&replies)?)?;
        handle.flushed(written)
    }

    /// [`flush`](Self::flush), then [`set`](Self::set), in one round trip: what came of each, and the size, if it came
    /// along. `again`: flushes once more, so that what was set is durable, too.
    pub(crate) async fn flush_and_set<I: FileInformation>(
        &self,
        information: &I,
        again: bool,
    ) -> (Result<()>, Result<()>, Option<u64>) {
        let handle = &self.inner;
        let link = handle.share.client().link();
        if !link.compounds.may_be_sent() {
            return self.flush_then_set(information, again).await;
        }
        let output_max = QUERY_MAX.min(handle.share.limits().transact_max);
        let build = |tree, file| {
            let mut operations = vec![
                ops::flush(tree, file),
                ops::set_file(tree, FileId::RELATED, information),
            ];
            operations.extend(again.then(|| ops::flush(tree, FileId::RELATED)));
            let size = ops::query_file::<FileStandardInformation>(tree, FileId::RELATED, output_max);
            operations.push(size);
            operations
        };
        if is_length(I::CLASS) {
            handle.writes();
        }
        let written = handle.written();
        let replies = match handle.run_chain(Replay::Safe, build).await {
            Ok(replies) => replies,
            Err(error) => return (Err(error.clone()), Err(error), None),
        };
        if matches!(refusal(&replies), Refusal::Compound) {
            return self.flush_then_set(information, again).await;
        }
        let flushed_at = |at| nth(&replies, at).and_then(|reply| check("flush", reply));
        let mut flushed = flushed_at(0);
        let set = nth(&replies, 1).and_then(|reply| check("set", reply));
        if again {
            flushed = flushed.and_then(|()| flushed_at(2));
        }
        let size = nth(&replies, 2 + usize::from(again)).ok().and_then(size_in);
        (set, flushed.and_then(|()| handle.flushed(written)), size)
    }

    async fn flush_then_set<I: FileInformation>(
        &self,
        information: &I,
        again: bool,
    ) -> (Result<()>, Result<()>, Option<u64>) {
        let mut flushed = self.flush().await;
        if flushed.is_err() {
            return (Ok(()), flushed, None);
        }
        let set = self.set(information).await;
        if again && set.is_ok() {
            flushed = self.flush().await;
        }
        (set, flushed, None)
    }

    /// Asks for information, for instance `query::<FileAllInformation>()`.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn query<I: FileInformation>(&self) -> Result<I> {
        let output_max = QUERY_MAX.min(self.inner.share.limits().transact_max);
        let build = |tree, file| ops::query_file::<I>(tree, file, output_max);
        let replies = self.inner.run(Replay::Safe, build).await?;
        let reply = first(&replies)?;
        check("query", reply)?;
        Ok(I::decode(QueryInfoResponse::decode(&mut reply.body())?.output)?)
    }

    /// Sets information, for instance `FileBasicInformation`, `FileEndOfFileInformation`, `FileRenameInformation`.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn set<I: FileInformation>(&self, information: &I) -> Result<()> {
        // To rename or link twice is an error the second time.
        let replay = match I::CLASS {
            FileInfoClass::Rename | FileInfoClass::RenameEx | FileInfoClass::Link => Replay::Once,
            _ => Replay::Safe,
        };
        if is_length(I::CLASS) {
            self.inner.writes();
        }
        let build = |tree, file| ops::set_file(tree, file, information);
        let replies = self.inner.run(replay, build).await?;
        check("set", first(&replies)?)
    }

    /// A security descriptor, self-relative ([MS-DTYP] 2.4.6).
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn query_security(&self, what: SecurityInformation) -> Result<Vec<u8>> {
        let output_max = QUERY_MAX.min(self.inner.share.limits().transact_max);
        let build = |tree, file| ops::query_security(tree, file, what, output_max);
        let replies = self.inner.run(Replay::Safe, build).await?;
        let reply = first(&replies)?;
        check("query the security descriptor", reply)?;
        Ok(QueryInfoResponse::decode(&mut reply.body())?.output.to_vec())
    }

    /// Sets a security descriptor, self-relative.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn set_security(&self, what: SecurityInformation, descriptor: &[u8]) -> Result<()> {
        let build = |tree, file| ops::set_security(tree, file, what, descriptor);
        let replies = self.inner.run(Replay::Safe, build).await?;
        check("set the security descriptor", first(&replies)?)
    }

    /// FSCTL on this open; what it answers. An answer that did not fit (`STATUS_BUFFER_OVERFLOW`) is given as far as it
    /// came.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn ioctl(&self, code: CtlCode, input: &[u8], output_max: u32) -> Result<Vec<u8>> {
        Ok(self.ioctl_with_status(code, input, output_max).await?.1)
    }

    pub(crate) async fn ioctl_with_status(
        &self,
        code: CtlCode,
        input: &[u8],
        output_max: u32,
    ) -> Result<(NtStatus, Vec<u8>)> {
        let replay = match code {
            CtlCode::PIPE_TRANSCEIVE => Replay::Once,
            _ => Replay::Safe,
        };
        let writes = [
            CtlCode::SRV_COPYCHUNK,
            CtlCode::SRV_COPYCHUNK_WRITE,
            CtlCode::SET_ZERO_DATA,
        ];
        if writes.contains(&code) {
            self.inner.writes();
        }
        let build = |tree, file| ops::ioctl(tree, file, code, input, output_max);
        let replies = self.inner.run(replay, build).await?;
        let reply = first(&replies)?;
        if reply.status() != NtStatus::BUFFER_OVERFLOW {
            check("control", reply)?;
        }
        let output = IoctlResponse::decode(&mut reply.body())?.output.to_vec();
        Ok((reply.status(), output))
    }

    /// Shares a range of `source`'s content with this file, which may not have it before (FSCTL_DUPLICATE_EXTENTS_TO_FILE,
    /// [MS-FSCC] 2.3.7): nothing is copied. Both are open on the same volume by the same client; the server says what
    /// offsets and lengths it takes (whole clusters, in general).
    ///
    /// # Errors
    /// `STATUS_NOT_SAME_DEVICE` without asking if the clients differ; what any request may meet.
    pub async fn duplicate_extents(
        &self,
        source: &Self,
        source_offset: u64,
        target_offset: u64,
        byte_count: u64,
    ) -> Result<()> {
        let op = "share content";
        let (here, there) = (self.inner.share.client(), source.inner.share.client());
        if !Arc::ptr_eq(here.link(), there.link()) {
            return Err(Error::refused(op, NtStatus::NOT_SAME_DEVICE));
        }
        self.inner.writes();
        for _ in 0..ATTEMPTS {
            let from = source.inner.opened().await?;
            let at = self.inner.opened().await?;
            if !Arc::ptr_eq(&from.session, &at.session) {
                // One of them was opened again meanwhile; then so is the other.
                continue;
            }
            let request = DuplicateExtents {
                source: from.file_id,
                source_file_offset: source_offset,
                target_file_offset: target_offset,
                byte_count,
            };
            let mut input = Vec::new();
            request.encode(&mut Writer::new(&mut input));
            let code = CtlCode::DUPLICATE_EXTENTS_TO_FILE;
            let operation = ops::ioctl(at.tree.id, at.file_id, code, &input, 0);
            match at.session.exchange(at.tree.chain(vec![operation]), 0).await {
                Outcome::Replied(replies) => {
                    let reply = first(&replies)?;
                    if reply.status() == NtStatus::NETWORK_SESSION_EXPIRED {
                        continue;
                    }
                    check(op, reply)?;
                    return Ok(());
                }
                Outcome::Lost { .. } => {}
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// Waits for changes in this directory. An empty list: too many to tell, look for yourself. What changes while a lost
    /// connection is made again is not told.
    ///
    /// # Errors
    /// What any request may meet.
    pub async fn watch(
        &self,
        filter: CompletionFilter,
        recursive: bool,
    ) -> Result<Vec<FileNotifyInformation>> {
        let output_max = QUERY_MAX.min(self.inner.share.limits().transact_max);
        let build = |tree, file| ops::watch(tree, file, filter, recursive, output_max);
        let replies = self.inner.run(Replay::Safe, build).await?;
        changes_in(first(&replies)?)
    }

    /// Closes it and waits for the server's word. A file whose connection is lost is closed by the server itself.
    ///
    /// # Errors
    /// [`Error::PeerRefused`].
    pub async fn close(self) -> Result<()> {
        self.inner.close(false).await.map(drop)
    }

    /// What CREATE answered.
    pub fn created(&self) -> &Created {
        &self.inner.created
    }

    /// Its path in [`share`](Self::share), which DFS may have made another one than was opened.
    pub fn path(&self) -> &crate::Text {
        &self.inner.path
    }

    /// The share it lies in, which DFS may have made another one than it was opened on.
    pub fn share(&self) -> &Share {
        &self.inner.share
    }
}

/// The size in the answer to a query that may have failed.
fn size_in(reply: &crate::Reply) -> Option<u64> {
    check("query", reply).ok()?;
    let output = QueryInfoResponse::decode(&mut reply.body()).ok()?.output;
    let standard = FileStandardInformation::decode(output).ok()?;
    Some(standard.end_of_file)
}

/// Whether setting it changes content.
fn is_length(class: FileInfoClass) -> bool {
    matches!(class, FileInfoClass::EndOfFile | FileInfoClass::Allocation)
}

/// What a CHANGE_NOTIFY was answered.
fn changes_in(reply: &Reply) -> Result<Vec<FileNotifyInformation>> {
    check("watch", reply)?;
    if reply.status() == NtStatus::NOTIFY_ENUM_DIR {
        return Ok(Vec::new());
    }
    Ok(decode_changes(
        ChangeNotifyResponse::decode(&mut reply.body())?.output,
    )?)
}

/// One question for changes in a directory where it is open now, for those who must miss none: `None` if that open is
/// lost, and with it what changed since it answered last.
pub(crate) async fn watch_at(
    handle: Arc<HandleInner>,
    at: Opened,
    filter: CompletionFilter,
) -> Result<Option<Vec<FileNotifyInformation>>> {
    let output_max = QUERY_MAX.min(handle.share.limits().transact_max);
    let question = ops::watch(at.tree.id, at.file_id, filter, true, output_max);
    match at.session.exchange(at.tree.chain(vec![question]), 0).await {
        Outcome::Replied(replies) => {
            let reply = first(&replies)?;
            match reply.status() {
                status if is_stale(status) => {
                    handle.make_stale(&at, status);
                    Ok(None)
                }
                // The driver logs in again meanwhile.
                NtStatus::NETWORK_SESSION_EXPIRED | NtStatus::NOTIFY_CLEANUP => Ok(None),
                _ => changes_in(reply).map(Some),
            }
        }
        Outcome::Lost { .. } => Ok(None),
        Outcome::Failed { error, .. } => Err(error),
    }
}

fn taken_back(mut operations: Vec<crate::Operation>) -> BlockMut {
    let operation = operations.pop().expect("an operation comes back");
    operation.receive.expect("a READ comes back with its block")
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.inner.path)
    }
}
