//! Builds the parts of the new file on the target from pieces, and compares each with the source.

use std::ops::Range;
use std::sync::atomic::Ordering;

use futures_util::future::{join, join3};
use futures_util::stream::StreamExt as _;
use ropeway_plan::delta::{Piece, aligned};
use ropeway_vfs::{ContentHash, CopyPiece, EndError, ErrorKind, File, Op};
use tokio::time::Instant;

use super::chunks::near_hash;
use super::{Delta, Direction, Unusable, far_error};
use crate::job::counters::add_wait;
use crate::job::outcome::cancelled;

/// Most bytes of one write. Half a block of the job, so that the place of a header is free.
const SEND_MAX: u64 = 512 << 10;

/// Writes of one part in flight. With the parts in flight these are 96: of 20 KiB each, they fill
/// 155 Mbit/s over 75 ms.
const SENDS_AT_ONCE: usize = 16;

/// A part of the new file, and what it is made of.
pub(super) struct PartPlan {
    pub(super) range: Range<u64>,
    pub(super) pieces: Vec<Piece>,
    /// BLAKE3 hash of the source, if the source is near.
    pub(super) hash: Option<ContentHash>,
}

impl PartPlan {
    /// Returns the number of bytes that need not be sent: copied from the old file, or left out as
    /// holes.
    pub(super) fn spared(&self) -> u64 {
        let sent = self.pieces.iter().filter(|piece| piece.old.is_none());
        self.range.end - self.range.start - sent.map(|piece| piece.length).sum::<u64>()
    }

    /// Returns the number of bytes that are copied from the old file.
    pub(super) fn known(&self) -> u64 {
        let known = self.pieces.iter().filter(|piece| piece.old.is_some());
        known.map(|piece| piece.length).sum()
    }
}

impl Delta<'_> {
    /// Builds a part, and fails with [`Unusable::Differs`] if the target then holds something else
    /// than the source.
    pub(super) async fn build(
        &self,
        direction: Direction,
        old: &dyn File,
        part: PartPlan,
    ) -> Result<PartPlan, Unusable> {
        let copies: Vec<CopyPiece> = part
            .pieces
            .iter()
            .copied()
            .flat_map(aligned)
            .filter_map(copy)
            .collect();
        let sends: Vec<_> = part
            .pieces
            .iter()
            .filter(|piece| piece.old.is_none())
            .flat_map(|piece| cut(piece.offset..piece.offset + piece.length))
            .collect();
        let copy = async {
            let copied = match copies.is_empty() {
                true => true,
                false => {
                    let copied = self.target.copy_pieces_from(old, &copies).await;
                    match copied {
                        // The old file has a bad block: it is not needed.
                        Err(error) if error.kind == ErrorKind::DeviceError => false,
                        copied => copied.map_err(EndError::on_target)?,
                    }
                }
            };
            copied.then_some(()).ok_or(Unusable::NoCopy)
        };
        let send = futures_util::stream::iter(sends)
            .map(|range| self.send(range))
            .buffer_unordered(SENDS_AT_ONCE)
            // All are awaited, also after a failure.
            .fold(Ok(()), |all: Result<(), Unusable>, one| {
                std::future::ready(all.and(one))
            });
        match direction {
            Direction::Up => {
                let (copied, sent) = join(copy, send).await;
                copied.and(sent)?;
                let there = self.far_hash(direction, part.range.clone()).await?;
                check(there, part.hash)?;
            }
            Direction::Down => {
                let far = self.far_hash(direction, part.range.clone());
                let (copied, sent, there) = join3(copy, send, far).await;
                let there = copied.and(sent).and(there)?;
                let here = near_hash(self.context, &*self.target, part.range.clone()).await;
                check(there, here.map_err(EndError::on_target)?)?;
            }
        }
        Ok(part)
    }

    /// Reads a range from the source and writes it to the target.
    pub(super) async fn send(&self, range: Range<u64>) -> Result<(), Unusable> {
        self.check_wanted()?;
        let (report, resources) = (&self.context.report, &self.context.resources);
        let length = range.end - range.start;
        // At most `SEND_MAX`.
        let wanted = length as usize;
        let (_room, block) = match &resources.small_files {
            Some(small) => {
                let (room, block) = small.block(&resources.pool, length).await;
                (Some(room), block)
            }
            None => (None, resources.pool.get().await),
        };
        let admitted = report.admit(length).await;
        self.check_wanted()?;
        let start = Instant::now();
        let (block, result) = self.source.read_at(block, range.start, wanted).await;
        admitted.pay(block.len() as u64).await;
        result.map_err(EndError::on_source)?;
        add_wait(&report.live.waits.source, start.elapsed());
        if block.len() != wanted {
            return Err(Unusable::Differs);
        }
        let start = Instant::now();
        self.wait_for_flush().await;
        let written = self.target.write_at(block.freeze(), range.start).await;
        written.map_err(EndError::on_target)?;
        add_wait(&report.live.waits.target, start.elapsed());
        report.live.bytes_read.fetch_add(length, Ordering::Relaxed);
        report.live.bytes_sent.fetch_add(length, Ordering::Relaxed);
        report.live.operations.fetch_add(2, Ordering::Relaxed);
        Ok(())
    }

    /// Fails once the job stops, or another part of the file has failed.
    fn check_wanted(&self) -> Result<(), Unusable> {
        if self.context.stopped() {
            return Err(EndError::on_target(cancelled(Op::Write, self.target.path())).into());
        }
        match self.has_failed.load(Ordering::Relaxed) {
            true => Err(Unusable::Other),
            false => Ok(()),
        }
    }

    /// Waits while a long flush keeps writes away.
    async fn wait_for_flush(&self) {
        self.context
            .durability
            .wait_while_held(&self.context.cancel)
            .await;
    }

    /// Returns the hash of a range as the far end has it; `None` if it does not tell about all of
    /// it.
    async fn far_hash(
        &self,
        direction: Direction,
        range: Range<u64>,
    ) -> Result<Option<ContentHash>, Unusable> {
        let file = match direction {
            Direction::Up => &self.target,
            Direction::Down => &self.source,
        };
        let length = range.end - range.start;
        let content = file.far_content().ok_or(Unusable::Silent)?;
        let (hashed, hash) = content
            .hash(range)
            .await
            .map_err(|error| far_error(direction, error))?;
        Ok((hashed == length).then_some(hash))
    }
}

fn check(one: Option<ContentHash>, other: Option<ContentHash>) -> Result<(), Unusable> {
    match one.is_some() && one == other {
        true => Ok(()),
        false => Err(Unusable::Differs),
    }
}

fn copy(piece: Piece) -> Option<CopyPiece> {
    piece.old.map(|from| CopyPiece {
        from,
        to: piece.offset,
        length: piece.length,
    })
}

/// Divides a range into those of single writes.
pub(super) fn cut(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    let starts = range.step_by(SEND_MAX as usize);
    starts.map(move |start| start..end.min(start + SEND_MAX))
}
