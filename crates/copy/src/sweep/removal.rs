//! Removes temporary names of dead jobs from a tree.

use futures_util::StreamExt as _;
use ropeway_plan::temporary::{Nonce, PREFIX, Temporary};
use ropeway_vfs::{Claim, Error, ErrorKind, MetadataChange, Name, RelPath, Tree, holder_of};

use crate::delete::above::Above;
use crate::delete::unseen::remove_unseen;
use crate::sweep::claim_record::ClaimRecord;

/// Number of folders examined at once: hides the round trip of a distant server. A guess.
const PLACES_AT_ONCE: usize = 16;

/// What a sweep removed, and what it could not remove.
#[derive(Debug, Default)]
pub struct Swept {
    /// Number of temporary names. A folder counts as one, whatever it held.
    pub names: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Names that stay, with the reasons.
    pub failed: Vec<Error>,
}

impl Swept {
    /// Adds another sweep to this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.names += other.names;
        self.bytes += other.bytes;
        self.failed.extend(other.failed);
    }
}

/// Returns the temporary names of one job in a folder; none if the folder is gone.
pub(crate) async fn names_of(tree: &dyn Tree, place: &RelPath, nonce: Nonce) -> Result<Vec<Name>, Error> {
    let found = match tree.names_with_prefix(place, nonce.claim().as_bytes()).await {
        // A torn claim may name what is no folder, and folders may become links: nothing of ours is in
        // these.
        Err(error) if error.kind.is_absence() || error.kind == ErrorKind::SymbolicLink => {
            return Ok(Vec::new());
        }
        found => found?,
    };
    let is_node = |name: &Name| Temporary::parse(name).is_some_and(|found| found.is_node_of(nonce));
    Ok(found.into_iter().filter(is_node).collect())
}

/// Returns the jobs that have claims in a folder.
pub(crate) async fn claims_in(tree: &dyn Tree, dir: &RelPath) -> Result<Vec<Nonce>, Error> {
    let found = match tree.names_with_prefix(dir, PREFIX.as_bytes()).await {
        Err(error) if error.kind.is_absence() => {
            return Ok(Vec::new());
        }
        found => found?,
    };
    let claims = found.iter().filter_map(|name| match Temporary::parse(name) {
        Some(Temporary::Claim { nonce }) => Some(nonce),
        _ => None,
    });
    Ok(claims.collect())
}

/// Removes temporary nodes of one folder, and restores the times of the folder.
pub(crate) async fn remove_in(tree: &dyn Tree, dir: &RelPath, names: Vec<Name>, swept: &mut Swept) {
    if names.is_empty() {
        return;
    }
    let times = match times_of(tree, dir).await {
        Ok(times) => times,
        Err(error) => return swept.failed.push(error),
    };
    for name in names {
        remove(tree, &dir.join(&name), true, swept).await;
    }
    restore(tree, dir, times, swept).await;
}

/// Times of a folder in which something is about to be removed that was never seen there.
async fn times_of(tree: &dyn Tree, dir: &RelPath) -> Result<MetadataChange, Error> {
    let metadata = tree.metadata(dir).await?;
    Ok(MetadataChange::times_of(&metadata))
}

/// Gives a folder its times back, unless it is another user's or gone.
async fn restore(tree: &dyn Tree, dir: &RelPath, times: MetadataChange, swept: &mut Swept) {
    match tree.set_metadata(dir, &times).await {
        Err(error) if error.kind != ErrorKind::PermissionDenied && !error.kind.is_absence() => {
            swept.failed.push(error);
        }
        _ => {}
    }
}

/// Removes one temporary node with everything in it, or only counts it.
pub(crate) async fn remove(tree: &dyn Tree, path: &RelPath, removes: bool, swept: &mut Swept) {
    match taken(tree, path, removes).await {
        Ok(bytes) => {
            swept.names += 1;
            swept.bytes += bytes;
        }
        // It is there, whatever it holds.
        Err(_) if !removes => swept.names += 1,
        // Somebody else removed it first.
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => swept.failed.push(error),
    }
}

/// Removes a node, or only counts it. Returns the bytes that it takes. Whoever may write here can
/// give a link such a name.
async fn taken(tree: &dyn Tree, path: &RelPath, removes: bool) -> Result<u64, Error> {
    let above = match tree.capabilities().links_shown {
        true => Above::Named,
        false => {
            let found = tree.metadata(path).await?;
            Above::In(holder_of(tree, path, &found).await?)
        }
    };
    remove_unseen(tree, path, above, removes, || true).await
}

/// Removes all temporary names of a job from these folders.
pub(crate) async fn places(tree: &dyn Tree, places: Vec<RelPath>, nonce: Nonce) -> Swept {
    let mut all = Swept::default();
    let sweeps = places.into_iter().map(move |place| in_place(tree, place, nonce));
    let mut sweeps = futures_util::stream::iter(sweeps).buffer_unordered(PLACES_AT_ONCE);
    while let Some(swept) = sweeps.next().await {
        all.add(swept);
    }
    all
}

async fn in_place(tree: &dyn Tree, place: RelPath, nonce: Nonce) -> Swept {
    let mut swept = Swept::default();
    match names_of(tree, &place, nonce).await {
        Ok(names) => remove_in(tree, &place, names, &mut swept).await,
        Err(error) => swept.failed.push(error),
    }
    swept
}

/// Removes the claims of a job in these folders if nobody holds them. They are in folders in which
/// no other claim could be made. Returns whether all of them could be looked at, and whether one
/// was there.
pub(crate) async fn claims(
    tree: &dyn Tree,
    places: &[RelPath],
    nonce: Nonce,
    swept: &mut Swept,
) -> (bool, bool) {
    let (mut all, mut any) = (true, false);
    for dir in places {
        match tree.claim(&dir.join(&nonce.claim()), false).await {
            Ok(claim) => {
                any = true;
                remove_claim(tree, dir, claim, swept).await;
            }
            // A busy claim is held by this run itself. A tree without claims has none, and what is no
            // folder neither.
            Err(error) => {
                use ErrorKind::{Busy, SymbolicLink, Unsupported};
                let is_known = matches!(error.kind, Busy | SymbolicLink | Unsupported);
                all &= is_known || error.kind.is_absence();
            }
        }
    }
    (all, any)
}

/// Returns the folders of the tree that a claim in `dir` names.
pub(crate) fn places_of(dir: &RelPath, record: &ClaimRecord) -> Vec<RelPath> {
    let mut places: Vec<RelPath> = record.places.iter().map(|place| dir.join_path(place)).collect();
    places.push(dir.clone());
    each_once(places)
}

/// Returns the same folders, each once.
pub(crate) fn each_once(mut places: Vec<RelPath>) -> Vec<RelPath> {
    places.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    places.dedup();
    places
}

/// Removes everything that the job of an abandoned claim left, and the claim. Nobody else can take
/// the claim meanwhile.
pub(crate) async fn claim(
    tree: &dyn Tree,
    dir: &RelPath,
    nonce: Nonce,
    (claim, record): (Box<dyn Claim>, &ClaimRecord),
) -> Swept {
    let mut swept = places(tree, places_of(dir, record), nonce).await;
    if swept.failed.is_empty() {
        remove_claim(tree, dir, claim, &mut swept).await;
    }
    swept
}

/// Removes a claim that is held, and restores the times of its folder.
pub(crate) async fn remove_claim(tree: &dyn Tree, dir: &RelPath, claim: Box<dyn Claim>, swept: &mut Swept) {
    let times = match times_of(tree, dir).await {
        Ok(times) => times,
        Err(error) => return swept.failed.push(error),
    };
    match claim.remove().await {
        Err(error) if error.kind != ErrorKind::NotFound => swept.failed.push(error),
        _ => restore(tree, dir, times, swept).await,
    }
}
