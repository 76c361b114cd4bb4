//! Positions in an open folder.
//!
//! A store lists a folder once, from its beginning. The kernel asks for entries by position, usually
//! in order. It goes back to entries of the last reply that did not fit into a program's buffer, so
//! those are kept. Another step back lists the folder again, which shows it as it is by then.

use std::collections::VecDeque;

use ropeway_vfs::store::{Entries, Node, NodeStat};
use ropeway_vfs::{Name, Result};

/// The entries of an open folder.
#[derive(Default)]
pub(crate) struct Listing {
    entries: Option<Box<dyn Entries>>,
    /// Position of the first kept entry.
    first: u64,
    kept: VecDeque<(Name, NodeStat)>,
}

impl Listing {
    /// Begins a reply at a position: earlier entries are not needed any more, except those since
    /// the last reply began.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(crate) fn seek(&mut self, folder: &dyn Node, position: u64) -> Result<()> {
        if position == 0 || position < self.first || self.entries.is_none() {
            self.entries = Some(folder.entries()?);
            self.first = 0;
            self.kept.clear();
        }
        while self.first < position {
            if self.kept.is_empty() && !self.read()? {
                self.first = position;
                break;
            }
            self.kept.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// Returns the entry at a position that is not before the one of the last [`Self::seek`].
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn at(&mut self, position: u64) -> Result<Option<&(Name, NodeStat)>> {
        let index = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX);
        while self.kept.len() <= index {
            if !self.read()? {
                return Ok(None);
            }
        }
        Ok(self.kept.get(index))
    }

    fn read(&mut self) -> Result<bool> {
        let Some(entries) = &mut self.entries else {
            return Ok(false);
        };
        let Some(entry) = entries.next()? else {
            return Ok(false);
        };
        self.kept.push_back(entry);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_local::{LocalStore, StoreOptions};
    use ropeway_vfs::RelPath;
    use ropeway_vfs::store::{Access, Store};

    /// Any order of positions shows each entry once, as one pass does.
    #[test]
    fn positions_are_stable() {
        let folder = tempfile::tempdir().unwrap();
        for index in 0..500 {
            std::fs::write(folder.path().join(format!("{index}")), b"").unwrap();
        }
        let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
        let node = store.open_itself(&RelPath::root(), Access::Read).unwrap().node;
        let all = |listing: &mut Listing| {
            listing.seek(&*node, 0).unwrap();
            let mut names = Vec::new();
            while let Some((name, _)) = listing.at(names.len() as u64).unwrap() {
                names.push(name.clone());
            }
            names
        };
        let names = all(&mut Listing::default());
        assert_eq!(names.len(), 500);
        let mut listing = Listing::default();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let start = random.usize(0..=520);
            listing.seek(&*node, start as u64).unwrap();
            assert!(listing.kept.len() <= 500);
            for position in start..(start + random.usize(0..40)) {
                let found = listing.at(position as u64).unwrap().map(|(name, _)| name.clone());
                assert_eq!(found.as_ref(), names.get(position));
            }
        }
        assert_eq!(all(&mut listing), names);
    }
}
