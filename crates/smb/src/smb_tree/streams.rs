//! Alternate data streams and security descriptors as extended attributes.
//!
//! A stream `NAME` of a file is seen as `user.DosStream.NAME:$DATA`, as Samba's `streams_xattr` keeps it, whose values end
//! with one 0 byte more. A security descriptor is seen, if asked for, as `user.ropeway.sddl` in the text form of
//! [MS-DTYP] 2.5.1: owner, group and DACL.

use ropeway_smb_proto::names::{self, NameMapping};
use ropeway_smb_proto::wire::create::{AccessMask, CreateDisposition};
use ropeway_smb_proto::wire::info::{FileDispositionInformation, FileStreamInformation};
use ropeway_smb_proto::wire::query_info::SecurityInformation;
use ropeway_smb_proto::wire::security::SecurityDescriptor;
use ropeway_smb_proto::wire::{NtStatus, Text};
use ropeway_vfs::{ErrorKind, Loss, Op, RelPath, Result, Xattr};

use super::errors::found;
use super::{Inner, paths};
use crate::compound::information;
use crate::tree::Replay;
use crate::{Error as ClientError, OpenFile, ops};

/// What the names of streams begin with, as extended attributes.
pub(super) const PREFIX: &[u8] = b"user.DosStream.";
/// What they end with.
const SUFFIX: &[u8] = b":$DATA";
/// The security descriptor.
pub(super) const SDDL: &[u8] = b"user.ropeway.sddl";
/// Owner, group and DACL: what a user may read of his own files.
const PARTS: SecurityInformation = SecurityInformation::OWNER
    .union(SecurityInformation::GROUP)
    .union(SecurityInformation::DACL);
/// The largest stream that is carried: values are whole in memory. Windows' own are far below; a guess.
const STREAM_MAX: u64 = 16 << 20;
/// Bytes that a list of streams may take: some hundred of them.
const LIST_MAX: u32 = 64 << 10;

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

impl Inner {
    /// The named streams of a node with their sizes.
    async fn streams(&self, text: &Text) -> crate::Result<Vec<(Text, Vec<u8>, u64)>> {
        let open = OpenFile::metadata(AccessMask::READ_ATTRIBUTES);
        let ask = |tree, file| ops::query_file::<FileStreamInformation>(tree, file, LIST_MAX);
        let asked = self.share.on("list streams", text, &open, Replay::Safe, ask);
        let reply = match asked.await {
            Ok(reply) => reply,
            // A folder without any, on some servers.
            Err(error) if error.status() == Some(NtStatus::INVALID_PARAMETER) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let list: FileStreamInformation = information(&reply)?;
        let named = list.streams.into_iter().filter_map(|entry| {
            let (name, xattr) = xattr_name(&entry.name)?;
            Some((name, xattr, entry.size))
        });
        Ok(named.collect())
    }

    /// All that is shown as extended attributes, sorted by name.
    pub(super) async fn xattrs(&self, path: &RelPath) -> Result<Vec<Xattr>> {
        let text = self.base.text(Op::Xattr, path)?;
        let mut xattrs = Vec::new();
        if self.has_streams {
            let streams = self.refined(Op::Xattr, path, self.streams(&text).await).await?;
            for (name, xattr, size) in streams {
                if size > STREAM_MAX {
                    let sentence = "it has an alternate data stream that is too large to carry";
                    return Err(found(Op::Xattr, path, ErrorKind::Unsupported, sentence));
                }
                let stream = paths::stream_of(&text, name.units());
                let read = self.read_whole(&stream, size).await;
                let mut value = self.refined(Op::Xattr, path, read).await?;
                value.push(0);
                xattrs.push(Xattr { name: xattr, value });
            }
        }
        if self.options.acls {
            let sddl = self.refined(Op::Xattr, path, self.sddl(&text).await).await?;
            xattrs.push(Xattr {
                name: SDDL.to_vec(),
                value: sddl.into_bytes(),
            });
        }
        if !self.has_streams && !self.options.acls {
            // Nothing else asks whether the node is there.
            self.stat(Op::Xattr, path).await?;
        }
        xattrs.sort();
        Ok(xattrs)
    }

    async fn sddl(&self, text: &Text) -> crate::Result<String> {
        let open = OpenFile::metadata(AccessMask::READ_CONTROL);
        let handle = self.share.open(text, &open).await?;
        let bytes = handle.query_security(PARTS).await?;
        let sddl = SecurityDescriptor::decode(&bytes)?.to_sddl();
        sddl.map_err(|error| ClientError::PeerMisbehaved(error.to_string()))
    }

    async fn read_whole(&self, text: &Text, size: u64) -> crate::Result<Vec<u8>> {
        let handle = self.share.open(text, &OpenFile::read()).await?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            let block = self.scratch.get().await;
            let length = block.capacity().min(self.share.limits().read_max as usize);
            let (block, result) = handle.read_at(bytes.len() as u64, block, length).await;
            result?;
            if block.is_empty() {
                break;
            }
            bytes.extend_from_slice(&block);
        }
        Ok(bytes)
    }

    async fn write_whole(&self, text: &Text, bytes: &[u8]) -> crate::Result<()> {
        let open = OpenFile::write(CreateDisposition::OverwriteIf);
        let handle = self.share.open(text, &open).await?;
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
        handle.close().await
    }

    /// Sets the whole new set; what cannot be kept is added to the losses.
    pub(super) async fn set_xattrs(
        &self,
        path: &RelPath,
        wanted: &[Xattr],
        is_new: bool,
        losses: &mut Vec<Loss>,
    ) -> Result<()> {
        let text = self.base.text(Op::Xattr, path)?;
        let mut kept = Vec::new();
        for xattr in wanted {
            if self.has_streams
                && let Some(stream) = stream_name(&xattr.name)
            {
                let value = xattr.value.strip_suffix(&[0]).unwrap_or(&xattr.value);
                let at = paths::stream_of(&text, stream.units());
                let written = self.write_whole(&at, value).await;
                self.refined(Op::Xattr, path, written).await?;
                kept.push(stream);
            } else if self.options.acls && xattr.name == SDDL {
                match self.set_sddl(&text, &xattr.value).await {
                    Ok(()) => {}
                    Err(ClientError::PeerRefused { .. } | ClientError::PeerMisbehaved(_)) => {
                        losses.push(Loss::Acl)
                    }
                    Err(error) => return self.refined(Op::Xattr, path, Err(error)).await,
                }
            } else {
                losses.push(super::map::xattr_loss(xattr));
            }
        }
        if !self.has_streams || is_new {
            return Ok(());
        }
        let streams = self.refined(Op::Xattr, path, self.streams(&text).await).await?;
        for (name, ..) in streams {
            let fold = ropeway_smb_proto::upcase::fold(&name);
            if kept
                .iter()
                .any(|kept| ropeway_smb_proto::upcase::fold(kept) == fold)
            {
                continue;
            }
            let at = paths::stream_of(&text, name.units());
            let disposition = FileDispositionInformation { delete_pending: true };
            let set = |tree, file| ops::set_file(tree, file, &disposition);
            let open = OpenFile::delete();
            let removed = self
                .share
                .on("remove a stream", &at, &open, Replay::Once, set)
                .await;
            self.refined(Op::Xattr, path, removed).await?;
        }
        Ok(())
    }

    /// Owner and group take a privilege if they are others: then the DACL alone is set.
    async fn set_sddl(&self, text: &Text, sddl: &[u8]) -> crate::Result<()> {
        let sddl = std::str::from_utf8(sddl)
            .ok()
            .and_then(|sddl| SecurityDescriptor::from_sddl(sddl).ok());
        let Some(descriptor) = sddl else {
            return Err(ClientError::PeerMisbehaved(
                "not a security descriptor".to_owned(),
            ));
        };
        let access = AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
        let bytes = descriptor.to_bytes();
        if let Ok(handle) = self.share.open(text, &OpenFile::metadata(access)).await
            && handle.set_security(PARTS, &bytes).await.is_ok()
        {
            return Ok(());
        }
        let open = OpenFile::metadata(AccessMask::WRITE_DAC);
        let handle = self.share.open(text, &open).await?;
        handle.set_security(SecurityInformation::DACL, &bytes).await
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
