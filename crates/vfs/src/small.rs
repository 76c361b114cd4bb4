//! Small files in one go: written or read whole, with their attributes.
//!
//! Over a network every call costs a round trip; a tree that can do better overrides [`Tree::put_small`] and
//! [`Tree::get_small`]. The functions here are what the other trees do: the same steps, one call each.
//!
//! ```text
//!  put: create · write · attributes, times last · [flush] · [rename over the final name] · close
//!  get: open · read · attributes · [extended attributes] · close
//! ```

use ropeway_block::{Block, BlockMut};

use crate::error::Result;
use crate::metadata::{Loss, Metadata, MetadataChange, Xattr};
use crate::path::RelPath;
use crate::tree::{CacheMode, Create, OpenOptions, Tree};

/// A small file to write in one go.
#[derive(Clone, Debug)]
pub struct PutSmall {
    /// Where its content goes.
    pub path: RelPath,
    /// What may stand there: nothing ([`Create::New`]) or a file that is emptied ([`Create::Truncate`]).
    pub create: Create,
    /// The whole content; `None` for an empty file. Best the only handle on its block, so that a protocol header fits
    /// in front of it.
    pub content: Option<Block>,
    /// Its attributes.
    pub change: MetadataChange,
    /// Make content and attributes durable before the next step.
    pub sync: bool,
    /// The last step: rename it to this path of the same folder, over a file that stands there.
    pub rename_to: Option<RelPath>,
    /// Page cache manners.
    pub cache: CacheMode,
}

/// A small file to read in one go.
#[derive(Clone, Debug)]
pub struct GetSmall {
    /// Which.
    pub path: RelPath,
    /// The size it had when it was listed: about so much is asked for.
    pub size: u64,
    /// Whether to read its extended attributes too.
    pub xattrs: bool,
    /// Page cache manners.
    pub cache: CacheMode,
}

/// What [`Tree::get_small`] learned beside the content.
#[derive(Clone, Debug)]
pub struct GotSmall {
    /// Attributes as of before the read.
    pub metadata: Metadata,
    /// Extended attributes, if asked for.
    pub xattrs: Option<Vec<Xattr>>,
    /// The block holds the whole content, and nothing was done to the file meanwhile. Otherwise the
    /// file is to be read in the long way.
    pub whole: bool,
}

/// Writes a file step by step.
///
/// # Errors
/// The first failure. What stands under `path` then may be part of a file; the name to rename to is untouched.
pub async fn put_by_steps(tree: &(impl Tree + ?Sized), put: PutSmall) -> Result<Vec<Loss>> {
    let file = tree
        .open(&put.path, OpenOptions::write(put.create, put.cache))
        .await?;
    if let Some(content) = put.content.filter(|content| !content.is_empty()) {
        file.write_at(content, 0).await?;
    }
    let losses = file.set_metadata(&put.change).await?;
    if put.sync {
        file.sync(false).await?;
    }
    drop(file);
    if let Some(to) = &put.rename_to {
        tree.rename(&put.path, to, true).await?;
    }
    Ok(losses)
}

/// Reads a file step by step, up to the block's capacity.
pub async fn get_by_steps(
    tree: &(impl Tree + ?Sized),
    get: GetSmall,
    mut block: BlockMut,
) -> (BlockMut, Result<GotSmall>) {
    block.set_len(0);
    let file = match tree.open(&get.path, OpenOptions::read(get.cache)).await {
        Ok(file) => file,
        Err(error) => return (block, Err(error)),
    };
    let before = match file.metadata().await {
        Ok(metadata) => metadata,
        Err(error) => return (block, Err(error)),
    };
    let capacity = block.capacity();
    if before.size > capacity as u64 {
        let got = GotSmall {
            metadata: before,
            xattrs: None,
            whole: false,
        };
        return (block, Ok(got));
    }
    // One byte more tells whether it grew.
    let length = capacity.min(before.size as usize + 1);
    let (block, result) = file.read_at(block, 0, length).await;
    let rest = async {
        result?;
        let xattrs = if get.xattrs {
            Some(file.xattrs().await?)
        } else {
            None
        };
        let after = file.metadata().await?;
        let whole = after.size == before.size
            && after.modified == before.modified
            && after.changed == before.changed
            && block.len() as u64 == before.size;
        Ok(GotSmall {
            metadata: before,
            xattrs,
            whole,
        })
    };
    let got = rest.await;
    (block, got)
}
