//! The state behind the mutex: finding nodes and changing names.
//!
//! Invariants: `links` of a node is the number of entries that name it (the root has one more). A
//! node is removed when it has no links, no open files and no place in the crash log. `used` is the
//! sum of all files' charges.

use std::collections::{HashMap, HashSet};
use std::sync::Weak;

use super::content::Content;
use super::crash::Log;
use super::nodes::{Attributes, Body, Entries, Node};
use super::watch::Queue;
use super::writeback::Failures;
use super::{EPOCH, Shared, names};
use crate::{
    Create, Error, ErrorKind, Kind, Loss, Metadata, MetadataChange, Name, Op, OpenOptions, RelPath, Result,
    Timestamp,
};

pub(super) const ROOT: u64 = 1;

pub(super) struct State {
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) next_index: u64,
    pub(super) used: u64,
    ticks: i128,
    pub(super) watches: Vec<Weak<Queue>>,
    pub(super) log: Option<Log>,
    /// Nodes of claims that are held.
    pub(super) claimed: HashSet<u64>,
    /// Failures of write-back anywhere in the tree.
    pub(super) failures: Failures,
}

/// A place for a name: the folder's node, the key in it, and the name.
pub(super) struct Place {
    pub(super) dir: u64,
    pub(super) key: Vec<u8>,
    pub(super) name: Name,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            nodes: HashMap::from([(ROOT, Node::root())]),
            next_index: ROOT + 1,
            used: 0,
            ticks: 0,
            watches: Vec::new(),
            log: None,
            claimed: HashSet::new(),
            failures: Failures::default(),
        }
    }

    /// Returns the time of a change.
    pub(super) fn now(&mut self, shared: &Shared) -> Timestamp {
        let since = match &shared.clock {
            Some(clock) => i128::try_from(clock.now().as_nanos()).unwrap_or(i128::MAX >> 1),
            None => {
                self.ticks += 1_000;
                self.ticks
            }
        };
        shared.rounded(Timestamp(EPOCH.0 + since))
    }

    /// Finds the node of a path; follows no link.
    pub(super) fn resolve(&self, shared: &Shared, op: Op, path: &RelPath) -> Result<u64> {
        let mut index = ROOT;
        for name in path.components() {
            let entries = self.entries(index, op, path)?;
            let entry = entries.get(&names::key(&shared.capabilities, &name));
            index = entry.ok_or_else(|| Error::new(op, path, ErrorKind::NotFound))?.1;
        }
        Ok(index)
    }

    pub(super) fn resolve_dir(&self, shared: &Shared, op: Op, path: &RelPath) -> Result<u64> {
        let index = self.resolve(shared, op, path)?;
        self.entries(index, op, path)?;
        Ok(index)
    }

    pub(super) fn resolve_file(&self, shared: &Shared, op: Op, path: &RelPath) -> Result<u64> {
        let index = self.resolve(shared, op, path)?;
        match self.kind(index) {
            Kind::File => Ok(index),
            Kind::Directory => Err(Error::new(op, path, ErrorKind::IsADirectory)),
            Kind::Symlink => Err(Error::new(op, path, ErrorKind::SymbolicLink)),
            _ => Err(Error::new(op, path, ErrorKind::Misuse)),
        }
    }

    /// Returns the entries of a folder; an error if `index` is not a folder.
    pub(super) fn entries(&self, index: u64, op: Op, path: &RelPath) -> Result<&Entries> {
        match &self.node(index).body {
            Body::Directory(entries) => Ok(entries),
            Body::Symlink(_) => Err(Error::new(op, path, ErrorKind::SymbolicLink)),
            _ => Err(Error::new(op, path, ErrorKind::NotADirectory)),
        }
    }

    pub(super) fn node(&self, index: u64) -> &Node {
        self.nodes.get(&index).expect("named and open nodes are kept")
    }

    pub(super) fn node_mut(&mut self, index: u64) -> &mut Node {
        self.nodes.get_mut(&index).expect("named and open nodes are kept")
    }

    pub(super) fn kind(&self, index: u64) -> Kind {
        self.node(index).kind()
    }

    pub(super) fn content(&self, index: u64) -> Option<&Content> {
        match &self.node(index).body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    pub(super) fn content_mut(&mut self, index: u64) -> Option<&mut Content> {
        match &mut self.node_mut(index).body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// Returns the place of a path and the node there.
    pub(super) fn place(&self, shared: &Shared, op: Op, path: &RelPath) -> Result<(Place, Option<u64>)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(Error::new(op, path, ErrorKind::Busy));
        };
        let dir = self.resolve(shared, op, &parent).map_err(|error| Error {
            path: path.clone(),
            ..error
        })?;
        let key = names::key(&shared.capabilities, &name);
        let there = self.entries(dir, op, path)?.get(&key).map(|(_, index)| *index);
        Ok((Place { dir, key, name }, there))
    }

    /// Returns a free place that accepts this name.
    fn free_place(&self, shared: &Shared, op: Op, path: &RelPath) -> Result<Place> {
        if path.is_root() {
            return Err(Error::new(op, path, ErrorKind::AlreadyExists));
        }
        let (place, there) = self.place(shared, op, path)?;
        if there.is_some() {
            return Err(Error::new(op, path, ErrorKind::AlreadyExists));
        }
        names::check(&shared.capabilities, op, path, &place.name)?;
        Ok(place)
    }

    /// Puts a node (or nothing) at a place; updates link counts and the folder's times.
    fn put(&mut self, place: &Place, new: Option<u64>, now: Timestamp) {
        if let Some(new) = new {
            self.node_mut(new).links += 1;
        }
        let dir = self.node_mut(place.dir);
        dir.attributes.modified = now;
        dir.attributes.changed = now;
        let Body::Directory(entries) = &mut dir.body else {
            unreachable!("a place is in a folder");
        };
        let before = match new {
            Some(new) => entries.insert(place.key.clone(), (place.name.clone(), new)),
            None => entries.remove(&place.key),
        };
        let gone = before.as_ref().map(|(_, index)| *index);
        if let Some(log) = &mut self.log {
            log.push(place.dir, place.key.clone(), before);
        }
        if let Some(gone) = gone {
            let node = self.node_mut(gone);
            node.links -= 1;
            node.attributes.changed = now;
            self.reap(gone);
        }
    }

    /// Removes a node that nothing leads to any more.
    pub(super) fn reap(&mut self, index: u64) {
        let node = self.node(index);
        if node.links > 0 || node.open > 0 || self.log.as_ref().is_some_and(|log| log.names(index)) {
            return;
        }
        if let Some(node) = self.nodes.remove(&index)
            && let Body::File(content) = node.body
        {
            self.used -= content.charge();
        }
    }

    /// Makes a node at a free place.
    pub(super) fn make(
        &mut self,
        shared: &Shared,
        op: Op,
        path: &RelPath,
        body: Body,
        mode: u32,
    ) -> Result<u64> {
        let place = self.free_place(shared, op, path)?;
        let now = self.now(shared);
        let index = self.next_index;
        self.next_index += 1;
        let node = Node::new(body, Attributes::new(mode & 0o7777, now), shared.crash_model);
        self.nodes.insert(index, node);
        self.put(&place, Some(index), now);
        self.commit();
        self.notify(path);
        Ok(index)
    }

    pub(super) fn make_dir(&mut self, shared: &Shared, path: &RelPath, mode: u32) -> Result<()> {
        self.make(shared, Op::MakeDir, path, Body::Directory(Entries::new()), mode)?;
        Ok(())
    }

    /// Opens a file, or makes it; the caller closes it.
    pub(super) fn open(&mut self, shared: &Shared, path: &RelPath, options: OpenOptions) -> Result<u64> {
        let op = if options.create == Create::No {
            Op::Open
        } else {
            Op::Create
        };
        let there = match self.resolve_file(shared, op, path) {
            Err(error) if error.kind == ErrorKind::NotFound && options.create != Create::No => None,
            // The name is taken by a node of any kind.
            Err(_) if options.create == Create::New && self.resolve(shared, op, path).is_ok() => {
                return Err(Error::new(op, path, ErrorKind::AlreadyExists));
            }
            other => Some(other?),
        };
        let index = match there {
            Some(_) if options.create == Create::New => {
                return Err(Error::new(op, path, ErrorKind::AlreadyExists));
            }
            Some(index) => index,
            None => {
                let body = Body::File(Content::new(shared.new_base(), shared.crash_model));
                self.make(shared, op, path, body, options.mode)?
            }
        };
        self.node_mut(index).open += 1;
        if options.create == Create::Truncate && there.is_some() {
            let emptied = self.set_len(shared, index, path, 0);
            if emptied.is_err() {
                self.close(index);
            }
            emptied?;
        }
        Ok(index)
    }

    pub(super) fn close(&mut self, index: u64) {
        self.node_mut(index).open -= 1;
        self.reap(index);
    }

    pub(super) fn remove(&mut self, shared: &Shared, path: &RelPath, dir: bool) -> Result<()> {
        let fail = |kind| Err(Error::new(Op::Remove, path, kind));
        let (place, there) = self.place(shared, Op::Remove, path)?;
        let Some(index) = there else {
            return fail(ErrorKind::NotFound);
        };
        match (&self.node(index).body, dir) {
            (Body::Directory(_), false) => return fail(ErrorKind::IsADirectory),
            (Body::Directory(entries), true) if !entries.is_empty() => return fail(ErrorKind::NotEmpty),
            (Body::Directory(_), true) | (_, false) => {}
            (_, true) => return fail(ErrorKind::NotADirectory),
        }
        let now = self.now(shared);
        self.put(&place, None, now);
        self.commit();
        self.notify(path);
        Ok(())
    }

    pub(super) fn link(&mut self, shared: &Shared, existing: &RelPath, new: &RelPath) -> Result<()> {
        let index = self.resolve(shared, Op::Link, existing)?;
        if self.kind(index) == Kind::Directory {
            return Err(Error::new(Op::Link, existing, ErrorKind::PermissionDenied));
        }
        let place = self.free_place(shared, Op::Link, new)?;
        let now = self.now(shared);
        self.put(&place, Some(index), now);
        self.node_mut(index).attributes.changed = now;
        self.commit();
        self.notify(new);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        shared: &Shared,
        from: &RelPath,
        to: &RelPath,
        replace: bool,
    ) -> Result<()> {
        let fail = |path, kind| Err(Error::new(Op::Rename, path, kind));
        let (old, there) = self.place(shared, Op::Rename, from)?;
        let Some(index) = there else {
            return fail(from, ErrorKind::NotFound);
        };
        let (new, taken) = self.place(shared, Op::Rename, to)?;
        names::check(&shared.capabilities, Op::Rename, to, &new.name)?;
        if self.leads_through(shared, to, index) {
            return fail(to, ErrorKind::Misuse);
        }
        // A new spelling of the same entry is not a second node.
        let respelled = old.dir == new.dir && old.key == new.key;
        if let Some(taken) = taken.filter(|_| !respelled) {
            if !replace {
                return fail(to, ErrorKind::AlreadyExists);
            }
            match (self.kind(index) == Kind::Directory, &self.node(taken).body) {
                (false, Body::Directory(_)) => return fail(to, ErrorKind::IsADirectory),
                (true, Body::Directory(entries)) if !entries.is_empty() => {
                    return fail(to, ErrorKind::NotEmpty);
                }
                (true, Body::Directory(_)) | (false, _) => {}
                (true, _) => return fail(to, ErrorKind::NotADirectory),
            }
            if taken == index {
                // rename(2): two names of one node both remain.
                return Ok(());
            }
        }
        let now = self.now(shared);
        self.put(&new, Some(index), now);
        if !respelled {
            self.put(&old, None, now);
        }
        self.node_mut(index).attributes.changed = now;
        self.commit();
        self.notify(from);
        self.notify(to);
        Ok(())
    }

    /// Whether `path` leads through node `through` to something below it.
    fn leads_through(&self, shared: &Shared, path: &RelPath, through: u64) -> bool {
        let mut above = path.parent();
        while let Some(dir) = above {
            if self
                .resolve(shared, Op::Rename, &dir)
                .is_ok_and(|index| index == through)
            {
                return true;
            }
            above = dir.parent();
        }
        false
    }

    pub(super) fn write(
        &mut self,
        shared: &Shared,
        index: u64,
        path: &RelPath,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > shared.capabilities.file_size_max) {
            return Err(Error::new(Op::Write, path, ErrorKind::FileTooLarge));
        }
        let length = bytes.len() as u64;
        let grows = self
            .content(index)
            .map_or(0, |content| content.charge_of_write(offset, length));
        if shared
            .space_total
            .is_some_and(|total| self.used.saturating_add(grows) > total)
        {
            return Err(Error::new(Op::Write, path, ErrorKind::NoSpace));
        }
        self.change(shared, index, path, |content| content.write(offset, bytes));
        Ok(())
    }

    pub(super) fn set_len(&mut self, shared: &Shared, index: u64, path: &RelPath, length: u64) -> Result<()> {
        if length > shared.capabilities.file_size_max {
            return Err(Error::new(Op::SetLength, path, ErrorKind::FileTooLarge));
        }
        self.change(shared, index, path, |content| content.set_len(length));
        Ok(())
    }

    /// Changes a file's content; updates times, space and watches.
    pub(super) fn change(
        &mut self,
        shared: &Shared,
        index: u64,
        path: &RelPath,
        change: impl FnOnce(&mut Content),
    ) {
        let now = self.now(shared);
        let node = self.node_mut(index);
        let Body::File(content) = &mut node.body else {
            return;
        };
        let before = content.charge();
        change(content);
        let after = content.charge();
        node.attributes.modified = now;
        node.attributes.changed = now;
        self.used = self.used - before + after;
        self.notify(path);
    }

    pub(super) fn metadata(&self, shared: &Shared, op: Op, path: &RelPath) -> Result<Metadata> {
        let index = self.resolve(shared, op, path)?;
        Ok(self.node(index).metadata(shared, index))
    }

    pub(super) fn set_metadata(
        &mut self,
        shared: &Shared,
        index: u64,
        path: &RelPath,
        change: &MetadataChange,
    ) -> Vec<Loss> {
        let now = self.now(shared);
        let node = self.node_mut(index);
        let kind = node.kind();
        let losses = node.attributes.apply(shared, kind, change, now);
        self.notify(path);
        losses
    }

    fn notify(&mut self, path: &RelPath) {
        self.watches.retain(|watch| match watch.upgrade() {
            Some(queue) => {
                queue.push(path);
                true
            }
            None => false,
        });
    }
}
