//! Sets the attributes of folders.
//!
//! A folder that becomes read-only must not be in the way of those below it, so the deepest come first
//! ([`Folders`]). For that, one worker must know all folders, and it reads the catalog again for each
//! part of them that its memory holds. But nearly all folders are in nobody's way. If there are many, they are
//! done before that, in any order, by as many workers as there are: each of these tasks reads the
//! segments in some of the folders of segments. What may be in the way it leaves to the last task, and
//! records that.

use std::sync::atomic::Ordering;

use ropeway_vfs::{Kind, Metadata, MetadataChange, RelPath};

use super::late::{Late, is_removed};
use super::ledger::Ledger;
use super::slice::ATTRIBUTES_EACH;
use super::{Crew, is_of_node};
use crate::catalog::{Block, Record, State};
use crate::claim::ClaimId;
use crate::coordinator;
use crate::error::{Error, Result};
use crate::late::Folders;
use crate::task::{Task, Work};

/// Permission bits that the owner of a folder needs to work in it.
const OWNER_ALL: u32 = 0o700;

/// The bit that lets others reach what is in a folder.
const OTHERS_SEARCH: u32 = 0o001;

/// Records in memory. A guess: a few MiB.
const RECORDS_MAX: usize = 10_000;

/// What became of a folder.
enum Set {
    /// It has its attributes, or needs none.
    Done,
    /// It failed, with the reason.
    Failed(String),
    /// It may be in the way of folders below it.
    Later,
}

/// Whether a folder with these attributes cannot be in the way of those below it, whoever works there.
fn is_harmless(change: &MetadataChange, found: &Metadata) -> bool {
    let (mode, owner) = (change.mode.unwrap_or(OWNER_ALL), change.owner);
    let is_owner_kept = owner.is_none() || owner == found.owner || mode & OTHERS_SEARCH != 0;
    // ACLs are among the extended attributes.
    let has_none = change.xattrs.as_ref().is_none_or(Vec::is_empty);
    mode & OWNER_ALL == OWNER_ALL && is_owner_kept && has_none
}

impl Crew {
    /// Sets the attributes of one share of the folders, of those that are in nobody's way.
    pub(super) async fn run_folder_share(
        &self,
        (claim, round): (ClaimId, u32),
        (shard, shards): (u32, u32),
    ) -> Result<()> {
        let mut late = self.begin_folders(claim, round).await?;
        let own = self.segments_by_folder(|folder| u32::from(folder) % shards == shard);
        let (mut number, mut records) = (0_usize, Vec::new());
        for (folder, is_there) in own.await? {
            let mut folders = Vec::new();
            let mut add = |of: ClaimId, record: Record| {
                if record.state == State::Folder {
                    folders.push((record.path, self.listed_in(of, round)));
                }
            };
            self.each_record_in(folder, is_there, &mut add).await?;
            for (path, listed) in folders {
                let rounds = (listed, round);
                let state = match self.set_next(&mut number, (claim, rounds), &path, true).await? {
                    Set::Done => continue,
                    Set::Failed(reason) => State::Failed(reason),
                    Set::Later => State::FolderLeft,
                };
                late.sums.failed += u64::from(state != State::FolderLeft);
                records.push(Record::new(path, 0, 0, state));
                if records.len() >= RECORDS_MAX {
                    self.publish_late(&mut late, &std::mem::take(&mut records))
                        .await?;
                }
            }
        }
        self.publish_late(&mut late, &records).await?;
        self.finish_late(late).await
    }

    /// Sets the attributes of all folders that are left, the deepest first.
    pub(super) async fn run_folder_times(&self, claim: ClaimId, round: u32) -> Result<()> {
        let mut late = self.begin_folders(claim, round).await?;
        let mut folders = Folders::default();
        let mut number = 0;
        loop {
            self.each_folder_left(round, &mut folders).await?;
            let (now, again) = folders.take();
            let mut failed = Vec::new();
            for (path, listed) in now {
                let rounds = (listed, round);
                if let Set::Failed(reason) = self.set_next(&mut number, (claim, rounds), &path, false).await?
                {
                    failed.push(Record::new(path, 0, 0, State::Failed(reason)));
                }
            }
            late.sums.failed += failed.len() as u64;
            self.publish_late(&mut late, &failed).await?;
            if !again {
                return self.finish_late(late).await;
            }
        }
    }

    /// Begins a task of folders.
    async fn begin_folders(&self, claim: ClaimId, round: u32) -> Result<Late> {
        self.take_over(claim).await?;
        // What an earlier claim did is done again.
        self.open_ledger(Ledger::default());
        self.look_what_is_done().await?;
        Ok(Late::of_folders(claim, round))
    }

    /// Collects the folders that the tasks of the phase before have left; all, if there was no such phase.
    async fn each_folder_left(&self, round: u32, folders: &mut Folders) -> Result<()> {
        let shards = coordinator::folder_shares(self.state.lock().replay.sums());
        let wanted = if shards == 0 {
            State::Folder
        } else {
            State::FolderLeft
        };
        let mut add = |record: Record, listed: u32| {
            if record.state == wanted {
                folders.add(record.path, listed);
            }
        };
        if shards == 0 {
            let mut of_task = |of, record| add(record, self.listed_in(of, round));
            return self.each_record(&mut of_task).await;
        }
        for shard in 0..shards {
            let work = Work::FolderShare { shard, shards };
            let task = Task { round, work }.id();
            let segments = self.store.segments(Some(task)).await?;
            if self.state.lock().replay.segments_of(task) != Some(segments.len() as u64) {
                return Err(Error::Damaged(format!("segments of {task}")));
            }
            for segment in segments {
                for block in self.store.segment_for_late(segment).await? {
                    if let Block::Records(records) = block {
                        // Its task has just seen it.
                        records.into_iter().for_each(|record| add(record, round));
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets the attributes of the next folder of a task, and looks from time to time whether the claim still stands:
    /// attributes are not fenced, so a worker that slept must not go on for long.
    async fn set_next(
        &self,
        number: &mut usize,
        (claim, rounds): (ClaimId, (u32, u32)),
        path: &RelPath,
        only_harmless: bool,
    ) -> Result<Set> {
        if self.is_stopped() {
            return Err(Error::Stopped);
        }
        if number.is_multiple_of(ATTRIBUTES_EACH) {
            self.store.check(claim).await?;
        }
        *number += 1;
        self.counters.progress.fetch_add(1, Ordering::Relaxed);
        self.set_folder(path, rounds, only_harmless).await
    }

    /// Sets the attributes of one folder. `rounds`: in which it was listed, and this one.
    async fn set_folder(&self, path: &RelPath, rounds: (u32, u32), only_harmless: bool) -> Result<Set> {
        let source = &self.ends.source;
        let metadata = match source.metadata(path).await {
            Ok(metadata) if metadata.kind == Kind::Directory => metadata,
            Ok(_) => return Ok(Set::Done),
            Err(error) if is_removed(error.kind, rounds) => return Ok(Set::Done),
            Err(error) if is_of_node(error.kind) => return Ok(Set::Failed(error.to_string())),
            Err(error) => return Err(Error::source(error)),
        };
        let wants_xattrs = self.ends.preserve.xattrs
            && metadata.has_xattrs != Some(false)
            && self.ends.target.capabilities().takes_xattrs();
        let xattrs = match wants_xattrs {
            true => match source.xattrs(path).await {
                Ok(xattrs) => Some(xattrs),
                Err(error) if is_removed(error.kind, rounds) => return Ok(Set::Done),
                Err(error) if is_of_node(error.kind) => return Ok(Set::Failed(error.to_string())),
                Err(error) => return Err(Error::source(error)),
            },
            false => None,
        };
        let Ok(target) = self.ends.target_path(path) else {
            return Ok(Set::Done);
        };
        let found = match self.examine(&target).await? {
            Ok(Some(found)) if found.kind == Kind::Directory => found,
            // A file or a link that was there before: the walk has listed the folder as failed.
            Ok(Some(_)) => return Ok(Set::Done),
            Ok(None) => return Ok(Set::Failed("it was not made".to_owned())),
            Err(reason) => return Ok(Set::Failed(reason)),
        };
        let change = self.ends.change_of(&metadata, xattrs);
        if only_harmless && !is_harmless(&change, &found) {
            return Ok(Set::Later);
        }
        match self.ends.target.set_metadata(&target, &change).await {
            Ok(losses) => {
                self.lose(&losses);
                Ok(Set::Done)
            }
            Err(error) if is_of_node(error.kind) => Ok(Set::Failed(error.to_string())),
            Err(error) => Err(Error::target(error)),
        }
    }
}

#[cfg(test)]
#[path = "folder_shares_tests.rs"]
mod tests;
