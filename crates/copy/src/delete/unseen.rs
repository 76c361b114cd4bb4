//! Removes what no user ever saw: temporary names, and what an earlier run left in a hidden folder.
//! No guard counts it, and nothing is backed up.

use ropeway_vfs::{Backlog, DuplicateFolders, Error, ErrorKind, Held, Kind, Metadata, Op, RelPath, Tree};

use crate::delete::above::Above;
use crate::delete::nodes::{CHUNK, is_mount_point};

/// Removes a node and everything below it, or only counts (`removes`). Returns the bytes of its
/// files. Links are not followed, not even by a server that follows them, and what lies on another
/// volume stays. Calls `goes_on` before each folder.
///
/// # Errors
/// Something is no child of the folder that lists it, lies on another volume, or cannot be listed
/// or removed; or `goes_on` returned `false` ([`ErrorKind::Cancelled`]).
pub(crate) async fn remove_unseen(
    tree: &dyn Tree,
    path: &RelPath,
    above: Above,
    removes: bool,
    goes_on: impl Fn() -> bool,
) -> Result<u64, Error> {
    let top = tree.metadata(path).await?;
    if !top.is_dir() {
        if removes {
            tree.remove_file(path).await?;
        }
        return Ok(bytes_of(&top));
    }
    let volume = top.id.map(|id| id.volume);
    let (mut bytes, backlog) = (0, Backlog::of(tree));
    // Each folder is visited twice: first for its content, then for itself.
    let mut stack = vec![(path.clone(), top.id, Some(above), Held::default())];
    while let Some((dir, id, above, held)) = stack.pop() {
        if !goes_on() {
            return Err(Error::new(Op::Remove, path, ErrorKind::Cancelled));
        }
        let Some(above) = above else {
            if removes {
                tree.remove_dir(&dir).await?;
            }
            continue;
        };
        stack.push((dir.clone(), id, None, held));
        let mut listing = tree.list(&dir).await?;
        let (first, mut twins) = (stack.len(), DuplicateFolders::default());
        loop {
            let entries = listing.next(CHUNK).await?;
            above.prove(tree, &dir, &*listing)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let (child, metadata) = (dir.join(&entry.name), entry.metadata?);
                if !metadata.is_dir() {
                    if removes {
                        tree.remove_file(&child).await?;
                    }
                    bytes += bytes_of(&metadata);
                    continue;
                }
                if is_mount_point(&metadata, volume) {
                    return Err(Error::new(Op::Remove, &child, ErrorKind::CrossDevice));
                }
                if listing.origin().is_some() {
                    twins.add(&metadata);
                }
                let held = backlog.hold(&child)?;
                stack.push((child, metadata.id, Some(Above::of(&*listing)), held));
            }
        }
        for (child, id, ..) in &stack[first..] {
            twins.check(child, *id)?;
        }
    }
    Ok(bytes)
}

/// Returns the bytes that a node takes.
fn bytes_of(metadata: &Metadata) -> u64 {
    match metadata.kind {
        Kind::File => metadata.allocated.unwrap_or(metadata.size),
        _ => 0,
    }
}
