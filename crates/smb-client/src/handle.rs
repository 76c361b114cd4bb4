//! Handles on open files, directories and pipes.

use std::fmt;
use std::sync::Arc;

use ropeway_block::{Block, BlockMut};
use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::change_notify::{
    ChangeNotifyResponse, CompletionFilter, FileNotifyInformation, decode_changes,
};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::ranges::DuplicateExtents;
use ropeway_smb_wire::info::{FileInfoClass, FileInformation, FileStandardInformation, Information as _};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::lock::LockElement;
use ropeway_smb_wire::query_info::{QueryInfoResponse, SecurityInformation};
use ropeway_smb_wire::write::WriteResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text, Writer};

use crate::compound::{RefusalCause, refusal_cause};
use crate::error::{Error, LostReason, Result};
use crate::open::Created;
use crate::ops;
use crate::reopen::{HandleInner, Opened, is_stale, mark_replay};
use crate::replies::{check, first, nth};
use crate::session::Outcome;
use crate::share::Share;
use crate::tree::{ATTEMPTS, Replay};

/// Maximum bytes of a reply of variable length, which is small in all likelihood.
const QUERY_MAX: u32 = 64 << 10;

/// An open file, directory or pipe. Several tasks may have requests in flight at the same time.
/// Dropping the handle closes it in the background; [`close`](Self::close) waits and reports the
/// result.
pub struct Handle {
    pub(crate) inner: Arc<HandleInner>,
}

impl Handle {
    /// Reads up to `length` bytes at `offset` into the block and sets the block's `len` to the
    /// count: less at the end of the file, 0 behind it. `length` may not exceed
    /// [`Limits::read_max`](crate::Limits) nor the block. The returned block may be another one
    /// than the block passed in, but is no smaller than `length`.
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

    /// Reads as [`read_at`](Self::read_at) does. Also returns whether the server reported that the
    /// file ends at `offset` or before.
    pub(crate) async fn read_to_end_status(
        &self,
        offset: u64,
        block: BlockMut,
        length: usize,
    ) -> (BlockMut, Result<bool>) {
        let budget = &self.inner.share.client().link().budget;
        let _permit = budget.acquire(length as u64).await;
        self.request_read(offset, block, length).await
    }

    /// Reads as [`read_at`](Self::read_at) does, for a caller that holds the budget's permit.
    pub(crate) async fn read_without_permit(
        &self,
        offset: u64,
        block: BlockMut,
        length: usize,
    ) -> (BlockMut, Result<()>) {
        let (block, read) = self.request_read(offset, block, length).await;
        (block, read.map(drop))
    }

    async fn request_read(
        &self,
        offset: u64,
        mut block: BlockMut,
        length: usize,
    ) -> (BlockMut, Result<bool>) {
        let handle = &self.inner;
        let link = handle.share.client().link();
        // Callers respect `Limits::read_max`.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut is_reopened = false;
        for _ in 0..ATTEMPTS {
            let at = match handle.opened().await {
                Ok(at) => at,
                Err(error) => return (block, Err(error)),
            };
            let operation = ops::read(at.tree.id, at.file_id, offset, length, block);
            let compound = at.tree.compound(vec![operation]);
            block = match at.session.exchange(compound, u64::from(length)).await {
                Outcome::Replied(replies) => {
                    link.consider_channels(&at.session);
                    let reply = replies
                        .into_iter()
                        .next()
                        .expect("a compound has an answer to each operation");
                    let status = reply.status();
                    let mut block = reply.payload.expect("a READ's answer has its block");
                    match status {
                        // A message of a pipe is longer than the request.
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
                Outcome::Lost { operations, .. } => returned_block(operations),
                Outcome::Failed { operations, error } => return (returned_block(operations), Err(error)),
            };
        }
        (block, Err(Error::Lost(LostReason::Closed)))
    }

    /// Writes the whole block at `offset`, at most [`Limits::write_max`](crate::Limits) bytes. If
    /// the block is the only reference to its slot and not a slice of it, header and data leave in
    /// one piece.
    ///
    /// # Errors
    /// [`Error::PeerRefused`] and the errors of any request. A short write is an error.
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
        handle.count_write();
        let (mut unanswered, mut is_reopened) = (0, false);
        for _ in 0..ATTEMPTS {
            let at = handle.opened().await?;
            let mut operation = ops::write(at.tree.id, at.file_id, offset, block);
            mark_replay(&mut operation, unanswered);
            match at
                .session
                .exchange(at.tree.compound(vec![operation]), length as u64)
                .await
            {
                Outcome::Replied(replies) => {
                    link.consider_channels(&at.session);
                    let mut reply = replies
                        .into_iter()
                        .next()
                        .expect("a compound has an answer to each operation");
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
                        return Err(Error::size_mismatch(u64::from(count), length as u64));
                    }
                    return Ok(());
                }
                Outcome::Lost { mut operations, .. } => {
                    let payload = operations.pop().and_then(|operation| operation.payload);
                    // The block was sealed in place, so only the ciphertext is left.
                    block = payload.ok_or(Error::Lost(LostReason::OutcomeUnknown))?;
                    unanswered += 1;
                }
                Outcome::Failed { error, .. } => return Err(error),
            }
        }
        Err(Error::Lost(LostReason::Closed))
    }

    /// Waits until the server has written the file to its disk.
    ///
    /// # Errors
    /// The errors of any request. [`LostReason::WritesInDoubt`] if the server lost the open file
    /// meanwhile: what it flushed may then lack earlier writes.
    pub async fn flush(&self) -> Result<()> {
        let handle = &self.inner;
        let written = handle.written();
        let replies = handle.run(Replay::Safe, ops::flush).await?;
        check("flush", first(&replies)?)?;
        handle.flushed(written)
    }

    /// Flushes, then sets information, in one round trip. Returns the result of each, and the size
    /// if the server reported it. `again` flushes once more, so that the information is durable
    /// too.
    pub(crate) async fn flush_and_set<I: FileInformation>(
        &self,
        information: &I,
        again: bool,
    ) -> (Result<()>, Result<()>, Option<u64>) {
        let handle = &self.inner;
        let link = handle.share.client().link();
        if !link.compounds.is_usable() {
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
        if changes_length(I::CLASS) {
            handle.count_write();
        }
        let written = handle.written();
        let replies = match handle.run_compound(Replay::Safe, build).await {
            Ok(replies) => replies,
            Err(error) => return (Err(error.clone()), Err(error), None),
        };
        if matches!(refusal_cause(&replies), RefusalCause::Compound) {
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

    /// Queries information, for instance `query::<FileAllInformation>()`.
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn query<I: FileInformation>(&self) -> Result<I> {
        let output_max = QUERY_MAX.min(self.inner.share.limits().transact_max);
        let build = |tree, file| ops::query_file::<I>(tree, file, output_max);
        let replies = self.inner.run(Replay::Safe, build).await?;
        let reply = first(&replies)?;
        check("query", reply)?;
        Ok(I::decode(QueryInfoResponse::decode(&mut reply.body())?.output)?)
    }

    /// Sets information, for instance `FileBasicInformation`, `FileEndOfFileInformation`,
    /// `FileRenameInformation`.
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn set<I: FileInformation>(&self, information: &I) -> Result<()> {
        // Renaming or linking fails the second time.
        let replay = match I::CLASS {
            FileInfoClass::Rename | FileInfoClass::RenameEx | FileInfoClass::Link => Replay::Once,
            _ => Replay::Safe,
        };
        if changes_length(I::CLASS) {
            self.inner.count_write();
        }
        let build = |tree, file| ops::set_file(tree, file, information);
        let replies = self.inner.run(replay, build).await?;
        check("set", first(&replies)?)
    }

    /// Returns the security descriptor, self-relative ([MS-DTYP] 2.4.6).
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn query_security(&self, what: SecurityInformation) -> Result<Vec<u8>> {
        let output_max = QUERY_MAX.min(self.inner.share.limits().transact_max);
        let build = |tree, file| ops::query_security(tree, file, what, output_max);
        let replies = self.inner.run(Replay::Safe, build).await?;
        let reply = first(&replies)?;
        check("query the security descriptor", reply)?;
        Ok(QueryInfoResponse::decode(&mut reply.body())?.output.to_vec())
    }

    /// Sets the security descriptor, self-relative.
    ///
    /// # Errors
    /// The errors of any request.
    pub async fn set_security(&self, what: SecurityInformation, descriptor: &[u8]) -> Result<()> {
        let build = |tree, file| ops::set_security(tree, file, what, descriptor);
        let replies = self.inner.run(Replay::Safe, build).await?;
        check("set the security descriptor", first(&replies)?)
    }

    /// Sends an FSCTL on this file and returns its output. Output that did not fit
    /// (`STATUS_BUFFER_OVERFLOW`) is returned as far as it came.
    ///
    /// # Errors
    /// The errors of any request.
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
            self.inner.count_write();
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

    /// Shares a range of `source`'s content with this file, without copying it
    /// (FSCTL_DUPLICATE_EXTENTS_TO_FILE, [MS-FSCC] 2.3.7). The same client must have both files
    /// open on the same volume. The server decides which offsets and lengths it accepts (whole
    /// clusters, in general).
    ///
    /// # Errors
    /// `STATUS_NOT_SAME_DEVICE`, without a request, if the clients differ. The errors of any
    /// request.
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
        self.inner.count_write();
        for _ in 0..ATTEMPTS {
            let from = source.inner.opened().await?;
            let at = self.inner.opened().await?;
            if !Arc::ptr_eq(&from.session, &at.session) {
                // One of the files was opened again meanwhile; the next attempt opens the other.
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
            match at.session.exchange(at.tree.compound(vec![operation]), 0).await {
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

    /// Locks or unlocks a range of bytes ([MS-SMB2] 2.2.26). A lock belongs to this handle. Where
    /// the server reclaims the handle after a lost connection, it keeps the locks.
    ///
    /// # Errors
    /// `STATUS_LOCK_NOT_GRANTED` or `STATUS_FILE_LOCK_CONFLICT` if another open holds a lock that
    /// excludes this one. [`LostReason::OutcomeUnknown`] if the reply was lost.
    pub(crate) async fn lock(&self, element: LockElement) -> Result<()> {
        let build = |tree, file| ops::lock(tree, file, &[element]);
        let replies = self.inner.run(Replay::Once, build).await?;
        check("lock", first(&replies)?)
    }

    /// Releases shared locks of this handle, which exclude its own writes too, writes, and takes the
    /// locks again: in one round trip where the server supports compounds. Returns the result of the
    /// write and that of taking the locks.
    ///
    /// # Errors
    /// The locks cannot be released; [`LostReason::OutcomeUnknown`] if the reply was lost.
    pub(crate) async fn write_between_locks(
        &self,
        offset: u64,
        data: &[u8],
        unlock: &[LockElement],
        lock: &[LockElement],
    ) -> Result<(Result<()>, Result<()>)> {
        let handle = &self.inner;
        handle.count_write();
        let run = async |first: usize, last: usize| {
            let build = |tree, file| {
                let all = [
                    ops::lock(tree, file, unlock),
                    ops::write_copied(
                        tree,
                        if first == 0 { FileId::RELATED } else { file },
                        offset,
                        data,
                    ),
                    ops::lock(tree, if first == 2 { file } else { FileId::RELATED }, lock),
                ];
                all.into_iter().skip(first).take(last + 1 - first).collect()
            };
            handle.run_compound(Replay::Once, build).await
        };
        let checked = |replies: &[Reply], at| nth(replies, at).and_then(|reply| check("write", reply));
        if handle.share.client().link().compounds.is_usable() {
            let replies = run(0, 2).await?;
            if !matches!(refusal_cause(&replies), RefusalCause::Compound) {
                checked(&replies, 0)?;
                return Ok((checked(&replies, 1), checked(&replies, 2)));
            }
        }
        checked(&run(0, 0).await?, 0)?;
        let written = run(1, 1).await.and_then(|replies| checked(&replies, 0));
        let locked = run(2, 2).await.and_then(|replies| checked(&replies, 0));
        Ok((written, locked))
    }

    /// Waits for changes in this directory. An empty list means too many changes to report: list
    /// the directory. Changes while a lost connection is being re-established are not reported.
    ///
    /// # Errors
    /// The errors of any request.
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

    /// Closes the handle and waits for the reply. If the connection is lost, the server closes the
    /// file itself.
    ///
    /// # Errors
    /// [`Error::PeerRefused`] if the server refuses the CLOSE.
    pub async fn close(self) -> Result<()> {
        self.inner.close(false).await.map(drop)
    }

    /// Returns the result of CREATE.
    pub fn created(&self) -> &Created {
        &self.inner.created
    }

    /// Returns the path in [`share`](Self::share). After a DFS referral it can differ from the path
    /// that was opened.
    pub fn path(&self) -> &Text {
        &self.inner.path
    }

    /// Returns the share of the file. After a DFS referral it can differ from the share on which
    /// the file was opened.
    pub fn share(&self) -> &Share {
        &self.inner.share
    }
}

/// Returns the size in the reply to a query, if the query succeeded.
fn size_in(reply: &Reply) -> Option<u64> {
    check("query", reply).ok()?;
    let output = QueryInfoResponse::decode(&mut reply.body()).ok()?.output;
    let standard = FileStandardInformation::decode(output).ok()?;
    Some(standard.end_of_file)
}

/// Returns whether setting this class changes the content.
fn changes_length(class: FileInfoClass) -> bool {
    matches!(class, FileInfoClass::EndOfFile | FileInfoClass::Allocation)
}

/// Decodes the reply to a CHANGE_NOTIFY.
fn changes_in(reply: &Reply) -> Result<Vec<FileNotifyInformation>> {
    check("watch", reply)?;
    if reply.status() == NtStatus::NOTIFY_ENUM_DIR {
        return Ok(Vec::new());
    }
    Ok(decode_changes(
        ChangeNotifyResponse::decode(&mut reply.body())?.output,
    )?)
}

/// Sends one CHANGE_NOTIFY on the current handle of a directory, for callers that must miss no
/// change. Returns `None` if that handle is lost, and with it the changes since the last reply.
pub(crate) async fn watch_once(
    handle: Arc<HandleInner>,
    at: Opened,
    filter: CompletionFilter,
    below: bool,
) -> Result<Option<Vec<FileNotifyInformation>>> {
    let output_max = QUERY_MAX.min(handle.share.limits().transact_max);
    let question = ops::watch(at.tree.id, at.file_id, filter, below, output_max);
    match at.session.exchange(at.tree.compound(vec![question]), 0).await {
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

fn returned_block(mut operations: Vec<Operation>) -> BlockMut {
    let operation = operations.pop().expect("an operation comes back");
    operation.receive.expect("a READ comes back with its block")
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({})", self.inner.path)
    }
}
