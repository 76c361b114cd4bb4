//! An open node: forwards everything, reads through the cache.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ropeway_vfs::external::{ContentLease, Watching};
use ropeway_vfs::posix::{Permissions, XattrSet};
use ropeway_vfs::store::{
    Access, Entries, Node, NodeChange, NodeOpen, NodeStat, Opened, RangeLock, StreamInfo, StreamOpen,
};
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{Error, ErrorKind, FileId, Name, Op, RelPath, Result, Xattr};

use crate::boost::Shared;
use crate::files::{Extras, FileState};
use crate::known::{Ask, Found, Question};
use crate::offline::{NotedEntries, Offline};
use crate::source::Source;
use crate::store::StoreShared;

/// Longest list of streams or extended attributes, or security descriptor, that is kept of a file.
const EXTRA_MAX: usize = 1024;

/// A node of a [`BoostStore`](crate::BoostStore).
pub(crate) struct BoostNode {
    pub(crate) source: Source,
    pub(crate) store: Arc<StoreShared>,
    /// The state of a file that may be cached.
    pub(crate) file: Option<Arc<FileState>>,
    access: Access,
    /// Whether it was opened to bring blocks back into the kernel's memory, by no program.
    pub(crate) is_reader: bool,
    /// Where it was opened, and when; `None` for a stream.
    pub(crate) place: Option<Place>,
}

/// Where a node was opened.
pub(crate) struct Place {
    pub(crate) path: RelPath,
    pub(crate) link_itself: bool,
    id: FileId,
    question: Question,
}

impl BoostNode {
    /// Makes a node of one that the source has opened.
    pub(crate) fn opened(
        store: &Arc<StoreShared>,
        path: &RelPath,
        how: &NodeOpen,
        question: Question,
        opened: &Opened,
    ) -> Self {
        let file = store.file_of(&opened.stat);
        if let Some(file) = &file {
            store.learn(file, (question.number, question.at), &opened.stat);
        }
        Self {
            access: opened.node.access(),
            is_reader: store.boost.shared.hogs.is_reader(),
            source: Source::open(Arc::clone(&opened.node)),
            store: Arc::clone(store),
            file,
            place: Some(Place {
                path: path.clone(),
                link_itself: how.link_itself,
                id: opened.stat.id,
                question,
            }),
        }
    }

    /// Makes a node of what is known, while the source is lost.
    pub(crate) fn known(store: &Arc<StoreShared>, path: &RelPath, how: NodeOpen, stat: &NodeStat) -> Self {
        Self {
            access: how.access,
            is_reader: store.boost.shared.hogs.is_reader(),
            source: Source::later(path, how, stat.id),
            store: Arc::clone(store),
            file: store.file_of(stat),
            place: Some(Place {
                path: path.clone(),
                link_itself: how.link_itself,
                id: stat.id,
                question: store.question(),
            }),
        }
    }

    /// Returns the source's node, and opens it if need be.
    pub(crate) fn inner(&self) -> Result<&dyn Node> {
        self.source.get(&self.store).map(|node| &**node)
    }

    /// Returns the source's node behind a node.
    pub(crate) fn source_of(node: &dyn Node) -> Result<&dyn Node> {
        match node.as_any().downcast_ref::<Self>() {
            Some(own) => own.inner(),
            None => Ok(node),
        }
    }

    pub(crate) fn boost(&self) -> &Shared {
        &self.store.boost.shared
    }

    /// Returns where it was opened, for messages.
    pub(crate) fn path(&self) -> RelPath {
        self.place
            .as_ref()
            .map(|place| place.path.clone())
            .unwrap_or_default()
    }

    /// Returns the place, unless a change through the store may have touched it.
    fn unchanged_place(&self) -> Option<&Place> {
        let (place, offline) = (self.place.as_ref()?, self.store.offline.as_ref()?);
        let is_changed = offline.known.lock().is_changed_since(place.question, &place.path);
        (!is_changed).then_some(place)
    }

    /// Runs a change of the content, during which the cache is not used for the file.
    fn changing<T>(&self, change: impl FnOnce(&dyn Node) -> Result<T>) -> Result<T> {
        let inner = self.inner()?;
        let Some(file) = &self.file else {
            return change(inner);
        };
        file.coherence.lock().begin_change();
        let changed = change(inner);
        let next = self.store.files.ask();
        let now = self.boost().now();
        if let Some(source) = self.store.versioning() {
            file.coherence.lock().end_change(next, now, &source);
        } else {
            file.coherence.lock().end_change_unseen();
        }
        changed
    }

    /// Runs a change of attributes.
    fn touching<T>(&self, change: impl FnOnce(&dyn Node) -> Result<T>) -> Result<T> {
        let changed = change(self.inner()?);
        if let Some(file) = &self.file {
            *file.extras.lock() = Extras::default();
            let next = self.store.files.ask();
            file.coherence.lock().attributes_changed(next);
        } else if let (Some(place), Some(offline)) = (&self.place, &self.store.offline) {
            let mut known = offline.known.lock();
            match known.is_changed_since(place.question, &place.path) {
                // It may have another path by now.
                true => known.clear(),
                false => known.changed(&place.path),
            }
        }
        changed
    }

    /// Asks for what clients ask of a file besides its attributes and content. `place`: where the
    /// answer is kept, if it is short.
    fn extra<T: Clone>(
        &self,
        ask: impl Fn(&dyn Node) -> Result<T>,
        length: impl Fn(&T) -> usize,
        place: impl Fn(&mut Extras) -> &mut Option<(Duration, T)>,
    ) -> Result<T> {
        let asking = || {
            let question = self.store.question();
            let answer = ask(self.inner()?)?;
            let kept = (length(&answer) <= EXTRA_MAX).then(|| (question.at, answer.clone()));
            match (&self.file, &self.store.offline) {
                (Some(file), Some(_)) => *place(&mut file.extras.lock()) = kept,
                (None, Some(offline)) => self.folder_extra(offline, question, |extras| {
                    *place(extras) = kept;
                }),
                (_, None) => {}
            }
            Ok(answer)
        };
        self.store.ask_or(asking, |offline, now| {
            let kept = match &self.file {
                // Not of a file that was changed through this store since.
                Some(file) => {
                    self.store.last_stat(offline, now, file)?;
                    place(&mut file.extras.lock()).clone()
                }
                None => {
                    let folder = self.known_folder(offline, now)?;
                    let known = offline.known.lock();
                    let is_changed = |question| known.is_changed_since(question, &folder.path);
                    let mut extras = offline.extras.lock();
                    place(extras.get(&folder.path, folder.id, is_changed)?).clone()
                }
            };
            let (at, answer) = kept?;
            offline.allows(now, at).then_some(Ok(answer))
        })
    }

    /// Keeps an answer about a node that is no file, unless its path was changed meanwhile.
    fn folder_extra(&self, offline: &Offline, question: Question, keep: impl FnOnce(&mut Extras)) {
        let Some(folder) = self.unchanged_place() else {
            return;
        };
        let known = offline.known.lock();
        let is_changed = |question| known.is_changed_since(question, &folder.path);
        if !is_changed(question) {
            let mut extras = offline.extras.lock();
            keep(extras.place(&folder.path, folder.id, question, is_changed));
        }
    }

    /// Returns the place of a node that is no file, if it was the same node at the last answer.
    fn known_folder(&self, offline: &Offline, now: Duration) -> Option<&Place> {
        let place = self.unchanged_place()?;
        let ask = if place.link_itself {
            Ask::Itself
        } else {
            Ask::Followed
        };
        match self.store.answer(offline, now, &place.path, ask)? {
            Found::There(stat) if stat.id == place.id => Some(place),
            _ => None,
        }
    }

    /// Runs what writes out all changes made before.
    fn writing_out(&self, write: impl FnOnce(&dyn Node) -> Result<()>) -> Result<()> {
        if self.source.if_open().is_none() {
            // Nothing can have been written.
            return Ok(());
        }
        let changes = self.file.as_ref().map(|file| file.coherence.lock().changes());
        write(self.inner()?)?;
        if let (Some(file), Some(changes)) = (&self.file, changes)
            && let Some(source) = self.store.versioning()
        {
            let next = self.store.files.ask();
            let now = self.boost().now();
            file.coherence.lock().written_out(changes, next, now, &source);
        }
        Ok(())
    }

    /// Asks for the attributes of a node without content in the cache.
    fn stat_other(&self) -> Result<NodeStat> {
        let asking = || {
            let question = self.store.question();
            let stat = self.inner()?.stat()?;
            if let Some(place) = self.unchanged_place() {
                let ask = if place.link_itself {
                    Ask::Itself
                } else {
                    Ask::Followed
                };
                self.store.note(question, &place.path, ask, &stat);
            }
            Ok(stat)
        };
        self.store.ask_or(asking, |offline, now| {
            let place = self.unchanged_place()?;
            let ask = if place.link_itself {
                Ask::Itself
            } else {
                Ask::Followed
            };
            match self.store.answer(offline, now, &place.path, ask)? {
                Found::There(stat) if stat.id == place.id => Some(Ok(stat)),
                _ => None,
            }
        })
    }
}

impl Node for BoostNode {
    fn access(&self) -> Access {
        self.access
    }

    fn stat(&self) -> Result<NodeStat> {
        match &self.file {
            Some(file) => self.store.ask_or(
                || self.ask(file),
                |offline, now| self.store.last_stat(offline, now, file).map(Ok),
            ),
            None => self.stat_other(),
        }
    }

    fn stat_now(&self) -> Result<NodeStat> {
        self.inner()?.stat_now()
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        let (Some(file), Some(_)) = (&self.file, change.changed) else {
            return self.touching(|inner| inner.change(change));
        };
        // The time could be that of an earlier version.
        file.coherence.lock().bar(true);
        let changed = self.changing(|inner| inner.change(change));
        self.boost().forget(file);
        changed
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(buffer, offset, !self.is_reader)
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>> {
        match self.source.if_open() {
            Some(inner) => inner.read_cached(buffer, offset),
            None => Ok(None),
        }
    }

    fn in_memory(&self) -> bool {
        self.source.if_open().is_some_and(|inner| inner.in_memory())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.changing(|inner| inner.write_at(data, offset))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.changing(|inner| inner.set_len(length))
    }

    fn allocate(&self, length: u64) -> Result<()> {
        self.changing(|inner| inner.allocate(length))
    }

    fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<()> {
        self.changing(|inner| inner.zero(offset, length, hole))
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        let known = |offline: &Offline, now| {
            // Without knowledge of holes everything is data.
            let stat = self.store.last_stat(offline, now, self.file.as_ref()?)?;
            let end = offset.saturating_add(length).min(stat.size);
            let run = (offset < end && max > 0).then(|| Extent {
                offset,
                length: end - offset,
            });
            Some(Ok(run.into_iter().collect()))
        };
        self.store
            .ask_or(|| self.inner()?.extents(offset, length, max), known)
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        let source = Self::source_of(source)?;
        self.changing(|inner| inner.copy_from(source, source_offset, offset, length))
    }

    fn write_out(&self) -> Result<()> {
        self.writing_out(|inner| inner.write_out())
    }

    fn sync(&self) -> Result<()> {
        self.writing_out(|inner| inner.sync())
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        let asking = || {
            let question = self.store.question();
            let entries = self.inner()?.entries()?;
            Ok(match self.unchanged_place() {
                Some(place) => Box::new(NotedEntries::new(entries, &self.store, question, &place.path))
                    as Box<dyn Entries>,
                None => entries,
            })
        };
        self.store.ask_or(asking, |offline, now| {
            let place = self.unchanged_place()?;
            self.store.list_known(offline, now, &place.path)
        })
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        self.inner()?.link_target()
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        let length = |all: &Vec<StreamInfo>| {
            all.iter()
                .map(|stream| stream.name.as_bytes().len() + 32)
                .sum::<usize>()
        };
        self.extra(|inner| inner.streams(), length, |extras| &mut extras.streams)
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let (inner, created) = self.touching(|base| base.open_stream(name, how))?;
        let stream = Self {
            access: inner.access(),
            is_reader: false,
            source: Source::open(inner),
            store: Arc::clone(&self.store),
            file: None,
            place: None,
        };
        Ok((Arc::new(stream), created))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        self.touching(|inner| inner.remove_stream(name))
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        self.touching(|inner| inner.rename_stream(name, to, replace))
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        let length = |kept: &Option<Vec<u8>>| kept.as_ref().map_or(0, Vec::len);
        self.extra(|inner| inner.security(), length, |extras| &mut extras.security)
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.touching(|inner| inner.set_security(descriptor))
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        let length = |all: &Vec<Xattr>| {
            all.iter()
                .map(|one| one.name.len() + one.value.len() + 48)
                .sum::<usize>()
        };
        self.extra(|inner| inner.eas(), length, |extras| &mut extras.eas)
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        self.touching(|inner| inner.set_ea(name, value))
    }

    fn watch(&self, below: bool) -> Result<Watching> {
        // A client may do without: it does not wait for a source that is lost.
        if self.store.is_lost() && self.store.offline.is_some() {
            return Err(Error::new(Op::Watch, &self.path(), ErrorKind::Unsupported));
        }
        self.inner()?.watch(below)
    }

    fn lease(&self) -> ContentLease {
        self.source
            .if_open()
            .map_or(ContentLease::None, |inner| inner.lease())
    }

    fn lock_range(&self, first: u64, last: u64, lock: RangeLock) -> Result<bool> {
        self.inner()?.lock_range(first, last, lock)
    }

    fn is_range_locked(&self, first: u64, last: u64, write: bool) -> Result<bool> {
        self.inner()?.is_range_locked(first, last, write)
    }

    fn sync_data(&self) -> Result<()> {
        self.writing_out(|inner| inner.sync_data())
    }

    fn set_permissions(&self, permissions: &Permissions) -> Result<()> {
        self.touching(|inner| inner.set_permissions(permissions))
    }

    fn device(&self) -> Result<Option<(u32, u32)>> {
        self.inner()?.device()
    }

    fn reserve(&self, offset: u64, length: u64) -> Result<()> {
        self.changing(|inner| inner.reserve(offset, length))
    }

    fn xattr_names(&self) -> Result<Vec<Vec<u8>>> {
        self.inner()?.xattr_names()
    }

    fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner()?.xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        self.touching(|inner| inner.set_xattr(name, value, how))
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.touching(|inner| inner.remove_xattr(name))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
