//! What stands in a folder of the target under given names.

use std::collections::HashMap;

use ropeway_plan::names::case_key;
use ropeway_vfs::{DirEntry, Error, ErrorKind, Metadata, Name, RelPath, Tree};

use crate::walk::list_ahead::{Begun, CHUNK};

/// Largest number of entries of a folder of a distant target that are kept to be matched with a chunk of
/// the source; some 400 bytes each.
pub(super) const STANDING_MAX: usize = 4 * CHUNK;
/// The same for a folder of the source that has more than a chunk.
pub(super) const STANDING_LARGE_MAX: usize = 20 * CHUNK;

/// What is known of a folder of the target.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Its whole listing. Matched entries are taken out.
    Listed {
        entries: Vec<Option<DirEntry>>,
        by_name: HashMap<Name, usize>,
        /// The entries by [`case_key`]; empty until it is needed.
        by_key: HashMap<Name, Vec<usize>>,
    },
    /// Nothing: names are looked up.
    Unknown,
    /// There is no such folder.
    Absent,
}

impl Standing {
    /// Reads a listing to its end. A folder with more than `entries_max` entries stays unknown.
    ///
    /// # Errors
    /// The folder cannot be listed to its end.
    pub(crate) async fn read((listing, mut chunk): Begun, entries_max: usize) -> Result<Self, Error> {
        let mut listing = listing.into_inner();
        let (mut entries, mut by_name) = (Vec::new(), HashMap::new());
        while !chunk.is_empty() {
            if entries.len() + chunk.len() > entries_max {
                return Ok(Self::Unknown);
            }
            for entry in chunk {
                by_name.insert(entry.name.clone(), entries.len());
                entries.push(Some(entry));
            }
            chunk = listing.next(CHUNK).await?;
        }
        Ok(Self::Listed {
            entries,
            by_name,
            by_key: HashMap::new(),
        })
    }

    /// Returns all that stands there; `None` if that is not known.
    pub(crate) fn entries(&self) -> Option<impl Iterator<Item = &DirEntry> + Send> {
        match self {
            Self::Listed { entries, .. } => Some(entries.iter().flatten()),
            Self::Unknown | Self::Absent => None,
        }
    }

    /// Returns what stands in the folder `dir` of `tree` under these names. `is_own`: nobody else adds to
    /// the folder.
    ///
    /// # Errors
    /// The folder cannot be looked into.
    pub(crate) async fn look_up(
        &mut self,
        tree: &dyn Tree,
        (dir, is_own): (&RelPath, bool),
        names: &[Name],
    ) -> Result<Vec<Result<Option<Metadata>, Error>>, Error> {
        let (entries, by_name, by_key) = match self {
            Self::Listed {
                entries,
                by_name,
                by_key,
            } => (entries, by_name, by_key),
            Self::Unknown => return tree.lookup(dir, names).await,
            Self::Absent => return Ok(names.iter().map(|_| Ok(None)).collect()),
        };
        let mut found: Vec<Result<Option<Metadata>, Error>> = Vec::with_capacity(names.len());
        let mut missing = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let entry = by_name.get(name).and_then(|at| entries[*at].take());
            missing.extend(entry.is_none().then_some(index));
            found.push(match entry.map(|entry| entry.metadata).transpose() {
                // It was removed after the listing.
                Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
                found => found,
            });
        }
        if is_own && entries.iter().all(Option::is_none) {
            // Nothing is left that could be meant. But a short name stands for another one, and which names
            // beyond ASCII are one name, only the server knows.
            missing.retain(|index| {
                let name = names[*index].as_bytes();
                name.contains(&b'~') || !name.is_ascii()
            });
        }
        if !tree.capabilities().case_sensitive && !missing.is_empty() {
            // A name may be listed in another case or spelling than the one that finds it.
            let asked: Vec<Name> = missing.iter().map(|index| names[*index].clone()).collect();
            let answers = tree.lookup(dir, &asked).await?;
            for (index, answer) in missing.into_iter().zip(answers) {
                if let Ok(Some(metadata)) = &answer {
                    take_spelled(entries, by_key, &names[index], metadata);
                }
                found[index] = answer;
            }
        }
        Ok(found)
    }
}

/// Takes out the entry of a node that was found under a name in another case.
fn take_spelled(
    entries: &mut [Option<DirEntry>],
    by_key: &mut HashMap<Name, Vec<usize>>,
    name: &Name,
    found: &Metadata,
) {
    if by_key.is_empty() {
        for (index, entry) in entries.iter().enumerate() {
            if let Some(entry) = entry {
                by_key.entry(case_key(&entry.name)).or_default().push(index);
            }
        }
    }
    let may_be = |entry: &DirEntry| {
        let ids = (
            entry.metadata.as_ref().ok().and_then(|listed| listed.id),
            found.id,
        );
        !matches!(ids, (Some(listed), Some(id)) if listed != id)
    };
    let same = by_key.get(&case_key(name)).into_iter().flatten();
    let index = same
        .copied()
        .find(|index| entries[*index].as_ref().is_some_and(may_be));
    if let Some(index) = index {
        entries[index] = None;
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use ropeway_vfs::Capabilities;
    use ropeway_vfs::memory::MemoryTree;

    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).expect("a plain name")
    }

    /// Of names that a listing did not show, only those are asked for that may be another name of what it
    /// showed.
    #[tokio::test]
    async fn only_names_that_may_be_meant_otherwise_are_asked_for() {
        let can = Capabilities {
            case_sensitive: false,
            ..MemoryTree::new().capabilities().clone()
        };
        let tree = MemoryTree::new().with_capabilities(can);
        for at in ["a", "b", "C"] {
            tree.insert_file(&RelPath::root().join(&name(at)), b"")
                .expect("a new file");
        }
        let mut listing = tree.list(&RelPath::root()).await.expect("the root");
        let chunk = listing.next(CHUNK).await.expect("entries");
        for at in ["late", "late~1", "σ"] {
            tree.insert_file(&RelPath::root().join(&name(at)), b"")
                .expect("a new file");
        }
        let begun = (Mutex::new(listing), chunk);
        let mut standing = Standing::read(begun, CHUNK).await.expect("a listing");
        let mut is_there = async |names: &[&str], is_own: bool| -> Vec<bool> {
            let names: Vec<Name> = names.iter().map(|text| name(text)).collect();
            let found = standing.look_up(&tree, (&RelPath::root(), is_own), &names).await;
            let found = found.expect("the folder").into_iter();
            found
                .map(|found| found.expect("its metadata").is_some())
                .collect()
        };
        let all = [true, true];
        assert_eq!(is_there(&["a", "late"], true).await, all, "`b` could be meant");
        assert_eq!(is_there(&["b", "c"], true).await, all);
        let names = ["late", "late~1", "σ", "none"];
        assert_eq!(is_there(&names, true).await, [false, true, true, false]);
        assert_eq!(is_there(&names, false).await, [true, true, true, false]);
    }
}
