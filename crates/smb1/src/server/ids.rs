//! Tables whose keys are the 16-bit numbers of the protocol.

use std::collections::HashMap;

use crate::header::Header;

/// A table with a limit. Its numbers are never 0 nor 0xFFFF, and are used again as late as possible.
#[derive(Clone, Debug)]
pub struct Ids<T> {
    entries: HashMap<u16, T>,
    last: u16,
    max: usize,
}

impl<T> Ids<T> {
    /// Creates a table of at most `max` entries; more than 65,000 never fit.
    pub fn new(max: usize) -> Self {
        Self {
            entries: HashMap::new(),
            last: 0,
            max: max.min(65_000),
        }
    }

    /// Adds an entry and returns its number; `None` if the table is full.
    pub fn add(&mut self, entry: T) -> Option<u16> {
        if self.entries.len() >= self.max {
            return None;
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let is_free = !self.entries.contains_key(&self.last);
            if self.last != 0 && self.last != Header::NONE && is_free {
                self.entries.insert(self.last, entry);
                return Some(self.last);
            }
        }
    }

    /// Puts an entry back that was removed. Returns it if its number has been taken meanwhile.
    pub fn put(&mut self, id: u16, entry: T) -> Option<T> {
        if self.entries.contains_key(&id) || self.entries.len() >= self.max {
            return Some(entry);
        }
        self.entries.insert(id, entry);
        None
    }

    /// Returns an entry.
    pub fn get(&self, id: u16) -> Option<&T> {
        self.entries.get(&id)
    }

    /// Returns an entry for modification.
    pub fn get_mut(&mut self, id: u16) -> Option<&mut T> {
        self.entries.get_mut(&id)
    }

    /// Removes an entry.
    pub fn remove(&mut self, id: u16) -> Option<T> {
        self.entries.remove(&id)
    }

    /// Removes and returns the entries that match.
    pub fn take_if(&mut self, matches: impl Fn(&T) -> bool) -> Vec<T> {
        let found: Vec<u16> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches(entry))
            .map(|(id, _)| *id)
            .collect();
        found
            .into_iter()
            .filter_map(|id| self.entries.remove(&id))
            .collect()
    }

    /// Returns all entries with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_bounded() {
        let mut ids = Ids::new(3);
        let first = ids.add('a').unwrap();
        let (second, third) = (ids.add('b').unwrap(), ids.add('c').unwrap());
        assert_eq!(ids.add('d'), None);
        assert_eq!(ids.remove(second), Some('b'));
        let fourth = ids.add('d').unwrap();
        assert!(![first, second, third].contains(&fourth));
        assert_eq!(ids.take_if(|entry| *entry != 'a').len(), 2);
        assert_eq!(ids.get(first), Some(&'a'));
        // All the way round, past 0 and 0xFFFF.
        for _ in 0..70_000 {
            let id = ids.add('x').unwrap();
            assert!(id != 0 && id != 0xFFFF && id != first);
            ids.remove(id);
        }
        assert_eq!(ids.len(), 1);
    }
}
