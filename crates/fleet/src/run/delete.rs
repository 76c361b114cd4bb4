//! What only the target has: found while folders are listed, and removed at the end.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;

use ropeway_plan::names::{case_key, normalized};
use ropeway_vfs::{DirEntry, Error as VfsError, ErrorKind, Metadata, Name, Op, Pending, RelPath};

use super::ends::OWNER_ALL;
use super::late::Late;
use super::slice::AT_ONCE;
use super::takeover::staged;
use super::{Crew, is_of_node};
use crate::catalog::{Record, SegmentId, State, encode};
use crate::claim::ClaimId;
use crate::error::{Error, Result};
use crate::files::{is_of_ropeway, of_mode};
use crate::task::{NameRange, shard_of};
use crate::worker::Worker;

/// Entries that are asked for at once.
const CHUNK: usize = 1_024;

/// Nodes of one folder that are removed after one look at the folder of the source.
const GROUP: usize = 1_000;

/// Depth of folders that are removed with their content.
const DEPTH_MAX: usize = 2_000;

/// Names of one folder that are mapped to others and kept in memory at most.
const MAPPED_MAX: usize = 100_000;

/// What the source has in one folder, as the target knows it.
pub(super) struct Known {
    /// What the target takes the names in the range for.
    names: HashSet<Name>,
    /// The same for names outside of the range that the target may list as others, which lie in the range.
    mapped: HashSet<Name>,
    range: NameRange,
    is_overfull: bool,
}

impl Known {
    /// Makes an empty list for a range of a folder.
    pub(super) fn new(range: NameRange) -> Self {
        Self {
            names: HashSet::new(),
            mapped: HashSet::new(),
            range,
            is_overfull: false,
        }
    }
}

impl Crew {
    /// Returns what one of the target's own names is taken for. Names that look the same count as one: some targets
    /// list them in another form of Unicode, and what the source has must not be removed.
    fn target_key(&self, name: &Name) -> Name {
        match self.ends.target.capabilities().case_sensitive {
            true => normalized(name),
            false => normalized(&case_key(name)),
        }
    }

    /// Notes a name of the source.
    pub(super) fn note_known(&self, known: &mut Known, name: &Name, key: &Name) {
        let Ok(mapped) = self.ends.names.map(name) else {
            // It fails, so nothing is deleted.
            return;
        };
        let on_target = self.target_key(&mapped.name);
        if known.range.contains(key) {
            known.names.insert(on_target);
        } else if mapped.name != *name || !name.as_bytes().is_ascii() {
            known.is_overfull |= known.mapped.len() >= MAPPED_MAX;
            if !known.is_overfull {
                known.mapped.insert(on_target);
            }
        }
    }

    /// Notes what only the target has in a range of a folder.
    pub(super) async fn note_extra(
        &self,
        worker: &mut Worker,
        claim: ClaimId,
        (path, target): (&RelPath, &RelPath),
        known: &Known,
    ) -> Result<()> {
        if known.is_overfull {
            let reason =
                "it has too many names that the target may list as others, so it is not known what to delete";
            worker.note_failed(path.clone(), reason.to_owned());
            return Ok(());
        }
        let mut listing = self.ends.target.list(target).await.map_err(Error::target)?;
        loop {
            let entries = listing.next(CHUNK).await.map_err(Error::target)?;
            if entries.is_empty() {
                return Ok(());
            }
            for DirEntry { name, .. } in entries {
                let key = self.target_key(&name);
                let is_known = known.names.contains(&key) || known.mapped.contains(&key);
                let place = match self.ends.target.capabilities().case_sensitive {
                    true => name.clone(),
                    false => case_key(&name),
                };
                if is_known || is_of_ropeway(&name) || !known.range.contains(&place) {
                    continue;
                }
                worker.note_extra(path.join(&name));
                if let Some((number, records)) = worker.overflow() {
                    let mut bytes = Vec::new();
                    encode(&mut bytes, &records, &[]);
                    self.store
                        .publish_segment(SegmentId { claim, number }, &bytes)
                        .await?;
                }
            }
        }
    }

    /// Removes one share of what only the target has.
    pub(super) async fn run_deletions(
        &self,
        (claim, round): (ClaimId, u32),
        (shard, shards): (u32, u32),
    ) -> Result<()> {
        self.take_over_of(claim, true).await?;
        self.empty_graves(claim).await?;
        self.look_what_is_done().await?;
        let mut late = Late::new(claim, round);
        let is_own = |path: &RelPath| owner_of(path, shards) == shard;
        for (folder, is_there) in self.segments_by_folder(|_| true).await? {
            let (mut paths, mut deleted) = (BTreeSet::new(), 0);
            let mut add = |of: ClaimId, record: Record| match record.state {
                // By earlier claims; what this one publishes meanwhile is counted already.
                State::Deleted if of.task == claim.task && of != claim => deleted += 1,
                // What other claims of a task have listed may be out of date.
                State::Extra if is_own(&record.path) && self.state.lock().replay.is_last(of) => {
                    paths.insert(record.path);
                }
                _ => {}
            };
            self.each_record_in(folder, is_there, &mut add).await?;
            late.sums.deleted += deleted;
            let paths: Vec<RelPath> = paths.into_iter().collect();
            for group in paths.chunk_by(|one, two| one.parent() == two.parent()) {
                for some in group.chunks(GROUP) {
                    self.delete_some(&mut late, some).await?;
                }
            }
        }
        self.finish_late(late).await
    }

    /// Removes nodes of one folder that the source still does not have.
    async fn delete_some(&self, late: &mut Late, paths: &[RelPath]) -> Result<()> {
        let lost = self.examine_source().await?;
        let Some(folder) = paths.first().and_then(RelPath::parent) else {
            return Ok(());
        };
        let wanted: HashSet<Name> = (paths.iter().filter_map(RelPath::file_name))
            .map(|name| self.target_key(&name))
            .collect();
        let mut records = Vec::new();
        let lost = lost.iter().find(|lost| folder.strip_prefix(lost).is_some());
        let without = match lost {
            Some(lost) => Err(all_gone(lost)),
            None => self.without_source(&folder, wanted).await?,
        };
        match without {
            Ok(extra) => {
                let is_extra = |path: &&RelPath| {
                    path.file_name()
                        .is_some_and(|name| extra.contains(&self.target_key(&name)))
                };
                let paths: Vec<&RelPath> = paths.iter().filter(is_extra).collect();
                let paths = self.not_found(&folder, paths).await?;
                self.delete_each(late, &paths, &mut records).await?;
            }
            Err(reason) => {
                late.sums.kept += paths.len() as u64;
                let failed = |path: &RelPath| Record::new(path.clone(), 0, 0, State::Failed(reason.clone()));
                records.extend(paths.iter().map(failed));
            }
        }
        self.publish_late(late, &records).await?;
        match self.is_stopped() {
            true => Err(Error::Stopped),
            false => Ok(()),
        }
    }

    /// Returns which names of the target the source does not have in a folder now, or why that is not known. What
    /// was made since the folder was listed is copied by a further job.
    async fn without_source(
        &self,
        folder: &RelPath,
        mut wanted: HashSet<Name>,
    ) -> Result<Result<HashSet<Name>, String>> {
        let mut listing = match self.ends.source.list(folder).await {
            Ok(listing) => listing,
            // The next job finds out about the whole folder.
            Err(error) if error.kind.is_absence() => return Ok(Ok(HashSet::new())),
            Err(error) if is_of_node(error.kind) => return Ok(Err(error.to_string())),
            Err(error) => return Err(Error::source(error)),
        };
        loop {
            let entries = match listing.next(CHUNK).await {
                Ok(entries) => entries,
                Err(error) if is_of_node(error.kind) => return Ok(Err(error.to_string())),
                Err(error) => return Err(Error::source(error)),
            };
            if entries.is_empty() || wanted.is_empty() {
                return Ok(Ok(wanted));
            }
            for DirEntry { name, .. } in entries {
                if let Ok(mapped) = self.ends.names.map(&name) {
                    wanted.remove(&self.target_key(&mapped.name));
                }
            }
        }
    }

    /// Leaves out what the source has under the same name: a listing may miss what is renamed meanwhile.
    async fn not_found<'a>(&self, folder: &RelPath, paths: Vec<&'a RelPath>) -> Result<Vec<&'a RelPath>> {
        let names: Vec<Name> = paths.iter().filter_map(|path| path.file_name()).collect();
        let found = match self.ends.source.lookup(folder, &names).await {
            Ok(found) => found,
            Err(error) if error.kind.is_absence() => return Ok(paths),
            Err(error) => return Err(Error::source(error)),
        };
        let absent = |found: &Result<Option<Metadata>, VfsError>| matches!(found, Ok(None));
        let both = paths.into_iter().zip(found);
        Ok(both
            .filter(|(_, found)| absent(found))
            .map(|(path, _)| path)
            .collect())
    }

    async fn delete_each(
        &self,
        late: &mut Late,
        paths: &[&RelPath],
        records: &mut Vec<Record>,
    ) -> Result<()> {
        for chunk in paths.chunks(AT_ONCE) {
            if self.is_stopped() {
                return Ok(());
            }
            let claim = late.claim;
            let numbers: Vec<u32> = chunk.iter().map(|_| late.next_staged()).collect();
            let deletions =
                (chunk.iter().zip(numbers)).map(|(path, number)| self.delete(claim, number, path));
            for (path, deleted) in chunk.iter().zip(futures_util::future::join_all(deletions).await) {
                let state = match deleted? {
                    Ok(false) => continue,
                    Ok(true) => State::Deleted,
                    Err(reason) => State::Failed(reason),
                };
                match state {
                    State::Deleted => late.sums.deleted += 1,
                    _ => late.sums.kept += 1,
                }
                records.push(Record::new((*path).clone(), 0, 0, state));
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes one node of the target with everything in it. Returns whether it was there, or why it stays.
    ///
    /// It is renamed into the stage first: whoever lost the claim cannot do that any more.
    async fn delete(&self, claim: ClaimId, number: u32, path: &RelPath) -> Result<Result<bool, String>> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Ok(false));
        };
        let Ok(folder) = self.ends.target_path(&folder) else {
            return Ok(Ok(false));
        };
        let node = folder.join(&name);
        let found = match self.ends.target.metadata(&node).await {
            Ok(found) => found,
            Err(error) if error.kind.is_absence() => return Ok(Ok(false)),
            Err(error) if is_of_node(error.kind) => return Ok(Err(error.to_string())),
            Err(error) => return Err(Error::target(error)),
        };
        if found.is_mount_root {
            return Ok(Err(mounted_at(&node)));
        }
        if found.is_dir() {
            if let Some(reason) = self.holds_other(&node, &found).await? {
                return Ok(Err(reason));
            }
            self.open_folder(&node, &found).await;
        }
        let grave = self.store.stage(claim).join(&staged(number));
        match self.ends.target.rename(&node, &grave, false).await {
            Ok(()) => {}
            Err(error) if is_of_node(error.kind) => {
                self.store.check(claim).await?;
                return Ok(Err(error.to_string()));
            }
            Err(error) => return Err(Error::target(error)),
        }
        Ok(match self.bury(claim, &staged(number)).await? {
            None => Ok(true),
            Some(reason) => Err(reason),
        })
    }

    /// Gives a folder the permissions that its owner needs to move and empty it.
    async fn open_folder(&self, path: &RelPath, found: &Metadata) {
        if let Some(mode) = found.mode.filter(|mode| mode & OWNER_ALL != OWNER_ALL) {
            // If this is refused, what follows tells.
            let change = of_mode(mode | OWNER_ALL);
            let _ = self.ends.target.set_metadata(path, &change).await;
        }
    }

    /// Moves what lies in the stage of a task that deletes out of it, and removes it. What cannot be removed stays
    /// in the catalog, so that it does not keep others from the stage: returns why.
    pub(super) async fn bury(&self, claim: ClaimId, name: &Name) -> Result<Option<String>> {
        let (from, grave) = (self.store.stage(claim).join(name), self.store.grave(claim, name));
        match self.ends.target.rename(&from, &grave, false).await {
            Ok(()) => {}
            Err(error) if error.kind.is_absence() => return Ok(None),
            Err(error) => return Err(Error::target(error)),
        }
        match self.discard(grave.clone(), DEPTH_MAX).await {
            Ok(()) => Ok(None),
            Err(error) => Ok(Some(format!(
                "it was moved to {grave}, and cannot be removed there: {error}"
            ))),
        }
    }

    /// Removes what earlier claims of a task moved away, and what they could not remove before they died.
    pub(super) async fn bury_all(&self, claims: &[ClaimId]) -> Result<()> {
        for claim in claims {
            for name in self.store.staged(*claim).await? {
                self.bury(*claim, &name).await?;
            }
        }
        Ok(())
    }

    /// Tries again to remove what earlier claims of a task have moved away.
    async fn empty_graves(&self, claim: ClaimId) -> Result<()> {
        for grave in self.store.graves(claim.task).await? {
            if let Err(error) = self.discard(grave, DEPTH_MAX).await {
                tracing::warn!(%error, "what was deleted stays in the folder of the job");
            }
        }
        Ok(())
    }

    /// Returns why a folder must not be removed: something in it is not of the target, or cannot be looked at. If it
    /// may be removed, its owner may list it afterwards, and all folders in it.
    async fn holds_other(&self, folder: &RelPath, found: &Metadata) -> Result<Option<String>> {
        let mut opened = Vec::new();
        let reason = self.look_inside(folder, found, &mut opened).await;
        if !matches!(reason, Ok(None)) {
            // The deepest first: the others may be in its way.
            for (path, mode) in opened.into_iter().rev() {
                if let Err(error) = self.ends.target.set_metadata(&path, &of_mode(mode)).await {
                    tracing::warn!(%error, "a folder that stays keeps the permissions for its removal");
                }
            }
        }
        reason
    }

    /// The same; appends the folders that had to be opened for it to `opened`, with their permissions before.
    async fn look_inside(
        &self,
        folder: &RelPath,
        found: &Metadata,
        opened: &mut Vec<(RelPath, u32)>,
    ) -> Result<Option<String>> {
        let target = &self.ends.target;
        let top = target
            .metadata(&self.ends.target_root)
            .await
            .map_err(Error::target)?;
        let volume = |metadata: &Metadata| metadata.id.map(|id| id.volume);
        let mut folders = vec![(folder.clone(), found.clone())];
        while let Some((path, metadata)) = folders.pop() {
            if self.is_stopped() {
                return Err(Error::Stopped);
            }
            self.counters.progress.fetch_add(1, Ordering::Relaxed);
            if !target.capabilities().remote && volume(&metadata) != volume(&top) {
                return Ok(Some(mounted_at(&path)));
            }
            if self.ends.is_source(&path, &metadata).await? {
                return Ok(Some(format!("{path} is the source")));
            }
            let mut inside = self.folders_in(&path).await;
            if let (Err(error), Some(mode)) = (&inside, metadata.mode)
                && error.kind == ErrorKind::PermissionDenied
                && mode & OWNER_ALL != OWNER_ALL
            {
                opened.push((path.clone(), mode));
                self.open_folder(&path, &metadata).await;
                inside = self.folders_in(&path).await;
            }
            match inside {
                Ok(Ok(inside)) => folders.extend(inside),
                Ok(Err(reason)) => return Ok(Some(reason)),
                Err(error) if is_of_node(error.kind) => return Ok(Some(error.to_string())),
                Err(error) => return Err(Error::target(error)),
            }
        }
        Ok(None)
    }

    /// Returns the folders in a folder; the inner error: something is mounted there.
    async fn folders_in(&self, path: &RelPath) -> Result<Result<Vec<(RelPath, Metadata)>, String>, VfsError> {
        let mut listing = self.ends.target.list(path).await?;
        let mut folders = Vec::new();
        loop {
            let entries = listing.next(CHUNK).await?;
            if entries.is_empty() {
                return Ok(Ok(folders));
            }
            for DirEntry { name, metadata } in entries {
                let metadata = metadata?;
                // Also a folder or file of this volume.
                if metadata.is_mount_root {
                    return Ok(Err(mounted_at(&path.join(&name))));
                }
                if metadata.is_dir() {
                    folders.push((path.join(&name), metadata));
                }
            }
        }
    }

    /// Removes a node of the stage with everything in it.
    fn discard(&self, path: RelPath, depth: usize) -> Pending<'_, Result<(), VfsError>> {
        Box::pin(async move {
            let target = &self.ends.target;
            match target.remove_file(&path).await {
                Err(error) if error.kind == ErrorKind::IsADirectory && depth > 0 => {}
                Err(error) if error.kind.is_absence() => return Ok(()),
                result => return result,
            }
            if let Ok(found) = target.metadata(&path).await {
                if found.is_mount_root {
                    return Err(VfsError::new(Op::Remove, &path, ErrorKind::Busy));
                }
                self.open_folder(&path, &found).await;
            }
            for name in target.names_with_prefix(&path, b"").await? {
                self.counters.progress.fetch_add(1, Ordering::Relaxed);
                self.discard(path.join(&name), depth - 1).await?;
            }
            match target.remove_dir(&path).await {
                Err(error) if error.kind.is_absence() => Ok(()),
                result => result,
            }
        })
    }
}

fn mounted_at(path: &RelPath) -> String {
    format!("something is mounted at {path}")
}

/// Why nothing in a folder is deleted. It may be a volume that is not mounted.
fn all_gone(folder: &RelPath) -> String {
    format!(
        "all that `submit` saw in {folder} is gone, so nothing is deleted there: is a volume not mounted? if not, submit again"
    )
}

/// Returns which of `shards` tasks removes a node.
fn owner_of(path: &RelPath, shards: u32) -> u32 {
    shard_of(blake3::hash(path.as_bytes()).as_bytes(), shards)
}

#[cfg(test)]
#[path = "delete_tests.rs"]
mod tests;
