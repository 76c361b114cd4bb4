//! The watched nodes: marks by handle, folders by path.

use std::collections::{BTreeMap, HashMap};

use ropeway_vfs::external::{EntryChange, ExternalChange};
use ropeway_vfs::{FileId, Name, RelPath};

use super::events::{Event, Key, Spot};

/// A node with a mark.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) id: FileId,
    /// The events asked for.
    pub(super) mask: u64,
    /// Number of guards of the node.
    pub(super) users: u32,
    /// Number of those that watch everything beneath it too.
    pub(super) trees: u32,
    /// Path of a folder, as far as known.
    pub(super) path: Option<RelPath>,
    /// Whether the node is gone, and the mark with it.
    pub(super) gone: bool,
}

/// All marks of a store.
#[derive(Debug, Default)]
pub(super) struct MarkTable {
    pub(super) marks: HashMap<Key, Mark>,
    folders: BTreeMap<RelPath, Key>,
}

/// A new folder beneath a watched tree.
pub(super) struct Growth {
    pub(super) path: RelPath,
    /// Whether its content is to be reported as new.
    pub(super) report: bool,
}

impl MarkTable {
    pub(super) fn folder_count(&self) -> usize {
        self.folders.len()
    }

    /// Records the path of a folder.
    pub(super) fn place(&mut self, key: &Key, path: &RelPath) {
        let Some(mark) = self.marks.get_mut(key) else {
            return;
        };
        let before = mark.path.replace(path.clone());
        if let Some(before) = before.filter(|before| before != path)
            && self.folders.get(&before) == Some(key)
        {
            self.folders.remove(&before);
        }
        if let Some(other) = self.folders.insert(path.clone(), key.clone())
            && other != *key
            && let Some(other) = self.marks.get_mut(&other)
        {
            other.path = None;
        }
    }

    /// Removes a mark.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(path) = self.marks.remove(key).and_then(|mark| mark.path)
            && self.folders.get(&path) == Some(key)
        {
            self.folders.remove(&path);
        }
    }

    /// Whether the folder itself or one above it is watched with everything beneath.
    pub(super) fn is_covered(&self, path: &RelPath) -> bool {
        let mut above = Some(path.clone());
        while let Some(folder) = above {
            let mark = self.folders.get(&folder).and_then(|key| self.marks.get(key));
            if mark.is_some_and(|mark| mark.trees > 0) {
                return true;
            }
            above = folder.parent();
        }
        false
    }

    /// Whether the mark of a folder is still needed.
    pub(super) fn is_needed(&self, key: &Key) -> bool {
        let Some(mark) = self.marks.get(key) else {
            return false;
        };
        mark.users > 0 || mark.path.as_ref().is_some_and(|path| self.is_covered(path))
    }

    /// Returns the watched folders at a path and beneath it.
    pub(super) fn within(&self, path: &RelPath) -> Vec<(RelPath, Key)> {
        // Other names may sort between a folder and its content: `/` is not the lowest byte of a name.
        let from = self.folders.range(path.clone()..);
        from.take_while(|(other, _)| other.as_bytes().starts_with(path.as_bytes()))
            .filter(|(other, _)| other.strip_prefix(path).is_some())
            .map(|(path, key)| (path.clone(), key.clone()))
            .collect()
    }

    /// Records a rename. Returns the folders there that need no mark any more.
    pub(super) fn renamed(&mut self, from: &RelPath, to: &RelPath) -> Vec<(RelPath, Key)> {
        let mut needless = Vec::new();
        for (path, key) in self.within(from) {
            if let Some(rest) = path.strip_prefix(from) {
                let path = to.join_path(&rest);
                self.place(&key, &path);
                if !self.is_needed(&key) {
                    needless.push((path, key));
                }
            }
        }
        needless
    }

    /// Forgets the paths of folders that were moved to an unknown place; their marks stay until the nodes go.
    fn forget(&mut self, path: &RelPath) {
        for (path, key) in self.within(path) {
            self.folders.remove(&path);
            if let Some(mark) = self.marks.get_mut(&key) {
                mark.path = None;
            }
        }
    }

    fn path_of(&self, (key, name): &Spot) -> Option<RelPath> {
        Some(self.marks.get(key)?.path.as_ref()?.join(name))
    }

    fn report_node(&self, key: &Key, reports: &mut Vec<ExternalChange>) {
        if let Some(mark) = self.marks.get(key).filter(|mark| mark.users > 0) {
            reports.push(ExternalChange::Node(mark.id));
        }
    }

    /// Reports lost events for all watched nodes.
    pub(super) fn lose(&self, reports: &mut Vec<ExternalChange>) {
        let watched = self.marks.values().filter(|mark| mark.users > 0);
        reports.extend(watched.map(|mark| ExternalChange::Node(mark.id)));
        reports.push(ExternalChange::Lost);
    }

    /// Returns the folders that are watched with everything beneath.
    pub(super) fn trees(&self) -> Vec<RelPath> {
        let trees = self.marks.values().filter(|mark| mark.trees > 0);
        trees.filter_map(|mark| mark.path.clone()).collect()
    }

    /// Applies an event. Returns the reports (none for events of this process) and the new folders to watch.
    pub(super) fn take(&mut self, event: &Event, own: bool, is_there: impl Fn(&RelPath) -> bool) -> Taken {
        let mut taken = Taken::default();
        let directory = event.has(libc::FAN_ONDIR);
        if let (None, None) = (&event.old, &event.new) {
            self.take_entry(event, own, directory, is_there, &mut taken);
        } else {
            self.take_rename(event, own, directory, &mut taken);
        }
        for key in [&event.node, &event.folder].into_iter().flatten() {
            if !own {
                self.report_node(key, &mut taken.reports);
                self.report_folder(key, event, &mut taken.reports);
            }
            if event.has(libc::FAN_DELETE_SELF) {
                self.vanished(key);
            }
        }
        taken
    }

    /// Reports a change of a watched folder's own attributes.
    fn report_folder(&self, key: &Key, event: &Event, reports: &mut Vec<ExternalChange>) {
        let path = self.marks.get(key).and_then(|mark| mark.path.as_ref());
        if let Some(path) = path.filter(|_| event.has(libc::FAN_ATTRIB) && event.folder.as_ref() == Some(key))
        {
            reports.push(ExternalChange::Entry {
                path: path.clone(),
                what: EntryChange::Attributes,
                directory: true,
            });
        }
    }

    fn vanished(&mut self, key: &Key) {
        let unused = self.marks.get_mut(key).is_some_and(|mark| {
            mark.gone = true;
            mark.users == 0
        });
        if unused {
            self.remove(key);
        }
    }

    fn take_entry(
        &mut self,
        event: &Event,
        own: bool,
        directory: bool,
        is_there: impl Fn(&RelPath) -> bool,
        taken: &mut Taken,
    ) {
        let Some(spot) = &event.entry else {
            return;
        };
        if !own {
            self.report_node(&spot.0, &mut taken.reports);
        }
        let Some(path) = self.path_of(spot) else {
            return;
        };
        if event.has(libc::FAN_CREATE) && directory && self.is_covered(&path) {
            taken.growth.push(Growth {
                path: path.clone(),
                report: !own,
            });
        }
        if own {
            return;
        }
        // The order of merged events is unknown.
        let both = event.has(libc::FAN_CREATE) && event.has(libc::FAN_DELETE);
        let again = both && is_there(&path);
        let steps = [
            (again, EntryChange::Removed),
            (event.has(libc::FAN_CREATE), EntryChange::Added),
            (event.has(libc::FAN_MODIFY), EntryChange::Content),
            (event.has(libc::FAN_ATTRIB), EntryChange::Attributes),
            (event.has(libc::FAN_DELETE) && !again, EntryChange::Removed),
        ];
        let steps = steps.into_iter().filter(|(is, _)| *is);
        taken.reports.extend(steps.map(|(_, what)| ExternalChange::Entry {
            path: path.clone(),
            what,
            directory,
        }));
    }

    fn take_rename(&mut self, event: &Event, own: bool, directory: bool, taken: &mut Taken) {
        let old = event.old.as_ref().and_then(|spot| self.path_of(spot));
        let new = event.new.as_ref().and_then(|spot| self.path_of(spot));
        if !own {
            for (key, _) in [&event.old, &event.new].into_iter().flatten() {
                self.report_node(key, &mut taken.reports);
            }
            let entry = |path: &RelPath, what| ExternalChange::Entry {
                path: path.clone(),
                what,
                directory,
            };
            taken.reports.extend(match (&old, &new) {
                (Some(from), Some(to)) => Some(ExternalChange::Renamed {
                    from: from.clone(),
                    to: to.clone(),
                    directory,
                }),
                (Some(from), None) => Some(entry(from, EntryChange::Removed)),
                (None, Some(to)) => Some(entry(to, EntryChange::Added)),
                (None, None) => None,
            });
        }
        if !directory {
            return;
        }
        // Renames by this process are recorded already.
        match (&old, &new) {
            (Some(from), Some(to)) if !own => taken.needless = self.renamed(from, to),
            (Some(from), None) if !own => self.forget(from),
            _ => {}
        }
        if let Some(path) = new.filter(|path| self.is_covered(path)) {
            taken.growth.push(Growth { path, report: false });
        }
    }
}

/// The result of an event.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) reports: Vec<ExternalChange>,
    pub(super) growth: Vec<Growth>,
    pub(super) needless: Vec<(RelPath, Key)>,
}

/// Returns the report of an entry found in a new folder.
pub(super) fn found(folder: &RelPath, name: &Name, directory: bool) -> ExternalChange {
    ExternalChange::Entry {
        path: folder.join(name),
        what: EntryChange::Added,
        directory,
    }
}
