//! A folder of a share as a [`Tree`].
//!
//! ```text
//! SmbTree ── Inner ─┬─ Share            requests, limits, reconnects (the crate's)
//!                   ├─ paths, map, errors, links, eas   what is one thing here and another there; pure
//!                   ├─ xattrs ── streams, eas, security     what is an extended attribute of a tree
//!                   ├─ compound         open · one thing · close, in one round trip
//!                   ├─ names, renames, small     operations on paths
//!                   └─ dirty            what `sync` has to flush
//! SmbFile (file, ranges, clone) · SmbListing (list) · SmbWatch (watch)
//! ```
//!
//! No operation follows a reparse point that is a link: everything is opened with FILE_OPEN_REPARSE_POINT
//! ([MS-SMB2] 2.2.13), and servers refuse paths through one (STATUS_STOPPED_ON_SYMLINK). Samba resolves links on its own
//! side; clients cannot see those. Durable means flushed: see [`dirty`]. Nothing passes through this machine's page cache.

mod claim;
mod clone;
mod compound;
mod dirty;
mod eas;
mod errors;
mod file;
mod glance;
mod links;
mod list;
mod map;
mod names;
mod paths;
mod ranges;
mod reads;
mod renames;
mod security;
mod small;
mod streams;
mod watch;
mod xattrs;

use std::any::Any;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ropeway_block::{BlockMut, Pool};
use ropeway_smb_wire::info::FsAttributes;
use ropeway_vfs::tree::Watch;
use ropeway_vfs::{
    Capabilities, Claim, ClaimAbove, Create, File, GetSmall, GotSmall, Listing, Loss, Metadata,
    MetadataChange, Name, Op, OpenOptions, Pending, PutSmall, RelPath, Result, Space, Tree, Xattr,
};

use self::claim::SmbClaim;
use self::dirty::{Changed, Dirty};
pub use self::file::SmbFile;
use self::glance::Glance;
pub use self::list::SmbListing;
use self::paths::Base;
pub use self::watch::SmbWatch;
use crate::look::Looks;
use crate::{Client, Share, Volume};

/// Blocks for what has none of the caller's: streams, zeroes, pieces of a read larger than the server allows. A guess:
/// enough to keep some of them in flight.
const SCRATCH: (usize, usize) = (64 << 10, 16);

/// How a share is taken as a tree.
#[derive(Clone, Debug, Default)]
pub struct SmbTreeOptions {
    /// Carry security descriptors (owner, group, DACL), as extended attribute `user.ropeway.sddl`.
    pub acls: bool,
    /// What the tree is called for people; without it, the share's name and the folder.
    pub description: Option<String>,
    /// Whether names that differ only in case are different files. Servers do not say it reliably.
    pub case_sensitive: bool,
}

/// A folder of a share as a tree. Clones are the same tree.
#[derive(Clone)]
pub struct SmbTree {
    inner: Arc<Inner>,
}

/// What open files share with the tree.
struct Inner {
    share: Share,
    base: Base,
    options: SmbTreeOptions,
    description: String,
    capabilities: Capabilities,
    /// The volume's serial number, in every [`ropeway_vfs::FileId`].
    volume: u64,
    /// The share stores named streams.
    has_streams: bool,
    /// The share said that it has no extended attributes, though it looked as if.
    eas_refused: AtomicBool,
    /// The share can clone ranges.
    may_reflink: bool,
    /// Bytes of a cluster, 0 if the share does not say.
    cluster: u64,
    /// Files may have checksums of their content (ReFS).
    has_integrity: bool,
    /// The share clones whole clusters only, the last one beyond the end of the file.
    clones_by_clusters: AtomicBool,
    /// Folders that are reparse points of which the server shows the content (in a cloud, …): opened as such they may be
    /// empty.
    content_shown: Mutex<HashSet<RelPath>>,
    scratch: Pool,
    dirty: Dirty,
    changed: Changed,
    /// Shared with the trees of other folders of the share.
    glance: Arc<Glance>,
    /// Held for reading by each file that is being closed.
    closings: Arc<tokio::sync::RwLock<()>>,
    /// Files that are open: each is let go by the last task that holds it.
    opens: Arc<AtomicUsize>,
}

impl SmbTree {
    /// Takes the folder `base` of a share (names separated by slashes or backslashes; empty: all of it) as a tree. Asks
    /// the share what it can hold, in one round trip.
    ///
    /// # Errors
    /// What any request may meet. Whether the folder is there is not asked.
    pub async fn open(share: Share, base: &str, options: SmbTreeOptions) -> crate::Result<Self> {
        let volume = share.volume().await?;
        Ok(Self::new(share, (base, &volume), options, Glance::default()))
    }

    /// Connects to a share and takes all of it as a tree. In the same round trip it looks at what stands at `path`, at the
    /// folder that holds it and, with `names`, at what is in it: what is asked about them in the next moment is
    /// answered from that, unless something was changed through the tree meanwhile.
    ///
    /// # Errors
    /// What [`Client::share`] and any request may meet. Whether anything stands at `path` is not asked.
    pub async fn connect(
        client: &Client,
        share: &str,
        path: &RelPath,
        names: bool,
        options: SmbTreeOptions,
    ) -> crate::Result<Self> {
        let top = Base::parse("");
        // What no server can hold is not there to be seen.
        let seen_at = |path: &RelPath| top.text(Op::Stat, path).ok();
        let looks = Looks {
            paths: path.parent().iter().chain([path]).filter_map(seen_at).collect(),
            names_of: seen_at(path).filter(|_| names),
        };
        let (share, mut seen) = client.share_seen(share, &looks).await?;
        let volume = match seen.volume.take() {
            Some(volume) => volume,
            None => share.volume().await?,
        };
        Ok(Self::new(share, ("", &volume), options, Glance::of(seen)))
    }

    /// A folder of this tree as a tree of its own, without asking anybody; `description` is what it is called for people.
    ///
    /// # Errors
    /// [`crate::Error::Misuse`] if the path holds what names in a share cannot.
    pub fn below(&self, path: &RelPath, description: String) -> crate::Result<Self> {
        let inner = &self.inner;
        let base = inner
            .base
            .below(path)
            .ok_or(crate::Error::Misuse("a folder's name that no share can hold"))?;
        Ok(self.at(base, description))
    }

    /// Another folder of the share as a tree.
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
                dirty: Dirty::default(),
                changed: Changed::default(),
                glance: Arc::clone(&inner.glance),
                closings: Arc::clone(&inner.closings),
                opens: Arc::clone(&inner.opens),
            }),
        }
    }

    fn new(share: Share, (base, volume): (&str, &Volume), options: SmbTreeOptions, glance: Glance) -> Self {
        let mut capabilities = map::capabilities(volume, options.acls);
        capabilities.case_sensitive = options.case_sensitive;
        if share.client().is_far() {
            capabilities.blocks_in_flight = map::BLOCKS_FAR;
            capabilities.far = true;
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
            dirty: Dirty::default(),
            changed: Changed::default(),
            glance: Arc::new(glance),
            closings: Arc::default(),
            opens: Arc::default(),
            share,
            options,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The share.
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

    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        Box::pin(async move {
            if let Some(seen) = self.inner.glimpsed(path) {
                return seen;
            }
            // A server may tell the new times of a written file only once it is closed.
            self.inner.closings_end().await;
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

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            if options.write || options.create != Create::No {
                self.inner.changes(path);
            }
            let file = SmbFile::open(&self.inner, path, options).await?;
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, _mode: u32) -> Pending<'a, Result<()>> {
        self.inner.changes(path);
        Box::pin(self.inner.make_dir(path))
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>> {
        self.inner.changes(path);
        Box::pin(self.inner.make_symlink(path, text))
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        self.inner.changes(new);
        Box::pin(self.inner.make_hard_link(existing, new))
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, _metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        let sentence = "shares hold no FIFOs or devices";
        let error = errors::found(Op::Create, path, ropeway_vfs::ErrorKind::Unsupported, sentence);
        Box::pin(std::future::ready(Err(error)))
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        Box::pin(self.inner.read_link(path))
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.inner.changes(path);
        Box::pin(self.inner.remove(path, false))
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.inner.changes(path);
        Box::pin(self.inner.remove(path, true))
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        self.inner.changes(from);
        self.inner.changes(to);
        Box::pin(self.inner.rename(from, to, replace))
    }

    fn rename_in<'a>(&'a self, dir: &'a RelPath, pairs: &'a [(Name, Name)]) -> Pending<'a, Vec<Result<()>>> {
        for (_, to) in pairs.iter().take(1) {
            self.inner.changes(&dir.join(to));
        }
        Box::pin(self.inner.rename_in(dir, pairs))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        self.inner.changes(path);
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
        self.inner.changes(path);
        self.inner.changes(rename_to);
        Box::pin(self.inner.finish_dir(path, change, rename_to))
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        Box::pin(self.inner.space())
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        Box::pin(self.inner.sync())
    }

    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        // Servers keep the order of names by themselves; there is no request for it.
        Box::pin(async move { self.inner.stat(Op::Sync, dir).await.map(drop) })
    }

    fn copies_inside(&self, source: &dyn Tree) -> bool {
        let source = source.as_any().downcast_ref::<Self>();
        source.is_some_and(|source| self.inner.is_same_server(&source.inner))
    }

    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<Vec<Loss>>> {
        self.inner.changes(put.rename_to.as_ref().unwrap_or(&put.path));
        Box::pin(small::put(self, put))
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
                self.inner.glance.forget();
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
