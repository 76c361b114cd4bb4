//! Small files written or read whole, with their attributes, in one call.
//!
//! Over a network every call costs a round trip. A tree that can do better overrides
//! [`Tree::put_small`] and [`Tree::get_small`]. Other trees use the functions here, which take the
//! same steps with one call each.
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

/// A small file to write in one call.
#[derive(Clone, Debug)]
pub struct PutSmall {
    /// Where its content is written.
    pub path: RelPath,
    /// What may exist there: nothing ([`Create::New`]), or a file to empty ([`Create::Truncate`]).
    pub create: Create,
    /// The whole content; `None` for an empty file. Pass the only handle on its block, so that a
    /// protocol header fits in front of it.
    pub content: Option<Block>,
    /// Its attributes.
    pub change: MetadataChange,
    /// Whether to make content and attributes durable before the next step.
    pub sync: bool,
    /// The last step: rename it to this path in the same folder, replacing a file there.
    pub rename_to: Option<RelPath>,
    /// How to use the page cache.
    pub cache: CacheMode,
    /// A file of the tree that may have the same content. A far end that can compare and copy it there need
    /// not be sent the content.
    pub same_as: Option<RelPath>,
}

/// What [`Tree::put_small`] returns.
#[derive(Clone, Debug, Default)]
pub struct PutDone {
    /// What could not be kept.
    pub losses: Vec<Loss>,
    /// Whether the content was copied from [`PutSmall::same_as`] at the far end, and not sent.
    pub reused: bool,
}

/// A small file to read in one call.
#[derive(Clone, Debug)]
pub struct GetSmall {
    /// Its path.
    pub path: RelPath,
    /// Its size when it was listed: the read asks for about as much.
    pub size: u64,
    /// Whether to read its extended attributes too.
    pub xattrs: bool,
    /// How to use the page cache.
    pub cache: CacheMode,
    /// Whether the block holds what may be the content. A far end that can compare it need not send its own.
    pub is_known: bool,
}

/// What [`Tree::get_small`] returns in addition to the content.
#[derive(Clone, Debug)]
pub struct GotSmall {
    /// Attributes from before the read.
    pub metadata: Metadata,
    /// Extended attributes, if asked for.
    pub xattrs: Option<Vec<Xattr>>,
    /// Whether the block holds the whole content and the file did not change meanwhile. If not,
    /// read the file block by block.
    pub whole: bool,
    /// Whether the far end has what the block held ([`GetSmall::is_known`]), and sent nothing.
    pub reused: bool,
}

/// Writes a file step by step.
///
/// # Errors
/// The first failure. Part of a file may then exist under `path`; the file at `rename_to` is
/// unchanged.
pub async fn put_by_steps(tree: &(impl Tree + ?Sized), put: PutSmall) -> Result<PutDone> {
    let file = tree
        .open(&put.path, OpenOptions::write(put.create, put.cache))
        .await?;
    if let Some(content) = put.content.filter(|content| !content.is_empty()) {
        file.write_at(content, 0).await?;
    }
    // Not a flush after the attributes: some trees must have the content durable before its times.
    let losses = file.finish(&put.change, put.sync).await?;
    drop(file);
    if let Some(to) = &put.rename_to {
        tree.rename(&put.path, to, true).await?;
    }
    Ok(PutDone {
        losses,
        reused: false,
    })
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
            reused: false,
        };
        return (block, Ok(got));
    }
    // One byte more shows whether the file grew.
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
            reused: false,
        })
    };
    let got = rest.await;
    (block, got)
}
