//! Copying a file from share to share: inside the server where it does that, else through this machine.

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

use crate::open::KEPT;
use crate::share::check_path;
use crate::{Error, Handle, OpenFile, Result, Share, login};

/// What every server takes in one copy request (Windows: 256 chunks of 1 MiB, 16 MiB in all; Samba the same).
const CHUNK_MAX: u64 = 1 << 20;
const REQUEST_MAX: u64 = 16 << 20;
/// Bytes of a block that passes through this machine, and how many are on their way: 16 MiB of memory.
const BLOCK_MAX: u32 = 1 << 20;
const BLOCKS: usize = 16;

/// Whether a server merely does not do this.
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
    /// Copies a file's content, times and attributes to the path `to` of `target`, which may be this share, another one,
    /// or another server's; bytes copied. The server itself copies what stays with it and one client
    /// (FSCTL_SRV_COPYCHUNK, [MS-SMB2] 3.3.5.15.6); the rest passes through this machine, several blocks at once. It is
    /// written beside `to`, and gets that name when it is whole and flushed; with `replace`, in the place of a file that
    /// has it. Streams, extended attributes and security descriptors are not copied; [`SmbTree`](crate::SmbTree) below a
    /// copy job does that.
    ///
    /// Dropped on its way, it leaves `.ropeway-…` beside `to`.
    ///
    /// # Errors
    /// What any request may meet, of either share; `STATUS_OBJECT_NAME_COLLISION` if the name is taken and `replace` is
    /// not set; `STATUS_END_OF_FILE` if the source became shorter meanwhile. Then nothing has changed at `to`.
    pub async fn copy(&self, from: &Text, target: &Self, to: &Text, replace: bool) -> Result<u64> {
        check_path(to)?;
        let source = self.open(from, &OpenFile::read()).await?;
        let part = beside(to)?;
        let file = target
            .open(&part, &OpenFile::write(CreateDisposition::Create))
            .await?;
        let mut is_renaming = false;
        let mut size = 0;
        let copied: Result<()> = async {
            size = carry_all(&source, &file).await?;
            let rename = FileRenameInformation {
                replace_if_exists: replace,
                name: target.led_to("copy", to, file.share())?,
            };
            file.set(&kept(&source)).await?;
            file.flush().await?;
            is_renaming = true;
            file.set(&rename).await
        }
        .await;
        // Done or not: by its handle the file would be deleted under its new name, too.
        let is_open = is_renaming && matches!(copied, Err(Error::Lost(_)));
        if copied.is_err() && !is_open {
            // Best effort: the failure itself is told.
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
    /// What the server calls this open when it is the source of a copy ([MS-SMB2] 2.2.32.3).
    pub(crate) async fn resume_key(&self) -> Result<ResumeKey> {
        let answer = self.ioctl(CtlCode::SRV_REQUEST_RESUME_KEY, &[], 32).await?;
        Ok(ResumeKeyResponse::decode(&answer)?.resume_key)
    }

    /// Lets the server copy from `offset` to `end` of the file with this key, to the same place here: no more than the
    /// largest request that every server takes. Bytes copied.
    pub(crate) async fn copy_chunks(&self, source_key: ResumeKey, offset: u64, end: u64) -> Result<u64> {
        let end = end.min(offset.saturating_add(REQUEST_MAX));
        let chunks = (offset..end).step_by(CHUNK_MAX as usize).map(|at| Chunk {
            source_offset: at,
            target_offset: at,
            length: u32::try_from(CHUNK_MAX.min(end - at)).unwrap_or(u32::MAX),
        });
        let request = CopyChunkRequest {
            source_key,
            chunks: chunks.collect(),
        };
        let mut input = Vec::new();
        request.encode(&mut Writer::new(&mut input));
        let answer = self.ioctl(CtlCode::SRV_COPYCHUNK, &input, 12).await?;
        let copied = u64::from(CopyChunkResponse::decode(&answer)?.total_bytes_written);
        match copied <= end.saturating_sub(offset) {
            true => Ok(copied),
            false => Err(Error::PeerMisbehaved(
                "more was copied than was asked for".to_owned(),
            )),
        }
    }
}

/// A name of its own in the same folder.
fn beside(to: &Text) -> Result<Text> {
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

/// Times and attributes that a copy keeps.
fn kept(source: &Handle) -> FileBasicInformation {
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

async fn carry_all(source: &Handle, target: &Handle) -> Result<u64> {
    let size = source.query::<FileStandardInformation>().await?.end_of_file;
    let (here, there) = (source.share().client(), target.share().client());
    let inside = match Arc::ptr_eq(here.link(), there.link()) {
        true => carry_inside(source, target, size).await?,
        false => 0,
    };
    carry_through(source, target, inside, size).await?;
    Ok(size)
}

/// By the server, as far as it does that.
async fn carry_inside(source: &Handle, target: &Handle, size: u64) -> Result<u64> {
    let key = match source.resume_key().await {
        Ok(key) => key,
        Err(error) if is_unsupported(&error) => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut at = 0;
    while at < size {
        match target.copy_chunks(key, at, size).await {
            Ok(0) => break,
            Ok(copied) => at += copied,
            Err(error) if is_unsupported(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// Through this machine, from `start` on.
async fn carry_through(source: &Handle, target: &Handle, start: u64, size: u64) -> Result<()> {
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
    fn what_is_not_whole_has_a_name_beside() {
        for (to, folder) in [("a", ""), ("x\\a", "x\\"), ("x\\y z\\a.b", "x\\y z\\")] {
            let part = beside(&Text::from(to)).unwrap().to_string_lossy();
            let name = part.strip_prefix(folder).unwrap();
            assert!(name.starts_with(".ropeway-") && !name.contains('\\'), "{part}");
            assert_ne!(part, beside(&Text::from(to)).unwrap().to_string_lossy());
        }
    }
}
