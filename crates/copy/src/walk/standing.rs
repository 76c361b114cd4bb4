//! What stands in a folder of the target under given names.

use std::collections::HashMap;

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
        Ok(Self::Listed { entries, by_name })
    }

    /// Returns what stands in the folder `dir` of `tree` under these names.
    ///
    /// # Errors
    /// The folder cannot be looked into.
    pub(crate) async fn look_up(
        &mut self,
        tree: &dyn Tree,
        dir: &RelPath,
        names: &[Name],
    ) -> Result<Vec<Result<Option<Metadata>, Error>>, Error> {
        let (entries, by_name) = match self {
            Self::Listed { entries, by_name } => (entries, by_name),
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
        if !tree.capabilities().case_sensitive && !missing.is_empty() {
            // A name may be listed in another case or spelling than the one that finds it.
            let asked: Vec<Name> = missing.iter().map(|index| names[*index].clone()).collect();
            let answers = tree.lookup(dir, &asked).await?;
            for (index, answer) in missing.into_iter().zip(answers) {
                found[index] = answer;
            }
        }
        Ok(found)
    }
}
