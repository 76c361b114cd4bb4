//! A far store in memory: files in one folder, a clock, refused writes.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::external::ContentLease;
use ropeway_vfs::store::{
    Access, Entries, Node, NodeChange, NodeOpen, NodeStat, Opened, Removal, Store, StoreFeatures, StreamInfo,
    StreamOpen, Versioning,
};
use ropeway_vfs::tree::{Extent, Space};
use ropeway_vfs::{Error, ErrorKind, FileId, Kind, Name, Op, Owner, RelPath, Result, Timestamp, Xattr};

use super::Process;

#[derive(Clone, Debug)]
struct Content {
    bytes: Vec<u8>,
    created: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<RelPath, u64>,
    files: HashMap<u64, Content>,
    next: u64,
    now: i128,
    is_refusing: bool,
    /// Whether open files have leases, and which of them others have broken.
    has_leases: bool,
    broken: HashSet<u64>,
    /// Requests until the server, or the connection to it, is gone; `None`: it stays.
    gone_after: Option<u64>,
    /// What others do after so many more requests.
    later: Option<(u64, OthersChange)>,
    random: fastrand::Rng,
}

/// A change by somebody else.
#[derive(Clone, Debug)]
pub(crate) struct OthersChange {
    pub(crate) path: RelPath,
    /// The new content; `None`: the file is removed.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Whether the file stays the same one.
    pub(crate) in_place: bool,
}

/// The server. Its connections are [`FarStore`]s.
#[derive(Clone, Debug)]
pub(crate) struct FarServer(Arc<Mutex<State>>);

/// The far store as one process has it.
#[derive(Clone)]
pub(crate) struct FarStore {
    server: FarServer,
    process: Arc<Process>,
    features: StoreFeatures,
}

struct FarNode {
    store: FarStore,
    index: u64,
    access: Access,
}

impl State {
    fn tick(&mut self) -> Timestamp {
        self.now += 1_000_000;
        Timestamp(self.now)
    }

    fn make(&mut self, bytes: Vec<u8>) -> u64 {
        let at = self.tick();
        self.next += 1;
        let content = Content {
            bytes,
            created: at,
            modified: at,
            changed: at,
        };
        self.files.insert(self.next, content);
        self.next
    }

    fn stat(&self, index: u64) -> Option<NodeStat> {
        let content = self.files.get(&index)?;
        Some(NodeStat {
            kind: Kind::File,
            size: content.bytes.len() as u64,
            allocated: content.bytes.len() as u64,
            links: self.names.values().filter(|there| **there == index).count() as u64,
            id: FileId { volume: 1, index },
            mode: 0o644,
            owner: Owner { user: 0, group: 0 },
            created: content.created,
            accessed: content.modified,
            modified: content.modified,
            changed: content.changed,
            dos_attributes: None,
        })
    }

    fn change(&mut self, index: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let at = self.tick();
        if let Some(content) = self.files.get_mut(&index) {
            change(&mut content.bytes);
            content.modified = at;
            content.changed = at;
        }
    }

    fn others_change(&mut self, others: OthersChange) {
        match (others.bytes, self.names.get(&others.path).copied()) {
            (Some(bytes), Some(index)) if others.in_place => {
                self.change(index, |there| *there = bytes);
                self.broken.insert(index);
            }
            (Some(bytes), _) => {
                let index = self.make(bytes);
                self.names.insert(others.path, index);
            }
            (None, _) => _ = self.names.remove(&others.path),
        }
    }

    /// Counts a request. Others may do something before it. Returns whether the server is there.
    fn next_request(&mut self) -> bool {
        match self.later.take() {
            Some((0, others)) => self.others_change(others),
            Some((requests, others)) => self.later = Some((requests - 1, others)),
            None => {}
        }
        match &mut self.gone_after {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }
}

impl FarServer {
    pub(crate) fn new(seed: u64) -> Self {
        let state = State {
            now: 1_000_000_000_000_000_000,
            random: fastrand::Rng::with_seed(seed),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn store(&self, process: Arc<Process>) -> FarStore {
        FarStore {
            server: self.clone(),
            process,
            features: StoreFeatures {
                volume: 1,
                name_max: 255,
                unit: 4096,
                read_only: false,
                sparse: false,
                windows_metadata: false,
                created: Timestamp::UNKNOWN,
            },
        }
    }

    /// Refuses writes from now on, or takes them.
    pub(crate) fn refuse(&self, is_refusing: bool) {
        self.0.lock().is_refusing = is_refusing;
    }

    /// Somebody else writes a file: in place, or with another one of that name. `None` removes it.
    pub(crate) fn others_change(&self, path: &RelPath, bytes: Option<Vec<u8>>, in_place: bool) {
        let mut state = self.0.lock();
        // Later than what was on its way.
        state.now += 10_000_000_000;
        state.others_change(OthersChange {
            path: path.clone(),
            bytes,
            in_place,
        });
    }

    /// Somebody else does this before the request after so many more.
    #[cfg(test)]
    pub(crate) fn others_change_after(&self, requests: u64, others: OthersChange) {
        self.0.lock().later = Some((requests, others));
    }

    /// Whether that is still to come.
    #[cfg(test)]
    pub(crate) fn is_change_to_come(&self) -> bool {
        self.0.lock().later.is_some()
    }

    /// After so many more requests each one fails as for a server, a share or a connection that is gone, until
    /// [`comes_back`](Self::comes_back).
    #[cfg(test)]
    pub(crate) fn goes_after(&self, requests: u64) {
        self.0.lock().gone_after = Some(requests);
    }

    /// It is there again. Returns whether it had been gone.
    #[cfg(test)]
    pub(crate) fn comes_back(&self) -> bool {
        self.0.lock().gone_after.take() == Some(0)
    }

    /// Sets the clock back by an hour.
    #[cfg(test)]
    pub(crate) fn set_clock_back(&self) {
        self.0.lock().now -= 3_600_000_000_000;
    }

    /// Grants leases from now on.
    #[cfg(test)]
    pub(crate) fn grant_leases(&self) {
        self.0.lock().has_leases = true;
    }

    pub(crate) fn content(&self, path: &RelPath) -> Option<Vec<u8>> {
        let state = self.0.lock();
        let index = state.names.get(path)?;
        state.files.get(index).map(|content| content.bytes.clone())
    }

    pub(crate) fn paths(&self) -> Vec<RelPath> {
        self.0.lock().names.keys().cloned().collect()
    }

    pub(crate) fn forget(&self, path: &RelPath) {
        self.0.lock().names.remove(path);
    }
}

impl FarStore {
    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(Op::Open, &RelPath::root(), kind)
    }

    /// Runs a request. If the process ends with it, the server may have carried it out.
    fn request<T>(&self, run: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let (alive, ends_here) = self.process.step();
        let mut state = self.server.0.lock();
        let is_there = state.next_request();
        if let Err(error) = alive {
            if ends_here && state.random.bool() {
                let _ = run(&mut state);
            }
            return Err(Error::from_io(Op::Open, &RelPath::root(), error));
        }
        if !is_there {
            return Err(self.error(ErrorKind::Gone));
        }
        run(&mut state)
    }

    fn node(&self, index: u64, access: Access) -> Arc<dyn Node> {
        Arc::new(FarNode {
            store: self.clone(),
            index,
            access,
        })
    }
}

impl Store for FarStore {
    fn features(&self) -> &StoreFeatures {
        &self.features
    }

    fn space(&self) -> Result<Space> {
        Err(self.error(ErrorKind::Unsupported))
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        Ok(path.clone())
    }

    fn versioning(&self) -> Option<Versioning> {
        Some(Versioning {
            now: Timestamp(self.server.0.lock().now),
            settle: Duration::ZERO,
            memory: Duration::ZERO,
            writes_at_once: true,
        })
    }

    fn look(&self, path: &RelPath) -> Result<NodeStat> {
        let missing = self.error(ErrorKind::NotFound);
        self.request(|state| {
            let index = state.names.get(path).copied();
            index.and_then(|index| state.stat(index)).ok_or(missing)
        })
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        let (index, stat, created) = self.request(|state| {
            let there = state.names.get(path).copied();
            let (index, created) = match (there, how.create) {
                (Some(_), _) if how.exclusive => return Err(self.error(ErrorKind::AlreadyExists)),
                (Some(index), _) => (index, false),
                (None, None) => return Err(self.error(ErrorKind::NotFound)),
                (None, Some(_)) if state.is_refusing => return Err(self.error(ErrorKind::NoSpace)),
                (None, Some(_)) => {
                    let index = state.make(Vec::new());
                    state.names.insert(path.clone(), index);
                    (index, true)
                }
            };
            let stat = state.stat(index).ok_or_else(|| self.error(ErrorKind::Gone))?;
            Ok((index, stat, created))
        })?;
        Ok(Opened {
            node: self.node(index, how.access),
            stat,
            created,
        })
    }

    fn remove(&self, path: &RelPath, _: bool) -> Result<()> {
        let missing = self.error(ErrorKind::NotFound);
        self.request(|state| state.names.remove(path).map(drop).ok_or(missing))
    }

    fn remove_node(&self, _: FileId, path: &RelPath, _: Removal) -> Result<()> {
        self.remove(path, false)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, _: bool) -> Result<()> {
        let missing = self.error(ErrorKind::NotFound);
        self.request(|state| {
            let index = state.names.remove(from).ok_or(missing)?;
            state.names.insert(to.clone(), index);
            let at = state.tick();
            if let Some(content) = state.files.get_mut(&index) {
                content.changed = at;
            }
            Ok(())
        })
    }

    fn rename_node(&self, _: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.rename(from, to, replace)
    }

    fn link_node(&self, _: &dyn Node, _: &RelPath, _: bool) -> Result<()> {
        Err(self.error(ErrorKind::Unsupported))
    }

    fn link(&self, _: &RelPath, _: &RelPath, _: bool) -> Result<()> {
        Err(self.error(ErrorKind::Unsupported))
    }

    fn symlink(&self, _: &RelPath, _: &[u8]) -> Result<()> {
        Err(self.error(ErrorKind::Unsupported))
    }

    fn sync(&self) -> Result<()> {
        self.request(|_| Ok(()))
    }
}

impl FarNode {
    fn refused<T>(&self) -> Result<T> {
        Err(self.store.error(ErrorKind::Unsupported))
    }

    fn write(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        assert_eq!(self.access, Access::Write, "opened for writing");
        let full = self.store.error(ErrorKind::NoSpace);
        self.store.request(|state| {
            if state.is_refusing {
                return Err(full);
            }
            state.change(self.index, change);
            Ok(())
        })
    }
}

impl Node for FarNode {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        let gone = self.store.error(ErrorKind::Gone);
        self.store.request(|state| state.stat(self.index).ok_or(gone))
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        self.store.request(|state| {
            let at = state.tick();
            if let Some(content) = state.files.get_mut(&self.index) {
                content.created = change.created.unwrap_or(content.created);
                content.modified = change.modified.unwrap_or(content.modified);
                content.changed = at;
            }
            Ok(())
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if self.store.process.is_dead() {
            return Err(self.store.error(ErrorKind::Network));
        }
        let state = self.store.server.0.lock();
        let gone = || self.store.error(ErrorKind::Gone);
        let bytes = &state.files.get(&self.index).ok_or_else(gone)?.bytes;
        let from = bytes
            .get(usize::try_from(offset).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let count = from.len().min(buffer.len());
        buffer[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn read_cached(&self, _: &mut [u8], _: u64) -> Result<Option<usize>> {
        Ok(None)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        self.write(|bytes| {
            bytes.resize(bytes.len().max(start + data.len()), 0);
            bytes[start..start + data.len()].copy_from_slice(data);
        })
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.write(|bytes| bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), 0))
    }

    fn allocate(&self, _: u64) -> Result<()> {
        self.refused()
    }

    fn zero(&self, _: u64, _: u64, _: bool) -> Result<()> {
        self.refused()
    }

    fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>> {
        self.refused()
    }

    fn copy_from(&self, _: &dyn Node, _: u64, _: u64, _: u64) -> Result<u64> {
        self.refused()
    }

    fn sync(&self) -> Result<()> {
        self.store.request(|_| Ok(()))
    }

    fn lease(&self) -> ContentLease {
        let state = self.store.server.0.lock();
        match (state.has_leases, state.broken.contains(&self.index)) {
            (false, _) => ContentLease::None,
            (true, false) => ContentLease::Held { epoch: 1 },
            (true, true) => ContentLease::Broken,
        }
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        self.refused()
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.refused()
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.refused()
    }

    fn open_stream(&self, _: &Name, _: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        self.refused()
    }

    fn remove_stream(&self, _: &Name) -> Result<()> {
        self.refused()
    }

    fn rename_stream(&self, _: &Name, _: &Name, _: bool) -> Result<()> {
        self.refused()
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.refused()
    }

    fn set_security(&self, _: &[u8]) -> Result<()> {
        self.refused()
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        self.refused()
    }

    fn set_ea(&self, _: &[u8], _: &[u8]) -> Result<()> {
        self.refused()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
