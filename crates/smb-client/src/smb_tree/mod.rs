//! A folder of a share as a [`Tree`].
//!
//! ```text
//! SmbTree ── Inner ─┬─ Share                              requests, limits, reconnects
//!                   ├─ paths, map, errors, links, eas    conversions between SMB and tree; pure
//!                   ├─ xattrs ── streams, eas, security  what a tree shows as extended attributes
//!                   ├─ compound                          open, one request, close: one round trip
//!                   ├─ names, renames, small             operations on paths
//!                   ├─ digest                            folders compared without listing them
//!                   └─ dirty, open_files                 files to flush, files that are open
//! SmbFile (file, ranges, clone) · SmbListing (list) · SmbWatch (watch)
//! ```
//!
//! No operation follows a reparse point that is a link: everything is opened with
//! FILE_OPEN_REPARSE_POINT ([MS-SMB2] 2.2.13), and servers refuse paths through a link
//! (STATUS_STOPPED_ON_SYMLINK). Samba resolves links on its own side, where clients cannot see
//! them. Durable means flushed: see [`dirty`]. No data passes through this machine's page cache.

mod asked_again;
mod claim;
mod clone;
pub(crate) mod compound;
mod digest;
pub(crate) mod dirty;
pub(crate) mod eas;
pub(crate) mod errors;
mod far;
pub(crate) mod file;
pub(crate) mod inner;
pub(crate) mod links;
pub(crate) mod list;
mod listing_cache;
pub(crate) mod map;
mod names;
mod new_folders;
mod open_files;
pub(crate) mod paths;
mod ranges;
mod reads;
mod renames;
mod same;
pub(crate) mod security;
mod small;
pub(crate) mod streams;
pub(crate) mod watch;
pub(crate) mod xattrs;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ropeway_block::{BlockMut, Pool};
use ropeway_smb_wire::info::FsAttributes;
use ropeway_vfs::tree::Watch;
use ropeway_vfs::{
    Capabilities, Claim, ClaimAbove, Create, File, FolderDigest, GetSmall, GotSmall, Listing, Loss, Metadata,
    MetadataChange, Name, Op, OpenOptions, Pending, PutDone, PutSmall, RelPath, Result, Space, Tree, Xattr,
};
use tokio::sync::Semaphore;

use self::claim::SmbClaim;
use self::dirty::{ChangedFolders, DirtyFiles};
pub use self::file::SmbFile;
use self::inner::Inner;
pub use self::inner::SmbTreeOptions;
pub use self::list::SmbListing;
use self::listing_cache::ListingCache;
use self::paths::Base;
pub use self::watch::SmbWatch;
use crate::client::Client;
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::get_files::Gets;
use crate::open_summary::SummaryRequest;
use crate::put_files::Puts;
use crate::share::{Share, Volume};

/// Size and number of scratch blocks, for data without a block of the caller: streams and zeroes. A
/// guess: enough to keep some of them in flight.
const SCRATCH: (usize, usize) = (64 << 10, 16);
/// Size and number of blocks for reads in pieces. A guess: several on each of 16 connections.
const PIECES: (usize, usize) = (256 << 10, 64);

/// A folder of a share as a tree. Clones are the same tree.
#[derive(Clone)]
pub struct SmbTree {
    pub(crate) inner: Arc<Inner>,
}

impl SmbTree {
    /// Opens the folder `base` of a share as a tree. Its names are separated by slashes or
    /// backslashes; the empty path is the whole share. Queries the features of the share, in one
    /// round trip.
    ///
    /// # Errors
    /// The errors of any request. Does not check that the folder exists.
    pub async fn open(share: Share, base: &str, options: SmbTreeOptions) -> ClientResult<Self> {
        let volume = share.volume().await?;
        Ok(Self::new(
            share,
            (base, &volume),
            options,
            ListingCache::default(),
        ))
    }

    /// Connects to a share and opens all of it as a tree. The same round trip reads the metadata of
    /// `path` and of its parent folder and, with `names`, lists `path`. For a moment, queries about
    /// them are answered from that, unless something was changed through the tree.
    ///
    /// # Errors
    /// The errors of [`Client::share`] and of any request. Does not check that `path` exists.
    pub async fn connect(
        client: &Client,
        share: &str,
        path: &RelPath,
        names: bool,
        options: SmbTreeOptions,
    ) -> ClientResult<Self> {
        let top = Base::parse("");
        // Skips a path that no server can store.
        let text_of = |path: &RelPath| top.text(Op::Stat, path).ok();
        let summary_request = SummaryRequest {
            paths: path.parent().iter().chain([path]).filter_map(text_of).collect(),
            names_of: text_of(path).filter(|_| names),
        };
        let (share, mut summary) = client.share_with_summary(share, &summary_request).await?;
        let volume = match summary.volume.take() {
            Some(volume) => volume,
            None => share.volume().await?,
        };
        Ok(Self::new(
            share,
            ("", &volume),
            options,
            ListingCache::of(summary),
        ))
    }

    /// Returns a folder of this tree as a tree of its own, without a request. `description` is its
    /// name in messages.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] if the path holds a name that no share can store.
    pub fn below(&self, path: &RelPath, description: String) -> ClientResult<Self> {
        let inner = &self.inner;
        let base = inner
            .base
            .below(path)
            .ok_or(ClientError::Misuse("the folder's name cannot exist on a share"))?;
        Ok(self.at(base, description))
    }

    /// Returns another folder of the share as a tree.
    fn at(&self, base: Base, description: String) -> Self {
        let inner = &self.inner;
        Self {
            inner: Arc::new(Inner {
                share: inner.share.clone(),
                base,
                options: SmbTreeOptions {
                    description: Some(description.clone()),
                    ..inner.options.clone()
                },
                description,
                capabilities: inner.capabilities.clone(),
                volume: inner.volume,
                has_streams: inner.has_streams,
                eas_refused: AtomicBool::new(inner.eas_refused.load(Ordering::Relaxed)),
                cluster: inner.cluster,
                has_integrity: inner.has_integrity,
                clones_by_clusters: AtomicBool::new(inner.clones_by_clusters.load(Ordering::Relaxed)),
                may_reflink: inner.may_reflink,
                content_shown: Mutex::default(),
                scratch: inner.scratch.clone(),
                pieces: inner.pieces.clone(),
                small_alone: Arc::clone(&inner.small_alone),
                dirty: DirtyFiles::default(),
                changed: ChangedFolders::default(),
                listing_cache: Arc::clone(&inner.listing_cache),
                pending_closes: Arc::clone(&inner.pending_closes),
                open_files: Arc::clone(&inner.open_files),
            }),
        }
    }

    fn new(
        share: Share,
        (base, volume): (&str, &Volume),
        options: SmbTreeOptions,
        listing_cache: ListingCache,
    ) -> Self {
        let mut capabilities = map::capabilities(volume, options.acls);
        capabilities.case_sensitive = options.case_sensitive;
        if share.client().is_far() {
            capabilities.blocks_in_flight = map::BLOCKS_FAR;
            capabilities.small_in_flight = map::SMALL_IN_FLIGHT_FAR;
            if share.has_together::<Puts>() {
                capabilities.small_puts_in_flight = map::SMALL_TOGETHER_IN_FLIGHT;
            }
            if share.has_together::<Gets>() {
                capabilities.small_gets_in_flight = map::SMALL_TOGETHER_IN_FLIGHT;
            }
            capabilities.far = true;
        }
        if share.client().asks_one_at_a_time() {
            (capabilities.small_in_flight, capabilities.blocks_in_flight) = (1, 1);
            (
                capabilities.small_puts_in_flight,
                capabilities.small_gets_in_flight,
            ) = (0, 0);
        }
        let can = |flag| volume.attributes.attributes.contains(flag);
        let base_shown = base.trim_matches(['/', '\\']);
        let description = options.description.clone().unwrap_or_else(|| {
            let name = share.name();
            if base_shown.is_empty() {
                format!("//{name}")
            } else {
                format!("//{name}/{base_shown}")
            }
        });
        let inner = Inner {
            base: Base::parse(base),
            description,
            capabilities,
            volume: u64::from(volume.volume.volume_serial_number),
            has_streams: can(FsAttributes::NAMED_STREAMS),
            eas_refused: AtomicBool::new(false),
            cluster: volume.size.unit_bytes().unwrap_or(0),
            has_integrity: can(FsAttributes::SUPPORTS_INTEGRITY_STREAMS),
            clones_by_clusters: AtomicBool::new(false),
            may_reflink: can(FsAttributes::SUPPORTS_BLOCK_REFCOUNTING),
            content_shown: Mutex::default(),
            scratch: Pool::new(SCRATCH.0, SCRATCH.1),
            pieces: Pool::new(PIECES.0, PIECES.1),
            small_alone: Arc::new(Semaphore::new(map::SMALL_IN_FLIGHT_FAR)),
            dirty: DirtyFiles::default(),
            changed: ChangedFolders::default(),
            listing_cache: Arc::new(listing_cache),
            pending_closes: Arc::default(),
            open_files: Arc::default(),
            share,
            options,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the share.
    pub fn share(&self) -> &Share {
        &self.inner.share
    }
}

impl std::fmt::Debug for SmbTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SmbTree({})", self.inner.description)
    }
}

impl Tree for SmbTree {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self) -> String {
        self.inner.description.clone()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn bytes_in_flight(&self) -> u64 {
        match self.inner.capabilities.far {
            true => self.inner.share.client().window(),
            false => 0,
        }
    }

    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        Box::pin(async move {
            if let Some(summary) = self.inner.cached_metadata(path) {
                return summary;
            }
            // A server may report the new times of a written file only once it is closed.
            self.inner.wait_for_closes().await;
            self.inner.stat(Op::Stat, path).await
        })
    }

    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        Box::pin(self.inner.lookup(dir, names))
    }

    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let listing = SmbListing::start(Arc::clone(&self.inner), dir).await?;
            Ok(Box::new(listing) as Box<dyn Listing>)
        })
    }

    fn folder_digest<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Option<Box<dyn FolderDigest>>>> {
        Box::pin(async move {
            let digest = self.inner.folder_digest(dir).await?;
            Ok(digest.map(|digest| Box::new(digest) as Box<dyn FolderDigest>))
        })
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            if options.write || options.create != Create::No {
                self.inner.note_change(path);
            }
            let file = SmbFile::open(&self.inner, path, options).await?;
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, _mode: u32) -> Pending<'a, Result<()>> {
        self.inner.note_change(path);
        Box::pin(self.inner.make_dir(path))
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>> {
        self.inner.note_change(path);
        Box::pin(self.inner.make_symlink(path, text))
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        self.inner.note_change(new);
        Box::pin(self.inner.make_hard_link(existing, new))
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, _metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        let sentence = "a share cannot hold FIFOs or devices";
        let error = errors::with_message(Op::Create, path, ropeway_vfs::ErrorKind::Unsupported, sentence);
        Box::pin(std::future::ready(Err(error)))
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        Box::pin(self.inner.read_link(path))
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.inner.note_change(path);
        Box::pin(self.inner.remove(path, false))
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.inner.note_change(path);
        Box::pin(self.inner.remove(path, true))
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        self.inner.note_change(from);
        self.inner.note_change(to);
        Box::pin(self.inner.rename(from, to, replace))
    }

    fn rename_in<'a>(&'a self, dir: &'a RelPath, pairs: &'a [(Name, Name)]) -> Pending<'a, Vec<Result<()>>> {
        for (_, to) in pairs.iter().take(1) {
            self.inner.note_change(&dir.join(to));
        }
        Box::pin(self.inner.rename_in(dir, pairs))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        self.inner.note_change(path);
        Box::pin(self.inner.set_metadata(path, change))
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        Box::pin(self.inner.xattrs(path))
    }

    fn finish_dir<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
        rename_to: &'a RelPath,
    ) -> Pending<'a, (Result<Vec<Loss>>, Result<()>)> {
        self.inner.note_change(path);
        self.inner.note_change(rename_to);
        Box::pin(self.inner.finish_dir(path, change, rename_to))
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        Box::pin(self.inner.space())
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        Box::pin(self.inner.sync())
    }

    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        // Servers keep the order of changed names by themselves; there is no request for it.
        Box::pin(async move { self.inner.stat(Op::Sync, dir).await.map(drop) })
    }

    fn copies_inside(&self, source: &dyn Tree) -> bool {
        let source = source.as_any().downcast_ref::<Self>();
        source.is_some_and(|source| self.inner.is_same_server(&source.inner))
    }

    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<PutDone>> {
        self.inner
            .note_change(put.rename_to.as_ref().unwrap_or(&put.path));
        Box::pin(small::put(self, Box::new(put)))
    }

    fn get_small(&self, get: GetSmall, block: BlockMut) -> Pending<'_, (BlockMut, Result<GotSmall>)> {
        Box::pin(small::get(self, get, block))
    }

    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        Box::pin(self.inner.names_with_prefix(dir, prefix))
    }

    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        Box::pin(async move {
            if create {
                self.inner.listing_cache.forget();
            }
            let claim = SmbClaim::take(&self.inner, path, create).await?;
            Ok(Box::new(claim) as Box<dyn Claim>)
        })
    }

    fn claim_above<'a>(&'a self, name: &'a Name) -> Pending<'a, Result<ClaimAbove>> {
        Box::pin(async move { Ok(self.inner.claim_above(name).await) })
    }

    fn above(&self) -> Option<Arc<dyn Tree>> {
        let base = self.inner.base.parent()?;
        let description = format!("{}/..", self.inner.description);
        Some(Arc::new(self.at(base, description)))
    }

    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        Box::pin(async move {
            let watch = SmbWatch::start(&self.inner).await?;
            Ok(Box::new(watch) as Box<dyn Watch>)
        })
    }
}
