//! Alternate data streams as extended attributes.
//!
//! A stream `NAME` of a file is seen as `user.DosStream.NAME:$DATA`, as Samba's `streams_xattr` keeps it, whose values end
//! with one 0 byte more.

use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::info::{FileDispositionInformation, FileStreamInformation};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::STREAM_XATTR_PREFIX as PREFIX;

use super::compound::Compound;
use super::{Inner, paths};
use crate::OpenFile;

/// What the names of streams end with, as extended attributes.
const SUFFIX: &[u8] = b":$DATA";
/// The largest stream that is carried: values are whole in memory. Windows' own are far below; a guess.
pub(super) const STREAM_MAX: u64 = 16 << 20;
/// Bytes that a list of streams may take: some hundred of them.
pub(super) const LIST_MAX: u32 = 64 << 10;

/// The stream that an extended attribute stands for.
pub(super) fn stream_name(xattr: &[u8]) -> Option<Text> {
    let name = xattr.strip_prefix(PREFIX)?;
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    let text = names::to_wire(name, NameMapping::None);
    (!text.is_empty() && names::check(&text).is_ok()).then_some(text)
}

/// The extended attribute that a stream of FileStreamInformation (`:NAME:$DATA`) is; `None` for the content itself.
fn xattr_name(entry: &Text) -> Option<(Text, Vec<u8>)> {
    let colon = u16::from(b':');
    let units = entry.units().strip_prefix(&[colon])?;
    let end = units.iter().position(|unit| *unit == colon)?;
    let name = Text::from_units(units[..end].to_vec());
    if name.is_empty() {
        return None;
    }
    let bytes = names::from_wire(&name, NameMapping::None);
    Some((name, [PREFIX, &bytes, SUFFIX].concat()))
}

/// The named streams among all of a node, with their sizes.
pub(super) fn named(list: FileStreamInformation) -> impl Iterator<Item = (Text, Vec<u8>, u64)> {
    list.streams.into_iter().filter_map(|entry| {
        let (name, xattr) = xattr_name(&entry.name)?;
        Some((name, xattr, entry.size))
    })
}

impl Inner {
    /// The content of a stream.
    pub(super) async fn read_stream(&self, of: &Text, name: &Text, size: u64) -> crate::Result<Vec<u8>> {
        let stream = paths::stream_of(of, name.units());
        let handle = self.share.open(&stream, &OpenFile::read()).await?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let block = self.scratch.get().await;
            let length = block.capacity().min(self.share.limits().read_max as usize);
            let (block, result) = handle.read_at(bytes.len() as u64, block, length).await;
            result?;
            if block.is_empty() {
                // A part of a stream is none.
                return Err(crate::Error::refused("read", NtStatus::END_OF_FILE));
            }
            bytes.extend_from_slice(&block);
        }
        Ok(bytes)
    }

    /// Gives a node a stream with this content, or this content to the stream that it has.
    pub(super) async fn write_stream(&self, of: &Text, name: &Text, bytes: &[u8]) -> crate::Result<()> {
        let stream = paths::stream_of(of, name.units());
        let open = OpenFile::write(CreateDisposition::OverwriteIf);
        let handle = self.share.open(&stream, &open).await?;
        let mut at = 0;
        while at < bytes.len() {
            let mut block = self.scratch.get().await;
            let most = block.capacity().min(self.share.limits().write_max as usize);
            let length = most.min(bytes.len() - at);
            // A copy: an extended attribute comes as bytes of the heap.
            block.capacity_mut()[..length].copy_from_slice(&bytes[at..at + length]);
            block.set_len(length);
            handle.write_at(at as u64, block.freeze()).await?;
            at += length;
        }
        // Nobody flushes a stream by itself: its file is.
        handle.inner.doubtless()?;
        handle.close().await
    }

    pub(super) async fn remove_stream(&self, of: &Text, name: &Text) -> crate::Result<()> {
        let stream = paths::stream_of(of, name.units());
        let removed = Compound::open("remove a stream", &stream, &OpenFile::delete())
            .once()
            .set(&FileDispositionInformation { delete_pending: true })
            .run(&self.share)
            .await;
        removed.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_xattrs_name_each_other() {
        let (name, xattr) = xattr_name(&Text::from(":Zone.Identifier:$DATA")).unwrap();
        assert_eq!(xattr, b"user.DosStream.Zone.Identifier:$DATA");
        assert_eq!(stream_name(&xattr), Some(name));
        assert_eq!(xattr_name(&Text::from("::$DATA")), None, "the content itself");
        assert_eq!(stream_name(b"user.comment"), None);
        assert_eq!(
            stream_name(b"user.DosStream.a:b:$DATA"),
            None,
            "no name of a stream"
        );
        assert_eq!(stream_name(b"user.DosStream.:$DATA"), None);
    }
}
