//! Earlier states of a folder, which other programs make: snapshots of btrfs, ZFS or LVM, or copies by
//! date. Each is a folder whose name says when it was made.
//!
//! | made by | lies in | name |
//! |---|---|---|
//! | ZFS, sanoid, zfs-auto-snapshot | `.zfs/snapshot` | `autosnap_2026-11-26_04:25:00_daily`, `zfs-auto-snap_hourly-2026-11-26-0425` |
//! | snapper | `.snapshots/7/snapshot` | a number; the time is in `.snapshots/7/info.xml`, in UTC |
//! | btrbk, rsync and others | any folder | `photos.20261126T0425`, `2026-11-26` |
//! | Samba's `shadow_copy2` | any folder | `@GMT-2026.11.26-04.25.00`, in UTC |
//!
//! A name holds a year of four digits, month and day, and perhaps hours, minutes and seconds, with or without one
//! separator between them. It is local time unless `Z` or `UTC` follows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use ropeway_vfs::store::{Snapshots, Store};
use ropeway_vfs::{Error, ErrorKind, Name, Op, RelPath, Result};
use rustix::fs::{Dir, OFlags};

use crate::beneath::{Links, Root, fault};
use crate::store::{LocalStore, StoreOptions};

/// Maximum number of snapshots; the newest ones count. A guess: ZFS keeps thousands at most.
const SNAPSHOTS_MAX: usize = 10_000;
/// Maximum number of names that are read to find them.
const NAMES_MAX: usize = 100_000;
/// Time after which the folder is listed again although it does not seem to have changed.
const LISTED_MAX: Duration = Duration::from_secs(3);
/// Bytes of an `info.xml` that are read.
const INFO_MAX: u64 = 64 << 10;
/// Where snapshots are looked for, in the folder and in those above it.
const PLACES: [&str; 2] = [".zfs/snapshot", ".snapshots"];

/// The snapshots of a folder.
///
/// The folder in which they lie is opened once, and no symbolic link in it is followed on the way to a
/// snapshot: where clients may write there, they cannot lead out of it.
pub struct SnapshotFolder {
    /// Folder in which they lie.
    root: Root,
    /// Its path, for messages.
    parent: PathBuf,
    /// Path from a snapshot to what is shared.
    below: PathBuf,
    options: StoreOptions,
    zone: TimeZone,
    /// The last listing.
    listed: Mutex<Option<Listed>>,
}

/// The snapshots as they were found.
struct Listed {
    at: Instant,
    /// When the folder had last changed.
    folder_changed: Option<SystemTime>,
    by_time: Arc<BTreeMap<i64, Name>>,
}

impl SnapshotFolder {
    /// Returns the snapshots in a folder. A component `*` of the pattern stands for their names, as in
    /// `/data/.snapshots/*/snapshot`; otherwise they lie in the folder itself.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without such a folder; [`ErrorKind::NameRefused`] for more than one `*`.
    pub fn new(pattern: &Path, options: &StoreOptions) -> Result<Self> {
        let is_star = |component: &Component<'_>| component.as_os_str() == "*";
        let parent: PathBuf = pattern
            .components()
            .take_while(|component| !is_star(component))
            .collect();
        let below: PathBuf = pattern
            .components()
            .skip_while(|component| !is_star(component))
            .skip(1)
            .collect();
        if below
            .components()
            .any(|component| !matches!(component, Component::Normal(_)) || is_star(&component))
        {
            return Err(refused(ErrorKind::NameRefused));
        }
        let root = Root::open(&parent, Links::Refused).map_err(|error| failed(Op::Open, error))?;
        Ok(Self::of(root, parent, below, options))
    }

    fn of(root: Root, parent: PathBuf, below: PathBuf, options: &StoreOptions) -> Self {
        Self {
            root,
            parent,
            below,
            options: options.clone(),
            zone: TimeZone::system(),
            listed: Mutex::default(),
        }
    }

    /// Looks for the snapshots of `folder` where ZFS and snapper keep them: in the folder, or in one
    /// above it that is snapshotted as a whole. `None` if there are none.
    ///
    /// # Errors
    /// The folder cannot be found.
    pub fn find(folder: &Path, options: &StoreOptions) -> Result<Option<Self>> {
        let folder = folder.canonicalize().map_err(|error| failed(Op::Open, error))?;
        for above in folder.ancestors() {
            let within = folder.strip_prefix(above).unwrap_or(Path::new(""));
            let root = Root::open(above, Links::Refused).map_err(|error| failed(Op::Open, error))?;
            for place in PLACES {
                let path = RelPath::parse(place.as_bytes()).unwrap_or_default();
                // Whoever may write in the folder must not lead elsewhere by a link of that name.
                let Ok(root) = root.below(&path, Links::Refused) else {
                    continue;
                };
                let mut found = Self::of(root, above.join(place), PathBuf::new(), options);
                // snapper keeps `.snapshots/7/snapshot` beside `info.xml`.
                let names = found.names()?;
                if names.iter().any(|name| found.info_of(name).is_some()) {
                    found.below.push("snapshot");
                }
                found.below = found.below.join(within).components().collect();
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the folder in which they lie.
    pub fn parent(&self) -> &Path {
        &self.parent
    }

    /// Returns the names of the snapshots by their times. A listing holds until the folder changes, and some
    /// seconds at most: not every file system says when it changed.
    fn by_time(&self) -> Result<Arc<BTreeMap<i64, Name>>> {
        let folder = File::from(self.root.dir(Op::List, &RelPath::root())?);
        let folder_changed = folder.metadata().and_then(|metadata| metadata.modified()).ok();
        if let Some(listed) = &*self.listed.lock()
            && listed.folder_changed == folder_changed
            && listed.at.elapsed() < LISTED_MAX
        {
            return Ok(Arc::clone(&listed.by_time));
        }
        let by_time = Arc::new(self.list()?);
        *self.listed.lock() = Some(Listed {
            at: Instant::now(),
            folder_changed,
            by_time: Arc::clone(&by_time),
        });
        Ok(by_time)
    }

    fn list(&self) -> Result<BTreeMap<i64, Name>> {
        let mut found = BTreeMap::new();
        for name in self.names()? {
            let text = std::str::from_utf8(name.as_bytes()).ok();
            let time = text.and_then(|text| time_of(text, &self.zone));
            let time = time.or_else(|| time_in(&self.info_of(&name)?));
            if let Some(time) = time {
                found.entry(time).or_insert(name);
                if found.len() > SNAPSHOTS_MAX {
                    found.pop_first();
                }
            }
        }
        Ok(found)
    }

    /// Returns the names in the folder in order.
    fn names(&self) -> Result<Vec<Name>> {
        let folder = self.root.dir(Op::List, &RelPath::root())?;
        let entries = Dir::new(folder).map_err(|error| failed(Op::List, error.into()))?;
        let mut names = Vec::new();
        for entry in entries.take(NAMES_MAX) {
            let entry = entry.map_err(|error| failed(Op::List, error.into()))?;
            // `.` and `..` are no names.
            names.extend(Name::new(entry.file_name().to_bytes()));
        }
        names.sort();
        Ok(names)
    }

    /// Reads what snapper wrote beside a snapshot, whose name is a number.
    fn info_of(&self, name: &Name) -> Option<String> {
        if !name.as_bytes().iter().all(u8::is_ascii_digit) {
            return None;
        }
        let path = RelPath::root().join(name).join(&Name::new(b"info.xml")?);
        // A FIFO of that name must not hold anything up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(self.root.open_at(&path, flags, 0).ok()?);
        let mut text = String::new();
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        file.take(INFO_MAX).read_to_string(&mut text).ok()?;
        is_file.then_some(text)
    }
}

/// Returns the time that snapper wrote, in UTC.
fn time_in(info: &str) -> Option<i64> {
    let (_, date) = info.split_once("<date>")?;
    time_of(date.split('<').next()?, &TimeZone::UTC)
}

impl Snapshots for SnapshotFolder {
    fn times(&self) -> Result<Vec<i64>> {
        Ok(self.by_time()?.keys().rev().copied().collect())
    }

    fn open(&self, time: i64) -> Result<Arc<dyn Store>> {
        let found = self.by_time()?;
        let name = found.get(&time).ok_or_else(|| refused(ErrorKind::NotFound))?;
        let below = RelPath::parse(self.below.as_os_str().as_bytes());
        let below = below.ok_or_else(|| refused(ErrorKind::NameRefused))?;
        let path = below
            .components()
            .fold(RelPath::root().join(name), |path, part| path.join(&part));
        let store = LocalStore::open_below(&self.root, &path, &self.options)?;
        Ok(Arc::new(store))
    }
}

fn failed(op: Op, error: io::Error) -> Error {
    fault(op, &RelPath::root(), error)
}

fn refused(kind: ErrorKind) -> Error {
    Error::new(Op::Open, &RelPath::root(), kind)
}

/// Returns the time in a name, in seconds since 1970.
fn time_of(name: &str, zone: &TimeZone) -> Option<i64> {
    let bytes = name.as_bytes();
    (0..bytes.len()).find_map(|at| {
        let begins = at == 0 || !bytes[at - 1].is_ascii_digit();
        begins.then(|| time_at(bytes, at, zone)).flatten()
    })
}

/// Parses a time that begins at a place.
fn time_at(bytes: &[u8], at: usize, zone: &TimeZone) -> Option<i64> {
    let (year, at) = number(bytes, at, 4)?;
    let (month, at) = part(bytes, at)?;
    let (day, mut end) = part(bytes, at)?;
    let mut clock = [0; 3];
    if let Some((hour, at)) = part(bytes, end)
        && let Some((minute, at)) = part(bytes, at)
    {
        (clock[0], clock[1], end) = (hour, minute, at);
        if let Some((second, at)) = part(bytes, end) {
            (clock[2], end) = (second, at);
        }
    }
    if bytes.get(end).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let [hour, minute, second] = clock.map(|part| i8::try_from(part).ok());
    let time = DateTime::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day).ok()?,
        hour?,
        minute?,
        second?,
        0,
    );
    let rest = bytes.get(end..).unwrap_or_default();
    let is_utc = bytes.starts_with(b"@GMT-")
        || rest.first() == Some(&b'Z')
        || rest
            .strip_prefix(b"UTC")
            .or_else(|| rest.get(1..)?.strip_prefix(b"UTC"))
            .is_some();
    let zone = if is_utc { TimeZone::UTC } else { zone.clone() };
    Some(time.ok()?.to_zoned(zone).ok()?.timestamp().as_second())
}

/// Parses two digits, after one separator at most.
fn part(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let separated = bytes.get(at).is_some_and(|byte| b"-_.:T ".contains(byte));
    number(bytes, at + usize::from(separated), 2)
}

fn number(bytes: &[u8], at: usize, digits: usize) -> Option<(u32, usize)> {
    let text = bytes.get(at..at + digits)?;
    let is_number = text.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(text).ok()?.parse().ok()?;
    is_number.then_some((value, at + digits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use proptest::prelude::*;

    fn utc(name: &str) -> Option<i64> {
        time_of(name, &TimeZone::UTC)
    }

    #[test]
    fn names_of_the_usual_programs_say_when() {
        let minute = 1_795_667_100;
        for name in [
            "@GMT-2026.11.26-04.25.00",
            "autosnap_2026-11-26_04:25:00_daily",
            "zfs-auto-snap_hourly-2026-11-26-0425",
            "photos.20261126T0425",
            "20261126042500",
            "backup 2026-11-26 04.25",
            "v2 of 2026-11-26T04:25:00Z",
        ] {
            assert_eq!(utc(name), Some(minute), "{name}");
        }
        assert_eq!(utc("2026-11-26"), Some(minute - 4 * 3600 - 25 * 60));
        for name in [
            "",
            "daily.0",
            "2026",
            "2026-13-01",
            "2026-11-26-25-00",
            "120261126",
            "photos 1999",
        ] {
            assert_eq!(utc(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_is_local_time_unless_it_says_otherwise() {
        let east = TimeZone::fixed(jiff::tz::offset(2));
        let minute = 1_795_667_100;
        assert_eq!(time_of("2026-11-26_04-25", &east), Some(minute - 7200));
        for name in [
            "@GMT-2026.11.26-04.25.00",
            "2026-11-26_04-25-00Z",
            "2026-11-26_04-25_UTC",
            "2026-11-26_04-25UTC",
        ] {
            assert_eq!(time_of(name, &east), Some(minute), "{name}");
        }
    }

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn they_are_found_above_the_folder_and_opened_at_the_same_place() {
        let place = tempfile::tempdir().unwrap();
        let shared = place.path().join("pool/photos/2026");
        put(&shared.join("a"), "now");
        let options = StoreOptions::default();
        assert!(SnapshotFolder::find(&shared, &options).unwrap().is_none());
        let parent = place.path().join("pool/.zfs/snapshot");
        put(&parent.join("auto-2026-11-25/photos/2026/a"), "then");
        put(&parent.join("auto-2026-11-26/other"), "no photos yet");
        put(&parent.join("by hand/photos/2026/a"), "when?");
        let found = SnapshotFolder::find(&shared, &options).unwrap().unwrap();
        let times = found.times().unwrap();
        assert_eq!((times.len(), times[0] - times[1]), (2, 86_400));
        assert!(
            found
                .open(times[1])
                .unwrap()
                .look(&RelPath::parse(b"a").unwrap())
                .is_ok()
        );
        for missing in [times[0], times[1] + 1] {
            let error = found.open(missing).map(drop).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
        }
    }

    #[test]
    fn snapper_and_patterns() {
        let place = tempfile::tempdir().unwrap();
        let parent = place.path().join(".snapshots");
        put(&parent.join("7/snapshot/a"), "then");
        put(
            &parent.join("7/info.xml"),
            "<snapshot>\n <date>2026-11-26 04:25:00</date>\n</snapshot>",
        );
        put(&parent.join("8/info.xml"), "<date>never</date>");
        let options = StoreOptions::default();
        let pattern = parent.join("*/snapshot");
        for found in [
            SnapshotFolder::find(place.path(), &options).unwrap().unwrap(),
            SnapshotFolder::new(&pattern, &options).unwrap(),
        ] {
            assert_eq!(found.times().unwrap(), [1_795_667_100]);
            assert!(found.open(1_795_667_100).is_ok());
        }
        assert!(SnapshotFolder::new(&parent.join("*/a/*"), &options).is_err());
        assert!(SnapshotFolder::new(&parent.join("missing/*"), &options).is_err());
        assert!(SnapshotFolder::new(&parent.join("*/../../etc"), &options).is_err());
    }

    /// Whoever may write where the snapshots lie cannot lead out of there.
    #[test]
    fn links_lead_to_no_snapshot() {
        let place = tempfile::tempdir().unwrap();
        let parent = place.path().join("snap");
        put(&place.path().join("elsewhere/data/a"), "secret");
        put(&parent.join("2026-11-26/data/a"), "then");
        put(&parent.join("2026-11-25/other"), "");
        std::os::unix::fs::symlink("../elsewhere", parent.join("2026-11-24")).unwrap();
        std::os::unix::fs::symlink("../../elsewhere/data", parent.join("2026-11-25/data")).unwrap();
        let found = SnapshotFolder::new(&parent.join("*/data"), &StoreOptions::default()).unwrap();
        let times = found.times().unwrap();
        assert_eq!(times.len(), 3);
        assert!(found.open(times[0]).is_ok());
        for time in &times[1..] {
            assert!(found.open(*time).is_err(), "{time}");
        }
        std::os::unix::fs::symlink("elsewhere", place.path().join(".snapshots")).unwrap();
        put(&place.path().join("elsewhere/2026-01-01/a"), "secret");
        let options = StoreOptions::default();
        assert!(SnapshotFolder::find(place.path(), &options).unwrap().is_none());
        // Not even if the whole folder is replaced.
        fs::rename(&parent, place.path().join("away")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &parent).unwrap();
        assert!(found.open(times[0]).is_ok());
    }

    proptest! {
        #[test]
        fn any_name_has_a_time_or_none(name in ".{0,60}", digits in "[0-9TZ:._ @GMUC-]{0,40}") {
            _ = utc(&name);
            _ = utc(&digits);
        }

        #[test]
        fn times_survive_their_names(seconds in 0_i64..4_000_000_000, pad in "[a-z]{0,5}") {
            let time = jiff::Timestamp::from_second(seconds).unwrap().to_zoned(TimeZone::UTC);
            for format in ["%Y-%m-%d_%H:%M:%S", "%Y%m%dT%H%M%S", "%Y.%m.%d-%H.%M.%S"] {
                let name = format!("{pad}-{}", time.strftime(format));
                prop_assert_eq!(utc(&name), Some(seconds), "{}", name);
            }
        }
    }
}
