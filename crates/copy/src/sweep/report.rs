//! Finds and removes leftovers from outside of a job.

use std::collections::BTreeMap;

use ropeway_plan::sweep::{Action, KnownFates, in_sweep};
use ropeway_plan::temporary::{Nonce, Temporary};
use ropeway_vfs::{Backlog, Error, Held, Pending, RelPath, Tree};

use crate::delete::above::Above;
use crate::sweep::fate::{Found, fate_of, look};
use crate::sweep::removal::{self, Swept};
use crate::sweep::search;

/// The result of a sweep below a folder.
#[derive(Debug, Default)]
pub struct SweepReport {
    /// What was removed, or would be removed in a dry run.
    pub swept: Swept,
    /// Number of temporary names of running jobs.
    pub alive: u64,
    /// Number of temporary names of jobs that may run elsewhere.
    pub unknown: u64,
}

/// Removes what dead jobs left in a folder and everything below it on the same volume. With `all`,
/// also removes what may belong to a job that runs elsewhere. Folders that cannot be listed are
/// among the failures.
///
/// # Errors
/// The folder itself cannot be examined.
///
/// Boxed as [`Job::run`](crate::Job::run) is.
pub fn sweep_below<'a>(
    tree: &'a dyn Tree,
    dir: &'a RelPath,
    all: bool,
    dry_run: bool,
) -> Pending<'a, Result<SweepReport, Error>> {
    Box::pin(sweep(tree, dir, all, dry_run))
}

async fn sweep(tree: &dyn Tree, dir: &RelPath, all: bool, dry_run: bool) -> Result<SweepReport, Error> {
    let volume = tree.metadata(dir).await?.id.map(|id| id.volume);
    let (mut report, mut others) = (SweepReport::default(), KnownFates::default());
    // Claims are removed last: they show to whom the names below belong.
    let mut claims: Vec<(RelPath, Nonce)> = Vec::new();
    let mut stays: BTreeMap<Nonce, ()> = BTreeMap::new();
    let backlog = Backlog::of(tree);
    let mut folders = vec![(dir.clone(), Above::Named, Held::default())];
    while let Some((folder, above, _held)) = folders.pop() {
        let (listed, error) = search::list(tree, (&folder, above), volume, &backlog).await;
        report.swept.failed.extend(error);
        folders.extend(listed.folders);
        for (path, temporary, is_probe) in listed.found {
            let nonce = temporary.nonce();
            let fate = fate_of(&mut others, tree, &folder, nonce).await;
            match in_sweep(&fate, &temporary, all, is_probe) {
                Action::RemoveNode => {
                    removal::remove(tree, &path, !dry_run, &mut report.swept).await;
                    continue;
                }
                Action::RemoveClaim => {
                    claims.push((folder.clone(), nonce));
                    continue;
                }
                Action::Report => report.unknown += 1,
                Action::Leave if matches!(temporary, Temporary::Node { .. }) => report.alive += 1,
                Action::Leave => {}
            }
            stays.insert(nonce, ());
        }
    }
    if report.swept.failed.is_empty() && !dry_run {
        for (folder, nonce) in claims.into_iter().filter(|(_, nonce)| !stays.contains_key(nonce)) {
            if let Found::Abandoned(claim, record) = look(tree, &folder, nonce).await {
                let swept = removal::claim(tree, &folder, nonce, (claim, &record)).await;
                report.swept.add(swept);
            }
        }
    }
    Ok(report)
}

/// What one unfinished job has on its target.
#[derive(Debug, Default)]
pub struct JobLeftovers {
    /// Whether it runs.
    pub alive: bool,
    /// Its temporary names, removed or only counted.
    pub swept: Swept,
}

/// Finds what the job with these temporary names left, by its claims in `dirs` and in the folders
/// that the claims and `places` name. Removes it if `removes` is set.
pub async fn leftovers_of(
    tree: &dyn Tree,
    (dirs, places): (&[RelPath], &[RelPath]),
    nonce: Nonce,
    removes: bool,
) -> JobLeftovers {
    let mut report = JobLeftovers::default();
    let mut all = removal::each_once(dirs.iter().chain(places).cloned().collect());
    let mut claims = Vec::new();
    for dir in &all.clone() {
        match look(tree, dir, nonce).await {
            Found::Held => report.alive = true,
            Found::Abandoned(claim, record) => {
                all.extend(removal::places_of(dir, &record));
                claims.push((dir.clone(), claim));
            }
            Found::Unknown | Found::Absent => {}
        }
    }
    let all = removal::each_once(all);
    if removes && !report.alive {
        report.swept = removal::places(tree, all, nonce).await;
        for (dir, claim) in claims {
            if report.swept.failed.is_empty() {
                removal::remove_claim(tree, &dir, claim, &mut report.swept).await;
            }
        }
        return report;
    }
    for place in all {
        for name in removal::names_of(tree, &place, nonce).await.unwrap_or_default() {
            removal::remove(tree, &place.join(&name), false, &mut report.swept).await;
        }
    }
    report
}
