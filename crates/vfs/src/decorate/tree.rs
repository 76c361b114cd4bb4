//! [`Layered`]: a tree whose every operation passes a [`Layer`].

use std::any::Any;
use std::sync::Arc;

use super::file::LayeredFile;
use super::layer::{Action, Call, Done, Layer};
use super::whole;
use crate::small::{self, GetSmall, GotSmall, PutDone, PutSmall};
use crate::tree::Watch;
use crate::{
    CacheMode, Capabilities, Claim, ClaimAbove, Create, DirEntry, Error, ErrorKind, File, FolderDigest,
    Listing, Loss, Metadata, MetadataChange, Name, OpenOptions, Origin, Pending, RelPath, Result, Space,
    Tree, Xattr,
};
use ropeway_block::BlockMut;

/// A tree behind a layer. The decorators are instances of it, e.g.
/// [`Traced`](super::trace::Traced).
pub struct Layered<L> {
    pub(super) inner: Arc<dyn Tree>,
    pub(super) layer: Arc<L>,
}

impl<L: Layer> Layered<L> {
    /// Puts a layer around a tree.
    pub fn wrap(inner: Arc<dyn Tree>, layer: L) -> Arc<Self> {
        Self::wrap_shared(inner, Arc::new(layer))
    }

    pub(super) fn wrap_shared(inner: Arc<dyn Tree>, layer: Arc<L>) -> Arc<Self> {
        Arc::new(Self { inner, layer })
    }

    /// Returns the tree behind the layer.
    pub fn inner(&self) -> &Arc<dyn Tree> {
        &self.inner
    }

    fn pass<'a, T, F>(&'a self, call: Call<'a>, operation: F) -> Pending<'a, Result<T>>
    where
        T: Send + 'a,
        F: FnOnce() -> Pending<'a, Result<T>> + Send + 'a,
    {
        pass(&*self.layer, call, Box::new(operation))
    }
}

/// Passes a call through a layer; the amount done is 0.
///
/// The operation is boxed, so that this is compiled once for each kind of result, not for each
/// method and layer.
pub(super) fn pass<'a, L, T>(
    layer: &'a L,
    call: Call<'a>,
    operation: Box<dyn FnOnce() -> Pending<'a, Result<T>> + Send + 'a>,
) -> Pending<'a, Result<T>>
where
    L: Layer,
    T: Send + 'a,
{
    Box::pin(async move {
        let counted = move || -> Pending<'a, Result<Done<T>>> {
            let future = operation();
            Box::pin(async move { future.await.map(|value| Done { value, amount: 0 }) })
        };
        Ok(layer.around(call, Box::new(counted)).await?.value)
    })
}

/// Passes one item of a reply through the layer as an operation of its own.
async fn pass_item<'a, L, T>(layer: &'a L, path: &'a RelPath, item: Result<T>) -> Result<T>
where
    L: Layer,
    T: Send + 'a,
{
    let call = Call::new(Action::Stat, path);
    pass(layer, call, Box::new(move || Box::pin(std::future::ready(item)))).await
}

impl<L: Layer> Tree for Layered<L> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn bytes_in_flight(&self) -> u64 {
        self.inner.bytes_in_flight()
    }

    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        self.pass(Call::new(Action::Stat, path), move || self.inner.metadata(path))
    }

    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        if !L::ITEMWISE {
            let call = Call::new(Action::Lookup, dir).range(0, names.len() as u64);
            return self.pass(call, move || self.inner.lookup(dir, names));
        }
        Box::pin(async move {
            let call = Call::new(Action::Lookup, dir);
            let found = self.pass(call, move || self.inner.lookup(dir, names)).await?;
            let mut items = Vec::with_capacity(found.len());
            for (name, item) in names.iter().zip(found) {
                items.push(pass_item(&*self.layer, &dir.join(name), item).await);
            }
            Ok(items)
        })
    }

    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let call = Call::new(Action::List, dir);
            let inner = self.pass(call, move || self.inner.list(dir)).await?;
            let listing = LayeredListing {
                inner,
                layer: Arc::clone(&self.layer),
                dir: dir.clone(),
            };
            Ok(Box::new(listing) as Box<dyn Listing>)
        })
    }

    fn folder_digest<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Option<Box<dyn FolderDigest>>>> {
        let call = Call::new(Action::FolderDigest, dir);
        self.pass(call, move || self.inner.folder_digest(dir))
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        Box::pin(async move {
            let action = if options.create == Create::No {
                Action::Open
            } else {
                Action::Create
            };
            let direct = options.cache == CacheMode::Direct;
            let call = Call {
                direct,
                ..Call::new(action, path)
            };
            let inner = self.pass(call, move || self.inner.open(path, options)).await?;
            Ok(Arc::new(LayeredFile::new(inner, Arc::clone(&self.layer), direct)) as Arc<dyn File>)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>> {
        self.pass(Call::new(Action::MakeDir, path), move || {
            self.inner.make_dir(path, mode)
        })
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>> {
        self.pass(Call::new(Action::Symlink, path), move || {
            self.inner.make_symlink(path, text)
        })
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        let call = Call {
            other: Some(existing),
            ..Call::new(Action::HardLink, new)
        };
        self.pass(call, move || self.inner.make_hard_link(existing, new))
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        self.pass(Call::new(Action::Special, path), move || {
            self.inner.make_special(path, metadata)
        })
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        self.pass(Call::new(Action::ReadLink, path), move || {
            self.inner.read_link(path)
        })
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.pass(Call::new(Action::RemoveFile, path), move || {
            self.inner.remove_file(path)
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.pass(Call::new(Action::RemoveDir, path), move || {
            self.inner.remove_dir(path)
        })
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        let call = Call {
            other: Some(from),
            ..Call::new(Action::Rename, to)
        };
        self.pass(call, move || self.inner.rename(from, to, replace))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        self.pass(Call::new(Action::SetAttributes, path), move || {
            self.inner.set_metadata(path, change)
        })
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        self.pass(Call::new(Action::Xattrs, path), move || self.inner.xattrs(path))
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        self.pass(Call::new(Action::Space, &ROOT), move || self.inner.space())
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        self.pass(Call::new(Action::SyncTree, &ROOT), move || self.inner.sync())
    }

    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        self.pass(Call::new(Action::SyncDir, dir), move || self.inner.sync_dir(dir))
    }

    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<PutDone>> {
        if L::WHOLE_SMALL {
            Box::pin(whole::put(&*self.inner, &*self.layer, put))
        } else {
            Box::pin(small::put_by_steps(self, put))
        }
    }

    fn get_small(&self, get: GetSmall, block: BlockMut) -> Pending<'_, (BlockMut, Result<GotSmall>)> {
        if L::WHOLE_SMALL {
            Box::pin(whole::get(&*self.inner, &*self.layer, get, block))
        } else {
            Box::pin(small::get_by_steps(self, get, block))
        }
    }

    fn names_with_prefix<'a>(&'a self, dir: &'a RelPath, prefix: &'a [u8]) -> Pending<'a, Result<Vec<Name>>> {
        self.pass(Call::new(Action::List, dir), move || {
            self.inner.names_with_prefix(dir, prefix)
        })
    }

    // Claims bypass the layer: they are not part of the job's data.
    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        self.inner.claim(path, create)
    }

    fn claim_above<'a>(&'a self, name: &'a Name) -> Pending<'a, Result<ClaimAbove>> {
        self.inner.claim_above(name)
    }

    fn above(&self) -> Option<Arc<dyn Tree>> {
        self.inner.above()
    }

    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        self.pass(Call::new(Action::Watch, &ROOT), move || self.inner.watch())
    }
}

static ROOT: RelPath = RelPath::root();

struct LayeredListing<L> {
    inner: Box<dyn Listing>,
    layer: Arc<L>,
    dir: RelPath,
}

impl<L: Layer> Listing for LayeredListing<L> {
    fn next(&mut self, max: usize) -> Pending<'_, Result<Vec<DirEntry>>> {
        Box::pin(async move {
            let (layer, dir) = (&*self.layer, &self.dir);
            let next = self.inner.next(max);
            let operation = move || -> Pending<'_, Result<Done<Vec<DirEntry>>>> {
                Box::pin(async move {
                    let value = next.await?;
                    let amount = value.len() as u64;
                    Ok(Done { value, amount })
                })
            };
            let call = Call::new(Action::ListNext, dir).range(0, max as u64);
            let mut entries = layer.around(call, Box::new(operation)).await?.value;
            if L::ITEMWISE {
                for entry in &mut entries {
                    let path = dir.join(&entry.name);
                    let nothing = Err(Error::new(Action::Stat.op(), &path, ErrorKind::Other));
                    let item = std::mem::replace(&mut entry.metadata, nothing);
                    entry.metadata = pass_item(layer, &path, item).await;
                }
            }
            Ok(entries)
        })
    }

    fn origin(&self) -> Option<Origin> {
        self.inner.origin()
    }
}
