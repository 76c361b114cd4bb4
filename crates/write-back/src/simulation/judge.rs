//! Compares the far store with what was acknowledged.

use std::collections::BTreeMap;

use ropeway_vfs::RelPath;

use super::ranges_of;
use super::run::{Expected, NAMES, Run, States};

impl Run {
    pub(super) fn compare(&mut self, expected: BTreeMap<RelPath, Expected>) {
        let saved: Vec<RelPath> = self.server.paths();
        let saved: Vec<RelPath> = saved
            .into_iter()
            .filter(|path| !NAMES.contains(&path.to_string().as_str()))
            .collect();
        // A round or a removal whose beginning could not be noted looks like another's after a
        // crash: ours is beside it.
        let has_unnoted = self.disk.take_refused_note();
        let names: Vec<RelPath> = NAMES
            .iter()
            .filter_map(|name| RelPath::parse(name.as_bytes()))
            .collect();
        for path in &names {
            let found = self.server.content(path);
            let is_beside = has_unnoted && self.is_beside(self.files.get(path), path, &saved);
            // What was removed may be beside it. That excuses nothing that is there now.
            let is_left = has_unnoted && self.is_beside(self.removed.get(path), path, &saved);
            assert!(
                is_beside || is_left || expected.contains_key(path) || copies_of(path, &saved).is_empty(),
                "{}: {path}: {saved:?}",
                self.seed
            );
            let states = self.files.entry(path.clone()).or_default();
            if states.is_empty() {
                states.push(None);
            }
            assert!(
                states.contains(&found) || is_beside,
                "{}: {path} is none of the {} states that were acknowledged: {:?} of {:?} bytes",
                self.seed,
                states.len(),
                found.as_ref().map(Vec::len),
                states
                    .iter()
                    .map(|state| state.as_ref().map(Vec::len))
                    .collect::<Vec<_>>()
            );
            *states = vec![found];
        }
        for (path, conflict) in &expected {
            self.compare_conflict(path, conflict, &saved);
        }
        for path in saved {
            self.server.forget(&path);
        }
        self.uncertain.clear();
        self.removed.clear();
        (self.is_trimmed, self.was_cut) = (false, false);
    }

    /// Our side of a conflict is one of the states, in full or in the ranges that are listed.
    fn compare_conflict(&mut self, path: &RelPath, conflict: &Expected, saved: &[RelPath]) {
        let seed = self.seed;
        assert_eq!(self.server.content(path), conflict.theirs, "{seed}: {path}");
        let copies = copies_of(path, saved);
        let whole = copies
            .iter()
            .filter(|copy| self.is_of(copy, saved, &conflict.ours));
        let (count, found) = (copies.len(), whole.count());
        self.tally.conflicts += u64::from(found > 0);
        // A process that ended between two steps may have left a file that is not finished, too.
        assert!(
            count == 0 || found > 0,
            "{seed}: {path}: {copies:?} are none of ours"
        );
        let may_be_gone = !conflict.is_due || self.was_cut;
        assert!(may_be_gone || found > 0, "{seed}: {path}: ours is gone");
        let is_partial = copies.iter().any(|copy| copy.to_string().contains("parts"));
        self.tally.partial += u64::from(is_partial);
    }

    /// Whether one of the states of a file is saved under another name.
    fn is_beside(&self, states: Option<&States>, path: &RelPath, saved: &[RelPath]) -> bool {
        let Some(states) = states else { return false };
        let copies = copies_of(path, saved);
        copies.iter().any(|copy| self.is_of(copy, saved, states))
    }

    /// Whether a file has one of the states, in full or in the ranges that are listed.
    fn is_of(&self, copy: &RelPath, saved: &[RelPath], states: &States) -> bool {
        let ours = self.server.content(copy).unwrap_or_default();
        let list = saved
            .iter()
            .find(|path| path.to_string() == format!("{copy}.ranges.txt"));
        let ranges = match list {
            Some(list) => ranges_of(&self.server.content(list).unwrap_or_default()),
            None => vec![(0, ours.len())],
        };
        let is_as = |state: &Vec<u8>| {
            let same =
                |(at, length): &(usize, usize)| state.get(*at..at + length) == ours.get(*at..at + length);
            state.len() == ours.len() && ranges.iter().all(same)
        };
        states.iter().flatten().any(is_as)
    }
}

/// The files that have our side of a conflict.
fn copies_of<'a>(path: &RelPath, saved: &'a [RelPath]) -> Vec<&'a RelPath> {
    let name = path.to_string();
    let stem = name.split('.').next().unwrap_or_default();
    let start = format!("{stem} (conflict");
    let is_copy = |path: &&RelPath| {
        let name = path.to_string();
        name.starts_with(&start) && !name.contains(".ranges")
    };
    saved.iter().filter(is_copy).collect()
}
