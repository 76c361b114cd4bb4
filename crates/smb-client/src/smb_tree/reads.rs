//! Reads of an open file, which are complete or end at the end of the file.
//!
//! A server may answer a READ with fewer bytes than requested ([MS-SMB2] 3.3.5.12) without being at
//! the end: the client requests the rest. Only `STATUS_END_OF_FILE` means that the file ends before
//! its reported size.

use futures_util::StreamExt as _;
use ropeway_block::{BlockMut, Pool};
use ropeway_vfs::{Op, Result};

use super::asked_again::asked_again;
use super::file::SmbFile;
use crate::budget::Permit;
use crate::error::{Error as ClientError, Result as ClientResult};

/// Pieces of one read in flight.
const PIECES_AT_ONCE: usize = 16;
/// Maximum number of empty replies in a row that do not report the end of the file; with more, the
/// server will never return the rest. A guess: one may be an accident.
const IDLE_MAX: usize = 3;
/// Maximum bytes of one request for the rest.
const REST_MAX: usize = 256 << 10;

impl SmbFile {
    /// Reads `length` bytes at `offset`, fewer only at the end of the file.
    pub(crate) async fn read(
        &self,
        mut block: BlockMut,
        offset: u64,
        length: usize,
    ) -> (BlockMut, Result<()>) {
        if length == 0 {
            block.set_len(0);
            return (block, Ok(()));
        }
        let piece_max = self.piece_max();
        if length > piece_max {
            return self.read_pieces(block, offset, length, piece_max).await;
        }
        let _ahead = self.ahead(length).await;
        let (mut block, read) = self.read_whole(block, offset, length).await;
        let read = read.map_err(|error| self.error(Op::Read, error));
        if read.is_err() {
            block.set_len(0);
        }
        (block, read)
    }

    /// Waits until a line that may lose segments has room for `length` bytes.
    async fn ahead(&self, length: usize) -> Option<Permit<'_>> {
        let link = self.tree.share.client().link();
        match link.last().watches_losses() {
            true => Some(link.reads_ahead.acquire(length as u64).await),
            false => None,
        }
    }

    /// Returns the most bytes of one READ: what the server allows, and no more than a connection of a slow
    /// line carries in a moment.
    fn piece_max(&self) -> usize {
        let share = &self.tree.share;
        let read_max = share.limits().read_max as usize;
        let by_line = share.client().link().last().read_of_line();
        by_line.map_or(read_max, |bytes| read_max.min(bytes))
    }

    /// Reads more than one READ takes: in pieces, which are copied together.
    async fn read_pieces(
        &self,
        mut block: BlockMut,
        offset: u64,
        length: usize,
        piece_max: usize,
    ) -> (BlockMut, Result<()>) {
        let pieces = &self.tree.pieces;
        let piece_max = piece_max.min(pieces.block_size());
        let reads = (0..length).step_by(piece_max).map(|at| async move {
            let wanted = piece_max.min(length - at);
            let (piece, result) = self.read_piece(offset + at as u64, wanted).await;
            (at, piece, result)
        });
        // Each piece is copied to its place as it arrives: holding its block back for earlier
        // pieces could leave them without blocks.
        let mut reads = futures_util::stream::iter(reads).buffer_unordered(PIECES_AT_ONCE);
        let mut ends = vec![0; length.div_ceil(piece_max)];
        block.set_len(0);
        while let Some((at, piece, result)) = reads.next().await {
            if let Err(error) = result {
                drop(reads);
                block.set_len(0);
                return (block, Err(self.error(Op::Read, error)));
            }
            block.capacity_mut()[at..at + piece.len()].copy_from_slice(&piece);
            ends[at / piece_max] = at + piece.len();
        }
        drop(reads);
        // The result ends at the first short piece.
        let mut upto = 0;
        for (index, end) in ends.into_iter().enumerate() {
            if upto != index * piece_max {
                break;
            }
            upto = end.max(upto);
        }
        block.set_len(upto);
        (block, Ok(()))
    }

    /// Reads a piece. If it takes long while another connection of a lossy line has nothing to do, asks for it
    /// there as well, and takes what arrives first.
    async fn read_piece(&self, offset: u64, length: usize) -> (BlockMut, ClientResult<()>) {
        let pieces = &self.tree.pieces;
        let piece = pieces.get().await;
        let _ahead = self.ahead(length).await;
        let link = self.tree.share.client().link();
        let first = self.read_whole(piece, offset, length);
        asked_again(first, || {
            let other = link.last().has_idle().then(|| pieces.try_get()).flatten()?;
            Some(self.read_whole(other, offset, length))
        })
        .await
    }

    /// Reads no more than the server allows in one READ. Requests missing bytes again, into memory
    /// of their own: a READ fills its block from the beginning.
    async fn read_whole(&self, block: BlockMut, offset: u64, length: usize) -> (BlockMut, ClientResult<()>) {
        let (mut block, first) = self.handle().read_to_end_status(offset, block, length).await;
        let mut is_at_end = match first {
            Ok(is_at_end) => is_at_end,
            Err(error) => return (block, Err(error)),
        };
        let (mut upto, mut idle) = (block.len(), 0);
        // A file that ends at its known length needs no further request.
        let is_missing = |upto: usize| upto < length && offset + (upto as u64) < self.known_length();
        while !is_at_end && is_missing(upto) {
            let (rest, read) = self.read_rest(offset + upto as u64, length - upto).await;
            match read {
                Ok(ended) => is_at_end = ended,
                Err(error) => return (block, Err(error)),
            }
            idle = if rest.is_empty() { idle + 1 } else { 0 };
            if !is_at_end && idle >= IDLE_MAX {
                let sentence = "a READ before the end of the file returns nothing";
                return (block, Err(ClientError::InvalidReply(sentence.to_owned())));
            }
            block.capacity_mut()[upto..upto + rest.len()].copy_from_slice(&rest);
            upto += rest.len();
        }
        block.set_len(upto);
        (block, Ok(()))
    }

    async fn read_rest(&self, offset: u64, length: usize) -> (Vec<u8>, ClientResult<bool>) {
        // Not a block of a pool: this read may hold one of those already.
        let wanted = length.min(REST_MAX);
        let piece = Pool::new(wanted, 1).get().await;
        let (piece, read) = self.handle().read_to_end_status(offset, piece, wanted).await;
        // Copied: missing ranges are small or rare.
        (piece.to_vec(), read)
    }
}
