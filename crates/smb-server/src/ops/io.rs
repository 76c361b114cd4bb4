//! READ, WRITE, FLUSH ([MS-SMB2] 3.3.5.12, 3.3.5.13, 3.3.5.11).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::ReplyFrame;
use ropeway_smb_proto::server::hub::BreakTrigger;
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::flush::{FlushRequest, FlushResponse};
use ropeway_smb_wire::header::Header;
use ropeway_smb_wire::read::{READ_RESPONSE_FIXED_LEN, ReadFlags, ReadRequest, ReadResponse};
use ropeway_smb_wire::write::{WriteFlags, WriteRequest, WriteResponse};
use ropeway_smb_wire::{NtStatus, SessionId};
use ropeway_vfs::Timestamp;

use super::context::{Context, Execution, Outcome};
use super::{ioctl, notify};
use crate::files::{set_file, status};
use crate::ops::range_locks;
use crate::state::open::{Handle, Open};
use crate::state::workers::JobClass;
use crate::state::{Counters, SharedState};

/// Minimum length in bytes of a WRITE that goes to a worker. Below, passing it on costs more than
/// it gains (a guess). For files without a device behind them that holds for a client that waits for each
/// reply; of one that has sent more, the next request is received and verified meanwhile (1 GiB signed over
/// one connection on two processors: 0.83 s instead of 0.96 s).
const POOL_WRITE_MIN: usize = 128 << 10;

/// Minimum length in bytes of a cached READ that goes to a worker, if the client waits for other replies,
/// too: they are sealed and sent while this one is read. smbclient, with two READs of 8 MiB under way, needs
/// 0.56 s for 1 GiB instead of 0.65. With many of 1 MiB, as our client has, the change of threads costs more
/// than it gains.
const POOL_READ_MIN: usize = 4 << 20;

/// Highest offset of a file ([MS-FSA] 2.1.5.2): offsets are signed.
const OFFSET_MAX: u64 = i64::MAX as u64;

pub(super) fn read(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(ReadRequest::decode)?;
    context
        .protocol
        .check_size(&context.request.header, request.length as usize)?;
    let open = match context.handle(request.file_id)? {
        Handle::Pipe(pipe) => return ioctl::read_pipe(context, &pipe, &request),
        Handle::File(open) => open,
    };
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if !open
        .access
        .intersects(AccessMask::READ_DATA | AccessMask::EXECUTE)
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let length = u64::from(request.length);
    let end = request.offset.checked_add(length);
    if end.is_none_or(|end| end > OFFSET_MAX) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    range_locks::check_locks(context.shared, &open, request.offset, length, false)?;
    if length == 0 {
        // An empty read succeeds unless it has a minimum.
        if request.minimum_count > 0 {
            return Err(NtStatus::END_OF_FILE);
        }
        return context.reply(|w| ReadResponse::default().encode_head(w, 0));
    }
    let header = context.protocol.reply(context.request, NtStatus::SUCCESS);
    let signer = context.request.signer;
    let compression = compression(context, &request);
    context.class = JobClass::Reads;
    if context.may_offload {
        let held = set_file::held_access_time(&open)?;
        let taken = match context.is_followed && request.length as usize >= POOL_READ_MIN {
            true => Filled::NotCached,
            false => fill(context.frame, &header, signer, &request, |buffer, offset| {
                open.node
                    .read_cached(buffer, offset)
                    .map_err(|error| status::of(&error))
            }),
        };
        return match taken {
            Filled::Yes(count) => {
                compress(context.frame, &open, compression, count);
                context.figures.read(count);
                was_read(context.shared, &open, &request, count, held);
                Ok(Execution::Replied)
            }
            Filled::Failed => Ok(Execution::Replied),
            Filled::NotCached => {
                let (shared, figures) = (Arc::clone(context.shared), Arc::clone(context.figures));
                Ok(Execution::Offload(
                    Some(header),
                    Box::new(move |mut frame, header, signer| {
                        let count = read_now(&shared, &open, &mut frame, &header, signer, &request);
                        figures.read(count);
                        compress(&mut frame, &open, compression, count);
                        frame
                    }),
                ))
            }
        };
    }
    let count = read_now(context.shared, &open, context.frame, &header, signer, &request);
    context.figures.read(count);
    compress(context.frame, &open, compression, count);
    Ok(Execution::Replied)
}

/// Returns the algorithms for the reply: of those negotiated what suits the line, if the client asks
/// for compression ([MS-SMB2] 3.3.5.12).
fn compression(context: &Context<'_>, request: &ReadRequest) -> Algorithms {
    match context.protocol.negotiated() {
        Some(both) if request.flags.contains(ReadFlags::REQUEST_COMPRESSED) => both.reply_compression(),
        _ => Algorithms::default(),
    }
}

/// Compresses the data of a reply, if that is worth it.
fn compress(frame: &mut ReplyFrame, open: &Open, compression: Algorithms, count: u64) {
    if count > 0 && !compression.is_empty() {
        // At most the length of a frame.
        frame.compress_payload(compression, count as usize, |data| {
            open.state.sampler.is_worthwhile(compression, data)
        });
    }
}

fn read_now(
    shared: &SharedState,
    open: &Open,
    frame: &mut ReplyFrame,
    header: &Header,
    signer: Option<SessionId>,
    request: &ReadRequest,
) -> u64 {
    // If that fails, the read may still succeed.
    let held = set_file::held_access_time(open).unwrap_or_default();
    let filled = fill(frame, header, signer, request, |buffer, offset| {
        open.node
            .read_at(buffer, offset)
            .map(Some)
            .map_err(|error| status::of(&error))
    });
    let Filled::Yes(count) = filled else { return 0 };
    was_read(shared, open, request, count, held);
    count
}

/// Counts a read, and advances `CurrentByteOffset` as Samba does; Windows does not.
fn was_read(shared: &SharedState, open: &Open, request: &ReadRequest, count: u64, held: Option<Timestamp>) {
    Counters::add(&shared.counters.bytes_read, count);
    open.position.store(request.offset + count, Ordering::Relaxed);
    // Restores frozen times. If that fails, the read still succeeded.
    _ = set_file::restore_access_time(open, held);
}

enum Filled {
    Yes(u64),
    Failed,
    NotCached,
}

/// Adds the reply to the frame; the data are read directly into the frame.
fn fill(
    frame: &mut ReplyFrame,
    header: &Header,
    signer: Option<SessionId>,
    request: &ReadRequest,
    read: impl FnOnce(&mut [u8], u64) -> Result<Option<usize>, NtStatus>,
) -> Filled {
    let fixed = |count: usize, out: &mut ropeway_smb_wire::Writer<'_>| {
        ReadResponse::default().encode_head(out, count as u32);
    };
    let outcome = frame.push_payload(
        header,
        signer,
        READ_RESPONSE_FIXED_LEN,
        request.length as usize,
        |buffer| {
            let count = read(buffer, request.offset)?;
            match count {
                // [MS-SMB2] 3.3.5.12: no data, or less than the client's minimum.
                Some(count) if count == 0 || count < request.minimum_count as usize => {
                    Err(NtStatus::END_OF_FILE)
                }
                count => Ok(count),
            }
        },
        fixed,
    );
    match outcome {
        Ok(Some(count)) => Filled::Yes(count as u64),
        Ok(None) => Filled::NotCached,
        Err(status) => {
            let header = Header { status, ..*header };
            frame.push_error(&header, signer);
            Filled::Failed
        }
    }
}

pub(super) fn write(context: &mut Context<'_>) -> Outcome {
    let (request, payload) = context.decode(WriteRequest::decode_head)?;
    let range = payload
        .range(context.message.len())
        .map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let length = range.len();
    context.protocol.check_size(&context.request.header, length)?;
    let data = &context.message[range.clone()];
    let open = match context.handle(request.file_id)? {
        Handle::Pipe(pipe) => return ioctl::write_pipe(context, &pipe, data),
        Handle::File(open) => open,
    };
    if open.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    if !open
        .access
        .intersects(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let end = request
        .offset
        .checked_add(length as u64)
        .filter(|end| *end <= OFFSET_MAX);
    if end.is_none() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    range_locks::check_locks(context.shared, &open, request.offset, length as u64, true)?;
    context.shared.hub().break_caching(
        context.shared.uptime(),
        Some(open.hub_id()),
        &open.file,
        BreakTrigger::Write,
        context.waiter,
    );
    if length == 0 {
        return context.reply(|w| WriteResponse { count: 0 }.encode(w));
    }
    let through = request.flags.contains(WriteFlags::WRITE_THROUGH)
        || open.options.contains(CreateOptions::WRITE_THROUGH);
    let is_worth_it = !open.node.in_memory() || context.is_followed;
    if context.may_offload_write && length >= POOL_WRITE_MIN && is_worth_it {
        let (shared, figures) = (Arc::clone(context.shared), Arc::clone(context.figures));
        return Ok(Execution::OffloadWrite(Box::new(
            move |message, mut frame, header, signer| {
                let outcome = write_now(&shared, &open, &message[range], request.offset, through);
                figures.written(outcome.map_or(0, u64::from));
                answer(&mut frame, &header, signer, outcome);
                frame
            },
        )));
    }
    let count = write_now(context.shared, &open, data, request.offset, through)?;
    context.figures.written(u64::from(count));
    context.reply(|w| WriteResponse { count }.encode(w))
}

fn answer(
    frame: &mut ReplyFrame,
    header: &Header,
    signer: Option<SessionId>,
    outcome: Result<u32, NtStatus>,
) {
    match outcome {
        Ok(count) => frame.push(header, signer, |w| WriteResponse { count }.encode(w)),
        Err(status) => frame.push_error(&Header { status, ..*header }, signer),
    }
}

fn write_now(
    shared: &SharedState,
    open: &Open,
    data: &[u8],
    offset: u64,
    through: bool,
) -> Result<u32, NtStatus> {
    set_file::keeping_times(open, || {
        // Either right allows a write at any offset ([MS-SMB2] 3.3.5.13, note 364; smb2.rw.append), unless
        // the user may only append.
        if open.access.contains(AccessMask::WRITE_DATA) || open.may_overwrite {
            open.node
                .write_at(data, offset)
                .map_err(|error| status::of(&error))
        } else {
            append(shared, open, data, offset)
        }
    })?;
    if through {
        open.node.sync().map_err(|error| status::of(&error))?;
    }
    Counters::add(&shared.counters.bytes_written, data.len() as u64);
    notify::content_changed(shared, open);
    Ok(data.len() as u32)
}

/// Writes for a user who may append and not write ([MS-SMB2] 3.3.5.13): existing bytes must not
/// change.
fn append(shared: &SharedState, open: &Open, data: &[u8], offset: u64) -> Result<(), NtStatus> {
    // Of two appends at the same offset, the second one fails.
    let _guard = shared.appending(&open.file);
    let stat = open.node.stat().map_err(|error| status::of(&error))?;
    if offset < stat.size {
        return Err(NtStatus::ACCESS_DENIED);
    }
    open.node
        .write_at(data, offset)
        .map_err(|error| status::of(&error))
}

pub(super) fn flush(context: &mut Context<'_>) -> Outcome {
    let request = context.decode(FlushRequest::decode)?;
    let open = match context.handle(request.file_id)? {
        Handle::Pipe(_) => return context.reply(|w| FlushResponse.encode(w)),
        Handle::File(open) => open,
    };
    let writable = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    if !open.access.intersects(writable) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if context.may_offload && !open.node.in_memory() {
        let node = Arc::clone(&open.node);
        return Ok(Execution::Offload(
            None,
            Box::new(move |mut frame, header, signer| {
                match node.sync() {
                    Ok(()) => frame.push(&header, signer, |w| FlushResponse.encode(w)),
                    Err(error) => {
                        let header = Header {
                            status: status::of(&error),
                            ..header
                        };
                        frame.push_error(&header, signer);
                    }
                }
                frame
            }),
        ));
    }
    open.node.sync().map_err(|error| status::of(&error))?;
    context.reply(|w| FlushResponse.encode(w))
}
