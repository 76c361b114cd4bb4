//! Tells the store's own changes from those of others in what a server reports. Pure.
//!
//! A server reports a change to everyone who watches the folder, also to the one who made it, and
//! does not say who that was. So the store remembers the paths that it changes, for a short time,
//! and takes the first report of each kind about such a path for its own. A second report of a kind
//! is another client's. Contents are not decided by this, but by leases.

use std::collections::VecDeque;
use std::time::Duration;

use ropeway_smb_wire::change_notify::Action;
use ropeway_vfs::RelPath;

/// Time after a change in which its report comes. A guess: several round trips of any line.
const REPORTED_WITHIN: Duration = Duration::from_secs(2);
/// Changes remembered. A guess: with more in that time, some are reported as if another had made
/// them.
const CHANGES_MAX: usize = 4096;

/// The store's last changes.
#[derive(Debug, Default)]
pub(super) struct OwnChanges {
    recent: VecDeque<OwnChange>,
}

#[derive(Debug)]
struct OwnChange {
    path: RelPath,
    at: Duration,
    /// What was reported of it.
    reported: Vec<Action>,
}

impl OwnChanges {
    /// Remembers a change that is made at `now`.
    pub(super) fn note(&mut self, path: &RelPath, now: Duration) {
        self.forget(now);
        // A change is noted before it is made and after it, so the last entry is looked at first.
        if let Some(known) = self.recent.iter_mut().rev().take(8).find(|own| own.path == *path) {
            known.at = now;
            return;
        }
        if self.recent.len() == CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(OwnChange {
            path: path.clone(),
            at: now,
            reported: Vec::new(),
        });
    }

    /// Returns whether a report that came at `now` is about a change of the store.
    pub(super) fn is_own(&mut self, path: &RelPath, action: Action, now: Duration) -> bool {
        self.forget(now);
        let mut of_path = self.recent.iter_mut().filter(|own| own.path == *path);
        if action == Action::MODIFIED {
            // One write may be reported several times.
            return of_path.next().is_some();
        }
        let unreported = of_path.find(|own| !own.reported.contains(&action));
        unreported.map(|own| own.reported.push(action)).is_some()
    }

    fn forget(&mut self, now: Duration) {
        while let Some(oldest) = self.recent.front()
            && oldest.at + REPORTED_WITHIN < now
        {
            self.recent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn each_kind_of_report_is_own_once() {
        let mut own = OwnChanges::default();
        assert!(!own.is_own(&path("f"), Action::ADDED, at(0)));
        own.note(&path("f"), at(0));
        own.note(&path("f"), at(1));
        assert!(!own.is_own(&path("g"), Action::ADDED, at(2)));
        assert!(own.is_own(&path("f"), Action::ADDED, at(2)));
        assert!(!own.is_own(&path("f"), Action::ADDED, at(2)), "another client's");
        assert!(own.is_own(&path("f"), Action::REMOVED, at(2)));
        for _ in 0..3 {
            assert!(own.is_own(&path("f"), Action::MODIFIED, at(2)));
        }
        assert!(!own.is_own(&path("f"), Action::MODIFIED, at(3000)), "too late");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut own = OwnChanges::default();
        for number in 0..2 * CHANGES_MAX {
            own.note(&path(&format!("f{number}")), at(0));
        }
        assert_eq!(own.recent.len(), CHANGES_MAX);
        assert!(!own.is_own(&path("f0"), Action::REMOVED, at(1)));
        own.note(&path("x"), at(9000));
        assert_eq!(own.recent.len(), 1);
    }
}
