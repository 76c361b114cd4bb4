//! What the source of a job is, so that a worker notices that its own is another one.
//!
//! A worker whose source is not mounted finds an empty folder. Device and inode numbers differ from
//! machine to machine, and so may the path, so [`SourceMark`] keeps a random sample of what lies at
//! the top of the tree: names, kinds, and times of change. A source may change while it is copied;
//! so half of the names must still be there, and one of them unchanged.
//!
//! A worker whose account may not read what `submit` could read would copy nothing and report all of it as failed.
//! So some nodes of the sample are opened too.

use std::collections::BTreeMap;

use ropeway_vfs::{CacheMode, Error, ErrorKind, Kind, Metadata, Name, OpenOptions, RelPath, Result, Tree};
use serde::{Deserialize, Serialize};

use crate::files::is_of_ropeway;
use crate::task::nanoseconds;

/// Entries of the root in the sample.
const NAMES: usize = 24;
/// Folders of which entries are in the sample too, and how many of each.
const FOLDERS: (usize, usize) = (4, 4);
/// Entries of one folder that are looked at.
const SEEN_MAX: usize = 4_096;
/// Mounted volumes of which entries are in the sample at most.
const MOUNTED_MAX: usize = 64;
/// Files, and folders, that are opened. A guess: few, since workers do it before each report.
const OPENED_MAX: usize = 4;
/// Difference of times that still counts as none: FAT rounds to two seconds.
const TIME_TOLERANCE_NS: u64 = 2_000_000_000;
/// Number of marks from which one must be unchanged.
const UNCHANGED_FROM: usize = 4;

/// One node of the sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// Hexadecimal: names need not be text.
    path: String,
    folder: bool,
    modified: i64,
    /// Whether `submit` could read it, and workers try to.
    #[serde(default)]
    readable: bool,
}

/// A sample of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceMark(Vec<Mark>);

/// How much of a sample a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Nodes in the sample.
    pub known: usize,
    /// Those that are there.
    pub found: usize,
    /// Those that are there and not changed.
    pub unchanged: usize,
}

impl Match {
    /// Whether a source that matches so far may be that of the job, for a worker that begins.
    pub fn may_begin(&self) -> bool {
        self.may_go_on() && (self.known < UNCHANGED_FROM || self.unchanged > 0)
    }

    /// The same for a worker that is at work: it began with the right one.
    pub fn may_go_on(&self) -> bool {
        self.found * 2 >= self.known
    }
}

impl SourceMark {
    /// Takes a sample of a source.
    ///
    /// # Errors
    /// Its root cannot be listed.
    pub async fn take(source: &dyn Tree, random: &mut fastrand::Rng) -> Result<Self> {
        let (mut marks, mut folders) = (Vec::new(), Vec::new());
        for (name, metadata) in sample(source, &RelPath::root(), NAMES, random).await? {
            let path = RelPath::root().join(&name);
            marks.push(Mark::new(&path, &metadata));
            if metadata.kind == Kind::Directory {
                folders.push((path, metadata.is_mount_root));
            }
        }
        random.shuffle(&mut folders);
        // What is mounted in the source may be missing elsewhere, or later.
        folders.sort_by_key(|(_, is_mount_root)| !is_mount_root);
        let mounted = folders.iter().filter(|(_, is_mount_root)| *is_mount_root).count();
        for (folder, _) in folders.iter().take(mounted + FOLDERS.0) {
            // A folder that cannot be read is told when it is copied.
            let inside = sample(source, folder, FOLDERS.1, random)
                .await
                .unwrap_or_default();
            marks.extend((inside.iter()).map(|(name, metadata)| Mark::new(&folder.join(name), metadata)));
        }
        let (mut files, mut folders) = (0, 0);
        for mark in &mut marks {
            let opened = if mark.folder { &mut folders } else { &mut files };
            if *opened < OPENED_MAX
                && let Some(path) = mark.path()
                && read(source, &path, mark.folder).await.is_ok()
            {
                mark.readable = true;
                *opened += 1;
            }
        }
        Ok(Self(marks))
    }

    /// Whether the source had nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares a source with the sample.
    ///
    /// # Errors
    /// It cannot be examined. What is not there is no error.
    pub async fn compare(&self, source: &dyn Tree) -> Result<Match> {
        Ok(self.examine(source).await?.0)
    }

    /// Checks that this process may read what `submit` could read. A node whose permissions somebody changed in the
    /// meantime proves nothing, so it is refused only if it may read no file of the sample, or no folder.
    ///
    /// # Errors
    /// It may not, or the source does not answer.
    pub async fn check_access(&self, source: &dyn Tree) -> Result<()> {
        for folder in [false, true] {
            let mut denied: Option<Error> = None;
            for mark in (self.0.iter()).filter(|mark| mark.readable && mark.folder == folder) {
                let Some(path) = mark.path() else { continue };
                match read(source, &path, folder).await {
                    Err(error) if error.kind == ErrorKind::PermissionDenied => denied = Some(error),
                    Err(error) if error.verdict() == ropeway_vfs::Verdict::Abort => return Err(error),
                    Err(_) => {}
                    Ok(()) => {
                        denied = None;
                        break;
                    }
                }
            }
            if let Some(error) = denied {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Compares a source with the sample. Returns also the folders of the sample that have none of the nodes any more
    /// that were seen in them.
    ///
    /// # Errors
    /// It cannot be examined. What is not there is no error.
    pub async fn examine(&self, source: &dyn Tree) -> Result<(Match, Vec<RelPath>)> {
        let mut matched = Match {
            known: self.0.len(),
            found: 0,
            unchanged: 0,
        };
        let mut kept: BTreeMap<RelPath, bool> = BTreeMap::new();
        for mark in &self.0 {
            let Some(path) = mark.path() else {
                continue;
            };
            let found = match source.metadata(&path).await {
                Ok(found) => Some(found),
                Err(error) if error.kind.is_absence() => None,
                Err(error) if error.verdict() == ropeway_vfs::Verdict::Skip => None,
                Err(error) => return Err(error),
            };
            if let Some(folder) = path.parent().filter(|folder| !folder.is_root()) {
                *kept.entry(folder).or_default() |= found.is_some();
            }
            if let Some(found) = found.filter(|found| (found.kind == Kind::Directory) == mark.folder) {
                matched.found += 1;
                let apart = nanoseconds(found.modified).abs_diff(mark.modified);
                matched.unchanged += usize::from(apart <= TIME_TOLERANCE_NS);
            }
        }
        let lost = kept.into_iter().filter(|(_, kept)| !kept);
        Ok((matched, lost.map(|(folder, _)| folder).collect()))
    }
}

impl Mark {
    fn new(path: &RelPath, metadata: &Metadata) -> Self {
        Self {
            path: path.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect(),
            folder: metadata.kind == Kind::Directory,
            modified: nanoseconds(metadata.modified),
            readable: false,
        }
    }

    fn path(&self) -> Option<RelPath> {
        let pairs = self.path.as_bytes().chunks(2);
        let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        RelPath::parse(&bytes.collect::<Option<Vec<u8>>>()?)
    }
}

/// Opens a node as a copy does.
async fn read(source: &dyn Tree, path: &RelPath, folder: bool) -> Result<()> {
    match folder {
        true => source.list(path).await?.next(1).await.map(drop),
        false => {
            let options = OpenOptions::read(CacheMode::Keep);
            source.open(path, options).await.map(drop)
        }
    }
}

/// Returns some entries of a folder.
async fn sample(
    source: &dyn Tree,
    folder: &RelPath,
    count: usize,
    random: &mut fastrand::Rng,
) -> Result<Vec<(Name, Metadata)>> {
    let mut listing = source.list(folder).await?;
    let mut seen = Vec::new();
    while seen.len() < SEEN_MAX {
        let entries = listing.next(SEEN_MAX - seen.len()).await?;
        if entries.is_empty() {
            break;
        }
        let good = entries.into_iter().filter(|entry| !is_of_ropeway(&entry.name));
        seen.extend(good.filter_map(|entry| Some((entry.name, entry.metadata.ok()?))));
    }
    random.shuffle(&mut seen);
    seen.sort_by_key(|(_, metadata)| !metadata.is_mount_root);
    let mounted = seen.iter().filter(|(_, metadata)| metadata.is_mount_root);
    let mounted = mounted.count().min(MOUNTED_MAX);
    seen.truncate(count.max(mounted));
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropeway_vfs::clock::simulate;
    use ropeway_vfs::decorate::faults::{FaultRule, Faults};
    use ropeway_vfs::{MemoryTree, VirtualClock};

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn filled(files: std::ops::Range<u32>) -> MemoryTree {
        let tree = MemoryTree::new();
        tree.insert_file(&RelPath::parse(b"\xff\xe4").unwrap(), b"no text")
            .unwrap();
        for number in files {
            tree.insert_file(&path(&format!("f{number}")), b"content")
                .unwrap();
        }
        tree
    }

    /// What the account of one worker may not read.
    fn denied(tree: &Arc<MemoryTree>, rules: &str) -> Arc<dyn Tree> {
        let rules = FaultRule::parse(rules).unwrap();
        Faults::new(Arc::clone(tree) as _, rules, Arc::new(VirtualClock::new()))
    }

    #[test]
    fn a_worker_that_may_read_nothing_is_told_and_one_file_that_is_closed_is_not_enough() {
        let clock = VirtualClock::new();
        let tree = Arc::new(filled(0..10));
        simulate(&clock, tree.make_dir(&path("d"), 0o755)).unwrap();
        let random = &mut fastrand::Rng::with_seed(1);
        // A file that `submit` could not read says nothing.
        let seen = denied(&tree, "open:path=f1,errno=EACCES");
        let mark = simulate(&clock, SourceMark::take(&*seen, random)).unwrap();
        let opened = mark.0.iter().filter(|mark| mark.readable).count();
        assert_eq!(opened, OPENED_MAX + 1);
        let check = |rules: &str| simulate(&clock, mark.check_access(&*denied(&tree, rules)));
        assert!(check("open:path=f1,errno=EACCES").is_ok());
        assert!(check("open:nth=1,errno=EACCES").is_ok());
        for rules in ["open:errno=EACCES", "list:path=d,errno=EACCES"] {
            assert_eq!(
                check(rules).unwrap_err().kind,
                ErrorKind::PermissionDenied,
                "{rules}"
            );
        }
        assert_eq!(
            check("open:kind=authentication").unwrap_err().kind,
            ErrorKind::Authentication
        );
        assert!(check("open:errno=EIO").is_ok());
        let nothing = denied(&Arc::new(MemoryTree::new()), "open:errno=EACCES");
        simulate(&clock, SourceMark::default().check_access(&*nothing)).unwrap();
    }

    #[test]
    fn a_source_is_known_again_after_changes_and_others_are_not() {
        let clock = VirtualClock::new();
        let compare = |mark: &SourceMark, tree: &MemoryTree| simulate(&clock, mark.compare(tree)).unwrap();
        let source = filled(0..10);
        simulate(&clock, source.make_dir(&path("d"), 0o755)).unwrap();
        source.insert_file(&path("d/inside"), b"x").unwrap();
        let random = &mut fastrand::Rng::with_seed(1);
        let mark = simulate(&clock, SourceMark::take(&source, random)).unwrap();
        let same = compare(&mark, &source);
        assert_eq!((same.known, same.found, same.unchanged), (13, 13, 13));
        for number in 0..6 {
            simulate(&clock, source.remove_file(&path(&format!("f{number}")))).unwrap();
        }
        assert!(compare(&mark, &source).may_begin());
        simulate(&clock, source.remove_file(&path("f6"))).unwrap();
        assert!(!compare(&mark, &source).may_go_on());
        let empty = compare(&mark, &MemoryTree::new());
        assert!(!empty.may_begin() && !empty.may_go_on(), "{empty:?}");
        // An empty source may be filled later.
        let nothing = simulate(&clock, SourceMark::take(&MemoryTree::new(), random)).unwrap();
        assert!(compare(&nothing, &source).may_begin());
    }
}
