//! Case-insensitive indexes of folders: built once, kept current by inotify.
//!
//! The kernel queues an event before the call that caused it returns. A lookup first reads all waiting
//! events, then the folder's index, so it knows every change made before it, by any process. A folder is
//! watched before it is read for the first time. Events are applied in their order, and the last one of a
//! name is right whether or not the reading saw its effect.
//!
//! Everything is bounded. Folders, and the bytes of all names and events together: the least recently used
//! index is dropped. Events that wait for a folder which is not looked up: its index is dropped. If the
//! kernel's queue overflows, all indexes are dropped. A folder that is too large, or that lies on a volume
//! whose changes inotify does not report, is read each time.
//!
//! A large folder is read for the first time on a thread of its own: [`Indexes::begin`] gives that task to
//! the first caller and remembers the callbacks of the others.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use ropeway_vfs::store::Task;
use ropeway_vfs::{FileId, Name};
use rustix::fs::inotify::{ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::io::Errno;

use super::table::{Spent, Table};
use super::volume::{Indexing, indexing};
use crate::inotify::{self, Instance, WatchId};
use crate::winmeta::fold;

/// Events that change a folder's names or end the watch.
const WATCH: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR);

/// Bytes of one getdents64 call.
const ENTRY_BYTES: usize = 32 * 1024;

/// Most events that wait for one folder; beyond, reading it again costs no more (a guess).
const PENDING_MAX: usize = 16 * 1024;

/// Bytes of an event beside its name: the allocation of the name.
const EVENT_OVERHEAD_BYTES: usize = 32;

/// Approximate bytes that an index needs for a name in addition to its own.
const OVERHEAD_BYTES: usize = 24;

/// Number of folders remembered as too large; beyond, they are tried again (a guess).
const LARGE_MAX: usize = 256;

/// Bounds of all indexes together.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) folders: usize,
    pub(super) bytes: usize,
}

/// The indexes of a store.
pub(super) struct Indexes {
    bounds: Bounds,
    hasher: RandomState,
    watched: Mutex<Watched>,
    /// Approximate bytes of all indexes and events; a dropped folder counts until it is freed.
    spent: Spent,
    clock: AtomicU64,
    /// Number of times a folder was read.
    #[cfg(test)]
    pub(super) scans: AtomicUsize,
}

#[derive(Default)]
struct Watched {
    inotify: Option<Instance>,
    folders: HashMap<FileId, Arc<Folder>>,
    ids: HashMap<WatchId, FileId>,
    /// Folders that were too large to keep, so that they are not tried each time.
    large: HashSet<FileId>,
}

/// One folder's index.
struct Folder {
    watch: WatchId,
    used: AtomicU64,
    names: Mutex<Option<Table>>,
    pending: Mutex<Pending>,
    /// Callbacks of those who wait while the folder is read; as many as requests may wait.
    reading: Mutex<Option<Vec<Task>>>,
}

/// Events that wait for a folder. Their bytes count among those of all indexes.
struct Pending {
    events: Vec<Event>,
    own: usize,
    spent: Spent,
    /// Whether too many events came, so that the folder must be read again.
    lost: bool,
}

/// A name appeared or disappeared.
struct Event {
    name: Name,
    there: bool,
}

impl Indexes {
    pub(super) fn new(bounds: Bounds) -> Self {
        let bounds = Bounds {
            folders: bounds.folders.max(1),
            // A table counts in 32 bits.
            bytes: bounds.bytes.min(u32::MAX as usize / 2),
        };
        Self {
            bounds,
            hasher: RandomState::new(),
            watched: Mutex::default(),
            spent: Spent::default(),
            clock: AtomicU64::new(0),
            #[cfg(test)]
            scans: AtomicUsize::new(0),
        }
    }

    /// Returns the name in an open folder (`id`) that differs from `name` in case at most; of several, the
    /// first in order.
    pub(super) fn find(
        &self,
        dir: BorrowedFd<'_>,
        id: FileId,
        name: &Name,
    ) -> rustix::io::Result<Option<Name>> {
        let folded = fold::fold(name.as_bytes());
        match self.folder(dir, id) {
            Found::Folder(folder) => self.find_in(dir, id, &folder, &folded),
            Found::Unwatched => self.search(dir, id, &folded),
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
        let Some(known) = self.known(dir, id, folder, &mut names)? else {
            drop(names);
            self.give_up(id);
            return self.search(dir, id, folded);
        };
        let found = known.find(self.hasher.hash_one(folded), folded);
        let fits = self.make_room(id);
        drop(names);
        if !fits {
            self.give_up(id);
        }
        Ok(found)
    }

    /// Returns a folder's names as of now, reading the folder if necessary. `None` if there are too many.
    fn known<'a>(
        &self,
        dir: BorrowedFd<'_>,
        id: FileId,
        folder: &Folder,
        names: &'a mut Option<Table>,
    ) -> rustix::io::Result<Option<&'a mut Table>> {
        let (events, lost) = folder.pending().take();
        if lost {
            *names = None;
        }
        if names.is_none() {
            // Waiting events happened before the reading. Events during it are applied the next time.
            *names = self.scan(dir, id)?;
        } else if let Some(names) = names {
            self.apply(names, events);
        }
        Ok(names.as_mut())
    }

    /// Returns whether a large folder must be read before [`Self::find`] is quick. The first caller reads it
    /// by [`Self::read_for`]; the callbacks that `then` makes for the others are called afterwards.
    pub(super) fn begin(&self, dir: BorrowedFd<'_>, id: FileId, then: &dyn Fn() -> Task) -> Begun {
        let Found::Folder(folder) = self.folder(dir, id) else {
            return Begun::Needless;
        };
        let mut reading = folder.reading();
        if let Some(waiting) = &mut *reading {
            waiting.push(then());
            return Begun::UnderWay;
        }
        // If another thread holds it, that thread knows the names or is reading them: wait for it.
        let is_unread = folder
            .names
            .try_lock()
            .is_some_and(|names| names.is_none() || folder.pending().lost);
        if !is_unread {
            return Begun::Needless;
        }
        *reading = Some(vec![then()]);
        drop(reading);
        Begun::Read(Reading(folder))
    }

    /// Reads the folder.
    pub(super) fn read_for(&self, reading: &Reading, dir: BorrowedFd<'_>, id: FileId) {
        let folder = &reading.0;
        let mut names = folder.lock();
        // The next lookup meets the same error.
        let is_too_large = matches!(self.known(dir, id, folder, &mut names), Ok(None));
        drop(names);
        if is_too_large {
            self.give_up(id);
        }
    }

    /// Returns the folder's index, with all events up to now waiting in it.
    fn folder(&self, dir: BorrowedFd<'_>, id: FileId) -> Found {
        let mut watched = self.lock();
        watched.drain(self.bounds.bytes);
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
            || (self.spent.bytes() > self.bounds.bytes && !watched.folders.is_empty())
        {
            watched.drop_oldest(None);
        }
        let added = match watched.add(dir, id, now, &self.spent) {
            // The user's limit of watches is reached: drop one of ours.
            Err(Errno::NOSPC) if watched.drop_oldest(None) => watched.add(dir, id, now, &self.spent),
            added => added,
        };
        added.map_or(Found::Unwatched, Found::Folder)
    }

    /// Returns the number of indexed folders, and bytes.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.lock().folders.len(), self.spent.bytes())
    }

    /// Drops other folders until the budget is kept; returns `false` if this one alone exceeds it.
    fn make_room(&self, id: FileId) -> bool {
        while self.spent.bytes() > self.bounds.bytes {
            if !self.lock().drop_oldest(Some(id)) {
                return false;
            }
        }
        true
    }

    /// Records a folder as too large to keep.
    fn give_up(&self, id: FileId) {
        let mut watched = self.lock();
        watched.drop_folder(id);
        if watched.large.len() >= LARGE_MAX {
            watched.large.clear();
        }
        watched.large.insert(id);
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock()
    }

    /// Reads a whole folder; `None` if it is too large to keep.
    fn scan(&self, dir: BorrowedFd<'_>, id: FileId) -> rustix::io::Result<Option<Table>> {
        let mut table = Table::new(self.spent.clone());
        self.read(dir, |name| {
            table.insert(self.hash(name), name);
            self.make_room(id)
        })
        .map(|whole| whole.then_some(table))
    }

    /// Searches a folder that has no index.
    fn search(&self, dir: BorrowedFd<'_>, id: FileId, folded: &[u8]) -> rustix::io::Result<Option<Name>> {
        let mut found: Option<Name> = None;
        let mut bytes = 0_usize;
        self.read(dir, |name| {
            bytes += name.len() + OVERHEAD_BYTES;
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
        if bytes < self.bounds.bytes / 5 * 4 {
            // It was too large, and is not any more, or another one was read at the same time.
            self.lock().large.remove(&id);
        }
        Ok(found)
    }

    /// Reads a folder's names until `each` returns false; returns true at the end.
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
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." && !each(name) {
                        return Ok(false);
                    }
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn apply(&self, names: &mut Table, events: Vec<Event>) {
        for Event { name, there } in events {
            let name = name.as_bytes();
            if there {
                names.insert(self.hash(name), name);
            } else {
                names.remove(self.hash(name), name);
            }
        }
    }

    fn hash(&self, name: &[u8]) -> u64 {
        self.hasher.hash_one(fold::fold(name).as_slice())
    }
}

/// Whether a large folder has to be read first.
pub(super) enum Begun {
    /// It need not be, or reading would not help.
    Needless,
    /// Another caller is reading it.
    UnderWay,
    /// The caller is to read it.
    Read(Reading),
}

/// The task of reading a folder. Its drop calls all waiting callbacks, whatever came of it.
pub(super) struct Reading(Arc<Folder>);

impl Drop for Reading {
    fn drop(&mut self) {
        let waiting = self.0.reading().take();
        for task in waiting.into_iter().flatten() {
            task();
        }
    }
}

enum Found {
    Folder(Arc<Folder>),
    Unwatched,
    Needless,
}

impl Watched {
    /// Reads all waiting events. If they exceed the budget, their folder loses its index.
    fn drain(&mut self, bytes_max: usize) {
        let Some(inotify) = self.inotify.take() else {
            return;
        };
        let mut is_overflown = false;
        // An error of reading leaves the events for the next time.
        while !is_overflown
            && inotify
                .read(|event| {
                    is_overflown |= event.flags.contains(ReadFlags::QUEUE_OVERFLOW);
                    if !is_overflown {
                        self.deliver(event, bytes_max);
                    }
                })
                .unwrap_or(false)
        {}
        if is_overflown {
            // No index can be trusted any more. A new instance has no old events.
            self.folders.clear();
            self.ids.clear();
        } else {
            self.inotify = Some(inotify);
        }
    }

    fn deliver(&mut self, event: inotify::Event, bytes_max: usize) {
        let Some(id) = self.ids.get(&event.watch).copied() else {
            return;
        };
        if event.flags.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT) {
            self.ids.remove(&event.watch);
            self.folders.remove(&id);
            return;
        }
        if let (Some(folder), Some(name)) = (self.folders.get(&id), event.name) {
            let there = event.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
            folder.pending().add(Event { name, there }, bytes_max);
        }
    }

    fn add(
        &mut self,
        dir: BorrowedFd<'_>,
        id: FileId,
        now: u64,
        spent: &Spent,
    ) -> rustix::io::Result<Arc<Folder>> {
        let inotify = match self.inotify.take() {
            Some(inotify) => inotify,
            None => Instance::new()?,
        };
        let inotify = self.inotify.insert(inotify);
        let watch = inotify.add(dir, WATCH)?;
        let folder = Arc::new(Folder {
            watch,
            used: AtomicU64::new(now),
            names: Mutex::new(None),
            pending: Mutex::new(Pending::new(spent.clone())),
            reading: Mutex::default(),
        });
        self.ids.insert(watch, id);
        self.folders.insert(id, Arc::clone(&folder));
        Ok(folder)
    }

    /// Drops the least recently used folder other than `spared`; returns `false` if there is none.
    fn drop_oldest(&mut self, spared: Option<FileId>) -> bool {
        let oldest = self
            .folders
            .iter()
            .filter(|(id, _)| Some(**id) != spared)
            .min_by_key(|(_, folder)| folder.used.load(Ordering::Relaxed))
            .map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.drop_folder(id);
        }
        oldest.is_some()
    }

    fn drop_folder(&mut self, id: FileId) {
        let Some(folder) = self.folders.remove(&id) else {
            return;
        };
        self.ids.remove(&folder.watch);
        if let Some(inotify) = &self.inotify {
            inotify.remove(folder.watch);
        }
    }
}

impl Folder {
    fn lock(&self) -> MutexGuard<'_, Option<Table>> {
        self.names.lock()
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock()
    }

    fn reading(&self) -> MutexGuard<'_, Option<Vec<Task>>> {
        self.reading.lock()
    }
}

impl Pending {
    fn new(spent: Spent) -> Self {
        Self {
            events: Vec::new(),
            own: 0,
            spent,
            lost: false,
        }
    }

    fn add(&mut self, event: Event, bytes_max: usize) {
        if self.lost {
            return;
        }
        let bytes = size_of::<Event>() + EVENT_OVERHEAD_BYTES + event.name.as_bytes().len();
        self.spent.change(self.own, self.own + bytes);
        self.own += bytes;
        self.events.push(event);
        // An eighth above the budget: a budget full of names must not cause a reading at each event.
        if self.events.len() > PENDING_MAX || self.spent.bytes() > bytes_max + bytes_max / 8 {
            self.forget();
            self.lost = true;
        }
    }

    /// Takes the events, and whether some are missing: then the folder must be read again.
    fn take(&mut self) -> (Vec<Event>, bool) {
        let events = std::mem::take(&mut self.events);
        self.forget();
        (events, std::mem::take(&mut self.lost))
    }

    fn forget(&mut self) {
        self.events = Vec::new();
        self.spent.change(self.own, 0);
        self.own = 0;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.forget();
    }
}
