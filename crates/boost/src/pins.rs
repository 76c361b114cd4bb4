//! Files fetched ahead of need: in the background, while no program waits for the source.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::store::{Access, NodeOpen};
use ropeway_vfs::{Kind, RelPath};
use serde::{Deserialize, Serialize};

use crate::node::BoostNode;
use crate::store::BoostStore;

/// Bytes of one step; between two, programs go first.
const STEP: usize = 1 << 20;
/// Folders that wait to be walked, at most.
const FOLDERS_MAX: usize = 100_000;
/// Time between two walks, which find new and changed files. A guess.
const ROUND: Duration = Duration::from_secs(300);
/// Time until the first files of the first walk are tried again: they may be too new to be kept.
const AGAIN: Duration = Duration::from_secs(5);
/// Time between two looks whether a program waits.
const PAUSE: Duration = Duration::from_millis(20);

/// Decides on a path; the flag says whether it is a folder. What a folder matches, all beneath it
/// does.
pub type Matcher = Box<dyn Fn(&RelPath, bool) -> bool + Send + Sync>;

/// Which files to fetch.
pub struct Pins {
    /// Files whose content is fetched and kept.
    pub content: Matcher,
    /// Files whose names and attributes are asked for.
    pub metadata: Matcher,
    /// Bytes of content, at most.
    pub bytes_max: u64,
}

/// How far fetching is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinProgress {
    /// Files found by the last walk, and those whose content is in the cache as a whole.
    pub files: u64,
    /// See [`files`](Self::files).
    pub files_done: u64,
    /// Bytes of the files found, and of those that are in the cache.
    pub bytes: u64,
    /// See [`bytes`](Self::bytes).
    pub bytes_done: u64,
    /// Files left out because of the limit of bytes.
    pub files_left_out: u64,
    /// Files that could not be read.
    pub files_failed: u64,
    /// Nodes whose names and attributes were asked for.
    pub metadata: u64,
}

/// The progress, as it is shared.
pub(crate) type Shown = Arc<Mutex<PinProgress>>;

/// Starts fetching. It ends with the session.
pub(crate) fn start(store: Arc<BoostStore>, pins: Pins, shown: Shown) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("boost-pin".into());
    let work = move || {
        let mut pause = AGAIN;
        while !store.is_closed() {
            let mut walk = Walk {
                store: &store,
                pins: &pins,
                found: PinProgress::default(),
                shown: &shown,
            };
            walk.run();
            let found = walk.found;
            *shown.lock() = found;
            store.wait(pause);
            let is_whole = found.files_done + found.files_failed + found.files_left_out >= found.files;
            pause = if is_whole { ROUND } else { (pause * 2).min(ROUND) };
        }
    };
    thread.spawn(work).map(drop)
}

struct Walk<'a> {
    store: &'a BoostStore,
    pins: &'a Pins,
    found: PinProgress,
    shown: &'a Shown,
}

impl Walk<'_> {
    fn run(&mut self) {
        let mut folders = vec![(RelPath::root(), false, false)];
        while let Some((dir, content, metadata)) = folders.pop() {
            if self.store.is_closed() {
                return;
            }
            self.store.wait_for_idle(PAUSE);
            let how = NodeOpen {
                access: Access::Read,
                ..NodeOpen::default()
            };
            let entries = self
                .store
                .open_to_fill(&dir, &how)
                .and_then(|opened| opened.node.entries());
            let Ok(mut entries) = entries else { continue };
            while let Ok(Some((name, stat))) = entries.next() {
                let path = dir.join(&name);
                let is_dir = stat.kind == Kind::Directory;
                let content = content || (self.pins.content)(&path, is_dir);
                let metadata = metadata || (self.pins.metadata)(&path, is_dir);
                self.found.metadata += u64::from(metadata || content);
                if is_dir && folders.len() < FOLDERS_MAX {
                    folders.push((path, content, metadata));
                } else if content && stat.kind == Kind::File {
                    self.file(&path, stat.size);
                }
            }
        }
    }

    fn file(&mut self, path: &RelPath, size: u64) {
        self.found.files += 1;
        if self.found.bytes + size > self.pins.bytes_max {
            self.found.files_left_out += 1;
            return;
        }
        self.found.bytes += size;
        let how = NodeOpen {
            access: Access::Read,
            ..NodeOpen::default()
        };
        let opened = self.store.open_to_fill(path, &how);
        let node = opened.as_ref().ok().and_then(|opened| {
            let node = opened.node.as_any();
            node.downcast_ref::<BoostNode>()
        });
        let Some(node) = node else {
            self.found.files_failed += 1;
            return;
        };
        node.pin();
        let mut buffer = vec![0; STEP];
        let (mut at, mut is_whole) = (0, true);
        while at < size && !self.store.is_closed() {
            let length = STEP.min(usize::try_from(size - at).unwrap_or(STEP));
            if !node.is_usable() {
                // Too new to be kept: a later walk tries again.
                is_whole = false;
                break;
            }
            if !node.is_kept(at, length) {
                self.store.wait_for_idle(PAUSE);
                match node.read(&mut buffer[..length], at, false) {
                    Ok(count) if count > 0 => {}
                    _ => {
                        self.found.files_failed += 1;
                        return;
                    }
                }
            }
            if node.is_kept(at, length) {
                self.found.bytes_done += length as u64;
            } else {
                is_whole = false;
            }
            at += length as u64;
            *self.shown.lock() = self.found;
        }
        self.found.files_done += u64::from(is_whole && at >= size);
    }
}
