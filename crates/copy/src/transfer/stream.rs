//! Moves the data of one file through blocks: drives a [`Transfer`] over two open files.
//!
//! ```text
//!   poll -> Read  -> pool block -> source.read_at  -> read_done
//!        -> Write -> that block -> target.write_at -> write_done -> journal, counters, write-back
//! ```
//!
//! Several blocks are in flight, and the pool is the back-pressure. Write-back starts window by
//! window as the contiguous part grows. Nothing more is issued while this file has more dirty bytes
//! than its bound.

mod in_kernel;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use ropeway_block::Block;
use ropeway_plan::Locality;
use ropeway_plan::durability::FileTry;
use ropeway_plan::transfer::{Step, Transfer, TransferLimits};
use ropeway_vfs::{ContentHash, EndError, Error, ErrorKind, Extent, File, HashAlgorithm, Op, Pending};
use tokio::time::Instant;

use crate::block_list::list::BlockChanges;
use crate::job::context::Context;
use crate::job::counters::{Landing, add_wait};
use crate::job::outcome::cancelled;
use crate::journal::token::Token;
use crate::transfer::digest::Digest;
use crate::transfer::windows::Windows;

/// With `gentle`: bytes of a window of write-back, and dirty bytes of the file. Guesses.
const GENTLE_WINDOW: u64 = 512 << 10;
const GENTLE_DIRTY_MAX: u64 = 1 << 20;
/// Bytes after which the tuner learns the rate.
const TUNE_EVERY: u64 = 32 << 20;

/// The data of one file to move.
pub(crate) struct Stream<'a> {
    pub(crate) context: &'a Context,
    /// Counts the bytes on the target.
    pub(crate) landing: &'a Landing<'a>,
    pub(crate) source: Arc<dyn File>,
    pub(crate) target: Arc<dyn File>,
    pub(crate) attempt: FileTry,
    pub(crate) token: Token,
    /// Where the source is kept.
    pub(crate) locality: Locality,
    pub(crate) size: u64,
    /// The bytes below are there already.
    pub(crate) start: u64,
    /// How the content is hashed, if it is.
    pub(crate) hash: Option<HashAlgorithm>,
    /// Whether holes of the source are data.
    pub(crate) writes_holes: bool,
    /// What the target has already, block by block.
    pub(crate) blocks: Option<&'a BlockChanges>,
    /// Whether to start write-back early and bound what is dirty.
    pub(crate) write_back: bool,
}

/// The result of a stream.
pub(crate) struct Streamed {
    /// Size of the source as read: smaller than expected if it shrank.
    pub(crate) size: u64,
    /// End of the last byte written; 0 if that is not known.
    pub(crate) end: u64,
    pub(crate) hash: Option<ContentHash>,
}

/// The result of one operation.
enum Io {
    Read {
        offset: u64,
        block: Block,
        span: Duration,
    },
    Written {
        offset: u64,
        length: usize,
        /// Bytes that the target did not have.
        sent: usize,
        span: Duration,
    },
    Started,
    /// A window is on the device, and with it all of the file below `upto`.
    Settled {
        upto: u64,
        bytes: u64,
        span: Duration,
    },
}

type IoFuture<'a> = Pending<'a, Result<Io, EndError>>;

struct State<'a> {
    transfer: Transfer,
    in_flight: FuturesUnordered<IoFuture<'a>>,
    ready: BTreeMap<u64, Block>,
    /// Offsets of the reads in flight.
    reading: BTreeSet<u64>,
    digest: Option<Digest>,
    windows: Windows,
    journalled: u64,
    landed: u64,
    end: u64,
    tune_bytes: u64,
    tune_since: Instant,
    /// The largest piece that the rate of the job allowed last.
    piece_max: u64,
}

impl Stream<'_> {
    /// Moves all data.
    ///
    /// # Errors
    /// The first failure. Operations in flight are awaited then.
    pub(crate) async fn run(&self) -> Result<Streamed, EndError> {
        let limits = self.limits();
        let mut digest = self.hash.map(Digest::new);
        if let Some(digest) = &mut digest {
            self.rehash(digest).await?;
        }
        let mut state = State {
            transfer: Transfer::new(
                self.context.config.options.engine,
                self.locality,
                self.size,
                self.start,
                limits,
            ),
            in_flight: FuturesUnordered::new(),
            ready: BTreeMap::new(),
            reading: BTreeSet::new(),
            digest,
            windows: Windows::new(self.start, self.window()),
            journalled: self.start,
            landed: self.start,
            end: 0,
            tune_bytes: 0,
            tune_since: Instant::now(),
            piece_max: self.context.report.limit.piece_max(),
        };
        let result = self.drive(&mut state).await;
        // Orphaned operations would still write while the file is retried or removed. Those that
        // hang are not awaited.
        let hangs = matches!(&result, Err(EndError { error, .. }) if error.kind == ErrorKind::TimedOut);
        while !hangs
            && !self.context.stopped()
            && let Some(io) = state.in_flight.next().await
        {
            if let Ok(Io::Settled { upto, bytes, .. }) = io {
                self.settled(&mut state, upto, bytes);
            }
        }
        self.journal(&mut state, true);
        result?;
        let size = state.transfer.size();
        let hash = match state.digest {
            Some(mut digest) => {
                digest.zeroes_upto(size);
                Some(digest.finish())
            }
            None => None,
        };
        self.land(size.saturating_sub(state.landed));
        let end = state.end;
        Ok(Streamed { size, end, hash })
    }

    fn limits(&self) -> TransferLimits {
        let limits = self.context.resources.tuner.lock().limits();
        self.bounded(limits)
    }

    /// Takes as many blocks as the line needs now, and keeps them to the size of the pool, and to that of a
    /// piece if the user gave a rate.
    fn bounded(&self, mut limits: TransferLimits) -> TransferLimits {
        limits.depth = limits.depth.max(self.context.resources.follow_line());
        let piece_max = usize::try_from(self.context.report.limit.piece_max()).unwrap_or(usize::MAX);
        let most = self.context.resources.pool.block_size().min(piece_max);
        limits.block_size = limits.block_size.min(most);
        limits
    }

    /// Takes smaller blocks while the user has given the running job a low rate.
    fn follow_rate(&self, state: &mut State<'_>) {
        let piece_max = self.context.report.limit.piece_max();
        if piece_max != state.piece_max {
            state.piece_max = piece_max;
            state.transfer.set_limits(self.limits());
        }
    }

    async fn drive<'s>(&'s self, state: &mut State<'s>) -> Result<(), EndError> {
        loop {
            if self.context.stopped() {
                return Err(EndError::on_target(cancelled(Op::Write, self.target.path())));
            }
            let durability = &self.context.durability;
            durability.check_not_in_doubt(self.attempt, &*self.target)?;
            self.follow_rate(state);
            let room = self.has_room(state);
            if room && !state.windows.is_over(self.dirty_bound()) && self.issue(state).await? {
                return Ok(());
            }
            // Without room nothing may be in flight. Then the device is slow, not this file.
            let moving = room || !state.in_flight.is_empty();
            let io = tokio::select! {
                biased;
                io = state.in_flight.next(), if moving => io,
                () = self.context.durability.wait_for_room(&self.context.cancel), if !room => continue,
                () = self.context.cancel.cancelled() => continue,
                () = self.too_long(), if moving => return Err(self.timed_out(state)),
            };
            match io {
                Some(io) => self.done(state, io?),
                None => return Err(EndError::on_target(cancelled(Op::Write, self.target.path()))),
            }
        }
    }

    /// Completes after `--timeout`, in which neither a pause nor `--bwlimit` held anything. Without
    /// `--timeout`, never.
    async fn too_long(&self) {
        let Some(timeout) = self.context.config.options.timeout else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(timeout).await;
            let free_for = self.context.report.limit.free_for();
            if free_for.is_some_and(|span| span >= timeout) {
                return;
            }
        }
    }

    /// Returns the error of a file with operations in flight that made no progress for `--timeout`.
    fn timed_out(&self, state: &State<'_>) -> EndError {
        match state.reading.is_empty() {
            false => EndError::on_source(Error::new(Op::Read, self.source.path(), ErrorKind::TimedOut)),
            true => EndError::on_target(Error::new(Op::Write, self.target.path(), ErrorKind::TimedOut)),
        }
    }

    /// Whether the dirty bytes of the whole target allow this file to continue. A complete file may
    /// always end.
    fn has_room(&self, state: &State<'_>) -> bool {
        let is_whole = || state.transfer.contiguous() >= state.transfer.size();
        !self.is_counted() || self.context.durability.has_room() || is_whole()
    }

    /// Whether checkpoints must flush what this file leaves dirty.
    pub(crate) fn is_counted(&self) -> bool {
        self.write_back
            && self.context.config.durability.wants_durable()
            && !self.context.config.durability.flushes_each()
    }

    fn window(&self) -> u64 {
        let window = self.context.config.environment.sizes.window;
        match self.context.config.options.gentle {
            true => window.min(GENTLE_WINDOW),
            false => window,
        }
    }

    fn dirty_bound(&self) -> u64 {
        if self.write_back {
            let streams = self.context.resources.streams_max as u64;
            let bound = match self.context.config.options.gentle {
                true => GENTLE_DIRTY_MAX,
                false => self.context.durability.bound() / streams,
            };
            bound.max(self.window())
        } else {
            u64::MAX
        }
    }

    /// Starts what the transfer asks for, while there is room but at least one operation. Returns
    /// whether the transfer is done.
    async fn issue<'s>(&'s self, state: &mut State<'s>) -> Result<bool, EndError> {
        loop {
            match state.transfer.poll() {
                Step::NextExtent { from } => {
                    state.transfer.extent(self.next_extent(from).await?);
                    continue;
                }
                Step::Read { offset, length } => {
                    state.reading.insert(offset);
                    state.in_flight.push(Box::pin(self.read(offset, length)));
                }
                Step::Write { offset, length } => {
                    let block = state.ready.remove(&offset).expect("written only after its read");
                    state
                        .in_flight
                        .push(Box::pin(self.write(block.slice(0..length), offset)));
                }
                Step::Wait => return Ok(false),
                Step::Done { .. } => return Ok(true),
            }
            if !self.has_room(state) {
                return Ok(false);
            }
        }
    }

    /// Returns the next run of data of the source.
    async fn next_extent(&self, from: u64) -> Result<Option<Extent>, EndError> {
        if self.writes_holes {
            return Ok((from < self.size).then(|| Extent {
                offset: from,
                length: self.size - from,
            }));
        }
        let extent = self.source.next_extent(from).await.map_err(EndError::on_source)?;
        if let Some(changes) = self.blocks {
            changes.hole(from..extent.map_or(self.size, |extent| extent.offset));
        }
        Ok(extent)
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Io, EndError> {
        let block = self.context.resources.pool.get().await;
        let (start, (block, result)) = match self.blocks.is_some_and(BlockChanges::has_old) {
            // Only what is sent counts for a rate.
            true => (
                Instant::now(),
                self.source.examine_at(block, offset, length).await,
            ),
            false => {
                let admitted = self.context.report.admit(length as u64).await;
                let start = Instant::now();
                let (block, result) = self.source.read_at(block, offset, length).await;
                admitted.pay(block.len() as u64).await;
                (start, (block, result))
            }
        };
        result.map_err(EndError::on_source)?;
        Ok(Io::Read {
            offset,
            block: block.freeze(),
            span: start.elapsed(),
        })
    }

    async fn write(&self, block: Block, offset: u64) -> Result<Io, EndError> {
        let (start, length) = (Instant::now(), block.len());
        self.wait_for_flush().await;
        let sent = match self.blocks {
            None => {
                let written = self.target.write_at(block, offset).await;
                written.map_err(EndError::on_target)?;
                length
            }
            Some(changes) => self.write_changes(changes, block, offset).await?,
        };
        Ok(Io::Written {
            offset,
            length,
            sent,
            span: start.elapsed(),
        })
    }

    /// Writes what the target does not have of a block. Returns the bytes of that.
    async fn write_changes(
        &self,
        changes: &BlockChanges,
        block: Block,
        offset: u64,
    ) -> Result<usize, EndError> {
        let parts = changes.differing(offset, &block);
        let sent: usize = parts.iter().map(Range::len).sum();
        if changes.has_old() {
            self.context.report.limit.charge(sent as u64).await;
            let reused = &self.context.report.live.bytes_reused;
            reused.fetch_add((block.len() - sent) as u64, Ordering::Relaxed);
        }
        if sent == block.len() {
            let written = self.target.write_at(block, offset).await;
            return written.map(|()| sent).map_err(EndError::on_target);
        }
        let writes = parts.into_iter().map(|part| {
            let at = offset + part.start as u64;
            self.target.write_at(block.slice(part), at)
        });
        // After a failure as well, all of them end before the file is tried again.
        let written: Result<Vec<()>, Error> = join_all(writes).await.into_iter().collect();
        written.map(|_| sent).map_err(EndError::on_target)
    }

    /// Waits while a long flush keeps writes away.
    async fn wait_for_flush(&self) {
        if self.size >= self.context.config.environment.sizes.long_min {
            self.context
                .durability
                .wait_while_held(&self.context.cancel)
                .await;
        }
    }

    async fn settle(&self, offset: u64, length: u64, bytes: u64) -> Result<Io, EndError> {
        let start = Instant::now();
        self.target
            .wait_writeback(offset, length)
            .await
            .map_err(EndError::on_target)?;
        Ok(Io::Settled {
            upto: offset + length,
            bytes,
            span: start.elapsed(),
        })
    }

    async fn start_writeback(&self, offset: u64, length: u64) -> Result<Io, EndError> {
        self.target
            .start_writeback(offset, length)
            .await
            .map_err(EndError::on_target)?;
        Ok(Io::Started)
    }

    fn done<'s>(&'s self, state: &mut State<'s>, io: Io) {
        let live = &self.context.report.live;
        match io {
            Io::Read { offset, block, span } => {
                add_wait(&live.waits.source, span);
                live.bytes_read.fetch_add(block.len() as u64, Ordering::Relaxed);
                live.operations.fetch_add(1, Ordering::Relaxed);
                state.transfer.read_done(offset, block.len());
                state.reading.remove(&offset);
                if let Some(digest) = &mut state.digest {
                    digest.add(offset, block.clone());
                    digest.settle(state.reading.first().copied().unwrap_or(u64::MAX));
                }
                if !block.is_empty() {
                    state.ready.insert(offset, block);
                }
                if state.transfer.has_shrunk() {
                    // The transfer drops what lies beyond the new end, so this must as well.
                    let size = state.transfer.size();
                    state.ready.retain(|offset, _| *offset < size);
                }
            }
            Io::Written {
                offset,
                length,
                sent,
                span,
            } => {
                add_wait(&live.waits.target, span);
                live.bytes_sent.fetch_add(sent as u64, Ordering::Relaxed);
                live.operations.fetch_add(1, Ordering::Relaxed);
                state.end = state.end.max(offset + length as u64);
                state.transfer.write_done(offset, length);
                self.progressed(state, (length as u64, sent as u64));
            }
            Io::Started => {}
            Io::Settled { upto, bytes, span } => {
                // Otherwise nobody waited for it, and its time says nothing about the device.
                if state.windows.is_over(self.dirty_bound()) {
                    add_wait(&live.waits.target, span);
                    self.context.durability.observe(bytes, span);
                }
                self.settled(state, upto, bytes);
            }
        }
        self.tend_windows(state);
    }

    /// Notes that the oldest window is on the device, and with it all below `upto`.
    fn settled(&self, state: &mut State<'_>, upto: u64, bytes: u64) {
        let sent = state.windows.settled(bytes);
        if self.is_counted() {
            self.context.durability.clean(self.attempt, sent);
        }
        if self.size >= self.context.config.environment.sizes.long_min {
            self.context
                .durability
                .settled(self.attempt, upto, &self.context.report.live);
        }
    }

    /// Updates counters, journal and tuner after a write.
    fn progressed(&self, state: &mut State<'_>, (length, sent): (u64, u64)) {
        if self.is_counted() {
            self.context.durability.wrote(self.attempt, sent);
        }
        let contiguous = state.transfer.contiguous().min(self.size);
        self.context.durability.written(self.attempt, contiguous);
        if contiguous > state.landed {
            self.land(contiguous - state.landed);
            state.landed = contiguous;
        }
        state.windows.wrote(sent, contiguous);
        self.journal(state, false);
        state.tune_bytes += length;
        if state.tune_bytes >= TUNE_EVERY {
            let limits = {
                let mut tuner = self.context.resources.tuner.lock();
                tuner.observe(state.tune_bytes, state.tune_since.elapsed());
                tuner.limits()
            };
            state.transfer.set_limits(self.bounded(limits));
            (state.tune_bytes, state.tune_since) = (0, Instant::now());
        }
    }

    fn land(&self, bytes: u64) {
        self.landing.add(bytes);
    }

    fn journal(&self, state: &mut State<'_>, now: bool) {
        let contiguous = state.transfer.contiguous().min(self.size);
        let due = contiguous >= state.journalled + self.context.config.environment.sizes.journal_every
            || (now && contiguous > state.journalled);
        if let (true, Some(journal)) = (due, &self.context.journal) {
            let written = journal.written(self.token, contiguous);
            self.context.report.journal_result(Some(written));
            state.journalled = contiguous;
        }
    }

    /// Starts and awaits write-back as the windows demand.
    fn tend_windows<'s>(&'s self, state: &mut State<'s>) {
        if !self.write_back {
            return;
        }
        while let Some((offset, length)) = state.windows.next_to_start() {
            state
                .in_flight
                .push(Box::pin(self.start_writeback(offset, length)));
        }
        // A server would have to flush for it. A device is asked continuously, for the estimate of
        // the remaining time.
        let dirty_min = match self.context.config.target.capabilities().page_cache {
            true => 0,
            false => self.dirty_bound(),
        };
        if let Some((offset, length, bytes)) = state.windows.next_to_settle(dirty_min) {
            state.in_flight.push(Box::pin(self.settle(offset, length, bytes)));
        }
    }

    /// Hashes the existing part of a resumed file from the source, so that the hash covers the
    /// whole file.
    async fn rehash(&self, digest: &mut Digest) -> Result<(), EndError> {
        let mut offset = 0;
        while offset < self.start && !self.context.stopped() {
            let block = self.context.resources.pool.get().await;
            let length = block
                .capacity()
                .min(usize::try_from(self.start - offset).unwrap_or(usize::MAX));
            let admitted = self.context.report.admit(length as u64).await;
            let (block, result) = self.source.read_at(block, offset, length).await;
            admitted.pay(block.len() as u64).await;
            result.map_err(EndError::on_source)?;
            if block.is_empty() {
                break;
            }
            let length = block.len() as u64;
            digest.add(offset, block.freeze());
            digest.settle(offset);
            offset += length;
        }
        Ok(())
    }
}
