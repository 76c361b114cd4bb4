//! A folder of a share as a [`Tree`].
//!
//! ```text
//! Smb1Tree ── Inner ─┬─ Share                requests, limits, reconnects
//!                    ├─ names, renames       operations on paths
//!                    ├─ volume               what the share can hold
//!                    └─ dirty files          to be flushed
//! Smb1File (file) · Smb1Listing (entries) · Smb1Claim (claim)
//! ```
//! What does not depend on the version of SMB comes from the client of SMB 2
//! (`ropeway_smb_client::common`): names, times, metadata, errors.
//!
//! Extended attributes, named streams and security descriptors are not read and not kept: each
//! attribute to set is reported as lost.

mod claim;
mod entries;
mod file;
mod names;
mod renames;
mod volume;

use std::any::Any;
use std::sync::Arc;

use ropeway_smb_client::common::{Base, DirtyFiles, with_message};
use ropeway_smb_client::{Error as ClientError, Result as ClientResult};
use ropeway_vfs::{
    Capabilities, Claim, ClaimAbove, ErrorKind, File, Listing, Loss, Metadata, MetadataChange, Name, Op,
    OpenOptions, Pending, RelPath, Result, Space, Tree, Xattr,
};

use self::claim::Smb1Claim;
use self::entries::Smb1Listing;
pub(crate) use self::file::Smb1File;
use self::volume::Volume;
use crate::share::Share;

/// Options of a tree.
#[derive(Clone, Debug, Default)]
pub struct Smb1TreeOptions {
    /// Name of the root in messages.
    pub description: Option<String>,
}

/// A folder of a share as a tree. Clones are the same tree.
#[derive(Clone)]
pub struct Smb1Tree {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) share: Share,
    pub(crate) base: Base,
    description: String,
    capabilities: Capabilities,
    /// Serial number of the volume.
    pub(crate) serial: u64,
    /// Whether the server knows the numbers of files.
    pub(crate) has_numbers: bool,
    /// Whether the server knows the information levels of NT files.
    pub(crate) has_passthrough: bool,
    pub(crate) dirty: Arc<DirtyFiles>,
    /// Read-locked by each file that is being closed.
    pub(crate) closes: Arc<tokio::sync::RwLock<()>>,
}

impl Smb1Tree {
    /// Opens the folder `base` of a share as a tree. Its names are separated by slashes or
    /// backslashes; the empty path is the whole share.
    ///
    /// # Errors
    /// The errors of any request. Does not check that the folder exists.
    pub async fn open(share: Share, base: &str, options: Smb1TreeOptions) -> ClientResult<Self> {
        let volume = Volume::query(&share).await?;
        let shown = base.trim_matches(['/', '\\']);
        let description = options.description.unwrap_or_else(|| match shown.is_empty() {
            true => format!("//{}", share.name()),
            false => format!("//{}/{shown}", share.name()),
        });
        Ok(Self {
            inner: Arc::new(Inner {
                base: Base::parse(base),
                description,
                capabilities: volume.capabilities(),
                serial: volume.serial,
                has_numbers: volume.has_numbers,
                has_passthrough: volume.has_passthrough,
                dirty: Arc::default(),
                closes: Arc::default(),
                share,
            }),
        })
    }

    /// Returns the serial number of the volume, or a number made of its place.
    pub fn serial(&self) -> u64 {
        self.inner.serial
    }

    /// Returns a folder of this tree as a tree of its own, without a request. `description` is its
    /// name in messages.
    ///
    /// # Errors
    /// [`ClientError::Misuse`] if the path holds a name that no share can store.
    pub fn below(&self, path: &RelPath, description: String) -> ClientResult<Self> {
        let base = self.inner.base.below(path);
        let base = base.ok_or(ClientError::Misuse("the folder's name cannot exist on a share"))?;
        Ok(self.at(base, description))
    }

    fn at(&self, base: Base, description: String) -> Self {
        let inner = &self.inner;
        Self {
            inner: Arc::new(Inner {
                share: inner.share.clone(),
                base,
                description,
                capabilities: inner.capabilities.clone(),
                serial: inner.serial,
                has_numbers: inner.has_numbers,
                has_passthrough: inner.has_passthrough,
                dirty: Arc::default(),
                closes: Arc::clone(&inner.closes),
            }),
        }
    }
}

impl std::fmt::Debug for Smb1Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Smb1Tree({})", self.inner.description)
    }
}

/// Returns an error for what SMB 1 cannot do.
fn unsupported<T: Send + 'static>(
    op: Op,
    path: &RelPath,
    sentence: &'static str,
) -> Pending<'static, Result<T>> {
    let error = with_message(op, path, ErrorKind::Unsupported, sentence);
    Box::pin(std::future::ready(Err(error)))
}

impl Tree for Smb1Tree {
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
            let listing = Smb1Listing::start(&self.inner, dir).await?;
            Ok(Box::new(listing) as Box<dyn Listing>)
        })
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let file = Smb1File::open(&self.inner, path, options).await?;
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, _mode: u32) -> Pending<'a, Result<()>> {
        Box::pin(self.inner.make_dir(path))
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, _text: &'a [u8]) -> Pending<'a, Result<()>> {
        unsupported(Op::Link, path, "SMB 1 cannot make symbolic links")
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        Box::pin(self.inner.make_hard_link(existing, new))
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, _metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        unsupported(Op::Create, path, "a share cannot hold FIFOs or devices")
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        Box::pin(self.inner.read_link(path))
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        Box::pin(self.inner.remove(path, false))
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        Box::pin(self.inner.remove(path, true))
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        Box::pin(self.inner.rename(from, to, replace))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        Box::pin(self.inner.set_metadata(path, change))
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        Box::pin(async move {
            self.inner.stat(Op::Xattr, path).await?;
            Ok(Vec::new())
        })
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

    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        Box::pin(self.inner.names_with_prefix(dir, prefix))
    }

    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        Box::pin(async move {
            let claim = Smb1Claim::take(&self.inner, path, create).await?;
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
}
