//! Copies one slice: compares with the target, and copies what differs into the stage.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use ropeway_copy::is_temporary;
use ropeway_plan::names::{Collision, case_key};
use ropeway_plan::{Decision, decide};
use ropeway_vfs::{Kind, Metadata, MetadataChange, Name, RelPath};

use super::mover::{Move, Moved};
use super::takeover::staged;
use super::{Crew, is_of_node};
use crate::catalog::State;
use crate::claim::ClaimId;
use crate::error::{Error, Result};
use crate::worker::{Item, Outcome};

/// Operations on the target at once.
pub(super) const AT_ONCE: usize = 16;

/// Nodes whose attributes are set between two looks whether the claim still stands. The attributes
/// of what has its name already are set there, so no folder that is gone keeps a late worker from
/// it: after a pause it sets those of so many nodes at most.
pub(super) const ATTRIBUTES_EACH: usize = 16;

impl Crew {
    /// Carries out the step of a copy. Returns what became of each item.
    pub(super) async fn copy_slice(
        &self,
        (claim, round): (ClaimId, u32),
        first: u32,
        items: &[Item],
    ) -> Result<Vec<Outcome>> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(items.len());
        let mut attributes = 0_usize;
        for group in items.chunk_by(|one, two| one.folder == two.folder) {
            let existing = self.look_up(group).await?;
            for (item, existing) in group.iter().zip(existing) {
                let outcome = match existing {
                    _ if is_temporary(&item.name) => Some(Outcome::listed(item, State::Skipped)),
                    Ok(existing) => {
                        self.compare(item, existing.as_ref(), (claim, &mut attributes))
                            .await?
                    }
                    Err(reason) => Some(Outcome::listed(item, State::Failed(reason))),
                };
                outcomes.push(match outcome {
                    None if self.is_large(item) => Some(self.begin_large(claim, round, item).await?),
                    outcome => outcome,
                });
            }
        }
        let stage = self.store.stage(claim);
        let moves = (items.iter().zip(&outcomes).zip(first..))
            .filter(|((_, outcome), _)| outcome.is_none())
            .map(|((item, _), number)| Move {
                source: item.path(),
                stage: stage.join(&staged(number)),
                metadata: item.metadata.clone(),
            });
        // Nearly always all of them; a filter does not tell that.
        let mut all: Vec<Move> = Vec::with_capacity(items.len());
        all.extend(moves);
        let moves = all;
        let mut moved = match moves.is_empty() {
            true => Vec::new(),
            false => match self.copy_moves(&stage, &moves).await {
                Ok(moved) => moved,
                Err(error) => {
                    self.make_room(&error, claim).await;
                    return Err(error);
                }
            },
        }
        .into_iter();
        self.counters
            .done
            .fetch_add(items.len() as u64, Ordering::Relaxed);
        let outcomes = items.iter().zip(outcomes).map(|(item, outcome)| {
            outcome.unwrap_or_else(|| self.moved(item, moved.next().unwrap_or_else(Moved::gone)))
        });
        Ok(outcomes.collect())
    }

    /// Removes what this slice has in the stage if the target is full, so that the others can be told. None of it is
    /// published, so whoever takes the task over copies it again anyway.
    async fn make_room(&self, error: &Error, claim: ClaimId) {
        if error.is_full() {
            // Also what the engine has not completed.
            let _ = self.store.close_stage(claim).await;
        }
    }

    /// Whether a file is copied by several workers.
    fn is_large(&self, item: &Item) -> bool {
        let limits = self.options.slice.parts;
        // Else the target might have to fill the whole file first.
        self.ends.target.capabilities().sparse
            && item.metadata.kind == Kind::File
            && item.metadata.size >= limits.file_min.max(limits.length + 1)
    }

    fn moved(&self, item: &Item, moved: Moved) -> Outcome {
        match moved {
            Moved::Copied { size, modified, hash } => {
                self.counters.files.fetch_add(1, Ordering::Relaxed);
                self.counters.bytes.fetch_add(size, Ordering::Relaxed);
                self.counters.progress.fetch_add(1, Ordering::Relaxed);
                Outcome {
                    state: State::Copied { staged: 0 },
                    size,
                    modified,
                    hash,
                }
            }
            Moved::Failed(reason) => Outcome::listed(item, State::Failed(reason)),
        }
    }

    /// Returns what stands on the target under the names of items of one folder.
    async fn look_up(&self, group: &[Item]) -> Result<Vec<Result<Option<Metadata>, String>>> {
        let Some(first) = group.first() else {
            return Ok(Vec::new());
        };
        let folder = match self.ends.target_path(&first.folder) {
            Ok(folder) => folder,
            Err(error) => return Ok(group.iter().map(|_| Err(error.to_string())).collect()),
        };
        let mapped: Vec<Result<Name, String>> = group
            .iter()
            .map(|item| match self.ends.names.map(&item.name) {
                Ok(mapped) => Ok(mapped.name),
                Err(error) => Err(error.to_string()),
            })
            .collect();
        let names: Vec<Name> = mapped.iter().flatten().cloned().collect();
        let found = self
            .ends
            .target
            .lookup(&folder, &names)
            .await
            .map_err(Error::target)?;
        let standing = (names.iter().zip(&found))
            .filter_map(|(name, found)| found.as_ref().is_ok_and(Option::is_some).then_some(name));
        let others = self.of_others(&folder, standing.collect()).await?;
        let mut found = names.into_iter().zip(found);
        let mut results = Vec::with_capacity(group.len());
        for mapped in mapped {
            results.push(match mapped.map(|_| found.next()) {
                Err(reason) => Err(reason),
                Ok(Some((name, _))) if others.contains(&name) => Err(Collision::Case.to_string()),
                Ok(Some((_, Ok(found)))) => Ok(found),
                Ok(None) => Ok(None),
                Ok(Some((_, Err(error)))) if is_of_node(error.kind) => Err(error.to_string()),
                Ok(Some((_, Err(error)))) => return Err(Error::target(error)),
            });
        }
        Ok(results)
    }

    /// Returns those of some names of one folder under which the target shows a node that it lists under another name.
    /// Names that differ in case as far as [`case_key`] knows are no such names: only one of them is copied, so it is
    /// the same file, whose name changed in case since an earlier job. But a target may take more names for one than
    /// that, also a short name for a long one; what stands there may be the copy of another file, or be no copy.
    async fn of_others(&self, folder: &RelPath, standing: Vec<&Name>) -> Result<HashSet<Name>> {
        let mut odd: HashMap<Name, Name> = HashMap::new();
        if self.ends.target.capabilities().case_sensitive {
            return Ok(HashSet::new());
        }
        for name in standing {
            if !self.is_exactly(folder, name).await? {
                odd.insert(case_key(name), name.clone());
            }
        }
        if !odd.is_empty() {
            let listed = self.ends.target.names_with_prefix(folder, b"").await;
            for name in listed.map_err(Error::target)? {
                odd.remove(&case_key(&name));
            }
        }
        Ok(odd.into_values().collect())
    }

    /// Whether a folder that the target shows under a name is the one of that name, and not one that it takes for it.
    pub(super) async fn is_own_folder(&self, path: &RelPath) -> Result<bool> {
        match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => Ok(self.of_others(&above, vec![&name]).await?.is_empty()),
            _ => Ok(true),
        }
    }

    /// Whether the target lists a node under exactly this name.
    async fn is_exactly(&self, folder: &RelPath, name: &Name) -> Result<bool> {
        let found = self.ends.target.names_with_prefix(folder, name.as_bytes()).await;
        Ok(found.map_err(Error::target)?.contains(name))
    }

    /// Compares an item with what stands on the target. `None`: it must be copied.
    /// `attributes`: how many nodes of the slice got their attributes.
    async fn compare(
        &self,
        item: &Item,
        existing: Option<&Metadata>,
        (claim, attributes): (ClaimId, &mut usize),
    ) -> Result<Option<Outcome>> {
        let target = self.ends.target.capabilities();
        let metadata = &item.metadata;
        let is_linked = metadata.kind == Kind::File
            && metadata.links > 1
            && target.hard_links
            && self.ends.source.capabilities().stable_ids;
        if let Some(id) = metadata.id.filter(|_| is_linked) {
            return Ok(Some(Outcome::listed(item, State::Linked(id))));
        }
        let decision = decide(metadata, existing, &self.ends.rules, &self.ends.preserve, target);
        // Attributes of such a file are those of its other names too, which may be other files of the source.
        let is_shared = metadata.kind == Kind::File && existing.is_some_and(|found| found.links > 1);
        let state = match decision {
            Decision::Create | Decision::Replace => return Ok(None),
            Decision::AttributesOnly if is_shared => return Ok(None),
            Decision::Skip if !existing.is_some_and(|found| self.ends.is_outdated(metadata, found)) => {
                State::Equal
            }
            Decision::CompareContent => {
                if metadata.kind != Kind::Symlink || !self.is_same_link(item).await? {
                    return Ok(None);
                }
                State::Equal
            }
            Decision::Skip if is_shared => return Ok(None),
            Decision::Skip | Decision::AttributesOnly => {
                if attributes.is_multiple_of(ATTRIBUTES_EACH) {
                    self.store.check(claim).await?;
                }
                *attributes += 1;
                self.set_attributes(&item.path(), metadata).await?
            }
            Decision::Keep(_) => State::Skipped,
            Decision::Conflict => State::Failed("a node of another kind stands there".to_owned()),
        };
        Ok(Some(Outcome::listed(item, state)))
    }

    async fn is_same_link(&self, item: &Item) -> Result<bool> {
        let path = item.path();
        let Ok(target) = self.ends.target_path(&path) else {
            return Ok(false);
        };
        let source = self.ends.source.read_link(&path).await;
        let target = self.ends.target.read_link(&target).await;
        Ok(matches!((source, target), (Ok(source), Ok(target)) if source == target))
    }

    /// Sets permissions, owner, extended attributes and ACLs of an equal file. Its times are equal already.
    pub(super) async fn set_attributes(&self, path: &RelPath, metadata: &Metadata) -> Result<State> {
        let Ok(to) = self.ends.target_path(path) else {
            return Ok(State::Equal);
        };
        let (source, target) = (&self.ends.source, self.ends.target.capabilities());
        let wants_xattrs = self.ends.preserve.xattrs && target.takes_xattrs();
        let xattrs = match (wants_xattrs, metadata.has_xattrs) {
            (false, _) => None,
            (true, Some(false)) => Some(Vec::new()),
            (true, _) => match source.xattrs(path).await {
                Ok(xattrs) => Some(xattrs),
                Err(error) if is_of_node(error.kind) => return Ok(State::Failed(error.to_string())),
                Err(error) => return Err(Error::source(error)),
            },
        };
        let change = MetadataChange {
            accessed: None,
            modified: None,
            created: None,
            ..self.ends.change_of(metadata, xattrs)
        };
        Ok(match self.ends.target.set_metadata(&to, &change).await {
            Ok(losses) => {
                self.lose(&losses);
                State::Equal
            }
            Err(error) if super::mover::is_of_file(error.kind) => State::Failed(error.to_string()),
            Err(error) if error.kind.is_absence() => State::Failed(error.to_string()),
            Err(error) => return Err(Error::target(error)),
        })
    }
}

#[cfg(test)]
#[path = "slice_tests.rs"]
mod tests;
