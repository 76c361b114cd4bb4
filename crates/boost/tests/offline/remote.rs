//! A folder behind a line that can be cut: in memory, with a clock of its own.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use ropeway_vfs::patience::{Reachability, is_impatient};
use ropeway_vfs::store::{
    Access, Entries, Node, NodeChange, NodeOpen, NodeStat, Opened, Removal, Store, StoreFeatures, StreamInfo,
    StreamOpen, Versioning,
};
use ropeway_vfs::{
    Error, ErrorKind, Extent, FileId, Kind, Name, Op, Owner, RelPath, Result, Space, Timestamp, Xattr,
};

/// What a patient call gets while the line is cut: a real store would wait.
pub(crate) const WAITS: ErrorKind = ErrorKind::TimedOut;

/// Granularity of change times, in nanoseconds.
pub(crate) const TICK: i128 = 10;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    pub(crate) id: u64,
    pub(crate) changed: i128,
    pub(crate) content: Vec<u8>,
}

/// The state of the folder.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) files: BTreeMap<RelPath, RemoteFile>,
    pub(crate) clock: i128,
    last_id: u64,
}

/// The folder. Clones are the same.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) state: Arc<Mutex<State>>,
    is_cut: Arc<AtomicBool>,
    /// Calls that reached the folder.
    pub(crate) calls: Arc<AtomicUsize>,
    features: StoreFeatures,
}

struct RemoteNode {
    remote: Remote,
    /// `None`: the root.
    id: Option<u64>,
    access: Access,
}

fn fail<T>(kind: ErrorKind) -> Result<T> {
    Err(Error::new(Op::Open, &RelPath::root(), kind))
}

impl Remote {
    pub(crate) fn new() -> Self {
        let state = State {
            clock: 1_000_000,
            last_id: 10,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            is_cut: Arc::default(),
            calls: Arc::default(),
            features: StoreFeatures {
                volume: 7,
                name_max: 255,
                unit: 4096,
                read_only: false,
                sparse: false,
                windows_metadata: false,
                created: Timestamp::default(),
            },
        }
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// Passes over the line.
    fn pass(&self) -> Result<()> {
        match (self.is_cut.load(Ordering::SeqCst), is_impatient()) {
            (true, true) => fail(ErrorKind::Unreachable),
            (true, false) => fail(WAITS),
            (false, _) => {
                self.calls.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        }
    }

    fn node(&self, id: Option<u64>, access: Access) -> Arc<dyn Node> {
        Arc::new(RemoteNode {
            remote: self.clone(),
            id,
            access,
        })
    }
}

impl State {
    /// Lets time pass.
    pub(crate) fn advance(&mut self, time: i128) {
        self.clock += time;
    }

    fn stamp(&self) -> i128 {
        self.clock / TICK * TICK
    }

    /// Makes or replaces a file, or changes its content if `is_same`.
    pub(crate) fn put(&mut self, path: &RelPath, content: Vec<u8>, is_same: bool) {
        let changed = self.stamp();
        let known = self.files.get(path).filter(|_| is_same).map(|file| file.id);
        let id = known.unwrap_or_else(|| {
            self.last_id += 1;
            self.last_id
        });
        let file = RemoteFile { id, changed, content };
        self.files.insert(path.clone(), file);
    }

    pub(crate) fn rename(&mut self, from: &RelPath, to: &RelPath) {
        let changed = self.stamp();
        if let Some(file) = self.files.remove(from) {
            self.files.insert(to.clone(), RemoteFile { changed, ..file });
        }
    }

    fn by_id(&mut self, id: u64) -> Result<&mut RemoteFile> {
        let found = self.files.values_mut().find(|file| file.id == id);
        found.map_or_else(|| fail(ErrorKind::Gone), Ok)
    }
}

/// Returns the attributes of a file, or of the root.
pub(crate) fn stat_of(file: Option<&RemoteFile>) -> NodeStat {
    let changed = Timestamp(file.map_or(1, |file| file.changed));
    let size = file.map_or(0, |file| file.content.len() as u64);
    NodeStat {
        kind: if file.is_some() {
            Kind::File
        } else {
            Kind::Directory
        },
        size,
        allocated: size,
        links: 1,
        id: FileId {
            volume: 7,
            index: file.map_or(2, |file| file.id),
        },
        mode: 0o644,
        owner: Owner { user: 0, group: 0 },
        created: Timestamp(1),
        accessed: Timestamp(1),
        modified: changed,
        changed,
        dos_attributes: None,
    }
}

struct Listed(std::vec::IntoIter<(Name, NodeStat)>);

impl Entries for Listed {
    fn next(&mut self) -> Result<Option<(Name, NodeStat)>> {
        Ok(self.0.next())
    }
}

impl Store for Remote {
    fn features(&self) -> &StoreFeatures {
        &self.features
    }

    fn space(&self) -> Result<Space> {
        self.pass()?;
        fail(ErrorKind::Unsupported)
    }

    fn versioning(&self) -> Option<Versioning> {
        Some(Versioning {
            now: Timestamp(self.state.lock().clock),
            settle: Duration::from_nanos(10),
            memory: Duration::ZERO,
            writes_at_once: true,
        })
    }

    fn attribute_lifetime(&self) -> Duration {
        Duration::ZERO
    }

    fn reachability(&self) -> Option<Reachability> {
        Some(match self.is_cut.load(Ordering::SeqCst) {
            true => Reachability::Lost {
                silent: Duration::from_millis(1),
            },
            false => Reachability::Answers,
        })
    }

    fn resolve(&self, path: &RelPath) -> Result<RelPath> {
        self.pass()?;
        Ok(path.clone())
    }

    fn open(&self, path: &RelPath, how: &NodeOpen) -> Result<Opened> {
        self.pass()?;
        let mut state = self.state.lock();
        if path.is_root() {
            return Ok(Opened {
                node: self.node(None, how.access),
                stat: stat_of(None),
                created: false,
            });
        }
        let is_new = !state.files.contains_key(path);
        if is_new && how.create.is_none() {
            return fail(ErrorKind::NotFound);
        }
        if is_new {
            state.put(path, Vec::new(), false);
        }
        let file = &state.files[path];
        Ok(Opened {
            node: self.node(Some(file.id), how.access),
            stat: stat_of(Some(file)),
            created: is_new,
        })
    }

    fn remove(&self, path: &RelPath, _directory: bool) -> Result<()> {
        self.pass()?;
        let removed = self.state.lock().files.remove(path);
        removed.map_or_else(|| fail(ErrorKind::NotFound), |_| Ok(()))
    }

    fn remove_node(&self, _id: FileId, path: &RelPath, what: Removal) -> Result<()> {
        self.remove(path, what == Removal::Directory)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, _replace: bool) -> Result<()> {
        self.pass()?;
        self.state.lock().rename(from, to);
        Ok(())
    }

    fn rename_node(&self, _id: FileId, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        self.rename(from, to, replace)
    }

    fn link_node(&self, _node: &dyn Node, _to: &RelPath, _replace: bool) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn link(&self, _from: &RelPath, _to: &RelPath, _replace: bool) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn symlink(&self, _path: &RelPath, _target: &[u8]) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn sync(&self) -> Result<()> {
        self.pass()
    }
}

impl RemoteNode {
    fn id(&self) -> Result<u64> {
        self.remote.pass()?;
        self.id.map_or_else(|| fail(ErrorKind::IsADirectory), Ok)
    }
}

impl Node for RemoteNode {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        self.remote.pass()?;
        match self.id {
            Some(id) => Ok(stat_of(Some(self.remote.state.lock().by_id(id)?))),
            None => Ok(stat_of(None)),
        }
    }

    fn change(&self, _change: &NodeChange) -> Result<()> {
        let id = self.id()?;
        let mut state = self.remote.state.lock();
        let changed = state.stamp();
        state.by_id(id)?.changed = changed;
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let id = self.id()?;
        let mut state = self.remote.state.lock();
        let content = &state.by_id(id)?.content;
        let start = usize::try_from(offset).expect("small").min(content.len());
        let count = buffer.len().min(content.len() - start);
        buffer[..count].copy_from_slice(&content[start..start + count]);
        Ok(count)
    }

    fn read_cached(&self, _buffer: &mut [u8], _offset: u64) -> Result<Option<usize>> {
        Ok(None)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let id = self.id()?;
        let mut state = self.remote.state.lock();
        let changed = state.stamp();
        let file = state.by_id(id)?;
        let start = usize::try_from(offset).expect("small");
        file.content.resize(file.content.len().max(start + data.len()), 0);
        file.content[start..start + data.len()].copy_from_slice(data);
        file.changed = changed;
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let id = self.id()?;
        let mut state = self.remote.state.lock();
        let changed = state.stamp();
        let file = state.by_id(id)?;
        file.content.resize(usize::try_from(length).expect("small"), 0);
        file.changed = changed;
        Ok(())
    }

    fn allocate(&self, _length: u64) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn zero(&self, _offset: u64, _length: u64, _hole: bool) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn extents(&self, _offset: u64, _length: u64, _max: usize) -> Result<Vec<Extent>> {
        self.id()?;
        fail(ErrorKind::Unsupported)
    }

    fn copy_from(&self, _source: &dyn Node, _from: u64, _to: u64, _length: u64) -> Result<u64> {
        fail(ErrorKind::Unsupported)
    }

    fn sync(&self) -> Result<()> {
        self.remote.pass()
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        self.remote.pass()?;
        let state = self.remote.state.lock();
        let entry = |(path, file): (&RelPath, &RemoteFile)| {
            (path.file_name().expect("not the root"), stat_of(Some(file)))
        };
        let entries: Vec<_> = state.files.iter().map(entry).collect();
        Ok(Box::new(Listed(entries.into_iter())))
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        fail(ErrorKind::Misuse)
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.remote.pass()?;
        Ok(Vec::new())
    }

    fn open_stream(&self, _name: &Name, _how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        fail(ErrorKind::Unsupported)
    }

    fn remove_stream(&self, _name: &Name) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn rename_stream(&self, _name: &Name, _to: &Name, _replace: bool) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.remote.pass()?;
        Ok(None)
    }

    fn set_security(&self, _descriptor: &[u8]) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        Ok(Vec::new())
    }

    fn set_ea(&self, _name: &[u8], _value: &[u8]) -> Result<()> {
        fail(ErrorKind::Unsupported)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
