//! What may be said of a target once a copy is durable.

use std::path::Path;

use ropeway_copy::{Outcome, Status};
use ropeway_dirty::Target;
use ropeway_dirty::judge::{Condition, Verdict};
use ropeway_dirty::reading::Medium;

use crate::place::Place;

/// Returns the verdict on a target; `None` if not everything is durable there, or if the target is not
/// known any more.
pub(crate) fn verdict_on(target: &Place, outcome: &Outcome) -> Option<Verdict> {
    if outcome.status != Status::Done || outcome.summary.durable.is_none() {
        return None;
    }
    match target {
        Place::Remote(_) => Some(Verdict::FlushedByServer),
        Place::Local(path) => verdict_on_path(path),
    }
}

/// Returns the verdict on a folder or block device of this machine.
pub(crate) fn verdict_on_path(path: &Path) -> Option<Verdict> {
    let target = Target::of(path).ok()?;
    if target.medium != Medium::Removable {
        let medium = target.medium;
        let condition = Condition {
            medium,
            ..Condition::default()
        };
        return Some(condition.verdict());
    }
    Some(Condition::of(&target).verdict())
}
