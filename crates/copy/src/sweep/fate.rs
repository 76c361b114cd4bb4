//! Looks for the claims of other jobs, which tell whether those jobs live.
//!
//! The rules are in [`ropeway_plan::sweep`].

use ropeway_plan::Nonce;
use ropeway_plan::sweep::{Fate, KnownFates, Sighting};
use ropeway_vfs::{Claim, ClaimAbove, ErrorKind, RelPath, Tree};

use crate::sweep::claim_record::{BYTES_MAX, ClaimRecord};

/// What a look at a claim found.
pub(crate) enum Found {
    /// Somebody holds it.
    Held,
    /// Nobody held it. The caller holds it now.
    Abandoned(Box<dyn Claim>, ClaimRecord),
    /// It says nothing that is understood, or may not be opened.
    Unknown,
    /// There is none.
    Absent,
}

/// Tries to take the claim of a job in a folder.
pub(crate) async fn look(tree: &dyn Tree, dir: &RelPath, nonce: Nonce) -> Found {
    let claim = match tree.claim(&dir.join(&nonce.claim()), false).await {
        Ok(claim) => claim,
        Err(error) if error.kind == ErrorKind::Busy => return Found::Held,
        Err(error) if error.kind.is_absence() => return Found::Absent,
        Err(_) => return Found::Unknown,
    };
    let Ok(bytes) = claim.read(BYTES_MAX).await else {
        return Found::Unknown;
    };
    let record = ClaimRecord::parse(&bytes);
    // It was made and not written to, or a power cut left a part of it: its job died right then.
    let is_new = bytes.is_empty() || record.is_torn;
    let is_clear = record
        .header
        .as_ref()
        .is_some_and(|header| header.is_held_by(claim.kind()));
    match is_new || is_clear {
        true => Found::Abandoned(claim, record),
        false => Found::Unknown,
    }
}

/// Returns the fate of the job of a temporary name in `dir`.
pub(crate) async fn fate_of(fates: &mut KnownFates, tree: &dyn Tree, dir: &RelPath, nonce: Nonce) -> Fate {
    if let Some(fate) = fates.of(dir, nonce) {
        return fate.clone();
    }
    let mut sightings = Vec::new();
    let mut at = Some(dir.clone());
    while let Some(folder) = at {
        at = folder.parent();
        sightings.push(match look(tree, &folder, nonce).await {
            Found::Held => {
                sightings.push(Sighting::Held);
                return fates.conclude(nonce, &sightings);
            }
            Found::Abandoned(..) => Sighting::Abandoned(Some(folder)),
            Found::Unknown => Sighting::Unknown,
            Found::Absent => Sighting::Absent,
        });
    }
    sightings.push(match tree.claim_above(&nonce.claim()).await {
        Ok(ClaimAbove::Held) => Sighting::Held,
        Ok(ClaimAbove::Abandoned) => Sighting::Abandoned(None),
        Ok(ClaimAbove::Absent) => Sighting::Absent,
        Ok(ClaimAbove::Unknown) | Err(_) => Sighting::Unknown,
    });
    fates.conclude(nonce, &sightings)
}
