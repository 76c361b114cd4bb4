//! Handles temporary names of other jobs that a running job meets.

use std::sync::atomic::Ordering;

use ropeway_plan::sweep::{self, Action, Fate};
use ropeway_plan::{Nonce, Temporary};
use ropeway_vfs::{Claim, Name, RelPath, Tree};

use crate::job::context::Context;
use crate::sweep::account::account_swept;
use crate::sweep::claim_record::ClaimRecord;
use crate::sweep::fate::{Found, fate_of, look};
use crate::sweep::removal::{self, Swept};

/// Number of tries to take the claim of a dead job while others look at it. A guess.
const TAKE_TRIES: u32 = 10;

/// Whether a name in a source is a temporary one of some job, and so no data. Counts it.
pub(crate) fn skips_in_source(context: &Context, name: &Name) -> bool {
    let is_one = Temporary::parse(name).is_some();
    if is_one {
        context.temporaries.in_source.fetch_add(1, Ordering::Relaxed);
    }
    is_one
}

/// Whether an entry that a mirror lists on its target is a temporary one, and so no data. No guard
/// counts it. It is removed only if its job is dead.
pub(crate) async fn passes_over(context: &Context, dir: &RelPath, name: &Name, only_looks: bool) -> bool {
    let Some(temporary) = Temporary::parse(name) else {
        return false;
    };
    let (nonce, temporaries) = (temporary.nonce(), &context.temporaries);
    if nonce == temporaries.nonce || only_looks || context.config.options.dry_run {
        return true;
    }
    let fate = {
        let mut others = temporaries.others.lock().await;
        fate_of(&mut others, &*context.config.target, dir, nonce).await
    };
    match sweep::in_mirror(&fate, &temporary, dir) {
        Action::Leave => {}
        Action::Report => drop(temporaries.unknown.fetch_add(1, Ordering::Relaxed)),
        Action::RemoveClaim => {
            if let Some((claim, record)) = take_dead(context, dir, nonce).await {
                sweep_claim(context, (&*context.config.target, dir), nonce, (claim, &record)).await;
            }
        }
        Action::RemoveNode => {
            let mut swept = Swept::default();
            removal::remove_in(&*context.config.target, dir, vec![name.clone()], &mut swept).await;
            account_swept(context, swept).await;
        }
    }
    true
}

async fn take_dead(context: &Context, dir: &RelPath, nonce: Nonce) -> Option<(Box<dyn Claim>, ClaimRecord)> {
    for _ in 0..TAKE_TRIES {
        match look(&*context.config.target, dir, nonce).await {
            Found::Abandoned(claim, record) => return Some((claim, record)),
            // Perhaps somebody only looked at it a moment ago.
            Found::Held => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            Found::Unknown | Found::Absent => return None,
        }
    }
    None
}

/// Whether a node below something that is removed must stay: a temporary one of a job that is not
/// known to be dead.
pub(crate) async fn may_be_alive(context: &Context, path: &RelPath) -> bool {
    let Some((dir, temporary)) = path
        .parent()
        .zip(path.file_name().and_then(|name| Temporary::parse(&name)))
    else {
        return false;
    };
    let nonce = temporary.nonce();
    if nonce == context.temporaries.nonce {
        return false;
    }
    let mut others = context.temporaries.others.lock().await;
    let fate = fate_of(&mut others, &*context.config.target, &dir, nonce).await;
    !matches!(fate, Fate::Dead(_))
}

pub(crate) async fn sweep_claim(
    context: &Context,
    (target, dir): (&dyn Tree, &RelPath),
    nonce: Nonce,
    claim: (Box<dyn Claim>, &ClaimRecord),
) {
    let swept = removal::claim(target, dir, nonce, claim).await;
    if swept.failed.is_empty() {
        let mut others = context.temporaries.others.lock().await;
        others.learn(nonce, Fate::Dead(None));
    }
    account_swept(context, swept).await;
}
