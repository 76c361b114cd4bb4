//! Small files whose content is at the other end already: they are neither sent nor fetched
//! (docs/adr/0040).

use ropeway_smb_wire::fsctl::private_get::GetFlags;
use ropeway_smb_wire::fsctl::private_put::PutFile;
use ropeway_smb_wire::fsctl::private_same::{CopyFile, SAME_FILE_MAX, SameFile};
use ropeway_smb_wire::{FileAttributes, Text};
use ropeway_vfs::{ContentHash, HashAlgorithm, Metadata, Op, RelPath};

use super::inner::Inner;
use super::map;
use crate::error::Result;
use crate::same_files::{Copies, Sames};
use crate::snapshot::split_snapshot;
use crate::together::{LENGTH_MAX, Together};

/// Makes a file from `from`, if that has the content. `None` if nothing was made: the content must be sent.
/// Otherwise returns whether times and attributes were set.
///
/// # Errors
/// As for [`Share::copy_together`](crate::share::Share::copy_together).
pub(super) async fn copy(inner: &Inner, from: &RelPath, file: &PutFile<'_>) -> Result<Option<Result<()>>> {
    let Some((length, hash)) = named::<Copies>(inner, file.content) else {
        return Ok(None);
    };
    let Ok(from) = inner.base.text(Op::Open, from) else {
        return Ok(None);
    };
    if CopyFile::len_of(&file.path, &from) > LENGTH_MAX || split_snapshot(&from).1.is_some() {
        return Ok(None);
    }
    let copy = CopyFile {
        path: file.path.clone(),
        from,
        flags: file.flags,
        basic: file.basic,
        length,
        hash,
    };
    inner.share.copy_together(&copy).await
}

/// Returns what a file is like, if its content is this; `None` if it must be read. With `plain_only`, it has
/// neither named streams nor extended attributes then.
///
/// # Errors
/// As for [`Share::same_together`](crate::share::Share::same_together).
pub(super) async fn is_same(
    inner: &Inner,
    (path, content): (&Text, &[u8]),
    plain_only: bool,
) -> Result<Option<Metadata>> {
    let Some((length, hash)) = named::<Sames>(inner, content) else {
        return Ok(None);
    };
    if SameFile::len_of(path) > LENGTH_MAX || split_snapshot(path).1.is_some() {
        return Ok(None);
    }
    let file = SameFile {
        path: path.clone(),
        flags: match plain_only {
            true => GetFlags::PLAIN_ONLY,
            false => GetFlags::default(),
        },
        length,
        hash,
    };
    let same = inner.share.same_together(&file).await?;
    let plain = same.filter(|created| !created.basic.attributes.contains(FileAttributes::REPARSE_POINT));
    Ok(plain.map(|created| map::created(&created, inner.volume)))
}

/// Returns length and hash of a content, if the server takes it by its hash.
fn named<T: Together>(inner: &Inner, content: &[u8]) -> Option<(u32, ContentHash)> {
    let length = u32::try_from(content.len()).ok();
    let length = length.filter(|length| (1..=SAME_FILE_MAX).contains(length));
    let length = length.filter(|_| inner.share.has_together::<T>())?;
    Some((length, HashAlgorithm::Blake3.hash(content)))
}
