//! What folders hold, by names without regard to case: built once, kept true by inotify.
//!
//! The kernel queues an event before the call that caused it returns. Whoever asks first reads all events that are
//! waiting, then the folder's index: so what was done before is known, by whomever. A folder is watched before it is read
//! for the first time; events are applied in their order, and the last one of a name is right whether or not the reading
//! saw its effect.
//!
//! Everything is bounded: folders and names by what was used least recently, events that wait for a folder nobody asks for
//! by forgetting its index. When the kernel's queue overflows, all indexes are forgotten. A folder too large to be kept, or
//! on a volume that others change unseen, is read each time.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropeway_vfs::{FileId, Name};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::io::Errno;

use super::base::proc_path;
use super::fold;
use super::volume::{Indexing, indexing};

/// What changes a folder's names, or ends the watch.
const WATCH: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// Bytes read from inotify at once: some hundred events.
const EVENT_BYTES: usize = 16 * 1024;

/// Bytes of one getdents64 call.
const ENTRY_BYTES: usize = 32 * 1024;

/// Events that wait for one folder; reading it again costs no more (a guess).
const PENDING_MAX: usize = 16 * 1024;

/// Folders remembered as too large before they are tried again (a guess).
const LARGE_MAX: usize = 256;

/// Bounds of all indexes together.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) folders: usize,
    pub(super) names: usize,
}

/// The indexes of a store.
pub(super) struct Indexes {
    bounds: Bounds,
    hasher: RandomState,
    watched: Mutex<Watched>,
    /// Names in all indexes, about: folders on their way out count until they are gone.
    names: Arc<AtomicUsize>,
    clock: AtomicU64,
    /// How often a folder was read.
    #[cfg(test)]
    pub(super) scans: AtomicUsize,
}

#[derive(Default)]
struct Watched {
    inotify: Option<OwnedFd>,
    folders: HashMap<FileId, Arc<Folder>>,
    ids: HashMap<i32, FileId>,
    /// Folders that were too large to be kept: not tried again and again.
    large: HashSet<FileId>,
}

/// One folder's index.
struct Folder {
    watch: i32,
    used: AtomicU64,
    names: Mutex<Option<Names>>,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    events: Vec<Event>,
    /// Too many came: the folder is to be read again.
    lost: bool,
}

/// A name appeared or disappeared.
struct Event {
    name: Name,
    there: bool,
}

/// Names by the hash of their folded form.
struct Names {
    by_hash: HashMap<u64, Same>,
    count: usize,
    all: Arc<AtomicUsize>,
}

/// Names of one hash: nearly always one.
enum Same {
    One(Name),
    Many(Vec<Name>),
}

impl Indexes {
    pub(super) fn new(bounds: Bounds) -> Self {
        let folders = bounds.folders.max(1);
        Self {
            bounds: Bounds { folders, ..bounds },
            hasher: RandomState::new(),
            watched: Mutex::default(),
            names: Arc::default(),
            clock: AtomicU64::new(0),
            #[cfg(test)]
            scans: AtomicUsize::new(0),
        }
    }

    /// The name in an open folder (`id`) that differs from `name` in case at most; of several the first in order.
    pub(super) fn find(
        &self,
        dir: BorrowedFd<'_>,
        id: FileId,
        name: &Name,
    ) -> rustix::io::Result<Option<Name>> {
        let folded = fold::fold(name.as_bytes());
        match self.folder(dir, id) {
            Found::Folder(folder) => self.find_in(dir, id, &folder, &folded),
            Found::Unwatched => self.search(dir, &folded),
            Found::Needless => Ok(None),
        }
    }

    fn find_in(
        &self,
        dir: BorrowedFd<'_>,
        id: FileId,
        folder: &Folder,
        folded: &[u8],
    ) -> rustix::io::Result<Option<Name>> {
        let mut names = folder.lock();
        let pending = std::mem::take(&mut *folder.pending());
        if pending.lost {
            *names = None;
        }
        let known = match &mut *names {
            Some(names) => {
                self.apply(names, pending.events);
                names
            }
            // What waits happened before the folder is read; what happens meanwhile is applied the next time.
            none => match self.scan(dir) {
                Ok(Some(read)) => none.insert(read),
                Ok(None) => {
                    drop(names);
                    self.give_up(id);
                    return self.search(dir, folded);
                }
                Err(error) => return Err(error),
            },
        };
        let found = known.find(self.hasher.hash_one(folded), folded);
        let too_large = known.count > self.bounds.names;
        drop(names);
        if too_large {
            self.give_up(id);
        }
        Ok(found)
    }

    /// The folder's index, with all that was told by now waiting in it.
    fn folder(&self, dir: BorrowedFd<'_>, id: FileId) -> Found {
        let mut watched = self.lock();
        watched.drain();
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(folder) = watched.folders.get(&id) {
            folder.used.store(now, Ordering::Relaxed);
            return Found::Folder(Arc::clone(folder));
        }
        if watched.large.contains(&id) {
            return Found::Unwatched;
        }
        match indexing(dir) {
            Indexing::Needless => return Found::Needless,
            Indexing::Rescanned => return Found::Unwatched,
            Indexing::Watched => {}
        }
        while watched.folders.len() >= self.bounds.folders
            || (self.names.load(Ordering::Relaxed) > self.bounds.names && !watched.folders.is_empty())
        {
            watched.drop_oldest();
        }
        match watched.add(dir, id, now) {
            Ok(folder) => Found::Folder(folder),
            // The user's limit of watches or instances is reached.
            Err(_) => Found::Unwatched,
        }
    }

    /// Folders and names that are kept.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.lock().folders.len(), self.names.load(Ordering::Relaxed))
    }

    /// A folder is too large to be kept.
    fn give_up(&self, id: FileId) {
        let mut watched = self.lock();
        watched.drop_folder(id);
        if watched.large.len() >= LARGE_MAX {
            watched.large.clear();
        }
        watched.large.insert(id);
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a whole folder; `None` if it is too large to be kept.
    fn scan(&self, dir: BorrowedFd<'_>) -> rustix::io::Result<Option<Names>> {
        let mut names = Names {
            by_hash: HashMap::new(),
            count: 0,
            all: Arc::clone(&self.names),
        };
        self.read(dir, |name| {
            if names.count >= self.bounds.names {
                return false;
            }
            if let Some(name) = Name::new(name) {
                names.insert(self.hash(&name), name);
            }
            true
        })
        .map(|whole| whole.then_some(names))
    }

    /// Looks through a folder that has no index.
    fn search(&self, dir: BorrowedFd<'_>, folded: &[u8]) -> rustix::io::Result<Option<Name>> {
        let mut found: Option<Name> = None;
        self.read(dir, |name| {
            // Few names of another length fold to the same: none that is ASCII does.
            let possible = name.len() == folded.len() || !name.is_ascii();
            if possible
                && fold::fold(name) == folded
                && found.as_ref().is_none_or(|found| name < found.as_bytes())
            {
                found = Name::new(name);
            }
            true
        })?;
        Ok(found)
    }

    /// Reads a folder's names until `each` says no; true at the end.
    fn read(&self, dir: BorrowedFd<'_>, mut each: impl FnMut(&[u8]) -> bool) -> rustix::io::Result<bool> {
        #[cfg(test)]
        self.scans.fetch_add(1, Ordering::Relaxed);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let own = openat(dir, c".", flags, Mode::empty())?;
        let mut buffer = vec![MaybeUninit::uninit(); ENTRY_BYTES];
        let mut raw = RawDir::new(&own, &mut buffer);
        while let Some(entry) = raw.next() {
            match entry {
                Ok(entry) => {
                    if !each(entry.file_name().to_bytes()) {
                        return Ok(false);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn apply(&self, names: &mut Names, events: Vec<Event>) {
        for Event { name, there } in events {
            let hash = self.hash(&name);
            if there {
                names.insert(hash, name);
            } else {
                names.remove(hash, &name);
            }
        }
    }

    fn hash(&self, name: &Name) -> u64 {
        self.hasher.hash_one(fold::fold(name.as_bytes()).as_slice())
    }
}

enum Found {
    Folder(Arc<Folder>),
    Unwatched,
    Needless,
}

impl Watched {
    /// Reads all events that wait.
    fn drain(&mut self) {
        let Some(inotify) = self.inotify.take() else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(inotify.as_fd(), &mut buffer);
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    // Nothing is known any more; a new instance has no old events either.
                    self.folders.clear();
                    self.ids.clear();
                    return;
                }
                Ok(event) => self.deliver(event.wd(), event.events(), event.file_name()),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.inotify = Some(inotify);
    }

    fn deliver(&mut self, watch: i32, what: ReadFlags, name: Option<&CStr>) {
        let Some(id) = self.ids.get(&watch).copied() else {
            return;
        };
        if what.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT) {
            self.ids.remove(&watch);
            self.folders.remove(&id);
            return;
        }
        let name = name.and_then(|name| Name::new(name.to_bytes()));
        if let (Some(folder), Some(name)) = (self.folders.get(&id), name) {
            let there = what.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
            folder.pending().add(Event { name, there });
        }
    }

    fn add(&mut self, dir: BorrowedFd<'_>, id: FileId, now: u64) -> rustix::io::Result<Arc<Folder>> {
        let inotify = match self.inotify.take() {
            Some(inotify) => inotify,
            None => inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
        };
        let inotify = self.inotify.insert(inotify);
        let watch = inotify::add_watch(&*inotify, proc_path(dir), WATCH)?;
        let folder = Arc::new(Folder {
            watch,
            used: AtomicU64::new(now),
            names: Mutex::new(None),
            pending: Mutex::default(),
        });
        self.ids.insert(watch, id);
        self.folders.insert(id, Arc::clone(&folder));
        Ok(folder)
    }

    fn drop_oldest(&mut self) {
        let oldest = self
            .folders
            .iter()
            .min_by_key(|(_, folder)| folder.used.load(Ordering::Relaxed))
            .map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.drop_folder(id);
        }
    }

    fn drop_folder(&mut self, id: FileId) {
        let Some(folder) = self.folders.remove(&id) else {
            return;
        };
        self.ids.remove(&folder.watch);
        if let Some(inotify) = &self.inotify {
            // Gone already with the folder itself, perhaps.
            let _ = inotify::remove_watch(inotify, folder.watch);
        }
    }
}

impl Folder {
    fn lock(&self) -> MutexGuard<'_, Option<Names>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn add(&mut self, event: Event) {
        if self.lost {
            return;
        }
        self.events.push(event);
        if self.events.len() > PENDING_MAX {
            self.events = Vec::new();
            self.lost = true;
        }
    }
}

impl Names {
    fn insert(&mut self, hash: u64, name: Name) {
        let same = match self.by_hash.entry(hash) {
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(Same::One(name));
                self.counted(1);
                return;
            }
            std::collections::hash_map::Entry::Occupied(place) => place.into_mut(),
        };
        match same {
            Same::One(known) if *known == name => return,
            Same::One(known) => *same = Same::Many(vec![known.clone(), name]),
            Same::Many(names) if names.contains(&name) => return,
            Same::Many(names) => names.push(name),
        }
        self.counted(1);
    }

    fn remove(&mut self, hash: u64, name: &Name) {
        let emptied = match self.by_hash.get_mut(&hash) {
            None => return,
            Some(Same::One(known)) => {
                if known != name {
                    return;
                }
                true
            }
            Some(Same::Many(names)) => {
                let before = names.len();
                names.retain(|known| known != name);
                if names.len() == before {
                    return;
                }
                names.is_empty()
            }
        };
        if emptied {
            self.by_hash.remove(&hash);
        }
        self.count -= 1;
        self.all.fetch_sub(1, Ordering::Relaxed);
    }

    fn find(&self, hash: u64, folded: &[u8]) -> Option<Name> {
        let fits = |name: &&Name| fold::fold(name.as_bytes()) == folded;
        match self.by_hash.get(&hash)? {
            Same::One(name) => Some(name).filter(fits).cloned(),
            Same::Many(names) => names.iter().filter(fits).min().cloned(),
        }
    }

    fn counted(&mut self, more: usize) {
        self.count += more;
        self.all.fetch_add(more, Ordering::Relaxed);
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.all.fetch_sub(self.count, Ordering::Relaxed);
    }
}
