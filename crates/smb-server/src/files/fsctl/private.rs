//! Private controls of an open node (docs/adr/0033): chunks and hashes of a file's content; [`folder`] has
//! that of folders.
//!
//! A worker executes them, since they read much. Each request reads at most [`WORK_MAX`] bytes
//! through a buffer of [`PIECE`], and its reply has at most [`OUTPUT_MAX`] bytes.

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::create_context::{PrivateQuery, PrivateReply};
use ropeway_smb_wire::fsctl::private::{
    CHUNK_ENTRY_LEN, ChunkEntry, ChunksRequest, PRIVATE_HEADER_LEN, PrivateMessage, PrivateOperation,
    PrivateOperations, RangeHashReply, RangeHashRequest, VERSION,
};
use ropeway_vfs::HashAlgorithm;
use ropeway_vfs::chunks::{Cutter, chunk_hash};

use super::{Locked, Range, folder, stored};
use crate::files::output_buffer;
use crate::files::output_buffer::OutputResult;
use crate::files::set_file;
use crate::share::Share;
use crate::state::open::Open;

/// Most bytes that one request reads. At 1 GB/s that is 67 ms, and a worker is free again.
const WORK_MAX: u64 = 64 << 20;

/// Bytes read at once; four of the longest chunks.
const PIECE: usize = 4 << 20;

/// Most bytes of a reply: hashes of 52,000 chunks.
const OUTPUT_MAX: usize = 1 << 20;

/// Answers the create context. A share of a far server has no private controls: it would have to
/// fetch what it hashes.
pub(crate) fn offer(share: &Share, query: PrivateQuery) -> Option<PrivateReply> {
    (!share.far && query.version >= VERSION).then_some(PrivateReply {
        version: VERSION,
        operations: PrivateOperations::CHUNKS
            | PrivateOperations::RANGE_HASH
            | PrivateOperations::FOLDER_DIGEST
            | PrivateOperations::PUT_FILES
            | PrivateOperations::GET_FILES
            | PrivateOperations::COPY_FILES
            | PrivateOperations::SAME_FILES,
    })
}

/// Whether a control asks for the digest of a folder.
pub(crate) fn is_folder_digest(input: &[u8]) -> bool {
    PrivateMessage::decode(input).is_ok_and(|request| request.operation == PrivateOperation::FOLDER_DIGEST)
}

/// Executes a private control.
///
/// # Errors
/// STATUS_INVALID_DEVICE_REQUEST on a share without private controls, STATUS_NOT_SUPPORTED for an
/// unknown version or operation, STATUS_INVALID_PARAMETER for a malformed request,
/// STATUS_BUFFER_TOO_SMALL, and the errors of a READ.
pub(crate) fn private(open: &Open, input: &[u8], output_max: usize, locked: Locked<'_>) -> OutputResult {
    if open.share.far {
        return Err(NtStatus::INVALID_DEVICE_REQUEST);
    }
    let request = PrivateMessage::decode(input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    if request.version != VERSION {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let room = output_max.min(OUTPUT_MAX);
    let room = room
        .checked_sub(PRIVATE_HEADER_LEN)
        .ok_or(NtStatus::BUFFER_TOO_SMALL)?;
    let body = match request.operation {
        PrivateOperation::CHUNKS => chunks(open, request.body, room, locked)?,
        PrivateOperation::RANGE_HASH => range_hash(open, request.body, locked)?,
        PrivateOperation::FOLDER_DIGEST => folder::digest(open, request.body, room)?,
        _ => return Err(NtStatus::NOT_SUPPORTED),
    };
    if body.len() > room {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(reply(request.operation, &body))
}

/// Returns the answer to an operation that succeeded.
pub(crate) fn reply(operation: PrivateOperation, body: &[u8]) -> (NtStatus, Vec<u8>) {
    let reply = PrivateMessage::new(operation, body);
    (NtStatus::SUCCESS, output_buffer::encoded(|w| reply.encode(w)))
}

/// Cuts a range into chunks, as many as fit the reply.
fn chunks(open: &Open, body: &[u8], room: usize, locked: Locked<'_>) -> Result<Vec<u8>, NtStatus> {
    let request = ChunksRequest::decode(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let cutter = Cutter::new(request.average);
    let count_max = room / CHUNK_ENTRY_LEN;
    if count_max == 0 {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    let mut source = Content::of(open, request.offset, request.length, locked)?;
    let mut entries = Vec::new();
    let mut left = Vec::with_capacity(PIECE);
    loop {
        let is_end = source.fill(&mut left)?;
        let done = cutter.cut(&left, is_end, |chunk| {
            if entries.len() < count_max {
                entries.push(ChunkEntry {
                    // The longest chunk has 1 MiB.
                    length: chunk.len() as u32,
                    hash: chunk_hash(chunk),
                });
            }
        });
        if is_end || entries.len() == count_max {
            break;
        }
        left.drain(..done);
    }
    source.end()?;
    Ok(output_buffer::encoded(|w| {
        entries.iter().for_each(|entry| entry.encode(w));
    }))
}

/// Hashes a range.
fn range_hash(open: &Open, body: &[u8], locked: Locked<'_>) -> Result<Vec<u8>, NtStatus> {
    let request = RangeHashRequest::decode(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let mut source = Content::of(open, request.offset, request.length, locked)?;
    let mut hasher = HashAlgorithm::Blake3.hasher();
    let mut piece = Vec::with_capacity(PIECE);
    let mut length = 0;
    loop {
        let is_end = source.fill(&mut piece)?;
        hasher.update(&piece);
        length += piece.len() as u64;
        piece.clear();
        if is_end {
            break;
        }
    }
    source.end()?;
    let reply = RangeHashReply {
        length,
        hash: hasher.finish(),
    };
    Ok(output_buffer::encoded(|w| reply.encode(w)))
}

/// A range of an open file that is read in pieces.
struct Content<'a> {
    open: &'a Open,
    at: u64,
    end: u64,
    held: Option<ropeway_vfs::Timestamp>,
}

impl<'a> Content<'a> {
    /// Checks what a READ of the range checks.
    fn of(open: &'a Open, offset: u64, length: u64, locked: Locked<'_>) -> Result<Self, NtStatus> {
        if open.directory {
            return Err(NtStatus::INVALID_DEVICE_REQUEST);
        }
        let readable = AccessMask::READ_DATA | AccessMask::EXECUTE;
        if !open.access.intersects(readable) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let length = length.min(WORK_MAX);
        let range = Range {
            offset,
            length,
            write: false,
        };
        if length > 0 && locked(open, range) {
            return Err(NtStatus::FILE_LOCK_CONFLICT);
        }
        Ok(Self {
            open,
            at: offset,
            // The decoder has checked that it does not overflow.
            end: offset + length,
            held: set_file::held_access_time(open)?,
        })
    }

    /// Fills `buffer` up to [`PIECE`] bytes. Returns whether the range, or the file, ends with it.
    fn fill(&mut self, buffer: &mut Vec<u8>) -> Result<bool, NtStatus> {
        let have = buffer.len();
        let room = PIECE.saturating_sub(have) as u64;
        // At most `PIECE`.
        let wanted = room.min(self.end - self.at) as usize;
        buffer.resize(have + wanted, 0);
        let count = stored(self.open.node.read_at(&mut buffer[have..], self.at))?;
        buffer.truncate(have + count);
        self.at += count as u64;
        Ok(count < wanted || self.at == self.end)
    }

    fn end(self) -> Result<(), NtStatus> {
        set_file::restore_access_time(self.open, self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn ask(
        open: &Open,
        operation: PrivateOperation,
        body: &[u8],
        output_max: usize,
    ) -> Result<Vec<u8>, NtStatus> {
        let input = output_buffer::encoded(|w| PrivateMessage::new(operation, body).encode(w));
        let (status, output) = private(open, &input, output_max, &|_, _| false)?;
        assert_eq!(status, NtStatus::SUCCESS);
        let message = PrivateMessage::decode(&output).unwrap();
        assert_eq!((message.version, message.operation), (VERSION, operation));
        Ok(message.body.to_vec())
    }

    fn chunks_of(open: &Open, offset: u64, length: u64, output_max: usize) -> Vec<ChunkEntry> {
        let request = ChunksRequest {
            offset,
            length,
            average: 4096,
        };
        let body = output_buffer::encoded(|w| request.encode(w));
        let body = ask(open, PrivateOperation::CHUNKS, &body, output_max).unwrap();
        ChunkEntry::decode_list(&body).unwrap()
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(5);
        std::iter::repeat_with(|| random.u8(..)).take(length).collect()
    }

    /// Longer than a piece, so that chunks lie across pieces.
    #[test]
    fn chunks_are_those_of_the_content() {
        let open = testing::open(&testing::share(), "f", AccessMask::FILE_ALL);
        let content = noise(PIECE + 300_000);
        open.node.write_at(&content, 0).unwrap();
        for (offset, end) in [(0, content.len()), (1000, 70_000), (5, 5)] {
            let mut wanted = Vec::new();
            Cutter::new(4096).cut(&content[offset..end], true, |chunk| {
                wanted.push(ChunkEntry {
                    length: chunk.len() as u32,
                    hash: chunk_hash(chunk),
                });
            });
            // As far as the file reaches, for a range that is longer.
            let length = if end == content.len() {
                1 << 40
            } else {
                end - offset
            };
            let got = chunks_of(&open, offset as u64, length as u64, 1 << 20);
            assert_eq!(got, wanted);
        }
        assert_eq!(chunks_of(&open, 1 << 50, 10, 100), []);
        // A small reply has the first ones.
        let few = chunks_of(&open, 0, 1 << 40, PRIVATE_HEADER_LEN + 3 * CHUNK_ENTRY_LEN + 5);
        assert_eq!(few.len(), 3);
    }

    #[test]
    fn a_range_is_hashed_as_far_as_the_file_reaches() {
        let open = testing::open(&testing::share(), "f", AccessMask::FILE_ALL);
        let content = noise(PIECE + 10);
        open.node.write_at(&content, 0).unwrap();
        for (offset, length) in [(0, 1 << 40), (3, 100), (PIECE, 4), (PIECE + 10, 1)] {
            let request = RangeHashRequest {
                offset: offset as u64,
                length: length as u64,
            };
            let body = output_buffer::encoded(|w| request.encode(w));
            let body = ask(&open, PrivateOperation::RANGE_HASH, &body, 100).unwrap();
            let reply = RangeHashReply::decode(&body).unwrap();
            let part = &content[offset..(offset + length).min(content.len())];
            assert_eq!(reply.length, part.len() as u64);
            assert_eq!(reply.hash, HashAlgorithm::Blake3.hash(part));
        }
    }

    #[test]
    fn what_a_read_refuses_is_refused() {
        let share = testing::share();
        let body = output_buffer::encoded(|w| {
            RangeHashRequest { offset: 0, length: 1 }.encode(w);
        });
        let hash = PrivateOperation::RANGE_HASH;
        let blind = testing::open(&share, "f", AccessMask::WRITE_DATA);
        assert_eq!(ask(&blind, hash, &body, 100), Err(NtStatus::ACCESS_DENIED));
        let folder = testing::folder(&share, "d");
        assert_eq!(
            ask(&folder, hash, &body, 100),
            Err(NtStatus::INVALID_DEVICE_REQUEST)
        );
        let open = testing::open(&share, "f", AccessMask::FILE_ALL);
        assert_eq!(ask(&open, hash, &body, 20), Err(NtStatus::BUFFER_TOO_SMALL));
        assert_eq!(
            ask(&open, PrivateOperation(63), &body, 100),
            Err(NtStatus::NOT_SUPPORTED)
        );
        let input = output_buffer::encoded(|w| PrivateMessage::new(hash, &body).encode(w));
        let locked = private(&open, &input, 100, &|_, _| true);
        assert_eq!(locked, Err(NtStatus::FILE_LOCK_CONFLICT));
    }
}
