//! What the far end does with the content of open files by itself: chunks, hashes, copies of
//! ranges.

use std::ops::Range;

use futures_util::future::join_all;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::fsctl::copy_chunk::Chunk as CopyChunk;
use ropeway_smb_wire::fsctl::private::PrivateOperations;
use ropeway_vfs::chunks::{Chunk, Cutter};
use ropeway_vfs::{ContentHash, CopyPiece, FarContent, File, Op, Pending, Result};

use super::file::SmbFile;
use crate::error::Error;
use crate::server_copy::{CHUNK_MAX, CHUNKS_MAX, REQUEST_MAX};

/// What a server needs to do for [`FarContent`].
const NEEDED: PrivateOperations = PrivateOperations::CHUNKS.union(PrivateOperations::RANGE_HASH);

impl FarContent for SmbFile {
    fn chunks(&self, range: Range<u64>, cutter: Cutter) -> Pending<'_, Result<Vec<Chunk>>> {
        Box::pin(async move {
            let chunks = self.handle().chunks(range, cutter.average()).await;
            chunks.map_err(|error| self.error(Op::Read, error))
        })
    }

    fn hash(&self, range: Range<u64>) -> Pending<'_, Result<(u64, ContentHash)>> {
        Box::pin(async move {
            let hash = self.handle().range_hash(range).await;
            hash.map_err(|error| self.error(Op::Read, error))
        })
    }
}

impl SmbFile {
    /// Returns this file if its server has the private controls.
    pub(crate) fn as_far_content(&self) -> Option<&dyn FarContent> {
        self.handle()
            .has_private(NEEDED)
            .then_some(self as &dyn FarContent)
    }

    /// Copies ranges on the server by FSCTL_SRV_COPYCHUNK, in as many requests as its limits
    /// demand. They are all in flight at once: a caller passes some tens of MiB.
    pub(crate) async fn copy_pieces(&self, source: &dyn File, pieces: &[CopyPiece]) -> Result<bool> {
        let Some(source) = self.same_server(source) else {
            return Ok(false);
        };
        self.note_write();
        if let Some(end) = pieces.iter().map(|piece| piece.to + piece.length).max() {
            self.note_length(end);
        }
        let requests = requests(pieces).into_iter();
        let done = join_all(requests.map(|chunks| async move { self.copy_request(source, &chunks).await }));
        // All are awaited: one that is still executed would write over what the caller sends instead.
        let done: std::result::Result<Vec<bool>, Error> = done.await.into_iter().collect();
        match done {
            Ok(all) => Ok(all.into_iter().all(|whole| whole)),
            // The source became shorter, or no copies are supported: the caller sends the data
            // instead, and learns then what else is wrong.
            Err(error) if error.status().is_some() => Ok(false),
            Err(error) => Err(self.error(Op::CopyRange, error)),
        }
    }

    async fn copy_request(&self, source: &SmbFile, chunks: &[CopyChunk]) -> Result<bool, Error> {
        let key = source.resume_key.get_or_try_init(|| source.handle().resume_key());
        let wanted: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
        let copied = match self.handle().copy_chunk_list(*key.await?, chunks).await {
            // The source was opened again after a lost connection, and has another key.
            Err(error) if error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => {
                let key = source.handle().resume_key().await?;
                self.handle().copy_chunk_list(key, chunks).await?
            }
            copied => copied?,
        };
        Ok(copied == wanted)
    }
}

/// Divides ranges into requests that every server accepts.
fn requests(pieces: &[CopyPiece]) -> Vec<Vec<CopyChunk>> {
    let mut requests: Vec<Vec<CopyChunk>> = Vec::new();
    let mut room = 0;
    for piece in pieces {
        let mut done = 0;
        while done < piece.length {
            let is_full = requests
                .last()
                .is_none_or(|request| room == 0 || request.len() == CHUNKS_MAX);
            if is_full {
                requests.push(Vec::new());
                room = REQUEST_MAX;
            }
            let length = CHUNK_MAX.min(room).min(piece.length - done);
            if let Some(request) = requests.last_mut() {
                request.push(CopyChunk {
                    source_offset: piece.from + done,
                    target_offset: piece.to + done,
                    // At most 1 MiB.
                    length: length as u32,
                });
            }
            room -= length;
            done += length;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_cover_the_ranges_within_the_limits(
            list in proptest::collection::vec((0..1_u64 << 40, 0..1_u64 << 40, 0..40_u64 << 20), 0..30),
            small in proptest::collection::vec(0..5000_u64, 0..700),
        ) {
            let mut pieces: Vec<_> =
                list.into_iter().map(|(from, to, length)| CopyPiece { from, to, length }).collect();
            pieces.extend(small.into_iter().map(|at| CopyPiece { from: at, to: at * 7, length: at % 3 }));
            let mut bytes = Vec::new();
            for request in requests(&pieces) {
                prop_assert!((1..=CHUNKS_MAX).contains(&request.len()));
                prop_assert!(request.iter().all(|chunk| (1..=CHUNK_MAX).contains(&u64::from(chunk.length))));
                let total: u64 = request.iter().map(|chunk| u64::from(chunk.length)).sum();
                prop_assert!(total <= REQUEST_MAX);
                bytes.extend(request);
            }
            let mut bytes = bytes.into_iter();
            for piece in pieces {
                let mut done = 0;
                while done < piece.length {
                    let chunk = bytes.next().expect("as long as the ranges");
                    prop_assert_eq!((chunk.source_offset, chunk.target_offset), (piece.from + done, piece.to + done));
                    done += u64::from(chunk.length);
                }
                prop_assert_eq!(done, piece.length);
            }
            prop_assert!(bytes.next().is_none());
        }
    }
}
