//! What an unfinished job has left for its next run.

use std::path::Path;

use ropeway_copy::{JobLeftovers, unfinished_jobs};

use super::leftovers;
use super::recorded::RecordedCommand;
use crate::ends::Ends;
use crate::place::Place;
use crate::servers::Servers;
use crate::ui::Kept;

/// Returns what is left of the job with these ends and a journal in this folder; `None` if it is done
/// or never began.
pub(crate) async fn kept(state_dir: &Path, ends: &Ends) -> Option<Kept> {
    let id = ends.key.id();
    let jobs = unfinished_jobs(state_dir).ok()?;
    let job = jobs.into_iter().find(|job| job.id == id)?;
    let recorded = RecordedCommand::load(state_dir, &job.id);
    let left: Option<JobLeftovers> = match (&ends.target_tree, recorded) {
        // A share may be the reason for the end.
        (Place::Local(_), Some(recorded)) => leftovers(&job, &recorded, &Servers::none(), false).await.ok(),
        _ => None,
    };
    let target = match ends.sources.as_slice() {
        [one] => ends.target_tree.below(&one.target_path),
        _ => ends.target_tree.below(&ends.target_base),
    };
    Some(Kept {
        job: id,
        target,
        bytes: left.map(|left| left.swept.bytes),
    })
}
