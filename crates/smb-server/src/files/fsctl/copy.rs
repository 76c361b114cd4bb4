//! Copies on the server between two opens ([MS-SMB2] 3.3.5.15.6; [MS-FSCC] 2.3.7).

use std::sync::Arc;

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::copy_chunk::{Chunk, CopyChunkRequest, CopyChunkResponse, ResumeKey};
use ropeway_smb_wire::fsctl::ranges::DuplicateExtents;
use ropeway_smb_wire::{FileId, NtStatus};
use ropeway_vfs::ErrorKind;
use ropeway_vfs::store::StreamOpen;

use super::{Locked, Range, stored};
use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::{attributes, set_file};
use crate::state::open::Open;

/// Limits of Windows ([MS-SMB2] 3.3.3, ServerSideCopy…): chunks of a request, bytes of a chunk,
/// bytes of a request.
const LIMITS: CopyChunkResponse = CopyChunkResponse {
    chunks_written: 256,
    chunk_bytes_written: 1 << 20,
    total_bytes_written: 16 << 20,
};
/// Length of the response in bytes.
const RESPONSE_LEN: usize = 12;

/// What a copy depends on besides the target.
pub(crate) struct CopyView<'a> {
    /// Returns the open of a resume key, if this session may use it.
    pub(crate) source: &'a dyn Fn(&ResumeKey) -> Option<Arc<Open>>,
    /// See [`Locked`].
    pub(crate) locked: Locked<'a>,
    /// Whether the client is a Mac that was offered OSX_COPYFILE. Then a copy without chunks is one
    /// of the whole file with its streams.
    pub(crate) apple: bool,
}

/// Returns the number of the open that a resume key refers to. The caller checks that the client
/// may use it.
pub(crate) fn resume_id(key: &ResumeKey) -> u64 {
    let mut id = [0; 8];
    id.copy_from_slice(&key.0[..8]);
    u64::from_le_bytes(id)
}

/// Executes FSCTL_SRV_COPYCHUNK or FSCTL_SRV_COPYCHUNK_WRITE, sent to the target. The response may
/// have an error status *and* data: the limits with STATUS_INVALID_PARAMETER, otherwise the
/// progress.
///
/// # Errors
/// STATUS_OBJECT_NAME_NOT_FOUND (no such source), STATUS_ACCESS_DENIED, STATUS_INVALID_PARAMETER,
/// all without data.
pub(crate) fn copy_chunks(
    target: &Open,
    code: CtlCode,
    input: &[u8],
    output_max: usize,
    view: &CopyView<'_>,
) -> OutputResult {
    let request = CopyChunkRequest::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if output_max < RESPONSE_LEN {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let source = (view.source)(&request.source_key).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    if source.directory || target.directory {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let readable = AccessMask::READ_DATA | AccessMask::EXECUTE;
    let reads_target = code == CtlCode::SRV_COPYCHUNK;
    if !source.access.intersects(readable)
        || !target.access.contains(AccessMask::WRITE_DATA)
        || (reads_target && !target.access.contains(AccessMask::READ_DATA))
    {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if !is_within_limits(&request.chunks) {
        return Ok((NtStatus::INVALID_PARAMETER, encoded(LIMITS)));
    }
    let mut done = CopyChunkResponse {
        chunks_written: 0,
        chunk_bytes_written: 0,
        total_bytes_written: 0,
    };
    let outcome = set_file::keeping_times(target, || {
        if request.chunks.is_empty() && view.apple {
            return copy_whole(&source, target, view);
        }
        request
            .chunks
            .iter()
            .try_for_each(|chunk| copy_chunk(&source, target, chunk, view, &mut done))
    });
    let status = outcome.err().unwrap_or(NtStatus::SUCCESS);
    Ok((status, encoded(done)))
}

fn encoded(response: CopyChunkResponse) -> Vec<u8> {
    output_buffer::encoded(|w| response.encode(w))
}

fn is_within_limits(chunks: &[Chunk]) -> bool {
    let count = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
    let total: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
    let each = |chunk: &Chunk| {
        let end = |offset: u64| offset.checked_add(u64::from(chunk.length));
        let is_offset = |end: Option<u64>| end.is_some_and(|end| i64::try_from(end).is_ok());
        (1..=LIMITS.chunk_bytes_written).contains(&chunk.length)
            && is_offset(end(chunk.source_offset))
            && is_offset(end(chunk.target_offset))
    };
    count <= LIMITS.chunks_written
        && total <= u64::from(LIMITS.total_bytes_written)
        && chunks.iter().all(each)
}

fn copy_chunk(
    source: &Open,
    target: &Open,
    chunk: &Chunk,
    view: &CopyView<'_>,
    done: &mut CopyChunkResponse,
) -> Result<(), NtStatus> {
    let length = u64::from(chunk.length);
    let range = |offset, write| Range {
        offset,
        length,
        write,
    };
    if (view.locked)(source, range(chunk.source_offset, false))
        || (view.locked)(target, range(chunk.target_offset, true))
    {
        return Err(NtStatus::FILE_LOCK_CONFLICT);
    }
    // Read for each chunk: earlier chunks may have made the file longer.
    if chunk.source_offset + length > stored(source.node.stat())?.size {
        return Err(NtStatus::INVALID_VIEW_SIZE);
    }
    let copied = copy_range(source, target, chunk.source_offset, chunk.target_offset, length)?;
    let copied = u32::try_from(copied).unwrap_or(chunk.length);
    done.total_bytes_written += copied;
    if copied < chunk.length {
        done.chunk_bytes_written = copied;
        return Err(NtStatus::INVALID_VIEW_SIZE);
    }
    done.chunks_written += 1;
    Ok(())
}

/// Copies a range; fewer bytes at the source's end. Returns their number.
fn copy_range(
    source: &Open,
    target: &Open,
    source_offset: u64,
    target_offset: u64,
    length: u64,
) -> Result<u64, NtStatus> {
    let is_near = source_offset.abs_diff(target_offset) < length;
    if is_near && is_same(source, target)? {
        return copy_overlapping(source, target, source_offset, target_offset, length);
    }
    let mut copied = 0;
    while copied < length {
        let count = stored(target.node.copy_from(
            &*source.node,
            source_offset + copied,
            target_offset + copied,
            length - copied,
        ))?;
        if count == 0 {
            break;
        }
        copied += count.min(length - copied);
    }
    Ok(copied)
}

/// Whether two opens have the same content.
fn is_same(a: &Open, b: &Open) -> Result<bool, NtStatus> {
    Ok(a.stream == b.stream && stored(a.node.stat())?.id == stored(b.node.stat())?.id)
}

/// Copies within one file as Windows does: reads the whole source before writing (smb2.ioctl). A
/// chunk has at most 1 MiB.
fn copy_overlapping(
    source: &Open,
    target: &Open,
    source_offset: u64,
    target_offset: u64,
    length: u64,
) -> Result<u64, NtStatus> {
    let length = usize::try_from(length).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let mut buffer = vec![0; length];
    let count = stored(source.node.read_at(&mut buffer, source_offset))?;
    stored(target.node.write_at(&buffer[..count], target_offset))?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Executes Apple's copyfile: content and all named streams. SET_INFO transfers attributes and
/// times.
fn copy_whole(source: &Open, target: &Open, view: &CopyView<'_>) -> Result<(), NtStatus> {
    if is_same(source, target)? {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let length = stored(source.node.stat())?.size;
    let range = |write| Range {
        offset: 0,
        length,
        write,
    };
    if (view.locked)(source, range(false)) || (view.locked)(target, range(true)) {
        return Err(NtStatus::FILE_LOCK_CONFLICT);
    }
    copy_range(source, target, 0, 0, length)?;
    if source.stream.is_some() || target.stream.is_some() {
        return Ok(());
    }
    let streams = match source.node.streams() {
        Err(error) if error.kind == ErrorKind::Unsupported => return Ok(()),
        streams => stored(streams)?,
    };
    for stream in streams {
        let (from, _) = stored(source.node.open_stream(&stream.name, &StreamOpen::default()))?;
        let how = StreamOpen {
            create: true,
            exclusive: false,
        };
        let (to, _) = stored(target.node.open_stream(&stream.name, &how))?;
        stored(to.set_len(0))?;
        let mut copied = 0;
        while copied < stream.size {
            let count = stored(to.copy_from(&*from, copied, copied, stream.size - copied))?;
            if count == 0 {
                break;
            }
            copied += count;
        }
    }
    Ok(())
}

/// Executes FSCTL_DUPLICATE_EXTENTS_TO_FILE, sent to the target ([MS-FSA] 2.1.5.10.4). `source`
/// returns the open of an id, if this session may use it.
///
/// # Errors
/// STATUS_INVALID_PARAMETER, STATUS_INVALID_HANDLE (no such source), STATUS_ACCESS_DENIED,
/// STATUS_NOT_SUPPORTED for ranges that do not exist, STATUS_FILE_LOCK_CONFLICT, and errors of the
/// store.
pub(crate) fn duplicate_extents(
    target: &Open,
    input: &[u8],
    source: impl FnOnce(FileId) -> Option<Arc<Open>>,
    locked: Locked<'_>,
) -> Result<(), NtStatus> {
    let asked = DuplicateExtents::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if !target.access.contains(AccessMask::WRITE_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let source = source(asked.source).ok_or(NtStatus::INVALID_HANDLE)?;
    if !source.access.contains(AccessMask::READ_DATA) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if source.directory || target.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let source_end = super::signed_end(asked.source_file_offset, asked.byte_count)?;
    let target_end = super::signed_end(asked.target_file_offset, asked.byte_count)?;
    let (from, to) = (stored(source.node.stat())?, stored(target.node.stat())?);
    let unit = target.share.store.features().unit;
    let is_aligned = |offset| attributes::round_up(offset, unit) == offset;
    if !is_aligned(asked.source_file_offset) || !is_aligned(asked.target_file_offset) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let overlaps = from.id == to.id
        && source.stream == target.stream
        && asked.source_file_offset.abs_diff(asked.target_file_offset) < asked.byte_count;
    let unlike = attributes::is_sparse(&from) && !attributes::is_sparse(&to);
    if source_end > from.size || target_end > to.size || overlaps || unlike {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let range = |offset, write| Range {
        offset,
        length: asked.byte_count,
        write,
    };
    if locked(&source, range(asked.source_file_offset, false))
        || locked(target, range(asked.target_file_offset, true))
    {
        return Err(NtStatus::FILE_LOCK_CONFLICT);
    }
    set_file::keeping_times(target, || {
        let copied = copy_range(
            &source,
            target,
            asked.source_file_offset,
            asked.target_file_offset,
            asked.byte_count,
        )?;
        match copied < asked.byte_count {
            true => Err(NtStatus::NOT_SUPPORTED),
            false => Ok(()),
        }
    })
}
