//! Carries out the late passes: files with several names, and attributes of folders.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use ropeway_plan::{Decision, decide};
use ropeway_vfs::{ErrorKind, Kind, Metadata, RelPath};

use super::mover::{Move, Moved};
use super::takeover::staged;
use super::{Crew, is_of_node};
use crate::catalog::{Block, Done, Record, SegmentId, State, Sums, encode, encode_lost};
use crate::claim::ClaimId;
use crate::error::{Error, Result};
use crate::late::Groups;
use crate::task::nanoseconds;

/// Segments that are read at once. A pass through a million of them waits for each otherwise; the largest takes
/// megabytes.
const READS: usize = 4;

/// What was listed as a file is a folder, a link or the like now.
const OTHER_KIND: &str = "it is no file any more; a further job copies what it is now";

/// Another file has the name now.
const REPLACED: &str = "another file took its name while it was copied";

/// A node that failed, and why.
type Failed = (RelPath, String);

/// The state of one late task.
pub(super) struct Late {
    pub(super) claim: ClaimId,
    pub(super) round: u32,
    segments: u32,
    staged: u32,
    pub(super) sums: Sums,
    /// Whether each round does all of it again.
    pub(super) again: bool,
}

impl Late {
    pub(super) fn new(claim: ClaimId, round: u32) -> Self {
        Self {
            claim,
            round,
            segments: 0,
            staged: 0,
            sums: Sums::default(),
            again: false,
        }
    }

    /// Makes the state of a task of folders: each round sets the attributes of all.
    pub(super) fn of_folders(claim: ClaimId, round: u32) -> Self {
        Self {
            again: true,
            ..Self::new(claim, round)
        }
    }

    pub(super) fn next_staged(&mut self) -> u32 {
        self.staged += 1;
        self.staged - 1
    }
}

/// One file with several names, while it is made.
struct Group {
    /// Names that still exist in the source; the first is copied.
    names: Vec<(RelPath, Metadata)>,
}

/// Whether a node that was listed in one round is counted as removed from the source if it is missing in another. In
/// the round of its listing the source may be away for a moment; a later round asks for the second time.
pub(super) fn is_removed(kind: ErrorKind, (listed, round): (u32, u32)) -> bool {
    kind.is_absence() && round > listed
}

impl Crew {
    /// Calls `each` for every record of the catalog that is not settled, with the claim that published it.
    pub(super) async fn each_record(&self, mut each: impl FnMut(ClaimId, Record)) -> Result<()> {
        self.look_what_is_done().await?;
        // Not all at once: there may be millions of segments.
        for (folder, is_there) in self.segments_by_folder(|_| true).await? {
            self.each_record_in(folder, is_there, &mut each).await?;
        }
        Ok(())
    }

    /// Returns the folders that may hold segments, with whether there is such a folder.
    pub(super) async fn segments_by_folder(&self, is_wanted: impl Fn(u8) -> bool) -> Result<Vec<(u8, bool)>> {
        let there = self.store.segment_folders().await?;
        let all = (0..=u8::MAX).filter(|folder| is_wanted(*folder));
        Ok(all.map(|folder| (folder, there.contains(&folder))).collect())
    }

    /// Calls `each` for every record that is not settled of the segments in one folder.
    pub(super) async fn each_record_in(
        &self,
        folder: u8,
        is_there: bool,
        each: &mut impl FnMut(ClaimId, Record),
    ) -> Result<()> {
        let segments = match is_there {
            true => self.store.segments_in(folder).await?,
            false => Vec::new(),
        };
        let missing = (self.state.lock().replay).with_missing_segments_in(folder, &segments);
        if let Some(task) = missing {
            return Err(Error::Damaged(format!("segments of {task}")));
        }
        let reads = segments.into_iter().map(|segment| async move {
            let blocks = self.store.segment_for_late(segment).await;
            blocks.map(|blocks| (segment.claim, blocks))
        });
        let mut reads = futures_util::stream::iter(reads).buffered(READS);
        while let Some(read) = reads.next().await {
            let (claim, blocks) = read?;
            for block in blocks {
                if let Block::Records(records) = block {
                    records.into_iter().for_each(|record| each(claim, record));
                }
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
        }
        Ok(())
    }

    pub(super) async fn publish_late(&self, late: &mut Late, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        encode(&mut bytes, records, &[]);
        encode_lost(&mut bytes, &self.fresh_losses());
        let id = SegmentId {
            claim: late.claim,
            number: late.segments,
        };
        late.segments += 1;
        self.store.publish_segment(id, &bytes).await
    }

    pub(super) async fn finish_late(&self, late: Late) -> Result<()> {
        self.ends.target.sync().await.map_err(Error::target)?;
        self.check_source().await?;
        let done = Done {
            round: late.round,
            sums: late.sums,
            again: late.again,
            ..Done::default()
        };
        self.store.finish(late.claim, &self.with_ledger(done)).await
    }

    /// Makes the files with several names of one shard.
    pub(super) async fn run_links(
        &self,
        (claim, round): (ClaimId, u32),
        (shard, shards): (u32, u32),
    ) -> Result<()> {
        self.take_over(claim).await?;
        let mut late = Late::new(claim, round);
        let mut groups = Groups::new(shard, shards);
        self.each_record(|of, record| {
            // An earlier claim may have listed what was something else when the last one came to it.
            if let State::Linked(id) = record.state
                && self.state.lock().replay.is_last(of)
            {
                groups.add(id, record.path, self.listed_in(of, round));
            }
        })
        .await?;
        if groups.is_full() {
            return Err(Error::Damaged("segments".to_owned()));
        }
        let slice = self.options.slice;
        let (mut some, mut bytes, mut failed) = (Vec::new(), 0_u64, Vec::new());
        for names in groups.finish() {
            for group in self.examine_names(names, round, &mut failed).await? {
                bytes = bytes.saturating_add(group.names[0].1.size);
                some.push(group);
                // A kill costs one slice here as well.
                if some.len() >= slice.files_max || bytes >= slice.bytes_max {
                    let failed = std::mem::take(&mut failed);
                    self.make_groups(&mut late, std::mem::take(&mut some), failed)
                        .await?;
                    bytes = 0;
                }
            }
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
        }
        self.make_groups(&mut late, some, failed).await?;
        self.finish_late(late).await
    }

    /// Returns the files behind names that were listed with the same number: as this worker sees
    /// them now. Machines know one device under different numbers, and the files of two devices may
    /// have the same one.
    async fn examine_names(
        &self,
        names: Vec<(RelPath, u32)>,
        round: u32,
        failed: &mut Vec<Failed>,
    ) -> Result<Vec<Group>> {
        let mut groups: Vec<Group> = Vec::new();
        for (path, listed) in names {
            let metadata = match self.ends.source.metadata(&path).await {
                Ok(metadata) if metadata.kind == Kind::File => metadata,
                Ok(_) => {
                    // A later round does not list it again: the copy is of the time when it was listed.
                    if listed == round || !self.is_on_target(&path).await? {
                        failed.push((path, OTHER_KIND.to_owned()));
                    }
                    continue;
                }
                Err(error) if is_removed(error.kind, (listed, round)) => continue,
                Err(error) if is_of_node(error.kind) => {
                    failed.push((path, error.to_string()));
                    continue;
                }
                Err(error) => return Err(Error::source(error)),
            };
            let is_same = |group: &&mut Group| metadata.id.is_some() && group.names[0].1.id == metadata.id;
            match groups.iter_mut().find(is_same) {
                Some(group) => group.names.push((path, metadata)),
                None => groups.push(Group {
                    names: vec![(path, metadata)],
                }),
            }
        }
        Ok(groups)
    }

    async fn make_groups(&self, late: &mut Late, found: Vec<Group>, mut failed: Vec<Failed>) -> Result<()> {
        let mut records = self.copy_leaders(late, &found).await?;
        let copied = |record: &&Record| matches!(record.state, State::Copied { .. });
        let named: Vec<Record> = records.iter().filter(copied).cloned().collect();
        self.publish_late(late, &records).await?;
        let unnamed = self.name_files(late.claim, &named).await?;
        let is_bad = |record: &&Record| matches!(record.state, State::Failed(_));
        let bad: HashSet<RelPath> = (records.iter().filter(is_bad).map(|record| &record.path))
            .chain(unnamed.iter().map(|(path, _)| path))
            .cloned()
            .collect();
        failed.extend(unnamed);
        records.clear();
        for group in &found {
            let leader = &group.names[0].0;
            for (path, metadata) in &group.names[1..] {
                // What stands under the first name is an older version, or nothing.
                let reason = match bad.contains(leader) {
                    true => Some(format!("it is the same file as {leader}, which was not copied")),
                    false => self.make_link(late, group, path, metadata).await?,
                };
                failed.extend(reason.map(|reason| (path.clone(), reason)));
            }
        }
        late.sums.failed += failed.len() as u64;
        let record = |(path, reason)| Record::new(path, 0, 0, State::Failed(reason));
        records.extend(failed.into_iter().map(record));
        self.publish_late(late, &records).await
    }

    /// Copies the first name of each file where it differs.
    async fn copy_leaders(&self, late: &mut Late, groups: &[Group]) -> Result<Vec<Record>> {
        let stage = self.store.stage(late.claim);
        let (mut records, mut moves) = (Vec::new(), Vec::new());
        for group in groups {
            let (path, metadata) = &group.names[0];
            late.sums.bytes += metadata.size;
            let modified = nanoseconds(metadata.modified);
            let record = |state| Record::new(path.clone(), metadata.size, modified, state);
            let target = match self.ends.target_path(path) {
                Ok(target) => target,
                Err(error) => {
                    records.push(record(State::Failed(error.to_string())));
                    continue;
                }
            };
            let existing = match self.examine(&target).await? {
                Ok(existing) => existing,
                Err(reason) => {
                    records.push(record(State::Failed(reason)));
                    continue;
                }
            };
            let capabilities = self.ends.target.capabilities();
            let rules = &self.ends.rules;
            let decision = decide(
                metadata,
                existing.as_ref(),
                rules,
                &self.ends.preserve,
                capabilities,
            );
            if decision == Decision::Skip {
                let is_outdated = |found| self.ends.is_outdated(metadata, found);
                records.push(record(match existing.as_ref().is_some_and(is_outdated) {
                    true => {
                        self.store.check(late.claim).await?;
                        self.set_attributes(path, metadata).await?
                    }
                    false => State::Equal,
                }));
                continue;
            }
            let number = late.next_staged();
            moves.push(Move {
                source: path.clone(),
                stage: stage.join(&staged(number)),
                metadata: metadata.clone(),
            });
            records.push(record(State::Copied { staged: number }));
        }
        if !moves.is_empty() {
            let mut moved = self.copy_moves(&stage, &moves).await?;
            for (wanted, moved) in moves.iter().zip(&mut moved) {
                if matches!(moved, Moved::Copied { .. })
                    && let Some(reason) = self.why_not_still(wanted).await?
                {
                    *moved = Moved::Failed(reason);
                }
            }
            self.note_moved(late, &mut records, moved);
        }
        let failed = |record: &&Record| matches!(record.state, State::Failed(_));
        late.sums.failed += records.iter().filter(failed).count() as u64;
        Ok(records)
    }

    /// Returns why a name of the source is not that of the file any more that was to be copied: its other names would
    /// get the content of another file.
    async fn why_not_still(&self, wanted: &Move) -> Result<Option<String>> {
        match self.ends.source.metadata(&wanted.source).await {
            Ok(found) if found.id == wanted.metadata.id => Ok(None),
            Ok(_) => Ok(Some(REPLACED.to_owned())),
            Err(error) if is_of_node(error.kind) => Ok(Some(error.to_string())),
            Err(error) => Err(Error::source(error)),
        }
    }

    /// Whether something stands under a name on the target.
    async fn is_on_target(&self, path: &RelPath) -> Result<bool> {
        match self.ends.target_path(path) {
            Ok(target) => Ok(matches!(self.examine(&target).await?, Ok(Some(_)))),
            Err(_) => Ok(false),
        }
    }

    /// Returns the round in which a task has listed what it recorded. Of one that is not known, nothing is taken for
    /// removed.
    pub(super) fn listed_in(&self, of: ClaimId, round: u32) -> u32 {
        self.state.lock().replay.round_of(of.task).unwrap_or(round)
    }

    /// Returns what stands under a name of the target, or why that is not known for this name only.
    /// A connection that was lost is no answer: what stands there would be copied again.
    pub(super) async fn examine(&self, path: &RelPath) -> Result<Result<Option<Metadata>, String>> {
        match self.ends.target.metadata(path).await {
            Ok(found) => Ok(Ok(Some(found))),
            Err(error) if error.kind.is_absence() => Ok(Ok(None)),
            Err(error) if is_of_node(error.kind) => Ok(Err(error.to_string())),
            Err(error) => Err(Error::target(error)),
        }
    }

    /// Notes in the records of files to copy what became of them.
    fn note_moved(&self, late: &mut Late, records: &mut [Record], moved: Vec<Moved>) {
        let mut moved = moved.into_iter();
        for record in records {
            if !matches!(record.state, State::Copied { .. }) {
                continue;
            }
            match moved.next().unwrap_or_else(Moved::gone) {
                Moved::Copied { size, modified, hash } => {
                    (record.size, record.modified, record.hash) = (size, modified, hash);
                    late.sums.copied += 1;
                    late.sums.copied_bytes += size;
                    self.counters.files.fetch_add(1, Ordering::Relaxed);
                    self.counters.bytes.fetch_add(size, Ordering::Relaxed);
                }
                Moved::Failed(reason) => record.state = State::Failed(reason),
            }
        }
    }

    /// Makes a further name of a file. It is made in the stage and renamed, as a copy is. Returns
    /// the reason if that failed for this name only.
    async fn make_link(
        &self,
        late: &mut Late,
        group: &Group,
        path: &RelPath,
        metadata: &Metadata,
    ) -> Result<Option<String>> {
        let target = &self.ends.target;
        let names = (
            self.ends.target_path(&group.names[0].0),
            self.ends.target_path(path),
        );
        let (Ok(leader), Ok(own)) = names else {
            return Ok(Some("the target cannot hold this name".to_owned()));
        };
        if metadata.id != group.names[0].1.id {
            return Ok(Some("it changed while it was copied".to_owned()));
        }
        let found = (self.examine(&leader).await?, self.examine(&own).await?);
        let (of_leader, of_own) = match found {
            (Ok(leader), Ok(own)) => (leader.and_then(|found| found.id), own.and_then(|found| found.id)),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Some(reason)),
        };
        if of_leader.is_some() && of_leader == of_own {
            return Ok(None);
        }
        let number = late.next_staged();
        let temporary = self.store.stage(late.claim).join(&staged(number));
        match target.make_hard_link(&leader, &temporary).await {
            Ok(()) => self.name_file(late.claim, number, path).await,
            Err(error) if is_of_node(error.kind) => {
                self.store.check(late.claim).await?;
                Ok(Some(error.to_string()))
            }
            Err(error) => Err(Error::target(error)),
        }
    }
}

#[cfg(test)]
#[path = "late_tests.rs"]
mod tests;
