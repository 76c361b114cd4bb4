//! [`MemoryTree`] as a [`Tree`].

use std::any::Any;
use std::sync::Arc;

use ropeway_block::BlockMut;

use super::claim::MemoryClaim;
use super::digest::MemoryDigest;
use super::far::FarChunks;
use super::file::MemoryFile;
use super::listing::MemoryListing;
use super::nodes::Body;
use super::state::State;
use super::watch::{MemoryWatch, Queue};
use super::{MemoryTree, Shared};
use crate::small::{self, GetSmall, GotSmall, PutDone, PutSmall};
use crate::tree::Watch;
use crate::{
    Capabilities, Claim, Error, ErrorKind, File, FolderDigest, Kind, Listing, Loss, Metadata, MetadataChange,
    Name, Op, OpenOptions, Pending, RelPath, Result, Space, Tree, Xattr,
};

/// Space of a tree without limit: large, but sums of it do not overflow. A guess.
const SPACE_UNLIMITED: u64 = 1 << 62;

impl MemoryTree {
    fn with<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut State, &Shared) -> Result<T>,
    ) -> Pending<'static, Result<T>> {
        let result = operation(&mut self.shared.lock(), &self.shared);
        Box::pin(std::future::ready(result))
    }

    /// Whether the tree is a far end that compares small files.
    fn compares(&self) -> bool {
        self.shared.far == Some(FarChunks::True)
    }

    /// Refuses an operation that the capabilities exclude.
    fn can(&self, able: bool, path: &RelPath) -> Result<()> {
        if able {
            return Ok(());
        }
        Err(Error::new(Op::Link, path, ErrorKind::Unsupported))
    }
}

impl Tree for MemoryTree {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn describe(&self) -> String {
        format!("memory:{}", self.shared.volume)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn metadata<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Metadata>> {
        self.with(|state, shared| state.metadata(shared, Op::Stat, path))
    }

    fn lookup<'a>(
        &'a self,
        dir: &'a RelPath,
        names: &'a [Name],
    ) -> Pending<'a, Result<Vec<Result<Option<Metadata>>>>> {
        self.with(|state, shared| {
            state.resolve_dir(shared, Op::Stat, dir)?;
            let find = |name| match state.metadata(shared, Op::Stat, &dir.join(name)) {
                Ok(found) => Ok(Some(found)),
                Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            };
            Ok(names.iter().map(find).collect())
        })
    }

    fn list<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Box<dyn Listing>>> {
        self.with(|state, shared| {
            let listing = MemoryListing {
                dir: state.resolve_dir(shared, Op::List, dir)?,
                shared: Arc::clone(&self.shared),
                last: None,
            };
            Ok(Box::new(listing) as Box<dyn Listing>)
        })
    }

    fn folder_digest<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<Option<Box<dyn FolderDigest>>>> {
        self.with(|state, shared| {
            let dir = state.resolve_dir(shared, Op::List, dir)?;
            let Body::Directory(entries) = &state.node(dir).body else {
                return Ok(None);
            };
            let nodes = entries.values().map(|(name, index)| {
                let metadata = state.node(*index).metadata(shared, *index);
                (name.clone(), metadata)
            });
            let digest = MemoryDigest(nodes.collect());
            Ok(shared
                .has_digests
                .then(|| Box::new(digest) as Box<dyn FolderDigest>))
        })
    }

    fn open<'a>(&'a self, path: &'a RelPath, options: OpenOptions) -> Pending<'a, Result<Arc<dyn File>>> {
        self.with(|state, shared| {
            let index = state.open(shared, path, options)?;
            let since = state.node(index).failures.sample();
            let of = (index, since);
            let file = MemoryFile::new(Arc::clone(&self.shared), of, path.clone(), options.write);
            Ok(Arc::new(file) as Arc<dyn File>)
        })
    }

    fn make_dir<'a>(&'a self, path: &'a RelPath, mode: u32) -> Pending<'a, Result<()>> {
        self.with(|state, shared| state.make_dir(shared, path, mode))
    }

    fn make_symlink<'a>(&'a self, path: &'a RelPath, text: &'a [u8]) -> Pending<'a, Result<()>> {
        self.with(|state, shared| {
            self.can(shared.capabilities.symlinks, path)?;
            // As on Linux, the permission bits of a link are all set and mean nothing.
            state.make(shared, Op::Link, path, Body::Symlink(text.to_vec()), 0o777)?;
            Ok(())
        })
    }

    fn make_hard_link<'a>(&'a self, existing: &'a RelPath, new: &'a RelPath) -> Pending<'a, Result<()>> {
        self.with(|state, shared| {
            self.can(shared.capabilities.hard_links, new)?;
            state.link(shared, existing, new)
        })
    }

    fn make_special<'a>(&'a self, path: &'a RelPath, metadata: &'a Metadata) -> Pending<'a, Result<()>> {
        self.with(|state, shared| {
            self.can(shared.capabilities.special_files, path)?;
            let device = match metadata.kind {
                Kind::Fifo => None,
                Kind::CharDevice | Kind::BlockDevice => metadata.device,
                _ => return Err(Error::new(Op::Link, path, ErrorKind::Unsupported)),
            };
            let body = Body::Special {
                kind: metadata.kind,
                device,
            };
            state.make(shared, Op::Link, path, body, metadata.mode.unwrap_or(0o600))?;
            Ok(())
        })
    }

    fn read_link<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<u8>>> {
        self.with(|state, shared| {
            let index = state.resolve(shared, Op::Stat, path)?;
            match &state.node(index).body {
                Body::Symlink(text) => Ok(text.clone()),
                _ => Err(Error::new(Op::Stat, path, ErrorKind::Misuse)),
            }
        })
    }

    fn remove_file<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.with(|state, shared| state.remove(shared, path, false))
    }

    fn remove_dir<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<()>> {
        self.with(|state, shared| state.remove(shared, path, true))
    }

    fn rename<'a>(&'a self, from: &'a RelPath, to: &'a RelPath, replace: bool) -> Pending<'a, Result<()>> {
        self.with(|state, shared| state.rename(shared, from, to, replace))
    }

    fn set_metadata<'a>(
        &'a self,
        path: &'a RelPath,
        change: &'a MetadataChange,
    ) -> Pending<'a, Result<Vec<Loss>>> {
        self.with(|state, shared| {
            let index = state.resolve(shared, Op::SetAttributes, path)?;
            Ok(state.set_metadata(shared, index, path, change))
        })
    }

    fn xattrs<'a>(&'a self, path: &'a RelPath) -> Pending<'a, Result<Vec<Xattr>>> {
        self.with(|state, shared| {
            let index = state.resolve(shared, Op::Xattr, path)?;
            Ok(state.node(index).attributes.xattrs.clone())
        })
    }

    fn space(&self) -> Pending<'_, Result<Space>> {
        self.with(|state, shared| {
            let total = shared.space_total.unwrap_or(SPACE_UNLIMITED);
            Ok(Space {
                total,
                available: total.saturating_sub(state.used),
                nodes_available: None,
            })
        })
    }

    fn sync(&self) -> Pending<'_, Result<()>> {
        self.with(|state, _| {
            state.sync_all();
            match state.failures.check(&self.reported) {
                true => Err(Error::new(Op::Sync, &RelPath::root(), ErrorKind::DeviceError)),
                false => Ok(()),
            }
        })
    }

    fn sync_dir<'a>(&'a self, dir: &'a RelPath) -> Pending<'a, Result<()>> {
        self.with(|state, shared| {
            let index = state.resolve_dir(shared, Op::Sync, dir)?;
            state.sync_dir(index);
            Ok(())
        })
    }

    fn put_small(&self, put: PutSmall) -> Pending<'_, Result<PutDone>> {
        let content = put.content.as_deref().unwrap_or_default();
        let from = put.same_as.as_ref().filter(|_| self.compares());
        let reused = from.is_some_and(|from| self.content(from).is_ok_and(|there| there == content));
        Box::pin(async move {
            let done = small::put_by_steps(self, put).await?;
            Ok(PutDone { reused, ..done })
        })
    }

    fn get_small(&self, get: GetSmall, block: BlockMut) -> Pending<'_, (BlockMut, Result<GotSmall>)> {
        let is_known = get.is_known && self.compares();
        let reused = is_known && self.content(&get.path).is_ok_and(|there| there == block[..]);
        Box::pin(async move {
            let (block, got) = small::get_by_steps(self, get, block).await;
            (block, got.map(|got| GotSmall { reused, ..got }))
        })
    }

    fn claim<'a>(&'a self, path: &'a RelPath, create: bool) -> Pending<'a, Result<Box<dyn Claim>>> {
        let claim = MemoryClaim::take(&mut self.shared.lock(), &self.shared, path, create);
        Box::pin(std::future::ready(
            claim.map(|claim| Box::new(claim) as Box<dyn Claim>),
        ))
    }

    fn watch(&self) -> Pending<'_, Result<Box<dyn Watch>>> {
        self.with(|state, _| {
            let queue = Arc::new(Queue::default());
            state.watches.push(Arc::downgrade(&queue));
            Ok(Box::new(MemoryWatch { queue }) as Box<dyn Watch>)
        })
    }
}
