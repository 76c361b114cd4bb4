//! Removes temporary names of an earlier run of this job whose sources are gone.

use std::collections::HashSet;
use std::sync::Arc;

use ropeway_plan::temporary::Temporary;
use ropeway_vfs::{ErrorKind, Name, RelPath};

use crate::job::context::Context;
use crate::job::root::JobRoot;
use crate::journal::token::token_of;
use crate::sweep::account::account_swept;
use crate::sweep::place::known_places;
use crate::sweep::removal::{self, Swept};

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;

/// Removes them before the first write: they take room that the rest may need.
pub(super) async fn remove(context: &Arc<Context>, roots: &[Arc<JobRoot>]) {
    let target = &*context.config.target;
    for place in known_places(context).await {
        let Ok(mut names) = removal::names_of(target, &place, context.temporaries.nonce).await else {
            continue;
        };
        for root in roots {
            if names.is_empty() {
                break;
            }
            match needed(root, &place).await {
                Some(tokens) => names.retain(|name| !is_among(name, &tokens)),
                // The source was not listed completely, so all of them may be needed.
                None => names.clear(),
            }
        }
        let mut swept = Swept::default();
        removal::remove_in(target, &place, names, &mut swept).await;
        account_swept(context, swept).await;
    }
}

fn is_among(name: &Name, tokens: &HashSet<u64>) -> bool {
    match Temporary::parse(name) {
        Some(Temporary::Node { token, .. }) => tokens.contains(&token),
        _ => true,
    }
}

/// Returns the tokens of the nodes that a root puts into a folder of the target. `None` if they are
/// not known.
async fn needed(root: &JobRoot, place: &RelPath) -> Option<HashSet<u64>> {
    let spec = &root.root;
    let mut tokens = HashSet::new();
    if spec.target_path.parent().as_ref() == Some(place) {
        match spec.source.metadata(&spec.source_path).await {
            Ok(_) => drop(tokens.insert(token_of(root.index, &spec.source_path))),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    let Some(below) = place.strip_prefix(&spec.target_path) else {
        return Some(tokens);
    };
    if !root.names.is_identity() {
        return None;
    }
    let dir = spec.source_path.join_path(&below);
    let mut listing = match spec.source.list(&dir).await {
        Err(error) if error.kind.is_absence() => {
            return Some(tokens);
        }
        listing => listing.ok()?,
    };
    loop {
        let entries = listing.next(CHUNK).await.ok()?;
        if entries.is_empty() {
            return Some(tokens);
        }
        let names = entries
            .iter()
            .map(|entry| token_of(root.index, &dir.join(&entry.name)));
        tokens.extend(names);
    }
}
