//! Models what a power cut leaves.
//!
//! The model is a journalling file system, made harsh where a program must not rely on it:
//! * Changes of names survive in order: after the cut, the first n of those not yet synced exist
//!   and the others do not. `Tree::sync` and `sync_dir` (of a folder that a change touches) make
//!   changes durable, with all earlier ones; `File::sync` does not.
//! * A file's content and length are those of its last `File::sync` or `Tree::sync`. Each page
//!   written since has its old or its new bytes, or a mixture of old and new sectors.
//! * Attributes are those of the last sync or the newest.
//!
//! A seed decides between the possible outcomes.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use super::content::{Content, Durable, PAGE, Page};
use super::nodes::{Body, Node};
use super::random::Random;
use super::state::{ROOT, State};
use super::{MemoryTree, Shared};
use crate::Name;

/// Bytes that a device writes as a whole or not at all.
const SECTOR: usize = 512;

/// Changes of names that are not durable yet.
#[derive(Clone, Default)]
pub(super) struct Log {
    /// For each change, the previous state of the entries it touched.
    changes: VecDeque<Vec<Undo>>,
    /// The change in progress.
    current: Vec<Undo>,
    /// How often each node occurs in the log.
    named: BTreeMap<u64, usize>,
}

#[derive(Clone)]
struct Undo {
    dir: u64,
    key: Vec<u8>,
    before: Option<(Name, u64)>,
}

impl Log {
    pub(super) fn push(&mut self, dir: u64, key: Vec<u8>, before: Option<(Name, u64)>) {
        for index in before.iter().map(|(_, index)| *index).chain([dir]) {
            *self.named.entry(index).or_default() += 1;
        }
        self.current.push(Undo { dir, key, before });
    }

    /// Whether a change to be undone needs this node.
    pub(super) fn names(&self, index: u64) -> bool {
        self.named.contains_key(&index)
    }

    /// Drops the oldest changes. Returns the nodes that no other change needs.
    fn forget(&mut self, count: usize) -> Vec<u64> {
        let mut free = Vec::new();
        for undo in self.changes.drain(..count).flatten() {
            for index in undo.before.iter().map(|(_, index)| *index).chain([undo.dir]) {
                let left = self.named.get_mut(&index);
                let left = left.map_or(0, |count| {
                    *count -= 1;
                    *count
                });
                if left == 0 {
                    self.named.remove(&index);
                    free.push(index);
                }
            }
        }
        free
    }
}

impl State {
    pub(super) fn begin_crash_model(&mut self) {
        self.log = Some(Log::default());
        for node in self.nodes.values_mut() {
            node.durable = Some(node.attributes.clone());
            if let Body::File(content) = &mut node.body {
                content.restore(content.size(), content.pages.clone());
            }
        }
    }

    /// Ends one change of names: its parts are undone together or not at all.
    pub(super) fn commit(&mut self) {
        if let Some(log) = &mut self.log {
            let change = std::mem::take(&mut log.current);
            log.changes.push_back(change);
        }
    }

    fn make_durable(&mut self, count: usize) {
        let free = self.log.as_mut().map(|log| log.forget(count)).unwrap_or_default();
        for index in free {
            if self.nodes.contains_key(&index) {
                self.reap(index);
            }
        }
    }

    pub(super) fn sync_all(&mut self) {
        let count = self.log.as_ref().map_or(0, |log| log.changes.len());
        self.make_durable(count);
        if self.log.is_some() {
            for node in self.nodes.values_mut() {
                node.sync(false);
            }
        }
    }

    pub(super) fn sync_dir(&mut self, dir: u64) {
        let touches = |change: &Vec<Undo>| change.iter().any(|undo| undo.dir == dir);
        let log = self.log.as_ref();
        let count = log
            .and_then(|log| log.changes.iter().rposition(touches))
            .map_or(0, |at| at + 1);
        self.make_durable(count);
        self.node_mut(dir).sync(false);
    }
}

impl Node {
    /// Makes content (and attributes) durable.
    pub(super) fn sync(&mut self, data_only: bool) {
        if let Body::File(content) = &mut self.body {
            content.sync();
        }
        if !data_only && self.durable.is_some() {
            self.durable = Some(self.attributes.clone());
        }
    }

    /// Returns the node as a power cut leaves it.
    fn after_crash(&self, random: &mut Random) -> Self {
        let mut node = self.clone();
        node.open = 0;
        node.failures = Default::default();
        if let Some(durable) = &self.durable
            && random.flip()
        {
            node.attributes = durable.clone();
        }
        node.durable = Some(node.attributes.clone());
        if let Body::File(content) = &mut node.body {
            crash_content(content, random);
        }
        node
    }
}

fn crash_content(content: &mut Content, random: &mut Random) {
    let Some((durable, dirty)) = content.durable.take() else {
        return;
    };
    let Durable {
        size: old,
        pages: mut kept,
        unmapped,
    } = durable;
    let new = content.size();
    let size = match random.below(3) {
        0 => old,
        1 => new,
        _ => old.min(new) + random.below(old.abs_diff(new).saturating_add(1)),
    };
    for number in dirty.difference(&unmapped).copied() {
        match (random.below(3), content.pages.get(&number)) {
            (0, _) => {}
            (1, Some(page)) => {
                kept.insert(number, Arc::clone(page));
            }
            (1, None) => {
                kept.remove(&number);
            }
            (_, page) => {
                let torn = tear(kept.get(&number), page, random);
                kept.insert(number, Arc::new(torn));
            }
        }
    }
    content.restore(size, kept);
}

/// Mixes new and old sectors.
fn tear(old: Option<&Arc<Page>>, new: Option<&Arc<Page>>, random: &mut Random) -> Page {
    let mut page = old.map_or([0; PAGE as usize], |page| **page);
    for start in (0..PAGE as usize).step_by(SECTOR) {
        if random.flip() {
            match new {
                Some(new) => page[start..start + SECTOR].copy_from_slice(&new[start..start + SECTOR]),
                None => page[start..start + SECTOR].fill(0),
            }
        }
    }
    page
}

impl MemoryTree {
    /// Returns a tree as a power cut at this moment could leave it; the same seed gives the same
    /// tree. This tree is not changed.
    ///
    /// # Panics
    /// Without [`with_crash_model`](Self::with_crash_model).
    pub fn crash(&self, seed: u64) -> MemoryTree {
        let mut random = Random::new(seed);
        let state = self.shared.lock();
        let log = state
            .log
            .as_ref()
            .expect("only a tree with the crash model can crash");
        let mut indices: Vec<u64> = state.nodes.keys().copied().collect();
        indices.sort_unstable();
        let mut after = State::new();
        for index in indices {
            let node = state.node(index).after_crash(&mut random);
            after.nodes.insert(index, node);
        }
        after.next_index = state.next_index;
        let survive = random.below(log.changes.len() as u64 + 1) as usize;
        for undo in log
            .changes
            .iter()
            .skip(survive)
            .rev()
            .flat_map(|change| change.iter().rev())
        {
            if let Body::Directory(entries) = &mut after.node_mut(undo.dir).body {
                match &undo.before {
                    Some(before) => entries.insert(undo.key.clone(), before.clone()),
                    None => entries.remove(&undo.key),
                };
            }
        }
        after.recount();
        after.log = Some(Log::default());
        let old = &self.shared;
        MemoryTree {
            reported: Default::default(),
            shared: Arc::new(Shared {
                capabilities: old.capabilities.clone(),
                clock: old.clock.clone(),
                space_total: old.space_total,
                discard: old.discard,
                far: old.far,
                has_digests: self.shared.has_digests,
                crash_model: true,
                volume: old.volume,
                state: parking_lot::Mutex::new(after),
            }),
        }
    }
}

impl State {
    /// Removes what the root does not lead to; counts links and space again.
    fn recount(&mut self) {
        for node in self.nodes.values_mut() {
            node.links = 0;
        }
        self.node_mut(ROOT).links = 1;
        let mut reached = HashSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(dir) = open.pop() {
            let Body::Directory(entries) = &self.node(dir).body else {
                continue;
            };
            let children: Vec<u64> = entries.values().map(|(_, index)| *index).collect();
            for child in children {
                self.node_mut(child).links += 1;
                if reached.insert(child) {
                    open.push(child);
                }
            }
        }
        self.nodes.retain(|index, _| reached.contains(index));
        let charges = self.nodes.values().map(|node| match &node.body {
            Body::File(content) => content.charge(),
            _ => 0,
        });
        self.used = charges.sum();
    }
}
