//! Removes, before the first write, what dead jobs left where this one works.

use std::sync::Arc;

use ropeway_plan::Nonce;
use ropeway_vfs::{RelPath, Tree};

use crate::job::context::Context;
use crate::job::root::JobRoot;
use crate::sweep::account::account_swept;
use crate::sweep::fate::{Found, look};
use crate::sweep::others::sweep_claim;
use crate::sweep::place::{is_resumed, refuse};
use crate::sweep::removal::{self, Swept};
use crate::sweep::{search, vanished};

/// Number of folders in which claims are looked for before a run: those of its first roots. A
/// guess.
const BEGIN_MAX: usize = 32;
/// Removes, before the first write, what dead jobs left where this one works, and what this job no
/// longer needs.
pub(crate) async fn sweep_before(context: &Arc<Context>, roots: &[Arc<JobRoot>]) {
    if context.config.options.dry_run {
        return;
    }
    let (shared, roots) = (Arc::clone(context), roots.to_vec());
    let looking = async move { look_around(&shared, &roots).await };
    if context.temporaries.unwaited {
        // Nothing waits for these round trips: no name of this job is there yet.
        *context.temporaries.looking.lock() = Some(tokio::spawn(looking));
    } else {
        looking.await;
    }
}

async fn look_around(context: &Arc<Context>, roots: &[Arc<JobRoot>]) {
    let resumed = is_resumed(context);
    let mut dirs: Vec<RelPath> = Vec::new();
    for root in roots.iter().take(BEGIN_MAX) {
        let path = &root.root.target_path;
        for dir in path.parent().into_iter().chain([path.clone()]) {
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
    }
    // At once, because each may cost a round trip.
    let looks = dirs.into_iter().map(|dir| claims_in(context, dir));
    for (dir, claims) in futures_util::future::join_all(looks).await {
        for nonce in claims {
            if nonce != context.temporaries.nonce {
                consider(context, (&*context.config.target, &dir), nonce, roots).await;
            } else if resumed && let Err(error) = context.temporaries.own.take_again(&dir).await {
                return refuse(context, &error);
            }
        }
    }
    if roots.iter().any(|root| root.root.target_path.is_root()) {
        beside_root(context).await;
    }
    if resumed {
        vanished::remove(context, roots).await;
    }
}

/// Handles a target that did not exist when an earlier run began and is the root of the tree now.
/// What that run left beside it is not below this tree, and nobody continues it.
async fn beside_root(context: &Context) {
    let Some(above) = context.config.target.above() else {
        return;
    };
    let top = RelPath::root();
    for nonce in removal::claims_in(&*above, &top).await.unwrap_or_default() {
        consider(context, (&*above, &top), nonce, &[]).await;
    }
}

async fn claims_in(context: &Context, dir: RelPath) -> (RelPath, Vec<Nonce>) {
    let claims = removal::claims_in(&*context.config.target, &dir).await;
    (dir, claims.unwrap_or_default())
}

/// Handles a claim of another job where this one works. If that job is dead and nobody will
/// continue it, removes what it left. If its claim may not name all folders, searches those below
/// `roots`.
async fn consider(
    context: &Context,
    (target, dir): (&dyn Tree, &RelPath),
    nonce: Nonce,
    roots: &[Arc<JobRoot>],
) {
    let temporaries = &context.temporaries;
    let Found::Abandoned(claim, record) = look(target, dir, nonce).await else {
        return;
    };
    // Only its age is needed, which counts where nothing else tells.
    let metadata = target.metadata(&dir.join(&nonce.claim())).await.ok();
    let modified = metadata.and_then(|metadata| metadata.modified.known());
    let has_journal = |job: &str| {
        let journals = temporaries.journals.as_ref();
        journals.is_some_and(|journals| journals.has_journal(job))
    };
    let now = context.config.environment.clock.now();
    if temporaries
        .observer
        .is_orphan(record.owner(), modified, now, has_journal)
    {
        let mut found = Swept::default();
        if record.is_partial(claim.kind(), &context.config.environment.boot_id) {
            let paths = roots.iter().map(|root| &root.root.target_path);
            let below = paths.filter(|path| path.strip_prefix(dir).is_some());
            let goes_on = || !context.stopped();
            search::remove_below(target, below.cloned().collect(), nonce, goes_on, &mut found).await;
        }
        let is_whole = found.failed.is_empty() && !context.stopped();
        account_swept(context, found).await;
        if !is_whole {
            return;
        }
        sweep_claim(context, (target, dir), nonce, (claim, &record)).await;
    }
}
