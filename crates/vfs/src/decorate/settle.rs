//! Repeating what cannot simply be repeated.
//!
//! When an operation failed in a way that may pass (a lost connection, a timeout), it may still have happened. So
//! on a repetition (`tries` > 0) the answer "the name is taken" or "no such node" can be the trace of our own
//! earlier success. It is taken for one only if what stands there is exactly what we would have made and nothing
//! would be lost: an empty file or folder, the same link text, the same node.

use std::sync::Arc;

use crate::{Create, ErrorKind, File, Kind, Loss, Metadata, OpenOptions, PutSmall, RelPath, Result, Tree};

/// Opens; a repeated `Create::New` accepts an empty regular file.
pub(super) async fn open(
    tree: &dyn Tree,
    path: &RelPath,
    options: OpenOptions,
    tries: u32,
) -> Result<Arc<dyn File>> {
    let result = tree.open(path, options).await;
    if options.create != Create::New || !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    match tree.metadata(path).await {
        Ok(found) if found.kind == Kind::File && found.size == 0 => {
            let existing = OpenOptions {
                create: Create::No,
                ..options
            };
            tree.open(path, existing).await
        }
        _ => result,
    }
}

/// Writes a small file; a repetition of a new one accepts an empty regular file. (When all but the answer came
/// through, the file has its final name already and is written once more.)
pub(super) async fn put_small(tree: &dyn Tree, mut put: PutSmall, tries: u32) -> Result<Vec<Loss>> {
    if tries == 0 || put.create != Create::New {
        return tree.put_small(put).await;
    }
    let result = tree.put_small(put.clone()).await;
    if !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    match tree.metadata(&put.path).await {
        Ok(found) if found.kind == Kind::File && found.size == 0 => {
            put.create = Create::Truncate;
            tree.put_small(put).await
        }
        _ => result,
    }
}

/// Makes a folder; a repetition accepts an empty one.
pub(super) async fn make_dir(tree: &dyn Tree, path: &RelPath, mode: u32, tries: u32) -> Result<()> {
    let result = tree.make_dir(path, mode).await;
    if !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    let Ok(mut listing) = tree.list(path).await else {
        return result;
    };
    match listing.next(1).await {
        Ok(entries) if entries.is_empty() => Ok(()),
        _ => result,
    }
}

/// Makes a symbolic link; a repetition accepts one with the same text.
pub(super) async fn make_symlink(tree: &dyn Tree, path: &RelPath, text: &[u8], tries: u32) -> Result<()> {
    let result = tree.make_symlink(path, text).await;
    if !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    match tree.read_link(path).await {
        Ok(found) if found == text => Ok(()),
        _ => result,
    }
}

/// Makes a hard link; a repetition accepts a name of the same node.
pub(super) async fn make_hard_link(
    tree: &dyn Tree,
    existing: &RelPath,
    new: &RelPath,
    tries: u32,
) -> Result<()> {
    let result = tree.make_hard_link(existing, new).await;
    if !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    match (tree.metadata(existing).await, tree.metadata(new).await) {
        (Ok(one), Ok(two)) if one.id.is_some() && one.id == two.id => Ok(()),
        _ => result,
    }
}

/// Makes a FIFO or device; a repetition accepts one of the same kind and number.
pub(super) async fn make_special(
    tree: &dyn Tree,
    path: &RelPath,
    metadata: &Metadata,
    tries: u32,
) -> Result<()> {
    let result = tree.make_special(path, metadata).await;
    if !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    match tree.metadata(path).await {
        Ok(found) if found.kind == metadata.kind && found.device == metadata.device => Ok(()),
        _ => result,
    }
}

/// A repeated removal accepts that the node is gone.
pub(super) fn removed(result: Result<()>, tries: u32) -> Result<()> {
    if is(&result, tries, ErrorKind::NotFound) {
        return Ok(());
    }
    result
}

/// Renames; a repetition accepts that the old name is gone and the new one is there.
pub(super) async fn rename(
    tree: &dyn Tree,
    from: &RelPath,
    to: &RelPath,
    replace: bool,
    tries: u32,
) -> Result<()> {
    let result = tree.rename(from, to, replace).await;
    if !is(&result, tries, ErrorKind::NotFound) && !is(&result, tries, ErrorKind::AlreadyExists) {
        return result;
    }
    let gone = matches!(tree.metadata(from).await, Err(error) if error.kind == ErrorKind::NotFound);
    if gone && tree.metadata(to).await.is_ok() {
        return Ok(());
    }
    result
}

fn is<T>(result: &Result<T>, tries: u32, kind: ErrorKind) -> bool {
    tries > 0 && matches!(result, Err(error) if error.kind == kind)
}
