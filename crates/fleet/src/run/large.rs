//! Copies large files: their parts, each a task of its own, and what makes them one file.

use std::sync::atomic::Ordering;

use blake3::hazmat::ChainingValue;
use ropeway_vfs::{CacheMode, Create, EndError, File, Kind, Metadata, OpenOptions, RelPath, Timestamp};

use super::late::Late;
use super::mover::is_of_file;
use super::range::RangeCopy;
use super::{Crew, is_of_node};
use crate::catalog::{Block, Done, Record, SegmentId, State, encode};
use crate::claim::ClaimId;
use crate::error::{Error, Result};
use crate::mutations::{self, Mutation};
use crate::parts::{Joining, Joins, LargeFile, LargeId, Part};
use crate::task::{Task, TaskId};
use crate::worker::{Item, Outcome};

/// Bytes that are copied inside the target with one call, so that there are signs of life in between.
const INSIDE_AT_ONCE: u64 = 256 << 20;

/// A file that changed is no failure of an end, but its parts are of two versions.
const CHANGED: &str = "it changed while it was copied";

impl Crew {
    /// Makes the file into which the parts of an item are written.
    pub(super) async fn begin_large(&self, claim: ClaimId, round: u32, item: &Item) -> Result<Outcome> {
        let file = LargeFile::listed(round, item.path(), &item.metadata);
        let state = match self.store.make_large(claim, file.id(), file.size).await {
            Ok(()) => State::Parted {
                file: file.id(),
                changed: file.changed,
            },
            Err(Error::End(end)) if is_of_file(end.error.kind) => State::Failed(end.error.to_string()),
            Err(error) => return Err(error),
        };
        Ok(Outcome::listed(item, state))
    }

    /// Carries out the task of a part.
    pub(super) async fn run_part(&self, claim: ClaimId, part: Part) -> Result<()> {
        let given = self.take_over(claim).await?;
        self.offer(&given).await?;
        let mut work = PartWork {
            crew: self,
            claim,
            given: given.iter().map(Task::id).collect(),
            part: part.without(&given),
            segments: 0,
        };
        if !self.has_part(claim).await? {
            work.run().await?;
        }
        self.check_source().await?;
        let done = Done {
            round: work.part.file.round,
            given: work.given,
            ..Done::default()
        };
        self.store.finish(claim, &self.with_ledger(done)).await
    }

    /// Whether an earlier claim of a part has recorded it. It is durable then.
    async fn has_part(&self, claim: ClaimId) -> Result<bool> {
        for segment in self.store.segments(Some(claim.task)).await? {
            for block in self.store.segment(segment).await? {
                let is_part = |record: &Record| matches!(record.state, State::Part { .. });
                if matches!(block, Block::Records(records) if records.iter().any(is_part)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Gives the large files of one share of a round their attributes and names.
    pub(super) async fn run_join(
        &self,
        (claim, round): (ClaimId, u32),
        (shard, shards): (u32, u32),
    ) -> Result<()> {
        self.take_over(claim).await?;
        // Which round a record is of follows from what is done.
        self.look_what_is_done().await?;
        let mut joins = Joins::new(shard, shards);
        self.each_record(|of, record| {
            let is_own = of.task == claim.task || self.state.lock().replay.round_of(of.task) == Some(round);
            if is_own {
                joins.add(round, of.epoch, record);
            }
        })
        .await?;
        if joins.is_full() {
            return Err(Error::Damaged("segments".to_owned()));
        }
        let mut late = Late::new(claim, round);
        let mut joined = Vec::new();
        for file in joins.finish() {
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
            let file = self.join(claim, file).await?;
            // A copy inside the target would have to be made again.
            let is_dear = file.from != self.store.large(file.id);
            joined.push(file);
            if joined.len() >= self.options.slice.files_max || is_dear {
                self.name_joined(&mut late, std::mem::take(&mut joined)).await?;
            }
        }
        self.name_joined(&mut late, joined).await?;
        self.finish_late(late).await
    }

    /// Makes a file ready to get its name.
    async fn join(&self, claim: ClaimId, joining: Joining) -> Result<Joined> {
        let file = &joining.file;
        let is_named = joining.is_joined && self.has_its_name(file).await?;
        let outcome = match is_named {
            true => Ok(self.store.large(file.id())),
            false => self.complete(claim, &joining).await?,
        };
        let (state, from) = match outcome {
            Ok(from) => (State::Joined { file: file.id() }, from),
            Err(reason) => (State::Failed(reason), self.store.large(file.id())),
        };
        let is_complete = matches!(state, State::Joined { .. });
        let mut record = Record::new(file.path.clone(), file.size, file.modified, state);
        record.hash = joining.hash().filter(|_| is_complete);
        Ok(Joined {
            id: file.id(),
            from,
            record,
            is_complete,
            is_named,
            is_published: joining.is_joined,
        })
    }

    /// Whether the target has a file under its name already: an earlier claim may have died after that.
    async fn has_its_name(&self, file: &LargeFile) -> Result<bool> {
        let Ok(path) = self.ends.target_path(&file.path) else {
            return Ok(false);
        };
        let found = match self.ends.target.metadata(&path).await {
            Ok(found) => found,
            Err(error) if is_of_node(error.kind) => return Ok(false),
            Err(error) => return Err(Error::target(error)),
        };
        let modified = Timestamp(i128::from(file.modified));
        let same_time = self.ends.rules.granularity.equal(modified, found.modified);
        Ok(found.kind == Kind::File && found.size == file.size && same_time)
    }

    /// Gives a file its attributes. Returns where it lies now, or the reason if it cannot be completed.
    async fn complete(&self, claim: ClaimId, joining: &Joining) -> Result<Result<RelPath, String>> {
        let file = &joining.file;
        if let Some(reason) = &joining.failed {
            return Ok(Err(reason.clone()));
        }
        if joining.hash().is_none() {
            return Ok(Err("a part of it is missing".to_owned()));
        }
        let completed = async {
            let mut from = self.store.large(file.id());
            if joining.may_be_open {
                from = self.renew(claim, file).await?;
            }
            // Only now: while it was copied, a worker that slept may have written another version into the old one.
            let metadata = self.ends.source.metadata(&file.path).await;
            let metadata = metadata.map_err(Error::source)?;
            if !file.is(&metadata) && !mutations::is(Mutation::LargeNotCompared) {
                return Ok(None);
            }
            self.set_attributes_of_large(file, &from, &metadata).await?;
            Ok(Some(from))
        };
        match completed.await {
            Ok(Some(from)) => Ok(Ok(from)),
            Ok(None) => Ok(Err(CHANGED.to_owned())),
            Err(Error::End(EndError { error, .. })) if is_of_node(error.kind) => {
                // What is not there may have its name already, if this worker slept.
                self.store.check(claim).await?;
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the attributes by the path, not through an open file: what has its name already is not there.
    async fn set_attributes_of_large(
        &self,
        file: &LargeFile,
        at: &RelPath,
        metadata: &Metadata,
    ) -> Result<()> {
        let wants_xattrs = self.ends.preserve.xattrs
            && metadata.has_xattrs != Some(false)
            && self.ends.target.capabilities().takes_xattrs();
        let xattrs = match wants_xattrs {
            true => Some(self.ends.source.xattrs(&file.path).await.map_err(Error::source)?),
            false => None,
        };
        let change = self.ends.change_of(metadata, xattrs);
        let set = self.ends.target.set_metadata(at, &change).await;
        self.lose(&set.map_err(Error::target)?);
        Ok(())
    }

    /// Copies a large file to one that nobody else has open, inside the target where that is possible. Returns its
    /// path, in the folder of the claim: it cannot be opened by the old one.
    async fn renew(&self, claim: ClaimId, file: &LargeFile) -> Result<RelPath> {
        let target = &self.ends.target;
        let (old, path) = (self.store.large(file.id()), self.store.prepared(claim, file.id()));
        let read = OpenOptions::read(CacheMode::Leave);
        let old = target.open(&old, read).await.map_err(Error::target)?;
        let write = OpenOptions::write(Create::Truncate, CacheMode::Leave);
        let new = target.open(&path, write).await.map_err(Error::target)?;
        if !new.reflink_from(&*old).await.map_err(Error::target)? {
            new.set_len(file.size).await.map_err(Error::target)?;
            self.copy_inside(&*old, &*new, file.size).await?;
        }
        new.sync(false).await.map_err(Error::target)?;
        self.renewed.fetch_add(1, Ordering::Relaxed);
        Ok(path)
    }

    async fn copy_inside(&self, old: &dyn File, new: &dyn File, size: u64) -> Result<()> {
        let mut at = 0;
        while at < size {
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
            // Holes stay holes.
            let Some(data) = old.next_extent(at).await.map_err(Error::target)? else {
                return Ok(());
            };
            at = at.max(data.offset);
            let length = INSIDE_AT_ONCE.min(size.min(data.offset + data.length).saturating_sub(at));
            if length == 0 {
                return Ok(());
            }
            match new
                .copy_range_from(old, at, length)
                .await
                .map_err(Error::target)?
            {
                Some(copied) if copied > 0 => at += copied,
                _ => {
                    self.range_copy(old, new)
                        .copy(0..size, async |_| Ok(size))
                        .await?;
                    return Ok(());
                }
            }
            // One flush at the end would be without a sign of progress for as long as it takes.
            new.sync(true).await.map_err(Error::target)?;
        }
        Ok(())
    }

    fn range_copy<'a>(&'a self, source: &'a dyn File, target: &'a dyn File) -> RangeCopy<'a> {
        RangeCopy {
            source,
            target,
            pool: self.mover.pool(),
            counters: &self.counters,
            stop: &self.stop,
        }
    }

    /// Publishes what became of files, and gives those that are complete their names.
    async fn name_joined(&self, late: &mut Late, joined: Vec<Joined>) -> Result<()> {
        if joined.is_empty() {
            return Ok(());
        }
        if joined.iter().any(|joined| !joined.is_complete) {
            // A source that is away is no reason to give up what is copied.
            self.check_source().await?;
        }
        // The attributes; the data is durable.
        self.ends.target.sync().await.map_err(Error::target)?;
        let new = joined
            .iter()
            .filter(|joined| !joined.is_published || !joined.is_complete);
        let records: Vec<Record> = new.map(|joined| joined.record.clone()).collect();
        self.publish_late(late, &records).await?;
        let mut failed = Vec::new();
        for joined in joined {
            let record = joined.record;
            late.sums.bytes += record.size;
            let reason = match (joined.is_complete, joined.is_named) {
                (false, _) => {
                    late.sums.failed += 1;
                    None
                }
                (true, true) => None,
                (true, false) => self.name_large(late.claim, &joined.from, &record).await?,
            };
            if let Some(reason) = reason {
                failed.push(Record::new(record.path, 0, 0, State::Failed(reason)));
            } else if joined.is_complete {
                late.sums.copied += 1;
                late.sums.copied_bytes += record.size;
                self.counters.files.fetch_add(1, Ordering::Relaxed);
            }
            // It is of no use any more. If a worker that sleeps has it open at a server, it stays with the catalog.
            let _ = self.store.drop_large(joined.id).await;
        }
        late.sums.failed += failed.len() as u64;
        self.publish_late(late, &failed).await
    }

    /// Gives a complete file its name. Returns the reason if that failed for this file only.
    async fn name_large(&self, claim: ClaimId, from: &RelPath, record: &Record) -> Result<Option<String>> {
        let reason = self.give_name(from, &record.path).await?;
        if reason.is_some() {
            // What is not there may have its name already, if this worker slept.
            self.store.check(claim).await?;
        }
        Ok(reason)
    }
}

/// A file that is complete, or failed.
struct Joined {
    id: LargeId,
    /// Where it lies.
    from: RelPath,
    record: Record,
    is_complete: bool,
    /// Whether an earlier claim has given it its name.
    is_named: bool,
    /// Whether an earlier claim has published that it is complete.
    is_published: bool,
}

/// The work on one part.
struct PartWork<'a> {
    crew: &'a Crew,
    claim: ClaimId,
    part: Part,
    /// Tasks that were cut off, whichever claim did.
    given: Vec<TaskId>,
    segments: u32,
}

impl PartWork<'_> {
    /// Copies the part, and records what became of it.
    async fn run(&mut self) -> Result<()> {
        let copied = self.copy().await?;
        let (file, range) = (&self.part.file, self.part.range.clone());
        let id = file.id();
        let (state, hash) = match copied {
            Ok(value) => (
                State::Part {
                    file: id,
                    start: range.start,
                },
                Some(value),
            ),
            Err(reason) => (State::PartFailed { file: id, reason }, None),
        };
        let mut record = Record::new(file.path.clone(), range.end - range.start, file.modified, state);
        record.hash = hash;
        self.publish(&[record], &[]).await
    }

    async fn publish(&mut self, records: &[Record], given: &[Task]) -> Result<()> {
        let mut bytes = Vec::new();
        encode(&mut bytes, records, given);
        let id = SegmentId {
            claim: self.claim,
            number: self.segments,
        };
        self.segments += 1;
        self.crew.store.publish_segment(id, &bytes).await
    }

    /// Returns the hash of the part, or why it failed.
    async fn copy(&mut self) -> Result<Result<ChainingValue, String>> {
        match self.copy_range().await {
            Ok(Some(value)) => Ok(Ok(value)),
            Ok(None) => Ok(Err(CHANGED.to_owned())),
            Err(Error::End(EndError { error, .. })) if is_of_node(error.kind) => {
                // What is not there may have its name already, if this worker slept.
                self.crew.store.check(self.claim).await?;
                // What is recorded stands: another worker may have rights that this one lost.
                self.crew.check_source().await?;
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Copies what is left of the part, and makes it durable. Returns `None` if the source is another version.
    async fn copy_range(&mut self) -> Result<Option<ChainingValue>> {
        let (crew, file) = (self.crew, self.part.file.clone());
        let read = OpenOptions::read(CacheMode::Leave);
        let opened = crew.ends.source.open(&file.path, read).await;
        let source = opened.map_err(Error::source)?;
        let before = source.metadata().await.map_err(Error::source)?;
        if !file.is(&before) && !mutations::is(Mutation::LargeNotCompared) {
            return Ok(None);
        }
        let write = OpenOptions::write(Create::No, CacheMode::Leave);
        let opened = crew.ends.target.open(&crew.store.large(file.id()), write).await;
        let target = opened.map_err(Error::target)?;
        let range = self.part.range.clone();
        let copy = crew.range_copy(&*source, &*target);
        let value = copy.copy(range, async |next| self.end(next).await).await?;
        target.sync(false).await.map_err(Error::target)?;
        let after = source.metadata().await.map_err(Error::source)?;
        let length = self.part.range.end - self.part.range.start;
        crew.counters.bytes.fetch_add(length, Ordering::Relaxed);
        let is_same = file.is(&after) || mutations::is(Mutation::LargeNotCompared);
        Ok(is_same.then_some(value))
    }

    /// Returns the end of the part. While another worker is idle, it gets the second half, if that is not
    /// begun: `next` is the first byte that is not read.
    async fn end(&mut self, next: u64) -> Result<u64> {
        let least = self.crew.options.slice.parts.split_min;
        let taken = next - self.part.range.start;
        if self.crew.idle.swap(0, Ordering::AcqRel) > 0
            && let Some(rest) = self.part.split(taken, least)
        {
            let task = rest.task();
            self.publish(&[], std::slice::from_ref(&task)).await?;
            self.given.push(task.id());
            self.crew.offer(&[task]).await?;
        }
        Ok(self.part.range.end)
    }
}
