//! Copies a file from share to share: on the server where it supports that, otherwise through this
//! machine.

use std::ops::Range;
use std::sync::Arc;

use futures_util::stream::{StreamExt as _, TryStreamExt as _};
use ropeway_block::Pool;
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::copy_chunk::{
    Chunk, CopyChunkRequest, CopyChunkResponse, ResumeKey, ResumeKeyResponse,
};
use ropeway_smb_wire::info::{
    FileBasicInformation, FileDispositionInformation, FileRenameInformation, FileStandardInformation,
};
use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus, Text, Writer};

use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::login;
use crate::open::{KEPT, OpenFile};
use crate::share::{Share, check_path};

/// Limits of one copy request that every server accepts, in bytes (Windows: 256 chunks of 1 MiB, 16
/// MiB in all; Samba the same).
pub(crate) const CHUNK_MAX: u64 = 1 << 20;
pub(crate) const CHUNKS_MAX: usize = 256;
pub(crate) const REQUEST_MAX: u64 = 16 << 20;
/// Size of the blocks that pass through this machine, and their number in flight: 16 MiB of memory.
const BLOCK_MAX: u32 = 1 << 20;
const BLOCKS: usize = 16;

/// Returns whether the error means that the server does not support the operation.
pub(crate) fn is_unsupported(error: &Error) -> bool {
    matches!(
        error.status(),
        Some(
            NtStatus::NOT_SUPPORTED
                | NtStatus::NOT_IMPLEMENTED
                | NtStatus::INVALID_DEVICE_REQUEST
                | NtStatus::INVALID_PARAMETER
                | NtStatus::OBJECT_NAME_NOT_FOUND
                | NtStatus::ACCESS_DENIED
                | NtStatus::NOT_SAME_DEVICE
        )
    )
}

impl Share {
    /// Copies a file's content, times and attributes to the path `to` of `target`, and returns the
    /// number of bytes. `target` may be this share, another one, or another server's. The server
    /// itself copies between shares of one client (FSCTL_SRV_COPYCHUNK, [MS-SMB2] 3.3.5.15.6);
    /// otherwise the data passes through this machine, several blocks at once. The file is written
    /// under a temporary name next to `to`, and renamed when it is complete and flushed. With
    /// `replace` it replaces an existing file. Streams, extended attributes and security
    /// descriptors are not copied; [`SmbTree`](crate::SmbTree) below a copy job copies them.
    ///
    /// If the future is dropped, a file `.ropeway-…` stays next to `to`.
    ///
    /// # Errors
    /// The errors of any request on either share; `STATUS_OBJECT_NAME_COLLISION` if the name exists
    /// and `replace` is not set; `STATUS_END_OF_FILE` if the source became shorter meanwhile. After
    /// an error nothing has changed at `to`.
    pub async fn copy(&self, from: &Text, target: &Self, to: &Text, replace: bool) -> Result<u64> {
        check_path(to)?;
        let source = self.open(from, &OpenFile::read()).await?;
        let part = partial_path(to)?;
        let file = target
            .open(&part, &OpenFile::write(CreateDisposition::Create))
            .await?;
        let mut is_renaming = false;
        let mut size = 0;
        let copied: Result<()> = async {
            size = copy_content(&source, &file).await?;
            let rename = FileRenameInformation {
                replace_if_exists: replace,
                name: target.redirected_name("copy", to, file.share())?,
            };
            file.set(&basic_to_set(&source)).await?;
            file.flush().await?;
            is_renaming = true;
            file.set(&rename).await
        }
        .await;
        // The rename may have happened: deleting by handle would delete the file under its new name
        // too.
        let is_open = is_renaming && matches!(copied, Err(Error::Lost(_)));
        if copied.is_err() && !is_open {
            // Best effort: the original error is returned.
            let information = FileDispositionInformation { delete_pending: true };
            let _ = file.set(&information).await;
        }
        let closed = file.close().await;
        source.close().await?;
        if is_open {
            return match target.stat(&part).await {
                Err(error) if error.status() == Some(NtStatus::OBJECT_NAME_NOT_FOUND) => Ok(size),
                Ok(_) => {
                    let _ = target.remove(&part).await;
                    copied.map(|()| size)
                }
                Err(_) => copied.map(|()| size),
            };
        }
        copied?;
        closed?;
        Ok(size)
    }
}

impl Handle {
    /// Returns the key by which the server knows this file as the source of a copy ([MS-SMB2]
    /// 2.2.32.3).
    pub(crate) async fn resume_key(&self) -> Result<ResumeKey> {
        let answer = self.ioctl(CtlCode::SRV_REQUEST_RESUME_KEY, &[], 32).await?;
        Ok(ResumeKeyResponse::decode(&answer)?.resume_key)
    }

    /// Lets the server copy a range of the source to `target` in this file, at most the largest
    /// request that every server accepts. Returns the number of bytes copied.
    pub(crate) async fn copy_chunks(
        &self,
        source_key: ResumeKey,
        range: Range<u64>,
        target: u64,
    ) -> Result<u64> {
        let offset = range.start;
        let end = range.end.min(offset.saturating_add(REQUEST_MAX));
        let chunks = (offset..end).step_by(CHUNK_MAX as usize).map(|at| Chunk {
            source_offset: at,
            target_offset: target + (at - offset),
            length: u32::try_from(CHUNK_MAX.min(end - at)).unwrap_or(u32::MAX),
        });
        self.copy_chunk_list(source_key, &chunks.collect::<Vec<_>>())
            .await
    }

    /// Lets the server copy these ranges, which are within the limits of one request. Returns the
    /// number of bytes copied.
    pub(crate) async fn copy_chunk_list(&self, source_key: ResumeKey, chunks: &[Chunk]) -> Result<u64> {
        let request = CopyChunkRequest {
            source_key,
            chunks: chunks.to_vec(),
        };
        let mut input = Vec::new();
        request.encode(&mut Writer::new(&mut input));
        let answer = self.ioctl(CtlCode::SRV_COPYCHUNK, &input, 12).await?;
        let copied = u64::from(CopyChunkResponse::decode(&answer)?.total_bytes_written);
        let wanted: u64 = chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
        match copied <= wanted {
            true => Ok(copied),
            false => Err(Error::PeerMisbehaved(
                "it copied more than was requested".to_owned(),
            )),
        }
    }
}

/// Returns a unique temporary path in the same folder.
fn partial_path(to: &Text) -> Result<Text> {
    let units = to.units();
    let folder = units
        .iter()
        .rposition(|unit| *unit == u16::from(b'\\'))
        .map_or(0, |at| at + 1);
    let [job, node] = [login::random()?, login::random()?].map(u64::from_le_bytes);
    let name = format!(".ropeway-{job:016x}-{node:016x}");
    let units = units[..folder].iter().copied().chain(name.encode_utf16());
    Ok(Text::from_units(units.collect()))
}

/// Returns the times and attributes that a copy keeps.
fn basic_to_set(source: &Handle) -> FileBasicInformation {
    let basic = source.created().basic;
    let attributes = basic.attributes & KEPT;
    FileBasicInformation {
        change_time: FileTime::KEEP,
        attributes: match attributes.is_empty() {
            true => FileAttributes::NORMAL,
            false => attributes,
        },
        ..basic
    }
}

async fn copy_content(source: &Handle, target: &Handle) -> Result<u64> {
    let size = source.query::<FileStandardInformation>().await?.end_of_file;
    let (here, there) = (source.share().client(), target.share().client());
    let inside = match Arc::ptr_eq(here.link(), there.link()) {
        true => copy_on_server(source, target, size).await?,
        false => 0,
    };
    copy_through_client(source, target, inside, size).await?;
    Ok(size)
}

/// Lets the server copy, as far as it supports that. Returns the number of bytes copied.
async fn copy_on_server(source: &Handle, target: &Handle, size: u64) -> Result<u64> {
    let key = match source.resume_key().await {
        Ok(key) => key,
        Err(error) if is_unsupported(&error) => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut at = 0;
    while at < size {
        match target.copy_chunks(key, at..size, at).await {
            Ok(0) => break,
            Ok(copied) => at += copied,
            Err(error) if is_unsupported(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// Copies through this machine, from `start` on.
async fn copy_through_client(source: &Handle, target: &Handle, start: u64, size: u64) -> Result<()> {
    let most = source
        .share()
        .limits()
        .read_max
        .min(target.share().limits().write_max);
    let step = most.clamp(1, BLOCK_MAX);
    let pool = Pool::new(step as usize, BLOCKS);
    let blocks = (start..size).step_by(step as usize).map(|from| {
        let pool = &pool;
        async move {
            let end = size.min(from + u64::from(step));
            let mut at = from;
            while at < end {
                let length = usize::try_from(end - at).unwrap_or(usize::MAX);
                let (block, read) = source.read_at(at, pool.get().await, length).await;
                read?;
                let count = block.len() as u64;
                if count == 0 {
                    return Err(Error::refused("read", NtStatus::END_OF_FILE));
                }
                target.write_at(at, block.freeze()).await?;
                at += count;
            }
            Ok(())
        }
    });
    let moved = futures_util::stream::iter(blocks).buffer_unordered(BLOCKS);
    moved.try_for_each(|()| std::future::ready(Ok(()))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_copy_has_a_temporary_name_in_the_same_folder() {
        for (to, folder) in [("a", ""), ("x\\a", "x\\"), ("x\\y z\\a.b", "x\\y z\\")] {
            let part = partial_path(&Text::from(to)).unwrap().to_string_lossy();
            let name = part.strip_prefix(folder).unwrap();
            assert!(name.starts_with(".ropeway-") && !name.contains('\\'), "{part}");
            assert_ne!(part, partial_path(&Text::from(to)).unwrap().to_string_lossy());
        }
    }
}
