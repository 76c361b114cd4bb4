//! Inode numbers for the nodes of a store.
//!
//! A node is known by its [`FileId`] and keeps its number while the kernel knows it, whatever its
//! names become. The number is the id's own index where that is free, so that programs see the
//! numbers of the disk; other numbers begin at [`OWN_NUMBERS`]. A path is put together from parents
//! and names, so renaming a folder changes nothing beneath it.
//!
//! Invariants: a node is in the table while the kernel looked it up more often than it forgot it, or
//! while another node's name refers to it as the parent, or while it is open. A name leads to one
//! node; a folder has one name.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use ropeway_vfs::store::{Access, Node, NodeStat};
use ropeway_vfs::{FileId, Kind, Name, RelPath, Timestamp};

/// Number of the root (FUSE_ROOT_ID).
pub(crate) const ROOT: u64 = 1;

/// First number that is not a node's own index.
const OWN_NUMBERS: u64 = 1 << 62;

/// Most names remembered of a node with many hard links (a guess); one is enough to find it.
const NAMES_MAX: usize = 64;

/// Nanoseconds after which another change of a file has another time: FAT rounds to two seconds, and
/// no other volume is coarser.
const SETTLED: i128 = 2_000_000_000;

/// Most components of a path; each takes at least two of PATH_MAX (4096) bytes.
const DEPTH_MAX: usize = 2048;

/// All nodes that the kernel knows.
pub(crate) struct Inodes {
    table: Mutex<Table>,
    /// Changes of names so far, and those under way.
    changes: AtomicU64,
    under_way: AtomicU64,
}

/// A change of names under way. Whoever fails to find a node meanwhile tries again.
pub(crate) struct Changing<'a>(&'a Inodes);

/// A node's place, to find it in the store.
pub(crate) struct Place {
    pub(crate) path: RelPath,
    pub(crate) id: FileId,
}

/// Size, time of last write and change time of a file, as seen when it was opened. Programs that copy
/// files set the second to what it was before; nobody sets the third.
type Content = (u64, Timestamp, Timestamp);

struct Table {
    nodes: HashMap<u64, Inode>,
    by_id: HashMap<FileId, u64>,
    names: HashMap<(u64, Name), u64>,
    next: u64,
    volume: u64,
}

struct Inode {
    id: FileId,
    kind: Kind,
    /// Hard links when last seen.
    links: u64,
    /// Whether its last name was removed. Once it is closed too, the disk may use the id again.
    is_gone: bool,
    /// Parents and names, the one seen last at the end.
    names: Vec<(u64, Name)>,
    lookups: u64,
    /// Names that have this node as their parent.
    children: u64,
    open: Vec<(u64, Arc<dyn Node>)>,
    content: Option<Content>,
    dirty: Arc<AtomicU64>,
}

impl Inodes {
    /// Makes the table with the root.
    pub(crate) fn new(root: &NodeStat) -> Self {
        let mut table = Table {
            nodes: HashMap::new(),
            by_id: HashMap::new(),
            names: HashMap::new(),
            next: OWN_NUMBERS,
            volume: root.id.volume,
        };
        table.insert(ROOT, root);
        Self {
            table: Mutex::new(table),
            changes: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
        }
    }

    /// Records that the kernel looked up a name; returns the number of its node.
    pub(crate) fn looked_up(&self, parent: u64, name: &Name, stat: &NodeStat) -> u64 {
        let mut table = self.table.lock();
        let ino = table.number_of(stat);
        table.attach(parent, name, ino);
        if let Some(node) = table.nodes.get_mut(&ino) {
            node.lookups += 1;
            node.links = stat.links;
            node.is_gone = false;
        }
        ino
    }

    /// Returns the number that a node has, or would probably get.
    pub(crate) fn expected(&self, id: FileId) -> u64 {
        let table = self.table.lock();
        table.by_id.get(&id).copied().unwrap_or(id.index.max(ROOT + 1))
    }

    /// Records that the kernel forgot so many lookups.
    pub(crate) fn forget(&self, ino: u64, lookups: u64) {
        let mut table = self.table.lock();
        if let Some(node) = table.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        table.tidy(ino);
    }

    /// Returns where a node is; `None` if it has no name any more, or is not known.
    pub(crate) fn place(&self, ino: u64) -> Option<Place> {
        let table = self.table.lock();
        let id = table.nodes.get(&ino)?.id;
        let mut names = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name) = table.nodes.get(&at)?.names.last()?;
            names.push(name);
            at = *parent;
            if names.len() > DEPTH_MAX {
                // Others moved folders into each other, and the kernel has not noticed yet.
                return None;
            }
        }
        let mut bytes = Vec::new();
        for name in names.into_iter().rev() {
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name.as_bytes());
        }
        let path = RelPath::parse(&bytes)?;
        Some(Place { path, id })
    }

    /// Returns the kind of the node that has a name, if the kernel looked it up.
    pub(crate) fn kind_at(&self, parent: u64, name: &Name) -> Option<Kind> {
        let table = self.table.lock();
        let ino = table.names.get(&(parent, name.clone()))?;
        table.nodes.get(ino).map(|node| node.kind)
    }

    /// Returns the folder that holds a node.
    pub(crate) fn parent(&self, ino: u64) -> Option<u64> {
        let table = self.table.lock();
        table.nodes.get(&ino)?.names.last().map(|(parent, _)| *parent)
    }

    /// Announces a change of names. Drop the result once it is recorded.
    pub(crate) fn changing(&self) -> Changing<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Changing(self)
    }

    /// Returns the number of changes so far, and whether one is under way.
    pub(crate) fn changes(&self) -> (u64, bool) {
        let under_way = self.under_way.load(Ordering::SeqCst) > 0;
        (self.changes.load(Ordering::SeqCst), under_way)
    }

    /// Records that a name was removed, or found missing.
    pub(crate) fn removed(&self, parent: u64, name: &Name) {
        let mut table = self.table.lock();
        table.detach(parent, name, true);
    }

    /// Records a rename; a node that had the new name loses it.
    pub(crate) fn renamed(&self, from: (u64, &Name), to: (u64, &Name)) {
        let mut table = self.table.lock();
        let Some(ino) = table.names.get(&(from.0, from.1.clone())).copied() else {
            table.detach(to.0, to.1, true);
            return;
        };
        if table.names.get(&(to.0, to.1.clone())) != Some(&ino) {
            table.detach(to.0, to.1, true);
        }
        table.attach(to.0, to.1, ino);
        table.detach(from.0, from.1, false);
    }

    /// Records that two nodes exchanged their names.
    pub(crate) fn exchanged(&self, one: (u64, &Name), other: (u64, &Name)) {
        let mut table = self.table.lock();
        let keys = [(one.0, one.1.clone()), (other.0, other.1.clone())];
        let [first, second] = keys.map(|key| table.names.get(&key).copied());
        if first == second {
            return;
        }
        // The new names come first, so that no node is without one meanwhile.
        for (ino, at) in [(first, other), (second, one)] {
            table.release_name(at.0, at.1);
            if let Some(ino) = ino {
                table.attach(at.0, at.1, ino);
            }
        }
        for ino in [first, second].into_iter().flatten() {
            table.tidy(ino);
        }
    }

    /// Records an open node under the handle's number.
    pub(crate) fn opened(&self, ino: u64, handle: u64, node: &Arc<dyn Node>) {
        if let Some(inode) = self.table.lock().nodes.get_mut(&ino) {
            inode.open.push((handle, Arc::clone(node)));
        }
    }

    /// Records that a handle was closed.
    pub(crate) fn closed(&self, ino: u64, handle: u64) {
        let mut table = self.table.lock();
        let mut closed = None;
        if let Some(inode) = table.nodes.get_mut(&ino)
            && let Some(index) = inode.open.iter().position(|(known, _)| *known == handle)
        {
            closed = Some(inode.open.swap_remove(index));
        }
        // Before the store closes it: the kernel may hold the removed node until it hears of the close.
        table.release_id(ino);
        table.tidy(ino);
        drop(table);
        // Closing may ask the store, so it happens outside the lock.
        drop(closed);
    }

    /// Returns an open node with at least this access.
    pub(crate) fn open_node(&self, ino: u64, access: Access) -> Option<Arc<dyn Node>> {
        let table = self.table.lock();
        let open = &table.nodes.get(&ino)?.open;
        let found = open.iter().find(|(_, node)| node.access() >= access);
        found.map(|(_, node)| Arc::clone(node))
    }

    /// Remembers size and times of a file that is being opened; returns whether they are the same as
    /// at the last time, so that the kernel may keep what it has in memory. A file that changed
    /// within [`SETTLED`] before `now`, by the clock that stamps changes, is not remembered: it may
    /// change again at the same time.
    pub(crate) fn is_content_kept(&self, ino: u64, stat: &NodeStat, now: Timestamp) -> bool {
        let mut table = self.table.lock();
        let Some(inode) = table.nodes.get_mut(&ino) else {
            return false;
        };
        let is_settled = now.0 - stat.modified.max(stat.changed).0 > SETTLED;
        let content = is_settled.then_some((stat.size, stat.modified, stat.changed));
        let before = std::mem::replace(&mut inode.content, content);
        content.is_some() && content == before
    }

    /// Forgets what [`Self::is_content_kept`] remembers of a file.
    pub(crate) fn forget_content(&self, ino: u64) {
        if let Some(inode) = self.table.lock().nodes.get_mut(&ino) {
            inode.content = None;
        }
    }

    /// Returns the counter of bytes written to a node and not made durable.
    pub(crate) fn dirty(&self, ino: u64) -> Arc<AtomicU64> {
        let table = self.table.lock();
        let inode = table.nodes.get(&ino);
        inode.map(|inode| Arc::clone(&inode.dirty)).unwrap_or_default()
    }

    /// Returns the number of nodes in the table.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let table = self.table.lock();
        table.check();
        table.nodes.len()
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::SeqCst);
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Table {
    fn insert(&mut self, ino: u64, stat: &NodeStat) {
        let inode = Inode {
            id: stat.id,
            kind: stat.kind,
            links: stat.links,
            is_gone: false,
            names: Vec::new(),
            lookups: 0,
            children: 0,
            open: Vec::new(),
            content: None,
            dirty: Arc::default(),
        };
        self.nodes.insert(ino, inode);
        self.by_id.insert(stat.id, ino);
    }

    /// Returns the number of a node, which enters the table if it is new.
    fn number_of(&mut self, stat: &NodeStat) -> u64 {
        if let Some(ino) = self.by_id.get(&stat.id).copied() {
            if self.nodes.get(&ino).is_some_and(|node| node.kind == stat.kind) {
                return ino;
            }
            // The disk used the id again for another node, which must not have the old number.
            self.by_id.remove(&stat.id);
        }
        let index = stat.id.index;
        let is_usable = stat.id.volume == self.volume && (ROOT + 1..OWN_NUMBERS).contains(&index);
        let ino = match is_usable && !self.nodes.contains_key(&index) {
            true => index,
            false => {
                self.next += 1;
                self.next
            }
        };
        self.insert(ino, stat);
        ino
    }

    fn attach(&mut self, parent: u64, name: &Name, ino: u64) {
        let key = (parent, name.clone());
        match self.names.get(&key) {
            Some(known) if *known == ino => {
                // Evidence that this name is right: paths use the last one.
                if let Some(node) = self.nodes.get_mut(&ino)
                    && node.names.last() != Some(&key)
                {
                    node.names.retain(|known| *known != key);
                    node.names.push(key);
                }
                return;
            }
            // Another program put a new node under the name.
            Some(_) => self.detach(parent, name, true),
            None => {}
        }
        if !self.nodes.contains_key(&parent) || ino == ROOT {
            return;
        }
        self.names.insert(key.clone(), ino);
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children += 1;
        }
        let Some(node) = self.nodes.get_mut(&ino) else {
            return;
        };
        let kept = match node.kind {
            Kind::Directory => 0,
            _ => NAMES_MAX - 1,
        };
        let surplus: Vec<_> = node
            .names
            .drain(..node.names.len().saturating_sub(kept))
            .collect();
        node.names.push(key);
        for (parent, name) in surplus {
            self.names.remove(&(parent, name));
            self.lose_child(parent);
        }
    }

    /// Takes a name from the node that has it; `is_gone` if the link itself is gone too.
    fn detach(&mut self, parent: u64, name: &Name, is_gone: bool) {
        let Some(ino) = self.release_name(parent, name) else {
            return;
        };
        if let Some(node) = self.nodes.get_mut(&ino)
            && is_gone
        {
            node.links = node.links.saturating_sub(1);
            node.is_gone = node.kind == Kind::Directory || node.links == 0;
        }
        self.release_id(ino);
        self.tidy(ino);
    }

    /// Parts the number of a removed node from its id, if it is closed too: the disk may use the id
    /// again at once, and the kernel must not take the new node for the removed one.
    fn release_id(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get(&ino)
            && node.is_gone
            && node.names.is_empty()
            && node.open.is_empty()
            && self.by_id.get(&node.id) == Some(&ino)
        {
            self.by_id.remove(&node.id);
        }
    }

    fn release_name(&mut self, parent: u64, name: &Name) -> Option<u64> {
        let key = (parent, name.clone());
        let ino = self.names.remove(&key)?;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.names.retain(|known| *known != key);
        }
        self.lose_child(parent);
        Some(ino)
    }

    fn lose_child(&mut self, parent: u64) {
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children -= 1;
        }
        self.tidy(parent);
    }

    /// Removes a node that nobody needs, and then its parents if nobody needs them either.
    fn tidy(&mut self, ino: u64) {
        let is_needed = |node: &Inode| node.lookups > 0 || node.children > 0 || !node.open.is_empty();
        if ino == ROOT || self.nodes.get(&ino).is_none_or(is_needed) {
            return;
        }
        let Some(node) = self.nodes.remove(&ino) else {
            return;
        };
        if self.by_id.get(&node.id) == Some(&ino) {
            self.by_id.remove(&node.id);
        }
        for (parent, name) in node.names {
            self.names.remove(&(parent, name));
            self.lose_child(parent);
        }
    }

    #[cfg(test)]
    fn check(&self) {
        for ((parent, name), ino) in &self.names {
            assert!(self.nodes.contains_key(parent), "{name} without a parent");
            let names = &self.nodes[ino].names;
            assert_eq!(
                names
                    .iter()
                    .filter(|key| **key == (*parent, name.clone()))
                    .count(),
                1
            );
        }
        for (ino, node) in &self.nodes {
            let children = self.names.keys().filter(|(parent, _)| parent == ino).count();
            assert_eq!(node.children, children as u64);
            assert!(node.names.len() <= NAMES_MAX);
            assert!(node.kind != Kind::Directory || node.names.len() <= 1);
        }
        for (id, ino) in &self.by_id {
            assert_eq!(self.nodes[ino].id, *id);
        }
    }
}

#[cfg(test)]
mod tests;
