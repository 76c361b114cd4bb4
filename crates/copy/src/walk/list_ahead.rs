//! Listings that are begun before their folders' turn, so that the round trips of a distant tree overlap.
//!
//! A walk names the folders that it will visit next ([`ListAhead::want`]) and takes their listings when it
//! comes to them ([`ListAhead::list`]). Of a tree on this machine nothing is listed ahead.
//!
//! A listing shows a folder as it was when the listing began. One that waited for longer than [`FRESH`]
//! is made again. Memory is bounded by the number of folders and by that of their entries.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::{DirEntry, Error, ErrorKind, Listing, Op, Origin, Pending, RelPath, Tree};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::job::config::JobConfig;
use crate::job::root::JobRoot;
use crate::walk::twin::{Asked, SpareListings, Twin, Twins};

/// Entries taken from a listing at once.
pub(crate) const CHUNK: usize = 1024;
/// Number of folders that are listed ahead. A guess: on a line of 75 ms, some 200 folders a second.
const FOLDERS_MAX: usize = 32;
/// Number of folders that a walk names at once. Of those that are not listed ahead, digests may be asked for:
/// some 100 bytes each, up to 64 KiB with many folders in a folder. A guess.
pub(crate) const AHEAD_NAMED_MAX: usize = 128;
/// Number of listed entries from which on no further folder is begun. They take some 300 bytes each.
const ENTRIES_MAX: usize = 16 * 1024;
/// Number of entries after which a folder is not read on ahead: its end costs a round trip, too.
const AHEAD_MAX: usize = 2 * CHUNK;
/// Number of entries for which a folder counts that is not listed to its end: the tree may hold as many
/// more of them.
const LARGE: usize = 8 * CHUNK;
/// Number of entries for which a folder counts while it is listed: a guess before any was, then the number
/// that the last ones had.
const UNKNOWN: usize = 2 * CHUNK;
/// Age at which a listing that was begun ahead is made again. A guess: much longer than the round trips of
/// one, and too short for much to happen in the folder.
pub(crate) const FRESH: Duration = Duration::from_secs(5);

/// An open listing and its first entries. (The mutex makes the type `Sync`, which futures that hold it
/// need.)
pub(crate) type Begun = (Mutex<Box<dyn Listing>>, Vec<DirEntry>);

/// Listings of a tree's folders, some of which are begun ahead.
pub(crate) struct ListAhead {
    tree: Arc<dyn Tree>,
    is_far: bool,
    /// What a far folder is compared with before it is listed.
    twin: Option<Arc<Twin>>,
    /// Listings that were made to compare this end with a far one.
    spare: Option<Arc<SpareListings>>,
    /// Digests of folders whose listings are not begun yet.
    asked: HashMap<RelPath, Asked>,
    begun: HashMap<RelPath, Ahead>,
    entries: Arc<AtomicUsize>,
    /// The number of entries that a folder probably has.
    expected: Arc<AtomicUsize>,
}

struct Ahead {
    at: Instant,
    task: JoinHandle<Result<Begun, Error>>,
    /// The entries that this folder counts for, as long as it waits here.
    _counted: Arc<Counted>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A folder's part of the sum of entries, which it leaves when it is dropped.
struct Counted {
    sum: Arc<AtomicUsize>,
    own: AtomicUsize,
}

impl Counted {
    fn new(sum: &Arc<AtomicUsize>, entries: usize) -> Self {
        sum.fetch_add(entries, Ordering::Relaxed);
        Self {
            sum: Arc::clone(sum),
            own: AtomicUsize::new(entries),
        }
    }

    /// Corrects the number.
    fn set(&self, entries: usize) {
        let before = self.own.swap(entries, Ordering::Relaxed);
        self.sum.fetch_add(entries, Ordering::Relaxed);
        self.sum.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.sum
            .fetch_sub(self.own.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl ListAhead {
    /// Begins nothing yet.
    pub(crate) fn of(tree: &Arc<dyn Tree>) -> Self {
        Self {
            tree: Arc::clone(tree),
            is_far: tree.capabilities().remote,
            twin: None,
            spare: None,
            asked: HashMap::new(),
            begun: HashMap::new(),
            entries: Arc::default(),
            expected: Arc::new(AtomicUsize::new(UNKNOWN)),
        }
    }

    /// Begins without a folder, for the source and the target of a root. `lists_both`: whether the end on this
    /// machine is listed as well where the other one is far.
    pub(crate) fn of_ends(config: &JobConfig, root: &JobRoot, lists_both: bool) -> (Self, Self) {
        let spare = lists_both.then(Arc::default);
        let twins = Twins::of(config, root, spare.as_ref());
        let end = |tree: &Arc<dyn Tree>, twin: Option<Arc<Twin>>| {
            let mut end = Self::of(tree);
            end.spare = spare.clone().filter(|_| !end.is_far);
            end.with_twin(twin)
        };
        (
            end(&root.root.source, twins.of_source),
            end(&config.target, twins.of_target),
        )
    }

    /// Compares folders with those of this machine before it lists them.
    pub(crate) fn with_twin(mut self, twin: Option<Arc<Twin>>) -> Self {
        self.twin = twin;
        self
    }

    /// Whether the tree is distant, so that it is worth naming folders.
    pub(crate) fn is_far(&self) -> bool {
        self.is_far
    }

    /// Begins listings of folders that are visited soon, the next one first, as far as there is room.
    pub(crate) fn want(&mut self, folders: impl Iterator<Item = RelPath>) {
        if !self.is_far {
            return;
        }
        self.begun.retain(|_, ahead| ahead.at.elapsed() < FRESH);
        self.asked.retain(|_, asked| asked.at.elapsed() < FRESH);
        let is_promising = self.twin.as_ref().is_some_and(|twin| twin.is_promising());
        for folder in folders.take(AHEAD_NAMED_MAX) {
            if self.begun.contains_key(&folder) {
                continue;
            }
            let entries = self.entries.load(Ordering::Relaxed);
            if self.begun.len() < FOLDERS_MAX && entries < ENTRIES_MAX {
                let ahead = self.begin(folder.clone(), is_promising);
                self.begun.insert(folder, ahead);
            } else if !is_promising || self.asked.len() >= AHEAD_NAMED_MAX {
                return;
            } else if !self.asked.contains_key(&folder) {
                let asked = Asked::ask(&self.tree, folder.clone());
                self.asked.insert(folder, asked);
            }
        }
    }

    /// `asks`: whether the folder's digest is asked for before its twin is listed, so that it does not come
    /// behind those of folders whose turn is later.
    fn begin(&mut self, folder: RelPath, asks: bool) -> Ahead {
        let counted = Arc::new(Counted::new(&self.entries, self.expected.load(Ordering::Relaxed)));
        let expected = Arc::clone(&self.expected);
        let (tree, within) = (Arc::clone(&self.tree), Arc::clone(&counted));
        let (twin, asked) = (self.twin.clone(), self.asked.remove(&folder));
        let asked = asked.or_else(|| asks.then(|| Asked::ask(&self.tree, folder.clone())));
        let at = asked.as_ref().map_or_else(Instant::now, |asked| asked.at);
        let task = tokio::spawn(async move {
            let told = match &twin {
                Some(twin) => twin.listing(&*tree, &folder, asked).await?,
                None => None,
            };
            let (begun, count) = match told {
                Some(told) => told,
                None => list_more(&*tree, &folder).await?,
            };
            within.set(count);
            // Folders of one tree are alike, but the larger one counts: memory is bounded, not speed.
            let before = expected.load(Ordering::Relaxed);
            expected.store((before / 2).max(count).max(1), Ordering::Relaxed);
            Ok(begun)
        });
        Ahead {
            at,
            task,
            _counted: counted,
        }
    }

    /// Returns the listing of a folder with its first entries.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(crate) async fn list(&mut self, folder: &RelPath) -> Result<Begun, Error> {
        self.take(folder).begun().await
    }

    /// Drops what was begun of a folder's listing: nobody will ask for it.
    pub(crate) fn forget(&mut self, folder: &RelPath) {
        self.begun.remove(folder);
        self.asked.remove(folder);
    }

    /// Takes what was begun of a folder's listing, to await it elsewhere.
    pub(crate) fn take<'a>(&mut self, folder: &'a RelPath) -> Taken<'a> {
        let ahead = self.begun.remove(folder);
        Taken {
            tree: Arc::clone(&self.tree),
            twin: self.twin.clone(),
            spare: self.spare.clone(),
            asked: self
                .asked
                .remove(folder)
                .filter(|asked| asked.at.elapsed() < FRESH),
            folder,
            ahead: ahead.filter(|ahead| ahead.at.elapsed() < FRESH),
        }
    }
}

/// A listing that was begun ahead, or will be begun now.
pub(crate) struct Taken<'a> {
    tree: Arc<dyn Tree>,
    twin: Option<Arc<Twin>>,
    spare: Option<Arc<SpareListings>>,
    asked: Option<Asked>,
    folder: &'a RelPath,
    ahead: Option<Ahead>,
}

impl Taken<'_> {
    /// Returns the listing with its first entries.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(crate) async fn begun(self) -> Result<Begun, Error> {
        if let Some(spare) = self.spare.and_then(|spare| spare.take(self.folder)) {
            return Ok(spare);
        }
        let Some(mut ahead) = self.ahead else {
            if let Some(twin) = &self.twin
                && let Some((begun, _)) = twin.listing(&*self.tree, self.folder, self.asked).await?
            {
                return Ok(begun);
            }
            return list(&*self.tree, self.folder).await;
        };
        let begun = (&mut ahead.task).await;
        // The runtime ends, and everything with it.
        begun.unwrap_or_else(|_| Err(Error::new(Op::List, self.folder, ErrorKind::Cancelled)))
    }
}

/// Lists a folder to its end, or until there are [`AHEAD_MAX`] entries. Returns what [`list`] would, and the
/// number of entries that it counts for.
async fn list_more(tree: &dyn Tree, folder: &RelPath) -> Result<(Begun, usize), Error> {
    let (listing, first) = list(tree, folder).await?;
    let mut listing = ReadAhead {
        inner: listing.into_inner(),
        ready: VecDeque::new(),
        is_at_end: first.is_empty(),
    };
    while !listing.is_at_end && first.len() + listing.ready.len() < AHEAD_MAX {
        let entries = listing.inner.next(CHUNK).await?;
        listing.is_at_end = entries.is_empty();
        listing.ready.extend(entries);
    }
    let count = match listing.is_at_end {
        true => first.len() + listing.ready.len(),
        false => LARGE,
    };
    Ok(((Mutex::new(Box::new(listing)), first), count))
}

/// A listing of which some entries were read before they are asked for.
struct ReadAhead {
    inner: Box<dyn Listing>,
    ready: VecDeque<DirEntry>,
    is_at_end: bool,
}

impl Listing for ReadAhead {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>, Error>> {
        Box::pin(async move {
            if self.ready.is_empty() && !self.is_at_end {
                return self.inner.next(max).await;
            }
            let count = max.min(self.ready.len());
            Ok(self.ready.drain(..count).collect())
        })
    }

    fn origin(&self) -> Option<Origin> {
        self.inner.origin()
    }
}

async fn list(tree: &dyn Tree, folder: &RelPath) -> Result<Begun, Error> {
    let mut listing = tree.list(folder).await?;
    let entries = listing.next(CHUNK).await?;
    Ok((Mutex::new(listing), entries))
}

#[cfg(test)]
mod tests {
    use ropeway_vfs::Capabilities;
    use ropeway_vfs::memory::MemoryTree;

    use super::*;
    use crate::walk::balance::Balance;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    /// A tree of folders with as many files each, on this machine or far away.
    fn tree(folders: usize, files: usize, remote: bool) -> Arc<MemoryTree> {
        let capabilities = Capabilities {
            remote,
            ..MemoryTree::new().capabilities().clone()
        };
        let tree = MemoryTree::new().with_capabilities(capabilities);
        for number in 0..folders * files {
            let at = format!("d{}/f{}", number % folders, number / folders);
            tree.insert_file(&path(&at), b"").unwrap();
        }
        Arc::new(tree)
    }

    fn folders(count: usize) -> impl Iterator<Item = RelPath> {
        (0..count).map(|number| path(&format!("d{number}")))
    }

    async fn names(ahead: &mut ListAhead, folder: &str) -> usize {
        let (listing, first) = ahead.list(&path(folder)).await.unwrap();
        let (mut listing, mut count) = (listing.into_inner(), first.len());
        loop {
            let more = listing.next(CHUNK).await.unwrap();
            if more.is_empty() {
                return count;
            }
            count += more.len();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_begun_ahead_is_whole_and_as_old_as_its_begin() {
        let tree = tree(2, 5_000, true);
        let mut ahead = ListAhead::of(&(Arc::clone(&tree) as Arc<dyn Tree>));
        ahead.want(folders(2));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(names(&mut ahead, "d0").await, 5_000);
        tokio::time::advance(FRESH).await;
        tree.insert_file(&path("d1/new"), b"").unwrap();
        assert_eq!(names(&mut ahead, "d1").await, 5_001, "it was too old");
    }

    #[tokio::test(start_paused = true)]
    async fn folders_and_entries_are_bounded() {
        let small: Arc<dyn Tree> = tree(FOLDERS_MAX + 8, 1, true);
        let mut ahead = ListAhead::of(&small);
        for _ in 0..8 {
            ahead.want(folders(FOLDERS_MAX + 8));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(ahead.begun.len(), FOLDERS_MAX);

        let large: Arc<dyn Tree> = tree(32, 2 * AHEAD_MAX, true);
        let mut ahead = ListAhead::of(&large);
        ahead.want(folders(32));
        let begun = ENTRIES_MAX / UNKNOWN;
        assert_eq!(ahead.begun.len(), begun, "before anything is known");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(ahead.entries.load(Ordering::Relaxed), begun * LARGE);
        for folder in 0..begun - ENTRIES_MAX / LARGE {
            assert_eq!(names(&mut ahead, &format!("d{folder}")).await, 2 * AHEAD_MAX);
        }
        ahead.want(folders(32));
        assert_eq!(ahead.begun.len(), ENTRIES_MAX / LARGE);
        ahead.begun.clear();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(ahead.entries.load(Ordering::Relaxed), 0);
    }

    /// Of more folders than are listed ahead, digests are asked for once folders were equal.
    #[tokio::test(start_paused = true)]
    async fn digests_of_folders_further_ahead_are_asked_for() {
        let folders_max = FOLDERS_MAX + 20;
        let near = tree(folders_max, 3, false);
        let far = MemoryTree::new().with_capabilities(tree(1, 1, true).capabilities().clone());
        let far = Arc::new(far.with_folder_digests());
        for number in 0..folders_max * 3 {
            let at = path(&format!("d{}/f{}", number % folders_max, number / folders_max));
            far.insert_file(&at, b"").unwrap();
            let modified = Some(near.metadata(&at).await.unwrap().modified);
            let change = ropeway_vfs::MetadataChange {
                modified,
                ..Default::default()
            };
            far.set_metadata(&at, &change).await.unwrap();
        }
        let (near, far): (Arc<dyn Tree>, Arc<dyn Tree>) = (near, far);
        let root = RelPath::root();
        let twins = Twins::between((&near, &root), (&far, &root), &Balance::default(), None);
        let mut ahead = ListAhead::of(&far).with_twin(twins.of_target);
        ahead.want(folders(folders_max));
        assert!(ahead.asked.is_empty(), "nothing was equal yet");
        tokio::time::sleep(Duration::from_millis(1)).await;
        ahead.want(folders(folders_max));
        assert_eq!((ahead.begun.len(), ahead.asked.len()), (FOLDERS_MAX, 20));
        for folder in 0..2 {
            assert_eq!(names(&mut ahead, &format!("d{folder}")).await, 3);
        }
        ahead.want(folders(folders_max).skip(2));
        assert_eq!((ahead.begun.len(), ahead.asked.len()), (FOLDERS_MAX, 18));
        // One that was only asked for, and one whose answer is too old by now.
        assert_eq!(names(&mut ahead, "d50").await, 3);
        assert_eq!(ahead.asked.len(), 17);
        tokio::time::advance(FRESH).await;
        far.remove_file(&path("d51/f0")).await.unwrap();
        assert_eq!(names(&mut ahead, "d51").await, 2);
        ahead.want(std::iter::empty());
        assert!(ahead.begun.is_empty() && ahead.asked.is_empty());
    }

    #[tokio::test]
    async fn errors_come_when_the_folder_is_asked_for() {
        let tree: Arc<dyn Tree> = tree(1, 1, true);
        let mut ahead = ListAhead::of(&tree);
        ahead.want(folders(2));
        tokio::task::yield_now().await;
        assert_eq!(names(&mut ahead, "d0").await, 1);
        let error = ahead.list(&path("d1")).await.map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn on_this_machine_nothing_is_begun() {
        let tree: Arc<dyn Tree> = tree(2, 1, false);
        let mut ahead = ListAhead::of(&tree);
        ahead.want(folders(2));
        assert!(ahead.begun.is_empty());
        assert_eq!(names(&mut ahead, "d1").await, 1);
    }
}
