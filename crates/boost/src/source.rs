//! The source's node behind a node: open from the beginning, or opened when it is needed.
//!
//! A node that was opened while the source was lost stays with the file that was known then: the
//! same file, and once content was read from the cache, the same version. It is compared when the
//! source's node is opened, and at each read until the attributes are certainly newer than that.
//! Where the source has something else by then, the node is *stale*: every later read fails with
//! `Gone`, so no reader gets parts of two versions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_cache::Version;
use ropeway_vfs::store::{Node, NodeOpen, NodeStat};
use ropeway_vfs::{Error, ErrorKind, FileId, Op, RelPath, Result};

use crate::coherence::version_of;
use crate::store::StoreShared;

/// The node, and how to open it.
pub(crate) struct Source {
    node: OnceLock<Arc<dyn Node>>,
    later: Option<Later>,
}

/// A node to be opened.
struct Later {
    path: RelPath,
    how: NodeOpen,
    id: FileId,
    pin: Mutex<Pin>,
}

/// What an open that began while the source was lost must find.
#[derive(Default)]
struct Pin {
    /// The version of which content was read.
    version: Option<Version>,
    /// When the source's node was opened.
    opened: Option<Duration>,
    is_stale: bool,
}

impl Pin {
    /// Takes what the source says, asked at `asked`. Returns whether it is what was read before.
    fn compare(&mut self, stat: &NodeStat, asked: Duration, memory: Duration) -> bool {
        self.is_stale |= self
            .version
            .is_some_and(|version| version_of(stat) != Some(version));
        if !self.is_stale && self.opened.is_some_and(|opened| asked >= opened + memory) {
            // From now on it is an open file like any other.
            self.version = None;
        }
        !self.is_stale
    }
}

impl Source {
    /// Returns a node that is open.
    pub(crate) fn open(node: Arc<dyn Node>) -> Self {
        Self {
            node: OnceLock::from(node),
            later: None,
        }
    }

    /// Returns a node that is opened when it is needed.
    pub(crate) fn later(path: &RelPath, how: NodeOpen, id: FileId) -> Self {
        Self {
            node: OnceLock::new(),
            later: Some(Later {
                path: path.clone(),
                how,
                id,
                pin: Mutex::default(),
            }),
        }
    }

    /// Returns the node if it is open.
    pub(crate) fn if_open(&self) -> Option<&Arc<dyn Node>> {
        self.node.get()
    }

    /// Returns the node, and opens it if need be. Waits for the source as the caller's patience says.
    ///
    /// # Errors
    /// As [`Store::open`](ropeway_vfs::store::Store::open); `Gone` if the name belongs to another file
    /// or version by now.
    pub(crate) fn get(&self, store: &StoreShared) -> Result<&Arc<dyn Node>> {
        let (None, Some(later)) = (self.node.get(), &self.later) else {
            return self.node.get().ok_or_else(gone);
        };
        if later.pin.lock().is_stale {
            return Err(later.gone());
        }
        let question = store.question();
        let opened = store
            .inner
            .open(&later.path, &later.how)
            .map_err(|error| match error.kind {
                ErrorKind::NotFound | ErrorKind::NotADirectory => later.gone(),
                _ => error,
            })?;
        if opened.stat.id != later.id {
            later.pin.lock().is_stale = true;
            return Err(later.gone());
        }
        {
            let mut pin = later.pin.lock();
            pin.opened.get_or_insert(store.boost.shared.now());
            if !pin.compare(&opened.stat, question.at, Duration::MAX / 2) {
                return Err(later.gone());
            }
        }
        if let Some(file) = store.files.get(opened.stat.id) {
            store.learn(&file, (question.number, question.at), &opened.stat);
        }
        // If two threads opened it, one node is dropped.
        Ok(self.node.get_or_init(|| opened.node))
    }

    /// Whether later reads must be compared with earlier ones.
    pub(crate) fn is_pinned(&self) -> bool {
        self.later.as_ref().is_some_and(|later| {
            let pin = later.pin.lock();
            pin.version.is_some() || pin.is_stale
        })
    }

    /// Notes content of a version that is given out while the source is lost. Returns whether it may be.
    pub(crate) fn give_out(&self, version: Version) -> bool {
        let Some(later) = &self.later else { return true };
        let mut pin = later.pin.lock();
        pin.is_stale |= pin.version.is_some_and(|pinned| pinned != version);
        if !pin.is_stale {
            pin.version = Some(version);
        }
        !pin.is_stale
    }

    /// Compares what the source says, asked at `asked`, with what was read before.
    ///
    /// # Errors
    /// `Gone`: it is another version.
    pub(crate) fn compare(&self, stat: &NodeStat, asked: Duration, memory: Duration) -> Result<()> {
        match &self.later {
            Some(later) if !later.pin.lock().compare(stat, asked, memory) => Err(later.gone()),
            _ => Ok(()),
        }
    }
}

impl Later {
    fn gone(&self) -> Error {
        Error::new(Op::Open, &self.path, ErrorKind::Gone)
    }
}

fn gone() -> Error {
    Error::new(Op::Open, &RelPath::root(), ErrorKind::Gone)
}
