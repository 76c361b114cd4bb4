//! What the source said of its names: attributes, missing names, whole listings. Pure and bounded.
//!
//! It is kept to be said again while the source is lost ([`outages`](crate::outages)); as long as the
//! source can be asked, it is not used. A change through the store removes what it touches. An
//! answer to a question that was asked before such a change is not kept, since it may be older.
//!
//! A server may not distinguish upper and lower case. So a change of `Name` also removes what is
//! known of `NAME`, and an answer is found under the spelling that was asked for only.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{Name, RelPath};

/// Names kept, at most: 64 Ki, of some 500 bytes each.
pub(crate) const NAMES_MAX: usize = 65_536;
/// Changes remembered to judge answers. A guess: more than are made during one round trip; with
/// more, answers are not kept.
const CHANGES_MAX: usize = 1024;

/// A question to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Its number.
    pub(crate) number: u64,
    /// When it was asked.
    pub(crate) at: Duration,
    /// Number of changes of names before it.
    pub(crate) changes: u64,
}

/// What the source said of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A node has it.
    There(NodeStat),
    /// No node has it.
    Missing,
}

/// An answer of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) found: Found,
    pub(crate) question: Question,
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Itself,
    Followed,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Known {
    /// By folded path; the spellings of one path share a place.
    places: BTreeMap<Vec<u8>, Place>,
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
    spellings: Vec<Spelling>,
    listing: Option<Listing>,
}

#[derive(Debug)]
struct Spelling {
    path: RelPath,
    itself: Option<Answer>,
    followed: Option<Answer>,
}

/// The names of a folder that was listed to its end.
#[derive(Debug)]
struct Listing {
    dir: RelPath,
    names: Vec<Name>,
    question: Question,
}

impl Place {
    fn count(&self) -> usize {
        self.spellings.len() + self.listing.as_ref().map_or(0, |listing| 1 + listing.names.len())
    }
}

impl Known {
    /// Makes an empty table of at most `count_max` names.
    pub(crate) fn new(count_max: usize) -> Self {
        Self {
            places: BTreeMap::new(),
            count: 0,
            count_max,
            order: VecDeque::new(),
            changes: 0,
            recent: VecDeque::new(),
        }
    }

    /// Returns the number of changes so far, for a question that is asked now.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns what the source said of a path. A name that a whole listing of its folder lacks is
    /// missing, if no server could find it under another spelling.
    pub(crate) fn get(&self, path: &RelPath, ask: Ask) -> Option<Answer> {
        let answer = self.answer(path, ask);
        let since = answer.map_or(0, |answer| answer.question.number + 1);
        self.missing(path, since).or(answer)
    }

    /// Returns the last answer to a question about a path itself.
    fn answer(&self, path: &RelPath, ask: Ask) -> Option<Answer> {
        let place = self.places.get(&folded(path.as_bytes()))?;
        let spelling = place.spellings.iter().find(|spelling| spelling.path == *path)?;
        let itself = spelling.itself.filter(|answer| match answer.found {
            Found::There(stat) => ask == Ask::Itself || stat.kind != ropeway_vfs::Kind::Symlink,
            Found::Missing => true,
        });
        // The root is no link: both questions are the same one.
        let is_same = ask == Ask::Followed || path.is_root();
        let followed = spelling
            .followed
            .filter(|answer| is_same || answer.found == Found::Missing);
        let both = [itself, followed].into_iter().flatten();
        both.max_by_key(|answer| answer.question.number)
    }

    /// Returns the answer that a name is missing, from a listing of its folder that is no older than
    /// the question `since`.
    fn missing(&self, path: &RelPath, since: u64) -> Option<Answer> {
        let (dir, name) = (path.parent()?, path.file_name()?);
        let listing = self.listing_of(&dir)?;
        let is_plain = name.as_bytes().is_ascii() && !name.as_bytes().contains(&b'~');
        if !is_plain || listing.question.number < since {
            return None;
        }
        let wanted = folded(name.as_bytes());
        let is_there = listing.names.iter().any(|name| folded(name.as_bytes()) == wanted);
        (!is_there).then_some(Answer {
            found: Found::Missing,
            question: listing.question,
        })
    }

    /// Returns the names of a folder that was listed to its end, and the question.
    pub(crate) fn listing(&self, dir: &RelPath) -> Option<(Vec<Name>, Question)> {
        let listing = self.listing_of(dir)?;
        Some((listing.names.clone(), listing.question))
    }

    /// Returns the spelling of a path whose folders were listed to their ends, or whose spelling was
    /// found before, with the oldest of the questions. The last name is as given if it is missing.
    /// `None` if that is not known, or if a folder is missing.
    pub(crate) fn resolve(&self, path: &RelPath) -> Option<(RelPath, Question)> {
        let mut found = RelPath::root();
        let mut oldest: Option<Question> = None;
        let count = path.components().count();
        for (index, name) in path.components().enumerate() {
            let exact = found.join(&name);
            let answer = self.get(&exact, Ask::Followed);
            let there = answer.filter(|answer| answer.found != Found::Missing);
            let there = there.map(|answer| answer.question);
            // A folder that was listed is there.
            let listed = || Some(self.listing_of(&exact)?.question);
            let question = if let Some(question) = there.or_else(listed) {
                found = exact;
                question
            } else {
                let listing = self.listing_of(&found)?;
                let wanted = folded(name.as_bytes());
                let other = listing
                    .names
                    .iter()
                    .find(|name| folded(name.as_bytes()) == wanted);
                match other {
                    Some(name) => found = found.join(name),
                    None if index + 1 == count && answer.is_some() => found = exact,
                    None => return None,
                }
                listing.question
            };
            oldest = match oldest {
                Some(oldest) if oldest.at <= question.at => Some(oldest),
                _ => Some(question),
            };
        }
        Some((found, oldest?))
    }

    /// Keeps the answer to a question.
    pub(crate) fn put(&mut self, question: Question, path: &RelPath, ask: Ask, found: Found) {
        if !self.is_changed_since(question, path) {
            self.insert(path, ask, Answer { found, question });
            self.shrink();
        }
    }

    /// Keeps a listing, and the attributes of its entries.
    pub(crate) fn put_listing(&mut self, question: Question, dir: &RelPath, entries: Vec<(Name, NodeStat)>) {
        if entries.len() > self.entries_max() || self.is_changed_since(question, dir) {
            return;
        }
        for (name, stat) in &entries {
            let found = Found::There(*stat);
            self.insert(&dir.join(name), Ask::Itself, Answer { found, question });
        }
        let listing = Listing {
            dir: dir.clone(),
            names: entries.into_iter().map(|(name, _)| name).collect(),
            question,
        };
        self.count += 1 + listing.names.len();
        let place = self.place(folded(dir.as_bytes()));
        let before = place.listing.replace(listing);
        self.count -= before.map_or(0, |listing| 1 + listing.names.len());
        self.shrink();
    }

    /// Returns the largest number of entries of a listing that is kept.
    pub(crate) fn entries_max(&self) -> usize {
        self.count_max / 4
    }

    /// Removes what a change makes untrue: what is known of a node and of all beneath it, and the
    /// listing and the attributes of its folder.
    pub(crate) fn changed(&mut self, path: &RelPath) {
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
        self.remove(&key);
        if let Some(dir) = path.parent() {
            self.remove(&folded(dir.as_bytes()));
        }
        self.changes += 1;
        self.recent.push_back((self.changes, key));
        if self.recent.len() > CHANGES_MAX {
            self.recent.pop_front();
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        self.changed(&RelPath::root());
        self.order.clear();
    }

    /// Whether a change since a question may have touched a path: the path itself, one above it, or
    /// one in or beneath it.
    pub(crate) fn is_changed_since(&self, question: Question, path: &RelPath) -> bool {
        let since = self.changes - question.changes;
        if since > self.recent.len() as u64 {
            return true;
        }
        let key = folded(path.as_bytes());
        let recent = self.recent.iter().rev();
        let mut recent = recent.take_while(|(number, _)| *number > question.changes);
        recent.any(|(_, changed)| is_at_or_below(changed, &key) || is_at_or_below(&key, changed))
    }

    fn listing_of(&self, dir: &RelPath) -> Option<&Listing> {
        let listing = self.places.get(&folded(dir.as_bytes()))?.listing.as_ref()?;
        (listing.dir == *dir).then_some(listing)
    }

    fn insert(&mut self, path: &RelPath, ask: Ask, answer: Answer) {
        let place = self.place(folded(path.as_bytes()));
        let known = place.spellings.iter().position(|spelling| spelling.path == *path);
        let (at, is_new) = match known {
            Some(at) => (at, false),
            None => {
                place.spellings.push(Spelling {
                    path: path.clone(),
                    itself: None,
                    followed: None,
                });
                (place.spellings.len() - 1, true)
            }
        };
        let spelling = &mut place.spellings[at];
        let kept = match ask {
            Ask::Itself => &mut spelling.itself,
            Ask::Followed => &mut spelling.followed,
        };
        if kept.is_none_or(|kept| kept.question.number <= answer.question.number) {
            *kept = Some(answer);
        }
        self.count += usize::from(is_new);
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

    /// Removes the oldest places until the table fits.
    fn shrink(&mut self) {
        let is_over = |this: &Self| this.count > this.count_max || this.order.len() > 2 * this.count_max + 64;
        while is_over(self)
            && let Some(key) = self.order.pop_front()
        {
            self.remove(&key);
        }
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
#[path = "known_tests.rs"]
mod tests;
