//! The names of one folder by their folded forms, in little memory.
//!
//! One buffer holds all names, each after its length. A hash table holds the position of each name with 32
//! bits of the hash of its folded form: 9 bytes for each slot, so a name of 20 bytes takes 32 to 45 in all.
//! A removed name leaves a gap. When half of the buffer is gaps, it is compacted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::winmeta::fold;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use ropeway_vfs::Name;

/// Bytes of the length before a name.
const LENGTH: usize = 2;
/// A buffer with fewer bytes of gaps is not compacted (a guess).
const GAPS_MIN: usize = 4096;

/// Counter of the bytes of many tables together.
#[derive(Clone, Default)]
pub(super) struct Spent(Arc<AtomicUsize>);

impl Spent {
    /// Returns the present count.
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces `before` bytes by `now`.
    pub(super) fn change(&self, before: usize, now: usize) {
        if now >= before {
            self.0.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.0.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

/// The names of one folder.
pub(super) struct Table {
    places: HashTable<Place>,
    text: Vec<u8>,
    /// Bytes of `text` that belong to removed names.
    gaps: usize,
    spent: Spent,
    /// This table's share of `spent`.
    own: usize,
}

/// Position of a name in the buffer.
#[derive(Clone, Copy)]
struct Place {
    hash: u32,
    at: u32,
}

impl Table {
    pub(super) fn new(spent: Spent) -> Self {
        Self {
            places: HashTable::new(),
            text: Vec::new(),
            gaps: 0,
            spent,
            own: 0,
        }
    }

    /// Adds a name, whose folded form has this hash, unless it is there.
    pub(super) fn insert(&mut self, hash: u64, name: &[u8]) {
        let (Ok(length), Ok(at)) = (u16::try_from(name.len()), u32::try_from(self.text.len())) else {
            // No volume has such long names, and no budget is that large.
            return;
        };
        let hash = short(hash);
        let text = &self.text;
        let same = |place: &Place| place.hash == hash && name_at(text, *place) == name;
        let Entry::Vacant(free) = self.places.entry(spread(hash), same, rehash) else {
            return;
        };
        free.insert(Place { hash, at });
        let needed = LENGTH + name.len();
        if self.text.capacity() - self.text.len() < needed {
            // Grow by a quarter: doubling would waste a third of the budget.
            self.text
                .reserve_exact(needed.max(self.text.capacity() / 4).max(64));
        }
        self.text.extend_from_slice(&length.to_le_bytes());
        self.text.extend_from_slice(name);
        self.account();
    }

    /// Removes a name if it is there.
    pub(super) fn remove(&mut self, hash: u64, name: &[u8]) {
        let hash = short(hash);
        let text = &self.text;
        let same = |place: &Place| place.hash == hash && name_at(text, *place) == name;
        let Ok(found) = self.places.find_entry(spread(hash), same) else {
            return;
        };
        found.remove();
        self.gaps += LENGTH + name.len();
        if self.gaps >= GAPS_MIN && self.gaps > self.text.len() / 2 {
            self.close_gaps();
        }
    }

    /// Returns the first name in order that has this folded form.
    pub(super) fn find(&self, hash: u64, folded: &[u8]) -> Option<Name> {
        let hash = short(hash);
        self.places
            .iter_hash(spread(hash))
            .filter(|place| place.hash == hash)
            .map(|place| name_at(&self.text, *place))
            .filter(|name| fold::fold(name) == folded)
            .min()
            .and_then(Name::new)
    }

    fn close_gaps(&mut self) {
        let mut text = Vec::with_capacity(self.text.len() - self.gaps);
        for place in &mut self.places {
            let name = name_at(&self.text, *place);
            // The length fitted before, and positions in a shorter buffer are smaller.
            let (Ok(length), Ok(at)) = (u16::try_from(name.len()), u32::try_from(text.len())) else {
                continue;
            };
            text.extend_from_slice(&length.to_le_bytes());
            text.extend_from_slice(name);
            place.at = at;
        }
        self.text = text;
        self.gaps = 0;
        self.places.shrink_to(self.places.len() * 2, rehash);
        self.account();
    }

    fn account(&mut self) {
        let now = self.text.capacity() + self.places.allocation_size();
        if now != self.own {
            self.spent.change(self.own, now);
            self.own = now;
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.spent.change(self.own, 0);
    }
}

fn name_at(text: &[u8], place: Place) -> &[u8] {
    let text = &text[place.at as usize..];
    let (length, text) = text.split_at(LENGTH);
    &text[..usize::from(u16::from_le_bytes([length[0], length[1]]))]
}

/// Returns the part of a hash that the table stores.
fn short(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Spreads a stored hash over the 64 bits that the table wants: Fibonacci hashing.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn rehash(place: &Place) -> u64 {
    spread(place.hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, RandomState};

    use proptest::prelude::*;

    use super::*;
    use crate::store::StoreOptions;

    fn hash(hasher: &RandomState, name: &[u8]) -> u64 {
        hasher.hash_one(fold::fold(name).as_slice())
    }

    #[test]
    fn millions_of_names_fit_into_the_budget() {
        const NAMES: usize = 1_200_000;
        let (hasher, spent) = (RandomState::new(), Spent::default());
        let mut table = Table::new(spent.clone());
        for n in 0..NAMES {
            let name = format!("Picture {n:07}.jpeg");
            table.insert(hash(&hasher, name.as_bytes()), name.as_bytes());
        }
        assert_eq!(
            table.find(hash(&hasher, b"PICTURE 0000007.JPEG"), b"PICTURE 0000007.JPEG"),
            Name::new(b"Picture 0000007.jpeg")
        );
        assert!(spent.bytes() / NAMES <= 48, "{}", spent.bytes() / NAMES);
        assert!(spent.bytes() * 2 < StoreOptions::default().indexed_bytes_max);
        drop(table);
        assert_eq!(spent.bytes(), 0);
    }

    #[test]
    fn names_that_come_and_go_take_no_more_and_more() {
        let (hasher, spent) = (RandomState::new(), Spent::default());
        let mut table = Table::new(spent.clone());
        for n in 0..100_000 {
            let name = format!("temporary {n}");
            let hash = hash(&hasher, name.as_bytes());
            table.insert(hash, name.as_bytes());
            table.remove(hash, name.as_bytes());
            assert_eq!(table.find(hash, &fold::fold(name.as_bytes())), None);
        }
        assert!(spent.bytes() < 32 * 1024, "{}", spent.bytes());
    }

    proptest! {
        /// Also with colliding hashes.
        #[test]
        fn it_is_a_set_of_names(
            steps in proptest::collection::vec((any::<bool>(), "[aAbBäÄ]{1,3}"), 0..200),
            one_hash in any::<bool>(),
        ) {
            let hasher = RandomState::new();
            let hash = |name: &[u8]| if one_hash { 0 } else { hash(&hasher, name) };
            let (mut table, mut model) = (Table::new(Spent::default()), BTreeSet::new());
            for (comes, name) in steps {
                let bytes = name.as_bytes();
                if comes {
                    table.insert(hash(bytes), bytes);
                    model.insert(name.clone());
                } else {
                    table.remove(hash(bytes), bytes);
                    model.remove(&name);
                }
                let folded = fold::fold(bytes);
                let first = model.iter().find(|other| fold::equal(other.as_bytes(), bytes));
                prop_assert_eq!(
                    table.find(hash(bytes), &folded),
                    first.and_then(|name| Name::new(name.as_bytes()))
                );
                if model.len() % 5 == 0 {
                    table.close_gaps();
                }
            }
        }
    }
}
