//! An open file of a share, as a tree's [`File`].

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::create::{CreateAction, CreateDisposition, CreateOptions, ShareAccess};
use ropeway_smb_wire::info::{FileAllInformation, FileEndOfFileInformation, FileStandardInformation};
use ropeway_smb_wire::lock::LockElement;
use ropeway_smb_wire::{FileAttributes, FileTime, LeaseKey, NtStatus, Text};
use ropeway_vfs::external::ContentLease;
use ropeway_vfs::{
    CopyPiece, Create, Error, ErrorKind, Extent, FarContent, File, Kind, Loss, Metadata, MetadataChange, Op,
    OpenOptions, Pending, RelPath, Result, Xattr,
};

use super::dirty::Ticket;
use super::errors::{tree_error, with_message};
use super::inner::Inner;
use super::map;
use super::ranges::Ranges;
use crate::caching::LeaseStatus;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::handle::Handle;
use crate::open::{Created, OpenFile};

/// A write that starts this far behind the end of all writes so far makes the file sparse first, so
/// that the server need not fill the gap. A guess: blocks of a copy come nearly in order.
const SPARSE_GAP_MIN: u64 = 4 << 20;
/// Maximum time that a rename waits for files to be closed: some round trips of any line.
const CLOSE_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// An open file of a share.
pub struct SmbFile {
    pub(crate) tree: Arc<Inner>,
    /// `None` only while dropping.
    handle: Option<Handle>,
    path: RelPath,
    /// Its path once it was renamed.
    renamed: Mutex<Option<RelPath>>,
    /// Whether it lost its last name, so that nobody can flush it by one.
    nameless: AtomicBool,
    /// Its key in the list of open files.
    open_key: Text,
    writable: bool,
    /// The length as far as this handle knows it.
    length: AtomicU64,
    pub(crate) sparse: AtomicBool,
    pub(crate) ranges: Mutex<Ranges>,
    /// Whether this handle, which may have created the file, has set extended attributes.
    has_attributes: AtomicBool,
    /// Set while there are unflushed writes.
    unflushed: Mutex<Option<Ticket>>,
    /// The key of this file as the source of copies on the server.
    pub(crate) resume_key: tokio::sync::OnceCell<ropeway_smb_wire::fsctl::copy_chunk::ResumeKey>,
}

impl SmbFile {
    pub(crate) async fn open(tree: &Arc<Inner>, path: &RelPath, options: OpenOptions) -> Result<Self> {
        Self::open_beneath(tree, path, options, None).await
    }

    /// Opens a file. `parent` is the client's lease on its folder, which the server does not break
    /// for what is changed through this open.
    pub(crate) async fn open_beneath(
        tree: &Arc<Inner>,
        path: &RelPath,
        options: OpenOptions,
        parent: Option<LeaseKey>,
    ) -> Result<Self> {
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
        if options.alone {
            open.share = ShareAccess::READ | ShareAccess::DELETE;
        }
        open.parent_lease = parent.filter(|_| writable);
        let mut opened = tree.share.open(&text, &open).await;
        let denied = |error: &ClientError| error.status() == Some(NtStatus::ACCESS_DENIED);
        let mut truncate = false;
        if options.create == Create::Truncate && opened.as_ref().is_err_and(denied) {
            // [MS-FSA] 2.1.5.1.2.1: an open without these attributes may not overwrite a hidden or
            // system file.
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
            opened => tree.map_error(op, path, opened).await?,
        };
        let created = handle.created();
        let attributes = created.basic.attributes;
        if attributes.contains(FileAttributes::REPARSE_POINT) {
            tree.check_regular(op, path, created).await?;
        }
        let sparse = attributes.contains(FileAttributes::SPARSE_FILE);
        let holes = sparse || created.allocation_size < created.end_of_file;
        let file = Self {
            tree: Arc::clone(tree),
            open_key: tree.open_files.add(&text),
            path: path.clone(),
            renamed: Mutex::default(),
            nameless: AtomicBool::new(false),
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
            file.set_length(0).await?;
        }
        Ok(file)
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("taken only by drop")
    }

    pub(crate) fn error(&self, op: Op, error: ClientError) -> Error {
        tree_error(op, &self.path, error)
    }

    /// Notes that a write is about to start.
    pub(crate) fn note_write(&self) {
        self.ranges.lock().forget();
        let mut unflushed = self.unflushed.lock();
        if unflushed.is_none() && !self.nameless.load(Ordering::Acquire) {
            *unflushed = Some(self.tree.dirty.add(&self.current_path()));
        }
    }

    pub(crate) async fn set_length(&self, length: u64) -> Result<()> {
        self.note_write();
        let end = FileEndOfFileInformation { end_of_file: length };
        let set = self.handle().set(&end).await;
        set.map_err(|error| self.error(Op::SetLength, error))?;
        self.length.store(length, Ordering::Release);
        Ok(())
    }

    /// Writes a block, in as many requests as the server's limits demand.
    pub(crate) async fn write(&self, block: Block, offset: u64) -> Result<()> {
        if !self.writable {
            return Err(Error::new(Op::Write, &self.path, ErrorKind::PermissionDenied));
        }
        if block.is_empty() {
            return Ok(());
        }
        self.note_write();
        let known = self.length.load(Ordering::Acquire);
        if offset >= known.saturating_add(SPARSE_GAP_MIN) {
            self.make_sparse().await;
        }
        let end = offset.saturating_add(block.len() as u64);
        self.length.fetch_max(end, Ordering::AcqRel);
        let most = self.tree.share.limits().write_max as usize;
        let failed = |error| self.error(Op::Write, error);
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

    /// Writes at most 64 KiB while shared locks of this file give way
    /// ([`FileHandle::write_between_locks`](crate::FileHandle)).
    pub(crate) async fn write_between_locks(
        &self,
        data: &[u8],
        offset: u64,
        unlock: &[LockElement],
        lock: &[LockElement],
    ) -> ClientResult<(ClientResult<()>, ClientResult<()>)> {
        self.note_write();
        self.length
            .fetch_max(offset.saturating_add(data.len() as u64), Ordering::AcqRel);
        self.handle()
            .write_between_locks(offset, data, unlock, lock)
            .await
    }

    /// Flushes the file to the server's disk.
    async fn flush(&self) -> Result<()> {
        self.run_flush(async {
            match self.writable {
                true => self.handle().flush().await,
                false => Ok(()),
            }
        })
        .await
        .map_err(|error| self.error(Op::Sync, error))
    }

    /// Flushes like [`flush`](Self::flush), with the client's own error.
    pub(crate) async fn flush_once(&self) -> ClientResult<()> {
        self.run_flush(self.handle().flush()).await
    }

    /// Follows a rename of the file. `nameless`: the new name is a temporary one, until the server
    /// deletes the file.
    pub(crate) fn renamed(&self, path: &RelPath, text: &Text, nameless: bool) {
        self.nameless.store(nameless, Ordering::Release);
        *self.renamed.lock() = Some(path.clone());
        self.handle().inner.renamed(text);
    }

    /// Returns the path, as far as renames are known.
    fn current_path(&self) -> RelPath {
        let renamed = self.renamed.lock();
        renamed.as_ref().unwrap_or(&self.path).clone()
    }

    /// Returns the epoch of the lease under which what was read stays valid, if it is held.
    pub(crate) fn epoch(&self) -> Option<u64> {
        match self.lease()?.content() {
            ContentLease::Held { epoch } => Some(epoch),
            _ => None,
        }
    }

    /// Returns the lease of the open file, if it has one.
    pub(crate) fn lease(&self) -> Option<&Arc<LeaseStatus>> {
        self.handle().inner.lease()
    }

    /// Runs a flush, and marks the file as clean if it succeeds.
    async fn run_flush<E>(
        &self,
        flush: impl Future<Output = std::result::Result<(), E>>,
    ) -> std::result::Result<(), E> {
        let lock = || self.unflushed.lock();
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

    /// Flushes, then sets the attributes, in one round trip where possible. Size and time tell a
    /// later run that the file is complete, so they are set after its data is durable. They become
    /// durable with the final name of the file or its folder; a file written in place is flushed
    /// once more.
    async fn flush_and_set(&self, change: &MetadataChange) -> Result<Vec<Loss>> {
        let basic = map::change(change, false);
        // A new file has no extended attributes.
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
        let mut reported = None;
        self.run_flush(async {
            let again = !self.is_new();
            let (set, flushed, size) = self.handle().flush_and_set(&basic, again).await;
            reported = size;
            flushed.map_err(|error| self.error(Op::Sync, error))?;
            set.map_err(|error| self.error(Op::SetAttributes, error))
        })
        .await?;
        self.tree.note_change(&self.current_path());
        self.check_size(reported).await?;
        Ok(map::losses(change))
    }

    /// Sets the attributes of a complete file, without a flush.
    async fn set_complete(&self, change: &MetadataChange) -> Result<Vec<Loss>> {
        let losses = self.set(change).await?;
        self.check_size(None).await?;
        Ok(losses)
    }

    /// Checks that the file has the expected size on the server: `reported` by it, or queried.
    async fn check_size(&self, reported: Option<u64>) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let size = match reported {
            Some(size) => size,
            None => {
                let standard = self.handle().query::<FileStandardInformation>().await;
                let standard = standard.map_err(|error| self.error(Op::Stat, error))?;
                standard.end_of_file
            }
        };
        match self.known_length() {
            known if known == size => Ok(()),
            known => Err(self.error(Op::Write, ClientError::size_mismatch(size, known))),
        }
    }

    /// Queries the file's metadata.
    pub(crate) async fn query(&self) -> Result<Metadata> {
        let all = self.handle().query::<FileAllInformation>().await;
        let all = all.map_err(|error| self.error(Op::Stat, error))?;
        self.length.fetch_max(all.standard.end_of_file, Ordering::AcqRel);
        Ok(self.tree.all(&all))
    }

    async fn set(&self, change: &MetadataChange) -> Result<Vec<Loss>> {
        if !self.writable {
            return self.tree.set_metadata(&self.current_path(), change).await;
        }
        let mut losses = map::losses(change);
        let tree = &self.tree;
        let is_first = self.is_new() && !self.has_attributes.swap(true, Ordering::AcqRel);
        let sddl = match &change.xattrs {
            Some(xattrs) => {
                tree.set_xattrs(&self.current_path(), xattrs, is_first, &mut losses)
                    .await?
            }
            None => None,
        };
        if let Some(basic) = map::change(change, false) {
            let set = self.handle().set(&basic).await;
            set.map_err(|error| self.error(Op::SetAttributes, error))?;
            if self.sparse.load(Ordering::Acquire) && basic.creation_time != FileTime::KEEP {
                // Samba 4.17 clears the sparse attribute when it sets a creation time.
                self.set_sparse().await;
            }
        }
        if let Some(sddl) = sddl {
            tree.set_sddl(&self.current_path(), sddl, &mut losses).await?;
        }
        Ok(losses)
    }

    /// Returns whether this open created the file.
    pub(crate) fn is_new(&self) -> bool {
        self.handle().created().action == CreateAction::CREATED
    }

    /// Notes that the file reaches `end` at least.
    pub(crate) fn note_length(&self, end: u64) {
        self.length.fetch_max(end, Ordering::AcqRel);
    }

    /// Returns the length, as far as it is known without a request.
    pub(crate) fn known_length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }
}

impl Drop for SmbFile {
    /// Closes in the background. The server receives later requests without data after the CLOSE, but
    /// renaming or replacing the file may still have to wait for the reply: see `wait_for_closes`.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        // The result of the CLOSE does not matter: what had to be durable was flushed.
        match Arc::clone(&self.tree.pending_closes).try_read_owned() {
            Ok(closing) => handle.inner.close_detached(Some(closing)),
            // A task is waiting for earlier closes. Later waiters wait for this one too.
            Err(_) => {
                let closing = Arc::clone(&self.tree.pending_closes);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime
                        .spawn(async move { handle.inner.close_detached(Some(closing.read_owned().await)) });
                }
            }
        }
        self.tree.open_files.remove(&self.open_key);
    }
}

impl Inner {
    /// Waits until all files dropped before are closed. Returns `false` if that takes too long.
    pub(crate) async fn wait_for_closes(&self) -> bool {
        let ended = self.pending_closes.write();
        tokio::time::timeout(CLOSE_WAIT_MAX, ended).await.is_ok()
    }

    /// Checks that an opened reparse point is a regular file: the server shows its content.
    async fn check_regular(&self, op: Op, path: &RelPath, created: &Created) -> Result<()> {
        let mut metadata = map::created(created, self.volume);
        self.read_reparse_kind(op, path, &mut metadata).await?;
        match metadata.kind {
            Kind::File => Ok(()),
            Kind::Symlink => Err(Error::new(op, path, ErrorKind::SymbolicLink)),
            _ => {
                let message = "it is not a regular file";
                Err(with_message(op, path, ErrorKind::Unsupported, message))
            }
        }
    }

    /// Returns the error for a refused new file. Some servers report FILE_IS_A_DIRECTORY for a
    /// folder in the way.
    async fn refused_new(&self, op: Op, path: &RelPath, error: ClientError) -> Error {
        let is_folder = error.status() == Some(NtStatus::FILE_IS_A_DIRECTORY);
        match self.map_error::<()>(op, path, Err(error)).await {
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
                // The new range becomes a hole, not zeroes on the server's disk.
                self.make_sparse().await;
            }
            self.set_length(length).await
        })
    }

    fn allocate(&self, _length: u64) -> Pending<'_, Result<()>> {
        // FileAllocationInformation truncates a longer file ([MS-FSA] 2.1.5.15.1); preallocation is
        // not worth that risk.
        Box::pin(std::future::ready(Ok(())))
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Pending<'_, Result<()>> {
        Box::pin(self.zero(offset, length, true))
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

    fn copy_pieces_from<'a>(
        &'a self,
        source: &'a dyn File,
        pieces: &'a [CopyPiece],
    ) -> Pending<'a, Result<bool>> {
        Box::pin(self.copy_pieces(source, pieces))
    }

    fn far_content(&self) -> Option<&dyn FarContent> {
        self.as_far_content()
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
        Box::pin(async { self.tree.xattrs(&self.current_path()).await })
    }
}

impl std::fmt::Debug for SmbFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SmbFile({})", self.path)
    }
}
