//! What is known of the share's names: attributes, names that do not exist, listings. Pure.
//!
//! An entry is valid as long as the server grants a lease on its folder, or, without a lease, for a
//! time-out. A change through the store removes what it touches at once. A reply to a question that was asked
//! before such a change is not kept, since it may be older than the change.
//!
//! Servers do not distinguish upper and lower case as a rule. So a change of `Name` also removes
//! what is known of `NAME`, and the names of one spelling are found under that spelling only.
//!
//! A file may have several names (hard links). A change of it removes what is known of all of them.
//!
//! Which names a folder has is known apart from their attributes. A change of a file's content or
//! attributes leaves its folder's names known, and so does a node that the store makes: it is added
//! to them (`created`). So a copy of many files does not ask for each name whether it is missing.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{FileId, Kind, Name, RelPath};

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
    /// The end of the time-out; none where a lease decides alone.
    pub(super) until: Duration,
    /// The lease that must be held, if there is one.
    pub(super) lease: Option<FolderLease>,
}

impl Validity {
    /// Returns the validity under a lease, without a time-out.
    pub(super) fn leased(lease: FolderLease) -> Self {
        Self {
            until: Duration::MAX,
            lease: Some(lease),
        }
    }

    /// Whether an entry is valid. A broken lease says that it may be old, whatever its age.
    fn holds(&self, now: Duration) -> bool {
        now < self.until && self.lease.as_ref().is_none_or(|lease| lease.may_cache_reads())
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
    /// The folded paths at which each file, or link, is known.
    names: HashMap<FileId, Vec<Vec<u8>>>,
    /// Entries and names of listings.
    count: usize,
    count_max: usize,
    /// Folded paths in the order in which their places were made.
    order: VecDeque<Vec<u8>>,
    /// The number of changes so far, and the last of them.
    changes: u64,
    recent: VecDeque<Change>,
}

/// A change: of a path, and of a file whatever its path.
#[derive(Debug)]
struct Change {
    number: u64,
    key: Option<Vec<u8>>,
    id: Option<FileId>,
}

#[derive(Debug, Default)]
struct Place {
    nodes: Vec<(RelPath, Known, Validity)>,
    listing: Option<Listing>,
}

#[derive(Debug)]
struct Listing {
    dir: RelPath,
    /// `None` once an entry's attributes have changed.
    entries: Option<Listed>,
    /// The folded names, to tell which do not exist. It may hold names that do not exist either.
    names: HashSet<Vec<u8>>,
    validity: Validity,
}

impl Place {
    /// Returns the files and links that the names belong to.
    fn ids(&self) -> impl Iterator<Item = FileId> {
        self.nodes.iter().filter_map(|(_, known, _)| file_id(known))
    }

    fn count(&self) -> usize {
        self.nodes.len() + self.listing.as_ref().map_or(0, Listing::count)
    }
}

impl Listing {
    fn count(&self) -> usize {
        1 + self.names.len()
    }
}

impl NodeCache {
    /// Makes an empty cache of at most `count_max` names.
    pub(super) fn new(count_max: usize) -> Self {
        Self {
            places: BTreeMap::new(),
            names: HashMap::new(),
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
        listing.entries.as_ref().filter(|_| holds).map(Arc::clone)
    }

    /// Begins a question to the server.
    pub(super) fn ask(&self) -> Asked {
        Asked(self.changes)
    }

    /// Whether the store has changed a file since a question, or may have.
    pub(super) fn is_file_changed_since(&self, asked: Asked, id: FileId) -> bool {
        let is_forgotten = self.changes - asked.0 > self.recent.len() as u64;
        is_forgotten || self.ids_changed_since(asked).any(|changed| changed == id)
    }

    /// Keeps the reply to a question.
    pub(super) fn put(&mut self, asked: Asked, path: &RelPath, known: Known, validity: Validity) {
        let id = file_id(&known);
        let is_old = self.is_changed_since(asked, &folded(path.as_bytes()))
            || id.is_some_and(|id| self.ids_changed_since(asked).any(|changed| changed == id));
        if !is_old {
            self.insert(path, known, validity);
            self.shrink();
        }
    }

    /// Keeps a listing, and the attributes of its entries. Of one that changes in the folder have
    /// overtaken only the names are kept, with those that changed.
    pub(super) fn put_listing(&mut self, asked: Asked, dir: &RelPath, entries: &Listed, validity: &Validity) {
        let key = folded(dir.as_bytes());
        if entries.len() > self.count_max / 4 {
            return;
        }
        let Some(changed_names) = self.names_changed_since(asked, &key) else {
            return;
        };
        let changed: HashSet<FileId> = self.ids_changed_since(asked).collect();
        let is_whole =
            changed_names.is_empty() && !entries.iter().any(|(_, stat)| changed.contains(&stat.id));
        if is_whole {
            for (name, stat) in entries.iter() {
                self.insert(&dir.join(name), Known::There(*stat), validity.clone());
            }
        }
        let names = entries.iter().map(|(name, _)| folded(name.as_bytes()));
        let listing = Listing {
            dir: dir.clone(),
            entries: is_whole.then(|| Arc::clone(entries)),
            names: names.chain(changed_names).collect(),
            validity: validity.clone(),
        };
        self.count += listing.count();
        let place = self.place(key);
        let before = place.listing.replace(listing);
        self.count -= before.as_ref().map_or(0, Listing::count);
        self.shrink();
    }

    /// Removes what a change of a name makes untrue: its attributes, and the listing and the
    /// attributes of its folder; the attributes under the node's other names.
    pub(super) fn changed(&mut self, path: &RelPath) {
        let key = folded(path.as_bytes());
        let ids = self.ids_at(&key);
        self.remove_with_folder(&key);
        self.note(Some(key), None);
        for id in ids {
            self.changed_file(id);
        }
    }

    /// Removes what a change of a node makes untrue that keeps its name: its attributes, under all
    /// its names.
    pub(super) fn changed_attributes(&mut self, path: &RelPath) {
        let key = folded(path.as_bytes());
        let ids = self.ids_at(&key);
        self.forget_attributes(&key);
        self.note(Some(key), None);
        for id in ids {
            self.changed_file(id);
        }
    }

    /// Removes what a change of a file makes untrue, under all its names.
    pub(super) fn changed_file(&mut self, id: FileId) {
        for key in self.names.remove(&id).unwrap_or_default() {
            self.forget_attributes(&key);
        }
        self.note(None, Some(id));
    }

    /// Notes that the store begins to make a node. Replies to questions from before may be older.
    pub(super) fn creating(&mut self, path: &RelPath) {
        self.note(Some(folded(path.as_bytes())), None);
    }

    /// Adds a node that the store has made. `asked`: when it began, after [`creating`](Self::creating).
    /// If the path was changed meanwhile, what is known of it is removed instead.
    pub(super) fn created(
        &mut self,
        asked: Asked,
        path: &RelPath,
        stat: &NodeStat,
        validity: &Validity,
        now: Duration,
        estimate: Duration,
    ) {
        let key = folded(path.as_bytes());
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return self.changed(path);
        };
        if self.is_changed_since(asked, &key) {
            return self.changed(path);
        }
        self.note(Some(key.clone()), None);
        // What was known under other spellings, or of a node that was there before.
        self.remove(&key);
        if let Some(place) = self.places.get_mut(&folded(dir.as_bytes())) {
            let before = place.count();
            if let Some(listing) = &mut place.listing {
                let is_same = listing.dir == dir && listing.validity.holds(now);
                let is_new = listing.names.insert(folded(name.as_bytes()));
                match &mut listing.entries {
                    Some(entries) if is_same && is_new => Arc::make_mut(entries).push((name, *stat)),
                    entries => *entries = None,
                }
            }
            place.nodes.retain_mut(|(at, known, validity)| {
                *at != dir || file_id(known).is_some() || grows(known, validity, stat, now + estimate)
            });
            self.count = self.count - before + place.count();
        }
        self.insert(path, Known::There(*stat), validity.clone());
        self.shrink();
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

    /// Returns the files known at a folded path.
    fn ids_at(&self, key: &[u8]) -> Vec<FileId> {
        self.places.get(key).into_iter().flat_map(Place::ids).collect()
    }

    fn insert(&mut self, path: &RelPath, known: Known, validity: Validity) {
        let key = folded(path.as_bytes());
        let id = file_id(&known);
        let place = self.place(key.clone());
        match place.nodes.iter_mut().find(|(at, ..)| at == path) {
            Some(entry) => {
                let before = file_id(&entry.1).filter(|before| Some(*before) != id);
                (entry.1, entry.2) = (known, validity);
                if let Some(before) = before.filter(|before| !place.ids().any(|id| id == *before)) {
                    self.forget_name(before, &key);
                }
            }
            None => {
                place.nodes.push((path.clone(), known, validity));
                self.count += 1;
            }
        }
        if let Some(id) = id {
            let names = self.names.entry(id).or_default();
            if !names.contains(&key) {
                names.push(key);
            }
        }
    }

    fn forget_name(&mut self, id: FileId, key: &[u8]) {
        if let Some(names) = self.names.get_mut(&id) {
            names.retain(|name| name != key);
            if names.is_empty() {
                self.names.remove(&id);
            }
        }
    }

    fn place(&mut self, key: Vec<u8>) -> &mut Place {
        if !self.places.contains_key(&key) {
            self.order.push_back(key.clone());
        }
        self.places.entry(key).or_default()
    }

    fn remove(&mut self, key: &[u8]) {
        // Its key stays in the order until it is met there.
        let Some(place) = self.places.remove(key) else {
            return;
        };
        self.count -= place.count();
        for id in place.ids() {
            self.forget_name(id, key);
        }
    }

    /// Removes the attributes of a node, and those in the listing of its folder.
    fn forget_attributes(&mut self, key: &[u8]) {
        let listing = self.places.get_mut(key).and_then(|place| place.listing.take());
        self.count -= listing.as_ref().map_or(0, Listing::count);
        self.remove(key);
        if let Some(listing) = listing {
            self.count += listing.count();
            self.place(key.to_vec()).listing = Some(listing);
        }
        let folder = folder_of(key).and_then(|folder| self.places.get_mut(folder));
        if let Some(listing) = folder.and_then(|folder| folder.listing.as_mut()) {
            listing.entries = None;
        }
    }

    /// Removes what is known of a node and of its folder.
    fn remove_with_folder(&mut self, key: &[u8]) {
        self.remove(key);
        if let Some(folder) = folder_of(key) {
            self.remove(folder);
        }
    }

    /// Removes the oldest places until the cache fits.
    fn shrink(&mut self) {
        let too_many =
            |this: &Self| this.count > this.count_max || this.order.len() > 2 * this.count_max + 64;
        while too_many(self)
            && let Some(key) = self.order.pop_front()
        {
            // A listing lasts no longer than its entries, whose changes under other names end it.
            if self.places.contains_key(&key) {
                self.remove_with_folder(&key);
            }
        }
    }

    fn note(&mut self, key: Option<Vec<u8>>, id: Option<FileId>) {
        self.changes += 1;
        let number = self.changes;
        self.recent.push_back(Change { number, key, id });
        if self.recent.len() > CHANGES_MAX {
            self.recent.pop_front();
        }
    }

    /// Returns the changes since a question. Some may be missing if there were very many.
    fn since(&self, asked: Asked) -> impl Iterator<Item = &Change> {
        let recent = self.recent.iter().rev();
        recent.take_while(move |change| change.number > asked.0)
    }

    /// Returns the files changed since a question, as far as `is_changed_since` looks back.
    fn ids_changed_since(&self, asked: Asked) -> impl Iterator<Item = FileId> {
        self.since(asked).filter_map(|change| change.id)
    }

    /// Returns the folded names in a folder that changed since a question. `None` if the folder
    /// itself may have changed.
    fn names_changed_since(&self, asked: Asked, dir: &[u8]) -> Option<Vec<Vec<u8>>> {
        if self.changes - asked.0 > self.recent.len() as u64 {
            return None;
        }
        let mut names = Vec::new();
        for changed in self.since(asked).filter_map(|change| change.key.as_deref()) {
            if is_at_or_below(dir, changed) {
                return None;
            }
            if is_at_or_below(changed, dir) {
                let rest = &changed[if dir.is_empty() { 0 } else { dir.len() + 1 }..];
                names.push(rest.split(|byte| *byte == b'/').next().unwrap_or(rest).to_vec());
            }
        }
        Some(names)
    }

    /// Whether a change since a question may have touched a path: the path itself, one above it, or
    /// one in or beneath it.
    fn is_changed_since(&self, asked: Asked, key: &[u8]) -> bool {
        let since = self.changes - asked.0;
        if since > self.recent.len() as u64 {
            return true;
        }
        let mut changed = self.since(asked).filter_map(|change| change.key.as_deref());
        changed.any(|changed| is_at_or_below(changed, key) || is_at_or_below(key, changed))
    }
}

/// Estimates the attributes of a folder in which the store has made a node: until the server is
/// asked again, at `until`, its times are those of that node. Returns `false` for what is no folder.
fn grows(known: &mut Known, validity: &mut Validity, made: &NodeStat, until: Duration) -> bool {
    match known {
        Known::There(folder) if folder.kind == Kind::Directory => {
            folder.modified = folder.modified.max(made.changed);
            folder.changed = folder.changed.max(made.changed);
            validity.until = match validity.lease {
                Some(_) => until,
                None => validity.until.min(until),
            };
            true
        }
        _ => false,
    }
}

/// Returns the id of what may have several names.
fn file_id(known: &Known) -> Option<FileId> {
    match known {
        Known::There(stat) if stat.kind != Kind::Directory => Some(stat.id),
        _ => None,
    }
}

/// Returns the folder of a folded path.
fn folder_of(key: &[u8]) -> Option<&[u8]> {
    let end = key.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (!key.is_empty()).then(|| &key[..end])
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
#[path = "node_cache_tests.rs"]
mod tests;
