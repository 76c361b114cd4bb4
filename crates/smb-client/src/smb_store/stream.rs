//! Named streams of a file or folder. They are small as a rule, so nothing of them is cached or
//! gathered: each call takes one round trip.

use std::any::Any;
use std::sync::Arc;

use ropeway_smb_wire::create::{CreateAction, CreateDisposition, CreateOptions};
use ropeway_smb_wire::info::{FileEndOfFileInformation, FileRenameInformation, FileStandardInformation};
use ropeway_smb_wire::{NtStatus, Text};
use ropeway_vfs::store::{Access, Entries, Node, NodeChange, NodeStat, StreamInfo, StreamOpen};
use ropeway_vfs::tree::Extent;
use ropeway_vfs::{ErrorKind, Kind, Name, Op, Result, Xattr};

use super::attributes::stream_text;
use super::node::copy_through;
use super::reading::OFFSET_MAX;
use super::shared_file::SharedFile;
use crate::error::Error as ClientError;
use crate::handle::Handle;
use crate::open::OpenFile;
use crate::smb_tree::compound::Compound;
use crate::smb_tree::errors::tree_error;
use crate::smb_tree::paths;

/// An open stream.
pub(super) struct StreamNode {
    file: Arc<SharedFile>,
    /// `None` only while dropping.
    handle: Option<Handle>,
    writable: bool,
}

impl SharedFile {
    /// Opens a named stream.
    pub(super) async fn open_stream(
        self: &Arc<Self>,
        name: &Name,
        how: &StreamOpen,
    ) -> Result<(StreamNode, bool)> {
        if !self.store.tree.has_streams {
            return Err(self.error(Op::Open, ErrorKind::Unsupported));
        }
        let (path, text) = self.text(Op::Open)?;
        let stream = paths::stream_of(&text, stream_text(&path, name)?.units());
        let disposition = match (how.create, how.exclusive) {
            (false, _) => CreateDisposition::Open,
            (true, true) => CreateDisposition::Create,
            (true, false) => CreateDisposition::OpenIf,
        };
        let share = &self.store.tree.share;
        let mut writable = true;
        let mut open = OpenFile::write(disposition);
        // The stream of a folder is a file, but its CREATE names the folder.
        open.options = CreateOptions::default();
        let mut opened = share.open(&stream, &open).await;
        let is_denied = |error: &ClientError| error.status() == Some(NtStatus::ACCESS_DENIED);
        if !how.create && opened.as_ref().is_err_and(is_denied) {
            writable = false;
            opened = share.open(&stream, &OpenFile::read()).await;
        }
        let handle = self.store.tree.map_error(Op::Open, &path, opened).await?;
        let created = handle.created().action == CreateAction::CREATED;
        if created {
            self.store.changed_file(self);
        }
        let node = StreamNode {
            file: Arc::clone(self),
            handle: Some(handle),
            writable,
        };
        Ok((node, created))
    }

    /// Removes a named stream.
    pub(super) async fn remove_stream(&self, name: &Name) -> Result<()> {
        let (path, text) = self.text(Op::Remove)?;
        let removed = self
            .store
            .tree
            .remove_stream(&text, &stream_text(&path, name)?)
            .await;
        self.store.changed_file(self);
        self.store.tree.map_error(Op::Remove, &path, removed).await
    }

    /// Renames a named stream ([MS-FSCC] 2.4.42: the new name begins with a colon).
    pub(super) async fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        let (path, text) = self.text(Op::Rename)?;
        let stream = paths::stream_of(&text, stream_text(&path, name)?.units());
        let mut units = vec![u16::from(b':')];
        units.extend_from_slice(stream_text(&path, to)?.units());
        let rename = FileRenameInformation {
            replace_if_exists: replace,
            name: Text::from_units(units),
        };
        let open = OpenFile::delete();
        let renamed = Compound::open("rename a stream", &stream, &open)
            .once()
            .set(&rename);
        let renamed = renamed.run(&self.store.tree.share).await;
        self.store.changed_file(self);
        self.store
            .tree
            .map_error(Op::Rename, &path, renamed)
            .await
            .map(drop)
    }
}

impl StreamNode {
    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("taken only by drop")
    }

    fn wait<T>(&self, op: Op, future: impl Future<Output = Result<T, ClientError>>) -> Result<T> {
        let failed = |error| tree_error(op, &self.file.last_path(), error);
        self.file.store.wait(async { future.await.map_err(failed) })
    }

    fn unsupported<T>(&self, op: Op) -> Result<T> {
        Err(self.file.error(op, ErrorKind::Unsupported))
    }

    fn check_writable(&self, op: Op) -> Result<()> {
        match self.writable {
            true => Ok(()),
            false => Err(self.file.error(op, ErrorKind::PermissionDenied)),
        }
    }

    fn size(&self) -> Result<u64> {
        let standard = self.wait(Op::Stat, self.handle().query::<FileStandardInformation>())?;
        Ok(standard.end_of_file)
    }
}

impl Drop for StreamNode {
    fn drop(&mut self) {
        let _runtime = self.file.store.runtime.enter();
        self.handle.take();
    }
}

impl Node for StreamNode {
    fn access(&self) -> Access {
        if self.writable {
            Access::Write
        } else {
            Access::Read
        }
    }

    fn stat(&self) -> Result<NodeStat> {
        let size = self.size()?;
        let stat = self.file.store.wait(self.file.stat())?;
        Ok(NodeStat {
            kind: Kind::File,
            size,
            allocated: size,
            ..stat
        })
    }

    fn change(&self, change: &NodeChange) -> Result<()> {
        self.file.store.wait(self.file.change(change))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let store = &self.file.store;
        let mut count = 0;
        while count < buffer.len() && offset.saturating_add(count as u64) < OFFSET_MAX {
            let wanted = (buffer.len() - count).min(store.block);
            let at = offset + count as u64;
            let read = self.wait(Op::Read, async {
                let block = store.direct.get().await;
                let (block, read) = self.handle().read_at(at, block, wanted).await;
                read.map(|()| block)
            })?;
            if read.is_empty() {
                break;
            }
            buffer[count..count + read.len()].copy_from_slice(&read);
            count += read.len();
        }
        Ok(count)
    }

    fn read_cached(&self, _buffer: &mut [u8], _offset: u64) -> Result<Option<usize>> {
        Ok(None)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.check_writable(Op::Write)?;
        let store = &self.file.store;
        if offset
            .checked_add(data.len() as u64)
            .is_none_or(|end| end > OFFSET_MAX)
        {
            return Err(self.file.error(Op::Write, ErrorKind::FileTooLarge));
        }
        let mut at = offset;
        for piece in data.chunks(store.block) {
            self.wait(Op::Write, async {
                let mut block = store.writes.get().await;
                // Copied: the caller keeps its data.
                block.capacity_mut()[..piece.len()].copy_from_slice(piece);
                block.set_len(piece.len());
                self.handle().write_at(at, block.freeze()).await
            })?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.check_writable(Op::SetLength)?;
        let end = FileEndOfFileInformation { end_of_file: length };
        self.wait(Op::SetLength, self.handle().set(&end))
    }

    fn allocate(&self, _length: u64) -> Result<()> {
        self.unsupported(Op::SetLength)
    }

    fn zero(&self, offset: u64, length: u64, _hole: bool) -> Result<()> {
        let end = offset.saturating_add(length).min(self.size()?);
        let zeroes = vec![0; self.file.store.block];
        let mut at = offset;
        while at < end {
            let count = (end - at).min(zeroes.len() as u64);
            self.write_at(&zeroes[..usize::try_from(count).unwrap_or(zeroes.len())], at)?;
            at += count;
        }
        Ok(())
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Result<Vec<Extent>> {
        let end = offset.saturating_add(length).min(self.size()?);
        let run = (offset < end && max > 0).then(|| Extent {
            offset,
            length: end - offset,
        });
        Ok(run.into_iter().collect())
    }

    fn copy_from(&self, source: &dyn Node, source_offset: u64, offset: u64, length: u64) -> Result<u64> {
        copy_through(self, source, source_offset, offset, length)
    }

    fn sync(&self) -> Result<()> {
        self.wait(Op::Sync, self.handle().flush())
    }

    fn entries(&self) -> Result<Box<dyn Entries>> {
        Err(self.file.error(Op::List, ErrorKind::NotADirectory))
    }

    fn link_target(&self) -> Result<Vec<u8>> {
        Err(self.file.error(Op::Stat, ErrorKind::Misuse))
    }

    fn streams(&self) -> Result<Vec<StreamInfo>> {
        self.file.store.wait(self.file.streams())
    }

    fn open_stream(&self, name: &Name, how: &StreamOpen) -> Result<(Arc<dyn Node>, bool)> {
        let (stream, created) = self.file.store.wait(self.file.open_stream(name, how))?;
        Ok((Arc::new(stream), created))
    }

    fn remove_stream(&self, name: &Name) -> Result<()> {
        self.file.store.wait(self.file.remove_stream(name))
    }

    fn rename_stream(&self, name: &Name, to: &Name, replace: bool) -> Result<()> {
        self.file.store.wait(self.file.rename_stream(name, to, replace))
    }

    fn security(&self) -> Result<Option<Vec<u8>>> {
        self.file.store.wait(self.file.security()).map(Some)
    }

    fn set_security(&self, descriptor: &[u8]) -> Result<()> {
        self.file.store.wait(self.file.set_security(descriptor))
    }

    fn eas(&self) -> Result<Vec<Xattr>> {
        self.file.store.wait(self.file.eas())
    }

    fn set_ea(&self, name: &[u8], value: &[u8]) -> Result<()> {
        self.file.store.wait(self.file.set_ea(name, value))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
