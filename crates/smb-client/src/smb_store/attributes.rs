//! Times, DOS attributes, security descriptors, extended attributes and the list of streams.

use std::sync::Arc;

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileBasicInformation, FileFullEaInformation, FileStreamInformation, FullEa};
use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus, Text};
use ropeway_vfs::store::{NodeChange, StreamInfo};
use ropeway_vfs::{Error, ErrorKind, Kind, Name, Op, RelPath, Result, Timestamp, Xattr};

use super::shared_file::SharedFile;
use crate::error::Error as ClientError;
use crate::open::{KEPT, OpenFile};
use crate::replies::nth;
use crate::smb_tree::compound::{self, Compound};
use crate::smb_tree::streams::LIST_MAX;
use crate::smb_tree::xattrs::AttributePart;
use crate::smb_tree::{eas, errors, security, xattrs};
use crate::times;

/// The oldest and newest times of SMB, in seconds since 1970: 1601 and 30828 ([MS-DTYP] 2.3.3).
const SECONDS: std::ops::RangeInclusive<i64> = -11_644_473_600..=910_692_730_085;
/// Longest name of an extended attribute that a store takes in bytes, as local folders do: with
/// `user.`, 255 bytes on Linux.
const EA_NAME_MAX: usize = 250;
/// Prefix of extended attributes in a tree.
const SPACE: &[u8] = b"user.";

impl SharedFile {
    /// Returns the path for requests about this node.
    pub(super) fn text(&self, op: Op) -> Result<(RelPath, Text)> {
        let path = self.path().ok_or_else(|| self.error(op, ErrorKind::Gone))?;
        let text = self.store.tree.base.text(op, &path)?;
        Ok((path, text))
    }

    /// Sets times and DOS attributes.
    pub(super) async fn change(self: &Arc<Self>, change: &NodeChange) -> Result<()> {
        let basic = self.basic(change)?;
        if self.kind == Kind::File {
            // A later write would change the times again.
            self.write_out().await?;
        }
        if basic == FileBasicInformation::default() {
            return Ok(());
        }
        if let Some(file) = self.held(true) {
            // Through the handle that has written: its close would change the times otherwise.
            let set = file.handle().set(&basic).await;
            set.map_err(|error| file.error(Op::SetAttributes, error))?;
        } else {
            let (path, text) = self.text(Op::SetAttributes)?;
            let set = self.store.tree.set_basic(&text, &basic).await;
            self.store.tree.map_error(Op::SetAttributes, &path, set).await?;
        }
        self.store.changed_file(self);
        if let Some(path) = self.path() {
            self.store.tree.note_change(&path);
        }
        Ok(())
    }

    fn basic(&self, change: &NodeChange) -> Result<FileBasicInformation> {
        let times = [change.created, change.accessed, change.modified, change.changed];
        let fits = |time: &Timestamp| SECONDS.contains(&time.to_unix().0);
        if !times.iter().flatten().all(fits) {
            return Err(self.error(Op::SetAttributes, ErrorKind::Misuse));
        }
        let [creation_time, last_access_time, last_write_time, change_time] =
            times.map(|time| time.map_or(FileTime::KEEP, times::file_time));
        let attributes = change.dos_attributes.map_or(FileAttributes::default(), |bits| {
            match FileAttributes::from_bits_retain(bits & KEPT.bits()) {
                // 0 would leave the attributes unchanged.
                none if none.is_empty() && self.kind == Kind::Directory => FileAttributes::DIRECTORY,
                none if none.is_empty() => FileAttributes::NORMAL,
                kept => kept,
            }
        });
        Ok(FileBasicInformation {
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            attributes,
        })
    }

    /// Flushes a folder, so that its names are durable.
    pub(super) async fn sync_folder(&self) -> Result<()> {
        let path = self.path().ok_or_else(|| self.error(Op::Sync, ErrorKind::Gone))?;
        match self.store.tree.flush_folder(&path).await {
            // A server that cannot flush folders keeps the order of names by itself.
            Err(error) if error.verdict() == ropeway_vfs::Verdict::Skip => Ok(()),
            flushed => flushed,
        }
    }

    /// Lists the named streams.
    pub(super) async fn streams(&self) -> Result<Vec<StreamInfo>> {
        let tree = &self.store.tree;
        if !tree.has_streams || self.kind == Kind::Symlink {
            return Ok(Vec::new());
        }
        let (path, text) = self.text(Op::Xattr)?;
        let open = OpenFile::metadata(AccessMask::READ_ATTRIBUTES);
        let list = Compound::open("list streams", &text, &open).query::<FileStreamInformation>(LIST_MAX);
        let replies = tree
            .map_error(Op::Xattr, &path, list.run_all(&tree.share).await)
            .await?;
        let listed = nth(&replies, 0).and_then(xattrs::streams_of);
        let listed = tree.map_error(Op::Xattr, &path, listed).await?;
        let infos = listed.into_iter().filter_map(|(name, _, size)| {
            let name = crate::smb_tree::paths::name_of(&name)?;
            Some(StreamInfo { name, size })
        });
        Ok(infos.collect())
    }

    /// Returns the security descriptor: owner, group and DACL.
    pub(super) async fn security(&self) -> Result<Vec<u8>> {
        let (path, text) = self.text(Op::Xattr)?;
        let open = OpenFile::metadata(AccessMask::READ_CONTROL);
        let query = Compound::open("read the security descriptor", &text, &open)
            .query_security(security::PARTS, security::DESCRIPTOR_MAX);
        let tree = &self.store.tree;
        let reply = tree
            .map_error(Op::Xattr, &path, query.run(&tree.share).await)
            .await?;
        let bytes = compound::output(&reply).map(<[u8]>::to_vec);
        tree.map_error(Op::Xattr, &path, bytes).await
    }

    /// Sets the parts of a security descriptor that it holds.
    pub(super) async fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        let (path, text) = self.text(Op::Xattr)?;
        let wanted = SecurityDescriptor::decode(descriptor).map_err(|_| {
            errors::with_message(
                Op::Xattr,
                &path,
                ErrorKind::Misuse,
                "it is no security descriptor",
            )
        })?;
        let (parts, bytes) = security::to_set(wanted);
        let mut access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
        if parts.intersects(security::OWNERS) {
            access |= AccessMask::WRITE_OWNER;
        }
        let tree = &self.store.tree;
        let set = tree.set_descriptor(&text, access, parts, bytes).await;
        self.store.changed_file(self);
        tree.map_error(Op::Xattr, &path, set).await.map(drop)
    }

    /// Returns the extended attributes, by names without a prefix.
    pub(super) async fn eas(&self) -> Result<Vec<Xattr>> {
        let tree = &self.store.tree;
        if !tree.capabilities.short_xattrs || self.kind == Kind::Symlink {
            return Ok(Vec::new());
        }
        let (path, text) = self.text(Op::Xattr)?;
        let about = tree.about(&text, &[AttributePart::Eas]).await;
        let about = tree.map_error(Op::Xattr, &path, about).await?;
        let plain = about.eas.into_iter().map(|ea| Xattr {
            name: ea.name.strip_prefix(SPACE).unwrap_or(&ea.name).to_vec(),
            value: ea.value,
        });
        Ok(plain.collect())
    }

    /// Sets or removes an extended attribute.
    pub(super) async fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        let (path, text) = self.text(Op::Xattr)?;
        let refused = |kind| Err(Error::new(Op::Xattr, &path, kind));
        let tree = &self.store.tree;
        if name.len() > EA_NAME_MAX {
            return refused(ErrorKind::NameRefused);
        }
        if u16::try_from(value.len()).is_err() {
            return refused(ErrorKind::NoSpace);
        }
        let probe = Xattr {
            name: [SPACE, name].concat(),
            value: b"x".to_vec(),
        };
        if !eas::fits(&probe) {
            return refused(ErrorKind::NameRefused);
        }
        if !tree.may_set_eas() {
            return refused(ErrorKind::Unsupported);
        }
        let ea = FullEa {
            need_ea: false,
            name: name.to_vec(),
            value: value.to_vec(),
        };
        let sent = tree
            .send_eas(&text, &[FileFullEaInformation { attributes: vec![ea] }])
            .await;
        self.store.changed_file(self);
        let replies = tree.map_error(Op::Xattr, &path, sent).await?;
        let status = tree.map_error(Op::Xattr, &path, nth(&replies, 0)).await?.status();
        match status {
            status if status.is_success() => Ok(()),
            NtStatus::NONEXISTENT_EA_ENTRY if value.is_empty() => Ok(()),
            status => {
                let error = ClientError::refused("set an extended attribute", status);
                tree.map_error(Op::Xattr, &path, Err(error)).await
            }
        }
    }
}

/// Returns the wire form of a stream's name.
///
/// # Errors
/// `NameRefused` for a name that no stream can have.
pub(super) fn stream_text(path: &RelPath, name: &Name) -> Result<Text> {
    let text = crate::smb_tree::paths::wire_name(name);
    match ropeway_smb_wire::names::check(&text) {
        Ok(()) => Ok(text),
        Err(_) => Err(Error::new(Op::Xattr, path, ErrorKind::NameRefused)),
    }
}
