//! Searches folders for temporary names that no claim names.

use futures_util::StreamExt as _;
use ropeway_plan::temporary::{Nonce, Temporary};
use ropeway_vfs::{Backlog, Error, ErrorKind, Held, Kind, Metadata, RelPath, Tree};

use crate::delete::above::Above;
use crate::sweep::removal::{self, Swept};

/// Entries taken from a listing at once.
const CHUNK: usize = 1024;
/// Number of folders listed at once: hides the round trip of a distant server. A guess.
const FOLDERS_AT_ONCE: usize = 16;

/// The content of a folder.
#[derive(Default)]
pub(super) struct Listed {
    /// Folders on the same volume, for [`list`].
    pub(super) folders: Vec<(RelPath, Above, Held)>,
    /// Temporary names, and whether each is a move's probe.
    pub(super) found: Vec<(RelPath, Temporary, bool)>,
}

/// Lists one folder: folders of the same volume, and temporary names. An error comes with what was
/// found before it.
pub(super) async fn list(
    tree: &dyn Tree,
    (folder, above): (&RelPath, Above),
    volume: Option<u64>,
    backlog: &Backlog,
) -> (Listed, Option<Error>) {
    let mut listed = Listed::default();
    let listing = tree.list(folder).await;
    let mut listing = match listing {
        Ok(listing) => listing,
        Err(error) => return (listed, Some(error)),
    };
    loop {
        let entries = match listing.next(CHUNK).await {
            Ok(entries) => entries,
            Err(error) => return (listed, Some(error)),
        };
        // The target of a link is not below it, even if the server follows it.
        if entries.is_empty() || above.prove(tree, folder, &*listing).is_err() {
            return (listed, None);
        }
        for entry in entries {
            let path = folder.join(&entry.name);
            let is_ours = |metadata: &Metadata| metadata.id.map(|id| id.volume) == volume;
            let is_empty_file = |metadata: &Metadata| metadata.kind == Kind::File && metadata.size == 0;
            match Temporary::parse(&entry.name) {
                Some(temporary) => {
                    let is_probe =
                        temporary.is_probe() && entry.metadata.is_ok_and(|found| is_empty_file(&found));
                    listed.found.push((path, temporary, is_probe));
                }
                None if entry
                    .metadata
                    .is_ok_and(|metadata| metadata.is_dir() && is_ours(&metadata)) =>
                {
                    match backlog.hold(&path) {
                        Ok(held) => listed.folders.push((path, Above::of(&*listing), held)),
                        Err(error) => return (listed, Some(error)),
                    }
                }
                None => {}
            }
        }
    }
}

/// Removes the temporary names of one dead job from these folders and everything below them on the
/// same volume. Calls `goes_on` before each few folders. Returns the folders that hold a claim of
/// the job.
pub(super) async fn remove_below(
    tree: &dyn Tree,
    tops: Vec<RelPath>,
    nonce: Nonce,
    goes_on: impl Fn() -> bool,
    swept: &mut Swept,
) -> Vec<RelPath> {
    let mut claimed = Vec::new();
    for top in tops {
        let volume = match tree.metadata(&top).await {
            Ok(metadata) if metadata.is_dir() => metadata.id.map(|id| id.volume),
            // Nothing is below it.
            _ => continue,
        };
        let backlog = &Backlog::of(tree);
        let mut folders = vec![(top, Above::Named, Held::default())];
        while !folders.is_empty() && goes_on() {
            let some = folders.split_off(folders.len().saturating_sub(FOLDERS_AT_ONCE));
            let lists = some.into_iter().map(|(folder, above, _held)| async move {
                let (listed, error) = list(tree, (&folder, above), volume, backlog).await;
                (folder, listed, error)
            });
            let mut lists = futures_util::stream::iter(lists).buffer_unordered(FOLDERS_AT_ONCE);
            while let Some((folder, listed, error)) = lists.next().await {
                folders.extend(listed.folders);
                swept.failed.extend(error.filter(|error| !is_nobodys(error.kind)));
                let claim = Temporary::Claim { nonce };
                if listed.found.iter().any(|(_, found, _)| *found == claim) {
                    claimed.push(folder.clone());
                }
                let names = listed
                    .found
                    .iter()
                    .filter(|(_, found, _)| found.is_node_of(nonce));
                let names = names.filter_map(|(path, ..)| path.file_name());
                removal::remove_in(tree, &folder, names.collect(), swept).await;
            }
        }
    }
    claimed
}

/// Whether no job can have made a name in a folder that cannot be listed for this reason.
fn is_nobodys(kind: ErrorKind) -> bool {
    kind.is_absence() || kind == ErrorKind::PermissionDenied
}
