//! Lists one folder of the source, and makes it on the target.

use std::collections::{HashMap, HashSet};

use ropeway_copy::is_temporary;
use ropeway_plan::names::Collision;
use ropeway_vfs::{DirEntry, EndError, ErrorKind, Kind, Metadata, Name, RelPath, Timestamp};

use super::delete::Known;
use super::{Crew, is_of_node};
use crate::claim::ClaimId;
use crate::cut::{Collected, Collector, Entry};
use crate::error::{Error, Result};
use crate::files::CATALOG_PREFIX;
use crate::task::{NameRange, Scope};
use crate::worker::Worker;

/// Entries that are asked for at once.
const CHUNK: usize = 1_024;

/// Times the usual number of entries that a listing may have when an earlier worker gave away
/// something below it: such a folder is not cut again. A guess, for folders that grow meanwhile.
const INHERITED_TIMES: usize = 4;

/// Whether an error of a folder says nothing about others. A volume mounted below may be read-only; if the target
/// itself is, the catalog is too.
fn is_of_folder(kind: ErrorKind, path: &RelPath) -> bool {
    is_of_node(kind) || (kind == ErrorKind::ReadOnly && !path.is_root())
}

impl Crew {
    /// Carries out the step of a listing.
    pub(super) async fn list(
        &self,
        worker: &mut Worker,
        claim: ClaimId,
        (path, scope): (RelPath, Scope),
    ) -> Result<()> {
        match self.list_folder(worker, claim, &path, &scope).await {
            Ok(collected) => worker.listed(collected),
            // Also one that is not there: the source may be away for a moment.
            Err(Error::End(EndError { error, .. })) if is_of_folder(error.kind, &path) => {
                worker.unlisted(path, error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn list_folder(
        &self,
        worker: &mut Worker,
        claim: ClaimId,
        path: &RelPath,
        scope: &Scope,
    ) -> Result<Collected> {
        let source = &self.ends.source;
        if path.is_root() && scope == &Scope::all() {
            let metadata = source.metadata(path).await.map_err(Error::source)?;
            worker.note_folder(path.clone(), &metadata);
        }
        let (target, existing) = self.make_own_folder(path).await?;
        let collected = match scope {
            Scope::Range(range) => {
                let may_have_more = existing.is_some() && self.deletes();
                let mut known = may_have_more.then(|| Known::new(range.clone()));
                let collected = self.collect(worker, path, range, known.as_mut()).await?;
                // A folder that is cut is listed again by each of its tasks.
                if let (Collected::Entries(_), Some(known)) = (&collected, &known) {
                    self.note_extra(worker, claim, (path, &target), known).await?;
                }
                collected
            }
            Scope::Names(names) => {
                let first = self.first_of_their_keys(path, names).await?;
                let found = source.lookup(path, names).await.map_err(Error::source)?;
                let mut entries = Vec::new();
                for (name, found) in names.iter().zip(found) {
                    match found {
                        Ok(Some(_)) if first.as_ref().is_some_and(|first| !first.contains(name)) => {
                            worker.note_failed(path.join(name), Collision::Case.to_string());
                        }
                        Ok(Some(metadata)) => entries.push(Entry {
                            key: self.ends.key_of(name),
                            name: name.clone(),
                            metadata,
                        }),
                        Ok(None) => {}
                        Err(error) if is_of_node(error.kind) => {
                            worker.note_failed(path.join(name), error.to_string());
                        }
                        Err(error) => return Err(Error::source(error)),
                    }
                }
                Collected::Entries(entries)
            }
        };
        Ok(match collected {
            // Names by the ten thousand that are one on the target.
            Collected::Ranges(ranges) if ranges.len() < 2 => {
                let kind = ErrorKind::NameRefused;
                return Err(Error::source(ropeway_vfs::Error::new(
                    ropeway_vfs::Op::List,
                    path,
                    kind,
                )));
            }
            Collected::Entries(entries) => Collected::Entries(self.without_collisions(worker, path, entries)),
            ranges => ranges,
        })
    }

    /// Makes the folder of the target. Returns its path, and what stood there before.
    async fn make_own_folder(&self, path: &RelPath) -> Result<(RelPath, Option<Metadata>)> {
        let refused = |reason: String| {
            let kind = ErrorKind::NameRefused;
            let mut refused = ropeway_vfs::Error::new(ropeway_vfs::Op::MakeDir, path, kind);
            refused.source = Some(std::io::Error::other(reason));
            Error::target(refused)
        };
        let target = self.ends.target_path(path);
        let target = target.map_err(|error| refused(error.to_string()))?;
        let existing = match target.is_root() {
            true => self.ends.target.metadata(&target).await.map(Some),
            false => self.ends.make_folder(&target).await,
        };
        let existing = existing.map_err(Error::target)?;
        if let Some(found) = &existing
            && self.ends.is_source(&target, found).await?
        {
            return Err(Error::Nested);
        }
        if existing.is_some() && !self.is_own_folder(&target).await? {
            return Err(refused(Collision::Case.to_string()));
        }
        Ok((target, existing))
    }

    async fn collect(
        &self,
        worker: &mut Worker,
        path: &RelPath,
        range: &NameRange,
        mut known: Option<&mut Known>,
    ) -> Result<Collected> {
        let times = if worker.has_inherited() {
            INHERITED_TIMES
        } else {
            1
        };
        let max = self.options.walk.entries_max * times;
        let random = fastrand::Rng::with_seed(self.seed);
        let mut collector = Collector::new(range.clone(), max, random);
        let mut listing = self.ends.source.list(path).await.map_err(Error::source)?;
        loop {
            let entries = listing.next(CHUNK).await.map_err(Error::source)?;
            if entries.is_empty() {
                return Ok(collector.finish());
            }
            for DirEntry { name, metadata } in entries {
                // A file of such a name is none of a catalog, and is copied.
                let is_folder = metadata.as_ref().is_ok_and(Metadata::is_dir);
                let is_catalog = is_folder && name.as_bytes().starts_with(CATALOG_PREFIX.as_bytes());
                if is_catalog {
                    self.refuse_own_catalog(path, &name).await?;
                }
                let key = self.ends.key_of(&name);
                if let Some(known) = &mut known
                    && collector.fits()
                {
                    self.note_known(known, &name, &key);
                }
                if is_catalog || !range.contains(&key) {
                    continue;
                }
                match metadata {
                    // Whatever it is, it is counted as skipped with its slice: by the one task that comes to it.
                    _ if is_temporary(&name) => {
                        let metadata = Metadata::bare(Kind::File, 0, Timestamp(0));
                        collector.push(Entry { key, name, metadata });
                    }
                    Ok(metadata) => collector.push(Entry { key, name, metadata }),
                    // Also one that is not there any more: the source may be away for a moment.
                    Err(error) if is_of_node(error.kind) => {
                        worker.note_failed(path.join(&name), error.to_string());
                    }
                    Err(error) => return Err(Error::source(error)),
                }
            }
        }
    }

    /// Stops if the catalog of this job lies in the source: by another path, the target is in it too,
    /// and would be copied into itself.
    async fn refuse_own_catalog(&self, path: &RelPath, name: &Name) -> Result<()> {
        let Some(run) = self.store.root().file_name() else {
            return Ok(());
        };
        match self.ends.source.metadata(&path.join(name).join(&run)).await {
            // Its name is random.
            Ok(_) if run.as_bytes().starts_with(b"run.") => Err(Error::Nested),
            _ => Ok(()),
        }
    }

    /// Leaves out names that the target takes for others of the same folder: all but the first. The
    /// others are in the same range, since ranges are made of keys.
    fn without_collisions(&self, worker: &mut Worker, path: &RelPath, entries: Vec<Entry>) -> Vec<Entry> {
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        let mut last: Option<Name> = None;
        for entry in entries {
            // It is not copied, so it is in nobody's way.
            if is_temporary(&entry.name) {
                kept.push(entry);
            } else if last.as_ref() == Some(&entry.key) {
                worker.note_failed(path.join(&entry.name), Collision::Case.to_string());
            } else {
                last = Some(entry.key.clone());
                kept.push(entry);
            }
        }
        kept
    }

    /// Returns those of some names of a folder that the target takes for no earlier one of that
    /// folder; `None`: all of them. The others may not be among `names`.
    async fn first_of_their_keys(&self, path: &RelPath, names: &[Name]) -> Result<Option<HashSet<Name>>> {
        if self.ends.target.capabilities().case_sensitive {
            return Ok(None);
        }
        let mut first: HashMap<Name, Name> = (names.iter())
            .map(|name| (self.ends.key_of(name), name.clone()))
            .collect();
        let mut listing = self.ends.source.list(path).await.map_err(Error::source)?;
        loop {
            let entries = listing.next(CHUNK).await.map_err(Error::source)?;
            if entries.is_empty() {
                return Ok(Some(first.into_values().collect()));
            }
            for DirEntry { name, .. } in entries {
                if let Some(first) = first.get_mut(&self.ends.key_of(&name)) {
                    *first = name.min(first.clone());
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
