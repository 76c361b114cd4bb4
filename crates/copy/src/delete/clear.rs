//! Removes what a job left where no user sees it, and makes nodes in its place.

use std::time::Duration;

use ropeway_vfs::{DirEntry, Error, ErrorKind, Name, RelPath};

use crate::delete::above::Above;
use crate::delete::nodes::CHUNK;
use crate::delete::unseen::remove_unseen;
use crate::durable::control::DurabilityControl;
use crate::job::config::JobConfig;
use crate::job::report::Report;

/// Largest number of times that a node in the way is removed. More than one are needed only if a
/// server restarts meanwhile and its reply is lost.
const CLEAR_TRIES: u32 = 5;
/// Pause while a server removes a node in the way. A guess.
const REMOVAL_PAUSE: Duration = Duration::from_millis(100);

/// Removes everything in a hidden folder except some names.
///
/// # Errors
/// It cannot be listed, or something cannot be removed.
pub(crate) async fn clear_all_but(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    dir: &RelPath,
    stays: impl Fn(&Name) -> bool,
) -> Result<(), Error> {
    clear_unless(config, durability, report, dir, |entry| stays(&entry.name)).await
}

/// Removes everything in a hidden folder except the entries for which `stays` returns `true`, and
/// the temporary names of this job.
///
/// # Errors
/// It cannot be listed, or something cannot be removed.
pub(super) async fn clear_unless(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    dir: &RelPath,
    stays: impl Fn(&DirEntry) -> bool,
) -> Result<(), Error> {
    let mut listing = config.target.list(dir).await?;
    loop {
        let entries = listing.next(CHUNK).await?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            if !config.is_own_temporary(&entry.name) && !stays(&entry) {
                clear(config, durability, report, &dir.join(&entry.name)).await?;
            }
        }
    }
}

/// Removes what an earlier run or try of this job left under a name that no user ever saw, whatever
/// it is. It is no error if nothing is there.
///
/// # Errors
/// It cannot be removed.
pub(crate) async fn clear(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    path: &RelPath,
) -> Result<(), Error> {
    durability.touch();
    let goes_on = || !report.stopped();
    match remove_unseen(&*config.target, path, Above::Named, true, goes_on).await {
        Err(error) if error.kind != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a node under a name that no user ever saw, and removes what is in the way: what an earlier
/// try or run left, or what a server made before it restarted, so that its answer was lost.
///
/// # Errors
/// The node cannot be made, or what is in the way cannot be removed.
pub(crate) async fn make_anew<T, F>(
    config: &JobConfig,
    durability: &DurabilityControl,
    report: &Report,
    path: &RelPath,
    make: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut made = make().await;
    for _ in 0..CLEAR_TRIES {
        let cleared = match made {
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                clear(config, durability, report, path).await
            }
            Err(error) if error.kind == ErrorKind::Busy => Err(error),
            made => return made,
        };
        match cleared {
            // A server is still removing it ([MS-ERREF] STATUS_DELETE_PENDING).
            Err(error) if error.kind == ErrorKind::Busy => drop(report.sleep(REMOVAL_PAUSE).await),
            cleared => cleared?,
        }
        made = make().await;
    }
    made
}
