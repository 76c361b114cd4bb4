//! Judges runs: compares what a copy promises with what the trees hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ropeway_copy::{Backup, Durability, Options, Status, is_temporary};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Kind, RelPath, Timestamp, Tree};

use super::history::Ended;
use super::scenario::{Scenario, Versions};
use super::snapshot::{Node, Snapshot, path, snapshot};
use super::world::Stop;

/// The modification time of torn copies: 2 January 1980.
const TORN: Timestamp = Timestamp(315_619_200_000_000_000);

/// The trees at the end of a run, however it ended.
pub struct Moment<'a> {
    pub ended: &'a Ended,
    pub target: &'a MemoryTree,
    pub source: &'a MemoryTree,
    /// Seed of what a power cut at this moment would leave.
    pub seed: u64,
    /// Whether the job still has a journal.
    pub has_journal: bool,
}

pub struct Judge {
    pub faults: Vec<String>,
    pub source_changes: bool,
    pub had_rival: bool,
    /// Whether another job runs beside the present run.
    pub has_rival: bool,
    was_cut: bool,
    /// The source when the present run began.
    begun: Snapshot,
    /// The folders of the source, each as it was when the last run began in which it still existed.
    folders: Snapshot,
    options: Options,
    to: RelPath,
    versions: Versions,
    /// The source at the beginning.
    source: Snapshot,
    /// The target at the beginning.
    before: Snapshot,
    /// The target when a job was last done. A backup keeps these versions until the next job
    /// replaces them, as with `rsync --backup`.
    to_keep: Snapshot,
    can_modes: bool,
    can_xattrs: bool,
    can_hard_links: bool,
    journals_metadata: bool,
    grain_ns: u64,
    is_remote: bool,
}

impl Judge {
    pub fn new(scenario: &Scenario, target: &MemoryTree) -> Self {
        let can = target.capabilities();
        let grain = can
            .time_granularity_ns
            .max(scenario.source.capabilities().time_granularity_ns);
        Self {
            faults: Vec::new(),
            source_changes: false,
            had_rival: false,
            has_rival: false,
            was_cut: false,
            begun: Snapshot::new(),
            folders: Snapshot::new(),
            options: scenario.options.clone(),
            to: scenario.to.clone(),
            versions: Arc::clone(&scenario.versions),
            source: snapshot(&scenario.source),
            before: snapshot(target),
            to_keep: snapshot(target),
            can_modes: can.modes,
            can_xattrs: can.xattrs,
            can_hard_links: can.hard_links,
            journals_metadata: can.journals_metadata,
            grain_ns: grain,
            is_remote: scenario.is_remote,
        }
    }

    fn blame(&mut self, what: impl Into<String>) {
        self.faults.push(what.into());
    }

    /// The path in the source of a path in the target.
    fn source_of(&self, at: &[u8]) -> Option<Vec<u8>> {
        let below = path(at).strip_prefix(&self.to)?;
        Some(below.as_bytes().to_vec())
    }

    fn target_of(&self, at: &[u8]) -> Vec<u8> {
        self.to.join_path(&path(at)).as_bytes().to_vec()
    }

    fn is_version(&self, source: &[u8], content: &Arc<Vec<u8>>) -> bool {
        self.versions.lock().unwrap().of(source).contains(content)
    }

    /// Whether each byte of a file that was overwritten in place is 0, or stands at the same offset
    /// in a version of its source or in what was there before. Names that are one file in the
    /// source may be linked to a file that is not durable yet.
    fn is_mixture(&self, source: &[u8], found: &[u8]) -> bool {
        let id = |at: &[u8]| self.source.get(at).and_then(|node| node.id);
        let is_name = |at: &[u8]| at == source || (id(at).is_some() && id(at) == id(source));
        let before = self
            .before
            .iter()
            .filter(|(at, _)| self.source_of(at).is_some_and(|at| is_name(&at)));
        let versions = self.versions.lock().unwrap();
        let known: Vec<&Arc<Vec<u8>>> = versions
            .of(source)
            .iter()
            .chain(before.map(|(_, node)| &node.content))
            .collect();
        let is_known = |(at, byte): (usize, &u8)| {
            *byte == 0 || known.iter().any(|version| version.get(at) == Some(byte))
        };
        found.iter().enumerate().all(is_known)
    }

    fn was_in_source(&self, source: &[u8]) -> bool {
        self.versions.lock().unwrap().has(source)
    }

    /// Whether a path is a temporary name of some job, or below one.
    fn is_temporary(at: &[u8]) -> bool {
        path(at).components().any(|name| is_temporary(&name))
    }

    /// Whether a path is that of a backup.
    fn is_backup(&self, at: &[u8]) -> bool {
        let at = path(at);
        match &self.options.backup {
            None => false,
            Some(Backup::Suffix(suffix)) => at.components().any(|name| name.as_bytes().ends_with(suffix)),
            Some(Backup::Directory { base, .. }) => at.strip_prefix(base).is_some(),
        }
    }

    /// A run begins.
    pub fn before_run(&mut self, source: &MemoryTree) {
        self.begun = snapshot(source);
        let folders = self.begun.iter().filter(|(_, node)| node.kind == Kind::Directory);
        self.folders
            .extend(folders.map(|(at, node)| (at.clone(), node.clone())));
    }

    pub fn after_run(&mut self, moment: &Moment<'_>) {
        let ended = moment.ended;
        if ended.events.iter().any(|event| event == "hangs") {
            self.blame("the job hangs");
        }
        let now = snapshot(moment.target);
        self.nothing_else_changed(&now, false);
        // What a power cut at this moment could leave.
        let crashed = moment.target.crash(moment.seed);
        let device = snapshot(&crashed);
        let is_over = matches!(ended.stop, None | Some(Stop::Cancel));
        self.nothing_else_changed(&device, true);
        self.moved_only_what_is_durable(&device, &snapshot(moment.source));
        self.durable_bytes_are(&device, ended);
        if is_over && let Some(outcome) = &ended.outcome {
            let is_durable = outcome.summary.durable.is_some();
            if is_durable && ended.stop.is_none() && !self.source_changes {
                self.items_are_there(&device, ended, "on the device");
            }
            // After a fatal error, the job reports nothing about files that wait for their names.
            if outcome.fatal.is_none() && ended.stop.is_none() && !self.source_changes {
                self.items_are_there(&now, ended, "in the cache");
            }
            let is_done = outcome.status == Status::Done;
            if is_done && !self.source_changes {
                let source = self.copied(moment);
                self.is_complete(&now, &source, "in the cache");
                if is_durable {
                    self.is_complete(&device, &source, "on the device");
                }
            }
            if is_done && !ended.events.is_empty() {
                self.blame(format!(
                    "it says that all is done, and reports {:?}",
                    ended.events
                ));
            }
            // While temporary names are left for the next run, the journal stays.
            if !moment.has_journal {
                self.to_keep = now;
            }
            if is_done && !moment.has_journal {
                self.no_temporary_name(moment);
            }
        }
    }

    pub fn after_cut(&mut self, target: &MemoryTree) {
        let now = snapshot(target);
        self.was_cut = true;
        self.nothing_else_changed(&now, true);
    }

    /// A healthy run has ended.
    pub fn at_end(&mut self, moment: &Moment<'_>) {
        let Some(outcome) = &moment.ended.outcome else {
            return self.blame("a healthy run does not end");
        };
        let source = snapshot(moment.source);
        let is_empty = source.values().all(|node| node.kind == Kind::Directory);
        if outcome.status == Status::Refused && is_empty && self.options.delete.is_some() {
            // The mirror of an empty source is refused.
            return;
        }
        if outcome.status != Status::Done {
            let why = format!(
                "{:?} {:?} {:?}",
                outcome.status, outcome.fatal, moment.ended.events
            );
            return self.blame(format!("a healthy run is not done: {why}"));
        }
        let source = self.copied(moment);
        let now = snapshot(moment.target);
        self.is_complete(&now, &source, "at the end");
        self.no_temporary_name(moment);
        if self.options.move_source {
            let left: Vec<_> = snapshot(moment.source)
                .into_iter()
                .filter(|(_, node)| node.kind != Kind::Directory)
                .map(|(at, _)| path(&at).to_string())
                .collect();
            if !left.is_empty() {
                self.blame(format!("a move leaves {left:?} in the source"));
            }
        }
        if self.options.delete.is_some() {
            let extra: Vec<_> = now
                .keys()
                .filter(|at| {
                    self.source_of(at)
                        .is_some_and(|source_at| !source.contains_key(&source_at))
                })
                .filter(|at| **at != self.to.as_bytes() && !self.is_backup(at))
                .map(|at| path(at).to_string())
                .collect();
            if !extra.is_empty() {
                self.blame(format!("a mirror leaves {extra:?}"));
            }
        }
        self.counters_are_true(moment, &snapshot(moment.source));
    }

    /// The other job, which copied to the same place meanwhile, has ended too.
    pub fn after_rival(&mut self, moment: &Moment<'_>) {
        self.had_rival = false;
        match &moment.ended.outcome {
            Some(outcome) if outcome.status == Status::Done => {
                self.is_complete(
                    &snapshot(moment.target),
                    &snapshot(moment.source),
                    "after both jobs",
                );
                self.no_temporary_name(moment);
            }
            outcome => self.blame(format!(
                "the other job is not done: {outcome:?} {:?}",
                moment.ended.events
            )),
        }
    }

    /// What the runs of a job that is done have copied. A move has removed that from the source,
    /// and the folders from which it removed files got other times: the next run copies those.
    fn copied(&self, moment: &Moment<'_>) -> Snapshot {
        if !self.options.move_source {
            return snapshot(moment.source);
        }
        let mut all = self.source.clone();
        all.extend(self.folders.clone());
        all
    }

    fn counters_are_true(&mut self, moment: &Moment<'_>, source: &Snapshot) {
        let Some(outcome) = &moment.ended.outcome else {
            return;
        };
        let counters = &outcome.summary.counters;
        let files = match self.options.move_source {
            // The source is empty now, so there is nothing to compare with.
            true => return,
            false => source
                .values()
                .filter(|node| node.kind != Kind::Directory)
                .count() as u64,
        };
        if (counters.files_total, counters.files_done, counters.files_failed) != (files, files, 0) {
            self.blame(format!("{files} files, and the counters say {counters:?}"));
        }
    }

    /// Checks that foreign nodes are unchanged, and that each file of the copy has an old or a new
    /// version.
    fn nothing_else_changed(&mut self, now: &Snapshot, is_cut: bool) {
        let unsynced = (is_cut || self.was_cut) && self.options.durability == Durability::None;
        let mut faults = Vec::new();
        for (at, old) in &self.before {
            let shown = || path(at).to_string();
            let source = self.source_of(at);
            let is_ours = source.as_ref().is_some_and(|source| self.was_in_source(source)) || at.is_empty();
            let is_under = self.source_of(at).is_some();
            let found = now.get(at);
            if at.as_slice() == self.to.as_bytes() {
                continue;
            }
            if !is_ours {
                if is_under && self.options.delete.is_some() && found.is_none() {
                    continue;
                }
                match found {
                    Some(found) if is_same(old, found) => {}
                    // It is another name of a file that is copied to, and has that file's
                    // attributes.
                    Some(found) if old.links > 1 && found.content == old.content => {}
                    _ if self.is_backup(at) => {}
                    found => faults.push(format!("{} is foreign and became {found:?}", shown())),
                }
                continue;
            }
            let source = source.unwrap_or_default();
            match found {
                None if self.options.delete.is_some() || self.options.backup.is_some() => {}
                None => faults.push(format!("{} was there and is gone", shown())),
                Some(found) if found.kind == Kind::File => {
                    let inplace = self.options.inplace;
                    let is_good = found.content == old.content
                        || self.is_version(&source, &found.content)
                        || found.modified == TORN
                        || (inplace && self.is_mixture(&source, &found.content))
                        || unsynced;
                    if !is_good {
                        faults.push(format!("{} is neither the old nor a new version", shown()));
                    }
                }
                Some(_) => {}
            }
        }
        faults.extend(self.made_by_nobody(now, unsynced));
        // A backup keeps one version. While the source changes, each of its versions becomes the
        // backup when the next one replaces it.
        if self.options.backup.is_some() && !unsynced && !self.source_changes {
            faults.extend(self.unkept(now));
        }
        for fault in faults {
            let when = if is_cut { "after a power cut: " } else { "" };
            self.blame(format!("{when}{fault}"));
        }
    }

    /// Returns a fault for each node that is new and is no copy of a node of the source.
    fn made_by_nobody(&self, now: &Snapshot, unsynced: bool) -> Vec<String> {
        let mut faults = Vec::new();
        for (at, found) in now {
            if self.before.contains_key(at) || Self::is_temporary(at) || self.is_backup(at) || unsynced {
                continue;
            }
            let source = self.source_of(at).filter(|source| self.was_in_source(source));
            match source {
                _ if at.as_slice() == self.to.as_bytes() => {}
                None => faults.push(format!("{} was made by nobody", path(at))),
                Some(source)
                    if found.kind == Kind::File
                        && !(self.options.inplace && self.is_mixture(&source, &found.content))
                        && found.modified != TORN
                        && !self.is_version(&source, &found.content) =>
                {
                    faults.push(format!(
                        "{} is no version of its source ({} bytes)",
                        path(at),
                        found.content.len()
                    ));
                }
                Some(_) => {}
            }
        }
        faults
    }

    /// Returns a fault for each file whose old content is neither in its place nor in a backup.
    fn unkept(&self, now: &Snapshot) -> Vec<String> {
        let mut kept: BTreeSet<&Vec<u8>> = BTreeSet::new();
        for node in now.values().filter(|node| node.kind == Kind::File) {
            kept.insert(&node.content);
        }
        let is_lost = |(at, old): &(&Vec<u8>, &Node)| {
            let is_data = old.kind == Kind::File && !Self::is_temporary(at) && !self.is_backup(at);
            // Content that the source has, too, needs no backup: the job copies it again if it
            // cannot trust the target.
            let is_older = |source: Vec<u8>| {
                self.source
                    .get(&source)
                    .is_none_or(|was| was.content != old.content)
            };
            is_data && self.source_of(at).is_some_and(is_older) && !kept.contains(&*old.content)
        };
        let lost = self.to_keep.iter().filter(is_lost);
        lost.map(|(at, _)| format!("{} has no backup", path(at)))
            .collect()
    }

    /// Checks that everything that a move removed has a durable copy.
    fn moved_only_what_is_durable(&mut self, device: &Snapshot, source: &Snapshot) {
        if !self.options.move_source {
            return;
        }
        let mut faults = Vec::new();
        for (at, was) in &self.source {
            if source.contains_key(at) || was.kind == Kind::Directory {
                continue;
            }
            let copy = device.get(&self.target_of(at));
            if copy.is_none_or(|copy| copy.kind != was.kind || copy.content != was.content) {
                faults.push(format!(
                    "{} was removed from the source, and its copy is not durable",
                    path(at)
                ));
            }
        }
        self.faults.extend(faults);
        for (at, node) in source {
            if !self.source.contains_key(at) && !Self::is_temporary(at) {
                self.blame(format!("{} appeared in the source: {node:?}", path(at)));
            }
        }
    }

    /// Checks that the bytes that count as durable are on the device.
    fn durable_bytes_are(&mut self, device: &Snapshot, ended: &Ended) {
        let claimed = ended.counters.bytes_durable;
        // The counter is too high for failed items, for files that are copied once more, and on
        // shares (docs/testing.md). Without a journal of metadata, a failed flush may take what was
        // durable before. The job cannot know that before it hears of the failure.
        if claimed == 0
            || (ended.has_lost && !self.journals_metadata)
            || self.source_changes
            || self.is_remote
            || ended.counters.files_failed > 0
            || !ended.failed.is_empty()
            || ended.repeats
            || device.values().any(|found| self.is_torn_by_rival(found))
        {
            return;
        }
        let source = &self.source;
        let mut by_first: BTreeMap<&[u8], Vec<&Node>> = BTreeMap::new();
        for node in device.values().filter(|node| node.kind == Kind::File) {
            let first = &node.content[..node.content.len().min(8)];
            by_first.entry(first).or_default().push(node);
        }
        let mut there = 0;
        for was in source.values().filter(|node| node.kind == Kind::File) {
            let first = &was.content[..was.content.len().min(8)];
            let copies = by_first.get(first).into_iter().flatten();
            let longest = copies.map(|copy| common(&copy.content, &was.content)).max();
            there += longest.unwrap_or(0);
        }
        if claimed > there {
            self.blame(format!("{claimed} bytes count as durable, and {there} are"));
        }
    }

    /// Checks that every file that was reported as done is there.
    fn items_are_there(&mut self, now: &Snapshot, ended: &Ended, stage: &str) {
        let mut faults = Vec::new();
        for (at, was) in &self.source {
            let target = self.target_of(at);
            let failed_above = |dir: RelPath| ended.failed.contains(&dir.to_string());
            let mut above = std::iter::successors(path(&target).parent(), RelPath::parent);
            let is_done = ended.items.contains(&path(&target).to_string());
            if was.kind != Kind::File || !is_done || above.any(failed_above) {
                continue;
            }
            let found = now.get(&target);
            if found.is_some_and(|found| self.is_torn_by_rival(found)) {
                continue;
            }
            if found.is_none_or(|found| found.kind != Kind::File || found.content != was.content) {
                let what = found.map(|found| found.content.len());
                faults.push(format!(
                    "{} is reported as done and is {what:?} {stage}",
                    path(&target)
                ));
            }
        }
        self.faults.extend(faults);
    }

    /// Checks that the target has everything that the source has.
    fn is_complete(&mut self, now: &Snapshot, source: &Snapshot, stage: &str) {
        let mut faults = Vec::new();
        for (at, was) in source {
            let target = self.target_of(at);
            let shown = path(&target).to_string();
            let Some(found) = now.get(&target) else {
                faults.push(format!("{shown} is missing {stage}"));
                continue;
            };
            if self.is_torn_by_rival(found) {
                continue;
            }
            if found.kind != was.kind {
                faults.push(format!("{shown} is {:?} {stage}", found.kind));
            } else if found.content != was.content {
                let at = common(&found.content, &was.content);
                let lengths = (found.content.len(), was.content.len());
                faults.push(format!(
                    "{shown} has another content {stage}, from {at} on, {lengths:?}"
                ));
            } else if !self.has_attributes(was, found) {
                faults.push(format!("{shown} has other attributes {stage}: {found:?} {was:?}"));
            }
        }
        // Another job may replace a name by its own copy after further names were linked to the
        // copy of this job. The next run links them again. Names that an earlier run moved are no
        // longer in the source.
        if self.options.hard_links && self.can_hard_links && !self.has_rival {
            let source = match self.options.move_source {
                true => &self.begun,
                false => source,
            };
            faults.extend(self.links_differ(now, source, stage));
        }
        self.faults.extend(faults);
    }

    /// Whether the other job has put its torn copy, which it reports, in the place of this job's
    /// copy. The next run copies the file again: a torn copy has a time that no source has.
    fn is_torn_by_rival(&self, found: &Node) -> bool {
        self.has_rival && found.kind == Kind::File && found.modified == TORN
    }

    fn has_attributes(&self, was: &Node, found: &Node) -> bool {
        let mode = !self.can_modes || was.kind == Kind::Symlink || was.mode == found.mode;
        let grain = self.grain_ns.max(if self.is_remote { 100 } else { 1 });
        let is_rivals = self.had_rival && was.kind == Kind::Directory;
        let time = is_rivals || was.kind == Kind::Symlink || was.modified.equal_within(found.modified, grain);
        let xattrs = !self.can_xattrs || was.xattrs == found.xattrs;
        mode && time && xattrs
    }

    /// Returns a fault for each name that is one file with another name in the source, but not on
    /// the target.
    fn links_differ(&self, now: &Snapshot, source: &Snapshot, stage: &str) -> Vec<String> {
        let mut faults = Vec::new();
        let mut firsts = BTreeMap::new();
        for (at, was) in source
            .iter()
            .filter(|(_, node)| node.kind == Kind::File && node.links > 1)
        {
            let (Some(id), Some(found)) = (was.id, now.get(&self.target_of(at))) else {
                continue;
            };
            let first = *firsts.entry(id.index).or_insert(found.id);
            if first.is_some() && first != found.id {
                faults.push(format!("{} is no hard link {stage}", path(at)));
            }
        }
        faults
    }

    fn no_temporary_name(&mut self, moment: &Moment<'_>) {
        for tree in [moment.target, moment.source] {
            let left: Vec<_> = snapshot(tree)
                .into_keys()
                .filter(|at| Self::is_temporary(at))
                .map(|at| path(&at).to_string())
                .collect();
            if !left.is_empty() && !self.had_rival {
                self.blame(format!("temporary names stay: {left:?}"));
            }
        }
    }
}

fn is_same(one: &Node, other: &Node) -> bool {
    let is_dir = one.kind == Kind::Directory;
    one.kind == other.kind
        && one.content == other.content
        && one.mode == other.mode
        && (is_dir || one.modified == other.modified)
        && one.xattrs == other.xattrs
}

/// Returns the length of the common beginning.
fn common(one: &[u8], other: &[u8]) -> u64 {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other);
    same.count() as u64
}
