//! Alternate data streams as extended attributes.
//!
//! A stream `NAME` of a file appears as `user.DosStream.NAME:$DATA`, the name under which Samba's
//! `streams_xattr` stores it. Values there have one extra 0 byte at the end.

use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::info::{FileDispositionInformation, FileStreamInformation};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::STREAM_XATTR_PREFIX as PREFIX;

use super::compound::Compound;
use super::inner::Inner;
use super::paths;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::open::OpenFile;

/// Suffix of the names of streams as extended attributes.
const SUFFIX: &[u8] = b":$DATA";
/// Bytes of the largest stream that a tree carries: values are kept whole in memory. The streams of
/// Windows are far smaller; a guess.
pub(crate) const STREAM_MAX: u64 = 16 << 20;
/// Maximum bytes of a list of streams: some hundred of them.
pub(crate) const LIST_MAX: u32 = 64 << 10;

/// Returns the stream that an extended attribute stands for.
pub(crate) fn stream_name(xattr: &[u8]) -> Option<Text> {
    let name = xattr.strip_prefix(PREFIX)?;
    let name = name.strip_suffix(SUFFIX).unwrap_or(name);
    let text = names::to_wire(name, NameMapping::None);
    (!text.is_empty() && names::check(&text).is_ok()).then_some(text)
}

/// Returns the name and the extended attribute of an entry in FileStreamInformation
/// (`:NAME:$DATA`); `None` for the content itself.
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

/// Returns the named streams of a node, with their sizes.
pub(crate) fn named(list: FileStreamInformation) -> impl Iterator<Item = (Text, Vec<u8>, u64)> {
    list.streams.into_iter().filter_map(|entry| {
        let (name, xattr) = xattr_name(&entry.name)?;
        Some((name, xattr, entry.size))
    })
}

impl Inner {
    /// Reads the content of a stream.
    pub(crate) async fn read_stream(&self, of: &Text, name: &Text, size: u64) -> ClientResult<Vec<u8>> {
        let stream = paths::stream_of(of, name.units());
        let handle = self.share.open(&stream, &OpenFile::read()).await?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let block = self.scratch.get().await;
            let length = block.capacity().min(self.share.limits().read_max as usize);
            let (block, result) = handle.read_at(bytes.len() as u64, block, length).await;
            result?;
            if block.is_empty() {
                // An incomplete stream is an error.
                return Err(ClientError::refused("read", NtStatus::END_OF_FILE));
            }
            bytes.extend_from_slice(&block);
        }
        Ok(bytes)
    }

    /// Creates or overwrites a stream of a node.
    pub(crate) async fn write_stream(&self, of: &Text, name: &Text, bytes: &[u8]) -> ClientResult<()> {
        let stream = paths::stream_of(of, name.units());
        let open = OpenFile::write(CreateDisposition::OverwriteIf);
        let handle = self.share.open(&stream, &open).await?;
        let mut at = 0;
        while at < bytes.len() {
            let mut block = self.scratch.get().await;
            let most = block.capacity().min(self.share.limits().write_max as usize);
            let length = most.min(bytes.len() - at);
            // A copy: the value of an extended attribute is on the heap.
            block.capacity_mut()[..length].copy_from_slice(&bytes[at..at + length]);
            block.set_len(length);
            handle.write_at(at as u64, block.freeze()).await?;
            at += length;
        }
        // A stream is flushed with its file, not by itself.
        handle.inner.check_no_lost_writes()?;
        handle.close().await
    }

    pub(crate) async fn remove_stream(&self, of: &Text, name: &Text) -> ClientResult<()> {
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
            "not the name of a stream"
        );
        assert_eq!(stream_name(b"user.DosStream.:$DATA"), None);
    }
}
