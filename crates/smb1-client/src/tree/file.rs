//! Open files of a tree.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use parking_lot::Mutex;
use ropeway_block::{Block, BlockMut, Pool};
use ropeway_smb_client::common::{basic, change, id, tree_error, with_message};
use ropeway_smb_client::{Error as ClientError, FileAttributes, NtStatus, Result as ClientResult};
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use ropeway_smb_wire::info::{FileBasicInformation, FileInternalInformation, Information as _};
use ropeway_smb1::wire::file_info::{AllInfo, padded};
use ropeway_smb1::wire::trans2::Level;
use ropeway_vfs::{
    Create, Error, ErrorKind, Extent, File, Kind, Loss, Metadata, MetadataChange, Op, OpenOptions, Pending,
    RelPath, Result, Xattr,
};

use super::Inner;
use super::names::{all_losses, is_unknown};
use crate::calls::{OpenHow, Stat};
use crate::open_file::{OpenFile, close_detached};

/// Pieces of one block in flight; the server limits them further. A guess: more than MaxMpxCount is
/// useless.
const PIECES_AT_ONCE: usize = 64;

/// Zeroes that are written at once where holes are not kept.
const ZEROES: usize = 32 << 10;

/// An open file.
pub(crate) struct Smb1File {
    tree: Arc<Inner>,
    path: RelPath,
    file: Arc<OpenFile>,
    writable: bool,
    is_new: bool,
    /// Length as far as it is known without a request.
    length: AtomicU64,
    /// Remembers that the file was written since its last flush.
    unflushed: Mutex<Option<u64>>,
}

impl Smb1File {
    pub(crate) async fn open(tree: &Arc<Inner>, path: &RelPath, options: OpenOptions) -> Result<Self> {
        let op = match options.create {
            Create::No => Op::Open,
            _ => Op::Create,
        };
        let text = match options.create {
            Create::No => tree.base.text(op, path)?,
            _ => tree.base.new_text(op, path)?,
        };
        if path.is_root() {
            return Err(Error::new(op, path, ErrorKind::IsADirectory));
        }
        let mut access = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES | AccessMask::READ_EA;
        if options.write {
            access |= AccessMask::WRITE_DATA
                | AccessMask::APPEND_DATA
                | AccessMask::WRITE_ATTRIBUTES
                | AccessMask::WRITE_EA;
        }
        let mut how = OpenHow {
            disposition: match options.create {
                Create::No => CreateDisposition::Open,
                Create::New => CreateDisposition::Create,
                Create::IfMissing => CreateDisposition::OpenIf,
                Create::Truncate => CreateDisposition::OverwriteIf,
            },
            ..OpenHow::existing(access)
        };
        how.options |= CreateOptions::NON_DIRECTORY_FILE;
        if options.alone {
            how.share = ShareAccess::READ | ShareAccess::DELETE;
        }
        let mut opened = OpenFile::open(&tree.share, &text, how).await;
        if matches!(
            opened.as_ref().err().and_then(ClientError::status),
            Some(NtStatus::ACCESS_DENIED)
        ) && options.create == Create::Truncate
            && tree.make_writable(&text).await
        {
            opened = OpenFile::open(&tree.share, &text, how).await;
        }
        let file = match opened {
            Ok(file) => file,
            // Some servers report a folder in the way of a new file by its kind.
            Err(error)
                if options.create == Create::New && error.status() == Some(NtStatus::FILE_IS_A_DIRECTORY) =>
            {
                return Err(Error {
                    kind: ErrorKind::AlreadyExists,
                    ..tree_error(op, path, error)
                });
            }
            Err(error) => return tree.map_error(op, path, Err(error)).await,
        };
        let created = &file.created;
        let is_new = matches!(created.create_action, 2);
        let opened = Self {
            tree: Arc::clone(tree),
            path: path.clone(),
            writable: options.write,
            is_new,
            length: AtomicU64::new(created.end_of_file),
            unflushed: Mutex::default(),
            file: Arc::new(file),
        };
        opened.check_kind(op).await?;
        Ok(opened)
    }

    /// Checks that a reparse point is a regular file: the server shows its content.
    async fn check_kind(&self, op: Op) -> Result<()> {
        let created = &self.file.created;
        let attributes = FileAttributes::from_bits_retain(created.file_attributes);
        if created.is_directory {
            return Err(Error::new(op, &self.path, ErrorKind::IsADirectory));
        }
        if !attributes.contains(FileAttributes::REPARSE_POINT) {
            return Ok(());
        }
        let mut metadata = self.opened();
        self.tree.read_special(op, &self.path, &mut metadata).await?;
        match metadata.kind {
            Kind::File => Ok(()),
            Kind::Symlink => Err(Error::new(op, &self.path, ErrorKind::SymbolicLink)),
            _ => {
                let sentence = "it is not a regular file";
                Err(with_message(op, &self.path, ErrorKind::Unsupported, sentence))
            }
        }
    }

    /// Returns the metadata as of the open.
    fn opened(&self) -> Metadata {
        let created = &self.file.created;
        let times = FileBasicInformation {
            creation_time: created.creation_time,
            last_access_time: created.last_access_time,
            last_write_time: created.last_write_time,
            change_time: created.change_time,
            attributes: FileAttributes::from_bits_retain(created.file_attributes),
        };
        basic(&times, created.end_of_file, created.allocation_size)
    }

    fn error(&self, op: Op, error: ClientError) -> Error {
        tree_error(op, &self.path, error)
    }

    fn note_write(&self) {
        let mut unflushed = self.unflushed.lock();
        if unflushed.is_none() {
            *unflushed = Some(self.tree.dirty.add(&self.path));
        }
    }

    /// Reads `length` bytes at `offset` in pieces, fewer only at the end of the file.
    async fn read(&self, mut block: BlockMut, offset: u64, length: usize) -> (BlockMut, Result<()>) {
        let outcome = self.read_into(&mut block, offset, length).await;
        if outcome.is_err() {
            block.set_len(0);
        }
        (block, outcome.map_err(|error| self.error(Op::Read, error)))
    }

    async fn read_into(&self, block: &mut BlockMut, offset: u64, length: usize) -> ClientResult<()> {
        let server = self.file.share().server().await?;
        let piece = server.read_max() as usize;
        let at_once = match self.tree.share.inner.link.options.pipelined_reads {
            true => PIECES_AT_ONCE,
            false => 1,
        };
        let reads = (0..length).step_by(piece).map(|at| async move {
            let wanted = piece.min(length - at);
            (at, wanted, self.read_piece(offset + at as u64, wanted).await)
        });
        let mut reads = futures_util::stream::iter(reads).buffered(at_once);
        let mut upto = 0;
        block.set_len(0);
        while let Some((at, wanted, piece)) = reads.next().await {
            let piece = piece?;
            block.capacity_mut()[at..at + piece.len()].copy_from_slice(&piece);
            upto = at + piece.len();
            if piece.len() < wanted {
                // The end of the file.
                break;
            }
        }
        drop(reads);
        block.set_len(upto);
        Ok(())
    }

    /// Reads one piece; asks for the rest of a short one. Fewer bytes mean the end of the file.
    async fn read_piece(&self, offset: u64, wanted: usize) -> ClientResult<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < wanted {
            let at = offset + bytes.len() as u64;
            // A piece is at most as long as the largest read.
            let read = self.file.read(at, (wanted - bytes.len()) as u32).await?;
            let Some(data) = read else { break };
            let data = data.bytes()?;
            if data.is_empty() {
                break;
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes)
    }

    async fn write(&self, block: Block, offset: u64) -> Result<()> {
        if !self.writable {
            return Err(Error::new(Op::Write, &self.path, ErrorKind::PermissionDenied));
        }
        if block.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(block.len() as u64);
        let most = self.tree.capabilities.file_size_max;
        if end.is_none_or(|end| end > most) {
            return Err(Error::new(Op::Write, &self.path, ErrorKind::FileTooLarge));
        }
        self.note_write();
        self.length
            .fetch_max(offset + block.len() as u64, Ordering::AcqRel);
        let written = self.write_pieces(&block, offset).await;
        written.map_err(|error| self.error(Op::Write, error))
    }

    async fn write_pieces(&self, block: &Block, offset: u64) -> ClientResult<()> {
        let server = self.file.share().server().await?;
        let piece = server.write_max() as usize;
        let at_once = match self.tree.share.inner.link.options.pipelined_writes {
            true => PIECES_AT_ONCE,
            false => 1,
        };
        let writes = (0..block.len()).step_by(piece).map(|at| async move {
            let mut rest = block.slice(at..block.len().min(at + piece));
            let mut at = offset + at as u64;
            while !rest.is_empty() {
                let count = self.file.write(at, &rest).await?;
                if count == 0 {
                    return Err(ClientError::PeerRefused {
                        op: "write",
                        status: NtStatus::DISK_FULL,
                    });
                }
                at += count as u64;
                rest = rest.slice(count..rest.len());
            }
            Ok(())
        });
        let mut writes = futures_util::stream::iter(writes).buffer_unordered(at_once);
        while let Some(written) = writes.next().await {
            written?;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let ticket = self.unflushed.lock().take();
        let flushed = self.file.flush().await;
        match &flushed {
            Ok(()) => {
                if let Some(ticket) = ticket {
                    self.tree.dirty.clean(ticket);
                }
            }
            Err(_) => *self.unflushed.lock() = ticket,
        }
        flushed.map_err(|error| self.error(Op::Sync, error))
    }

    async fn set(&self, wanted: &MetadataChange) -> Result<Vec<Loss>> {
        if !self.writable {
            return self.tree.set_metadata(&self.path, wanted).await;
        }
        if let Some(basic) = change(wanted, false) {
            let set = self.file.set_basic(&basic).await;
            set.map_err(|error| self.error(Op::SetAttributes, error))?;
        }
        Ok(all_losses(wanted))
    }

    async fn query(&self) -> ClientResult<Metadata> {
        let server = self.file.share().server().await?;
        let all = self.file.query(Level::ALL).await?;
        let all = AllInfo::decode(&padded(&all, 72), server.negotiated().unicode)?;
        let words = all.words;
        let stat = Stat {
            basic: FileBasicInformation {
                creation_time: words.creation_time,
                last_access_time: words.last_access_time,
                last_write_time: words.last_write_time,
                change_time: words.change_time,
                attributes: FileAttributes::from_bits_retain(words.file_attributes),
            },
            size: words.end_of_file,
            allocated: words.allocation_size,
            links: words.number_of_links,
            is_directory: words.is_directory,
            index: None,
        };
        let mut metadata = self.tree.metadata_of(&stat);
        if self.tree.has_numbers {
            let number = self.file.query(Level::passthrough(6)).await?;
            let number = FileInternalInformation::decode(&number)?;
            metadata.id = id(self.tree.serial, number.index_number);
        }
        self.length.fetch_max(metadata.size, Ordering::AcqRel);
        Ok(metadata)
    }

    /// Checks that the file has the expected size on the server.
    async fn check_size(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let found = self
            .query()
            .await
            .map_err(|error| self.error(Op::Stat, error))?
            .size;
        match self.length.load(Ordering::Acquire) {
            known if known == found => Ok(()),
            known => Err(self.error(
                Op::Write,
                ClientError::InvalidReply(format!(
                    "{known} bytes were written, and the server holds {found}"
                )),
            )),
        }
    }
}

impl Drop for Smb1File {
    /// Closes in the background.
    fn drop(&mut self) {
        let file = Arc::clone(&self.file);
        match Arc::clone(&self.tree.closes).try_read_owned() {
            Ok(closing) => close_detached(file, closing),
            // A task is waiting for earlier closes. Later waiters wait for this one too.
            Err(_) => {
                let closes = Arc::clone(&self.tree.closes);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { close_detached(file, closes.read_owned().await) });
                }
            }
        }
    }
}

impl File for Smb1File {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        &self.path
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        Box::pin(async { self.query().await.map_err(|error| self.error(Op::Stat, error)) })
    }

    fn at_open(&self) -> Option<Metadata> {
        let attributes = FileAttributes::from_bits_retain(self.file.created.file_attributes);
        // Without its number it would seem to be another file.
        let is_plain = !attributes.contains(FileAttributes::REPARSE_POINT) && !self.tree.has_numbers;
        is_plain.then(|| self.opened())
    }

    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        assert!(length <= block.capacity(), "a read fits its block");
        Box::pin(self.read(block, offset, length))
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        Box::pin(self.write(block, offset))
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        Box::pin(async move {
            let size = self
                .query()
                .await
                .map_err(|error| self.error(Op::Extents, error))?
                .size;
            Ok((offset < size).then(|| Extent {
                offset,
                length: size - offset,
            }))
        })
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            if !self.writable {
                return Err(Error::new(Op::SetLength, &self.path, ErrorKind::PermissionDenied));
            }
            if length > self.tree.capabilities.file_size_max {
                return Err(Error::new(Op::SetLength, &self.path, ErrorKind::FileTooLarge));
            }
            self.note_write();
            let mut set = self.file.set_length(length).await;
            if set.as_ref().is_err_and(is_unknown) {
                set = self.file.set_length(length).await;
            }
            set.map_err(|error| self.error(Op::SetLength, error))?;
            self.length.store(length, Ordering::Release);
            Ok(())
        })
    }

    fn allocate(&self, _length: u64) -> Pending<'_, Result<()>> {
        // Setting the allocation truncates a longer file; preallocation is not worth that risk.
        Box::pin(std::future::ready(Ok(())))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let pool = Pool::new(ZEROES, 1);
            let mut at = offset;
            let end = offset.saturating_add(length);
            while at < end {
                let count = (end - at).min(ZEROES as u64) as usize;
                let mut block = pool.get().await;
                block.capacity_mut()[..count].fill(0);
                block.set_len(count);
                self.write(block.freeze(), at).await?;
                at += count as u64;
            }
            Ok(())
        })
    }

    fn start_writeback(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn wait_writeback(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn sync(&self, _data_only: bool) -> Pending<'_, Result<()>> {
        Box::pin(self.flush())
    }

    fn drop_cache(&self, _offset: u64, _length: u64) -> Pending<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn cached(&self, _offset: u64, _length: u64) -> Pending<'_, Result<Option<u64>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn set_metadata<'a>(&'a self, change: &'a MetadataChange) -> Pending<'a, Result<Vec<Loss>>> {
        Box::pin(self.set(change))
    }

    fn finish<'a>(&'a self, change: &'a MetadataChange, sync: bool) -> Pending<'a, Result<Vec<Loss>>> {
        Box::pin(async move {
            // Size and time tell a later run that the file is complete, so they are set after its
            // data is durable.
            if sync {
                self.flush().await?;
            }
            let losses = self.set(change).await?;
            if sync && !self.is_new {
                self.flush().await?;
            }
            self.check_size().await?;
            Ok(losses)
        })
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

impl std::fmt::Debug for Smb1File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Smb1File({})", self.path)
    }
}
