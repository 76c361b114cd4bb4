//! The recycle bin of a share: files that clients delete are kept for some days in a folder of the share.
//!
//! ```text
//! .recycle/2026-11-26/photos/a.jpg          deleted that day (UTC), beneath its own folders
//! .recycle/2026-11-26 134507/photos/a.jpg   another one of that name, at 13:45:07
//! ```
//! To get a file back, a user moves it out. What is deleted in the bin itself is gone. Not kept are
//! folders, links, names of files that have other names, and files larger than the bin. A file that
//! cannot be moved, because the disk is full or the bin is on another volume, is removed: deleting must
//! always be possible.
//!
//! A thread removes what is too old, and the oldest files while the bin is too large. Folders in the bin
//! whose names are no dates are users' own: they are counted, and stay.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::{Condvar, Mutex};
use ropeway_vfs::store::{Access, NewNode, NodeOpen, Store};
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Name, Op, RelPath, Result};

/// Name of the bin in the share's topmost folder, as with Samba's `vfs_recycle`.
const FOLDER: &str = ".recycle";
/// Time between two looks for files that are too old.
const ROUND: Duration = Duration::from_secs(3600);
/// Least time between two cleanings: a cleaning reads the whole bin.
const PAUSE: Duration = Duration::from_secs(5);
/// Files of one path that can be deleted in one second and kept. A guess; what comes then is removed.
const SAME_SECOND_MAX: u32 = 9;

/// What a bin keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecycleLimits {
    /// Days for which files are kept.
    pub days: u32,
    /// Bytes of all files in it.
    pub bytes: u64,
}

/// What a cleaning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Removed {
    files: u64,
    bytes: u64,
}

/// The recycle bin of a share.
pub struct RecycleBin {
    store: Arc<dyn Store>,
    limits: RecycleLimits,
    /// Whether files of a name are removed at once.
    is_left_out: fn(&Name) -> bool,
    level: Arc<Level>,
}

/// How full a bin is; its thread waits here.
#[derive(Default)]
struct Level {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes in the bin as far as known.
    bytes: u64,
    /// Whether there are more than allowed.
    is_over: bool,
    /// Whether the bin was dropped.
    has_ended: bool,
}

impl RecycleBin {
    /// Returns the bin of a store. A thread cleans it now and every hour, until it is dropped.
    /// Files for whose names `is_left_out` is true are removed at once.
    pub fn start(store: Arc<dyn Store>, limits: RecycleLimits, is_left_out: fn(&Name) -> bool) -> Arc<Self> {
        let bin = Arc::new(Self::new(store, limits, is_left_out));
        let (weak, level) = (Arc::downgrade(&bin), Arc::clone(&bin.level));
        let spawned = thread::Builder::new()
            .name("recycle-bin".to_owned())
            .spawn(move || clean_on(&weak, &level));
        if let Err(error) = spawned {
            tracing::warn!(%error, "the recycle bin will not be cleaned");
        }
        bin
    }

    fn new(store: Arc<dyn Store>, limits: RecycleLimits, is_left_out: fn(&Name) -> bool) -> Self {
        Self {
            store,
            limits,
            is_left_out,
            level: Arc::default(),
        }
    }

    /// Moves a file into the bin instead of removing its name. Returns `false` if it is to be removed.
    ///
    /// # Errors
    /// `Gone` if the name belongs to another node by now.
    pub(crate) fn take(&self, id: FileId, path: &RelPath) -> Result<bool> {
        self.take_at(id, path, now())
    }

    fn take_at(&self, id: FileId, path: &RelPath, now: Timestamp) -> Result<bool> {
        let Some(size) = self.wanted(id, path) else {
            return Ok(false);
        };
        for folder in folders(now) {
            match self.move_to(&folder, id, path) {
                Ok(()) => {
                    self.added(size);
                    return Ok(true);
                }
                // A file or a folder of that name was deleted before.
                Err(error) if is_taken(error.kind) => {}
                Err(error) if error.kind == ErrorKind::Gone => return Err(error),
                Err(error) => {
                    tracing::warn!(%path, %error, "a deleted file cannot be kept in the recycle bin");
                    return Ok(false);
                }
            }
        }
        tracing::warn!(%path, "a deleted file is not kept: the recycle bin has too many of that name");
        Ok(false)
    }

    fn added(&self, size: u64) {
        let mut state = self.level.state.lock();
        state.bytes = state.bytes.saturating_add(size);
        if state.bytes > self.limits.bytes {
            state.is_over = true;
            self.level.changed.notify_one();
        }
    }

    /// Returns the size of a file that is to be kept.
    fn wanted(&self, id: FileId, path: &RelPath) -> Option<u64> {
        if path.strip_prefix(&top()).is_some()
            || path.file_name().is_some_and(|name| (self.is_left_out)(&name))
        {
            return None;
        }
        let stat = self.store.look(path).ok()?;
        let is_last_name = stat.links <= 1;
        (stat.kind == Kind::File && stat.id == id && is_last_name && stat.size <= self.limits.bytes)
            .then_some(stat.size)
    }

    fn move_to(&self, folder: &RelPath, id: FileId, path: &RelPath) -> Result<()> {
        let to = folder.join_path(path);
        let mut made = RelPath::root();
        for name in to.parent().iter().flat_map(RelPath::components) {
            made = made.join(&name);
            self.make_folder(&made)?;
        }
        self.store.rename_node(id, path, &to, false)
    }

    fn make_folder(&self, path: &RelPath) -> Result<()> {
        let new = NewNode {
            directory: true,
            dos_attributes: None,
        };
        let how = NodeOpen {
            create: Some(new),
            // Nothing is put where a link leads.
            link_itself: true,
            ..NodeOpen::default()
        };
        let opened = self.store.open(path, &how)?;
        match opened.stat.kind {
            Kind::Directory => Ok(()),
            _ => Err(Error::new(Op::Create, path, ErrorKind::NotADirectory)),
        }
    }

    /// Removes what is too old, and the oldest files while there are too many bytes.
    ///
    /// # Errors
    /// The bin cannot be read.
    fn clean_at(&self, now: Timestamp) -> Result<Removed> {
        let today = now.to_zoned(TimeZone::UTC).date();
        let mut removed = Removed::default();
        let mut days = Vec::new();
        let mut total = 0_u64;
        for (name, _) in self.list(&top())? {
            let path = top().join(&name);
            let date = date_of(&name);
            if date.is_some_and(|date| is_over(date, today, self.limits.days)) {
                self.each_file(&path, &mut |path, size| {
                    self.remove(path, size, &mut removed);
                    true
                })?;
                self.remove_folders(&path)?;
                continue;
            }
            self.each_file(&path, &mut |_, size| {
                total = total.saturating_add(size);
                true
            })?;
            days.extend(date.map(|_| path));
        }
        // Names of dates are in the order of time.
        days.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        for day in days {
            if total <= self.limits.bytes {
                break;
            }
            self.each_file(&day, &mut |path, size| {
                self.remove(path, size, &mut removed);
                total = total.saturating_sub(size);
                total > self.limits.bytes
            })?;
            self.remove_folders(&day)?;
        }
        self.level.state.lock().bytes = total;
        Ok(removed)
    }

    /// Returns the entries of a folder; none if it is missing.
    fn list(&self, folder: &RelPath) -> Result<Vec<(Name, Kind)>> {
        let itself = NodeOpen {
            access: Access::Read,
            link_itself: true,
            ..NodeOpen::default()
        };
        let opened = match self.store.open(folder, &itself) {
            Err(error) if error.kind == ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut found = Vec::new();
        let mut entries = opened.node.entries()?;
        while let Some((name, stat)) = entries.next()? {
            found.push((name, stat.kind));
        }
        Ok(found)
    }

    /// Calls `act` with path and size of everything at or below a path that is no folder, until it
    /// returns `false`.
    fn each_file(&self, path: &RelPath, act: &mut dyn FnMut(&RelPath, u64) -> bool) -> Result<()> {
        let size = |path: &RelPath| self.store.look(path).map_or(0, |stat| stat.size);
        if self.store.look(path)?.kind != Kind::Directory {
            act(path, size(path));
            return Ok(());
        }
        let mut folders = vec![path.clone()];
        while let Some(folder) = folders.pop() {
            for (name, kind) in self.list(&folder)? {
                let path = folder.join(&name);
                if kind == Kind::Directory {
                    folders.push(path);
                } else if !act(&path, size(&path)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn remove(&self, path: &RelPath, size: u64, removed: &mut Removed) {
        match self.store.remove(path, false) {
            Ok(()) => {
                removed.files += 1;
                removed.bytes += size;
            }
            Err(error) => tracing::warn!(%path, %error, "cannot remove a file from the recycle bin"),
        }
    }

    /// Removes a folder and those below it, as far as they are empty.
    fn remove_folders(&self, folder: &RelPath) -> Result<()> {
        let mut all = vec![folder.clone()];
        let mut at = 0;
        while let Some(folder) = all.get(at).cloned() {
            let below = self.list(&folder)?;
            all.extend(
                below
                    .iter()
                    .filter(|(_, kind)| *kind == Kind::Directory)
                    .map(|(name, _)| folder.join(name)),
            );
            at += 1;
        }
        for folder in all.iter().rev() {
            // Not empty, or in use: it stays until the next time.
            _ = self.store.remove(folder, true);
        }
        Ok(())
    }
}

impl Drop for RecycleBin {
    fn drop(&mut self) {
        self.level.state.lock().has_ended = true;
        self.level.changed.notify_all();
    }
}

/// Cleans a bin until it is dropped.
fn clean_on(bin: &Weak<RecycleBin>, level: &Level) {
    while let Some(bin) = bin.upgrade() {
        level.state.lock().is_over = false;
        match bin.clean_at(now()) {
            Ok(Removed { files: 0, .. }) => {}
            Ok(Removed { files, bytes }) => tracing::info!(files, bytes, "removed from the recycle bin"),
            Err(error) => tracing::warn!(%error, "cannot clean the recycle bin"),
        }
        drop(bin);
        thread::sleep(PAUSE);
        let mut state = level.state.lock();
        if !state.is_over && !state.has_ended {
            level.changed.wait_for(&mut state, ROUND);
        }
    }
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Returns the bin's path.
fn top() -> RelPath {
    RelPath::parse(FOLDER.as_bytes()).unwrap_or(RelPath::root())
}

/// Returns the folders for files that are deleted now, the usual one first.
fn folders(now: Timestamp) -> Vec<RelPath> {
    let now = now.to_zoned(TimeZone::UTC);
    let day = now.strftime("%Y-%m-%d").to_string();
    let second = now.strftime("%Y-%m-%d %H%M%S").to_string();
    let more = (2..=SAME_SECOND_MAX).map(|number| format!("{second} {number}"));
    let names = [day, second.clone()].into_iter().chain(more);
    names
        .filter_map(|name| RelPath::parse(format!("{FOLDER}/{name}").as_bytes()))
        .collect()
}

/// Returns the date with which a folder's name begins, if the bin made it.
fn date_of(name: &Name) -> Option<Date> {
    let name = std::str::from_utf8(name.as_bytes()).ok()?;
    let (date, rest) = name.split_at_checked(10)?;
    let is_own = rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b' ');
    date.parse().ok().filter(|_| is_own)
}

/// Whether a day is over for longer than so many days.
fn is_over(date: Date, today: Date, days: u32) -> bool {
    today
        .since(date)
        .is_ok_and(|age| i64::from(age.get_days()) > i64::from(days))
}

fn is_taken(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::NotEmpty
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Share;
    use crate::testing;
    use ropeway_smb_wire::create::AccessMask;

    const DAY: i64 = 86_400;
    /// 2026-11-26, 13:45:07 UTC.
    const NOON: i64 = 1_795_700_707;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn bin(share: &Share, days: u32, bytes: u64) -> RecycleBin {
        let limits = RecycleLimits { days, bytes };
        RecycleBin::new(Arc::clone(&share.store), limits, |name| {
            name.as_bytes() == b"left out"
        })
    }

    /// Makes a file of some bytes, and deletes it. Returns whether the bin took it.
    fn deleted(share: &Arc<Share>, bin: &RecycleBin, name: &str, bytes: usize, now: i64) -> bool {
        let open = testing::open(share, name, AccessMask::FILE_ALL);
        open.node.write_at(&vec![7; bytes], 0).unwrap();
        let id = open.node.stat().unwrap().id;
        drop(open);
        let path = testing::path(name);
        let taken = bin.take_at(id, &path, at(now)).unwrap();
        if !taken {
            bin.store.remove(&path, false).unwrap();
        }
        taken
    }

    fn all(bin: &RecycleBin) -> Vec<String> {
        let mut found = Vec::new();
        if bin.store.look(&top()).is_ok() {
            let mut add = |path: &RelPath, _| {
                found.push(path.to_string());
                true
            };
            bin.each_file(&top(), &mut add).unwrap();
        }
        found.sort();
        found
    }

    #[test]
    fn deleted_files_are_kept_beneath_their_own_folders() {
        let share = testing::share();
        let bin = bin(&share, 30, 1000);
        testing::folder(&share, "a");
        for second in 0..2 {
            assert!(deleted(&share, &bin, "a/f", 10, NOON + second));
        }
        assert_eq!(
            all(&bin),
            [".recycle/2026-11-26 134508/a/f", ".recycle/2026-11-26/a/f"]
        );
        let mut taken = 0;
        for _ in 0..20 {
            taken += usize::from(deleted(&share, &bin, "a/f", 10, NOON));
        }
        assert_eq!(taken, 9, "so many of one name in one second");
    }

    #[test]
    fn a_folder_of_a_deleted_files_name_is_no_obstacle() {
        let share = testing::share();
        let bin = bin(&share, 30, 1000);
        assert!(deleted(&share, &bin, "a", 10, NOON));
        testing::folder(&share, "a");
        assert!(deleted(&share, &bin, "a/f", 10, NOON));
        assert_eq!(
            all(&bin),
            [".recycle/2026-11-26 134507/a/f", ".recycle/2026-11-26/a"]
        );
    }

    #[test]
    fn not_everything_is_kept() {
        let share = testing::share();
        let bin = bin(&share, 30, 1000);
        assert!(!deleted(&share, &bin, "left out", 10, NOON));
        assert!(!deleted(&share, &bin, "large", 1001, NOON));
        assert!(deleted(&share, &bin, "kept", 10, NOON));
        assert!(!deleted(&share, &bin, ".recycle/2026-11-26/new", 10, NOON));
        testing::open(&share, "one", AccessMask::FILE_ALL);
        bin.store
            .link(&testing::path("one"), &testing::path("two"), false)
            .unwrap();
        let id = bin.store.look(&testing::path("one")).unwrap().id;
        assert!(!bin.take_at(id, &testing::path("one"), at(NOON)).unwrap());
        // Another file has the name by now.
        let kept = bin
            .store
            .look(&testing::path(".recycle/2026-11-26/kept"))
            .unwrap()
            .id;
        assert!(!bin.take_at(kept, &testing::path("two"), at(NOON)).unwrap());
        assert_eq!(all(&bin), [".recycle/2026-11-26/kept"]);
    }

    #[test]
    fn what_is_too_old_is_removed_with_its_folders() {
        let share = testing::share();
        let bin = bin(&share, 30, 1000);
        testing::folder(&share, "a");
        assert!(deleted(&share, &bin, "a/old", 10, NOON - 31 * DAY));
        assert!(deleted(&share, &bin, "a/young", 10, NOON - 30 * DAY));
        testing::folder(&share, ".recycle/2020-01-01 mine");
        testing::open(&share, ".recycle/2020-01-01 mine/f", AccessMask::FILE_ALL);
        let removed = bin.clean_at(at(NOON)).unwrap();
        assert_eq!(removed, Removed { files: 1, bytes: 10 });
        assert_eq!(
            all(&bin),
            [".recycle/2020-01-01 mine/f", ".recycle/2026-10-27/a/young"]
        );
        assert_eq!(bin.list(&top()).unwrap().len(), 2);
    }

    #[test]
    fn the_oldest_go_while_there_are_too_many_bytes() {
        let share = testing::share();
        let bin = bin(&share, 30, 100);
        for (age, name) in [(2, "b"), (3, "a"), (1, "c")] {
            assert!(deleted(&share, &bin, name, 40, NOON - age * DAY));
        }
        assert!(bin.level.state.lock().is_over);
        assert_eq!(bin.clean_at(at(NOON)).unwrap(), Removed { files: 1, bytes: 40 });
        assert_eq!(all(&bin), [".recycle/2026-11-24/b", ".recycle/2026-11-25/c"]);
        assert_eq!(bin.level.state.lock().bytes, 80);
    }

    #[test]
    fn a_link_in_the_bins_place_is_not_followed() {
        let share = testing::share();
        let bin = bin(&share, 30, 100);
        testing::folder(&share, "elsewhere");
        bin.store.symlink(&top(), b"elsewhere").unwrap();
        assert!(!deleted(&share, &bin, "f", 10, NOON));
        assert!(bin.list(&testing::path("elsewhere")).unwrap().is_empty());
    }
}
