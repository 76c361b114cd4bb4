//! An open file of a share.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::try_join_all;
use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::create::{CreateAction, CreateDisposition, CreateOptions};
use ropeway_smb_wire::info::{FileAllInformation, FileEndOfFileInformation, FileStandardInformation};
use ropeway_smb_wire::{FileAttributes, FileTime, NtStatus};
use ropeway_vfs::{
    Create, Error, ErrorKind, Extent, File, Kind, Loss, Metadata, MetadataChange, Op, OpenOptions, Pending,
    RelPath, Result, Xattr,
};

use super::dirty::Ticket;
use super::errors::{fault, found};
use super::ranges::Ranges;
use super::{Inner, map};
use crate::{Handle, OpenFile};

/// A write that begins this far behind the end of all that was begun makes the file sparse first, so that the server need
/// not fill what lies between. A guess: blocks of a copy come nearly in order.
const FAR_BEHIND: u64 = 4 << 20;
/// How long a rename waits for files to be closed: some round trips of any line.
const CLOSINGS_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// An open file of a share.
pub struct SmbFile {
    pub(super) tree: Arc<Inner>,
    /// Taken by drop only.
    handle: Option<Handle>,
    path: RelPath,
    writable: bool,
    /// The length as far as this open knows it.
    length: AtomicU64,
    pub(super) sparse: AtomicBool,
    pub(super) ranges: Mutex<Ranges>,
    /// Extended attributes were set by this open, which may have made the file.
    has_attributes: AtomicBool,
    /// Set while something is written and not flushed.
    unflushed: Mutex<Option<Ticket>>,
    /// What names this open as the source of copies inside the server.
    pub(super) resume_key: tokio::sync::OnceCell<ropeway_smb_wire::fsctl::copy_chunk::ResumeKey>,
}

impl SmbFile {
    pub(super) async fn open(tree: &Arc<Inner>, path: &RelPath, options: OpenOptions) -> Result<Self> {
        let op = if options.create == Create::No {
            Op::Open
        } else {
            Op::Create
        };
        let text = match options.create {
            Create::No => tree.base.text(op, path)?,
            _ => tree.base.new_text(op, path)?,
        };
        let disposition = match options.create {
            Create::No => CreateDisposition::Open,
            Create::New => CreateDisposition::Create,
            Create::IfMissing => CreateDisposition::OpenIf,
            Create::Truncate => CreateDisposition::OverwriteIf,
        };
        let writable = options.write || options.create != Create::No;
        let mut open = match writable {
            true => OpenFile::write(disposition),
            false => OpenFile::read(),
        };
        open.options |= CreateOptions::OPEN_REPARSE_POINT;
        let mut opened = tree.share.open(&text, &open).await;
        let denied = |error: &crate::Error| error.status() == Some(NtStatus::ACCESS_DENIED);
        let mut truncate = false;
        if options.create == Create::Truncate && opened.as_ref().is_err_and(denied) {
            // [MS-FSA] 2.1.5.1.2.1: a hidden or system file is not overwritten by one that is neither.
            open.disposition = CreateDisposition::OpenIf;
            opened = tree.share.open(&text, &open).await;
            truncate = true;
        }
        let handle = match opened {
            Err(error)
                if error.status() == Some(NtStatus::OBJECT_NAME_COLLISION)
                    || options.create == Create::New =>
            {
                return Err(tree.refused_new(op, path, error).await);
            }
            opened => tree.refined(op, path, opened).await?,
        };
        let created = handle.created();
        let attributes = created.basic.attributes;
        if attributes.contains(FileAttributes::REPARSE_POINT) {
            let mut metadata = map::created(created, tree.volume);
            tree.look_into(op, path, &mut metadata).await?;
            match metadata.kind {
                Kind::File => {}
                Kind::Symlink => return Err(Error::new(op, path, ErrorKind::SymbolicLink)),
                _ => return Err(found(op, path, ErrorKind::Unsupported, "it is no regular file")),
            }
        }
        let sparse = attributes.contains(FileAttributes::SPARSE_FILE);
        let holes = sparse || created.allocation_size < created.end_of_file;
        tree.opens.fetch_add(1, Ordering::AcqRel);
        let file = Self {
            tree: Arc::clone(tree),
            path: path.clone(),
            writable,
            length: AtomicU64::new(created.end_of_file),
            sparse: AtomicBool::new(sparse),
            ranges: Mutex::new(Ranges::new(holes)),
            has_attributes: AtomicBool::new(false),
            unflushed: Mutex::default(),
            resume_key: tokio::sync::OnceCell::new(),
            handle: Some(handle),
        };
        if truncate {
            file.cut(0).await?;
        }
        Ok(file)
    }

    pub(super) fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("taken only by drop")
    }

    pub(super) fn fault(&self, op: Op, error: crate::Error) -> Error {
        fault(op, &self.path, error)
    }

    /// Notes that something is about to be written.
    pub(super) fn touch(&self) {
        self.ranges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .forget();
        let mut unflushed = self.unflushed.lock().unwrap_or_else(PoisonError::into_inner);
        if unflushed.is_none() {
            *unflushed = Some(self.tree.dirty.add(&self.path));
        }
    }

    pub(super) async fn cut(&self, length: u64) -> Result<()> {
        self.touch();
        let end = FileEndOfFileInformation { end_of_file: length };
        let set = self.handle().set(&end).await;
        set.map_err(|error| self.fault(Op::SetLength, error))?;
        self.length.store(length, Ordering::Release);
        Ok(())
    }

    async fn write(&self, block: Block, offset: u64) -> Result<()> {
        if !self.writable {
            return Err(Error::new(Op::Write, &self.path, ErrorKind::PermissionDenied));
        }
        if block.is_empty() {
            return Ok(());
        }
        self.touch();
        let known = self.length.load(Ordering::Acquire);
        if offset >= known.saturating_add(FAR_BEHIND) {
            self.make_sparse().await;
        }
        let end = offset.saturating_add(block.len() as u64);
        self.length.fetch_max(end, Ordering::AcqRel);
        let most = self.tree.share.limits().write_max as usize;
        let failed = |error| self.fault(Op::Write, error);
        if block.len() <= most {
            self.handle().write_at(offset, block).await.map_err(failed)?;
        } else {
            let length = block.len();
            let writes = (0..length).step_by(most).map(|at| {
                let piece = block.slice(at..length.min(at + most));
                self.handle().write_at(offset + at as u64, piece)
            });
            try_join_all(writes).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Writes back what is not: to the server's disk.
    async fn flush(&self) -> Result<()> {
        self.flushed_by(async {
            match self.writable {
                true => self.handle().flush().await,
                false => Ok(()),
            }
        })
        .await
        .map_err(|error| self.fault(Op::Sync, error))
    }

    /// Runs what flushes the file, and notes that it did.
    async fn flushed_by<E>(
        &self,
        flush: impl Future<Output = std::result::Result<(), E>>,
    ) -> std::result::Result<(), E> {
        let lock = || self.unflushed.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = lock().take();
        let flushed = flush.await;
        match flushed {
            Ok(()) => ticket
                .into_iter()
                .for_each(|ticket| self.tree.dirty.clean(ticket)),
            Err(_) => *lock() = ticket,
        }
        flushed
    }

    /// A flush, then the attributes: in one round trip, unless there is more to it. Size and time tell a later run that the
    /// file is complete, so they come when its data is durable. They are durable with the name that it or its folder gets;
    /// where there is none, in place, by one more flush.
    async fn flush_and_set(&self, change: &MetadataChange) -> Result<Vec<Loss>> {
        let basic = map::change(change, false);
        // A new file has none.
        let is_first = self.is_new() && !self.has_attributes.load(Ordering::Acquire);
        let no_xattrs = match &change.xattrs {
            Some(xattrs) => is_first && xattrs.is_empty(),
            None => true,
        };
        let is_plain = self.writable && no_xattrs && !self.sparse.load(Ordering::Acquire);
        let Some(basic) = basic.filter(|_| is_plain) else {
            self.flush().await?;
            let losses = self.set(change).await?;
            self.flush().await?;
            self.check_size(None).await?;
            return Ok(losses);
        };
        let mut told = None;
        self.flushed_by(async {
            let again = !self.is_new();
            let (set, flushed, size) = self.handle().flush_and_set(&basic, again).await;
            told = size;
            flushed.map_err(|error| self.fault(Op::Sync, error))?;
            set.map_err(|error| self.fault(Op::SetAttributes, error))
        })
        .await?;
        self.tree.changes(&self.path);
        self.check_size(told).await?;
        Ok(map::losses(change))
    }

    /// Attributes of a complete file, without a flush.
    async fn set_complete(&self, change: &MetadataChange) -> Result<Vec<Loss>> {
        let losses = self.set(change).await?;
        self.check_size(None).await?;
        Ok(losses)
    }

    /// Whether the server keeps as much as was written, by what it `told` or by asking.
    async fn check_size(&self, told: Option<u64>) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let size = match told {
            Some(size) => size,
            None => {
                let standard = self.handle().query::<FileStandardInformation>().await;
                let standard = standard.map_err(|error| self.fault(Op::Stat, error))?;
                standard.end_of_file
            }
        };
        match self.known_length() {
            known if known == size => Ok(()),
            known => Err(self.fault(Op::Write, crate::Error::kept(size, known))),
        }
    }

    async fn query(&self) -> Result<Metadata> {
        let all = self.handle().query::<FileAllInformation>().await;
        let all = all.map_err(|error| self.fault(Op::Stat, error))?;
        self.length.fetch_max(all.standard.end_of_file, Ordering::AcqRel);
        Ok(self.tree.all(&all))
    }

    async fn set(&self, change: &MetadataChange) -> Result<Vec<Loss>> {
        if !self.writable {
            return self.tree.set_metadata(&self.path, change).await;
        }
        let mut losses = map::losses(change);
        let tree = &self.tree;
        let is_first = self.is_new() && !self.has_attributes.swap(true, Ordering::AcqRel);
        let sddl = match &change.xattrs {
            Some(xattrs) => tree.set_xattrs(&self.path, xattrs, is_first, &mut losses).await?,
            None => None,
        };
        if let Some(basic) = map::change(change, false) {
            let set = self.handle().set(&basic).await;
            set.map_err(|error| self.fault(Op::SetAttributes, error))?;
            if self.sparse.load(Ordering::Acquire) && basic.creation_time != FileTime::KEEP {
                // Samba 4.17 forgets that a file is sparse when it is given a creation time.
                self.set_sparse().await;
            }
        }
        if let Some(sddl) = sddl {
            tree.set_sddl(&self.path, sddl, &mut losses).await?;
        }
        Ok(losses)
    }

    fn is_new(&self) -> bool {
        self.handle().created().action == CreateAction::CREATED
    }

    /// The length, as far as it is known without asking.
    pub(super) fn known_length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }
}

impl Drop for SmbFile {
    /// Closes in the background; what is asked for afterwards, the server gets afterwards. Who renames or replaces it
    /// next may have to wait for the answer all the same: see `closings_end`.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        // What a close says is of no use to anybody any more: what had to be durable was flushed.
        match Arc::clone(&self.tree.closings).try_read_owned() {
            Ok(closing) => handle.inner.close_aside(Some(closing)),
            // Somebody waits for those before, and those who come later for this one.
            Err(_) => {
                let closing = Arc::clone(&self.tree.closings);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { handle.inner.close_aside(Some(closing.read_owned().await)) });
                }
            }
        }
        self.tree.opens.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inner {
    /// Waits until the files that were let go before are closed; `false` if that takes too long.
    pub(super) async fn closings_end(&self) -> bool {
        let ended = self.closings.write();
        tokio::time::timeout(CLOSINGS_MAX, ended).await.is_ok()
    }

    /// Why a new file was refused. Some servers say of a folder in the way that it is one.
    async fn refused_new(&self, op: Op, path: &RelPath, error: crate::Error) -> Error {
        let is_folder = error.status() == Some(NtStatus::FILE_IS_A_DIRECTORY);
        match self.refined::<()>(op, path, Err(error)).await {
            Err(error) if is_folder => Error {
                kind: ErrorKind::AlreadyExists,
                ..error
            },
            Err(error) => error,
            Ok(()) => Error::new(op, path, ErrorKind::Other),
        }
    }
}

impl File for SmbFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn path(&self) -> &RelPath {
        &self.path
    }

    fn metadata(&self) -> Pending<'_, Result<Metadata>> {
        Box::pin(self.query())
    }

    fn at_open(&self) -> Option<Metadata> {
        let created = self.handle().created();
        let is_plain = !created.basic.attributes.contains(FileAttributes::REPARSE_POINT);
        is_plain.then(|| map::created(created, self.tree.volume))
    }

    fn read_at(&self, block: BlockMut, offset: u64, length: usize) -> Pending<'_, (BlockMut, Result<()>)> {
        assert!(length <= block.capacity(), "a read fits its block");
        Box::pin(self.read(block, offset, length))
    }

    fn write_at(&self, block: Block, offset: u64) -> Pending<'_, Result<()>> {
        Box::pin(self.write(block, offset))
    }

    fn next_extent(&self, offset: u64) -> Pending<'_, Result<Option<Extent>>> {
        Box::pin(self.extent(offset))
    }

    fn set_len(&self, length: u64) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            if !self.writable {
                return Err(Error::new(Op::SetLength, &self.path, ErrorKind::PermissionDenied));
            }
            if length > self.known_length() {
                // New bytes are a hole, not zeroes on the server's disk.
                self.make_sparse().await;
            }
            self.cut(length).await
        })
    }

    fn allocate(&self, _length: u64) -> Pending<'_, Result<()>> {
        // FileAllocationInformation cuts a file that is longer ([MS-FSA] 2.1.5.15.1); a reservation is not worth that.
        Box::pin(std::future::ready(Ok(())))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        Box::pin(self.punch(offset, length))
    }

    fn reflink_from<'a>(&'a self, source: &'a dyn File) -> Pending<'a, Result<bool>> {
        Box::pin(self.clone_from_file(source))
    }

    fn copy_range_from<'a>(
        &'a self,
        source: &'a dyn File,
        offset: u64,
        length: u64,
    ) -> Pending<'a, Result<Option<u64>>> {
        Box::pin(self.copy_inside(source, offset, length))
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
        match sync {
            true => Box::pin(self.flush_and_set(change)),
            false => Box::pin(self.set_complete(change)),
        }
    }

    fn xattrs(&self) -> Pending<'_, Result<Vec<Xattr>>> {
        if !self.tree.capabilities.takes_xattrs() {
            return Box::pin(std::future::ready(Ok(Vec::new())));
        }
        Box::pin(self.tree.xattrs(&self.path))
    }
}

impl std::fmt::Debug for SmbFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SmbFile({})", self.path)
    }
}
