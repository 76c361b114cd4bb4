//! Cleaning a bin: what is too old goes, and the oldest files while there are too many bytes.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Weak;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ropeway_vfs::store::{Access, NodeOpen, NodeStat};
use ropeway_vfs::{ErrorKind, Kind, Name, RelPath, Result};

use super::{Level, RecycleBin, now, top};

/// Time between two looks for files that are too old.
const ROUND: Duration = Duration::from_secs(3600);
/// Least time between two cleanings: a cleaning reads the whole bin.
const PAUSE: Duration = Duration::from_secs(5);
/// Oldest files of a day that are remembered at once, to remove them in the order in which they were
/// deleted.
const OLDEST_MAX: usize = 10_000;

/// What a cleaning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Cleans a bin until it is dropped or ended.
pub(super) fn clean_on(bin: &Weak<RecycleBin>, level: &Level) {
    while let Some(bin) = bin.upgrade() {
        level.state.lock().is_over = false;
        let Removed { files, bytes } = bin.clean_at(now());
        if files > 0 {
            tracing::info!(files, bytes, "removed from the recycle bin");
        }
        drop(bin);
        thread::sleep(PAUSE);
        let mut state = level.state.lock();
        if !state.is_over && !state.has_ended {
            level.changed.wait_for(&mut state, ROUND);
        }
        if state.has_ended {
            return;
        }
    }
}

impl RecycleBin {
    /// Removes what is too old, and, if there are too many bytes, the oldest files until a tenth of the
    /// bin is free. What cannot be read or removed is logged and stays.
    pub(super) fn clean_at(&self, now: Timestamp) -> Removed {
        let today = now.to_zoned(TimeZone::UTC).date();
        let mut removed = Removed::default();
        let before = self.level.state.lock().bytes;
        let mut total = 0_u64;
        let mut days = self.days();
        days.retain(|date, folders| {
            let is_over = is_over(*date, today, self.limits.days);
            for folder in &*folders {
                self.each_file(folder, &mut |path, stat| match is_over {
                    true => self.remove(path, stat.size, &mut removed),
                    false => total = total.saturating_add(stat.size),
                });
                if is_over {
                    self.remove_folders(folder);
                }
            }
            !is_over
        });
        if total > self.limits.bytes {
            let goal = self.limits.bytes / 10 * 9;
            for folders in days.values() {
                total = self.remove_oldest(folders, total, goal, &mut removed);
            }
        }
        let mut state = self.level.state.lock();
        // What was deleted meanwhile may have been counted or not; the next round knows.
        state.bytes = total.saturating_add(state.bytes.saturating_sub(before));
        removed
    }

    /// Returns the bin's own folders by date. Names of others belong to users.
    fn days(&self) -> BTreeMap<Date, Vec<RelPath>> {
        let mut days: BTreeMap<Date, Vec<RelPath>> = BTreeMap::new();
        let top = top();
        self.each_entry(&top, &mut |name, stat| {
            if let (Kind::Directory, Some(date)) = (stat.kind, date_of(name)) {
                days.entry(date).or_default().push(top.join(name));
            }
        });
        days
    }

    /// Removes files of a day, those that were deleted first before others, until `goal` bytes of `total`
    /// are left. Returns how many are.
    fn remove_oldest(&self, folders: &[RelPath], mut total: u64, goal: u64, removed: &mut Removed) -> u64 {
        while total > goal && !self.has_ended() {
            let mut oldest = BinaryHeap::new();
            for folder in folders {
                self.each_file(folder, &mut |path, stat| {
                    oldest.push((stat.changed.0, path.as_bytes().to_vec(), stat.size));
                    if oldest.len() > OLDEST_MAX {
                        oldest.pop();
                    }
                });
            }
            let files = removed.files;
            for (_, path, size) in oldest.into_sorted_vec() {
                if total <= goal {
                    break;
                }
                if let Some(path) = RelPath::parse(&path) {
                    self.remove(&path, size, removed);
                    total = total.saturating_sub(size);
                }
            }
            if removed.files == files {
                break;
            }
        }
        for folder in folders {
            self.remove_folders(folder);
        }
        total
    }

    fn has_ended(&self) -> bool {
        self.level.state.lock().has_ended
    }

    /// Calls `act` with the entries of a folder. One that cannot be read, or is missing, has none.
    fn each_entry(&self, folder: &RelPath, act: &mut dyn FnMut(&Name, &NodeStat)) {
        let mut read = || -> Result<()> {
            let itself = NodeOpen {
                access: Access::Read,
                link_itself: true,
                ..NodeOpen::default()
            };
            let mut entries = self.store.open(folder, &itself)?.node.entries()?;
            while let Some((name, stat)) = entries.next()? {
                act(&name, &stat);
            }
            Ok(())
        };
        match read() {
            Err(error) if error.kind != ErrorKind::NotFound => {
                tracing::warn!(%folder, %error, "cannot read a folder of the recycle bin");
            }
            _ => {}
        }
    }

    /// Calls `act` with everything below a folder that is no folder, until the bin ends.
    pub(super) fn each_file(&self, folder: &RelPath, act: &mut dyn FnMut(&RelPath, &NodeStat)) {
        let mut folders = vec![folder.clone()];
        while let Some(folder) = folders.pop() {
            self.each_entry(&folder, &mut |name, stat| {
                let path = folder.join(name);
                match stat.kind {
                    Kind::Directory => folders.push(path),
                    _ if self.has_ended() => {}
                    _ => act(&path, stat),
                }
            });
        }
    }

    fn remove(&self, path: &RelPath, size: u64, removed: &mut Removed) {
        match self.store.remove(path, false) {
            Ok(()) => {
                removed.files += 1;
                removed.bytes += size;
            }
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%path, %error, "cannot remove a file from the recycle bin"),
        }
    }

    /// Removes a folder and those below it, as far as they are empty.
    fn remove_folders(&self, folder: &RelPath) {
        let mut all = vec![folder.clone()];
        let mut at = 0;
        while let Some(folder) = all.get(at).cloned() {
            self.each_entry(&folder, &mut |name, stat| {
                if stat.kind == Kind::Directory {
                    all.push(folder.join(name));
                }
            });
            at += 1;
        }
        for folder in all.iter().rev() {
            let _alone = self.folders.write();
            // Not empty, or in use: it stays until the next time.
            _ = self.store.remove(folder, true);
        }
    }
}

/// Returns the date with which a folder's name begins, if the bin made it.
fn date_of(name: &Name) -> Option<Date> {
    let name = std::str::from_utf8(name.as_bytes()).ok()?;
    let (date, rest) = name.split_at_checked(10)?;
    let is_own = rest.is_empty()
        || rest
            .strip_prefix(' ')
            .is_some_and(|time| time.len() == 4 && time.bytes().all(|byte| byte.is_ascii_digit()));
    date.parse().ok().filter(|_| is_own)
}

/// Whether a day is over for longer than so many days.
fn is_over(date: Date, today: Date, days: u32) -> bool {
    today
        .since(date)
        .is_ok_and(|age| i64::from(age.get_days()) > i64::from(days))
}
