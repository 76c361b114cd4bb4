//! What is known of the share's names: attributes, names that do not exist, listings. Pure.
//!
//! An entry is valid as long as the server grants a lease on its folder, or, without a lease, for a
//! time-out. A change through the store removes what it touches at once. A reply to a question that was asked
//! before such a change is not kept, since it may be older than the change.
//!
//! Servers do not distinguish upper and lower case as a rule. So a change of `Name` also removes
//! what is known of `NAME`, and the names of one spelling are found under that spelling only.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Name, RelPath};

use crate::caching::LeaseStatus;

/// Changes remembered to judge replies. A guess: more than are made during one round trip; with
/// more, replies are not kept.
const CHANGES_MAX: usize = 1024;

/// A listing: every entry of a folder.
pub(super) type Listed = Arc<Vec<(Name, NodeStat)>>;

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A node has it.
    There(NodeStat),
    /// No node has it.
    Missing,
}

/// A lease on a folder, which the server may break at any time.
pub(super) type FolderLease = Arc<LeaseStatus>;

/// Until when an entry is valid.
#[derive(Clone, Debug)]
pub(super) struct Validity {
    /// The end of the time-out.
    pub(super) until: Duration,
    /// The lease that decides instead, if there is one.
    pub(super) lease: Option<FolderLease>,
}

impl Validity {
    /// Whether an entry is valid. A broken lease says that it may be old, whatever its age.
    fn holds(&self, now: Duration) -> bool {
        match &self.lease {
            Some(lease) => lease.may_cache_reads(),
            None => now < self.until,
        }
    }
}

/// The point in time at which the server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked(u64);

/// The cache.
#[derive(Debug)]
pub(super) struct NodeCache {
    /// By folded path; the spellings of one path share a place.
    places: BTreeMap<Vec<u8>, Place>,
    /// Entries and names of listings.
    count: usize,
    count_max: usize,
    /// Folded paths in the order in which their places were made.
    order: VecDeque<Vec<u8>>,
    /// The number of changes so far, and the last of them.
    changes: u64,
    recent: VecDeque<(u64, Vec<u8>)>,
}

#[derive(Debug, Default)]
struct Place {
    nodes: Vec<(RelPath, Known, Validity)>,
    listing: Option<Listing>,
}

#[derive(Debug)]
struct Listing {
    dir: RelPath,
    entries: Listed,
    /// The folded names, to tell which do not exist.
    names: HashSet<Vec<u8>>,
    validity: Validity,
}

impl Place {
    fn count(&self) -> usize {
        self.nodes.len()
            + self
                .listing
                .as_ref()
                .map_or(0, |listing| 1 + listing.entries.len())
    }
}

impl NodeCache {
    /// Makes an empty cache of at most `count_max` names.
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            places: BTreeMap::new(),
            count: 0,
            count_max,
            order: VecDeque::new(),
            changes: 0,
            recent: VecDeque::new(),
        }
    }

    /// Returns what is known of a path. A name that a valid listing of its folder lacks is missing,
    /// if no server could find it under another spelling.
    pub(super) fn get(&self, path: &RelPath, now: Duration) -> Option<Known> {
        let nodes = self
            .places
            .get(&folded(path.as_bytes()))
            .map(|place| &place.nodes);
        let mut nodes = nodes.into_iter().flatten();
        if let Some((_, known, _)) = nodes.find(|(at, _, validity)| at == path && validity.holds(now)) {
            return Some(*known);
        }
        let (dir, name) = (path.parent()?, path.file_name()?);
        let listing = self.places.get(&folded(dir.as_bytes()))?.listing.as_ref()?;
        let is_plain = name.as_bytes().is_ascii() && !name.as_bytes().contains(&b'~');
        let decides = is_plain && listing.dir == dir && listing.validity.holds(now);
        (decides && !listing.names.contains(&folded(name.as_bytes()))).then_some(Known::Missing)
    }

    /// Returns a valid listing of a folder.
    pub(super) fn listing(&self, dir: &RelPath, now: Duration) -> Option<Listed> {
        let listing = self.places.get(&folded(dir.as_bytes()))?.listing.as_ref()?;
        let holds = listing.dir == *dir && listing.validity.holds(now);
        holds.then(|| Arc::clone(&listing.entries))
    }

    /// Begins a question to the server.
    pub(super) fn ask(&self) -> Asked {
        Asked(self.changes)
    }

    /// Keeps the reply to a question.
    pub(super) fn put(&mut self, asked: Asked, path: &RelPath, known: Known, validity: Validity) {
        if !self.is_changed_since(asked, &folded(path.as_bytes())) {
            self.insert(path, known, validity);
            self.shrink();
        }
    }

    /// Keeps a listing, and the attributes of its entries.
    pub(super) fn put_listing(&mut self, asked: Asked, dir: &RelPath, entries: &Listed, validity: &Validity) {
        let key = folded(dir.as_bytes());
        if entries.len() > self.count_max / 4 || self.is_changed_since(asked, &key) {
            return;
        }
        for (name, stat) in entries.iter() {
            self.insert(&dir.join(name), Known::There(*stat), validity.clone());
        }
        let listing = Listing {
            dir: dir.clone(),
            entries: Arc::clone(entries),
            names: entries.iter().map(|(name, _)| folded(name.as_bytes())).collect(),
            validity: validity.clone(),
        };
        self.count += 1 + entries.len();
        let place = self.place(key);
        let before = place.listing.replace(listing);
        self.count -= before.map_or(0, |listing| 1 + listing.entries.len());
        self.shrink();
    }

    /// Removes what a change of a node makes untrue: its attributes, and the listing and the
    /// attributes of its folder.
    pub(super) fn changed(&mut self, path: &RelPath) {
        let key = folded(path.as_bytes());
        self.remove(&key);
        if let Some(dir) = path.parent() {
            self.remove(&folded(dir.as_bytes()));
        }
        self.note(key);
    }

    /// Removes the listing of a folder and what is known of its entries, but nothing beneath those.
    pub(super) fn changed_entries(&mut self, dir: &RelPath) {
        let key = folded(dir.as_bytes());
        let depth = |at: &[u8]| at.iter().filter(|byte| **byte == b'/').count();
        let own_depth = if key.is_empty() { 0 } else { depth(&key) + 1 };
        let range = self.places.range(key.clone()..);
        let entries: Vec<Vec<u8>> = range
            .map(|(at, _)| at.clone())
            .take_while(|at| at.starts_with(&key))
            .filter(|at| is_at_or_below(at, &key) && *at != key && depth(at) == own_depth)
            .collect();
        for at in entries {
            self.remove(&at);
        }
        self.changed(dir);
    }

    /// Removes everything about a node and all beneath it.
    pub(super) fn changed_below(&mut self, path: &RelPath) {
        let key = folded(path.as_bytes());
        let mut prefix = key.clone();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let range = self.places.range(prefix.clone()..);
        let below: Vec<Vec<u8>> = range
            .map(|(at, _)| at.clone())
            .take_while(|at| at.starts_with(&prefix))
            .collect();
        for at in below {
            self.remove(&at);
        }
        self.changed(path);
    }

    /// Number of names.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn insert(&mut self, path: &RelPath, known: Known, validity: Validity) {
        let place = self.place(folded(path.as_bytes()));
        if let Some(entry) = place.nodes.iter_mut().find(|(at, ..)| at == path) {
            (entry.1, entry.2) = (known, validity);
            return;
        }
        place.nodes.push((path.clone(), known, validity));
        self.count += 1;
    }

    fn place(&mut self, key: Vec<u8>) -> &mut Place {
        if !self.places.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.places.entry(key).or_default()
    }

    fn remove(&mut self, key: &[u8]) {
        // Its key stays in the order until it is met there.
        let place = self.places.remove(key);
        self.count -= place.map_or(0, |place| place.count());
    }

    /// Removes the oldest places until the cache fits.
    fn shrink(&mut self) {
        let too_many =
            |this: &Self| this.count > this.count_max || this.order.len() > 2 * this.count_max + 64;
        while too_many(self)
            && let Some(key) = self.order.pop_front()
        {
            self.remove(&key);
        }
    }

    fn note(&mut self, key: Vec<u8>) {
        self.changes += 1;
        self.recent.push_back((self.changes, key));
        if self.recent.len() > CHANGES_MAX {
            self.recent.pop_front();
        }
    }

    /// Whether a change since a question may have touched a path: the path itself, one above it, or
    /// one in or beneath it.
    fn is_changed_since(&self, asked: Asked, key: &[u8]) -> bool {
        let since = self.changes - asked.0;
        if since > self.recent.len() as u64 {
            return true;
        }
        let recent = self.recent.iter().rev();
        let mut recent = recent.take_while(|(number, _)| *number > asked.0);
        recent.any(|(_, changed)| is_at_or_below(changed, key) || is_at_or_below(key, changed))
    }
}

/// Whether `path` is `top` or beneath it.
fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || top.is_empty() || rest[0] == b'/')
}

/// Returns a path or name without regard to case. Spellings that a server distinguishes may be the
/// same here: then more is removed than need be.
fn folded(bytes: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_uppercase().into_bytes(),
        Err(_) => bytes.to_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::{FileId, Kind, Owner, Timestamp};

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn stat(size: u64) -> NodeStat {
        NodeStat {
            kind: Kind::File,
            size,
            allocated: size,
            links: 1,
            id: FileId {
                volume: 1,
                index: size,
            },
            mode: 0o644,
            owner: Owner { user: 0, group: 0 },
            created: Timestamp::default(),
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            dos_attributes: None,
        }
    }

    fn until(seconds: u64) -> Validity {
        Validity {
            until: Duration::from_secs(seconds),
            lease: None,
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn list(cache: &mut NodeCache, dir: &str, names: &[&str], validity: &Validity) {
        let entry = |name: &&str| (Name::new(name.as_bytes()).unwrap(), stat(name.len() as u64));
        let entries = Arc::new(names.iter().map(entry).collect());
        let asked = cache.ask();
        cache.put_listing(asked, &path(dir), &entries, validity);
    }

    #[test]
    fn entries_last_for_their_time_or_their_lease() {
        let mut cache = NodeCache::new(100);
        let asked = cache.ask();
        cache.put(asked, &path("a"), Known::There(stat(1)), until(5));
        assert_eq!(cache.get(&path("a"), at(4)), Some(Known::There(stat(1))));
        assert_eq!(
            cache.get(&path("A"), at(4)),
            None,
            "another spelling is asked for"
        );
        assert_eq!(cache.get(&path("a"), at(5)), None);
        let held = LeaseStatus::held();
        let leased = Validity {
            until: at(1),
            lease: Some(Arc::clone(&held)),
        };
        list(&mut cache, "d", &["x", "yy"], &leased);
        assert_eq!(cache.listing(&path("d"), at(1000)).unwrap().len(), 2);
        assert_eq!(cache.get(&path("d/yy"), at(1000)), Some(Known::There(stat(2))));
        assert_eq!(cache.get(&path("d/no"), at(1000)), Some(Known::Missing));
        assert_eq!(
            cache.get(&path("d/X"), at(1000)),
            None,
            "it exists in another case"
        );
        assert_eq!(cache.get(&path("d/no~1"), at(1000)), None, "a short name");
        assert_eq!(cache.get(&path("d/né"), at(1000)), None);
        held.break_all();
        assert_eq!(cache.listing(&path("d"), at(1000)), None);
        assert_eq!(cache.get(&path("d/no"), at(1000)), None);
    }

    #[test]
    fn own_changes_are_seen_at_once() {
        let mut cache = NodeCache::new(100);
        list(&mut cache, "", &["d", "e"], &until(9));
        list(&mut cache, "d", &["f", "g"], &until(9));
        list(&mut cache, "d/f", &["h"], &until(9));
        cache.changed(&path("D/F"));
        assert_eq!(cache.get(&path("d/f"), at(1)), None, "whatever the spelling");
        assert_eq!(cache.listing(&path("d"), at(1)), None);
        assert!(cache.get(&path("d/g"), at(1)).is_some());
        assert!(cache.get(&path("d/f/h"), at(1)).is_some());
        list(&mut cache, "d", &["f", "g"], &until(9));
        cache.changed_entries(&path("d"));
        assert_eq!(cache.get(&path("d/g"), at(1)), None);
        assert!(cache.get(&path("d/f/h"), at(1)).is_some(), "no entry of d");
        cache.changed_below(&path("d"));
        assert_eq!(cache.get(&path("d/f/h"), at(1)), None);
        assert_eq!(cache.get(&path("d/g"), at(1)), None);
        assert!(cache.get(&path("e"), at(1)).is_some());
    }

    #[test]
    fn replies_that_a_change_has_overtaken_are_not_kept() {
        let mut cache = NodeCache::new(100);
        let asked = cache.ask();
        cache.changed(&path("d/f"));
        cache.put(asked, &path("d/f"), Known::Missing, until(9));
        assert_eq!(cache.get(&path("d/f"), at(1)), None);
        cache.put(asked, &path("d/g"), Known::Missing, until(9));
        assert!(cache.get(&path("d/g"), at(1)).is_some());
        let entries = Arc::new(vec![(Name::new(b"f").unwrap(), stat(1))]);
        cache.put_listing(asked, &path("d"), &entries, &until(9));
        assert_eq!(cache.listing(&path("d"), at(1)), None);
        cache.put_listing(asked, &path("e"), &entries, &until(9));
        assert!(cache.listing(&path("e"), at(1)).is_some());
        let asked = cache.ask();
        for _ in 0..2 * CHANGES_MAX {
            cache.changed(&path("z"));
        }
        cache.put(asked, &path("y"), Known::Missing, until(9));
        assert_eq!(cache.get(&path("y"), at(1)), None, "too many changes to judge");
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut cache = NodeCache::new(50);
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..5000 {
            let name = format!("{}/{}", random.u8(0..20), random.u8(..));
            match random.u8(0..4) {
                0 => list(&mut cache, &name, &["a", "b", "c"], &until(9)),
                1 => cache.changed(&path(&name)),
                2 => cache.changed_below(&path(&name[..1])),
                _ => {
                    let asked = cache.ask();
                    cache.put(asked, &path(&name), Known::Missing, until(9));
                }
            }
            let counted: usize = cache.places.values().map(Place::count).sum();
            assert_eq!(cache.len(), counted);
            assert!(counted <= 50 && cache.order.len() <= 170);
        }
    }
}
